//! Entities: a schema completes every object or returns an error. Storing a completed entity does not change its JSON.

use model::schema::Context;
use model::{Object, codec};
use std::time::Duration;

/// Checks an entity. The first byte of the input chooses the entity type; the rest is the entity as JSON.
pub fn schema(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else {
        return;
    };
    let Ok(input) = serde_json::from_slice::<Object>(text) else {
        return;
    };
    let registry = plugins::install();
    let kind = registry.kinds()[usize::from(first) % registry.kinds().len()];
    let schema = registry.entity(kind);
    let context = Context::at(Duration::from_secs(1_700_000_000));
    let Ok(entity) = schema.complete(input, &context) else {
        return;
    };
    let mut shown = Vec::new();
    schema.write_json(&entity, &mut shown);
    assert!(serde_json::from_slice::<Object>(&shown).is_ok());
    let decoded: Object =
        codec::decode(&codec::encode(&entity)).expect("encoded bytes can be decoded");
    let mut again = Vec::new();
    schema.write_json(&decoded, &mut again);
    assert_eq!(shown, again, "storing an entity must not change its JSON");
}
