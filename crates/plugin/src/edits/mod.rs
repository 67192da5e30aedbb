//! Header changes (removed and added lines) for a message that stays in the buffer it was read into. A request has only
//! a few, so that a scan is faster than a map.
//!
//! The added lines are kept as they will be sent, in one buffer. So a change allocates nothing, several lines are sent
//! with one copy, and the list is emptied without a look at its changes. Between a request and its response other
//! requests run, and what the response looks at has left the processor's caches: few bytes count more than few
//! instructions.

mod line;
mod upstream;
mod value;

#[cfg(test)]
mod tests;

use compact_str::CompactString;
pub use line::HeaderLine;
use net::http1::{KnownHeader, is_same_name};
use std::ops::Range;
pub use upstream::{TargetEdits, UpstreamEdits};
pub use value::{HeaderValue, LineValue};

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

/// A change of a list. Its text is in the buffer of the list.
#[derive(Debug, Clone, Copy)]
struct Change {
    start: u32,
    /// The end of the line, with its line end. The text of a removal is the name alone.
    end: u32,
    name_len: u32,
    kind: Kind,
    known: KnownHeader,
}

/// The kinds of [`HeaderChange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Remove,
    Set,
    Add,
    Before,
}

impl Kind {
    /// Whether the change replaces all lines with its name.
    #[inline]
    fn replaces(self) -> bool {
        matches!(self, Self::Remove | Self::Set)
    }

    /// Whether the line is written after the kept original ones.
    #[inline]
    fn is_added(self) -> bool {
        matches!(self, Self::Set | Self::Add)
    }
}

const SEPARATOR: &[u8] = b": ";
const LINE_END: &[u8] = b"\r\n";

/// Maximum size of all lines of a list. No peer accepts as many. More lines are left out, so that positions fit in 32
/// bits.
const MAX_TEXT: usize = 1 << 30;

impl Change {
    #[inline]
    fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    #[inline]
    fn name<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        &text[self.start as usize..][..self.name_len as usize]
    }

    #[inline]
    fn value<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        text.get(self.value_range()).unwrap_or_default()
    }

    /// The place of the value, which a removal does not have.
    #[inline]
    fn value_range(&self) -> Range<usize> {
        let start = self.start as usize + self.name_len as usize + SEPARATOR.len();
        start..(self.end as usize).saturating_sub(LINE_END.len())
    }

    #[inline]
    fn line<'t>(&self, text: &'t [u8]) -> (&'t str, &'t [u8]) {
        // Names come from texts.
        let name = std::str::from_utf8(self.name(text)).unwrap_or_default();
        (name, self.value(text))
    }
}

/// Changes to the headers of one message. Names are compared without case; `_` and `-` are different.
#[derive(Debug, Clone, Default)]
pub struct HeaderEdits {
    changes: Vec<Change>,
    /// The lines of the changes.
    text: Vec<u8>,
    /// A set of the lengths (modulo 64) of changed names. Most lookups end here, because no changed name has the same
    /// length.
    lengths: u64,
    /// A set of the changed headers that the gateway handles itself.
    known: u32,
    /// Number of bytes of the text that no longer belong to a change.
    unused: u32,
}

impl HeaderEdits {
    pub const fn new() -> Self {
        Self {
            changes: Vec::new(),
            text: Vec::new(),
            lengths: 0,
            known: 0,
            unused: 0,
        }
    }

    /// Empties the list but keeps its memory for the next message, unless it was unusually long.
    #[inline]
    pub fn clear(&mut self) {
        const KEPT: usize = 128;
        const KEPT_TEXT: usize = 8 * 1024;
        self.changes.clear();
        self.text.clear();
        if self.changes.capacity() > KEPT || self.text.capacity() > KEPT_TEXT {
            self.changes.shrink_to(KEPT);
            self.text.shrink_to(KEPT_TEXT);
        }
        (self.lengths, self.known, self.unused) = (0, 0, 0);
    }

    #[inline]
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
        self.lengths |= length_bit(change.name(&self.text));
        self.known |= known_bit(change.known);
        self.changes.push(change);
    }

    /// Appends the text of a change, which does not take effect yet. All changes share this function, because the
    /// processor's cache of instructions does not have room for one of each plugin.
    #[inline(never)]
    fn write(&mut self, name: &str, kind: Kind, value: &[u8]) -> Option<Change> {
        let start = self.text.len();
        let size = name.len() + SEPARATOR.len() + value.len() + LINE_END.len();
        if start + size > MAX_TEXT {
            return None;
        }
        self.text.reserve(size);
        self.text.extend_from_slice(name.as_bytes());
        if kind != Kind::Remove {
            self.text.extend_from_slice(SEPARATOR);
            self.text.extend_from_slice(value);
            self.text.extend_from_slice(LINE_END);
        }
        Some(Change {
            start: start as u32,
            end: self.text.len() as u32,
            name_len: name.len() as u32,
            kind,
            known: KnownHeader::classify(name.as_bytes()),
        })
    }

    /// Appends the text of a change of another list, or a line that is ready to be sent.
    fn copy(&mut self, text: &[u8], change: Change) -> Option<Change> {
        let start = self.text.len();
        if start + text.len() > MAX_TEXT {
            return None;
        }
        self.text.extend_from_slice(text);
        Some(Change {
            start: start as u32,
            end: self.text.len() as u32,
            ..change
        })
    }

    #[inline(never)]
    fn change(&mut self, name: &str, kind: Kind, value: &[u8]) {
        match self.write(name, kind, value) {
            Some(change) if kind.replaces() => self.replace(change),
            Some(change) => self.push(change),
            None => {}
        }
    }

    /// Replaces all lines with this name.
    #[inline]
    pub fn set(&mut self, name: impl AsRef<str>, value: impl LineValue) {
        value.with_bytes(|value| self.change(name.as_ref(), Kind::Set, value));
    }

    #[inline]
    pub fn add(&mut self, name: impl AsRef<str>, value: impl LineValue) {
        value.with_bytes(|value| self.change(name.as_ref(), Kind::Add, value));
    }

    #[inline]
    pub fn remove(&mut self, name: impl AsRef<str>) {
        self.change(name.as_ref(), Kind::Remove, b"");
    }

    /// Replaces all lines with the name of this one.
    #[inline]
    pub fn set_line(&mut self, line: &HeaderLine) {
        if let Some(change) = self.copy(&line.text, line.change(Kind::Set)) {
            self.replace(change);
        }
    }

    /// Replaces all lines with the name of this one. `fill` overwrites the value in the new line, whose length stays.
    #[inline]
    pub fn set_filled_line(&mut self, line: &HeaderLine, fill: impl FnOnce(&mut [u8])) {
        if let Some(change) = self.copy(&line.text, line.change(Kind::Set)) {
            fill(&mut self.text[change.value_range()]);
            self.replace(change);
        }
    }

    #[inline]
    pub fn add_line(&mut self, line: &HeaderLine) {
        if let Some(change) = self.copy(&line.text, line.change(Kind::Add)) {
            self.push(change);
        }
    }

    /// Makes one change.
    pub fn make(&mut self, name: impl AsRef<str>, change: HeaderChange) {
        let name = name.as_ref();
        match &change {
            HeaderChange::Remove => self.change(name, Kind::Remove, b""),
            HeaderChange::Set(value) => self.change(name, Kind::Set, value.as_bytes()),
            HeaderChange::Add(value) => self.change(name, Kind::Add, value.as_bytes()),
            HeaderChange::Before(value) => self.change(name, Kind::Before, value.as_bytes()),
        }
    }

    #[inline]
    fn replace(&mut self, change: Change) {
        if !self.may_have(change.name(&self.text)) {
            return self.push(change);
        }
        self.replace_among(self.changes.len(), change);
    }

    /// Makes a change that replaces the changes of its name among the first ones. Returns how many of the first changes
    /// were removed.
    #[inline(never)]
    fn replace_among(&mut self, first: usize, change: Change) -> usize {
        let Self { changes, text, .. } = self;
        let name = change.name(text);
        let is_of_name = |other: &Change| is_same_name(other.name(text), name);
        let mut same = (0..first).filter(|&at| is_of_name(&changes[at]));
        let (unused, removed) = match (same.next(), same.next()) {
            (None, _) => {
                self.push(change);
                return 0;
            }
            (Some(at), None) => {
                let former = std::mem::replace(&mut changes[at], change);
                (former.range().len(), 0)
            }
            (Some(_), Some(_)) => {
                let (before, mut unused) = (changes.len(), 0);
                changes.retain(|other| {
                    let stays = !is_of_name(other);
                    unused += if stays { 0 } else { other.range().len() };
                    stays
                });
                let removed = before - changes.len();
                self.push(change);
                (unused, removed)
            }
        };
        self.unused += unused as u32;
        if self.unused as usize > self.text.len() / 2 && self.text.len() > 4 * 1024 {
            self.compact();
        }
        removed
    }

    /// Removes the text that no longer belongs to a change. Otherwise, a plugin that sets the same header again and
    /// again would fill the memory.
    #[cold]
    fn compact(&mut self) {
        let former = std::mem::take(&mut self.text);
        self.unused = 0;
        for change in &mut self.changes {
            let start = self.text.len() as u32;
            self.text.extend_from_slice(&former[change.range()]);
            (change.start, change.end) = (start, self.text.len() as u32);
        }
    }

    /// Whether the original message's lines with this name are removed or replaced.
    #[inline]
    pub fn drops(&self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        self.may_have(name) && self.drops_certainly(name)
    }

    /// Does what [`Self::drops`] does for a name that was classified.
    #[inline]
    pub fn drops_known(&self, known: KnownHeader, name: &[u8]) -> bool {
        let may_have = match known {
            KnownHeader::Other => self.may_have(name),
            known => self.known & known_bit(known) != 0,
        };
        may_have && self.drops_certainly(name)
    }

    #[inline(never)]
    fn drops_certainly(&self, name: &[u8]) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|change| change.kind.replaces() && is_same_name(change.name(&self.text), name))
    }

    /// Whether a change may have a name of one of these lengths (modulo 64). False if certainly none has.
    #[inline]
    pub fn may_have_of(&self, lengths: u64) -> bool {
        self.lengths & lengths != 0
    }

    /// The names of all changes. A name can occur several times.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.changes.iter().map(|change| change.name(&self.text))
    }

    /// The lines to write after the kept original ones.
    pub fn added(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        let added = (self.changes.iter()).filter(|change| change.kind.is_added());
        added.map(|change| change.line(&self.text))
    }

    /// The lines to write before the kept original ones.
    pub fn before(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let before = (self.changes.iter()).filter(|change| change.kind == Kind::Before);
        before.map(|change| change.line(&self.text))
    }

    /// Appends the lines of [`Self::added`] that `keep` selects by the class of their name.
    #[inline]
    pub fn write_added(&self, keep: impl Fn(KnownHeader) -> bool, out: &mut Vec<u8>) {
        let added = (self.changes.iter()).filter(|change| change.kind.is_added());
        self.write_lines(added.filter(|change| keep(change.known)), out);
    }

    /// Appends the lines of [`Self::before`] that `keep` selects by the class of their name.
    #[inline]
    pub fn write_before(&self, keep: impl Fn(KnownHeader) -> bool, out: &mut Vec<u8>) {
        let before = (self.changes.iter()).filter(|change| change.kind == Kind::Before);
        self.write_lines(before.filter(|change| keep(change.known)), out);
    }

    /// Copies lines. Adjacent ones are copied in one piece.
    #[inline]
    fn write_lines<'s>(&'s self, lines: impl Iterator<Item = &'s Change>, out: &mut Vec<u8>) {
        let mut run = 0..0;
        for line in lines.map(Change::range) {
            if line.start != run.end {
                out.extend_from_slice(&self.text[run]);
                run = line;
            } else {
                run.end = line.end;
            }
        }
        out.extend_from_slice(&self.text[run]);
    }

    /// Makes all added lines come before the original message's lines, which are all kept. Used for headers that were
    /// set before there was a message. `drops_type` leaves out `Content-Type`.
    pub fn into_before(mut self, drops_type: bool) -> Self {
        self.changes.retain_mut(|change| {
            let is_dropped = drops_type && change.known == KnownHeader::ContentType;
            let is_line = change.kind != Kind::Remove;
            change.kind = Kind::Before;
            is_line && !is_dropped
        });
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
        for change in &later.changes {
            let Some(change) = self.copy(&later.text[change.range()], *change) else {
                continue;
            };
            if change.kind.replaces() && lengths & length_bit(change.name(&self.text)) != 0 {
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
            let written = match &change {
                HeaderChange::Remove => edits.write(&name, Kind::Remove, b""),
                HeaderChange::Set(value) => edits.write(&name, Kind::Set, value.as_bytes()),
                HeaderChange::Add(value) => edits.write(&name, Kind::Add, value.as_bytes()),
                HeaderChange::Before(value) => edits.write(&name, Kind::Before, value.as_bytes()),
            };
            if let Some(change) = written {
                edits.push(change);
            }
        }
        edits
    }

    /// The values of the added lines with this name.
    #[inline]
    pub fn values<'s, 'n>(
        &'s self,
        name: &'n [u8],
    ) -> impl Iterator<Item = &'s [u8]> + use<'s, 'n> {
        let changes = match self.may_have(name) {
            true => &self.changes[..],
            false => &[],
        };
        let is_meant = move |change: &&Change| {
            change.kind.is_added() && is_same_name(change.name(&self.text), name)
        };
        let meant = changes.iter().filter(is_meant);
        meant.map(|change| change.value(&self.text))
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

    /// The value of the first added line of a header that the gateway handles itself.
    #[inline]
    pub fn known_value(&self, known: KnownHeader) -> Option<&[u8]> {
        if self.known & known_bit(known) == 0 {
            return None;
        }
        let mut changes = self.changes.iter();
        let found = changes.find(|change| change.kind.is_added() && change.known == known);
        found.map(|change| change.value(&self.text))
    }
}

#[inline]
fn length_bit(name: &[u8]) -> u64 {
    1 << (name.len() % 64)
}

#[inline]
fn known_bit(known: KnownHeader) -> u32 {
    1 << (known as u32 % 32)
}
