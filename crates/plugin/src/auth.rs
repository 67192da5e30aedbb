//! Functions that all authentication plugins share: consumer headers for the upstream, and the rules of `anonymous`.
//! Sources: kong/pdk/client.lua authenticate(), the `set_consumer` and `set_anonymous_consumer` of Kong's plugins.

use crate::def::{Flow, PluginError, Step};
use crate::edits::{HeaderEdits, LineValue};
use crate::request::{Consumer, Credential, RequestCx};
use crate::response::Response;
use std::sync::Arc;
use uuid::Uuid;

const CONSUMER_ID: &str = "X-Consumer-ID";
const CONSUMER_CUSTOM_ID: &str = "X-Consumer-Custom-ID";
const CONSUMER_USERNAME: &str = "X-Consumer-Username";
const CREDENTIAL_IDENTIFIER: &str = "X-Credential-Identifier";
const ANONYMOUS: &str = "X-Anonymous-Consumer";
const GROUPS: &str = "X-Authenticated-Groups";

/// The outcome of an attempt to authenticate.
pub enum Attempt {
    /// The request was authenticated, and [`authenticated`] was called.
    Succeeded,
    Refused(Response),
    /// The gateway cannot decide. This ends the request, also if `anonymous` is set: the client may have the right
    /// credential.
    Undecided(Response),
    /// The attempt needs the request's body. It is made again when the body has been read.
    NeedsBody,
}

/// Runs an attempt under the rules of `config.anonymous`. If it is not set, a refusal ends the request, even if another
/// plugin has authenticated it. If it is set, the attempt is skipped when another plugin has found a credential, and
/// after a refusal the request continues as the anonymous consumer.
pub fn attempt<'c, 'r>(
    cx: &mut RequestCx<'c, 'r>,
    anonymous: Option<&str>,
    attempt: impl FnOnce(&mut RequestCx<'c, 'r>) -> Result<Attempt, PluginError>,
) -> Result<Step<'static>, PluginError> {
    if is_settled(cx, anonymous) {
        return Ok(Step::Continue);
    }
    let attempt = attempt(cx)?;
    Ok(conclude(cx, anonymous, attempt)?.into())
}

/// Whether no attempt is needed: `anonymous` is set, and another plugin has found a credential.
pub fn is_settled(cx: &RequestCx<'_, '_>, anonymous: Option<&str>) -> bool {
    anonymous.is_some() && cx.state.credential.is_some()
}

/// Returns what follows from an attempt. Plugins whose attempts wait call it and [`is_settled`] instead of [`attempt`].
pub fn conclude(
    cx: &mut RequestCx<'_, '_>,
    anonymous: Option<&str>,
    attempt: Attempt,
) -> Result<Flow, PluginError> {
    match (attempt, anonymous) {
        (Attempt::Succeeded, _) => Ok(Flow::Continue),
        (Attempt::NeedsBody, _) => Ok(Flow::ReadBody),
        (Attempt::Refused(response), None) | (Attempt::Undecided(response), _) => {
            Ok(Flow::Respond(response))
        }
        (Attempt::Refused(_), Some(anonymous)) => {
            let consumer = anonymous_consumer(cx, anonymous)?;
            become_anonymous(cx, consumer);
            Ok(Flow::Continue)
        }
    }
}

/// Describes the outcome for a request without a valid credential, after a comma.
pub fn otherwise(anonymous: Option<&str>) -> String {
    match anonymous {
        Some(consumer) => format!("else it gets the consumer {consumer:?} of `anonymous`"),
        None => "else 401".to_owned(),
    }
}

/// Records the consumer and credential of the request. `identifier` is the value of `X-Credential-Identifier`.
pub fn authenticated(
    cx: &mut RequestCx<'_, '_>,
    consumer: Arc<Consumer>,
    credential: Credential,
    identifier: impl LineValue,
) {
    let headers = &mut cx.request.upstream.headers;
    set_consumer_headers(headers, &consumer);
    headers.set(CREDENTIAL_IDENTIFIER, identifier);
    headers.remove(ANONYMOUS);
    set_consumer(cx, Some(consumer));
    cx.state.credential = Some(credential);
}

/// Records a credential that belongs to no consumer, such as one that a directory has accepted. A consumer that another
/// plugin has found is forgotten. `identifier` is the value of `X-Credential-Identifier`.
pub fn authenticated_without_consumer(
    cx: &mut RequestCx<'_, '_>,
    credential: Credential,
    identifier: impl LineValue,
) {
    let headers = &mut cx.request.upstream.headers;
    for name in [
        CONSUMER_ID,
        CONSUMER_CUSTOM_ID,
        CONSUMER_USERNAME,
        ANONYMOUS,
    ] {
        headers.remove(name);
    }
    headers.set(CREDENTIAL_IDENTIFIER, identifier);
    set_consumer(cx, None);
    cx.state.credential = Some(credential);
}

/// Records a consumer without a credential.
pub fn become_anonymous(cx: &mut RequestCx<'_, '_>, consumer: Arc<Consumer>) {
    let headers = &mut cx.request.upstream.headers;
    set_consumer_headers(headers, &consumer);
    headers.remove(CREDENTIAL_IDENTIFIER);
    headers.set(ANONYMOUS, "true");
    set_consumer(cx, Some(consumer));
    cx.state.credential = None;
}

/// Sets the consumer. Groups of another consumer, whom an earlier plugin has found, are forgotten.
fn set_consumer(cx: &mut RequestCx<'_, '_>, consumer: Option<Arc<Consumer>>) {
    if cx.state.set_consumer(consumer) {
        cx.request.upstream.headers.remove(GROUPS);
    }
}

fn set_consumer_headers(headers: &mut HeaderEdits, consumer: &Consumer) {
    headers.set(CONSUMER_ID, consumer.id.0);
    match &consumer.custom_id {
        Some(custom_id) => headers.set(CONSUMER_CUSTOM_ID, custom_id.as_str()),
        None => headers.remove(CONSUMER_CUSTOM_ID),
    }
    match &consumer.username {
        Some(username) => headers.set(CONSUMER_USERNAME, username.as_str()),
        None => headers.remove(CONSUMER_USERNAME),
    }
}

/// Returns the consumer for `config.anonymous`, an id or a username. A text in the form of an id may still be a
/// username.
fn anonymous_consumer(
    cx: &RequestCx<'_, '_>,
    anonymous: &str,
) -> Result<Arc<Consumer>, PluginError> {
    let entities = &*cx.node.entities;
    let by_id = match hyphenated_id(anonymous) {
        Some(id) => entities.by_id(id)?,
        None => None,
    };
    let found = match by_id {
        Some(consumer) => Some(consumer),
        None => entities.by_unique("username", anonymous)?,
    };
    found.ok_or_else(|| {
        PluginError::new(format!(
            "the anonymous consumer {anonymous:?} does not exist"
        ))
    })
}

fn hyphenated_id(text: &str) -> Option<Uuid> {
    (text.len() == 36).then(|| Uuid::try_parse(text).ok())?
}
