//! The benchmark: one program that generates configurations, plays upstream, byte relay and load generator, and measures
//! Silverback beside the relay and other proxies. `bench/README.md` says how to run it and how to read what it prints.

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
mod relay;
mod report;
mod rounds;
mod rules;
mod scenario;
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

/// Measures Silverback beside a byte relay and other proxies
///
/// Runs the scenarios named, or all but `soak`, and writes a report: tables to the terminal, FILE.json with every sample, and
/// FILE.html with plots. Peers (nginx, haproxy, envoy, caddy, traefik, krakend) take part when they are on PATH or given by
/// --peer; Kong when --kong names a start script. bench/README.md says how to lower noise and how to read the figures.
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
    /// What to measure [default: all but soak]
    #[arg(value_enum)]
    scenarios: Vec<scenario::Name>,
    /// Where the report goes: FILE.json and FILE.html
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
    /// Shows a report again: its tables, or as a page or Markdown
    Show {
        report: PathBuf,
        /// Write the page with plots here
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// Print the tables as Markdown
        #[arg(long)]
        markdown: bool,
    },
    /// Says which figures of two reports differ by more than noise
    Compare(compare::Options),
    /// Writes a configuration with routes, consumers, keys and plugins by the thousand
    Configuration(configuration::Options),
    /// Says how long importing and exporting many entities takes, and where the time goes
    Import(import::Options),
    /// Part of the harness: answers 512 bytes to every request, 64 KiB to those for /big, 10 MiB to
    /// those for /huge
    Upstream {
        #[arg(default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// Part of the harness: relays bytes and parses nothing, the floor that figures are compared with
    Relay {
        listen: SocketAddr,
        upstream: SocketAddr,
    },
    /// Part of the harness: keeps connections busy with GET requests and prints what became of them
    Load(Load),
}

#[derive(Args)]
struct Load {
    address: SocketAddr,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Requests a second; without it, as many as there can be.
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long)]
    tls: bool,
    /// A file with one request a line: path, then optionally a tab and an API key.
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

/// Fails when a build of Silverback had to be left out of a case: a wrong gateway must not go unnoticed.
fn run(run: Run) -> Result<ExitCode> {
    // What is started inherits it.
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
    // As they are called, whether or not the name was given with an extension.
    let output = run.output.with_extension("");
    println!("written: {0}.json and {0}.html", output.display());
    let failed = harness.failed_builds();
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("answers of {} failed: see the notes", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn command_line() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("bench {}", words.join(" "))
}

/// After every scenario, so that a run that breaks off has not been for nothing.
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
