//! What hmac-auth brings to the registry: its schema and its entity.

use model::EntityKind;
use model::schema::{Checks, EntitySource, PluginSource};

pub const HMACAUTH_CREDENTIALS: EntityKind = EntityKind::new(34);

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "hmac-auth",
    schema: include_str!("schema.json"),
    entities: &[EntitySource {
        kind: HMACAUTH_CREDENTIALS,
        name: "hmacauth_credentials",
        schema: include_str!("entities/hmacauth_credentials.json"),
    }],
    checks: Checks::NONE,
};
