//! The `ttl` of entities. Requests and responses contain a duration in seconds. The store contains the time at which
//! the entity expires, in seconds since 1970.
//! Source: kong/db/dao/init.lua (validate_ttl_value).

use crate::control::Control;
use crate::respond::Failure;
use model::schema::{MAX_TTL, registry};
use model::{EntityKind, Error, ErrorCode, Object, Value};

/// Removes `ttl` from the input and returns the expiry time to store. Returns `None` if the input has no `ttl`, and
/// `Some(None)` if the stored `ttl` is to be removed.
pub(crate) fn take(
    control: &dyn Control,
    kind: EntityKind,
    input: &mut Object,
) -> Result<Option<Option<Value>>, Failure> {
    if !registry().entity(kind).ttl {
        return Ok(None);
    }
    let Some(value) = input.remove("ttl") else {
        return Ok(None);
    };
    let seconds = match &value {
        Value::Null => return Ok(Some(None)),
        // Forms contain only text. Other fields of a form are converted by their schema, but `ttl` is no schema field.
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_int(),
    };
    match seconds.filter(|seconds| (0..=MAX_TTL).contains(seconds)) {
        Some(0) => Ok(Some(None)),
        Some(seconds) => Ok(Some(Some(Value::Int(control.context().now + seconds)))),
        None => Err(invalid().into()),
    }
}

fn invalid() -> Error {
    let text = format!("must be an integer between 0 and {MAX_TTL}");
    let message = format!("invalid option (ttl: {text})");
    let options = Object::from_iter([("ttl", Value::from(text))]);
    Error::new(ErrorCode::InvalidOptions, message).with_fields(options)
}
