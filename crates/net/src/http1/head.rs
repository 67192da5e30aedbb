//! Stores a head: its bytes in one buffer, and its header lines as offsets into this buffer. Each thread has a free
//! list of such stores. A new head takes one from the list, and a dropped head returns it. Thus a request usually
//! allocates nothing, and an idle connection owns no buffer.

use super::field::{Field, KnownHeader, is_same_name};
use super::request::{Facts, HostName};
use super::scan::{self, BadLine};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Range;

/// Maximum number of heads kept per thread for reuse: about as many as a busy worker has in flight.
const KEPT: usize = 256;
/// Maximum size of a buffer to keep. Without this limit, the memory of one burst of large heads would never be freed.
const KEPT_BYTES: usize = 4 * 1024;
/// Maximum number of header lines of a head to keep.
const KEPT_FIELDS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct HeadBuffer {
    pub(super) bytes: Vec<u8>,
    pub(super) fields: Vec<Field>,
    /// A set of the lengths (modulo 64) of the names. Most names that plugins look for are absent, and most of these are
    /// found here.
    lengths: u64,
    /// Used by request heads only.
    pub(super) request: Facts,
    /// The last valid `Host` that was short enough to keep, and the result of its check. It stays when the store is
    /// cleared for the next head. Most requests of a thread are for few hosts, and to compare a host costs a tenth of
    /// checking it.
    pub(super) valid_host: (Vec<u8>, HostName),
}

thread_local! {
    // The boxes themselves are reused, so that a head is one pointer wide wherever it moves.
    #[expect(clippy::vec_box)]
    static STORES: RefCell<Vec<Box<HeadBuffer>>> = const { RefCell::new(Vec::new()) };
}

/// A [`HeadBuffer`] from the free list of the thread. It returns to the list on drop.
#[derive(Debug)]
pub(super) struct Head(Option<Box<HeadBuffer>>);

impl Head {
    pub(super) fn new() -> Self {
        let reused = STORES.with_borrow_mut(Vec::pop);
        Self(Some(reused.unwrap_or_default()))
    }

    /// Reads the header lines of the head in `data`, which begin at `at`, and copies the whole head. Returns the length
    /// of the head, or `None` if it is incomplete.
    #[inline]
    pub(super) fn read(
        &mut self,
        data: &[u8],
        at: usize,
        longest: usize,
        most: usize,
    ) -> Result<Option<usize>, BadLine> {
        let store = self.store_mut();
        let end = scan::fields(data, at, longest, most, &mut store.fields)?;
        if let Some(end) = end {
            store.bytes.extend_from_slice(&data[..end]);
            let lengths = store.fields.iter().map(|field| length_bit(field.name_len));
            store.lengths = lengths.fold(0, |all, bit| all | bit);
        }
        Ok(end)
    }

    /// Marks the header lines whose names `Connection` lists. The names are sorted, so that many names and lines do not
    /// cost quadratic time.
    #[cold]
    pub(super) fn mark_hops(&mut self) {
        let HeadBuffer { bytes, fields, .. } = self.store_mut();
        let lines = fields
            .iter()
            .filter(|field| field.known == KnownHeader::Connection);
        let values = lines.map(|field| field.value_of(bytes));
        let mut named: Vec<&[u8]> = values
            .flat_map(|value| value.split(|&byte| byte == b','))
            .map(<[u8]>::trim_ascii)
            .collect();
        named.sort_unstable_by(|one, other| compare_names(one, other));
        for field in fields {
            let start = field.name_start as usize;
            let name = &bytes[start..start + usize::from(field.name_len)];
            let found = named.binary_search_by(|other| compare_names(other, name));
            field.hop |= found.is_ok();
        }
    }

    /// Marks all `Content-Type` lines but the first one as being for this hop only. Otherwise the gateway and the next
    /// server could each use another line (RFC 9110 section 8.3).
    #[cold]
    pub(super) fn end_later_types(&mut self) {
        let fields = self.store_mut().fields.iter_mut();
        let types = fields.filter(|field| field.known == KnownHeader::ContentType);
        types.skip(1).for_each(|field| field.hop = true);
    }

    #[inline]
    pub(super) fn store(&self) -> &HeadBuffer {
        self.0.as_deref().expect("taken only when dropped")
    }

    #[inline]
    pub(super) fn store_mut(&mut self) -> &mut HeadBuffer {
        self.0.as_deref_mut().expect("taken only when dropped")
    }

    #[inline]
    pub(super) fn slice(&self, start: u32, len: usize) -> &[u8] {
        &self.store().bytes[start as usize..start as usize + len]
    }

    #[inline]
    pub(super) fn name(&self, field: &Field) -> &[u8] {
        self.slice(field.name_start, field.name_len.into())
    }

    /// Whether a header line has at most one space before its value, and no blanks after it.
    pub(super) fn is_plain(&self, field: &Field) -> bool {
        let bytes = &self.store().bytes;
        let colon = field.name_start as usize + usize::from(field.name_len);
        let start = field.value_start as usize;
        let blanks = &bytes[colon + 1..start];
        matches!(blanks, b"" | b" ") && bytes[start + field.value_len as usize] == b'\r'
    }

    #[inline]
    pub(super) fn value(&self, field: &Field) -> &[u8] {
        field.value_of(&self.store().bytes)
    }

    #[inline]
    pub(super) fn fields(&self) -> impl Iterator<Item = (KnownHeader, &[u8], &[u8])> {
        let store = self.store();
        store
            .fields
            .iter()
            .map(|field| (field.known, self.name(field), self.value(field)))
    }

    /// Whether there is a header that is not classified, whose name has one of these lengths (modulo 64) and is meant.
    #[inline]
    pub(super) fn has_other(&self, lengths: u64, is_meant: impl Fn(&[u8]) -> bool) -> bool {
        let store = self.store();
        store.lengths & lengths != 0
            && store.fields.iter().any(|field| {
                field.known == KnownHeader::Other
                    && lengths & length_bit(field.name_len) != 0
                    && is_meant(self.name(field))
            })
    }

    /// Returns all bytes of the head, and the positions of each header's name and value in them.
    #[inline]
    pub(super) fn located(
        &self,
    ) -> (
        &[u8],
        impl Iterator<Item = (Range<usize>, Range<usize>)> + Clone,
    ) {
        let HeadBuffer { bytes, fields, .. } = self.store();
        let places = fields.iter().map(|field| {
            let (name, value) = (field.name_start as usize, field.value_start as usize);
            (
                name..name + usize::from(field.name_len),
                value..value + field.value_len as usize,
            )
        });
        (bytes, places)
    }

    /// Returns whole lines with their line ends, for copying them unchanged.
    #[inline]
    pub(super) fn lines(&self) -> impl Iterator<Item = (KnownHeader, &[u8], &[u8])> {
        let store = self.store();
        let ends = store.fields.iter().skip(1).map(|field| field.name_start);
        let last = store.bytes.len() as u32 - 2;
        store
            .fields
            .iter()
            .zip(ends.chain(std::iter::once(last)))
            .map(|(field, end)| {
                let line = &store.bytes[field.name_start as usize..end as usize];
                (field.known, self.name(field), line)
            })
    }

    /// Copies the lines that `keep` selects. Adjacent lines are copied in one piece, so that small changes to a head
    /// cost little.
    #[inline]
    pub(super) fn copy_lines(&self, out: &mut Vec<u8>, mut keep: impl FnMut(Line<'_>) -> bool) {
        let store = self.store();
        let mut run: Option<u32> = None;
        for field in &store.fields {
            if keep(Line { head: self, field }) {
                run.get_or_insert(field.name_start);
            } else if let Some(start) = run.take() {
                out.extend_from_slice(&store.bytes[start as usize..field.name_start as usize]);
            }
        }
        if let Some(start) = run {
            out.extend_from_slice(&store.bytes[start as usize..store.bytes.len() - 2]);
        }
    }

    /// Returns the values of a header among the first `lines` header lines.
    #[inline]
    pub(super) fn values<'a, 'n>(
        &'a self,
        lines: usize,
        name: &'n [u8],
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + use<'a, 'n> {
        let HeadBuffer {
            fields, lengths, ..
        } = self.store();
        let looked_at = match lengths & length_bit(name.len() as u16) {
            0 => 0,
            _ => lines,
        };
        fields
            .iter()
            .take(looked_at)
            .filter(move |field| {
                usize::from(field.name_len) == name.len() && is_same_name(self.name(field), name)
            })
            .map(|field| self.value(field))
    }

    pub(super) fn known(&self, known: KnownHeader) -> impl Iterator<Item = &[u8]> {
        let fields = self.store().fields.iter();
        fields
            .filter(move |field| field.known == known)
            .map(|field| self.value(field))
    }
}

/// A header line of a head. Its name is read from the buffer only when needed, which is rare.
#[derive(Clone, Copy)]
pub struct Line<'h> {
    head: &'h Head,
    field: &'h Field,
}

impl<'h> Line<'h> {
    /// Returns the class of the header's name.
    #[inline]
    pub fn known(self) -> KnownHeader {
        self.field.known
    }

    #[inline]
    pub fn name(self) -> &'h [u8] {
        self.head.name(self.field)
    }

    #[inline]
    pub fn value(self) -> &'h [u8] {
        self.head.value(self.field)
    }

    /// Whether the header is for this hop only: `Connection` names it, or it is a second `Content-Type` that differs.
    #[inline]
    pub fn is_hop(self) -> bool {
        self.field.hop
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        let Some(mut store) = self.0.take() else {
            return;
        };
        if store.bytes.capacity() > KEPT_BYTES || store.fields.capacity() > KEPT_FIELDS {
            return;
        }
        store.bytes.clear();
        store.fields.clear();
        // If the thread is exiting, its free list may already have been dropped.
        let _ = STORES.try_with(|stores| {
            let mut stores = stores.borrow_mut();
            if stores.len() < KEPT {
                stores.push(store);
            }
        });
    }
}

#[inline]
fn length_bit(length: u16) -> u64 {
    1 << (length % 64)
}

#[cfg(test)]
thread_local! {
    /// Number of name comparisons on this thread.
    pub(super) static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Orders names for [`Head::mark_hops`], ignoring case. Any total order would do.
fn compare_names(one: &[u8], other: &[u8]) -> Ordering {
    #[cfg(test)]
    COMPARED.set(COMPARED.get() + 1);
    let by_length = one.len().cmp(&other.len());
    let lower = u8::to_ascii_lowercase;
    by_length.then_with(|| one.iter().map(lower).cmp(other.iter().map(lower)))
}

/// Parses a number: digits only, and few enough that sums cannot overflow.
pub(super) fn parse_number(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        value
            .iter()
            .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')),
    )
}

/// Combined options of all `Connection` lines of a head.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
    /// Whether `Connection` also names headers. Such headers are for this hop only.
    pub(super) names: bool,
    /// Whether a header asks for the timings of the request. It is not an option of the connection, but found by the
    /// same pass.
    pub(super) asks_for_timings: bool,
}

impl Options {
    pub(super) fn add(&mut self, value: &[u8]) {
        for item in value.split(|&byte| byte == b',') {
            let item = item.trim_ascii();
            if item.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if item.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if item.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else if !item.is_empty() {
                self.names = true;
            }
        }
    }
}
