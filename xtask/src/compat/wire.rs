//! Reads and writes the messages between connectrpc's conformance suite and a server under test. A message is a
//! protocol buffer, after its length in four bytes.

use std::io::{self, Read, Write};

/// Maximum message length; larger than any message of the suite.
const MOST: usize = 16 * 1024 * 1024;

pub(super) fn read_message(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    from.read_exact(&mut message)?;
    Ok(message)
}

pub(super) fn write_message(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    to.write_all(&length.to_be_bytes())?;
    to.write_all(message)?;
    to.flush()
}

/// The content of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Parses the numbered fields of a message. Returns `None` if the message is malformed or has fields of fixed width,
/// which the suite's messages do not use.
pub(super) fn fields(mut message: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = take_number(&mut message)?;
        let value = match tag & 7 {
            0 => Value::Number(take_number(&mut message)?),
            2 => {
                let length = usize::try_from(take_number(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        fields.push((tag >> 3, value));
    }
    Some(fields)
}

/// Returns the field with this number, or zero if there is none. If there are several, the last one counts, as the
/// encoding requires.
pub(super) fn number(fields: &[(u64, Value<'_>)], wanted: u64) -> u64 {
    let found = fields.iter().rev().find(|(number, _)| *number == wanted);
    match found {
        Some((_, Value::Number(number))) => *number,
        _ => 0,
    }
}

pub(super) fn bytes<'a>(fields: &[(u64, Value<'a>)], wanted: u64) -> &'a [u8] {
    let found = fields.iter().rev().find(|(number, _)| *number == wanted);
    match found {
        Some((_, Value::Bytes(bytes))) => bytes,
        _ => &[],
    }
}

pub(super) fn encode(fields: &[(u64, Value<'_>)]) -> Vec<u8> {
    let mut message = Vec::new();
    for (number, value) in fields {
        match value {
            Value::Number(value) => {
                put_number(number << 3, &mut message);
                put_number(*value, &mut message);
            }
            Value::Bytes(bytes) => {
                put_number(number << 3 | 2, &mut message);
                put_number(bytes.len() as u64, &mut message);
                message.extend_from_slice(bytes);
            }
        }
    }
    message
}

fn take_number(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn put_number(mut number: u64, message: &mut Vec<u8>) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let written = [
            (1, Value::Number(2)),
            (6, Value::Number(204_800)),
            (7, Value::Bytes(b"certificate")),
        ];
        let message = encode(&written);
        // Field 6, then 204800 in groups of seven bits, lowest group first.
        assert_eq!(message[2..6], [0x30, 0x80, 0xc0, 0x0c]);
        let read = fields(&message).expect("a valid message");
        assert_eq!(read, written);
        assert_eq!((number(&read, 6), number(&read, 4)), (204_800, 0));
        assert_eq!(
            (bytes(&read, 7), bytes(&read, 5)),
            (&b"certificate"[..], &b""[..])
        );
        let mut stream = Vec::new();
        write_message(&mut stream, &message).expect("writing to memory succeeds");
        assert_eq!(
            read_message(&mut &stream[..]).expect("a complete message"),
            message
        );
    }

    #[test]
    fn malformed_messages_are_refused() {
        for bad in [&b"\x08"[..], b"\x12\x05ab", b"\x0d\0\0\0\0", &[0xff; 12]] {
            assert_eq!(fields(bad), None, "{bad:02x?}");
        }
    }
}
