//! What basic-auth brings to the registry: its schema and its entity.

use super::checks;
use model::EntityKind;
use model::schema::{EntitySource, PluginSource};

pub const BASICAUTH_CREDENTIALS: EntityKind = EntityKind::new(33);

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "basic-auth",
    schema: include_str!("schema.json"),
    entities: &[EntitySource {
        kind: BASICAUTH_CREDENTIALS,
        name: "basicauth_credentials",
        schema: include_str!("entities/basicauth_credentials.json"),
    }],
    checks: checks::CHECKS,
};
