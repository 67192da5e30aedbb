//! The responses of handlers: JSON in Kong's format, and failures that determine their status code.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use model::ErrorCode;
use std::borrow::Cow;
use store::StoreError;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

pub(crate) type ApiResult = Result<Response, Failure>;

/// The reason why a request failed.
#[derive(Debug)]
pub enum Failure {
    /// One of Kong's error objects.
    Error(Box<model::Error>),
    /// The key in the path is invalid for its field, as in `/services/a%20b`. The `name` in the error object ends with
    /// the name of the field.
    InvalidUnique {
        field: String,
        text: String,
    },
    /// `{"message": …}`.
    Message(StatusCode, Cow<'static, str>),
    /// A JSON body with more than a message.
    Json(StatusCode, serde_json::Value),
    UnsupportedMediaType,
    /// The details are logged. The client learns only that an error occurred.
    Internal(String),
    /// The store was damaged while the gateway runs. The details are logged.
    UnreadableStore(String),
}

impl Failure {
    pub(crate) fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Message(StatusCode::BAD_REQUEST, message.into())
    }

    /// The endpoint accepts only JSON, but the request body has another type. Used for endpoints that Kong does not
    /// have.
    pub(crate) fn not_json() -> Self {
        const HINT: &str = "send JSON: Content-Type: application/json";
        Self::Message(StatusCode::UNSUPPORTED_MEDIA_TYPE, HINT.into())
    }

    pub(crate) fn not_found() -> Self {
        Self::Message(StatusCode::NOT_FOUND, "Not found".into())
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::Message(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed".into())
    }

    /// A status with a message. An invalid status counts as 500.
    pub fn with_status(status: u16, message: impl Into<Cow<'static, str>>) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::Message(status, message.into())
    }

    /// An error that is the gateway's fault, not the client's.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        Self::Internal(error.to_string())
    }
}

impl From<model::Error> for Failure {
    fn from(error: model::Error) -> Self {
        Self::Error(Box::new(error))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::UnreadableStore(error.to_string())
    }
}

impl From<tokens::StoreError> for Failure {
    fn from(error: tokens::StoreError) -> Self {
        match error {
            tokens::StoreError::Busy | tokens::StoreError::Full => {
                Self::Message(StatusCode::SERVICE_UNAVAILABLE, error.to_string().into())
            }
            other => Self::internal(other),
        }
    }
}

/// Message to the client if the store cannot be read.
pub(crate) const UNREADABLE_STORE: &str =
    "the store cannot be read; stop the gateway and start it again, which examines the store";

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::Error(error) if error.code.status() < 500 => {
                let status = StatusCode::from_u16(error.code.status())
                    .expect("error codes have valid statuses");
                json(status, &error.to_json())
            }
            Self::Error(error) => Self::Internal(error.message).into_response(),
            Self::InvalidUnique { field, text } => json(
                StatusCode::BAD_REQUEST,
                &serde_json::json!({
                    "code": ErrorCode::InvalidUnique as u8,
                    "name": format!("invalid unique {field}"),
                    "message": text,
                }),
            ),
            Self::Message(status, text) => message(status, &text),
            Self::Json(status, value) => json(status, &value),
            Self::UnsupportedMediaType => unsupported_media_type(),
            Self::Internal(details) => {
                tracing::error!(error = %details, "an Admin API request failed");
                message(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "An unexpected error occurred",
                )
            }
            Self::UnreadableStore(details) => {
                tracing::error!(error = %details, "an Admin API request failed");
                message(StatusCode::INTERNAL_SERVER_ERROR, UNREADABLE_STORE)
            }
        }
    }
}

/// Returns a response with a JSON body. `value` is a JSON value or a struct that can be serialized as JSON.
pub(crate) fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    json_bytes(
        status,
        serde_json::to_vec(value).expect("responses have only texts as keys"),
    )
}

pub(crate) fn json_bytes(status: StatusCode, bytes: impl Into<Body>) -> Response {
    json_body(status, bytes.into())
}

pub(crate) fn json_body(status: StatusCode, body: Body) -> Response {
    (status, [(CONTENT_TYPE, JSON)], body).into_response()
}

pub(crate) fn message(status: StatusCode, text: &str) -> Response {
    json(status, &serde_json::json!({ "message": text }))
}

pub(crate) fn empty(status: StatusCode) -> Response {
    status.into_response()
}

/// Returns the HTML page of nginx, because in Kong nginx creates this response.
fn unsupported_media_type() -> Response {
    const PAGE: &str = "<html>\r\n<head><title>415 Unsupported Media Type</title></head>\r\n<body>\r\n\
                        <center><h1>415 Unsupported Media Type</h1></center>\r\n</body>\r\n</html>\r\n";
    let html = HeaderValue::from_static("text/html; charset=UTF-8");
    (
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        [(CONTENT_TYPE, html)],
        PAGE,
    )
        .into_response()
}
