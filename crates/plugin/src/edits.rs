//! Header changes (removed and added lines) for a message that stays in the buffer it was read into. They are kept in a
//! small reusable list: a request has only a few, so that a scan is faster than a map. Values of up to 24 bytes and ids
//! need no allocation.

use crate::request::Scheme;
use bytes::Bytes;
use compact_str::CompactString;
use std::borrow::Cow;
use std::time::Duration;
use uuid::Uuid;

/// Value of a header to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderValue {
    Text(CompactString),
    /// An id in its usual form, stored inline. As a `Text` of 36 bytes it would be allocated on the heap.
    Id([u8; 36]),
    Bytes(Bytes),
}

impl HeaderValue {
    pub const fn from_static(text: &'static str) -> Self {
        Self::Text(CompactString::const_new(text))
    }

    /// Percent-encodes control characters, so that data cannot add headers. nginx under Kong encodes line breaks and NUL.
    /// Servers disagree about the other ones, and some end a line at them.
    pub fn from_text(text: &str) -> Self {
        match escape_controls(text.as_bytes()) {
            Some(escaped) => Self::Bytes(escaped.into()),
            None => Self::Text(text.into()),
        }
    }

    /// Does what [`Self::from_text`] does with a value that need not be UTF-8, such as one that a client sent.
    pub fn from_untrusted(bytes: &[u8]) -> Self {
        match (escape_controls(bytes), std::str::from_utf8(bytes)) {
            (Some(escaped), _) => Self::Bytes(escaped.into()),
            (None, Ok(text)) => Self::Text(text.into()),
            (None, Err(_)) => Self::Bytes(Bytes::copy_from_slice(bytes)),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Id(id) => id,
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl From<Uuid> for HeaderValue {
    fn from(id: Uuid) -> Self {
        let mut text = [0; 36];
        id.hyphenated().encode_lower(&mut text);
        Self::Id(text)
    }
}

impl From<&str> for HeaderValue {
    fn from(text: &str) -> Self {
        Self::from_text(text)
    }
}

impl From<String> for HeaderValue {
    fn from(text: String) -> Self {
        Self::from_text(&text)
    }
}

/// Escapes control characters, except tabs. Returns `None` if there are none.
fn escape_controls(value: &[u8]) -> Option<Vec<u8>> {
    escape(value, |byte| (byte < b' ' && byte != b'\t') || byte == 0x7f)
}

/// Percent-encodes some bytes. Returns `None` if there are none.
fn escape(value: &[u8], is_escaped: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
    // Without an early exit, the compiler looks at many bytes at a time.
    if !value
        .iter()
        .fold(false, |any, &byte| any | is_escaped(byte))
    {
        return None;
    }
    let mut escaped = Vec::with_capacity(value.len() + 8);
    for &byte in value {
        if is_escaped(byte) {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
            escaped.extend_from_slice(&[b'%', high, low]);
        } else {
            escaped.push(byte);
        }
    }
    Some(escaped)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderChange {
    /// Removes all lines with this name.
    Remove,
    /// Replaces all lines with this name by one with this value.
    Set(HeaderValue),
    /// Adds a line after the others.
    Add(HeaderValue),
    /// Adds a line before the original message's lines.
    Before(HeaderValue),
}

impl HeaderChange {
    #[inline]
    fn into_parts(self) -> (Kind, HeaderValue) {
        match self {
            Self::Remove => (Kind::Remove, HeaderValue::from_static("")),
            Self::Set(value) => (Kind::Set, value),
            Self::Add(value) => (Kind::Add, value),
            Self::Before(value) => (Kind::Before, value),
        }
    }
}

/// A change of a list. The kind is not a part of the value, so that it can change while the value stays in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    name: CompactString,
    kind: Kind,
    /// Empty if the lines are removed.
    value: HeaderValue,
}

/// The kinds of [`HeaderChange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Remove,
    Set,
    Add,
    Before,
}

impl Change {
    /// Whether it replaces all lines with its name.
    #[inline]
    fn replaces(&self) -> bool {
        matches!(self.kind, Kind::Remove | Kind::Set)
    }

    fn is_of(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    fn line(&self) -> (&str, &[u8]) {
        (&self.name, self.value.as_bytes())
    }
}

/// Changes to the headers of one message. Names are compared without case; `_` and `-` are different.
#[derive(Debug, Clone, Default)]
pub struct HeaderEdits {
    changes: Vec<Change>,
    /// A set of the lengths (modulo 64) of changed names. Most lookups end here, because no changed name has the same
    /// length.
    lengths: u64,
}

impl HeaderEdits {
    pub const fn new() -> Self {
        Self {
            changes: Vec::new(),
            lengths: 0,
        }
    }

    /// Empties the list but keeps its memory for the next message, unless it was unusually long.
    pub fn clear(&mut self) {
        const KEPT: usize = 128;
        self.changes.clear();
        self.changes.shrink_to(KEPT);
        self.lengths = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Whether the list may contain this name. False if it certainly does not.
    #[inline]
    fn may_have(&self, name: &[u8]) -> bool {
        self.lengths & length_bit(name) != 0
    }

    #[inline]
    fn push(&mut self, change: Change) {
        self.lengths |= length_bit(change.name.as_bytes());
        self.changes.push(change);
    }

    /// Replaces all lines with this name.
    #[inline]
    pub fn set(&mut self, name: impl HeaderName, value: impl Into<HeaderValue>) {
        self.replace(Change {
            name: name.into_name(),
            kind: Kind::Set,
            value: value.into(),
        });
    }

    /// Whether the list certainly has no change of a name with one of these lengths.
    #[inline]
    pub fn lacks(&self, names: NameLengths) -> bool {
        self.lengths & names.0 == 0
    }

    /// Does what [`Self::set`] does for a name that the list has no change of, and does not look for one.
    #[inline]
    pub fn set_new(&mut self, name: impl HeaderName, value: HeaderValue) {
        self.push(Change {
            name: name.into_name(),
            kind: Kind::Set,
            value,
        });
    }

    #[inline]
    pub fn add(&mut self, name: impl HeaderName, value: impl Into<HeaderValue>) {
        self.push(Change {
            name: name.into_name(),
            kind: Kind::Add,
            value: value.into(),
        });
    }

    #[inline]
    pub fn remove(&mut self, name: impl HeaderName) {
        self.replace(Change {
            name: name.into_name(),
            kind: Kind::Remove,
            value: HeaderValue::from_static(""),
        });
    }

    /// Makes one change.
    pub fn make(&mut self, name: impl HeaderName, change: HeaderChange) {
        let name = name.into_name();
        let (kind, value) = change.into_parts();
        let change = Change { name, kind, value };
        match change.replaces() {
            true => self.replace(change),
            false => self.push(change),
        }
    }

    #[inline]
    fn replace(&mut self, change: Change) {
        if !self.may_have(change.name.as_bytes()) {
            return self.push(change);
        }
        self.replace_among(self.changes.len(), change);
    }

    /// Makes a change that replaces the changes of its name among the first ones. Returns how many of the first changes
    /// were removed.
    #[inline(never)]
    fn replace_among(&mut self, first: usize, change: Change) -> usize {
        let mut same = self.changes[..first]
            .iter()
            .enumerate()
            .filter(|(_, other)| other.is_of(&change.name))
            .map(|(at, _)| at);
        match (same.next(), same.next()) {
            (None, _) => {
                self.push(change);
                0
            }
            (Some(at), None) => {
                self.changes[at] = change;
                0
            }
            (Some(_), Some(_)) => {
                let before = self.changes.len();
                self.changes.retain(|other| !other.is_of(&change.name));
                let removed = before - self.changes.len();
                self.push(change);
                removed
            }
        }
    }

    /// Whether the original message's lines with this name are removed or replaced.
    #[inline]
    pub fn drops(&self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        self.may_have(name)
            && (self.changes.iter()).any(|change| {
                change.replaces() && change.name.as_bytes().eq_ignore_ascii_case(name)
            })
    }

    /// The names of all changes. A name can occur several times.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.changes.iter().map(|change| change.name.as_str())
    }

    /// The lines to write after the kept original ones.
    pub fn added(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        let added =
            (self.changes.iter()).filter(|change| matches!(change.kind, Kind::Set | Kind::Add));
        added.map(Change::line)
    }

    /// The lines to write before the kept original ones.
    pub fn before(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let before = (self.changes.iter()).filter(|change| change.kind == Kind::Before);
        before.map(Change::line)
    }

    /// Makes all added lines come before the original message's lines, which are all kept. Used for headers that were
    /// set before there was a message. Names in `replaced` are left out.
    pub fn into_before(mut self, replaced: impl Fn(&str) -> bool) -> Self {
        self.changes
            .retain(|change| change.kind != Kind::Remove && !replaced(&change.name));
        for change in &mut self.changes {
            change.kind = Kind::Before;
        }
        self
    }

    /// Applies the changes of another list after those of this one. The work grows with the product of their lengths.
    pub fn apply(&mut self, later: HeaderEdits) {
        if self.is_empty() {
            *self = later;
            return;
        }
        // A change that replaces others is the first one of its name in its list. So it concerns only this list, and
        // not what was added from the later one.
        let (lengths, mut own) = (self.lengths, self.changes.len());
        for change in later.changes {
            if change.replaces() && lengths & length_bit(change.name.as_bytes()) != 0 {
                own -= self.replace_among(own, change);
            } else {
                self.push(change);
            }
        }
    }

    /// Creates a list of changes that are already in order: a change that replaces others must be the first one of its
    /// name. This takes linear time, however many changes there are.
    pub fn from_ordered(changes: impl Iterator<Item = (CompactString, HeaderChange)>) -> Self {
        let mut edits = Self::new();
        edits.changes.reserve(changes.size_hint().0);
        for (name, change) in changes {
            let (kind, value) = change.into_parts();
            edits.push(Change { name, kind, value });
        }
        edits
    }

    /// The values of the added lines with this name.
    #[inline]
    pub fn values<'s, 'n>(
        &'s self,
        name: &'n [u8],
    ) -> impl Iterator<Item = &'s [u8]> + use<'s, 'n> {
        let may_have = self.may_have(name);
        let added = may_have.then(|| self.added()).into_iter().flatten();
        added
            .filter(move |(other, _)| other.as_bytes().eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The value of the first added line with this name.
    #[inline]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        // Asked for every request, and most requests have no edits.
        if !self.may_have(name.as_bytes()) {
            return None;
        }
        self.values(name.as_bytes()).next()
    }
}

/// The lengths of the names that a plugin sets, for [`HeaderEdits::lacks`].
#[derive(Debug, Clone, Copy, Default)]
pub struct NameLengths(u64);

impl NameLengths {
    pub fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let bits = names.into_iter().map(|name| length_bit(name.as_bytes()));
        Self(bits.fold(0, |all, bit| all | bit))
    }
}

#[inline]
fn length_bit(name: &[u8]) -> u64 {
    1 << (name.len() % 64)
}

/// A header name for [`HeaderEdits`]. Static names are not copied.
pub trait HeaderName {
    fn into_name(self) -> CompactString;
}

impl HeaderName for &'static str {
    fn into_name(self) -> CompactString {
        CompactString::const_new(self)
    }
}

impl HeaderName for CompactString {
    fn into_name(self) -> CompactString {
        self
    }
}

impl HeaderName for Cow<'static, str> {
    fn into_name(self) -> CompactString {
        match self {
            Cow::Borrowed(text) => CompactString::const_new(text),
            Cow::Owned(text) => text.into(),
        }
    }
}

/// Plugins' changes to the request for the upstream. Reused for all requests of a connection.
#[derive(Debug, Clone, Default)]
pub struct UpstreamEdits {
    pub headers: HeaderEdits,
    /// Method that replaces the client's.
    pub method: Option<CompactString>,
    /// Query string that replaces the client's, without `?`. If it is empty, the request has no query.
    pub query: Option<Vec<u8>>,
    /// Path that replaces the one from routing.
    pub path: Option<String>,
    /// Body that replaces the client's. It is sent with its length, whatever framing the client used.
    pub body: Option<Bytes>,
    /// Target, time limits and retries that replace the service's. Boxed because they are rare.
    pub target: Option<Box<TargetEdits>>,
    /// Whether the whole response is read into memory before the filter phases (`enable_buffering`).
    pub buffer_response: bool,
}

/// Changes to where a request goes. A field that is `None` leaves the service's value.
#[derive(Debug, Clone, Default)]
pub struct TargetEdits {
    /// Host and port of the upstream server (`kong.service.set_target`).
    pub address: Option<(CompactString, u16)>,
    /// Name of an upstream entity whose targets are used (`kong.service.set_upstream`).
    pub upstream: Option<CompactString>,
    /// Whether the connection to the upstream uses TLS (`kong.service.request.set_scheme`).
    pub scheme: Option<Scheme>,
    /// Whether the certificate of the upstream is verified (`kong.service.set_tls_verify`).
    pub tls_verify: Option<bool>,
    /// Maximum chain depth of that certificate (`kong.service.set_tls_verify_depth`).
    pub tls_verify_depth: Option<u8>,
    pub retries: Option<u16>,
    pub connect_timeout: Option<Duration>,
    pub write_timeout: Option<Duration>,
    pub read_timeout: Option<Duration>,
}

impl TargetEdits {
    /// Leads the request to this server. `Host` is then `host` without the port, also on routes that preserve it.
    /// A service whose own host is an address cannot be led to a name: such a request gets status 500, as in Kong.
    pub fn set_address(&mut self, host: impl Into<CompactString>, port: u16) {
        self.address = Some((host.into(), port));
        self.upstream = None;
    }

    /// Leads the request to the targets of an upstream entity. The plugin must know that it exists
    /// ([`crate::Configured::has_upstream`]), and the service's own host must be a name. Otherwise the request gets
    /// status 500.
    pub fn set_upstream(&mut self, name: impl Into<CompactString>) {
        self.upstream = Some(name.into());
        self.address = None;
    }
}

impl UpstreamEdits {
    /// Percent-encodes what would end the request line: spaces and control characters in path, query and method come
    /// from a client's data that a plugin has inserted.
    pub fn escape_request_line(&mut self) {
        if let Some(path) = &mut self.path
            && let Some(escaped) = escape(path.as_bytes(), ends_request_line)
        {
            *path = String::from_utf8_lossy(&escaped).into_owned();
        }
        if let Some(query) = &mut self.query
            && let Some(escaped) = escape(query, ends_request_line)
        {
            *query = escaped;
        }
        if let Some(method) = &self.method
            && (method.is_empty()
                || !method
                    .bytes()
                    .all(|byte| byte.is_ascii_alphabetic() || byte == b'-'))
        {
            self.method = None;
        }
    }

    pub fn target_mut(&mut self) -> &mut TargetEdits {
        self.target.get_or_insert_default()
    }

    /// Removes all changes but keeps the memory of the header list.
    pub fn clear(&mut self) {
        let Self {
            headers,
            method,
            query,
            path,
            body,
            target,
            buffer_response,
        } = self;
        headers.clear();
        *method = None;
        *query = None;
        *path = None;
        *body = None;
        *target = None;
        *buffer_response = false;
    }
}

fn ends_request_line(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(edits: &HeaderEdits) -> Vec<(&str, &[u8])> {
        edits.added().collect()
    }

    #[test]
    fn a_later_change_of_a_name_replaces_the_earlier_ones() {
        let mut edits = HeaderEdits::new();
        edits.add("X-A", "1");
        edits.add("x-a", "2");
        edits.remove("X-A");
        assert!(edits.drops("x-A"));
        assert!(lines(&edits).is_empty());
        edits.set("X-A", "3");
        assert_eq!(lines(&edits), [("X-A", &b"3"[..])]);
    }

    #[test]
    fn a_list_lacks_names_of_other_lengths() {
        let mut edits = HeaderEdits::new();
        let names = NameLengths::of(["X-A", "X-Abc"]);
        edits.set("X-Ab", "1");
        assert!(edits.lacks(names));
        edits.set_new("X-Abc", HeaderValue::from_static("2"));
        assert!(!edits.lacks(names));
        edits.set("x-abc", "3");
        assert_eq!(lines(&edits), [("X-Ab", &b"1"[..]), ("x-abc", b"3")]);
    }

    #[test]
    fn an_added_line_leaves_the_others() {
        let mut edits = HeaderEdits::new();
        edits.add("X-A", "1");
        assert!(!edits.drops("X-A"));
        assert_eq!(edits.value("x-a"), Some(&b"1"[..]));
    }

    #[test]
    fn later_lists_apply_as_if_each_change_was_made_alone() {
        let lists: Vec<HeaderEdits> = (0..64_u32)
            .map(|number| {
                let mut edits = HeaderEdits::new();
                for at in 0..3 {
                    let name = ["X-A", "x-b"][(number >> (2 * at) & 1) as usize];
                    match (number >> (2 * at + 1) & 1, at) {
                        (0, 1) => edits.remove(name),
                        (0, _) => edits.set(name, at.to_string()),
                        (_, 2) => edits.make(name, HeaderChange::Before("b".into())),
                        _ => edits.add(name, at.to_string()),
                    }
                }
                edits
            })
            .collect();
        for one in &lists {
            for two in &lists {
                let mut applied = one.clone();
                applied.apply(two.clone());
                let mut expected = one.clone();
                for change in &two.changes {
                    match change.replaces() {
                        true => expected.replace(change.clone()),
                        false => expected.push(change.clone()),
                    }
                }
                assert_eq!(applied.changes, expected.changes, "{one:?} {two:?}");
            }
        }
    }

    #[test]
    fn a_long_list_applies_to_a_short_one_in_linear_time() {
        testkit::cost::assert_linear(
            2000,
            |size| {
                let lines = (0..size).map(|number| {
                    let name = compact_str::format_compact!("x-{number:08}");
                    (name, HeaderChange::Set("v".into()))
                });
                HeaderEdits::from_ordered(lines)
            },
            |later| {
                let mut edits = HeaderEdits::new();
                edits.set("x-00000001", "early");
                edits.add("x-00000002", "early");
                edits.apply(later);
                std::hint::black_box(edits);
            },
        );
    }

    #[test]
    fn what_would_end_the_request_line_is_escaped() {
        let mut edits = UpstreamEdits {
            path: Some("/a b\r\nX: é\u{7f}".to_owned()),
            query: Some(b"a=%20b\t\xe4".to_vec()),
            method: Some("GET /".into()),
            ..UpstreamEdits::default()
        };
        edits.escape_request_line();
        assert_eq!(edits.path.as_deref(), Some("/a%20b%0D%0AX:%20é%7F"));
        assert_eq!(edits.query.as_deref(), Some(&b"a=%20b%09\xe4"[..]));
        assert_eq!(edits.method, None);
    }

    #[test]
    fn control_characters_in_values_are_escaped() {
        let value = "a\r\nX-Evil: 1\0\t\u{1f}\u{7f}\u{e9}";
        let escaped = "a%0D%0AX-Evil: 1%00\t%1F%7F\u{e9}".as_bytes();
        assert_eq!(HeaderValue::from_text(value).as_bytes(), escaped);
        assert_eq!(
            HeaderValue::from_untrusted(value.as_bytes()).as_bytes(),
            escaped
        );
    }

    #[test]
    fn an_id_is_kept_inline_in_its_usual_form() {
        let value = HeaderValue::from(Uuid::nil());
        assert_eq!(value.as_bytes(), b"00000000-0000-0000-0000-000000000000");
    }
}
