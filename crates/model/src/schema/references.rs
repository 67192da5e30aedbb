//! The form of references to other entities: `{"id": …}`. The store checks whether the entity exists.

use super::constraint::is_uuid;
use super::engine::{self, MAX_UNKNOWN};
use super::{Context, registry};
use crate::EntityKind;
use crate::value::{Object, Value};

/// Reduces a reference to the id. If it has no valid id, returns the error that Kong returns. Kong validates the value
/// as an entity of that type, and reports the id only if it finds no other problem.
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
        // In Lua `false` counts as missing.
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
    // Names in an object are distinct, so `push` need not search for duplicates.
    let mut errors = Object::new();
    let mut unknown = 0;
    for (name, value) in object.iter() {
        match record.position(name).map(|index| &record.fields[index]) {
            None => {
                unknown += 1;
                if unknown <= MAX_UNKNOWN {
                    errors.push(name, "unknown field".into());
                }
            }
            Some(_) if value.is_null() => {}
            Some(field) => {
                if let Err(problem) = engine::check(field, value, context) {
                    errors.push(name, problem);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn of_fields(count: usize) -> Value {
        let mut object = Object::new();
        (0..count).for_each(|number| object.push(format!("field{number}"), Value::Null));
        Value::Object(object)
    }

    fn problems(value: &mut Value) -> Value {
        let context = Context::at(Duration::ZERO);
        complete(EntityKind::Services, value, &context).unwrap_err()
    }

    #[test]
    fn unknown_fields_are_reported_up_to_a_number() {
        let reported = |count| problems(&mut of_fields(count)).as_object().unwrap().len();
        assert_eq!(reported(MAX_UNKNOWN), MAX_UNKNOWN);
        assert_eq!(reported(MAX_UNKNOWN + 1), MAX_UNKNOWN);
    }

    #[test]
    fn a_reference_costs_as_much_as_it_has_fields() {
        testkit::cost::assert_linear(1000, of_fields, |mut value| {
            problems(&mut value);
        });
    }
}
