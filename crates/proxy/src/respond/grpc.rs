//! Responses to gRPC calls: the result is in headers, and there is no body.
//! Source: kong/pdk/response.lua send() and error().

use super::{GatewayResponse, status};
use bytes::Bytes;
use plugin::{Response, ResponseBody};
use std::borrow::Cow;

/// Content type of gRPC responses. Clients look for a gRPC status only in responses of this type.
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

impl GatewayResponse {
    /// Converts a response to the gRPC form, with the result in headers. For [`ResponseBody::Error`] the message is the
    /// name of the gRPC status, as in Kong. If a plugin has set gRPC's content type, its body is kept as the body of
    /// the call.
    pub(super) fn of_grpc(response: Response) -> Self {
        let Response {
            status,
            mut headers,
            body,
            counts_as_proxied: _,
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
            ResponseBody::Pieces(pieces) if is_output => pieces.concat().into(),
            _ => Bytes::new(),
        };
        Self {
            status,
            headers,
            body,
            more: Vec::new(),
            chunked: false,
            stored: None,
        }
    }
}

/// Returns the field `message` of a JSON object, if a header can contain it.
fn message_of(table: &[u8]) -> Option<Cow<'_, str>> {
    let table: serde_json::Value = serde_json::from_slice(table).ok()?;
    printable(table.get("message")?.as_str()?.to_owned().into())
}

/// Returns the text if a header can contain it: it is not empty and is printable ASCII.
fn printable(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let plain = |byte: u8| matches!(byte, b' '..=b'~');
    (!text.is_empty() && text.bytes().all(plain)).then_some(text)
}
