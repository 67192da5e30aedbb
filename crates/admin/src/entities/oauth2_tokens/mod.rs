//! The endpoints of OAuth2 tokens. They are entities with Kong's paths, answers and errors, but the configuration does not
//! contain them: they are in a store of their own, also without a database.

mod row;
mod write;

pub(crate) use row::{RowError, entity_of, is_owned, row_of};

use super::{parent_id, show, view, write as write_entity};
use crate::endpoints::Relation;
use crate::entities::find::{Found, Selector, by_id, check_key, parse_id};
use crate::entities::write::{Action, Input};
use crate::paging::{self, Offset, escape, offset_after};
use crate::render;
use crate::request::Call;
use crate::respond::{ApiResult, Failure, empty, json_bytes};
use crate::shown::{self, Entity};
use axum::http::StatusCode;
use model::EntityKind;
use std::sync::Arc;
use tokens::{Cursor, Listed, Token, TokenStore};
use uuid::Uuid;

/// Parts of a list that are read for a page. Tokens of deleted entities take place in the list until they end.
const MOST_PARTS: usize = 10;

/// The kind of tokens.
pub(crate) fn kind() -> Option<EntityKind> {
    EntityKind::from_name(row::NAME)
}

/// Whether an entity kind is that of tokens.
pub(crate) fn is(kind: EntityKind) -> bool {
    kind.name() == row::NAME
}

fn store(call: &Call<'_>) -> Result<Arc<dyn TokenStore>, Failure> {
    call.control.oauth2_tokens().ok_or_else(no_store)
}

pub(crate) fn no_store() -> Failure {
    let text = "this node has no store of OAuth2 tokens";
    Failure::Message(StatusCode::NOT_IMPLEMENTED, text.into())
}

fn now(call: &Call<'_>) -> i64 {
    call.control.context().now
}

/// `/oauth2_tokens`
pub(super) async fn collection(call: &Call<'_>, kind: EntityKind) -> ApiResult {
    match call.method {
        "GET" => {
            let path = crate::endpoints::base(kind).unwrap_or("/");
            list(call, kind, Listed::All, path, true).await
        }
        _ => written(call, kind, Action::Insert, None).await,
    }
}

/// `/oauth2_tokens/{oauth2_tokens}`
pub(super) async fn entity(call: &Call<'_>, kind: EntityKind) -> ApiResult {
    let segment = call.parameter(kind.name());
    if call.method == "GET" {
        let token = named(call, kind, segment).await?;
        return answer(
            call,
            kind,
            &token.ok_or_else(Failure::not_found)?,
            StatusCode::OK,
        );
    }
    let selector = Selector::parse(call.control, kind, segment)?;
    written(call, kind, super::action(call, selector), None).await
}

/// `/services/{services}/oauth2_tokens`
pub(super) async fn children(call: &Call<'_>, relation: Relation) -> ApiResult {
    let parent = parent_id(call, relation)?;
    if call.method == "GET" {
        let base = crate::endpoints::base(relation.parent).unwrap_or("/");
        let segment = escape(call.parameter(relation.parent.name()));
        let path = format!(
            "{base}/{segment}/{}",
            crate::endpoints::nested(relation.child)
        );
        let of = match relation.field {
            row::SERVICE => Listed::OfService(parent),
            _ => Listed::OfCredential(parent),
        };
        return list(call, relation.child, of, &path, false).await;
    }
    let link = Some((relation.field, parent));
    written(call, relation.child, Action::Insert, link).await
}

/// `/services/{services}/oauth2_tokens/{oauth2_tokens}`
pub(super) async fn child(call: &Call<'_>, relation: Relation) -> ApiResult {
    let parent = parent_id(call, relation)?;
    let (kind, segment) = (relation.child, call.parameter(relation.child.name()));
    let selector = Selector::parse(call.control, kind, segment)?;
    if call.method == "PUT" {
        let link = Some((relation.field, parent));
        return written(call, kind, Action::Upsert(selector), link).await;
    }
    let token = named(call, kind, segment).await?.filter(|token| {
        let owner = match relation.field {
            row::SERVICE => token.service,
            _ => Some(token.credential),
        };
        owner.is_some_and(|owner| owner.id == parent)
    });
    let token = token.ok_or_else(Failure::not_found)?;
    match call.method {
        "GET" => answer(call, kind, &token, StatusCode::OK),
        "PATCH" => written(call, kind, Action::Update(selector), None).await,
        _ => written(call, kind, Action::Delete(selector), None).await,
    }
}

/// `/oauth2_tokens/{oauth2_tokens}/service`
pub(super) async fn referenced(call: &Call<'_>, relation: Relation) -> ApiResult {
    let token = named(call, relation.child, call.parameter(relation.child.name())).await?;
    let token = token.ok_or_else(Failure::not_found)?;
    let owner = match relation.field {
        row::SERVICE => token.service,
        _ => Some(token.credential),
    };
    let id = owner.ok_or_else(Failure::not_found)?.id;
    let selector = Selector::Id(id);
    let action = match call.method {
        "GET" => {
            let view = view(call)?;
            return show(
                call,
                &view,
                relation.parent,
                by_id(&view, relation.parent, id)?,
            );
        }
        "PUT" => Action::Upsert(selector),
        "PATCH" => Action::Update(selector),
        _ => return Err(Failure::method_not_allowed()),
    };
    write_entity(call, relation.parent, action, None).await
}

/// Finds a token by id or access token, unless an entity that it belongs to was deleted.
async fn named(call: &Call<'_>, kind: EntityKind, segment: &str) -> Result<Option<Token>, Failure> {
    let id = match parse_id(segment) {
        Some(id) => Some(id),
        None => {
            check_key(call.control, kind, row::ACCESS_TOKEN, segment)?;
            let store = store(call)?;
            let found = store.find_by_access_token(segment, now(call)).get().await?;
            found.map(|token| token.id)
        }
    };
    match id {
        Some(id) => by_id_owned(call, kind, id).await,
        None => Ok(None),
    }
}

async fn by_id_owned(
    call: &Call<'_>,
    kind: EntityKind,
    id: Uuid,
) -> Result<Option<Token>, Failure> {
    let found = store(call)?.find_by_id(id, now(call)).get().await?;
    let Some(token) = found else {
        return Ok(None);
    };
    let is_owned = row::is_owned(&view(call)?, kind, &token)?;
    Ok(Some(token).filter(|_| is_owned))
}

async fn list(
    call: &Call<'_>,
    kind: EntityKind,
    of: Listed,
    path: &str,
    repeats_size: bool,
) -> ApiResult {
    let page = paging::page(&call.query, false)?;
    let mut after = match &page.offset {
        Offset::Start => None,
        Offset::After(key) => {
            let cursor = Cursor::parse(key);
            Some(cursor.ok_or_else(|| paging::invalid_offset(key))?)
        }
        Offset::Invalid(bad) => return Err(bad.error().into()),
    };
    let (store, now) = (store(call)?, now(call));
    let mut data = Vec::new();
    for _ in 0..MOST_PARTS {
        let part = store
            .list(of, after, page.size - data.len(), now)
            .get()
            .await?;
        let view = view(call)?;
        for token in part.tokens {
            if row::is_owned(&view, kind, &token)? {
                data.push(Entity::written(|out| {
                    render::entity(out, call.control, &view, kind, &found(&token))
                })?);
            }
        }
        after = part.next;
        if after.is_none() || data.len() == page.size {
            break;
        }
    }
    if after.is_some() {
        let rest = store.list(of, after, 1, now).get().await?;
        after = after.filter(|_| !rest.tokens.is_empty() || rest.next.is_some());
    }
    let offset = after.map(|cursor| offset_after(&cursor.to_string()));
    let size = page.given_size.as_deref().filter(|_| repeats_size);
    let page = shown::Page::new(data, path, offset, size.map(|size| ("size", size)));
    let body = serde_json::to_vec(&page).map_err(Failure::internal)?;
    Ok(json_bytes(StatusCode::OK, body))
}

fn found(token: &Token) -> Found {
    Found {
        id: token.id,
        entity: entity_of(token),
    }
}

fn answer(call: &Call<'_>, kind: EntityKind, token: &Token, status: StatusCode) -> ApiResult {
    super::shown(call, &view(call)?, kind, &found(token), status)
}

/// Carries out a write and returns the written token.
async fn written(
    call: &Call<'_>,
    kind: EntityKind,
    action: Action,
    link: Option<(&'static str, Uuid)>,
) -> ApiResult {
    let status = match action {
        Action::Insert => StatusCode::CREATED,
        Action::Delete(selector) => {
            write::delete(call, &selector).await?;
            return Ok(empty(StatusCode::NO_CONTENT));
        }
        _ => StatusCode::OK,
    };
    let write = write::Write {
        kind,
        input: Input::of(call)?,
        link,
    };
    let token = write.run(call, action).await?;
    answer(call, kind, &token, status)
}
