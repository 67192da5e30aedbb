//! Unary calls of gRPC, as far as exporters need them: one message is sent, and one comes back.
//! Sources: the documents PROTOCOL-HTTP2, http-grpc-status-mapping and statuscodes of gRPC, `google/rpc/status.proto` and
//! `error_details.proto`, and the rules for retries in the specification of OTLP.

use super::Asked;
use ::http::header::{CONNECTION, CONTENT_TYPE, TE, TRANSFER_ENCODING, UPGRADE};
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use bytes::{BufMut, Bytes, BytesMut};
use data_encoding::BASE64_NOPAD;
use percent_encoding::percent_decode;
use prost::Message;
use services::http::{Body, Response};
use services::queue::SendError;
use std::time::Duration;

/// Size of what comes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Maximum bytes of a message that an error shows.
const SHOWN_MESSAGE: usize = 200;

mod code {
    pub(super) const OK: u32 = 0;
    pub(super) const CANCELLED: u32 = 1;
    pub(super) const UNKNOWN: u32 = 2;
    pub(super) const DEADLINE_EXCEEDED: u32 = 4;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(super) const ABORTED: u32 = 10;
    pub(super) const OUT_OF_RANGE: u32 = 11;
    pub(super) const UNIMPLEMENTED: u32 = 12;
    pub(super) const INTERNAL: u32 = 13;
    pub(super) const UNAVAILABLE: u32 = 14;
    pub(super) const DATA_LOSS: u32 = 15;
    pub(super) const UNAUTHENTICATED: u32 = 16;
}

/// The details of an error: `google.rpc.Status` without its code and its message, which have headers of their own.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    delay: Option<Pause>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct Pause {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// Adds the headers of each call. `limit` is the time after which the call is given up.
pub(super) fn add_headers(limit: Duration, headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    // The number has at most eight digits.
    let milliseconds = limit.as_millis().min(99_999_999);
    let mut text = BytesMut::new();
    text.put_slice(milliseconds.to_string().as_bytes());
    text.put_u8(b'm');
    if let Ok(value) = HeaderValue::from_maybe_shared(text.freeze()) {
        headers.insert("grpc-timeout", value);
    }
}

/// Whether a header is no metadata: the protocol has its own, or HTTP/2 has none.
pub(super) fn is_own(name: &HeaderName) -> bool {
    [CONTENT_TYPE, TE, CONNECTION, TRANSFER_ENCODING, UPGRADE].contains(name)
        || name.as_str().starts_with("grpc-")
}

/// Makes a body the one message of a call. Returns `None` if it is too large.
pub(super) fn message(mut body: Body) -> Option<Body> {
    let length = u32::try_from(body.size()).ok()?;
    let mut prefix = BytesMut::with_capacity(PREFIX);
    // It is not compressed.
    prefix.put_u8(0);
    prefix.put_u32(length);
    body.prepend(prefix.freeze());
    Some(body)
}

/// Returns the message of a successful call. An error says whether the entries of the batch are to be sent again.
pub(super) fn answer<'r>(
    asked: &Asked,
    response: &'r Response,
    entries: usize,
) -> Result<&'r [u8], SendError> {
    let place = asked.place();
    // An answer without a message has its status in the headers.
    let status = [&response.trailers, &response.headers];
    let status = status
        .into_iter()
        .find_map(|headers| Some((headers.get("grpc-status")?, headers)));
    let Some((status, headers)) = status else {
        let (code, status) = (of_http(response.status), response.status.as_u16());
        let reason = format!("call to {place} returned status code {status} and no status of gRPC");
        return Err(failure(code, None, entries, reason));
    };
    let code = status.to_str().ok().and_then(|code| code.parse().ok());
    let code = code.unwrap_or(code::UNKNOWN);
    if code == code::OK {
        return Ok(message_of(&response.body));
    }
    let said = headers.get("grpc-message").map(HeaderValue::as_bytes);
    let said = percent_decode(said.unwrap_or_default()).decode_utf8_lossy();
    let said: String = asked.shown(&said).chars().take(SHOWN_MESSAGE).collect();
    let reason = format!("call to {place} returned gRPC status {code} and message {said:?}");
    Err(failure(code, pause(headers), entries, reason))
}

/// Returns the message in a body. What is compressed was not asked for, and is left out.
fn message_of(body: &Bytes) -> &[u8] {
    match body.split_at_checked(PREFIX) {
        Some(([0, ..], message)) => message,
        _ => &[],
    }
}

fn failure(code: u32, pause: Option<Duration>, entries: usize, reason: String) -> SendError {
    let is_temporary = match code {
        code::CANCELLED
        | code::DEADLINE_EXCEEDED
        | code::ABORTED
        | code::OUT_OF_RANGE
        | code::UNAVAILABLE
        | code::DATA_LOSS => true,
        // The batch can be too large, or there can be too many: only the receiver knows.
        code::RESOURCE_EXHAUSTED => pause.is_some(),
        _ => false,
    };
    if !is_temporary {
        return SendError::lost(entries, reason);
    }
    let error = SendError::new(reason);
    match pause {
        Some(pause) => error.after(pause),
        None => error,
    }
}

/// What a status of HTTP means if there is none of gRPC, as from a proxy.
fn of_http(status: StatusCode) -> u32 {
    match status.as_u16() {
        400 => code::INTERNAL,
        401 => code::UNAUTHENTICATED,
        403 => code::PERMISSION_DENIED,
        404 => code::UNIMPLEMENTED,
        429 | 502 | 503 | 504 => code::UNAVAILABLE,
        _ => code::UNKNOWN,
    }
}

/// Returns how long the receiver wants to be left alone: `RetryInfo` in the details of the error.
fn pause(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-status-details-bin")?.as_bytes();
    let end = text
        .iter()
        .rposition(|byte| *byte != b'=')
        .map_or(0, |at| at + 1);
    let bytes = BASE64_NOPAD.decode(text.get(..end)?).ok()?;
    let details = Details::decode(&*bytes).ok()?.details;
    let info = details
        .iter()
        .find(|one| one.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.delay?;
    let seconds = u64::try_from(delay.seconds).ok()?;
    let nanos = u32::try_from(delay.nanos).ok()?.min(999_999_999);
    Some(Duration::new(seconds, nanos))
}
