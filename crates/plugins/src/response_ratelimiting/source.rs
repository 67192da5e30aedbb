//! What response-ratelimiting brings to the registry: its schema.

use super::checks;
use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "response-ratelimiting",
    schema: include_str!("schema.json"),
    entities: &[],
    checks: checks::CHECKS,
};
