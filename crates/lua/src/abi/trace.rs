//! Spans that Lua code makes (`kong.tracing`).

use super::{Cx, FOUND, NO_REQUEST, NONE};
use plugin::Instrumentations;
use plugin::trace::custom::Counted;

super::numbered! {
    /// What is added to the trace.
    pub(super) enum Part {
        Span = "span",
        /// To the root span.
        Root = "root",
    }
}

/// Whether the node traces requests.
pub(super) fn is_on(cx: &mut Cx) -> i32 {
    match cx.target.node() {
        None => NO_REQUEST,
        Some(node) if node.identity.tracing.instrumentations.is_empty() => NONE,
        Some(_) => FOUND,
    }
}

/// Whether the spans of the request are recorded.
pub(super) fn is_recorded(cx: &mut Cx) -> i32 {
    let state = cx.target.state();
    i32::from(state.is_some_and(|state| state.trace.records(Instrumentations::ALL)))
}

/// Returns the id of the trace in hex digits, if it is known.
pub(super) fn id(cx: &mut Cx) -> i32 {
    let id = cx.target.state().and_then(|state| state.trace.id);
    let Some(id) = id else {
        return NONE;
    };
    cx.made(|out| out.extend_from_slice(&id.hex()))
}

/// Adds a finished span, or something to the root span, from JSON. Bytes that are not UTF-8 are replaced. What exceeds the
/// limit of the request is left out, with one error.
pub(super) fn add(cx: &mut Cx, part: i32, text: &[u8]) -> i32 {
    let Some(part) = Part::numbered(part) else {
        return NONE;
    };
    if is_recorded(cx) == NONE {
        return NONE;
    }
    cx.keep(text.len());
    let Some(state) = cx.target.state_mut() else {
        return NO_REQUEST;
    };
    match state.trace.count_custom(text.len()) {
        Counted::Fits => {}
        Counted::Exceeds => return cx.refuse("the request has added too much to its trace"),
        Counted::Exceeded => return NONE,
    }
    let text = String::from_utf8_lossy(text);
    let added = match part {
        Part::Span => serde_json::from_str(&text).map(|span| state.trace.add_custom(span)),
        Part::Root => serde_json::from_str(&text).map(|more| state.trace.add_to_root(more)),
    };
    match added {
        Ok(()) => FOUND,
        Err(error) => cx.refuse(error),
    }
}
