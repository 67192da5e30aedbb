//! A request as handlers see it: method, path parameters, query and body, all in memory.

use crate::audit::Made;
use crate::auth::Caller;
use crate::body::{self, Body, form};
use crate::control::Control;
use crate::endpoints::Action;
use crate::peer::{Connection, Permits};
use crate::proposal::Preview;
use crate::respond::Failure;
use crate::state::App;
use axum::http::request::Parts;
use bytes::Bytes;
use model::Object;
use std::sync::{Mutex, OnceLock, PoisonError};
use store::{Origin, Revision};

/// Maximum number of warnings about a document that a response has as `Warning` headers.
const MAX_WARNINGS: usize = 10;

pub(crate) struct Call<'a> {
    pub(crate) app: &'a App,
    pub(crate) control: &'a dyn Control,
    /// Stored with the revision that the request creates.
    pub(crate) origin: Origin,
    /// The revision and message of a successful write, for the audit log.
    pub(crate) made: OnceLock<Made>,
    /// The configuration compiled by a dry run.
    pub(crate) preview: Preview,
    /// Texts for `Warning` headers of the response.
    pub(crate) warnings: Mutex<Vec<String>>,
    pub(crate) method: &'a str,
    /// Path parameters, percent-decoded.
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) query: Vec<(String, Option<String>)>,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) accept: Option<&'a str>,
    pub(crate) accept_encoding: Option<&'a str>,
    pub(crate) bytes: Bytes,
    /// Whether the request came over the local socket.
    pub(crate) is_local: bool,
    /// The limits that all requests share.
    pub(crate) permits: Option<&'a Permits>,
}

impl Call<'_> {
    /// Returns a parameter of the matched path. The endpoint's path guarantees that it exists.
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }

    /// Returns the first value of a query argument; empty for a key without `=`.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        let (_, value) = self.query.iter().find(|(key, _)| key == name)?;
        Some(value.as_deref().unwrap_or(""))
    }

    /// Whether the response to a write should warn of conflicts between routes.
    pub(crate) fn warns_of_conflicts(&self) -> bool {
        self.query("warn") == Some("conflicts")
    }

    /// Records a successful write for the audit log.
    pub(crate) fn record(&self, revision: Revision, message: Option<String>) {
        self.made.get_or_init(|| Made { revision, message });
    }

    /// Adds warnings to the response.
    pub(crate) fn warn(&self, texts: Vec<String>) {
        let warnings = self.warnings.lock();
        let mut warnings = warnings.unwrap_or_else(PoisonError::into_inner);
        warnings.extend(texts);
    }

    /// Adds the first warnings about a document, and one more that counts the rest. The log has all warnings.
    pub(crate) fn warn_some(&self, mut texts: Vec<String>) {
        let others = texts.len().saturating_sub(MAX_WARNINGS);
        if others > 0 {
            texts.truncate(MAX_WARNINGS);
            texts.push(format!("the log has {others} more warnings"));
        }
        self.warn(texts);
    }

    /// Rejects an unsupported content type before any other check, as Kong does.
    pub(crate) fn check_content_type(&self, action: Action) -> Result<(), Failure> {
        if body::accepts(
            self.content_type,
            self.bytes.is_empty(),
            action.takes_yaml(),
        ) {
            Ok(())
        } else {
            Err(action.unsupported_type())
        }
    }

    /// Returns the body of an endpoint that accepts only JSON.
    pub(crate) fn json_body(&self) -> Result<Object, Failure> {
        match self.body()? {
            Body::Json(fields) => Ok(fields),
            Body::None => Ok(Object::new()),
            _ => Err(Failure::not_json()),
        }
    }

    /// Returns the decoded body. YAML is accepted only by `POST /config`, which does not use this function.
    pub(crate) fn body(&self) -> Result<Body, Failure> {
        match body::decode(self.content_type, &self.bytes)? {
            Body::Yaml(_) => Err(Failure::UnsupportedMediaType),
            body => Ok(body),
        }
    }
}

pub(crate) fn query(text: &str) -> Result<Vec<(String, Option<String>)>, Failure> {
    form::pairs(text).map_err(|_| body::too_many())
}

/// Header with the reason for a change; stored with the revision.
const CHANGE_MESSAGE: &str = "x-change-message";
const REQUEST_ID: &str = "x-request-id";
pub(crate) const MAX_MESSAGE: usize = 4096;
const MAX_REQUEST_ID: usize = 128;

/// Returns the origin of a change: client address, actor, request id, and the reason for the change.
pub(crate) fn origin(parts: &Parts) -> Result<Origin, Failure> {
    let connection = Connection::of(&parts.extensions);
    let caller = parts.extensions.get::<Caller>();
    let request_id = request_id(parts)?;
    Ok(Origin {
        source: connection.map_or_else(String::new, |connection| connection.peer.to_string()),
        actor: caller.and_then(|caller| caller.actor.clone()),
        request_id: request_id.or_else(|| Some(caller?.request_id.clone())),
        message: change_message(parts)?,
    })
}

pub(crate) fn request_id(parts: &Parts) -> Result<Option<String>, Failure> {
    text(parts, REQUEST_ID, MAX_REQUEST_ID)
}

pub(crate) fn change_message(parts: &Parts) -> Result<Option<String>, Failure> {
    text(parts, CHANGE_MESSAGE, MAX_MESSAGE)
}

fn text(parts: &Parts, name: &str, limit: usize) -> Result<Option<String>, Failure> {
    let Some(value) = parts.headers.get(name) else {
        return Ok(None);
    };
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) if text.len() <= limit => Ok(Some(text.to_owned())),
        Ok(_) => Err(Failure::bad_request(format!(
            "{name} is longer than {limit} bytes"
        ))),
        Err(_) => Err(Failure::bad_request(format!("{name} is not UTF-8"))),
    }
}
