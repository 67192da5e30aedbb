//! Changes to a message that stays in the buffer it was read into: what to leave out of its headers and what to add. A small
//! reusable list, because a request has a handful of changes at most: a scan beats a map, and nothing is allocated for
//! values of up to 24 bytes and for ids.

use bytes::Bytes;
use compact_str::CompactString;
use std::borrow::Cow;
use uuid::Uuid;

/// The value of a header to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderValue {
    Text(CompactString),
    /// An id in its usual form, kept inline: at 36 bytes it would be a heap string.
    Id([u8; 36]),
    Bytes(Bytes),
}

impl HeaderValue {
    pub const fn from_static(text: &'static str) -> Self {
        Self::Text(CompactString::const_new(text))
    }

    /// Line breaks and NUL are percent-encoded, as the web server under Kong does, so that data cannot add headers.
    pub fn from_text(text: &str) -> Self {
        match escape_breaks(text.as_bytes()) {
            Some(escaped) => Self::Bytes(escaped.into()),
            None => Self::Text(text.into()),
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

fn escape_breaks(value: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr3(b'\r', b'\n', 0, value)?;
    let mut escaped = Vec::with_capacity(value.len() + 8);
    for &byte in value {
        match byte {
            b'\r' => escaped.extend_from_slice(b"%0D"),
            b'\n' => escaped.extend_from_slice(b"%0A"),
            0 => escaped.extend_from_slice(b"%00"),
            _ => escaped.push(byte),
        }
    }
    Some(escaped)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderChange {
    /// Lines of this name are left out.
    Remove,
    /// Lines of this name are left out and this one is written.
    Set(HeaderValue),
    /// This line is written too.
    Add(HeaderValue),
}

/// Changes to the headers of one message. Names are compared without case; `_` and `-` differ.
#[derive(Debug, Clone, Default)]
pub struct HeaderEdits {
    changes: Vec<(CompactString, HeaderChange)>,
    /// A bit for each length that a changed name has: most names that are asked for differ from all changed ones there.
    lengths: u64,
}

impl HeaderEdits {
    pub const fn new() -> Self {
        Self {
            changes: Vec::new(),
            lengths: 0,
        }
    }

    /// Empties the list and keeps its memory, for the next message of a connection.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.lengths = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// False for names that are not in the list; true for those that may be.
    #[inline]
    fn may_have(&self, name: &[u8]) -> bool {
        self.lengths & length_bit(name) != 0
    }

    fn push(&mut self, name: CompactString, change: HeaderChange) {
        self.lengths |= length_bit(name.as_bytes());
        self.changes.push((name, change));
    }

    /// Replaces every line of this name.
    pub fn set(&mut self, name: impl HeaderName, value: impl Into<HeaderValue>) {
        self.replace(name, HeaderChange::Set(value.into()));
    }

    pub fn add(&mut self, name: impl HeaderName, value: impl Into<HeaderValue>) {
        self.push(name.into_name(), HeaderChange::Add(value.into()));
    }

    pub fn remove(&mut self, name: impl HeaderName) {
        self.replace(name, HeaderChange::Remove);
    }

    fn replace(&mut self, name: impl HeaderName, change: HeaderChange) {
        let name = name.into_name();
        if !self.may_have(name.as_bytes()) {
            return self.push(name, change);
        }
        let mut same = self
            .changes
            .iter()
            .enumerate()
            .filter(|(_, (other, _))| other.eq_ignore_ascii_case(&name))
            .map(|(at, _)| at);
        match (same.next(), same.next()) {
            (None, _) => self.changes.push((name, change)),
            (Some(at), None) => self.changes[at] = (name, change),
            (Some(_), Some(_)) => {
                self.changes
                    .retain(|(other, _)| !other.eq_ignore_ascii_case(&name));
                self.changes.push((name, change));
            }
        }
    }

    /// Whether lines of this name in the original message are to be left out.
    #[inline]
    pub fn drops(&self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        self.may_have(name)
            && self.changes.iter().any(|(other, change)| {
                let other = other.as_bytes();
                !matches!(change, HeaderChange::Add(_)) && other.eq_ignore_ascii_case(name)
            })
    }

    /// The lines to write in addition to those kept.
    pub fn added(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.changes
            .iter()
            .filter_map(|(name, change)| match change {
                HeaderChange::Remove => None,
                HeaderChange::Set(value) | HeaderChange::Add(value) => {
                    Some((name.as_str(), value.as_bytes()))
                }
            })
    }

    /// The added lines of this name.
    #[inline]
    pub fn values<'s, 'n>(&'s self, name: &'n str) -> impl Iterator<Item = &'s [u8]> + use<'s, 'n> {
        let may_have = self.may_have(name.as_bytes());
        let added = may_have.then(|| self.added()).into_iter().flatten();
        added
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The first added line of this name.
    #[inline]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.values(name).next()
    }
}

#[inline]
fn length_bit(name: &[u8]) -> u64 {
    1 << (name.len() % 64)
}

/// A name for [`HeaderEdits`]: static ones cost no copy.
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

/// What plugins changed of the request that goes to the upstream. Reused from one request of a connection to the next.
#[derive(Debug, Clone, Default)]
pub struct UpstreamEdits {
    pub headers: HeaderEdits,
    /// The query string in place of the client's, without `?`; empty: no query at all.
    pub query: Option<String>,
    /// The path in place of the one that routing made.
    pub path: Option<String>,
    /// The body in place of the client's: its length replaces the client's framing.
    pub body: Option<Bytes>,
}

impl UpstreamEdits {
    /// Forgets everything and keeps the memory of the header list.
    pub fn clear(&mut self) {
        self.headers.clear();
        self.query = None;
        self.path = None;
        self.body = None;
    }
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
    fn an_added_line_leaves_the_others() {
        let mut edits = HeaderEdits::new();
        edits.add("X-A", "1");
        assert!(!edits.drops("X-A"));
        assert_eq!(edits.value("x-a"), Some(&b"1"[..]));
    }

    #[test]
    fn line_breaks_in_values_are_escaped() {
        let value = HeaderValue::from_text("a\r\nX-Evil: 1\0");
        assert_eq!(value.as_bytes(), b"a%0D%0AX-Evil: 1%00");
    }

    #[test]
    fn an_id_is_kept_inline_in_its_usual_form() {
        let value = HeaderValue::from(Uuid::nil());
        assert_eq!(value.as_bytes(), b"00000000-0000-0000-0000-000000000000");
    }
}
