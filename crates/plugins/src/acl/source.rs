//! What acl brings to the registry: its schema and its entity.

use model::EntityKind;
use model::schema::{Checks, EntitySource, PluginSource};

pub const ACLS: EntityKind = EntityKind::new(36);

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "acl",
    schema: include_str!("schema.json"),
    entities: &[EntitySource {
        kind: ACLS,
        name: "acls",
        schema: include_str!("entities/acls.json"),
    }],
    checks: Checks::NONE,
};
