//! What oauth2 brings to the registry: its schema and its entities.

use super::checks;
use model::EntityKind;
use model::schema::{EntitySource, PluginSource};

pub const OAUTH2_CREDENTIALS: EntityKind = EntityKind::new(37);
pub const OAUTH2_TOKENS: EntityKind = EntityKind::new(38);
pub const OAUTH2_AUTHORIZATION_CODES: EntityKind = EntityKind::new(39);

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "oauth2",
    schema: include_str!("schema.json"),
    entities: &[
        EntitySource {
            kind: OAUTH2_CREDENTIALS,
            name: "oauth2_credentials",
            schema: include_str!("entities/oauth2_credentials.json"),
        },
        EntitySource {
            kind: OAUTH2_TOKENS,
            name: "oauth2_tokens",
            schema: include_str!("entities/oauth2_tokens.json"),
        },
        EntitySource {
            kind: OAUTH2_AUTHORIZATION_CODES,
            name: "oauth2_authorization_codes",
            schema: include_str!("entities/oauth2_authorization_codes.json"),
        },
    ],
    checks: checks::CHECKS,
};
