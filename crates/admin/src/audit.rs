//! The audit log: who tried to change which entity, and with which result. It holds the path of a request and the
//! message of its revision, but not its body.

use crate::auth::{Caller, writes};
use crate::control::{Api, Audit, Control};
use crate::entities::find::parse_id;
use crate::peer::Connection;
use crate::request;
use crate::state::App;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use store::Revision;
use tokio::sync::oneshot;

/// A successful write, as an extension of the response.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    /// The newest revision after the write.
    pub(crate) revision: Revision,
    /// The message of the revision. It may come from the body of the request.
    pub(crate) message: Option<String>,
}

/// A write in progress. It is logged when it is dropped, so that aborted writes are logged too.
pub(crate) struct Audited {
    control: Arc<dyn Control>,
    started: Instant,
    audit: Audit,
}

impl Audited {
    /// Returns `None` for requests that change nothing.
    pub(crate) fn begin(app: &App, request: &Parts, caller: &Caller) -> Option<Self> {
        if app.api() != Api::Admin || !writes(request) {
            return None;
        }
        let peer = Connection::of(&request.extensions).map(|connection| &connection.peer);
        Some(Self {
            control: app.shared(),
            started: Instant::now(),
            audit: Audit {
                time: SystemTime::now(),
                source: peer.map_or_else(String::new, ToString::to_string),
                actor: caller.actor.clone(),
                request_id: caller.request_id.clone(),
                method: request.method.to_string(),
                path: without_secrets(request.uri.path()),
                message: request::change_message(request).ok().flatten(),
                status: None,
                took: Duration::ZERO,
                revision: None,
            },
        })
    }

    pub(crate) fn end_with(mut self, response: &Response, later: Option<Later>) {
        if let Some(later) = later {
            return later.hand_over(self);
        }
        let made = response.extensions().get::<Made>();
        if let Some(made) = made {
            self.audit.message.clone_from(&made.message);
        }
        self.end(response.status(), made.map(|made| made.revision));
    }

    pub(crate) fn end(mut self, status: StatusCode, revision: Option<Revision>) {
        self.audit.status = Some(status.as_u16());
        self.audit.revision = revision;
    }
}

/// An extension of a response that starts before the outcome of the write is known. The receiver gets the [`Audited`]
/// and ends it once the outcome is known.
#[derive(Clone)]
pub(crate) struct Later(Arc<Mutex<Option<oneshot::Sender<Audited>>>>);

impl Later {
    pub(crate) fn channel() -> (Self, oneshot::Receiver<Audited>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    fn hand_over(&self, audited: Audited) {
        let sender = (self.0.lock().unwrap_or_else(PoisonError::into_inner)).take();
        if let Some(sender) = sender {
            // The send fails if the write has panicked; the write is then logged without a status.
            drop(sender.send(audited));
        }
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        self.audit.took = self.started.elapsed();
        self.control.audit(&self.audit);
    }
}

/// Path segments after which Kong accepts the secret of an entity instead of its id. Kong's cache keys of credentials
/// contain the secret too.
const NAMED_BY_SECRET: [&str; 5] = [
    "cache",
    "key-auth",
    "key-auths",
    "oauth2_tokens",
    "oauth2_authorization_codes",
];

/// Masks the secrets in a path. Ids are not secret, so they stay readable. Other spellings of UUIDs are keys.
fn without_secrets(path: &str) -> String {
    let mut is_secret = false;
    let segments = path.split('/').map(|segment| {
        let is_transfer = ["import", "export"].contains(&segment);
        let hidden = is_secret && !is_transfer && parse_id(segment).is_none();
        is_secret = NAMED_BY_SECRET.contains(&segment);
        if hidden { "******" } else { segment }
    });
    segments.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_paths_are_masked() {
        let id = "6b1e8b40-9d07-4a41-9a3f-0f0f2f3b7a10";
        for (path, told) in [
            ("/services/a", "/services/a".to_owned()),
            (
                "/key-auths/hush/consumer",
                "/key-auths/******/consumer".to_owned(),
            ),
            (
                "/consumers/a/key-auth/hush",
                "/consumers/a/key-auth/******".to_owned(),
            ),
            ("/consumers/a/key-auth", "/consumers/a/key-auth".to_owned()),
            (
                "/cache/keyauth_credentials:hush:::::",
                "/cache/******".to_owned(),
            ),
            (&*format!("/key-auths/{id}"), format!("/key-auths/{id}")),
            (
                &*format!("/key-auths/{}", id.replace('-', "")),
                "/key-auths/******".to_owned(),
            ),
            (
                &*format!("/key-auths/urn:uuid:{id}"),
                "/key-auths/******".to_owned(),
            ),
            (
                &*format!("/key-auths/{{{id}}}"),
                "/key-auths/******".to_owned(),
            ),
        ] {
            assert_eq!(without_secrets(path), told);
        }
    }
}
