//! What tracing costs: opentelemetry in front of five plugins that do almost nothing, and in front of a chain of plugins
//! as gateways in production have it. Delivery is not counted, since it runs on another thread.

use crate::fixtures::{build_settings, nowhere, plugin, ready};
use crate::operation::Operation;
use crate::phases;
use crate::plans::{head, run_access};
use crate::requests::{Setup, exchange};
use model::entities::{Config, Plugin};
use plugin::trace::Tracing;
use plugin::{
    Answer, EntityRef, HeaderEdits, Instrumentations, Latencies, LogEntry, NoNames, Node, Origin,
    Request, Try, TryEnd,
};
use proxy::plugins::{Access, Chain, ChainMemory};
use proxy::respond::ResponseSettings;
use proxy::snapshot::Snapshot;
use serde_json::{Value, json};
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::Instant;
use uuid::Uuid;

const COUNT: u32 = 1000;
const PLUGIN: &str = "opentelemetry";

/// A name, the kinds of spans (`tracing_instrumentations`), and the share of the requests that are sampled.
const CASES: [(&str, Instrumentations, f64); 4] = [
    ("off", Instrumentations::NONE, 1.0),
    ("unsampled", Instrumentations::ALL, 0.0),
    ("request", Instrumentations::REQUEST, 1.0),
    ("all", Instrumentations::ALL, 1.0),
];

/// Returns the phases of six plugins, and of the five without opentelemetry, from which the cost of the plugin is
/// counted. `all` has 15 spans: those of the request, the router and the balancer, and two of each plugin.
pub(crate) fn operations() -> Vec<Operation> {
    let named = |name| format!("plan/phases/opentelemetry/{name}");
    let without = phases(&named("without"), Instrumentations::ALL, None);
    let cases = CASES.map(|(name, kinds, rate)| phases(&named(name), kinds, Some(rate)));
    [without].into_iter().chain(cases).collect()
}

/// Returns whole requests, with a chain of plugins.
pub(crate) fn whole(
    chain: impl Fn() -> (Setup, Vec<Plugin>) + Copy + Send + Sync + 'static,
) -> Vec<Operation> {
    let cases = CASES.map(|(name, kinds, rate)| {
        exchange(&format!("chain/opentelemetry/{name}"), move || {
            let (setup, mut plugins) = chain();
            plugins.push(opentelemetry(rate));
            let config = setup.config;
            Setup {
                config: Box::new(move |upstream| Config {
                    plugins: plugins.clone(),
                    ..config(upstream)
                }),
                tracing: tracing(kinds),
                ..setup
            }
        })
    });
    cases.into()
}

fn tracing(instrumentations: Instrumentations) -> Tracing {
    Tracing {
        instrumentations,
        sampling_rate: 1.0,
    }
}

/// Nothing listens at the endpoint, so that the queue only fills up.
fn opentelemetry(rate: f64) -> Plugin {
    let config = json!({
        "traces_endpoint": format!("http://{}/v1/traces", nowhere()), "queue": queue(), "sampling_rate": rate,
        "connect_timeout": 1000, "send_timeout": 5000, "read_timeout": 5000,
        "propagation": {"default_format": "w3c"},
    });
    plugin(PLUGIN, 0, config)
}

fn queue() -> Value {
    json!({"max_batch_size": 100_000, "max_coalescing_delay": 60, "max_entries": 100_000})
}

/// Runs the phases from the beginning of the trace to the log for a request with a response of an upstream. Without a
/// rate, opentelemetry is not configured.
fn phases(name: &str, kinds: Instrumentations, rate: Option<f64>) -> Operation {
    Operation::repeat(name, COUNT, move || {
        let mut settings = build_settings();
        settings.plugins.retain(|def| &*def.name == PLUGIN);
        settings.plugins.extend(phases::definitions::<()>());
        settings.node.tracing = tracing(kinds);
        let mut plugins = phases::configured();
        plugins.extend(rate.map(opentelemetry));
        let config = Config {
            plugins,
            ..Config::default()
        };
        let built = Snapshot::build(config, 1, None, &settings).expect("it can be built");
        let mut node = Node::bare().expect("a thread can be started");
        if let Some(node) = Arc::get_mut(&mut node) {
            node.identity.tracing = tracing(kinds);
        }
        let (head, upstream) = (head(), phases::response_head());
        let mut memory = Some(Box::new(ChainMemory::default()));
        let responses = ResponseSettings::default();
        let (started, tries) = (Instant::now(), [answered()]);
        move || {
            let mut request = Request::bare(&head);
            request.route = Some(reference(1));
            request.service = Some(reference(2));
            request.route_path = "/orders";
            let mut memory_of_request = memory.take().unwrap_or_default();
            request.upstream.headers = std::mem::take(&mut memory_of_request.upstream_headers);
            let mut chain = Chain::new(built.instances(), &NoNames, &node);
            chain.use_memory(memory_of_request);
            let is_timed =
                built.globals.is_traced() && chain.begin_trace(&built.globals, &request, started);
            match is_timed {
                true => run_timed(&mut chain, &built, &mut request),
                false => run_access(&mut chain, &built, &mut request),
            }
            let mut answer = Answer::new(Origin::Upstream, upstream.status(), HeaderEdits::new());
            let filtered =
                chain.header_filter(&request, Some(&upstream), None, &mut answer, &responses);
            assert!(matches!(filtered, Ok(None)), "no plugin fails or answers");
            chain.log(&request, &entry(&answer, &tries));
            black_box(&request);
            if let Some(memory) = chain.memory_mut() {
                memory.upstream_headers = request.upstream.headers;
            }
            memory = chain.take_memory();
        }
    })
}

/// Does what [`run_access`] does for requests whose spans are recorded.
fn run_timed(chain: &mut Chain<'_>, built: &Snapshot, request: &mut Request<'_>) {
    let mut stays = |_: &mut std::task::Context<'_>| Poll::Pending;
    let access = ready(chain.access_timed(&built.globals, request, &mut stays));
    assert!(
        matches!(access, Access::Done(None)),
        "no plugin answers or needs the body"
    );
}

fn entry<'e>(answer: &Answer, tries: &'e [Try]) -> LogEntry<'e> {
    LogEntry {
        status: answer.status,
        origin: answer.origin,
        upstream_status: Some(answer.status),
        started_at: UNIX_EPOCH + Duration::from_millis(1_795_472_673_123),
        latencies: Latencies {
            request: Duration::from_micros(2700),
            gateway: Duration::from_micros(32),
            upstream: Some(Duration::from_micros(2400)),
            receive: Duration::from_micros(200),
        },
        tries,
        request_size: 200,
        response_size: 700,
        response_head: &[],
        response_head_size: 0,
        upstream_path: b"/",
        upstream_body: None,
        reason: None,
    }
}

fn answered() -> Try {
    Try {
        address: Some(SocketAddr::from(([10, 0, 0, 7], 8080))),
        after: Duration::from_micros(30),
        choosing: Duration::from_micros(2),
        took: Duration::from_micros(2500),
        end: TryEnd::Answered(200),
    }
}

fn reference(number: u128) -> EntityRef<'static> {
    EntityRef {
        id: Uuid::from_u128(number),
        name: Some("orders"),
    }
}
