//! The schema of zipkin.

use super::checks;
use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "zipkin",
    schema: include_str!("schema.json"),
    entities: &[],
    checks: checks::CHECKS,
};
