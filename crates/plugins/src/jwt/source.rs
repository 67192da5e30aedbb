//! What jwt brings to the registry: its schema and its entity.

use model::EntityKind;
use model::schema::{Checks, EntitySource, PluginSource};

pub const JWT_SECRETS: EntityKind = EntityKind::new(35);

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "jwt",
    schema: include_str!("schema.json"),
    entities: &[EntitySource {
        kind: JWT_SECRETS,
        name: "jwt_secrets",
        schema: include_str!("entities/jwt_secrets.json"),
    }],
    checks: Checks::NONE,
};
