//! The answers of the endpoints.

use super::config::Config;
use model::Value;
use plugin::Response;
use serde::Serialize;
use std::borrow::Cow;

/// Why an endpoint refuses a request (RFC 6749 section 5.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) error: &'static str,
    pub(super) description: Cow<'static, str>,
}

impl Refusal {
    pub(super) fn new(error: &'static str, description: impl Into<Cow<'static, str>>) -> Self {
        Self {
            error,
            description: description.into(),
        }
    }

    pub(super) fn invalid_client() -> Self {
        Self::new("invalid_client", "Invalid client authentication")
    }

    pub(super) fn invalid_code(config: &Config) -> Self {
        Self::new(unusable(config), "Invalid code")
    }

    pub(super) fn invalid_refresh_token(config: &Config) -> Self {
        Self::new(unusable(config), "Invalid refresh_token")
    }

    pub(super) fn invalid_provision_key() -> Self {
        Self::new("invalid_provision_key", "Invalid provision_key")
    }

    pub(super) fn missing_userid() -> Self {
        let description = "Missing authenticated_userid parameter";
        Self::new("invalid_authenticated_userid", description)
    }

    pub(super) fn unknown_redirect_uri() -> Self {
        let description = "Invalid redirect_uri that does not match with any redirect_uri created with the application";
        Self::new("invalid_request", description)
    }

    /// The answer with this status.
    pub(super) fn answer(&self, status: u16, state: Option<&Value>) -> Response {
        #[derive(Serialize)]
        struct Body<'a> {
            error: &'a str,
            error_description: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            state: Option<&'a Value>,
        }
        uncached(
            status,
            &Body {
                error: self.error,
                error_description: &self.description,
                state,
            },
        )
    }
}

/// The error for a code or refresh token that is unknown, used or of somebody else. Clients let the user log in again at
/// the error of RFC 6749 section 5.2, which Kong does not use.
fn unusable(config: &Config) -> &'static str {
    match config.is_strict() {
        true => "invalid_grant",
        false => "invalid_request",
    }
}

/// An answer that must not be kept.
pub(super) fn uncached<T: Serialize + ?Sized>(status: u16, body: &T) -> Response {
    Response::json(status, body)
        .with_header("cache-control", "no-store")
        .with_header("pragma", "no-cache")
}

/// The answer to a wrong method. `endpoint` is the name of the endpoint.
pub(super) fn invalid_method(method: &str, endpoint: &str, config: &Config) -> Response {
    #[derive(Serialize)]
    struct Body<'a> {
        error: &'a str,
        error_description: &'a str,
    }
    let description = format!("The HTTP method {method} is invalid for the {endpoint} endpoint");
    let challenge = challenge(config, Some(("invalid_method", &description)));
    let body = Body {
        error: "invalid_method",
        error_description: &description,
    };
    Response::json(405, &body).with_header("WWW-Authenticate", challenge)
}

/// The value of a WWW-Authenticate header. Kong leaves out the commas between its parts (RFC 9110 section 11.6.1).
pub(super) fn challenge(config: &Config, error: Option<(&str, &str)>) -> String {
    let realm = config
        .realm
        .iter()
        .map(|realm| format!("realm=\"{realm}\""));
    let error = error.iter().flat_map(|(error, description)| {
        [
            format!("error=\"{error}\""),
            format!("error_description=\"{description}\""),
        ]
    });
    let parts: Vec<_> = realm.chain(error).collect();
    let comma = if config.is_strict() { ", " } else { " " };
    format!("Bearer {}", parts.join(comma))
        .trim_end()
        .to_owned()
}
