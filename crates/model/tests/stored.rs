//! The JSON of stored entities.

use model::schema::{Context, RouterFlavor};
use model::{EntityKind, Object, codec};
use serde_json::{Value, json};
use std::time::Duration;

fn shown(kind: EntityKind, input: Value) -> (Value, Value) {
    let input: Object = serde_json::from_value(input).expect("an object");
    let context = Context::at(Duration::from_millis(1_700_000_000_250));
    let schema = plugins::install().entity(kind);
    let entity = schema.complete(input, &context).expect("a valid entity");
    let flavor = RouterFlavor::default();
    let (mut stored, mut built) = (Vec::new(), Vec::new());
    schema
        .write_stored_json(&codec::encode(&entity), flavor, &mut stored)
        .expect("readable");
    schema.write_json_for(&entity, flavor, &mut built);
    let parse = |bytes: &[u8]| serde_json::from_slice(bytes).expect("JSON");
    (parse(&stored), parse(&built))
}

#[test]
fn stored_entities_are_shown_like_built_ones() {
    for (kind, input) in [
        (
            EntityKind::Services,
            json!({"name": "ü", "host": "h.test", "tags": ["a\"b\\"]}),
        ),
        (
            EntityKind::Services,
            json!({"name": "n".repeat(300), "host": "h.test"}),
        ),
        (
            EntityKind::Routes,
            json!({"paths": ["/a"], "headers": {"x-a": ["1", "2"]}, "service": {"id": "0dc6f45b-8f8d-40d2-a504-473544ee190b"}}),
        ),
        (
            EntityKind::Routes,
            json!({"protocols": ["tcp"], "sources": [{"ip": "10.0.0.1"}, {"port": 70}]}),
        ),
        (EntityKind::Upstreams, json!({"name": "u.internal"})),
        (
            EntityKind::Targets,
            json!({"target": "t.test:1", "upstream": {"id": "0dc6f45b-8f8d-40d2-a504-473544ee190b"}}),
        ),
        (
            EntityKind::Plugins,
            json!({"name": "key-auth", "config": {"key_names": ["a"]}}),
        ),
        (
            EntityKind::Vaults,
            json!({"name": "env", "prefix": "my-env", "config": {"prefix": "X_"}}),
        ),
        (
            plugins::kinds::KEYAUTH_CREDENTIALS,
            json!({"key": "k", "ttl": 1_800_000_000, "consumer": {"id": "0dc6f45b-8f8d-40d2-a504-473544ee190b"}}),
        ),
    ] {
        let (stored, built) = shown(kind, input);
        assert_eq!(stored, built, "{kind:?}");
    }
}

#[test]
fn deprecated_settings_are_left_out() {
    let input = json!({"name": "rate-limiting", "config": {"minute": 5}});
    let (stored, built) = shown(EntityKind::Plugins, input);
    assert!(built["config"].get("redis_host").is_some());
    assert!(stored["config"].get("redis_host").is_none());
    assert!(stored["config"].get("redis").is_some());
}
