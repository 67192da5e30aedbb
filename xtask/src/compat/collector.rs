//! A real OpenTelemetry collector receives what the plugin opentelemetry sends. It is built from the collector's own Go
//! modules by xtask/compat/collector, with the exporter `debug`, which prints what has arrived.

use super::Bench;
use super::go::{Go, Trouble};
use super::process::Process;
use super::report::Outcome;
use crate::shell;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Echo, Launch};

const FOLDER: &str = "xtask/compat/collector";
/// The version in xtask/compat/collector/go.mod.
const VERSION: &str = "0.165.0";

/// Time limit for starting, and for the arrival of what was sent.
const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A trace that a client has begun.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// What must arrive: a name for the report, and the texts that the collector prints.
const ARRIVALS: [(&str, &[&str]); 6] = [
    (
        "the root span belongs to the client's trace",
        &[TRACE, PARENT, "Name           : kong\n"],
    ),
    ("the router has a span", &["Name           : kong.router\n"]),
    (
        "a try at an upstream has a span",
        &["Name           : kong.balancer\n"],
    ),
    (
        "a phase of a plugin has a span",
        &["Name           : kong.access.plugin.key-auth\n"],
    ),
    (
        "the resource has its attributes",
        &["service.name: Str(edge)"],
    ),
    (
        "status and method are attributes",
        &["http.status_code", "http.method"],
    ),
];

/// A collector that listens for OTLP. It is killed when this is dropped.
pub(crate) struct Collector {
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    log: PathBuf,
    _process: Process,
}

impl Collector {
    /// Starts a collector whose files are in the directory. Its ports are the usual ones of OTLP where they are free.
    pub(crate) fn start(
        program: &Path,
        directory: &Path,
        usual_ports: bool,
    ) -> Result<Self, String> {
        let ports = if usual_ports { [4318, 4317] } else { [0, 0] };
        let [http, grpc] = [free(ports[0])?, free(ports[1])?];
        let file = directory.join("collector.yaml");
        let text = format!(
            "receivers:\n  otlp:\n    protocols:\n      http: {{ endpoint: '{http}' }}\n      grpc: {{ endpoint: '{grpc}' }}\n\
             exporters:\n  debug: {{ verbosity: detailed, use_internal_logger: false, output_paths: [stdout] }}\n\
             service:\n  telemetry: {{ metrics: {{ level: none }} }}\n  pipelines:\n    \
             traces: {{ receivers: [otlp], exporters: [debug] }}\n    \
             logs: {{ receivers: [otlp], exporters: [debug] }}\n    \
             metrics: {{ receivers: [otlp], exporters: [debug] }}\n"
        );
        let problem = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::write(&file, text).map_err(problem)?;
        let log = directory.join("collector.log");
        let output = File::create(&log).map_err(problem)?;
        let errors = output.try_clone().map_err(problem)?;
        let mut command = Command::new(program);
        command.arg(format!("--config=file:{}", file.display()));
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let collector = Self {
            http,
            grpc,
            log,
            _process: Process::start(&mut command)?,
        };
        let listens = |address: SocketAddr| TcpStream::connect(address).is_ok();
        collector
            .wait(|_| listens(http) && listens(grpc))
            .map_err(|said| format!("the collector did not start:\n{said}"))?;
        Ok(collector)
    }

    /// The file with everything that has arrived.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Waits until what the collector has printed is as wanted. On failure, returns what it has printed.
    fn wait(&self, mut is_enough: impl FnMut(&str) -> bool) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            if is_enough(&said) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(said);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Whether all the texts have arrived, soon.
    fn receives(&self, texts: &[&str]) -> Result<(), String> {
        self.wait(|said| texts.iter().all(|text| said.contains(text)))
            .map_err(|said| {
                let missing: Vec<&&str> =
                    texts.iter().filter(|text| !said.contains(**text)).collect();
                format!("the collector has not received {missing:?}")
            })
    }
}

fn free(port: u16) -> Result<SocketAddr, String> {
    TcpListener::bind(("127.0.0.1", port))
        .or_else(|_| TcpListener::bind("127.0.0.1:0"))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| format!("no free port: {error}"))
}

/// Builds the collector. Go keeps what it has built.
pub(crate) fn build(go: &Go) -> Result<PathBuf, Trouble> {
    let module = shell::root().join(FOLDER);
    go.fetch(&module, ".")?;
    Ok(go.make(&module, &["build", "."], "collector")?)
}

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    let Some(gateway) = bench.gateway else {
        eprintln!("note: the suite collector has no server of its own");
        return Ok(Vec::new());
    };
    let program = build(bench.go)?;
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let collector = Collector::start(&program, directory.path(), false)?;
    let echo = Echo::start();
    let start = |name: &str, upstream: &str| {
        let text = configuration(name, upstream, &collector);
        Launch::new(gateway)
            .set("tracing_instrumentations", "all")
            .set("tracing_sampling_rate", "1")
            .configuration(&text)
            .try_start()
            .map_err(|log| format!("the gateway did not start:\n{log}"))
    };
    let inner = start("inner", &echo.url())?;
    let edge = start("edge", &format!("http://{}", inner.proxy))?;
    let context = format!("00-{TRACE}-{PARENT}-01");
    let headers = [("traceparent", context.as_str()), ("apikey", "alice-key")];
    let answer = edge.get("/orders", &headers);
    let broken = edge.get("/broken", &headers);
    let mut outcome = Outcome {
        suite: "collector",
        version: VERSION.to_owned(),
        way: "OTLP/HTTP",
        ..Outcome::default()
    };
    outcome.count(
        "the request is answered",
        (answer.status != 200).then(|| answer.line.clone()),
    );
    for (name, texts) in ARRIVALS {
        outcome.count(name, collector.receives(texts).err());
    }
    outcome.count(
        "the spans of two gateways are one trace",
        collector
            .wait(is_joined)
            .err()
            .map(|_| "the root of the inner gateway has no parent in the outer one".to_owned()),
    );
    outcome.count(
        "the log line of a failed request arrives",
        (broken.status != 502)
            .then(|| broken.line.clone())
            .or_else(|| collector.receives(&["LogRecord #0"]).err()),
    );
    let seen = echo.seen();
    let passed_on = seen
        .iter()
        .any(|request| request.to_string().contains(TRACE));
    outcome.count(
        "the upstream gets the trace",
        (!passed_on).then(|| "it has no header with the trace id".to_owned()),
    );
    Ok(vec![outcome])
}

/// A span as the collector prints it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Span<'t> {
    trace: &'t str,
    parent: &'t str,
    id: &'t str,
    name: &'t str,
}

/// Parses the spans. Each begins with a line such as `Span #0`, and has lines such as `    Name           : kong`.
fn spans(said: &str) -> Vec<Span<'_>> {
    let mut spans: Vec<Span<'_>> = Vec::new();
    for line in said.lines() {
        if line.starts_with("Span #") {
            spans.push(Span::default());
        }
        let (Some(span), Some((name, value))) = (spans.last_mut(), line.split_once(" : ")) else {
            continue;
        };
        match name.trim() {
            "Trace ID" => span.trace = value,
            "Parent ID" => span.parent = value,
            "ID" => span.id = value,
            "Name" => span.name = value,
            _ => {}
        }
    }
    spans
}

/// Whether the trace of the client has two roots of gateways, one of which is below a span of the other.
fn is_joined(said: &str) -> bool {
    let mut of_trace = spans(said);
    of_trace.retain(|span| span.trace == TRACE);
    let roots = of_trace.iter().filter(|span| span.name == "kong");
    let below = |root: &&Span<'_>| of_trace.iter().any(|span| span.id == root.parent);
    let outer = roots.clone().any(|root| root.parent == PARENT);
    let inner = roots.clone().any(|root| below(&root));
    outer && inner
}

fn configuration(name: &str, upstream: &str, collector: &Collector) -> String {
    let http = collector.http;
    format!(
        r#"
_format_version: "3.0"
services:
  - name: shop
    url: {upstream}
    routes:
      - name: orders
        paths: [/orders]
        strip_path: false
        plugins: [{{ name: key-auth }}]
  - name: broken
    url: http://127.0.0.1:1
    routes:
      - name: broken
        paths: [/broken]
consumers:
  - username: alice
    keyauth_credentials: [{{ key: alice-key }}]
plugins:
  - name: opentelemetry
    config:
      traces_endpoint: http://{http}/v1/traces
      logs_endpoint: http://{http}/v1/logs
      resource_attributes: {{ service.name: {name} }}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_joined_if_the_inner_root_is_below_a_span_of_the_outer_gateway() {
        let span = |parent: &str, id: &str, name: &str| {
            format!(
                "Span #0\n    Trace ID       : {TRACE}\n    Parent ID      : {parent}\n    ID             : {id}\n    Name           : {name}\n"
            )
        };
        let outer = span(PARENT, "a", "kong") + &span("a", "b", "kong.balancer");
        assert!(is_joined(&(outer.clone() + &span("b", "c", "kong"))));
        assert!(!is_joined(&(outer.clone() + &span("x", "c", "kong"))));
        assert!(!is_joined(&outer));
    }
}
