//! The entity of acl: a consumer is in a group.

use super::source::ACLS;
use compact_str::CompactString;
use model::EntityKind;
use plugin::Entity;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
pub struct Membership {
    pub group: CompactString,
}

impl Entity for Membership {
    const KIND: EntityKind = ACLS;
}
