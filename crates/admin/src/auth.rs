//! Who asks, and whether they may: decided before anything of a body is read.

use crate::control::{Api, Credentials};
use crate::peer::{Connection, Peer};
use crate::request;
use crate::respond::message;
use crate::state::App;
use crate::tokens::Role;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use uuid::Uuid;

/// What Kong's own clients send a token in.
const KONG_ADMIN_TOKEN: &str = "kong-admin-token";

/// Who asks, as an extension of the request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The name of a token, the subject of a certificate, or that it is the local operator; none for anybody.
    pub(crate) actor: Option<String>,
    /// Its own, or one that was made for it.
    pub(crate) request_id: String,
    role: Role,
}

/// Why somebody is not let in.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Nothing shows who it is.
    Unknown,
    /// What should show it is not known.
    WrongToken,
    /// It is known, and may not do this.
    Forbidden,
}

impl Caller {
    /// Finds out who asks, and lets them do it or not.
    pub(crate) fn admit(app: &App, request: &Parts) -> (Self, Result<(), Refused>) {
        let identity = match app.api() {
            Api::Status => Ok((None, Role::Admin)),
            // Browsers ask so before they show who they are; the answer is the same for all.
            Api::Admin if request.method == Method::OPTIONS => Ok((None, Role::ReadOnly)),
            Api::Admin => identify(request, &app.control().credentials()),
        };
        let (identity, refused) = match identity {
            Ok(identity) => (identity, None),
            Err(refused) => ((None, Role::ReadOnly), Some(refused)),
        };
        let (actor, role) = identity;
        let caller = Self {
            actor,
            role,
            request_id: (request::request_id(request).ok().flatten())
                .unwrap_or_else(|| Uuid::new_v4().simple().to_string()),
        };
        let may = match refused {
            Some(refused) => Err(refused),
            None if caller.role == Role::ReadOnly && writes(request) => Err(Refused::Forbidden),
            None => Ok(()),
        };
        (caller, may)
    }
}

fn identify(request: &Parts, credentials: &Credentials) -> Result<(Option<String>, Role), Refused> {
    let peer = Connection::of(&request.extensions).map(|connection| &connection.peer);
    let (is_near, certificate) = match peer {
        Some(Peer::Local) => return Ok((Some(Peer::Local.to_string()), Role::Admin)),
        Some(Peer::Remote(remote)) => (remote.on_loopback, remote.certificate.as_ref()),
        None => return Err(Refused::Unknown),
    };
    if credentials.are_none() && (is_near || credentials.unauthenticated) {
        return Ok((None, Role::Admin));
    }
    if let Some(text) = presented(&request.headers) {
        let token = credentials.tokens.find(text).ok_or(Refused::WrongToken)?;
        return Ok((Some(token.name.clone()), token.role));
    }
    match (certificate, credentials.certificates) {
        (Some(subject), Some(role)) => Ok((Some(subject.clone()), role)),
        _ => Err(Refused::Unknown),
    }
}

/// The token that a request comes with.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        let is_bearer = scheme.eq_ignore_ascii_case("bearer");
        is_bearer.then(|| token.trim().as_bytes())
    });
    bearer.or_else(|| Some(headers.get(KONG_ADMIN_TOKEN)?.as_bytes()))
}

/// Whether a request may change anything. Validating and explaining change nothing, whatever their method.
pub(crate) fn writes(request: &Parts) -> bool {
    match request.method {
        Method::GET | Method::HEAD | Method::OPTIONS => false,
        Method::POST => {
            let path = request.uri.path().trim_end_matches('/');
            let validates = path.starts_with("/schemas/") && path.ends_with("/validate");
            !validates && path != "/router/explain"
        }
        _ => true,
    }
}

impl Refused {
    pub(crate) fn response(&self) -> Response {
        const WAYS: &str = "a token in the header `Authorization: Bearer` or `Kong-Admin-Token`, or a client certificate";
        let (challenge, text) = match self {
            Self::Unknown => (
                "Bearer realm=\"silverback\"",
                format!("Unauthorized: {WAYS} is needed"),
            ),
            Self::WrongToken => (
                "Bearer realm=\"silverback\", error=\"invalid_token\"",
                "Unauthorized: the token is not known".to_owned(),
            ),
            Self::Forbidden => {
                let text = "Forbidden: the role read-only may not change anything";
                return message(StatusCode::FORBIDDEN, text);
            }
        };
        let mut response = message(StatusCode::UNAUTHORIZED, &text);
        let challenge = HeaderValue::from_static(challenge);
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::extract::Request;

    fn parts(method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn what_changes_nothing_is_a_read() {
        for (method, path, is_write) in [
            ("GET", "/services", false),
            ("HEAD", "/services", false),
            ("OPTIONS", "/services", false),
            ("POST", "/schemas/services/validate", false),
            ("POST", "/schemas/plugins/validate/", false),
            ("POST", "/router/explain/", false),
            ("POST", "/schemas/services", true),
            ("POST", "/services/validate", true),
            ("PUT", "/schemas/services/validate", true),
            ("POST", "/services", true),
            ("PATCH", "/services/a", true),
            ("DELETE", "/cache", true),
            ("BREW", "/services", true),
        ] {
            assert_eq!(
                writes(&parts(method, path, &[])),
                is_write,
                "{method} {path}"
            );
        }
    }

    #[test]
    fn tokens_come_in_either_header() {
        for (headers, token) in [
            (&[("authorization", "Bearer abc")][..], Some("abc")),
            (&[("authorization", "bearer  abc ")], Some("abc")),
            (&[("kong-admin-token", "abc")], Some("abc")),
            (
                &[("authorization", "Basic x"), ("kong-admin-token", "abc")],
                Some("abc"),
            ),
            (&[("authorization", "Basic abc")], None),
            (&[("authorization", "abc")], None),
            (&[], None),
        ] {
            let parts = parts("GET", "/", headers);
            let found = presented(&parts.headers);
            assert_eq!(found, token.map(str::as_bytes), "{headers:?}");
        }
    }
}
