//! What a schema accepts can be typed: stored bytes become the structs that the program works with.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use model::entities::{KeyauthCredential, Plugin, Route, Service, Target};
use model::schema::{Context, registry};
use model::{Object, codec};
use serde::de::DeserializeOwned;
use std::time::Duration;

fn typed<T: DeserializeOwned>(entity: &str, input: &str) -> T {
    let schema = registry().by_name(entity).unwrap();
    let input: Object = serde_json::from_str(input).unwrap();
    let entity = schema
        .complete(input, &Context::at(Duration::from_secs(1_790_000_000)))
        .unwrap();
    codec::decode(&codec::encode(&entity)).unwrap()
}

#[test]
fn entities_with_only_what_is_required_can_be_typed() {
    let service: Service = typed("services", r#"{"host":"h.test"}"#);
    assert_eq!((service.retries, service.port), (5, 80));
    let route: Route = typed("routes", r#"{"paths":["/a"],"headers":{"x":["1"]}}"#);
    assert_eq!(route.headers.len(), 1);
    let plugin: Plugin = typed("plugins", r#"{"name":"key-auth"}"#);
    assert_eq!(plugin.config.as_object().unwrap().len(), 6);
    let consumer = r#""consumer":{"id":"4bf92f3d-0000-4000-8000-00000000abcd"}"#;
    typed::<KeyauthCredential>("keyauth_credentials", &format!("{{{consumer}}}"));
}

#[test]
fn cleared_optional_fields_mean_their_defaults() {
    let service: Service = typed(
        "services",
        r#"{"host":"h.test","retries":null,"read_timeout":null}"#,
    );
    assert_eq!((service.retries, service.read_timeout), (5, 60_000));
    let target: Target = typed(
        "targets",
        r#"{"target":"t.test","weight":null,"upstream":{"id":"4bf92f3d-0000-4000-8000-00000000abcd"}}"#,
    );
    assert_eq!(target.weight, 100);
}
