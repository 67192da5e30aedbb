//! Decodes chunked bodies for HTTP/2. The payload becomes DATA frames and the trailer section a HEADERS frame. The
//! HTTP/1.1 engine has already checked the body, but a malformed body is an error here too.

use super::text;
use crate::http1;
use http::HeaderMap;

/// Maximum size of the trailer section. Every section that the HTTP/1.1 engine accepts fits: the engine does not count
/// the colon and the line end of a line, which are three bytes next to a name of at least one byte. The last two bytes
/// are the empty line.
const MAX_TRAILERS: usize = 4 * http1::MAX_TRAILERS as usize + 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DechunkState {
    Size,
    /// The rest of the line with the chunk size.
    Extension,
    Data,
    /// CR and LF that follow the data.
    AfterData,
    Trailers,
    Done,
}

#[derive(Debug)]
pub(super) struct Dechunker {
    state: DechunkState,
    size: u64,
    digits: u8,
    trailers: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Dechunker {
    pub(super) fn new() -> Self {
        Self {
            state: DechunkState::Size,
            size: 0,
            digits: 0,
            trailers: Vec::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == DechunkState::Done
    }

    /// Returns the trailers of a complete body, or `None` if it had none.
    pub(super) fn take_trailers(&mut self) -> Option<HeaderMap> {
        let lines = std::mem::take(&mut self.trailers);
        let lines = lines.strip_suffix(b"\r\n")?;
        (!lines.is_empty()).then(|| text::trailers(lines))
    }

    /// Appends the payload in `data` to `payload`. Bytes after the end of the body are ignored.
    pub(super) fn advance(
        &mut self,
        mut data: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        while let Some((&byte, rest)) = data.split_first() {
            match self.state {
                DechunkState::Done => return Ok(()),
                DechunkState::Data => {
                    let available = data.len() as u64;
                    let taken = self.size.min(available) as usize;
                    payload.extend_from_slice(&data[..taken]);
                    self.size -= taken as u64;
                    data = &data[taken..];
                    if self.size == 0 {
                        self.state = DechunkState::AfterData;
                    }
                    continue;
                }
                DechunkState::Size => self.size_byte(byte)?,
                DechunkState::Extension => {
                    if byte == b'\n' {
                        self.state = match self.size {
                            0 => DechunkState::Trailers,
                            _ => DechunkState::Data,
                        };
                    }
                }
                DechunkState::AfterData => match byte {
                    b'\r' => {}
                    b'\n' => self.begin_size(),
                    _ => return Err(Malformed),
                },
                DechunkState::Trailers => self.trailer_byte(byte)?,
            }
            data = rest;
        }
        Ok(())
    }

    fn begin_size(&mut self) {
        self.state = DechunkState::Size;
        self.size = 0;
        self.digits = 0;
    }

    fn size_byte(&mut self, byte: u8) -> Result<(), Malformed> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ if self.digits == 0 => return Err(Malformed),
            _ => {
                self.state = DechunkState::Extension;
                return Ok(());
            }
        };
        // The shift below must not overflow.
        if self.size >> 59 != 0 {
            return Err(Malformed);
        }
        self.digits = 1;
        self.size = self.size << 4 | u64::from(digit);
        Ok(())
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<(), Malformed> {
        self.trailers.push(byte);
        if self.trailers.len() > MAX_TRAILERS {
            return Err(Malformed);
        }
        if self.trailers == b"\r\n" || self.trailers.ends_with(b"\r\n\r\n") {
            self.state = DechunkState::Done;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&[u8]]) -> Result<(String, bool, String), Malformed> {
        let mut chunks = Dechunker::new();
        let mut payload = Vec::new();
        for piece in pieces {
            chunks.advance(piece, &mut payload)?;
        }
        let done = chunks.is_done();
        let trailers = chunks.take_trailers().unwrap_or_default();
        let trailers = trailers
            .iter()
            .map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()))
            .collect();
        Ok((String::from_utf8(payload).unwrap(), done, trailers))
    }

    #[test]
    fn chunks_may_be_cut_anywhere() {
        let body = b"5;x=y\r\nhello\r\n00A\r\n, world...\r\n0\r\ngrpc-status: 0\r\nX-B: c\r\n\r\n";
        let trailers = "grpc-status: 0\nx-b: c\n".to_owned();
        let expected = Ok(("hello, world...".to_owned(), true, trailers));
        for at in 0..body.len() {
            let (one, two) = body.split_at(at);
            assert_eq!(decode(&[one, two]), expected, "cut at {at}");
        }
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(decode(&bytes), expected);
    }

    #[test]
    fn a_body_may_be_empty_and_is_not_done_before_its_end() {
        assert_eq!(
            decode(&[b"0\r\n\r\n"]),
            Ok((String::new(), true, String::new()))
        );
        assert_eq!(
            decode(&[b"2\r\nab\r\n0\r\n"]),
            Ok(("ab".to_owned(), false, String::new()))
        );
    }

    #[test]
    fn all_trailers_that_the_engine_accepts_fit() {
        let count = usize::from(http1::MAX_TRAILERS);
        let lines = "a:\r\n";
        let body = |count: usize| format!("0\r\n{}\r\n", lines.repeat(count)).into_bytes();
        let accepts = |body: &[u8]| {
            http1::Body::new(http1::Framing::Chunked)
                .measure(body)
                .is_ok()
        };
        assert!(accepts(&body(count)) && !accepts(&body(count + 1)));
        let (_, done, trailers) = decode(&[&body(count)]).unwrap();
        assert!(done);
        assert_eq!(trailers.lines().count(), count);
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for wrong in [&b"\r\n"[..], b"x", b"1\r\nab", b"fffffffffffffffff\r\n"] {
            assert_eq!(decode(&[wrong]), Err(Malformed), "{wrong:?}");
        }
    }
}
