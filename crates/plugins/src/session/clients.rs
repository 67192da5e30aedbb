//! The consumer and the credential of a session, which must still exist.

use super::payload::Login;
use crate::kinds::{
    BASICAUTH_CREDENTIALS, HMACAUTH_CREDENTIALS, JWT_SECRETS, KEYAUTH_CREDENTIALS,
    OAUTH2_CREDENTIALS,
};
use model::{EntityKind, Object, Value};
use plugin::auth;
use plugin::{Consumer, Credential, HeaderValue, LookupError, Node, PluginError, RequestCx};
use std::sync::Arc;
use uuid::Uuid;

const GROUPS: &str = "X-Authenticated-Groups";

/// The kinds of the entities that may be the credential of a session.
const CREDENTIALS: [EntityKind; 5] = [
    KEYAUTH_CREDENTIALS,
    BASICAUTH_CREDENTIALS,
    JWT_SECRETS,
    HMACAUTH_CREDENTIALS,
    OAUTH2_CREDENTIALS,
];

/// Returns the consumer of a session. `None` if it was deleted, or the credential that the session was begun with.
pub(super) fn valid_consumer(
    cx: &RequestCx<'_, '_>,
    login: &Login,
) -> Result<Option<Arc<Consumer>>, PluginError> {
    let id = |text: &Option<String>| Uuid::try_parse(text.as_deref()?).ok();
    let Some(consumer_id) = id(&login.consumer) else {
        return Ok(None);
    };
    let Some(consumer) = cx.node.entities.by_id::<Consumer>(consumer_id)? else {
        return Ok(None);
    };
    let is_valid = match (&login.credential, id(&login.credential)) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(_), Some(credential)) => {
            let now = cx.node.clock.since_epoch().as_secs();
            exists(cx.node, consumer_id, credential, now)?
        }
    };
    Ok(is_valid.then_some(consumer))
}

/// Whether a credential exists, belongs to the consumer and has not expired. The consumer itself counts as a credential,
/// because Lua code may authenticate without one.
pub(super) fn exists(
    node: &Node,
    consumer: Uuid,
    credential: Uuid,
    now: u64,
) -> Result<bool, LookupError> {
    if credential == consumer {
        return Ok(true);
    }
    let is_valid = |object: &Object| {
        let owner = object.get("consumer").and_then(Value::as_object);
        let owner = owner.and_then(|owner| Uuid::try_parse(owner.str("id")?).ok());
        let has_expired = match object.get("ttl") {
            Some(Value::Int(until)) => u64::try_from(*until).is_ok_and(|until| until <= now),
            _ => false,
        };
        owner == Some(consumer) && !has_expired
    };
    for kind in CREDENTIALS {
        let object = node.entities.object(kind, credential)?;
        if object.is_some_and(|object| is_valid(&object)) {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn authenticate(cx: &mut RequestCx<'_, '_>, consumer: Arc<Consumer>, login: &Login) {
    let credential = login.credential.as_deref();
    match credential.and_then(|id| Uuid::try_parse(id).ok()) {
        Some(id) => auth::authenticated(cx, consumer, Credential { id }, id),
        None => auth::become_anonymous(cx, consumer),
    }
    let headers = &mut cx.request.upstream.headers;
    match &login.groups {
        Some(groups) => {
            headers.set(GROUPS, HeaderValue::from_text(&groups.join(", ")));
            let groups = groups.iter().map(|group| group.as_str().into());
            cx.state.groups = groups.collect();
        }
        None => headers.remove(GROUPS),
    }
}
