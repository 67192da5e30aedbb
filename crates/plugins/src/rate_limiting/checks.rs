//! Checks of the schema. Source: kong/plugins/rate-limiting/schema.lua.

use crate::limits::{self, Inverted};
use model::Value;
use model::schema::Checks;

pub(super) const CHECKS: Checks = Checks {
    validators: &[
        ("rate_limits", |value, _| rate_limits(value)),
        ("rate_limiting_policy", limits::policy),
    ],
    ..Checks::NONE
};

fn rate_limits(value: &Value) -> Result<(), Value> {
    let Some(config) = value.as_object() else {
        return Ok(());
    };
    if let Some(Inverted {
        upper,
        upper_limit,
        lower,
        lower_limit,
    }) = limits::inverted(config)
    {
        let text = format!(
            "The limit for {upper}({upper_limit:.1}) cannot be lower than the limit for {lower}({lower_limit:.1})"
        );
        return Err(text.into());
    }
    let rate = limits::number(config, "sync_rate").unwrap_or(-1.0);
    if config.str("policy") != Some("redis") && rate != -1.0 {
        return Err("sync_rate can only be used with the redis policy".into());
    }
    if rate != -1.0 && rate < 0.02 {
        return Err("sync_rate must be greater than 0.02, or -1 to disable".into());
    }
    if config.str("policy") == Some("redis") && config.str("window_type") == Some("sliding") {
        return Err("sliding windows cannot be used with the redis policy".into());
    }
    let has_leases = config.get("leases").and_then(Value::as_bool) == Some(true);
    if has_leases && config.str("policy") != Some("redis") {
        return Err("leases can only be used with the redis policy".into());
    }
    if has_leases && rate != -1.0 {
        return Err("leases cannot be used with sync_rate".into());
    }
    if !has_leases && config.str("on_unreachable").is_some() {
        return Err("on_unreachable can only be used with leases".into());
    }
    Ok(())
}
