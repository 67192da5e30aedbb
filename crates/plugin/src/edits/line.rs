//! Header lines that are the same for all requests.

use super::{Change, HeaderValue, Kind, LINE_END, SEPARATOR};
use net::http1::KnownHeader;

/// A header line of a configuration, ready to be sent.
#[derive(Debug, Clone)]
pub struct HeaderLine {
    pub(super) text: Box<[u8]>,
    name_len: u32,
    known: KnownHeader,
}

impl HeaderLine {
    pub fn new(name: impl AsRef<str>, value: &HeaderValue) -> Self {
        let name = name.as_ref().as_bytes();
        Self {
            text: [name, SEPARATOR, value.as_bytes(), LINE_END]
                .concat()
                .into(),
            // A configuration has no names of gigabytes.
            name_len: name.len() as u32,
            known: KnownHeader::classify(name),
        }
    }

    pub fn name(&self) -> &[u8] {
        &self.text[..self.name_len as usize]
    }

    #[inline]
    pub(super) fn change(&self, kind: Kind) -> Change {
        Change {
            start: 0,
            end: 0,
            name_len: self.name_len,
            kind,
            known: self.known,
        }
    }
}
