//! What http-log brings to the registry: its schema.

use super::checks;
use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "http-log",
    schema: include_str!("schema.json"),
    entities: &[],
    checks: checks::CHECKS,
};
