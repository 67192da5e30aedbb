//! Checks of the schema. Source: kong/plugins/request-termination/schema.lua.

use model::Value;
use model::schema::Checks;

pub(super) const CHECKS: Checks = Checks {
    validators: &[("request_termination", |value, _| response(value))],
    ..Checks::NONE
};

fn response(value: &Value) -> Result<(), Value> {
    let Some(config) = value.as_object() else {
        return Ok(());
    };
    let has = |name: &str| config.get(name).is_some_and(|value| !value.is_null());
    if has("message") && (has("content_type") || has("body")) {
        return Err("message cannot be used with content_type or body".into());
    }
    if has("content_type") && !has("body") {
        return Err("content_type requires a body".into());
    }
    let echo = config.get("echo") == Some(&Value::Bool(true));
    if echo && (has("content_type") || has("body")) {
        return Err("echo cannot be used with content_type and body".into());
    }
    Ok(())
}
