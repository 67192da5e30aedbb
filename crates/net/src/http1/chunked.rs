//! The chunked transfer coding (RFC 9112 section 7.1), parsed byte by byte so that the input can be split anywhere. The
//! framing is forwarded unchanged, so only input that every parser understands in the same way is accepted.

use memchr::memchr;

/// Maximum chunk size. It is checked after every hex digit, so that shifting the size for the next one cannot overflow.
const MAX_SIZE: u64 = (1 << 60) - 1;
/// Maximum bytes of the size and the extensions of a chunk. Extensions are legal but hardly used. The limit is enough
/// for real ones and prevents a flood of them.
const MAX_EXTENSION: u16 = 256;
/// Maximum size of all trailer names and values together.
pub(crate) const MAX_TRAILERS: u16 = 8 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed chunked body")]
pub struct BadChunk;

/// Trailers that a recipient could merge into the head, where they would change the length or the destination of the
/// message (RFC 9110 section 6.5.1).
const FORBIDDEN_TRAILERS: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"host"];

/// The part that the parser expects next. The variants have the order in which they occur in a body, and the parser
/// compares them by that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum ChunkState {
    SizeStart,
    Size,
    // Extensions are `;name=value`, `;name="quoted"` or `;name` (RFC 9112 section 7.1.1). Blanks around their parts are
    // refused, because senders must not send them.
    ExtensionStart,
    ExtensionName,
    ExtensionValueStart,
    ExtensionValue,
    ExtensionQuoted,
    ExtensionEscaped,
    ExtensionEnd,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

/// Position within a chunked body.
#[derive(Debug, Clone)]
pub struct Chunked {
    state: ChunkState,
    /// Size of the chunk as read so far, or the number of data bytes that are still missing.
    size: u64,
    /// Number of bytes that count against `MAX_EXTENSION` in this chunk, or against `MAX_TRAILERS`.
    spent: u16,
    /// Length of the current trailer's name as read so far.
    name_length: u8,
    /// Has a bit for each of the `FORBIDDEN_TRAILERS` that begins with this name.
    may_be: u8,
}

impl Default for Chunked {
    fn default() -> Self {
        Self {
            state: ChunkState::SizeStart,
            size: 0,
            spent: 0,
            name_length: 0,
            may_be: 0,
        }
    }
}

impl Chunked {
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Returns how many bytes of the current chunk's data are still to come, or 0 between chunks.
    pub(super) fn left_of_chunk(&self) -> u64 {
        match self.state {
            ChunkState::Data => self.size,
            _ => 0,
        }
    }

    /// Parses `data` and passes the content of the chunks to `payload`. Returns how many bytes belong to this body.
    pub(super) fn advance(
        &mut self,
        data: &[u8],
        payload: impl FnMut(&[u8]),
    ) -> Result<usize, BadChunk> {
        self.advance_to(ChunkState::Done, data, payload)
    }

    /// Like [`Self::advance`], but stops after the last chunk, where trailers may begin.
    pub(super) fn advance_chunks(
        &mut self,
        data: &[u8],
        payload: impl FnMut(&[u8]),
    ) -> Result<usize, BadChunk> {
        self.advance_to(ChunkState::TrailerStart, data, payload)
    }

    #[inline]
    fn advance_to(
        &mut self,
        end: ChunkState,
        data: &[u8],
        mut payload: impl FnMut(&[u8]),
    ) -> Result<usize, BadChunk> {
        let mut at = 0;
        while at < data.len() && self.state < end {
            if self.state == ChunkState::Data {
                let available = (data.len() - at) as u64;
                let taken = self.size.min(available) as usize;
                payload(&data[at..at + taken]);
                self.size -= taken as u64;
                at += taken;
                if self.size == 0 {
                    self.state = ChunkState::DataCr;
                }
            } else if self.state == ChunkState::TrailerValue {
                at += self.skip_trailer_value(&data[at..])?;
            } else {
                self.state = self.step(data[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    #[inline]
    fn step(&mut self, byte: u8) -> Result<ChunkState, BadChunk> {
        match (self.state, byte) {
            (ChunkState::SizeStart | ChunkState::Size, _) => self.size_byte(byte),
            (ChunkState::SizeLf, b'\n') if self.size == 0 => {
                self.spent = 0;
                Ok(ChunkState::TrailerStart)
            }
            (ChunkState::SizeLf, b'\n') => Ok(ChunkState::Data),
            (ChunkState::DataCr, b'\r') => Ok(ChunkState::DataLf),
            (ChunkState::DataLf, b'\n') => Ok(ChunkState::SizeStart),
            _ => self.unusual_step(byte),
        }
    }

    /// Handles a byte of an extension or of trailers. Refuses every other byte.
    #[cold]
    fn unusual_step(&mut self, byte: u8) -> Result<ChunkState, BadChunk> {
        match (self.state, byte) {
            (
                ChunkState::ExtensionStart
                | ChunkState::ExtensionName
                | ChunkState::ExtensionValueStart
                | ChunkState::ExtensionValue
                | ChunkState::ExtensionQuoted
                | ChunkState::ExtensionEscaped
                | ChunkState::ExtensionEnd,
                _,
            ) => self.extension_byte(byte),
            (ChunkState::TrailerStart, b'\r') => Ok(ChunkState::EndLf),
            (ChunkState::TrailerName, b':') if self.is_forbidden() => Err(BadChunk),
            (ChunkState::TrailerName, b':') => Ok(ChunkState::TrailerValue),
            (ChunkState::TrailerStart | ChunkState::TrailerName, _) if is_token_byte(byte) => {
                self.spend(MAX_TRAILERS)?;
                self.note_name_byte(byte);
                Ok(ChunkState::TrailerName)
            }
            (ChunkState::TrailerLf, b'\n') => Ok(ChunkState::TrailerStart),
            (ChunkState::EndLf, b'\n') => Ok(ChunkState::Done),
            _ => Err(BadChunk),
        }
    }

    #[inline]
    fn size_byte(&mut self, byte: u8) -> Result<ChunkState, BadChunk> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\r' if self.state == ChunkState::Size => return Ok(ChunkState::SizeLf),
            b';' if self.state == ChunkState::Size => return Ok(ChunkState::ExtensionStart),
            _ => return Err(BadChunk),
        };
        if self.state == ChunkState::SizeStart {
            self.size = 0;
            self.spent = 0;
        }
        self.size = self.size << 4 | u64::from(digit);
        // Leading zeros make a size longer but not larger, so `MAX_SIZE` does not limit them. Therefore all digits
        // count against the limit of the extensions.
        self.spend(MAX_EXTENSION)?;
        if self.size > MAX_SIZE {
            return Err(BadChunk);
        }
        Ok(ChunkState::Size)
    }

    fn extension_byte(&mut self, byte: u8) -> Result<ChunkState, BadChunk> {
        self.spend(MAX_EXTENSION)?;
        match (self.state, byte) {
            (ChunkState::ExtensionStart | ChunkState::ExtensionName, _) if is_token_byte(byte) => {
                Ok(ChunkState::ExtensionName)
            }
            (ChunkState::ExtensionName, b'=') => Ok(ChunkState::ExtensionValueStart),
            (ChunkState::ExtensionValueStart, b'"') => Ok(ChunkState::ExtensionQuoted),
            (ChunkState::ExtensionValueStart | ChunkState::ExtensionValue, _)
                if is_token_byte(byte) =>
            {
                Ok(ChunkState::ExtensionValue)
            }
            (ChunkState::ExtensionQuoted, b'"') => Ok(ChunkState::ExtensionEnd),
            (ChunkState::ExtensionQuoted, b'\\') => Ok(ChunkState::ExtensionEscaped),
            (ChunkState::ExtensionQuoted | ChunkState::ExtensionEscaped, _)
                if is_value_byte(byte) =>
            {
                Ok(ChunkState::ExtensionQuoted)
            }
            (
                ChunkState::ExtensionName | ChunkState::ExtensionValue | ChunkState::ExtensionEnd,
                b';',
            ) => Ok(ChunkState::ExtensionStart),
            (
                ChunkState::ExtensionName | ChunkState::ExtensionValue | ChunkState::ExtensionEnd,
                b'\r',
            ) => Ok(ChunkState::SizeLf),
            _ => Err(BadChunk),
        }
    }

    fn note_name_byte(&mut self, byte: u8) {
        if self.state == ChunkState::TrailerStart {
            self.name_length = 0;
            self.may_be = (1 << FORBIDDEN_TRAILERS.len()) - 1;
        }
        let (at, byte) = (usize::from(self.name_length), byte.to_ascii_lowercase());
        for (bit, name) in FORBIDDEN_TRAILERS.iter().enumerate() {
            if name.get(at) != Some(&byte) {
                self.may_be &= !(1 << bit);
            }
        }
        self.name_length = self.name_length.saturating_add(1);
    }

    fn is_forbidden(&self) -> bool {
        let length = usize::from(self.name_length);
        let names = FORBIDDEN_TRAILERS.iter().enumerate();
        names
            .filter(|(bit, _)| self.may_be & (1 << bit) != 0)
            .any(|(_, name)| name.len() == length)
    }

    fn skip_trailer_value(&mut self, data: &[u8]) -> Result<usize, BadChunk> {
        let end = memchr(b'\r', data);
        let value = &data[..end.unwrap_or(data.len())];
        if !value.iter().copied().all(is_value_byte) {
            return Err(BadChunk);
        }
        self.spent = u16::try_from(value.len())
            .ok()
            .and_then(|len| self.spent.checked_add(len))
            .filter(|spent| *spent <= MAX_TRAILERS)
            .ok_or(BadChunk)?;
        if end.is_some() {
            self.state = ChunkState::TrailerLf;
        }
        Ok(value.len() + usize::from(end.is_some()))
    }

    fn spend(&mut self, limit: u16) -> Result<(), BadChunk> {
        self.spent += 1;
        if self.spent > limit {
            Err(BadChunk)
        } else {
            Ok(())
        }
    }
}

/// Whether a header value may contain the byte: no control character except tab.
fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Whether the byte may be part of a token (RFC 9110 section 5.6.2).
pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
