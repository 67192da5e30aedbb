//! Values of headers.

use bytes::Bytes;
use compact_str::CompactString;
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

/// What can be the value of a header line.
pub trait LineValue {
    /// Passes the value on as it is sent.
    fn with_bytes(self, write: impl FnOnce(&[u8]));
}

impl LineValue for HeaderValue {
    #[inline]
    fn with_bytes(self, write: impl FnOnce(&[u8])) {
        write(self.as_bytes());
    }
}

impl LineValue for &HeaderValue {
    #[inline]
    fn with_bytes(self, write: impl FnOnce(&[u8])) {
        write(self.as_bytes());
    }
}

/// Control characters are escaped as by [`HeaderValue::from_text`].
impl LineValue for &str {
    #[inline]
    fn with_bytes(self, write: impl FnOnce(&[u8])) {
        match escape_controls(self.as_bytes()) {
            Some(escaped) => write(&escaped),
            None => write(self.as_bytes()),
        }
    }
}

impl LineValue for String {
    #[inline]
    fn with_bytes(self, write: impl FnOnce(&[u8])) {
        self.as_str().with_bytes(write);
    }
}

impl LineValue for Uuid {
    #[inline]
    fn with_bytes(self, write: impl FnOnce(&[u8])) {
        write(&hyphenated(self));
    }
}

impl LineValue for u64 {
    #[inline]
    fn with_bytes(self, write: impl FnOnce(&[u8])) {
        write(itoa::Buffer::new().format(self).as_bytes());
    }
}

/// Returns an id in its usual form.
fn hyphenated(id: Uuid) -> [u8; 36] {
    const DIGITS: [[u8; 2]; 256] = {
        let hex = b"0123456789abcdef";
        let mut pairs = [[0; 2]; 256];
        let mut byte = 0;
        while byte < 256 {
            pairs[byte] = [hex[byte >> 4], hex[byte & 15]];
            byte += 1;
        }
        pairs
    };
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (number, byte) in id.as_bytes().iter().enumerate() {
        at += usize::from(matches!(number, 4 | 6 | 8 | 10));
        text[at..at + 2].copy_from_slice(&DIGITS[usize::from(*byte)]);
        at += 2;
    }
    text
}

impl From<Uuid> for HeaderValue {
    fn from(id: Uuid) -> Self {
        Self::Id(hyphenated(id))
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
pub(super) fn escape(value: &[u8], is_escaped: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let id = Uuid::from_u128(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        assert_eq!(HeaderValue::from(id).as_bytes(), id.to_string().as_bytes());
    }
}
