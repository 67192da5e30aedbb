//! Checks of the schema. Source: kong/plugins/request-transformer/schema.lua.

use model::Value;
use model::schema::Checks;

pub(super) const CHECKS: Checks = Checks {
    validators: &[("template_pair", |value, _| template_pair(value))],
    ..Checks::NONE
};

/// Validates `name:value` with a value that is not empty and is a template whose code can be parsed.
fn template_pair(pair: &Value) -> Result<(), Value> {
    let text = pair.as_str().unwrap_or_default();
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    // Kong skips all colons after the name.
    let value = value.trim_start_matches(':');
    if value.is_empty() {
        return Err(format!("key '{name}' has no value").into());
    }
    lua::check_template(value).map_err(|error| {
        format!("value '{value}' is not in supported format, error:{error}").into()
    })
}
