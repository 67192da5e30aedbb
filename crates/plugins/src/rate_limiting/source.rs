//! What rate-limiting brings to the registry: its schema and its entity.

use super::checks;
use model::EntityKind;
use model::schema::{EntitySource, PluginSource};

pub const RATELIMITING_METRICS: EntityKind = EntityKind::new(42);

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "rate-limiting",
    schema: include_str!("schema.json"),
    entities: &[EntitySource {
        kind: RATELIMITING_METRICS,
        name: "ratelimiting_metrics",
        schema: include_str!("entities/ratelimiting_metrics.json"),
    }],
    checks: checks::CHECKS,
};
