//! Authentication and authorization. Both are decided before any of the body is read.

use crate::control::{Api, Credentials};
use crate::peer::{Connection, Peer};
use crate::profiles;
use crate::request;
use crate::respond::message;
use crate::state::App;
use crate::tokens::Role;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use uuid::Uuid;

/// The header in which Kong's own clients send a token.
const KONG_ADMIN_TOKEN: &str = "kong-admin-token";

/// The client that sent a request, as an extension of the request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Name of the token, subject of the client certificate, or `local` for the local operator; `None` for anonymous
    /// clients.
    pub(crate) actor: Option<String>,
    /// The request id that the client sent, or a generated one.
    pub(crate) request_id: String,
    role: Role,
}

/// The reason why a request is rejected.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The request has no credentials.
    Unknown,
    /// The token is unknown.
    WrongToken,
    /// The client is authenticated, but its role does not allow the request.
    Forbidden,
    /// As [`Refused::Forbidden`], for profiles, which change nothing but slow the node down.
    NoProfiles,
}

impl Caller {
    /// Authenticates the client and checks that its role allows the request.
    pub(crate) fn admit(app: &App, request: &Parts) -> (Self, Result<(), Refused>) {
        let identity = match app.api() {
            Api::Status => Ok((None, Role::Admin)),
            // Browsers send OPTIONS requests without credentials; the response is the same for all clients.
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
            None if caller.role == Role::ReadOnly && profiles(request) => Err(Refused::NoProfiles),
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

/// The token in the headers of a request.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        let is_bearer = scheme.eq_ignore_ascii_case("bearer");
        is_bearer.then(|| token.trim().as_bytes())
    });
    bearer.or_else(|| Some(headers.get(KONG_ADMIN_TOKEN)?.as_bytes()))
}

/// Whether a request may change anything. Validating and explaining never change anything, although they use POST.
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

fn profiles(request: &Parts) -> bool {
    request.method != Method::OPTIONS && request.uri.path().starts_with(profiles::PATHS)
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
            Self::NoProfiles => {
                let text = "Forbidden: the role read-only may not take profiles";
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
    fn requests_that_change_nothing_are_reads() {
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
