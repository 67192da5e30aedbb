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
    /// The form of an answer to a call over gRPC: it is all in headers. The message of an error in "error" style is the name
    /// of its gRPC status, as in Kong. A plugin that names the type of gRPC means the body as the call's.
    pub(super) fn of_grpc(response: Response) -> Self {
        let Response {
            status,
            mut headers,
            body,
        } = response;
        let is_output = headers.value("content-type").is_some();
        if !is_output {
            headers.set("Content-Type", TYPE);
        }
        if headers.value("grpc-status").is_none() {
            let code = status::grpc_status(status);
            headers.set("grpc-status", code.to_string());
            let message = match &body {
                ResponseBody::Json(body) => message_of(body),
                ResponseBody::Bytes(body) if !is_output => {
                    printable(String::from_utf8_lossy(body.trim_ascii()))
                }
                _ => None,
            };
            if headers.value("grpc-message").is_none() {
                let named = NAMES.get(usize::from(code)).copied().unwrap_or_default();
                headers.set("grpc-message", &*message.unwrap_or(named.into()));
            }
        }
        let body = match body {
            ResponseBody::Bytes(body) if is_output => body,
            _ => Bytes::new(),
        };
        Self {
            status,
            headers,
            body,
        }
    }
}

/// The field `message` of a table, which plugins put first.
fn message_of(table: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(table).ok()?;
    let (_, rest) = text.split_once("\"message\":\"")?;
    printable(rest.split('"').next()?.into())
}

/// A text that a header can carry.
fn printable(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let plain = |byte: u8| matches!(byte, b' '..=b'~');
    (!text.is_empty() && text.bytes().all(plain)).then_some(text)
}
