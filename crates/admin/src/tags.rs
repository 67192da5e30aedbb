//! `/tags`: lists tags with the entities that have them. Source: kong/db/schema/entities/tags.lua.

use crate::control::Database;
use crate::paging::{self, Offset, escape, offset_after};
use crate::request::Call;
use crate::respond::{ApiResult, json};
use axum::http::StatusCode;
use model::EntityKind;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use store::Tagged;
use uuid::Uuid;

pub(crate) fn all(call: &Call<'_>) -> ApiResult {
    list(call, None)
}

pub(crate) fn one(call: &Call<'_>) -> ApiResult {
    list(call, Some(call.parameter("tags")))
}

fn list(call: &Call<'_>, tag: Option<&str>) -> ApiResult {
    let page = paging::page(&call.query, false)?;
    let after = match &page.offset {
        Offset::Start => None,
        Offset::After(key) => Some(parse(key).ok_or_else(|| paging::invalid_offset(key))?),
        Offset::Invalid(bad) => return Err(bad.error().into()),
    };
    let view = call.control.store().view()?;
    let (entries, next) = match tag {
        None => view.tags(after.as_ref(), page.size),
        Some(tag) => view.tagged(tag, after.as_ref(), page.size),
    }?;
    let data: Vec<_> = entries.iter().map(shown).collect();
    let path = match tag {
        None => "/tags".to_owned(),
        Some(tag) => format!("/tags/{}", escape(tag)),
    };
    let mut body = json!({ "data": data, "next": null });
    if let Some(next) = next {
        let offset = offset_after(&key(&next));
        let size = page.given_size.as_deref();
        let size = size.map_or(String::new(), |size| format!("&size={}", escape(size)));
        body["next"] = format!("{path}?offset={}{size}", escape(&offset)).into();
        body["offset"] = offset.into();
    } else if tag.is_none() && call.control.database() == Database::Off {
        // Without a database, Kong's response always has `offset`, and null on the last page.
        body["offset"] = serde_json::Value::Null;
    }
    Ok(json(StatusCode::OK, &body))
}

/// An entity with a tag. The OpenAPI document is generated from this struct.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Carrier {
    tag: String,
    entity_name: &'static str,
    entity_id: Uuid,
}

fn shown(entry: &Tagged) -> Carrier {
    Carrier {
        tag: entry.tag.to_string(),
        entity_name: entry.kind.name(),
        entity_id: entry.id,
    }
}

/// Text form of an offset: tag, number of the entity type, and id of the last entry on the previous page.
fn key(entry: &Tagged) -> String {
    format!("{}/{}/{}", entry.tag, entry.kind.number(), entry.id)
}

fn parse(key: &str) -> Option<Tagged> {
    let mut parts = key.rsplitn(3, '/');
    let id = Uuid::try_parse(parts.next()?).ok()?;
    let kind = EntityKind::from_number(parts.next()?.parse().ok()?)?;
    let tag = parts.next()?.to_owned();
    Some(Tagged { tag, kind, id })
}
