//! The endpoints of entities, by method. Source: kong/api/endpoints.lua.

pub(crate) mod certificates;
pub(crate) mod find;
mod foreign;
pub(crate) mod health;
mod list;
pub(crate) mod oauth2_tokens;
pub(crate) mod target;
mod ttl;
pub(crate) mod write;

use crate::endpoints::Relation;
use crate::render;
use crate::request::Call;
use crate::respond::{ApiResult, Failure, empty, json_bytes};
use axum::http::StatusCode;
use find::{Found, Selector};
use model::schema::registry;
use model::{EntityKind, Object, Value};
use store::View;
use uuid::Uuid;
use write::{Action, Input, Owner, Write};

/// `/services`
pub(crate) async fn collection(call: &Call<'_>, kind: EntityKind) -> ApiResult {
    if oauth2_tokens::is(kind) {
        return oauth2_tokens::collection(call, kind).await;
    }
    match call.method {
        "GET" => list::collection(call, kind),
        _ => write(call, kind, Action::Insert, None).await,
    }
}

/// `/services/{services}`
pub(crate) async fn entity(call: &Call<'_>, kind: EntityKind) -> ApiResult {
    if oauth2_tokens::is(kind) {
        return oauth2_tokens::entity(call, kind).await;
    }
    let segment = call.parameter(kind.name());
    if call.method == "GET" {
        let view = view(call)?;
        let found = find::find(call.control, &view, kind, segment)?;
        return show(call, &view, kind, found);
    }
    let selector = Selector::of_entity(call.control, kind, segment)?;
    if call.method != "PUT" && matches!(selector, Selector::Sni(_)) {
        // Kong reports an unknown SNI before any error in the body.
        find::find(call.control, &view(call)?, kind, segment)?;
    }
    write(call, kind, action(call, selector), None).await
}

/// `/services/{services}/routes`
pub(crate) async fn children(call: &Call<'_>, relation: Relation) -> ApiResult {
    if oauth2_tokens::is(relation.child) {
        return oauth2_tokens::children(call, relation).await;
    }
    let parent = parent_id(call, relation)?;
    match call.method {
        "GET" if relation.child == EntityKind::Targets => list::targets(call, &view(call)?, parent),
        "GET" => list::children(call, &view(call)?, relation, parent),
        _ => {
            let link = Some((relation.field, parent));
            write(call, relation.child, Action::Insert, link).await
        }
    }
}

/// `/services/{services}/routes/{routes}`
pub(crate) async fn child(call: &Call<'_>, relation: Relation) -> ApiResult {
    if oauth2_tokens::is(relation.child) {
        return oauth2_tokens::child(call, relation).await;
    }
    let parent = parent_id(call, relation)?;
    let (kind, segment) = (relation.child, call.parameter(relation.child.name()));
    let found = {
        let view = view(call)?;
        let found = find::find_child(call.control, &view, relation, parent, segment)?;
        if call.method == "GET" {
            return show(call, &view, kind, found);
        }
        found
    };
    let link = (relation.field, parent);
    if call.method == "PUT" && kind != EntityKind::Targets {
        let selector = Selector::of_child(call.control, kind, parent, segment)?;
        return write(call, kind, Action::Upsert(selector), Some(link)).await;
    }
    let found = found.ok_or_else(Failure::not_found)?;
    let is_nested = registry().entity(kind).nested_key.is_some();
    let selector = if kind == EntityKind::Targets || is_nested {
        // Kong finds these entities first, and then writes them by id.
        Selector::Id(found.id)
    } else {
        Selector::parse(call.control, kind, segment)?
    };
    let action = match call.method {
        "PUT" | "PATCH" => Action::Update(selector),
        _ => Action::Delete(selector),
    };
    write(call, kind, action, None).await
}

/// `/routes/{routes}/service`
pub(crate) async fn referenced(call: &Call<'_>, relation: Relation) -> ApiResult {
    if oauth2_tokens::is(relation.child) {
        return oauth2_tokens::referenced(call, relation).await;
    }
    let (owner, id) = {
        let view = view(call)?;
        let segment = call.parameter(relation.child.name());
        let owner = find::find(call.control, &view, relation.child, segment)?
            .ok_or_else(Failure::not_found)?;
        let id = find::reference(&owner.entity, relation.field);
        if call.method == "GET" {
            let id = id.ok_or_else(Failure::not_found)?;
            let found = find::by_id(&view, relation.parent, id)?;
            return show(call, &view, relation.parent, found);
        }
        (owner, id)
    };
    let action = match (call.method, id) {
        ("PUT", _) => Action::UpsertReferenced {
            relation: relation.field,
            owner: Owner {
                kind: relation.child,
                id: owner.id,
            },
        },
        (_, None) => return Err(Failure::not_found()),
        ("PATCH", Some(id)) => Action::Update(Selector::Id(id)),
        _ => return Err(Failure::method_not_allowed()),
    };
    write(call, relation.parent, action, None).await
}

/// Returns the action for the request's method.
fn action(call: &Call<'_>, selector: Selector) -> Action {
    match call.method {
        "PUT" => Action::Upsert(selector),
        "PATCH" => Action::Update(selector),
        _ => Action::Delete(selector),
    }
}

/// Carries out a write and returns the written entity.
async fn write(
    call: &Call<'_>,
    kind: EntityKind,
    action: Action,
    link: Option<(&'static str, Uuid)>,
) -> ApiResult {
    let (status, input) = match action {
        Action::Insert => (StatusCode::CREATED, Input::of(call)?),
        Action::Delete(_) => (StatusCode::NO_CONTENT, Input::default()),
        _ => (StatusCode::OK, Input::of(call)?),
    };
    let write = Write {
        kind,
        action,
        input,
        link,
    };
    let Some(found) = write::run(call, write).await? else {
        return Ok(empty(status));
    };
    if kind == EntityKind::Targets && call.method == "PATCH" {
        // This response shows the target as it is stored. All other responses add a missing port.
        let mut out = Vec::new();
        registry().entity(kind).write_json(&found.entity, &mut out);
        return Ok(json_bytes(status, out));
    }
    shown(call, &view(call)?, kind, &found, status)
}

/// `/upstreams/{upstreams}/targets/all`: lists targets, ordered by id.
pub(crate) fn all_targets(call: &Call<'_>) -> ApiResult {
    let parent = parent_id(call, TARGETS)?;
    list::all_targets(call, &view(call)?, parent)
}

const TARGETS: Relation = Relation {
    child: EntityKind::Targets,
    field: "upstream",
    parent: EntityKind::Upstreams,
};

fn view<'a>(call: &'a Call<'_>) -> Result<View<'a>, Failure> {
    Ok(call.control.store().view()?)
}

/// Returns the id of the parent that the path names, or the error 404 if there is no such parent.
fn parent_id(call: &Call<'_>, relation: Relation) -> Result<Uuid, Failure> {
    let view = view(call)?;
    let segment = call.parameter(relation.parent.name());
    let found = find::find(call.control, &view, relation.parent, segment)?;
    Ok(found.ok_or_else(Failure::not_found)?.id)
}

fn show(call: &Call<'_>, view: &View<'_>, kind: EntityKind, found: Option<Found>) -> ApiResult {
    let found = found.ok_or_else(Failure::not_found)?;
    shown(call, view, kind, &found, StatusCode::OK)
}

fn shown(
    call: &Call<'_>,
    view: &View<'_>,
    kind: EntityKind,
    found: &Found,
    status: StatusCode,
) -> ApiResult {
    let mut out = Vec::with_capacity(1024);
    render::entity(&mut out, call.control, view, kind, found)?;
    Ok(json_bytes(status, out))
}

/// `{"id": "…"}`
pub(crate) fn reference_to(id: Uuid) -> Value {
    Value::Object(Object::from_iter([("id", Value::from(id.to_string()))]))
}
