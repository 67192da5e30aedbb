//! acme, which is not implemented yet: its schema and its entity.

mod checks;

use model::EntityKind;
use model::schema::{EntitySource, PluginSource};

pub const ACME_STORAGE: EntityKind = EntityKind::new(41);

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "acme",
    schema: include_str!("schema.json"),
    entities: &[EntitySource {
        kind: ACME_STORAGE,
        name: "acme_storage",
        schema: include_str!("entities/acme_storage.json"),
    }],
    checks: checks::CHECKS,
};
