//! Lists of names and values: headers, arguments and captures. A function fills the list, and Lua reads it item by item.

use super::{Cx, FOUND, MAX_KEPT_BUFFER, NO_REQUEST, NONE};
use crate::target::Raw;
use crate::vm::{self, MAX_GROWTH};
use plugin::{Multipart, args};
use std::borrow::Cow;

super::numbered! {
    /// What a list is made of.
    pub(super) enum Of {
        RequestHeaders = "request_headers",
        ResponseHeaders = "response_headers",
        UpstreamHeaders = "upstream_headers",
        Captures = "captures",
        Tries = "tries",
    }
}

/// The list that was made last. The texts are in one buffer.
#[derive(Default)]
pub(super) struct List {
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// Whether something was left out, because the list takes as much memory as a slice may add.
    is_full: bool,
}

struct Item {
    /// End of the name in the buffer, which is the start of the value.
    name_end: usize,
    end: usize,
    kind: i32,
}

/// The kinds of items. 1: name and value, 2: a name without a value, 3: a numbered capture.
const PAIR: i32 = 1;
const BARE: i32 = 2;
const NUMBERED: i32 = 3;

impl List {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
        self.is_full = false;
    }

    /// Frees a buffer that is larger than usual.
    pub(super) fn shrink(&mut self) {
        if self.bytes.capacity() + self.items.capacity() > MAX_KEPT_BUFFER {
            *self = Self::default();
        }
    }

    /// Adds a name without a value.
    pub(super) fn name(&mut self, name: &[u8]) {
        self.push(name, b"", BARE);
    }

    fn push(&mut self, name: &[u8], value: &[u8], kind: i32) {
        let used = self.bytes.len() + self.items.len() * size_of::<Item>();
        if used + name.len() + value.len() > MAX_GROWTH {
            self.is_full = true;
            return;
        }
        self.bytes.extend_from_slice(name);
        let name_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        let end = self.bytes.len();
        self.items.push(Item {
            name_end,
            end,
            kind,
        });
    }
}

/// Makes a list of at most `most` items, and returns the number of its items. `number` is 1 if there would be more.
pub(super) fn make(cx: &mut Cx, of: i32, most: i32) -> i32 {
    let Some(of) = Of::numbered(of) else {
        return NONE;
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let target = cx.target;
    let mut list = std::mem::take(&mut cx.list);
    list.clear();
    let mut has_more = false;
    let mut add = |name: &[u8], value: &[u8], kind: i32| match list.items.len() < most {
        true => list.push(name, value, kind),
        false => has_more = true,
    };
    let is_made = match of {
        Of::RequestHeaders => target.request().map(|request| {
            for (name, value) in request.header_pairs() {
                add(name.as_bytes(), value, PAIR);
            }
        }),
        Of::ResponseHeaders => {
            each_response_header(&target, &mut |name, value| add(name, value, PAIR))
        }
        Of::UpstreamHeaders => {
            for (name, value) in target
                .upstream()
                .into_iter()
                .flat_map(|head| head.headers())
            {
                add(name.as_bytes(), value, PAIR);
            }
            Some(())
        }
        Of::Captures => target.request().map(|request| {
            for capture in &request.captures {
                let value = capture.value.as_bytes();
                match &capture.name {
                    Some(name) => add(name.as_bytes(), value, PAIR),
                    None => add(capture.number.to_string().as_bytes(), value, NUMBERED),
                }
            }
        }),
        Of::Tries => target.state().map(|state| {
            for address in &state.tried {
                let (ip, port) = (address.ip().to_string(), address.port().to_string());
                add(ip.as_bytes(), port.as_bytes(), PAIR);
            }
        }),
    };
    cx.list = list;
    cx.number = f64::from(u8::from(has_more));
    match is_made {
        Some(()) => count(cx),
        None => NO_REQUEST,
    }
}

/// Returns the number of items of the list. The slice is stopped if there would be too many.
fn count(cx: &mut Cx) -> i32 {
    if cx.list.is_full {
        vm::stop_for_memory();
    }
    i32::try_from(cx.list.items.len()).unwrap_or(i32::MAX)
}

/// Visits the header lines of the response to the client. `None` if there is no response yet.
pub(super) fn each_response_header(
    target: &Raw,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Option<()> {
    if let Some(answer) = target.answer() {
        let edits = &answer.headers;
        for (name, value) in edits.before() {
            visit(name.as_bytes(), value);
        }
        for (name, value) in target
            .upstream()
            .into_iter()
            .flat_map(|head| head.headers())
        {
            if !edits.drops(name) {
                visit(name.as_bytes(), value);
            }
        }
        for (name, value) in edits.added() {
            visit(name.as_bytes(), value);
        }
        if let Some(request) = target.request().filter(|request| !request.http2) {
            let kept = request.head.keep_alive();
            visit(b"connection", if kept { b"keep-alive" } else { b"close" });
        }
        return Some(());
    }
    if let Some(entry) = target.entry() {
        for line in entry.response_head.split(|byte| *byte == b'\n').skip(1) {
            if let Some(colon) = memchr::memchr(b':', line) {
                visit(&line[..colon], line[colon + 1..].trim_ascii());
            }
        }
        return Some(());
    }
    let state = target.state()?;
    for (name, value) in state.headers.added() {
        visit(name.as_bytes(), value);
    }
    Some(())
}

/// Makes a list of names and values, and returns their number.
pub(super) fn fill(cx: &mut Cx, make: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) -> i32 {
    let mut list = std::mem::take(&mut cx.list);
    list.clear();
    make(&mut |name, value| list.push(name, value, PAIR));
    cx.list = list;
    count(cx)
}

/// Returns the first value of a header of the response to the client.
pub(super) fn response_header(cx: &mut Cx, target: &Raw, name: &str) -> i32 {
    let mut found: Option<Vec<u8>> = None;
    let made = each_response_header(target, &mut |other, value| {
        if found.is_none() && other.eq_ignore_ascii_case(name.as_bytes()) {
            found = Some(value.to_vec());
        }
    });
    match (made, found) {
        (None, _) => NO_REQUEST,
        (_, None) => NONE,
        (_, Some(value)) => cx.made(|out| out.extend_from_slice(&value)),
    }
}

/// Makes a list of the arguments of a query or a form, and returns their number.
pub(super) fn parse_args(cx: &mut Cx, most: i32, text: &[u8]) -> i32 {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut list = std::mem::take(&mut cx.list);
    list.clear();
    let mut args = args::parse_all(text);
    for arg in args.by_ref().take(most) {
        if list.is_full {
            break;
        }
        match &arg.value {
            Some(value) => list.push(&arg.name, value, PAIR),
            None => list.push(&arg.name, b"", BARE),
        }
    }
    cx.number = f64::from(u8::from(args.next().is_some()));
    cx.list = list;
    count(cx)
}

/// Makes a list of the parts of a body in the form `multipart/form-data`, and returns their number.
pub(super) fn multipart(cx: &mut Cx, content_type: &[u8], body: &[u8]) -> i32 {
    cx.list.clear();
    let Some(multipart) = Multipart::parse_begun(content_type, body) else {
        return 0;
    };
    for part in multipart.parts() {
        cx.list.push(&part.name, &part.content, PAIR);
    }
    count(cx)
}

/// Returns an item of the list, counted from 0: the name, the value, and the kind as the result.
pub(super) fn item(cx: &mut Cx, at: i32) -> i32 {
    let list = std::mem::take(&mut cx.list);
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let code = match list.items.get(at) {
        None => NONE,
        Some(item) => {
            let start = match at {
                0 => 0,
                _ => list.items[at - 1].end,
            };
            let (name, value) = (
                &list.bytes[start..item.name_end],
                &list.bytes[item.name_end..item.end],
            );
            cx.texts(name, value);
            item.kind
        }
    };
    cx.list = list;
    code
}

/// Returns a text that was changed or not.
pub(super) fn cow(cx: &mut Cx, text: Cow<'_, [u8]>) -> i32 {
    match text {
        Cow::Borrowed(text) => cx.text(text),
        Cow::Owned(text) => cx.made(|out| out.extend_from_slice(&text)),
    };
    FOUND
}
