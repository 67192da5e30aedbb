//! How Lua code ends a request.

use super::edit::{Change, change_header};
use super::{Cx, FOUND, NONE};
use crate::target::Phase;
use bytes::Bytes;
use plugin::{Response, ResponseBody};
use std::borrow::Cow;

super::numbered! {
    /// The kinds of responses.
    pub(super) enum Kind {
        /// `kong.response.exit` with a text.
        Exit = "exit",
        /// `kong.response.exit` with a table, as JSON.
        ExitJson = "exit_json",
        /// `kong.response.error` with a message.
        Error = "error",
        /// `kong.response.error` without a message.
        StatusError = "status_error",
        /// `ngx.exit` and what was said before it.
        NgxExit = "ngx_exit",
        /// `ngx.exit` with the status of an error.
        NgxError = "ngx_error",
        /// `ngx.exit` with a status that closes the connection without a response.
        NgxClose = "ngx_close",
    }
}

/// The end of a request, or the replacement of a response.
#[derive(Debug, Clone)]
pub enum Ending {
    /// Kong's delayed response: later plugins are still chosen, so that their filters run.
    Respond(Response),
    /// The request ends at once.
    AtOnce(Response),
}

/// Adds a header to the response that [`exit`] makes.
pub(super) fn header(cx: &mut Cx, _: i32, change: i32, name: &[u8], value: &[u8]) -> i32 {
    let Some(change) = Change::numbered(change) else {
        return NONE;
    };
    cx.keep(name.len() + value.len());
    change_header(&mut cx.headers, change, name, value);
    FOUND
}

/// Makes the response of this status, with the headers that were added. The kind is in the bits above the status.
pub(super) fn exit(cx: &mut Cx, status_and_kind: i32, body: &[u8]) -> i32 {
    let Some(kind) = Kind::numbered(status_and_kind >> 16) else {
        return NONE;
    };
    let mut headers = std::mem::take(&mut cx.headers);
    let replaces = cx.phase == Phase::HeaderFilter as u32;
    if kind == Kind::Exit && !replaces && headers.value("content-type").is_none() {
        // Kong sends a text without a content type, not with nginx's default type.
        headers.remove("Content-Type");
    }
    // What was said before is the body. Only `ngx.exit` can come after it.
    let said = super::said::take(cx);
    let body = || said.clone().unwrap_or_else(|| Bytes::copy_from_slice(body));
    let text = || Cow::Owned(String::from_utf8_lossy(&body()).into_owned());
    let response = Response {
        status: status_and_kind as u16,
        headers,
        body: match kind {
            Kind::Exit | Kind::NgxExit | Kind::NgxClose => ResponseBody::Bytes(body()),
            Kind::ExitJson => ResponseBody::Json(body()),
            Kind::Error => ResponseBody::Error(Some(text())),
            Kind::StatusError => ResponseBody::Error(None),
            Kind::NgxError => ResponseBody::ServerError,
        },
        counts_as_proxied: false,
    };
    cx.ending = Some(match kind {
        Kind::NgxExit | Kind::NgxError | Kind::NgxClose => Ending::AtOnce(response),
        _ => Ending::Respond(response),
    });
    FOUND
}
