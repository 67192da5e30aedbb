//! Recognises entities that nothing names, by their content: a route without a name keeps its id from load to load, and
//! a credential without a key keeps the key that was generated for it.

use super::Existing;
use crate::codec;
use crate::kind::EntityKind;
use crate::value::Object;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use uuid::Uuid;

/// What exists, by content, for the kinds that were asked for. Which fields count as content depends on which of them
/// are to be generated.
#[derive(Default)]
pub(super) struct Matching {
    indexes: HashMap<(EntityKind, Vec<&'static str>), HashMap<u64, Vec<Uuid>>>,
}

impl Matching {
    /// The id of a free entity with the same content; no other caller gets that one.
    pub(super) fn take(
        &mut self,
        existing: &dyn Existing,
        kind: EntityKind,
        entity: &Object,
        generated: &[&'static str],
        free: impl Fn(Uuid) -> bool,
    ) -> Option<Uuid> {
        let index = self
            .indexes
            .entry((kind, generated.to_vec()))
            .or_insert_with(|| index(existing, kind, generated));
        if index.is_empty() {
            return None;
        }
        let ids = index.get_mut(&fingerprint(entity, generated))?;
        while let Some(id) = ids.pop() {
            if free(id) {
                return Some(id);
            }
        }
        None
    }
}

fn index(
    existing: &dyn Existing,
    kind: EntityKind,
    generated: &[&'static str],
) -> HashMap<u64, Vec<Uuid>> {
    let mut index: HashMap<u64, Vec<Uuid>> = HashMap::new();
    existing.for_each(kind, &mut |id, bytes| {
        // A random id was given by the loader, to an entity without name or key. One that had its own key when it was
        // loaded has a derived id: its key must not pass to an entity that asks for a new one.
        if !generated.is_empty() && id.get_version_num() != 4 {
            return;
        }
        if let Ok(entity) = codec::decode::<Object>(bytes) {
            let fingerprint = fingerprint(&entity, generated);
            index.entry(fingerprint).or_default().push(id);
        }
    });
    index
}

/// Equal contents have equal fingerprints; unequal ones that collide cost an entity its id, nothing more.
fn fingerprint(entity: &Object, generated: &[&'static str]) -> u64 {
    let content = entity.iter().filter(|(name, _)| {
        !matches!(*name, "id" | "created_at" | "updated_at") && !generated.contains(name)
    });
    let content: Object = content.map(|(name, value)| (name, value.clone())).collect();
    let mut hasher = DefaultHasher::new();
    hasher.write(&codec::encode(&content));
    hasher.finish()
}
