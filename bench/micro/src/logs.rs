//! The log phase of a proxied request: with http-log, which writes the record and queues it, and with prometheus, which
//! counts. The text of entities comes from memory, as that which a worker of the gateway keeps.

use crate::fixtures::{build_settings, consumer_id, nowhere, plugin};
use crate::operation::Operation;
use crate::plans::run_access;
use model::entities::{Config, Consumer, Plugin};
use model::{EntityKind, Object};
use net::http1::{Limits, RequestHead};
use plugin::{
    Decode, Decoded, Entities, EntityKey, EntityRef, Latencies, LogEntry, LookupError, NoNames,
    Node, Origin, Request, RouteSlot, Try, TryEnd,
};
use proxy::plugins::{Chain, ChainMemory, publish};
use proxy::snapshot::Snapshot;
use serde_json::json;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::runtime::Builder;
use uuid::Uuid;

const COUNT: u32 = 1000;

const REQUEST: &[u8] = b"GET /orders/17?verbose=1 HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: curl/8.5.0\r\n\
    Accept: */*\r\nAccept-Encoding: gzip, br\r\nX-Forwarded-For: 10.0.0.1\r\nCookie: session=0123456789abcdef\r\n\r\n";
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 512\r\n\
    Date: Mon, 01 Jan 2024 00:00:00 GMT\r\nVia: 1.1 kong/3.9.1\r\nX-Kong-Upstream-Latency: 2\r\n\
    X-Kong-Proxy-Latency: 0\r\nX-Kong-Request-Id: 0123456789abcdef0123456789abcdef\r\n\r\n";

/// A route and a service of usual size.
const ROUTE: &[u8] = br#"{"id":"eedee11b-3724-5a41-aa35-5fb2a045c246","created_at":1795472673,"updated_at":1795472673,"name":"orders","protocols":["http","https"],"https_redirect_status_code":426,"strip_path":true,"preserve_host":false,"request_buffering":true,"response_buffering":true,"tags":["t1","t2"],"service":{"id":"b055e77f-a778-5150-b61f-a4d3a59b3970"},"methods":["GET"],"paths":["/orders"],"hosts":["api.example.com"],"regex_priority":0,"path_handling":"v0","ws_id":"0dc6f45b-8f8d-40d2-a504-473544ee190b"}"#;
const SERVICE: &[u8] = br#"{"id":"b055e77f-a778-5150-b61f-a4d3a59b3970","created_at":1795472673,"updated_at":1795472673,"name":"orders","retries":5,"protocol":"http","host":"orders.internal","port":8080,"connect_timeout":60000,"write_timeout":60000,"read_timeout":60000,"tags":["t1"],"enabled":true,"ws_id":"0dc6f45b-8f8d-40d2-a504-473544ee190b"}"#;

/// The requests of an operation, which come in turn.
#[derive(Clone, Copy)]
struct Turns {
    routes: usize,
    /// Number of consumers. 0 if requests have none.
    consumers: usize,
}

const ONE: Turns = Turns {
    routes: 1,
    consumers: 0,
};

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        log("plugin/none/log", None, ONE),
        log("plugin/http-log/log", Some(http_log), ONE),
        log(
            "plugin/prometheus/log",
            Some(prometheus),
            Turns {
                routes: 1,
                consumers: 1,
            },
        ),
        log(
            "plugin/prometheus/log/500-routes",
            Some(prometheus),
            Turns {
                routes: 500,
                consumers: 0,
            },
        ),
    ]
}

/// Returns the operations that show how the cost of counting grows with what is counted apart.
pub(crate) fn scaling() -> Vec<Operation> {
    vec![
        log(
            "plugin/prometheus/log/1-route",
            Some(prometheus),
            Turns {
                routes: 1,
                consumers: 0,
            },
        ),
        log(
            "plugin/prometheus/log/20000-consumers",
            Some(prometheus),
            Turns {
                routes: 1,
                consumers: 20_000,
            },
        ),
    ]
}

struct Written {
    route: Arc<[u8]>,
    service: Arc<[u8]>,
}

impl Entities for Written {
    fn find(&self, _: EntityKey<'_>, _: Decode) -> Result<Option<Decoded>, LookupError> {
        Ok(None)
    }

    fn object(&self, _: EntityKind, _: Uuid) -> Result<Option<Object>, LookupError> {
        Ok(None)
    }

    fn logged(&self, kind: EntityKind, _: Uuid) -> Result<Option<Arc<[u8]>>, LookupError> {
        Ok(Some(match kind {
            EntityKind::Routes => self.route.clone(),
            _ => self.service.clone(),
        }))
    }
}

fn log(name: &str, configured: Option<fn() -> Plugin>, turns: Turns) -> Operation {
    let count = COUNT.max((turns.routes * 10).max(turns.consumers) as u32);
    Operation::repeat(name, count, move || {
        let config = Config {
            plugins: configured.map(|plugin| plugin()).into_iter().collect(),
            ..Config::default()
        };
        let built = Snapshot::build(config, 1, None, &build_settings()).expect("it can be built");
        let head = RequestHead::parse(REQUEST, &Limits::default()).expect("it is well formed");
        let (head, _) = head.expect("it is whole");
        let entities = Written {
            route: ROUTE.into(),
            service: SERVICE.into(),
        };
        let node = Node::with_entities(Arc::new(entities)).expect("a thread can be started");
        publish(None, built.instances(), &[], &node);
        // A worker counts in cells of its own.
        let runtime = Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime can be made");
        let registration = node.workers.register(0, runtime.handle().clone());
        let mut memory = Some(Box::new(ChainMemory::default()));
        let tries = [Try {
            address: Some(SocketAddr::from(([10, 0, 0, 7], 8080))),
            after: Duration::from_micros(30),
            choosing: Duration::from_micros(2),
            took: Duration::from_micros(2500),
            end: TryEnd::Answered(200),
        }];
        let slots: Vec<RouteSlot> = (0..turns.routes).map(|_| RouteSlot::default()).collect();
        let consumers: Vec<Arc<Consumer>> = (0..turns.consumers).map(consumer).collect();
        let (routes, mut turn) = (turns.routes, 0_usize);
        let mut one = move || {
            let _stays = (&registration, &runtime);
            let number = turn.wrapping_mul(7919) % routes;
            let mut request = Request::bare(&head);
            request.route = Some(reference(3 + number as u128));
            request.service = Some(reference(2));
            request.slot = slots.get(number);
            let mut chain = Chain::new(built.instances(), &NoNames, &node);
            let mut used: Box<ChainMemory> = memory.take().unwrap_or_default();
            if let Some(consumer) = consumers.get(turn.wrapping_mul(7919) % consumers.len().max(1))
            {
                used.state.consumer = Some(consumer.clone());
            }
            turn += 1;
            chain.use_memory(used);
            run_access(&mut chain, &built, &mut request);
            let entry = LogEntry {
                status: 200,
                origin: Origin::Upstream,
                upstream_status: Some(200),
                started_at: UNIX_EPOCH + Duration::from_millis(1_795_472_673_123),
                latencies: Latencies {
                    request: Duration::from_micros(2700),
                    gateway: Duration::from_micros(32),
                    upstream: Some(Duration::from_micros(2400)),
                    receive: Duration::from_micros(200),
                },
                tries: &tries,
                request_size: 200,
                response_size: 700,
                response_head: RESPONSE,
                response_head_size: RESPONSE.len() as u64,
                upstream_path: b"/17",
                upstream_body: None,
                reason: None,
            };
            chain.log(&request, &entry);
            black_box(&request);
            memory = chain.take_memory();
        };
        // Series are made by the first request that they count.
        for _ in 0..turns.routes.max(turns.consumers) {
            one();
        }
        one
    })
}

fn consumer(number: usize) -> Arc<Consumer> {
    Arc::new(Consumer {
        id: consumer_id(number),
        username: Some(format!("consumer-{number}").into()),
        custom_id: None,
    })
}

fn reference(number: u128) -> EntityRef<'static> {
    EntityRef {
        id: Uuid::from_u128(number),
        name: Some("orders"),
    }
}

/// The defaults of the schema. Nothing listens at the endpoint, so that the queue only fills up.
fn http_log() -> Plugin {
    let config = json!({
        "http_endpoint": format!("http://{}", nowhere()), "method": "POST", "content_type": "application/json",
        "timeout": 10000, "keepalive": 60000, "queue": {}
    });
    plugin("http-log", 0, config)
}

/// All metrics with all labels.
pub(crate) fn prometheus() -> Plugin {
    let config = json!({
        "per_consumer": true, "status_code_metrics": true, "latency_metrics": true, "bandwidth_metrics": true,
        "upstream_health_metrics": true, "ai_metrics": false,
    });
    plugin("prometheus", 0, config)
}
