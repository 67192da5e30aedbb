//! Checks of the schema. Source: kong/plugins/http-log/schema.lua.

use crate::custom_fields;
use model::Value;
use model::schema::{Checks, UrlParts};

pub(super) const CHECKS: Checks = Checks {
    validators: &[
        ("http_log_credentials", |value, _| credentials(value)),
        custom_fields::VALIDATOR,
    ],
    ..Checks::NONE
};

fn credentials(value: &Value) -> Result<(), Value> {
    let Some(config) = value.as_object() else {
        return Ok(());
    };
    let endpoint = config.str("http_endpoint").unwrap_or_default();
    let headers = config.get("headers").and_then(Value::as_object);
    let has_header = headers.is_some_and(|headers| {
        headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
    });
    if has_header && UrlParts::split(endpoint).user_info.is_some() {
        return Err(
            "specifying both an 'Authorization' header and user info in 'http_endpoint' is not allowed".into(),
        );
    }
    Ok(())
}
