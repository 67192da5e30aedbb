//! Requests, plugin contexts and snapshots for tests, without connections.

use model::entities::{
    BasicauthCredential, Config, Consumer, ConsumerId, CredentialId, KeyauthCredential,
};
use model::{EntityKind, Object, Value};
use net::http1::{Limits, RequestHead};
use plugin::{
    Client, KeyOwner, Lookup, LookupError, RequestBody, RequestCx, Response, Scheme, UpstreamEdits,
};
use proxy::plan::{Access, Instances, Picked, Plan, Walk};
use proxy::respond::{self, GatewayResponse};
use proxy::snapshot::{BuildSettings, Snapshot};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
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

pub(crate) fn context<'r>(
    head: &'r RequestHead,
    body: &'static str,
    lookup: &'r dyn Lookup,
) -> RequestCx<'r> {
    RequestCx {
        head,
        client: Client {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 1234,
        },
        scheme: Scheme::Http,
        http2: false,
        host: "a.test",
        port: 8000,
        request_id: REQUEST_ID,
        route: None,
        service: None,
        captures: &[],
        body: RequestBody::Whole(body.into()),
        lookup,
        consumer: None,
        credential: None,
        upstream: UpstreamEdits::default(),
    }
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
    cx: &mut RequestCx<'_>,
    picked: &mut Picked,
) -> Option<Response> {
    let mut walk = Walk::new(picked);
    while ready(plan.access(instances, cx, &mut walk)) == Access::NeedsBody {}
    walk.into_answer()
}

pub(crate) const NORA: u128 = 0x4e04a;
pub(crate) const GUEST: u128 = 0x60e57;
pub(crate) const OTTO: u128 = 0x0770;
pub(crate) const CREDENTIAL: u128 = 0xc4ed;

/// Three consumers: nora with the keys `good`, `lasting` and `expired`, otto with the password `pw2`, and guest. The
/// consumer of the key `orphan` does not exist, and looking up the key `broken` fails.
pub(crate) struct People;

fn consumer(id: u128) -> Option<Consumer> {
    let (username, custom_id) = match id {
        NORA => ("nora", Some("ext-77".into())),
        OTTO => ("otto", None),
        GUEST => ("guest", None),
        _ => return None,
    };
    Some(Consumer {
        id: ConsumerId(Uuid::from_u128(id)),
        username: Some(username.into()),
        custom_id,
    })
}

impl Lookup for People {
    fn key_owner(&self, key: &str) -> Result<Option<KeyOwner>, LookupError> {
        let (consumer, ttl) = match key {
            "good" => (NORA, None),
            "lasting" => (NORA, Some(i64::MAX)),
            "expired" => (NORA, Some(1)),
            "orphan" => (1, None),
            "broken" => return Err(LookupError("the store is broken".into())),
            _ => return Ok(None),
        };
        let id = ConsumerId(Uuid::from_u128(consumer));
        Ok(Some(KeyOwner {
            credential: KeyauthCredential {
                id: CredentialId(Uuid::from_u128(CREDENTIAL)),
                consumer: id,
                ttl,
            },
            consumer: self.consumer(id)?,
        }))
    }

    fn basicauth_credential(
        &self,
        username: &str,
    ) -> Result<Option<BasicauthCredential>, LookupError> {
        Ok((username == "otto").then(|| BasicauthCredential {
            id: CredentialId(Uuid::from_u128(CREDENTIAL)),
            consumer: ConsumerId(Uuid::from_u128(OTTO)),
            username: "otto".into(),
            // This is the SHA-1 of "pw2" followed by the consumer's id.
            password: PASSWORD.into(),
        }))
    }

    fn consumer(&self, id: ConsumerId) -> Result<Option<Consumer>, LookupError> {
        Ok(consumer(id.0.as_u128()))
    }

    fn consumer_by_username(&self, username: &str) -> Result<Option<Consumer>, LookupError> {
        let known = [NORA, OTTO, GUEST].into_iter().filter_map(consumer);
        let mut found = known.filter(|one| one.username.as_deref() == Some(username));
        Ok(found.next())
    }

    fn entity(&self, kind: EntityKind, id: Uuid) -> Result<Option<Object>, LookupError> {
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
pub(crate) fn access(snapshot: &Snapshot, cx: &mut RequestCx<'_>) -> Option<GatewayResponse> {
    let mut picked = Picked::default();
    let plan = snapshot.globals.clone();
    let answer = run_access(&plan, snapshot.instances(), cx, &mut picked)?;
    let settings = respond::ResponseSettings::default();
    Some(GatewayResponse::new(
        answer,
        Some(cx.head),
        REQUEST_ID,
        &settings,
    ))
}
