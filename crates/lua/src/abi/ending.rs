//! How Lua code ends a request.

use super::edit::{Change, change_header};
use super::{Cx, FOUND, NONE};
use crate::target::Phase;
use bytes::Bytes;
use plugin::{HeaderEdits, InternalRedirect, Response, ResponseBody};
use std::borrow::Cow;

super::numbered! {
    /// The kinds of responses.
    pub(super) enum Kind {
        /// `kong.response.exit` with a text.
        Exit = "exit",
        /// `kong.response.exit` without a body.
        ExitPage = "exit_page",
        /// `kong.response.exit` with a table, as JSON.
        ExitJson = "exit_json",
        /// `kong.response.error` with a message.
        Error = "error",
        /// `kong.response.error` without a message.
        StatusError = "status_error",
        /// `ngx.exit` and what was said before it.
        NgxExit = "ngx_exit",
    }
}

/// The end of a request, or the replacement of a response.
#[derive(Debug, Clone)]
pub enum Ending {
    /// Kong's delayed response: later plugins are still chosen, so that their filters run.
    Respond(Response),
    /// The request ends at once.
    AtOnce(Response),
    /// The request begins anew (`ngx.exec`).
    Redirect(InternalRedirect),
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

/// The status that closes the connection without a response.
const CLOSES: u16 = 444;

/// Whether a response has a content type, from its own headers or from those that were set before it.
pub(super) fn has_type(cx: &Cx, headers: &HeaderEdits) -> bool {
    let early = cx.target.state().map(|state| &state.headers);
    let mut all = std::iter::once(headers).chain(early);
    all.any(|headers| headers.value("content-type").is_some())
}

/// Makes the response of this status, with the headers that were added. The kind is in the bits above the status.
pub(super) fn exit(cx: &mut Cx, status_and_kind: i32, body: &[u8]) -> i32 {
    let Some(kind) = Kind::numbered(status_and_kind >> 16) else {
        return NONE;
    };
    let mut headers = std::mem::take(&mut cx.headers);
    let replaces = cx.phase == Phase::HeaderFilter as u32;
    // What was said before is the body. Only `ngx.exit` can come after it.
    let said = super::said::take(cx);
    if (kind == Kind::Exit || said.is_some()) && !replaces && !has_type(cx, &headers) {
        // Kong sends a text without a content type, not with nginx's default type.
        headers.remove("Content-Type");
    }
    let status = match status_and_kind as u16 {
        // nginx closes the connection: such a status is not final.
        100..=199 if !replaces => CLOSES,
        status => status,
    };
    let bytes = || Bytes::copy_from_slice(body);
    let text = || Cow::Owned(String::from_utf8_lossy(body).into_owned());
    let response = Response {
        status,
        headers,
        body: match kind {
            Kind::Exit => ResponseBody::Bytes(bytes()),
            Kind::ExitJson => ResponseBody::Json(bytes()),
            Kind::NgxExit => said.map_or(ResponseBody::Page, ResponseBody::Written),
            Kind::ExitPage => ResponseBody::Page,
            Kind::Error => ResponseBody::Error(Some(text())),
            Kind::StatusError => ResponseBody::Error(None),
        },
        counts_as_proxied: false,
    };
    cx.ending = Some(match kind {
        Kind::NgxExit => Ending::AtOnce(response),
        _ => Ending::Respond(response),
    });
    FOUND
}

/// Makes the request begin anew with this path and query.
pub(super) fn redirect(cx: &mut Cx, path: &[u8], query: &[u8]) -> i32 {
    cx.keep(path.len() + query.len());
    cx.ending = Some(Ending::Redirect(InternalRedirect {
        path: Bytes::copy_from_slice(path),
        query: query.to_vec(),
    }));
    FOUND
}
