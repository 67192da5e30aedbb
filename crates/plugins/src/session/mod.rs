//! session, which is not implemented yet: its schema and its entity.

mod checks;

use model::EntityKind;
use model::schema::{EntitySource, PluginSource};

pub const SESSIONS: EntityKind = EntityKind::new(40);

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "session",
    schema: include_str!("schema.json"),
    entities: &[EntitySource {
        kind: SESSIONS,
        name: "sessions",
        schema: include_str!("entities/sessions.json"),
    }],
    checks: checks::CHECKS,
};
