//! `cargo xtask compat`: protocol suites of others against the real gateway. They come from the module proxy of Go into the
//! target directory, in the versions named here; nothing of them is kept in the repository. Not part of `check`, which
//! needs no network. What they said last is in docs/compatibility.md (`--record`).

mod conformance;
mod go;
mod h2spec;
mod interop;
mod process;
mod record;
mod report;
mod site;
mod wire;

pub(crate) use conformance::stand_in;

use crate::demo;
use go::Go;
use report::Outcome;
use std::path::{Path, PathBuf};

pub(crate) const USAGE: &str = "\
usage: cargo xtask compat [SUITE...] [--gateway PROGRAM] [--direct] [--record] [--only CASES]

  h2spec        HTTP/2, strict mode
  interop       gRPC's own client and server
  conformance   connectrpc's suite: gRPC, gRPC-Web and Connect

  --gateway PROGRAM   a gateway that is built already; without it one is built as for the demo
  --direct            the suites' clients and servers without a gateway between them: what fails then is no fault of it
  --only CASES        for finding a fault: a section of h2spec, a case of interop, a pattern of conformance ('Timeouts/**')
  --record            writes the results into docs/compatibility.md; only with every suite and a gateway

Needs Go (on the PATH or in /usr/local/go) and, the first time, the network.
";

/// A suite's name, and what runs it.
struct Suite {
    name: &'static str,
    run: fn(&Bench<'_>) -> Result<Vec<Outcome>, String>,
}

const SUITES: [Suite; 3] = [
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
];

/// What the suites run with.
struct Bench<'a> {
    go: &'a Go,
    /// Absent: the suites talk to their own servers.
    gateway: Option<&'a Path>,
    /// Some cases, in the suite's own way to name them; absent: all.
    only: Option<&'a str>,
}

#[derive(Debug, Default)]
struct Options<'a> {
    suites: Vec<&'a str>,
    gateway: Option<PathBuf>,
    direct: bool,
    record: bool,
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
    let partly = options.direct || options.only.is_some() || !options.suites.is_empty();
    if options.record && partly {
        return Err("--record is for a run of every suite against a gateway".to_owned());
    }
    Ok(options)
}
