//! Checks of settings for language models, for the schemas of the ai plugins. Source: kong/llm/schemas/init.lua.

use model::Value;
use model::schema::Checks;

pub(crate) const CHECKS: Checks = Checks {
    rules: &[("llm_statistics", |values, _| statistics(values))],
    ..Checks::NONE
};

/// Checks `route_type`, `model` and `logging`.
fn statistics(values: &[&Value]) -> Result<(), String> {
    let [route_type, model, logging] = values else {
        return Ok(());
    };
    let logs = logging
        .as_object()
        .is_some_and(|logging| logging.get("log_statistics") == Some(&Value::Bool(true)));
    let provider = model.as_object().and_then(|model| model.str("provider"));
    if logs && provider == Some("anthropic") && route_type.as_str() == Some("llm/v1/completions") {
        return Err(
            "anthropic does not support statistics when route_type is llm/v1/completions"
                .to_owned(),
        );
    }
    Ok(())
}
