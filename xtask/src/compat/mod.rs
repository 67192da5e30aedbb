//! `cargo xtask compat`: runs protocol suites of other projects, clients of Kong and of OAuth2, and programs that observe
//! gateways against the real gateway. They are downloaded into the target directory, most of them from Go's module proxy, in the versions named
//! here or in xtask/compat. The repository contains none of their code. `--record` writes the latest results into docs/compatibility.md.
//!
//! The clients are part of `check` where Go has them or can download them. The protocol suites take too long for that.

mod collector;
mod conformance;
mod deck;
mod go;
mod go_kong;
mod h2spec;
mod http_cache;
mod interop;
mod oauth2;
mod process;
mod prometheus;
mod record;
mod report;
mod site;
mod wire;

pub(crate) use collector::Collector;
pub(crate) use conformance::stand_in;
pub(crate) use report::{Case, Outcome};

use crate::demo;
use crate::shell::{self, cargo};
use go::{Go, Trouble};
use std::path::{Path, PathBuf};

pub(crate) const USAGE: &str = "\
usage: cargo xtask compat [SUITE...] [--gateway PROGRAM] [--direct] [--short] [--record] [--only CASES]

  h2spec        HTTP/2, strict mode
  interop       gRPC's own client and server
  conformance   connectrpc's suite: gRPC, gRPC-Web and Connect
  grpc-web      the same suite: clients of gRPC-Web, a server of gRPC, and the plugin grpc-web between them
  deck          Kong's decK, through all its commands
  go-kong       the tests of Kong's client library for Go
  http-cache    the public suite for HTTP caches, through proxy-cache with rfc9111, and through nginx
  collector     an OpenTelemetry collector that receives what the plugin opentelemetry sends
  prometheus    Prometheus 3 and 2 that scrape the gateway, as text, as OpenMetrics, and 3 with native histograms
  oauth2        OAuth2 clients for Node.js, Python and Go, through their grants

  --gateway PROGRAM   a gateway that is built already; without it one is built as for the demo
  --direct            the suites' clients and servers without a gateway between them: what fails then is no fault of it
  --short             without what takes long: of deck the 10,000 routes
  --only CASES        for finding a fault: a section of h2spec, a case of interop, a pattern of conformance ('Timeouts/**'),
                      a step of deck, a pattern of go-kong ('TestRoute'), a case of oauth2 ('refresh'),
                      a format of prometheus ('OpenMetrics')
  --record            writes the results into docs/compatibility.md; only with every suite and a gateway

Needs Go (on the PATH or in /usr/local/go) and, the first time, the network. http-cache and oauth2 need Node.js with npm,
and oauth2 Python with venv, too.
";

/// A suite's name and the function that runs it.
struct Suite {
    name: &'static str,
    run: fn(&Bench<'_>) -> Result<Vec<Outcome>, String>,
}

const SUITES: [Suite; 10] = [
    Suite {
        name: "h2spec",
        run: h2spec::run,
    },
    Suite {
        name: "interop",
        run: interop::run,
    },
    Suite {
        name: "conformance",
        run: conformance::run,
    },
    Suite {
        name: "grpc-web",
        run: conformance::run_grpc_web,
    },
    Suite {
        name: "deck",
        run: deck::run,
    },
    Suite {
        name: "go-kong",
        run: go_kong::run,
    },
    Suite {
        name: "http-cache",
        run: http_cache::run,
    },
    Suite {
        name: "collector",
        run: collector::run,
    },
    Suite {
        name: "prometheus",
        run: prometheus::run,
    },
    Suite {
        name: "oauth2",
        run: oauth2::run,
    },
];

/// The environment of a run of the suites.
struct Bench<'a> {
    go: &'a Go,
    /// The gateway's binary. `None` runs the suites against their own servers.
    gateway: Option<&'a Path>,
    /// Selects some cases in the suite's own syntax. `None` runs all cases.
    only: Option<&'a str>,
    /// Whether to leave out cases that take long.
    short: bool,
}

#[derive(Debug, Default)]
struct Options<'a> {
    suites: Vec<&'a str>,
    gateway: Option<PathBuf>,
    direct: bool,
    record: bool,
    short: bool,
    only: Option<&'a str>,
}

pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let options = parse(words)?;
    let go = Go::find()?;
    let gateway = match (options.direct, options.gateway) {
        (true, _) => None,
        (false, Some(program)) => Some(program),
        (false, None) => Some(demo::build()?),
    };
    let bench = Bench {
        go: &go,
        gateway: gateway.as_deref(),
        only: options.only,
        short: options.short,
    };
    let chosen = |suite: &&Suite| options.suites.is_empty() || options.suites.contains(&suite.name);
    let mut outcomes = Vec::new();
    for suite in SUITES.iter().filter(chosen) {
        outcomes.extend((suite.run)(&bench)?);
    }
    print!("{}", report::text(&outcomes));
    if options.record {
        record::write(&outcomes)?;
    }
    verdict(&outcomes)
}

/// Builds the OpenTelemetry collector and returns its path. If Go cannot build it, prints the reason and returns `None`.
pub(crate) fn collector() -> Result<Option<PathBuf>, String> {
    match Go::find().and_then(|go| collector::build(&go)) {
        Ok(program) => Ok(Some(program)),
        Err(Trouble::Absent(why)) => {
            eprintln!("note: no OpenTelemetry collector: {why}");
            Ok(None)
        }
        Err(Trouble::Failed(why)) => Err(why),
    }
}

/// Builds decK and returns its path. If Go cannot build it, prints the reason and returns `None`.
pub(crate) fn deck() -> Result<Option<PathBuf>, String> {
    match Go::find().and_then(|go| deck::build(&go)) {
        Ok(program) => Ok(Some(program)),
        Err(Trouble::Absent(why)) => {
            eprintln!("note: no decK: {why}");
            Ok(None)
        }
        Err(Trouble::Failed(why)) => Err(why),
    }
}

/// Runs the clients of Kong against the gateway that the tests use. If Go cannot provide the clients, prints the reason
/// and succeeds.
pub(crate) fn check() -> Result<(), String> {
    let had = Go::find().and_then(|go| {
        deck::fetch(&go)?;
        go_kong::fetch(&go)?;
        Ok(go)
    });
    let go = match had {
        Ok(go) => go,
        Err(Trouble::Absent(why)) => {
            eprintln!("note: skipped: {why}");
            return Ok(());
        }
        Err(Trouble::Failed(why)) => return Err(why),
    };
    shell::run(&mut cargo(&["build", "--package", "gateway"]))?;
    let gateway = shell::target_directory()?.join("debug").join("silverback");
    let bench = Bench {
        go: &go,
        gateway: Some(&gateway),
        only: None,
        short: true,
    };
    let mut outcomes = deck::run(&bench)?;
    outcomes.extend(go_kong::run(&bench)?);
    finish(&outcomes)
}

/// Prints results. Fails if a case has failed.
pub(crate) fn finish(outcomes: &[Outcome]) -> Result<(), String> {
    print!("{}", report::text(outcomes));
    verdict(outcomes)
}

fn verdict(outcomes: &[Outcome]) -> Result<(), String> {
    let failed: usize = outcomes.iter().map(|outcome| outcome.failed.len()).sum();
    match (failed, outcomes.is_empty()) {
        (0, false) => Ok(()),
        (0, true) => Err("no suite ran".to_owned()),
        _ => Err(format!("{failed} cases failed")),
    }
}

fn parse<'a>(words: &[&'a str]) -> Result<Options<'a>, String> {
    let mut options = Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--direct" => options.direct = true,
            "--record" => options.record = true,
            "--short" => options.short = true,
            "--only" => options.only = Some(words.next().ok_or(USAGE)?),
            "--gateway" => {
                let program = words.next().ok_or(USAGE)?;
                let program = std::path::absolute(program).map_err(|error| error.to_string())?;
                options.gateway = Some(program);
            }
            name if SUITES.iter().any(|suite| suite.name == name) => options.suites.push(name),
            _ => return Err(USAGE.to_owned()),
        }
    }
    let partly =
        options.direct || options.short || options.only.is_some() || !options.suites.is_empty();
    if options.record && partly {
        return Err("--record is for a run of every suite against a gateway".to_owned());
    }
    Ok(options)
}
