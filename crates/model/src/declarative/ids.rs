//! Ids that entities without one get: version 5 UUIDs of what names them, the same at every load and on every node.
//! Source: kong/db/schema/others/declarative_config.lua (generate_ids, build_cache_key).

use super::relations::Relations;
use crate::value::{Object, Value};
use uuid::Uuid;

/// The id derived from an entity as it was written; `None` when nothing names it. `parent` is the field that refers to
/// the entity it is nested in, with that one's id.
///
/// Kong drops a reference written as `{"id": …}`, or as null, from the text it hashes, so that the plugins of all
/// services collide; here the first counts as its id and the second as absent.
pub(super) fn derived(
    relations: &Relations,
    input: &Object,
    parent: Option<(&str, Uuid)>,
) -> Option<Uuid> {
    if relations.cache_key.is_empty() {
        let name = input.str(relations.name?)?;
        return Some(Uuid::new_v5(&relations.namespace, name.as_bytes()));
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
    Some(Uuid::new_v5(&relations.namespace, text.as_bytes()))
}
