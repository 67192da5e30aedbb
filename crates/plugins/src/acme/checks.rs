//! Checks of the schema. Source: kong/plugins/acme/{schema,reserved_words}.lua.

use model::Value;
use model::schema::{Checks, Context};

pub(super) const CHECKS: Checks = Checks {
    validators: &[("acme_namespace", |value, _| namespace(value))],
    rules: &[("acme_storage", storage)],
    ..Checks::NONE
};

/// Refuses a namespace that begins with one of the plugin's own storage keys.
fn namespace(value: &Value) -> Result<(), Value> {
    const RESERVED: [&str; 5] = [
        "kong_acme:account:",
        "kong_acme:cert_key:",
        "kong_acme:update_lock",
        "kong_acme:renew_config:",
        "kong_acme:renew_last_run",
    ];
    let text = value.as_str().unwrap_or_default();
    match RESERVED.iter().find(|word| text.starts_with(*word)) {
        None => Ok(()),
        Some(word) => Err(format!("namespace can't be prefixed with reserved word: {word}").into()),
    }
}

fn storage(values: &[&Value], context: &Context) -> Result<(), String> {
    match values {
        [Value::String(storage)] if context.dbless && storage == "kong" => {
            Err("\"kong\" storage can't be used with dbless mode".to_owned())
        }
        _ => Ok(()),
    }
}
