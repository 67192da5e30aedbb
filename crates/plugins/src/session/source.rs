//! What session brings to the registry: its schema and its entity.

use super::checks;
use model::EntityKind;
use model::schema::{EntitySource, PluginSource};

pub const SESSIONS: EntityKind = EntityKind::new(40);

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: super::NAME,
    schema: include_str!("schema.json"),
    entities: &[EntitySource {
        kind: SESSIONS,
        name: "sessions",
        schema: include_str!("entities/sessions.json"),
    }],
    checks: checks::CHECKS,
};
