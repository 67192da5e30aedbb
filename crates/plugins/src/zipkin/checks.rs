//! Checks of the schema. Source: kong/plugins/zipkin/schema.lua.

use model::Value;
use model::schema::Checks;
use std::collections::HashSet;

pub(super) const CHECKS: Checks = Checks {
    validators: &[("unique_tag_names", |value, _| unique_tag_names(value))],
    ..Checks::NONE
};

fn unique_tag_names(tags: &Value) -> Result<(), Value> {
    let tags = tags.as_array().unwrap_or_default();
    let names = tags.iter().filter_map(|tag| tag.as_object()?.str("name"));
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("repeated tags are not allowed: {name}").into());
        }
    }
    Ok(())
}
