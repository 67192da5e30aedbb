//! Checks of the schema. Source: kong/plugins/opentelemetry/schema.lua.

use model::schema::Checks;
use model::{Object, Value};

pub(super) const CHECKS: Checks = Checks {
    validators: &[("resource_attributes", |value, _| resource_attributes(value))],
    ..Checks::NONE
};

fn resource_attributes(value: &Value) -> Result<(), Value> {
    for (_, value) in value.as_object().into_iter().flat_map(Object::iter) {
        match value {
            Value::String(text) if text.is_empty() => return Err("required field missing".into()),
            Value::Null => return Err("required field missing".into()),
            Value::Array(_) | Value::Object(_) => {
                return Err("invalid type of value: table".into());
            }
            _ => {}
        }
    }
    Ok(())
}
