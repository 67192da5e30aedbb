//! The schema of opentelemetry.

use super::checks;
use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "opentelemetry",
    schema: include_str!("schema.json"),
    entities: &[],
    checks: checks::CHECKS,
};
