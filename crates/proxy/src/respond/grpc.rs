//! Answers to gRPC calls: no body, the outcome in headers. Source: kong/pdk/response.lua send() and error().

use super::{Answer, status};
use bytes::Bytes;
use plugin::{Response, ResponseBody};
use std::borrow::Cow;

/// Clients look for a gRPC status only in answers of this type.
pub(super) const TYPE: &str = "application/grpc";

/// Names of the gRPC status codes, by number. Source: kong/pdk/response.lua GRPC_MESSAGES.
const NAMES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

impl Answer {
    /// A plugin's or the gateway's answer to a call over gRPC. The message of an error in "error" style is the name of its
    /// gRPC status, as in Kong.
    pub fn of_grpc(response: Response) -> Self {
        let Response {
            status,
            mut headers,
            body,
        } = response;
        let has_type = |value: &[u8]| value.starts_with(TYPE.as_bytes());
        if !headers.value("content-type").is_some_and(has_type) {
            headers.set("Content-Type", TYPE);
        }
        if headers.value("grpc-status").is_none() {
            let code = status::grpc_status(status);
            let message = match &body {
                ResponseBody::Error(_) => None,
                ResponseBody::Bytes(body) => message_of(body),
            };
            let named = NAMES.get(usize::from(code)).copied().unwrap_or_default();
            headers.set("grpc-status", code.to_string());
            headers.set("grpc-message", &*message.unwrap_or(named.into()));
        }
        Self {
            status,
            headers,
            body: Bytes::new(),
        }
    }
}

/// What plugins answer is mostly `{"message":"..."}`; a text says itself what it means.
fn message_of(body: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let message = match text.split_once("\"message\":\"") {
        Some((_, rest)) => rest.split('"').next()?,
        None if text.starts_with('{') => return None,
        None => text,
    };
    let plain = |byte: u8| matches!(byte, b' '..=b'~');
    (!message.is_empty() && message.bytes().all(plain)).then_some(message.into())
}
