//! Requests, plugin contexts and snapshots for tests, without connections.

use model::entities::Config;
use model::{EntityKind, Object, Value};
use net::http1::{Limits, RequestHead};
use plugin::{
    Decode, Decoded, Entities, EntityKey, LookupError, NoNames, Node, Request, RequestBody,
    RequestState, Response,
};
use proxy::plugins::{Access, Chain, ChainMemory, Instances, Plan};
use proxy::respond::{self, GatewayResponse};
use proxy::snapshot::{BuildSettings, Snapshot};
use serde_json::json;
use std::sync::Arc;
use std::task::Poll;
use uuid::Uuid;

const PASSWORD: &str = "b202de19e32bf758d6354e9d6766cc3cd5f131f6";
pub(crate) const REQUEST_ID: &str = "0123456789abcdef0123456789abcdef";

/// Returns a request head from its lines, beginning with the request line.
pub(crate) fn head(lines: &[&str]) -> RequestHead {
    let text = format!("{}\r\nHost: a.test\r\n", lines[0]);
    let fields = lines[1..].iter().map(|line| format!("{line}\r\n"));
    let text = text + &fields.collect::<String>() + "\r\n";
    let (head, _) = RequestHead::parse(text.as_bytes(), &Limits::default())
        .expect("the head is well formed")
        .expect("the head is complete");
    head
}

/// A request with what its plugins have found out.
pub(crate) struct Context<'r> {
    pub(crate) request: Request<'r>,
    pub(crate) state: RequestState,
    node: Arc<Node>,
}

/// Returns a request whose body is in memory.
pub(crate) fn context<'r>(
    head: &'r RequestHead,
    body: &'static str,
    entities: impl Entities + 'static,
) -> Context<'r> {
    let mut request = Request::bare(head);
    request.host = "a.test";
    request.port = 8000;
    request.request_id = REQUEST_ID;
    request.body = RequestBody::Whole(body.into());
    Context {
        request,
        state: RequestState::default(),
        node: Node::with_entities(Arc::new(entities)).expect("a thread can be started"),
    }
}

/// Runs what `run` does with the plugins of a request.
pub(crate) fn with_chain<T>(
    instances: &Instances,
    cx: &mut Context<'_>,
    run: impl FnOnce(&mut Chain<'_>, &mut Request<'_>) -> T,
) -> T {
    let mut chain = Chain::new(instances, &NoNames, &cx.node);
    let mut memory = Box::new(ChainMemory::default());
    memory.state = std::mem::take(&mut cx.state);
    chain.use_memory(memory);
    let result = run(&mut chain, &mut cx.request);
    let memory = chain.memory_mut().expect("it was given");
    cx.state = std::mem::take(&mut memory.state);
    result
}

/// Runs a future that must be ready at its first poll.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the future waits"),
    }
}

/// Runs the access phase of a request whose body is in memory.
pub(crate) fn run_access(
    plan: &Plan,
    instances: &Instances,
    cx: &mut Context<'_>,
) -> Option<Response> {
    with_chain(instances, cx, |chain, request| {
        access_of(chain, plan, request)
    })
}

pub(crate) fn access_of(
    chain: &mut Chain<'_>,
    plan: &Plan,
    request: &mut Request<'_>,
) -> Option<Response> {
    match ready(chain.access(plan, request, &mut |_| Poll::Pending)) {
        Access::Done(ended) => ended.map(|ended| ended.response),
        other => panic!("the access phase does not end: {other:?}"),
    }
}

pub(crate) const NORA: u128 = 0x4e04a;
pub(crate) const GUEST: u128 = 0x60e57;
pub(crate) const OTTO: u128 = 0x0770;
pub(crate) const CREDENTIAL: u128 = 0xc4ed;

/// Three consumers: nora with the keys `good`, `lasting` and `expired`, otto with the password `pw2`, and guest. The
/// consumer of the key `orphan` does not exist, and looking up the key `broken` fails.
pub(crate) struct People;

fn consumer(id: u128) -> Option<serde_json::Value> {
    let (username, custom_id) = match id {
        NORA => ("nora", Some("ext-77")),
        OTTO => ("otto", None),
        GUEST => ("guest", None),
        _ => return None,
    };
    Some(json!({"id": Uuid::from_u128(id), "username": username, "custom_id": custom_id}))
}

fn key(key: &str) -> Result<Option<serde_json::Value>, LookupError> {
    let (consumer, ttl) = match key {
        "good" => (NORA, None),
        "lasting" => (NORA, Some(i64::MAX)),
        "expired" => (NORA, Some(1)),
        "orphan" => (1, None),
        "broken" => return Err(LookupError("the store is broken".into())),
        _ => return Ok(None),
    };
    Ok(Some(json!({
        "id": Uuid::from_u128(CREDENTIAL), "consumer": {"id": Uuid::from_u128(consumer)}, "ttl": ttl,
    })))
}

impl Entities for People {
    fn find(&self, key_of: EntityKey<'_>, decode: Decode) -> Result<Option<Decoded>, LookupError> {
        let found = match key_of {
            EntityKey::Id(EntityKind::Consumers, id) => consumer(id.as_u128()),
            EntityKey::Unique {
                kind: EntityKind::Consumers,
                value,
                ..
            } => {
                let known = [NORA, OTTO, GUEST].into_iter().filter_map(consumer);
                let mut found = known.filter(|one| one["username"] == value);
                found.next()
            }
            EntityKey::Unique {
                kind: plugins::kinds::KEYAUTH_CREDENTIALS,
                value,
                ..
            } => key(value)?,
            EntityKey::Unique {
                kind: plugins::kinds::BASICAUTH_CREDENTIALS,
                value: "otto",
                ..
            } => Some(json!({
                "id": Uuid::from_u128(CREDENTIAL), "consumer": {"id": Uuid::from_u128(OTTO)},
                "username": "otto",
                // This is the SHA-1 of "pw2" followed by the consumer's id.
                "password": PASSWORD,
            })),
            _ => None,
        };
        let stored = found.map(|found| {
            let object: Object = entity(found);
            decode(&model::codec::encode(&object)).expect("the entity is complete")
        });
        Ok(stored)
    }

    fn object(&self, kind: EntityKind, id: Uuid) -> Result<Option<Object>, LookupError> {
        let fields = [("id", id.to_string()), ("kind", kind.name().to_owned())];
        let fields = fields.map(|(name, value)| (name, Value::from(value)));
        Ok(Some(fields.into_iter().collect()))
    }
}

/// Reads an entity from JSON.
pub(crate) fn entity<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("the entity is complete")
}

/// Returns a global plugin. `config` must be complete, because no schema adds default values here.
pub(crate) fn plugin(name: &str, config: serde_json::Value) -> serde_json::Value {
    let id = Uuid::new_v5(&Uuid::nil(), format!("{name}{config}").as_bytes());
    json!({
        "id": id, "name": name, "enabled": true, "config": config,
        "protocols": ["grpc", "grpcs", "http", "https"],
    })
}

pub(crate) fn settings() -> BuildSettings {
    BuildSettings {
        plugins: plugins::bundled().to_vec(),
        ..BuildSettings::default()
    }
}

/// Builds a snapshot that has only global plugins.
pub(crate) fn snapshot_of(plugins: impl IntoIterator<Item = serde_json::Value>) -> Snapshot {
    let config = Config {
        plugins: plugins.into_iter().map(entity).collect(),
        ..Config::default()
    };
    Snapshot::build(config, 1, None, &settings()).expect("the configuration can be served")
}

/// Runs the access phase of the global plugins and builds the response, if there is one.
pub(crate) fn access(snapshot: &Snapshot, cx: &mut Context<'_>) -> Option<GatewayResponse> {
    let plan = snapshot.globals.clone();
    let answer = run_access(&plan, snapshot.instances(), cx)?;
    let settings = respond::ResponseSettings::default();
    Some(GatewayResponse::new(
        answer,
        Some(cx.request.head),
        REQUEST_ID,
        &settings,
    ))
}
