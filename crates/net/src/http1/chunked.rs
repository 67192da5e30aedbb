//! The chunked transfer coding (RFC 9112 section 7.1), followed byte by byte so that it can be cut anywhere.
//! Framing is passed on as it came, so only what every reader reads the same way is accepted.

use memchr::memchr;

/// Sizes from 2^60 on are refused: one more digit would overflow.
const MAX_SIZE: u64 = (1 << 60) - 1;
/// An extension is legal and nobody uses them: enough for what exists, too little to hide a flood in.
const MAX_EXTENSION: u16 = 256;
/// All trailer lines together.
const MAX_TRAILERS: u16 = 8 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed chunked body")]
pub struct BadChunk;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    SizeStart,
    Size,
    Extension,
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

/// Where in a chunked body we are.
#[derive(Debug, Clone)]
pub struct Chunked {
    state: State,
    /// While reading a size: its value so far; in data: what is left of the chunk.
    size: u64,
    /// Bytes of extension in this chunk, or of trailers.
    spent: u16,
}

impl Default for Chunked {
    fn default() -> Self {
        Self {
            state: State::SizeStart,
            size: 0,
            spent: 0,
        }
    }
}

impl Chunked {
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Follows `data`, giving every piece of payload to `payload`; returns how many bytes belong to this body.
    pub(super) fn advance(
        &mut self,
        data: &[u8],
        mut payload: impl FnMut(&[u8]),
    ) -> Result<usize, BadChunk> {
        let mut at = 0;
        while at < data.len() && self.state != State::Done {
            if self.state == State::Data {
                let available = (data.len() - at) as u64;
                let taken = self.size.min(available) as usize;
                payload(&data[at..at + taken]);
                self.size -= taken as u64;
                at += taken;
                if self.size == 0 {
                    self.state = State::DataCr;
                }
            } else if self.state == State::TrailerValue {
                at += self.skip_trailer_value(&data[at..])?;
            } else {
                self.state = self.step(data[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    #[inline]
    fn step(&mut self, byte: u8) -> Result<State, BadChunk> {
        match (self.state, byte) {
            (State::SizeStart | State::Size, _) => self.size_byte(byte),
            (State::Extension, b'\r') => Ok(State::SizeLf),
            (State::Extension, _) if is_value_byte(byte) => {
                self.spend(MAX_EXTENSION)?;
                Ok(State::Extension)
            }
            (State::SizeLf, b'\n') if self.size == 0 => {
                self.spent = 0;
                Ok(State::TrailerStart)
            }
            (State::SizeLf, b'\n') => Ok(State::Data),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::SizeStart),
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => {
                self.spend(MAX_TRAILERS)?;
                Ok(State::TrailerName)
            }
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::EndLf, b'\n') => Ok(State::Done),
            _ => Err(BadChunk),
        }
    }

    fn size_byte(&mut self, byte: u8) -> Result<State, BadChunk> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\r' if self.state == State::Size => return Ok(State::SizeLf),
            b';' if self.state == State::Size => return Ok(State::Extension),
            _ => return Err(BadChunk),
        };
        if self.state == State::SizeStart {
            self.size = 0;
            self.spent = 0;
        }
        self.size = self.size << 4 | u64::from(digit);
        // Leading zeros make a size longer without making it larger; they count as extension does.
        self.spend(MAX_EXTENSION)?;
        if self.size > MAX_SIZE {
            return Err(BadChunk);
        }
        Ok(State::Size)
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
            self.state = State::TrailerLf;
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

/// A byte that may stand in a header value: no control character but the tab.
fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// A byte of a token (RFC 9110 section 5.6.2).
pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
