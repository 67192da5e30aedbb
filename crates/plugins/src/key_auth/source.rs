//! What key-auth brings to the registry: its schema and its entity.

use model::EntityKind;
use model::schema::{Checks, EntitySource, PluginSource};

pub const KEYAUTH_CREDENTIALS: EntityKind = EntityKind::new(32);

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "key-auth",
    schema: include_str!("schema.json"),
    entities: &[EntitySource {
        kind: KEYAUTH_CREDENTIALS,
        name: "keyauth_credentials",
        schema: include_str!("entities/keyauth_credentials.json"),
    }],
    checks: Checks::NONE,
};
