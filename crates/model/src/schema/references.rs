//! The shape of references to other entities: `{"id": …}`. Whether the entity exists is the store's business.

use super::constraint::is_uuid;
use super::{Context, engine, registry};
use crate::EntityKind;
use crate::value::{Object, Value};

/// Reduces a reference to the id, or says what is wrong with it as Kong does: a value without a valid primary key is
/// validated as an entity of that kind, and only if that finds nothing, the key is what is reported.
/// Source: kong/db/schema/init.lua (validate_field, foreign).
pub(crate) fn complete(
    kind: EntityKind,
    value: &mut Value,
    context: &Context,
) -> Result<(), Value> {
    let Value::Object(object) = value else {
        return Err(single("id", "missing primary key"));
    };
    let problem = match object.get("id") {
        Some(Value::String(id)) if is_uuid(id) => {
            if object.len() > 1 {
                let id = object.remove("id").unwrap_or_default();
                *object = [("id", id)].into_iter().collect();
            }
            return Ok(());
        }
        None | Some(Value::Bool(false)) => "missing primary key",
        Some(Value::Null) => "required field missing",
        Some(Value::String(_)) => "expected a valid UUID",
        Some(_) => "expected a string",
    };
    Err(as_entity(kind, object, context)
        .err()
        .unwrap_or_else(|| single("id", problem)))
}

fn as_entity(kind: EntityKind, object: &Object, context: &Context) -> Result<(), Value> {
    let schema = registry().entity(kind);
    if let Some(key) = &schema.subschema_key
        && object.get(key).is_none_or(Value::is_null)
    {
        return Err(single(key, "required field missing"));
    }
    let record = schema.base(context.flavor);
    let mut errors = Object::new();
    for (name, value) in object.iter() {
        match record.position(name).map(|index| &record.fields[index]) {
            None => {
                errors.insert(name, "unknown field".into());
            }
            Some(_) if value.is_null() => {}
            Some(field) => {
                if let Err(problem) = engine::check(field, value, context) {
                    errors.insert(name, problem);
                }
            }
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Value::Object(errors))
}

fn single(name: &str, problem: &str) -> Value {
    Value::Object([(name, problem.into())].into_iter().collect())
}
