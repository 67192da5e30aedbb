//! Derives ids for entities that are given without an id. They are version 5 UUIDs of the identifying values, so they
//! are the same at every load and on every node. Source: kong/db/schema/others/declarative_config.lua (generate_ids,
//! build_cache_key).

use super::relations::Relations;
use crate::codec;
use crate::value::{Object, Value};
use sha1::{Digest, Sha1};
use std::collections::HashMap;
use uuid::Uuid;

/// Returns the given id of an entity, or the one derived from its own fields and its parent.
pub(super) fn stable(
    relations: &Relations,
    input: &Object,
    parent: Option<(&str, Uuid)>,
) -> Option<Uuid> {
    match input.get("id") {
        None | Some(Value::Null) => derived(relations, input, parent),
        Some(Value::String(text)) if relations.has_id => parse(text),
        // The schema refuses such an `id`.
        Some(_) => None,
    }
}

/// Parses an id in the form that Kong writes and accepts. UUIDs in other forms are treated as names.
pub(super) fn parse(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok().filter(|_| text.len() == 36)
}

/// Derives the id of an entity from its fields as given. Returns `None` if no value identifies the entity. `parent` is
/// the field that refers to the entity around this one, with that entity's id.
///
/// Kong omits a reference written as `{"id": …}` or null from the hashed text. A plugin then gets the same id for every
/// service. Here, the hashed text contains the id of `{"id": …}`, and null counts as absent.
fn derived(relations: &Relations, input: &Object, parent: Option<(&str, Uuid)>) -> Option<Uuid> {
    if relations.cache_key.is_empty() {
        let name = input.str(relations.name?)?;
        return Some(named(&relations.namespace, name.as_bytes()));
    }
    let mut text = format!("{}:*", relations.kind.name());
    for part in &relations.cache_key {
        text.push(':');
        match input.get(part.field) {
            Some(Value::String(value)) => text.push_str(value),
            Some(Value::Object(reference)) => text.push_str(reference.str("id")?),
            None | Some(Value::Null) => match parent {
                Some((field, id)) if field == part.field => {
                    let mut buffer = Uuid::encode_buffer();
                    text.push_str(id.hyphenated().encode_lower(&mut buffer));
                }
                _ if part.needed => return None,
                _ => {}
            },
            Some(_) => return None,
        }
    }
    Some(named(&relations.namespace, text.as_bytes()))
}

/// Returns the same version 5 UUID as [`Uuid::new_v5`], but uses the processor's SHA-1 instructions if available.
fn named(namespace: &Uuid, name: &[u8]) -> Uuid {
    let hash = Sha1::new()
        .chain_update(namespace)
        .chain_update(name)
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    uuid::Builder::from_sha1_bytes(bytes).into_uuid()
}

/// Derives ids from the content of entities that no value identifies. A route without a name thus keeps its id at every
/// load, and a credential without a key keeps its generated key. Kong assigns random ids.
#[derive(Debug, Default)]
pub(super) struct ByContent {
    seen: HashMap<Uuid, u64>,
}

impl ByContent {
    /// Returns the id of an entity. Equal entities get different ids, which depend on their order. Generated values are
    /// ignored.
    pub(super) fn next(
        &mut self,
        relations: &Relations,
        entity: &Object,
        generated: &[&'static str],
    ) -> Uuid {
        let content = entity.iter().filter(|(name, _)| {
            !matches!(*name, "id" | "created_at" | "updated_at") && !generated.contains(name)
        });
        let content: Object = content.map(|(name, value)| (name, value.clone())).collect();
        let first = named(&relations.namespace, &codec::encode(&content));
        let count = self.seen.entry(first).or_default();
        *count += 1;
        match *count {
            1 => first,
            number => named(&first, &number.to_be_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_ids_that_the_standard_gives_them() {
        for length in [0, 1, 36, 55, 200] {
            let name = "n".repeat(length);
            let expected = Uuid::new_v5(&Uuid::NAMESPACE_DNS, name.as_bytes());
            assert_eq!(named(&Uuid::NAMESPACE_DNS, name.as_bytes()), expected);
        }
    }
}
