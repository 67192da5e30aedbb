//! Responses of the history endpoints. The OpenAPI document is generated from these structs.

use super::ended::EndedTokens;
use crate::shown::{Entity, Page};
use crate::time;
use schemars::JsonSchema;
use serde::Serialize;
use store::RevisionInfo;
use uuid::Uuid;

/// A revision: when and by whom it was created, and how many entities it changed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Revision {
    revision: u64,
    #[schemars(extend("format" = "date-time"))]
    time: String,
    /// The address of the client, or the component of the program that created the revision.
    source: String,
    actor: Option<String>,
    request_id: Option<String>,
    message: Option<String>,
    created: u64,
    updated: u64,
    deleted: u64,
}

impl From<&RevisionInfo> for Revision {
    fn from(info: &RevisionInfo) -> Self {
        let origin = &info.origin;
        Self {
            revision: info.revision.0,
            time: time::rfc3339(info.at_ms),
            source: origin.source.clone(),
            actor: origin.actor.clone(),
            request_id: origin.request_id.clone(),
            message: origin.message.clone(),
            created: info.counts.created,
            updated: info.counts.updated,
            deleted: info.counts.deleted,
        }
    }
}

/// A revision in a list. In the history of one entity, it includes the change of that entity.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Listed {
    #[serde(flatten)]
    pub(crate) revision: Revision,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<Change>,
}

/// An entity before and after a change. `before` is null for a creation, and `after` is null for a deletion.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Change {
    pub(crate) action: Action,
    /// The type of the entity, such as `services`.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) id: Uuid,
    pub(crate) before: Option<Entity>,
    pub(crate) after: Option<Entity>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Create,
    Update,
    Delete,
}

/// A revision and a page of its changes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Shown {
    #[serde(flatten)]
    pub(crate) revision: Revision,
    #[serde(flatten)]
    pub(crate) changes: Page<Change>,
}

/// A page of the entities that differ between two revisions.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Diff {
    pub(crate) from: u64,
    pub(crate) to: u64,
    #[serde(flatten)]
    pub(crate) changes: Page<Change>,
}

/// A rollback and the first page of its changes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RolledBack {
    /// The new revision.
    pub(crate) revision: u64,
    pub(crate) rolled_back_to: u64,
    /// The chosen entities. Absent if all entities were restored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) entities: Vec<String>,
    /// Entities that were deleted together with a chosen one and stay deleted. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_restored: Vec<NotRestored>,
    pub(crate) dry_run: bool,
    /// The live OAuth2 tokens that the rollback would end, with their clients and services. Only for dry runs, and absent if
    /// there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_oauth2_tokens: Option<EndedTokens>,
    pub(crate) created: u64,
    pub(crate) updated: u64,
    pub(crate) deleted: u64,
    #[serde(flatten)]
    pub(crate) changes: Page<Change>,
}

/// An entity that a rollback of other entities leaves deleted.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NotRestored {
    /// The type of the entity, such as `keyauth_credentials`.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) id: Uuid,
    /// The entity in the form that `entities` takes, such as `key-auths/KEY`.
    pub(crate) entity: String,
}
