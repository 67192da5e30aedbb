//! A real OpenTelemetry collector receives what the plugin opentelemetry sends: spans, log lines and metrics, by OTLP over
//! HTTP and over gRPC. It is built from the collector's own Go modules by xtask/compat/collector, with the exporter
//! `debug`, which prints what has arrived. A request goes through two gateways to an upstream that OpenTelemetry's own SDK
//! instruments (xtask/compat/collector/upstream), so that three programs must agree on one trace.

mod printed;

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
use testkit::{Gateway, Launch};

const FOLDER: &str = "xtask/compat/collector";
/// The version in xtask/compat/collector/go.mod.
const VERSION: &str = "0.165.0";

/// Time limit for starting, and for the arrival of what was sent.
const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A trace that a client has begun.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// The transports, with the value of the plugin's field `protocol`. Without the field it is HTTP.
const WAYS: [(&str, Option<&str>); 2] = [("OTLP/HTTP", None), ("OTLP/gRPC", Some("grpc"))];

/// What must arrive: a name for the report, and the texts that the collector prints.
const ARRIVALS: [(&str, &[&str]); 10] = [
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
    (
        "a counter arrives as a sum with its labels",
        &[
            "-> Name: kong_http_requests_total\n",
            "-> DataType: Sum\n     -> IsMonotonic: true\n     -> AggregationTemporality: Cumulative\n",
            "-> route: Str(orders)\n",
        ],
    ),
    (
        "a gauge arrives",
        &["-> Name: silverback_revision\n", "-> DataType: Gauge\n"],
    ),
    (
        "a histogram arrives with its buckets and its unit",
        &[
            "-> Name: silverback_request_seconds\n",
            "-> Unit: s\n     -> DataType: Histogram\n     -> AggregationTemporality: Cumulative\n",
            "ExplicitBounds #0: ",
        ],
    ),
    (
        "a summary arrives",
        &[
            "-> Name: silverback_change_seconds\n",
            "-> DataType: Summary\n",
        ],
    ),
];

/// The way from the span of the upstream's own code up to the client, by service and name. The last parent is the client's
/// span.
const PATH: [(&str, &str); 6] = [
    ("stock", "look up"),
    ("stock", "serve"),
    ("inner", "kong.balancer"),
    ("inner", "kong"),
    ("edge", "kong.balancer"),
    ("edge", "kong"),
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
    go.fetch(&module, "./...")?;
    Ok(go.make(&module, &["build", "."], "collector")?)
}

fn build_upstream(go: &Go) -> Result<PathBuf, String> {
    let module = shell::root().join(FOLDER);
    go.make(&module, &["build", "./upstream"], "instrumented-upstream")
}

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    let Some(gateway) = bench.gateway else {
        eprintln!("note: the suite collector has no server of its own");
        return Ok(Vec::new());
    };
    let collector = build(bench.go)?;
    let upstream = build_upstream(bench.go)?;
    let run = |(way, protocol)| {
        let outcome = Outcome {
            suite: "collector",
            version: VERSION.to_owned(),
            way,
            ..Outcome::default()
        };
        one_way(gateway, &collector, &upstream, protocol, outcome)
    };
    WAYS.into_iter().map(run).collect()
}

/// Runs all cases over one transport.
fn one_way(
    gateway: &Path,
    collector: &Path,
    upstream: &Path,
    protocol: Option<&str>,
    mut outcome: Outcome,
) -> Result<Outcome, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let collector = Collector::start(collector, directory.path(), false)?;
    let mut command = Command::new(upstream);
    let command = command.arg(collector.grpc.to_string());
    let (_upstream, address) = Process::start_until(command, "listening on ")?;
    let start = |name: &str, upstream: &str| {
        let text = configuration(name, upstream, &collector, protocol);
        Launch::new(gateway)
            .set("tracing_instrumentations", "all")
            .set("tracing_sampling_rate", "1")
            .configuration(&text)
            .try_start()
            .map_err(|log| format!("the gateway did not start:\n{log}"))
    };
    let inner = start("inner", &format!("http://{address}"))?;
    let edge = start("edge", &format!("http://{}", inner.proxy))?;
    let context = format!("00-{TRACE}-{PARENT}-01");
    let headers = [("traceparent", context.as_str()), ("apikey", "alice-key")];
    let answer = edge.get("/orders", &headers);
    let broken = edge.get("/broken", &headers);
    outcome.count(
        "the request is answered",
        (answer.status != 200).then(|| answer.line.clone()),
    );
    for (name, texts) in ARRIVALS {
        outcome.count(name, collector.receives(texts).err());
    }
    let joined = collector.wait(|said| printed::path(said, TRACE, PATH[0]) == joined());
    outcome.count(
        "the spans of two gateways and of an SDK are one trace",
        joined.err().map(|said| {
            let path = printed::path(&said, TRACE, PATH[0]);
            format!("from the upstream's span up there are {path:?}")
        }),
    );
    outcome.count(
        "the log line of a failed request arrives",
        (broken.status != 502)
            .then(|| broken.line.clone())
            .or_else(|| collector.receives(&["LogRecord #0"]).err()),
    );
    outcome.count(
        "nothing was refused, lost or sent twice",
        troubles([&edge, &inner]).err(),
    );
    Ok(outcome)
}

/// The path that is to be found.
fn joined() -> Vec<(String, String)> {
    let spans = PATH.map(|(service, name)| (service.to_owned(), name.to_owned()));
    let client = (String::new(), PARENT.to_owned());
    spans.into_iter().chain([client]).collect()
}

/// Looks at the counters of the plugins' queues.
fn troubles(gateways: [&Gateway; 2]) -> Result<(), String> {
    for gateway in gateways {
        let page = gateway.admin_get("/metrics").text();
        let lines = page.lines().filter(|line| {
            line.starts_with("silverback_plugin_queue_") && line.contains("opentelemetry")
        });
        let lines: Vec<&str> = lines.collect();
        let counts = |line: &&&str| !line.ends_with(" 0");
        let lost = |line: &&&str| line.contains("_dropped_") || line.contains("_retries_");
        if let Some(line) = lines.iter().filter(lost).find(counts) {
            return Err((*line).to_owned());
        }
        let sent = |line: &&&str| line.contains("_sent_");
        if lines.iter().filter(sent).find(counts).is_none() {
            return Err(format!("nothing is counted as sent: {lines:?}"));
        }
    }
    Ok(())
}

fn configuration(
    name: &str,
    upstream: &str,
    collector: &Collector,
    protocol: Option<&str>,
) -> String {
    let (address, protocol) = match protocol {
        None => (collector.http, String::new()),
        Some(protocol) => (collector.grpc, format!("protocol: {protocol}")),
    };
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
  - name: prometheus
    config: {{ status_code_metrics: true }}
  - name: opentelemetry
    config:
      traces_endpoint: http://{address}/v1/traces
      logs_endpoint: http://{address}/v1/logs
      metrics_endpoint: http://{address}/v1/metrics
      metrics_interval: 1
      resource_attributes: {{ service.name: {name} }}
      {protocol}
"#
    )
}
