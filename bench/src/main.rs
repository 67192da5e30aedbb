//! The benchmark. This one program generates configurations, runs as upstream, byte relay or load generator, and
//! compares Silverback with the relay and other proxies. `bench/README.md` explains how to run it and how to read its
//! output.

#![forbid(unsafe_code)]

mod certificate;
mod compare;
mod configuration;
mod descriptors;
mod gateway;
mod h2load;
mod harness;
mod import;
mod load;
mod machine;
mod options;
mod peers;
mod pending;
mod process;
mod progress;
mod redis;
mod relay;
mod report;
mod rounds;
mod rules;
mod scenario;
mod sink;
mod slots;
mod statistics;
mod upstream;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use harness::Harness;
use load::{Client, Mode, Request, Target};
use report::{Report, html, terminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Compares Silverback with a byte relay and other proxies
///
/// Runs the named scenarios, or all but `soak` and `cardinality`, and writes a report: tables on the terminal, FILE.json with every
/// sample, and FILE.html with plots. Peers (nginx, haproxy, envoy, caddy, traefik, krakend) take part if they are on
/// PATH or given by --peer; Kong takes part if --kong names a start script. bench/README.md explains how to lower noise
/// and how to read the figures.
#[derive(Parser)]
#[command(
    name = "bench",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Arguments {
    #[command(flatten)]
    run: Run,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Args)]
struct Run {
    /// Scenarios to run [default: all but soak and cardinality]
    #[arg(value_enum)]
    scenarios: Vec<scenario::Name>,
    /// Path of the report: FILE.json and FILE.html
    #[arg(
        long,
        short,
        value_name = "FILE",
        default_value = "target/bench/report"
    )]
    output: PathBuf,
    #[command(flatten)]
    options: options::Options,
}

#[derive(Subcommand)]
enum Command {
    /// Shows a report again as tables, as a page or as Markdown
    Show {
        report: PathBuf,
        /// Write the page with plots here
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// Print the tables as Markdown
        #[arg(long)]
        markdown: bool,
    },
    /// Shows which figures of two reports differ by more than noise
    Compare(compare::Options),
    /// Writes a configuration with thousands of routes, consumers, keys and plugins
    Configuration(configuration::Options),
    /// Measures how long the import and export of many entities take, stage by stage
    Import(import::Options),
    /// Part of the harness: responds with 512 bytes to every request, with 64 KiB for /big, and with 10 MiB for /huge
    Upstream {
        #[arg(default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// Part of the harness: relays bytes without parsing; its cost is the minimum for any proxy
    Relay {
        listen: SocketAddr,
        upstream: SocketAddr,
    },
    /// Part of the harness: sends GET requests on a number of connections and prints the results
    Load(Load),
}

#[derive(Args)]
struct Load {
    address: SocketAddr,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Requests per second; default: as many as possible
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long)]
    tls: bool,
    /// File with one request per line: a path, then optionally a tab and an API key
    #[arg(long)]
    requests: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let Some(command) = arguments.command else {
        return run(arguments.run);
    };
    match command {
        Command::Show {
            report,
            html,
            markdown,
        } => show(&report, html.as_deref(), markdown)?,
        Command::Compare(options) => return compare::run(&options),
        Command::Configuration(options) => configuration::write(&options)?,
        Command::Import(options) => import::run(&options)?,
        Command::Upstream { listen } => upstream::run(listen)?,
        Command::Relay { listen, upstream } => relay::run(listen, upstream)?,
        Command::Load(options) => load(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs scenarios. Fails if a build of Silverback gave wrong responses.
fn run(run: Run) -> Result<ExitCode> {
    // Child processes inherit the limit.
    descriptors::raise_limit()?;
    let begun = Instant::now();
    let started = machine::now()?;
    let mut harness = Harness::start(run.options)?;
    let mut report = Report {
        format: report::FORMAT,
        started,
        seconds: 0.0,
        machine: harness.machine(),
        versions: harness.versions(),
        settings: harness.options.settings(),
        commands: vec![command_line()],
        notes: Vec::new(),
        scenarios: Vec::new(),
    };
    for scenario in scenario::Name::choose(&run.scenarios) {
        report.scenarios.push(scenario.run(&mut harness)?);
        report.seconds = begun.elapsed().as_secs_f64();
        report.notes.clone_from(&harness.notes);
        report.commands.truncate(1);
        report.commands.extend_from_slice(&harness.commands);
        write(&report, &run.output)?;
    }
    println!("{}", terminal::print(&report));
    // `write` replaces the extension of the option's value, if it has one.
    let output = run.output.with_extension("");
    println!("written: {0}.json and {0}.html", output.display());
    let failed = harness.failed_builds();
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("responses of {} failed: see the notes", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn command_line() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("bench {}", words.join(" "))
}

/// Writes the report. This is done after every scenario, so that an interrupted run keeps its results.
fn write(report: &Report, output: &Path) -> Result<()> {
    if let Some(directory) = output.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    report.write(&output.with_extension("json"))?;
    write_page(report, &output.with_extension("html"))
}

fn write_page(report: &Report, path: &Path) -> Result<()> {
    std::fs::write(path, html::page(report)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn show(path: &Path, html: Option<&Path>, markdown: bool) -> Result<()> {
    let report = Report::read(path)?;
    match html {
        Some(path) => write_page(&report, path)?,
        None if markdown => println!("{}", report::markdown::markdown(&report, "CPU per request")),
        None => println!("{}", terminal::print(&report)),
    }
    Ok(())
}

fn load(options: &Load) -> Result<()> {
    let requests: Arc<[Request]> = match &options.requests {
        Some(path) => load::read_requests(path)?.into(),
        None => Arc::from([Request::get("/").with_any_body()]),
    };
    let target = Target {
        address: options.address,
        tls: options.tls,
    };
    let mode = options
        .rate
        .map_or(Mode::Closed, |rate| Mode::Open { rate });
    let duration = Duration::from_secs_f64(options.seconds);
    let mut client = Client::connect(&target, options.connections, &requests)?;
    let outcomes = client.run(mode, duration, duration)?;
    let Some(outcome) = outcomes.first() else {
        bail!("nothing was measured");
    };
    println!("{outcome}");
    Ok(())
}
