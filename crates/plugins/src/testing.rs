//! What the tests of several plugins use.

use crate::kinds::{BASICAUTH_CREDENTIALS, KEYAUTH_CREDENTIALS};
use model::EntityKind;
use plugin::testing::{Case, FakeEntities, completed};
use plugin::{BuildCx, BuildError, LuaSettings, NodeIdentity, PluginDef};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Time limit for what happens in the background. Even on a busy machine, it takes less.
const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const NORA: Uuid = Uuid::from_u128(0x4e04a);
pub(crate) const GUEST: Uuid = Uuid::from_u128(0x60e57);
pub(crate) const OTTO: Uuid = Uuid::from_u128(0x0770);
/// The credential of otto, and that with the key `good`.
pub(crate) const CREDENTIAL: Uuid = Uuid::from_u128(0xc4ed);

/// A case of one plugin, on a node with [`people`].
pub(crate) fn case(def: PluginDef, config: Value) -> Case {
    crate::install();
    Case::new(def, config).entities(people())
}

/// Builds a plugin of a node with the host name `node.test`.
pub(crate) fn built<T>(build: impl FnOnce(&BuildCx<'_>) -> T) -> T {
    let identity = NodeIdentity {
        hostname: "node.test".to_owned(),
        ..NodeIdentity::default()
    };
    let life = Default::default();
    build(&BuildCx {
        identity: &identity,
        lua: &LuaSettings::default(),
        life: &life,
    })
}

/// Repeats a look until it finds something. Panics if it finds nothing in time.
pub(crate) fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "nothing happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A UDP server that the test reads.
pub(crate) fn udp_server() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

pub(crate) fn datagram(socket: &UdpSocket) -> String {
    let mut buffer = vec![0; 70_000];
    let length = socket.recv(&mut buffer).expect("a datagram arrives");
    String::from_utf8(buffer[..length].to_vec()).expect("the datagram is a text")
}

/// A plugin's configuration as its schema completes it. For tests of what the plugin makes of it.
pub(crate) fn config<C: DeserializeOwned>(plugin: &str, config: Value) -> C {
    crate::install();
    let config = completed(plugin, config).expect("the schema accepts the configuration");
    BuildError::read_config(&config).expect("the struct has the fields of the schema")
}

/// Three consumers: nora with the keys `good`, `lasting` and `expired`, otto with the password `pw2`, and guest. The
/// consumer of the key `orphan` does not exist, and looking up the key `broken` fails.
pub(crate) fn people() -> FakeEntities {
    let consumer = |id: Uuid, name: &str| json!({"id": id, "username": name});
    let key = |id: Uuid, key: &str, consumer: Uuid| json!({"id": id, "key": key, "consumer": {"id": consumer}});
    let until = |number: u128, name: &str, ttl: i64| {
        let mut credential = key(Uuid::from_u128(number), name, NORA);
        credential["ttl"] = ttl.into();
        credential
    };
    let nora = json!({"id": NORA, "username": "nora", "custom_id": "ext-77"});
    let keys = KEYAUTH_CREDENTIALS;
    FakeEntities::default()
        .with(EntityKind::Consumers, nora)
        .with(EntityKind::Consumers, consumer(OTTO, "otto"))
        .with(EntityKind::Consumers, consumer(GUEST, "guest"))
        .with(keys, key(CREDENTIAL, "good", NORA))
        .with(keys, until(2, "lasting", i64::MAX))
        .with(keys, until(3, "expired", 1))
        .with(keys, key(Uuid::from_u128(4), "orphan", Uuid::from_u128(1)))
        .failing("broken")
        .with(
            BASICAUTH_CREDENTIALS,
            json!({
                "id": CREDENTIAL, "consumer": {"id": OTTO}, "username": "otto",
                // This is the SHA-1 of "pw2" followed by the consumer's id.
                "password": "b202de19e32bf758d6354e9d6766cc3cd5f131f6",
            }),
        )
}
