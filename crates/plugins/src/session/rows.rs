//! Rows of the storage `kong` as entities of their schema.

use super::endpoints::Refused;
use super::source::SESSIONS;
use model::schema::{Context, MAX_TTL, registry};
use model::{Error, ErrorCode, Object, Value};
use serde_json::Value as Json;
use tokens::sessions::SessionRow;
use uuid::Uuid;

fn entity_of(row: &SessionRow) -> Object {
    let mut entity = Object::new();
    entity.insert("id", Value::from(row.id.to_string()));
    entity.insert("session_id", Value::from(&*row.session_id));
    if let Some(expires) = row.expires {
        entity.insert("expires", Value::Int(expires));
    }
    if let Some(data) = &row.data {
        entity.insert("data", Value::from(&**data));
    }
    entity.insert("created_at", Value::Int(row.created_at));
    entity
}

/// Returns a row as the Admin API shows it. Only whole seconds of its life count, so the current second is subtracted.
pub(super) fn shown(row: &SessionRow, context: &Context) -> Result<Json, Refused> {
    let left = |ends: u64| {
        let ends = i64::try_from(ends).unwrap_or(i64::MAX);
        Value::Int(ends.saturating_sub(context.now + 1).max(0))
    };
    let ttl = row.ends.map_or(Value::Null, left);
    let mut text = Vec::new();
    let schema = registry().entity(SESSIONS);
    schema.write_json_with(&entity_of(row), context.flavor, &[("ttl", ttl)], &mut text);
    serde_json::from_slice(&text).map_err(|_| Refused::unexpected())
}

/// Returns the row of a whole entity. The input may have a `ttl`.
pub(super) fn row_of(mut input: Object, context: &Context) -> Result<SessionRow, Refused> {
    let ends = take_ttl(&mut input, context)?.flatten();
    let entity = registry().entity(SESSIONS).complete(input, context)?;
    row(&entity, ends).ok_or_else(Refused::unexpected)
}

/// Returns a row with a change applied.
pub(super) fn patched(
    known: &SessionRow,
    mut patch: Object,
    context: &Context,
) -> Result<SessionRow, Refused> {
    let ends = take_ttl(&mut patch, context)?.unwrap_or(known.ends);
    let schema = registry().entity(SESSIONS);
    let entity = schema.merge(&entity_of(known), patch, context)?;
    let changed = row(&entity, ends).ok_or_else(Refused::unexpected)?;
    Ok(SessionRow {
        owner: known.owner,
        is_replaced: known.is_replaced,
        ..changed
    })
}

fn row(entity: &Object, ends: Option<u64>) -> Option<SessionRow> {
    let number = |name| entity.get(name).and_then(Value::as_int);
    Some(SessionRow {
        id: Uuid::try_parse(entity.str("id")?).ok()?,
        session_id: entity.str("session_id")?.to_owned(),
        data: entity.str("data").map(str::to_owned),
        expires: number("expires"),
        created_at: number("created_at")?,
        ends,
        owner: Uuid::nil(),
        is_replaced: false,
    })
}

/// Removes `ttl` from the input, and returns the end of the row. `None` if the input has no `ttl`, and `Some(None)` if the
/// row is to stay. Source: kong/db/dao/init.lua validate_ttl_value().
fn take_ttl(input: &mut Object, context: &Context) -> Result<Option<Option<u64>>, Refused> {
    let seconds = match input.remove("ttl") {
        None => return Ok(None),
        Some(Value::Null) => Some(0),
        Some(value) => value.as_int(),
    };
    match seconds.filter(|seconds| (0..=MAX_TTL).contains(seconds)) {
        Some(0) => Ok(Some(None)),
        Some(seconds) => Ok(Some(u64::try_from(context.now + seconds).ok())),
        None => {
            let text = format!("must be an integer between 0 and {MAX_TTL}");
            let message = format!("invalid option (ttl: {text})");
            let options = Object::from_iter([("ttl", Value::from(text))]);
            let error = Error::new(ErrorCode::InvalidOptions, message).with_fields(options);
            Err(error.into())
        }
    }
}
