//! Chunked bodies: reading a body in one piece, in two pieces or byte by byte gives the same result. A simple reference
//! reader returns the same payload.

use net::http1::{Body, Framing};

/// The result of reading a body.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// The body is complete and has this many bytes.
    Whole(usize),
    /// The body is valid so far, and the input ends before the body is complete.
    Open,
    Refused,
}

/// Checks a chunked body. The first byte of the input says where to cut the rest.
pub fn chunked_body(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let (end, payload) = read([data]);
    let at = usize::from(first) * data.len() / 256;
    let (left, right) = data.split_at(at);
    assert_eq!(read([left, right]), (end.clone(), payload.clone()));
    assert_eq!(
        read(data.chunks(1)),
        (end.clone(), payload.clone()),
        "byte by byte"
    );
    match end {
        End::Whole(length) => {
            assert!(length <= data.len());
            assert_eq!(plainly(&data[..length]), Some(payload));
        }
        End::Open => assert!(
            plainly(data).is_none(),
            "the reference reader found a complete body"
        ),
        End::Refused => {}
    }
}

/// Reads a body in these pieces. The payload of a refused body is not returned, because it depends on the pieces.
fn read<'d>(pieces: impl IntoIterator<Item = &'d [u8]>) -> (End, Vec<u8>) {
    let mut body = Body::new(Framing::Chunked);
    let mut followed = Body::new(Framing::Chunked);
    let (mut payload, mut taken) = (Vec::new(), 0);
    for piece in pieces {
        let decoded = body.decode(piece, &mut payload);
        assert_eq!(decoded, followed.consume(piece));
        let Ok(length) = decoded else {
            return (End::Refused, Vec::new());
        };
        taken += length;
        if body.is_done() {
            return (End::Whole(taken), payload);
        }
        assert_eq!(
            length,
            piece.len(),
            "the body is incomplete, but bytes were not consumed"
        );
    }
    (End::Open, payload)
}

/// Returns the payload of a complete chunked body, read by a simple reference reader.
fn plainly(mut data: &[u8]) -> Option<Vec<u8>> {
    let mut payload = Vec::new();
    loop {
        let (line, rest) = line(data)?;
        let digits = line.split(|&byte| byte == b';').next()?;
        let size = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        data = rest;
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok()?;
        let (chunk, rest) = data.split_at_checked(size)?;
        payload.extend_from_slice(chunk);
        data = rest.strip_prefix(b"\r\n")?;
    }
    loop {
        let (line, rest) = line(data)?;
        data = rest;
        if line.is_empty() {
            return data.is_empty().then_some(payload);
        }
    }
}

fn line(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = data.windows(2).position(|two| two == b"\r\n")?;
    Some((&data[..at], &data[at + 2..]))
}
