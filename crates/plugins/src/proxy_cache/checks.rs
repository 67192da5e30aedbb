//! Checks of the schema. Source: kong/plugins/proxy-cache/schema.lua.

use super::zones;
use model::Value;
use model::schema::Checks;

pub(super) const CHECKS: Checks = Checks {
    validators: &[("proxy_cache_zone", |value, _| zone(value))],
    ..Checks::NONE
};

fn zone(value: &Value) -> Result<(), Value> {
    match value.as_str() {
        Some(name) if !zones::exists(name) => Err(format!("missing shared dict '{name}'").into()),
        _ => Ok(()),
    }
}
