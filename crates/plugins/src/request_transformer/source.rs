//! What request-transformer brings to the registry: its schema.

use super::checks;
use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "request-transformer",
    schema: include_str!("schema.json"),
    entities: &[],
    checks: checks::CHECKS,
};
