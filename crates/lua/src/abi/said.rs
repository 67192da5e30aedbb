//! What Lua code says to the client (`ngx.say`, `ngx.print`).
//!
//! The pieces are kept with the request and sent at the end of the handler, with its headers.

use super::{Cx, FOUND, NO_REQUEST, NONE};
use crate::handles::Context;
use bytes::Bytes;
use plugin::{HeaderEdits, Response, ResponseBody};

/// Maximum bytes that a request may say.
const MAX_SAID: usize = 64 << 20;

/// What a request has said.
#[derive(Debug)]
pub(crate) struct Said {
    status: u16,
    body: Vec<u8>,
    is_ended: bool,
    has_type: bool,
}

impl Said {
    pub(crate) fn response(self) -> Response {
        let mut headers = HeaderEdits::new();
        if !self.has_type {
            // nginx's default type does not apply to what Lua code says.
            headers.remove("Content-Type");
        }
        Response {
            status: self.status,
            headers,
            body: ResponseBody::Written(self.body.into()),
            counts_as_proxied: false,
        }
    }
}

pub(crate) fn context(cx: &mut Cx) -> Option<&mut Context> {
    let state = cx.target.state_mut()?;
    state.interpreter.as_deref_mut()?.downcast_mut()
}

/// Says a text. The first one fixes the status. Returns [`NONE`] after the end, and if it would be too much.
pub(super) fn say(cx: &mut Cx, status: i32, text: &[u8]) -> i32 {
    let has_type = super::ending::has_type(cx, &HeaderEdits::new());
    cx.keep(text.len());
    let Some(context) = context(cx) else {
        return NO_REQUEST;
    };
    let said = context.said.get_or_insert_with(|| Said {
        status: u16::try_from(status).unwrap_or(0),
        body: Vec::new(),
        is_ended: false,
        has_type,
    });
    if said.is_ended || said.body.len() + text.len() > MAX_SAID {
        return NONE;
    }
    said.body.extend_from_slice(text);
    FOUND
}

/// Ends what is said: nothing follows.
pub(super) fn end(cx: &mut Cx) -> i32 {
    match context(cx).and_then(|context| context.said.as_mut()) {
        Some(said) => {
            said.is_ended = true;
            FOUND
        }
        None => NO_REQUEST,
    }
}

/// Whether the request has said something, and so the headers count as sent.
pub(super) fn has_begun(cx: &mut Cx) -> i32 {
    i32::from(context(cx).is_some_and(|context| context.said.is_some()))
}

/// The body of an ending without a body of its own: what was said.
pub(super) fn take(cx: &mut Cx) -> Option<Bytes> {
    let said = context(cx)?.said.take()?;
    Some(said.body.into())
}
