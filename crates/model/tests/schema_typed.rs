//! The stored bytes of each entity that a schema accepts can be decoded to its typed struct.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use model::entities::{Plugin, Protocol, Route, Service, Target, Upstream};
use model::schema::Context;
use model::{Object, codec};
use plugins::install as registry;
use serde::de::DeserializeOwned;
use serde_json::json;
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
    typed::<plugins::credentials::KeyauthCredential>(
        "keyauth_credentials",
        &format!("{{{consumer}}}"),
    );
    typed::<plugins::credentials::JwtSecret>("jwt_secrets", &format!("{{{consumer}}}"));
}

#[test]
fn each_protocol_that_a_schema_accepts_can_be_typed() {
    let is_accepted = |entity: &str, input: serde_json::Value| {
        let schema = registry().by_name(entity).unwrap();
        let input: Object = serde_json::from_value(input).unwrap();
        let completed = schema.complete(input, &Context::at(Duration::ZERO));
        let problem = completed.err().map(|error| error.message.to_string());
        let is_about_protocol = |problem: &String| {
            problem.contains("expected one of") || problem.contains("unknown type")
        };
        !problem.as_ref().is_some_and(is_about_protocol)
    };
    for name in [
        "grpc",
        "grpcs",
        "http",
        "https",
        "tcp",
        "tls",
        "tls_passthrough",
        "udp",
        // Kong Enterprise has these too.
        "ws",
        "wss",
    ] {
        let is_known = serde_json::from_value::<Protocol>(json!(name)).is_ok();
        let service = json!({"host": "h.test", "protocol": name});
        assert_eq!(is_accepted("services", service), is_known, "{name}");
        let route = json!({"hosts": ["h.test"], "protocols": [name]});
        assert_eq!(is_accepted("routes", route), is_known, "{name}");
    }
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

#[test]
fn integers_are_typed_whatever_their_size_and_spelling() {
    let route: Route = typed(
        "routes",
        r#"{"paths":["/a"],"regex_priority":9.007199254741e15,"created_at":1.79e9}"#,
    );
    assert_eq!(route.regex_priority, Some(9_007_199_254_741_000));
    assert_eq!(route.created_at, 1_790_000_000);
    let route: Route = typed(
        "routes",
        r#"{"paths":["/a"],"regex_priority":-9223372036854775808,"created_at":9223372036854775807}"#,
    );
    assert_eq!(
        (route.regex_priority, route.created_at),
        (Some(i64::MIN), i64::MAX)
    );
    let service: Service = typed(
        "services",
        r#"{"host":"h.test","protocol":"https","port":65535.0,"retries":32767,"connect_timeout":2147483646,"tls_verify_depth":64}"#,
    );
    assert_eq!((service.port, service.retries), (65_535, 32_767));
    let upstream: Upstream = typed(
        "upstreams",
        r#"{"name":"u","slots":65536,"healthchecks":{"active":{"concurrency":2147483648,"healthy":
           {"successes":255,"http_statuses":[100,999]},"unhealthy":{"tcp_failures":255.0}}}}"#,
    );
    assert_eq!(upstream.healthchecks.active.unhealthy.tcp_failures, 255);
}

#[test]
fn integers_that_nothing_can_hold_are_refused() {
    let schema = registry().by_name("routes").unwrap();
    for number in ["1e300", "9223372036854775808", "-1e19"] {
        let input = format!(r#"{{"paths":["/a"],"regex_priority":{number}}}"#);
        let input: Object = serde_json::from_str(&input).unwrap();
        let error = schema
            .complete(input, &Context::at(Duration::from_secs(1)))
            .unwrap_err();
        assert_eq!(
            error.message,
            "schema violation (regex_priority: value should be between -9223372036854775808 and 9223372036854775807)"
        );
    }
}
