//! References to vaults in entities of plugins.

use model::schema::{RouterFlavor, VaultReferences};
use model::{EntityKind, Object, codec};
use serde_json::json;

fn entity(value: serde_json::Value) -> Object {
    serde_json::from_value(value).expect("an object")
}

#[test]
fn fields_that_may_be_references_are_named_without_their_text() {
    plugins::install();
    let mut references = VaultReferences::default();
    let loggly = json!({"name": "loggly", "config": {"key": "{vault://env/hidden}"}});
    let nested = json!({"name": "http-log", "config": {
        "http_endpoint": "{vault://env/hidden}",
        "headers": {"a": "{vault://env/hidden}", "b": "{vault://env/hidden}", "c": "plain"},
    }});
    let deep =
        json!({"name": "rate-limiting", "config": {"redis": {"password": "{vault://env/hidden}"}}});
    let short = json!({"name": "key-auth", "config": {"key_names": ["{vault://env/hidden}"]}});
    for (kind, value) in [
        (EntityKind::Plugins, &loggly),
        (EntityKind::Plugins, &loggly),
        (EntityKind::Plugins, &nested),
        (EntityKind::Plugins, &deep),
        (EntityKind::Plugins, &short),
        (
            plugins::kinds::KEYAUTH_CREDENTIALS,
            &json!({"key": "{vault://env/hidden}"}),
        ),
        (
            plugins::kinds::JWT_SECRETS,
            &json!({"key": "{vault://env/hidden}", "algorithm": "HS256"}),
        ),
        (EntityKind::Keys, &json!({"jwk": "{vault://env/hidden}"})),
    ] {
        let stored = codec::encode(&entity(value.clone()));
        references.look(kind, &stored).expect("it decodes");
    }
    let end = "which is not resolved yet: its text is used as the value";
    let other = "but is not a field where Kong resolves references: its text is used as the value";
    let expected = [
        format!("config.headers of plugin http-log is a vault reference, {end}"),
        format!("config.http_endpoint of plugin http-log is a vault reference, {end}"),
        format!("config.key_names of plugin key-auth is a vault reference, {other}"),
        format!("config.key of plugin loggly is a vault reference (2 times), {end}"),
        format!("config.redis.password of plugin rate-limiting is a vault reference, {end}"),
        format!("jwk of key is a vault reference, {end}"),
        format!("key of keyauth_credential is a vault reference, {other}"),
        format!("key of jwt_secret is a vault reference, {other}"),
    ];
    let mut notices: Vec<String> = references.notices().collect();
    let mut expected = Vec::from(expected);
    notices.sort();
    expected.sort();
    assert_eq!(notices, expected);
}

#[test]
fn other_texts_and_fields_are_not_references() {
    plugins::install();
    let mut references = VaultReferences::default();
    for (kind, value) in [
        (
            EntityKind::Plugins,
            json!({"name": "loggly", "config": {"key": "vault"}}),
        ),
        (
            EntityKind::Plugins,
            json!({"name": "loggly", "tags": ["{vault://a}"]}),
        ),
        (EntityKind::Services, json!({"name": "{vault://env/a}"})),
        (
            EntityKind::Plugins,
            json!({"name": "unknown", "config": {"key": "{vault://a}"}}),
        ),
    ] {
        references.look_at(kind, &entity(value));
    }
    assert_eq!(references.notices().count(), 0);
}

#[test]
fn every_kind_with_such_fields_is_searched() {
    let registry = plugins::install();
    for schema in registry.entities() {
        let definition = schema.schema_json(RouterFlavor::default()).to_string();
        let is_referenceable = definition.contains(r#""referenceable":true"#);
        if is_referenceable && schema.kind != EntityKind::Certificates {
            assert!(VaultReferences::are_in(schema.kind), "{}", schema.name);
        }
    }
}
