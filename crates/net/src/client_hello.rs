//! Reads the server name from the first message of a TLS client, so that routing can decide who does the handshake: the
//! gateway (`tls`) or the target (`tls_passthrough`). [`parse`] does no I/O. It allocates only for the name, and for a
//! hello that is split into several records. It checks strictly: it returns an error for a hello in which two
//! implementations could find different names (RFC 8446 §4.1.2, §5.1; RFC 6066 §3).

use std::borrow::Cow;

/// Maximum bytes of a connection to examine. Hellos with post-quantum keys take about 1,800 bytes; nginx also reads up
/// to 16 KiB.
pub const MAX_HELLO: usize = 16 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RECORD_HEADER: usize = 5;
const MAX_RECORD: usize = 1 << 14;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// The protocol that the first bytes of a connection show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// A TLS client hello, with its server name in lower case.
    Hello { server_name: Option<Box<str>> },
    /// A protocol other than TLS.
    NotTls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHello {
    #[error("malformed TLS record")]
    Record,
    #[error("malformed client hello")]
    Hello,
    #[error("client hello with a malformed server name")]
    ServerName,
    #[error("client hello too large")]
    TooLarge,
}

/// Reads the first bytes of a connection. Returns `None` if more are needed. The hello may be split into any number of
/// records.
pub fn parse(bytes: &[u8]) -> Result<Option<Opening>, BadHello> {
    match bytes.first() {
        None => return Ok(None),
        Some(&HANDSHAKE) => {}
        Some(_) => return Ok(Some(Opening::NotTls)),
    }
    let window = &bytes[..bytes.len().min(MAX_HELLO)];
    let Some(message) = message(window)? else {
        let is_full = window.len() == MAX_HELLO;
        return if is_full {
            Err(BadHello::TooLarge)
        } else {
            Ok(None)
        };
    };
    let server_name = server_name(&message)?;
    Ok(Some(Opening::Hello { server_name }))
}

/// Returns the body of the hello from its records. Nearly always one record holds the whole hello; then the body is
/// borrowed.
fn message(bytes: &[u8]) -> Result<Option<Cow<'_, [u8]>>, BadHello> {
    let mut collected: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    let mut rest = bytes;
    loop {
        let Some((header, after)) = rest.split_at_checked(RECORD_HEADER) else {
            return check_partial_header(rest);
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != HANDSHAKE || header[1] != 3 || length == 0 || length > MAX_RECORD {
            return Err(BadHello::Record);
        }
        let fragment = &after[..after.len().min(length)];
        if collected.is_empty() {
            collected = Cow::Borrowed(fragment);
        } else {
            collected.to_mut().extend_from_slice(fragment);
        }
        let complete = message_length(&collected)?.filter(|length| collected.len() - 4 >= *length);
        if let Some(length) = complete {
            return Ok(Some(body(collected, length)));
        }
        if after.len() < length {
            return Ok(None);
        }
        rest = &after[length..];
    }
}

/// Checks the bytes of an incomplete record header, so that a wrong one is refused before its other bytes arrive.
fn check_partial_header(bytes: &[u8]) -> Result<Option<Cow<'_, [u8]>>, BadHello> {
    let is_wrong = bytes.first().is_some_and(|&kind| kind != HANDSHAKE)
        || bytes.get(1).is_some_and(|&major| major != 3);
    if is_wrong {
        Err(BadHello::Record)
    } else {
        Ok(None)
    }
}

/// Returns the length of the handshake message at the start of `bytes`, without its header of four bytes. Returns
/// `None` if the header is incomplete.
fn message_length(bytes: &[u8]) -> Result<Option<usize>, BadHello> {
    match bytes {
        [kind, ..] if *kind != CLIENT_HELLO => Err(BadHello::Hello),
        [_, a, b, c, ..] => {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if length > MAX_HELLO {
                return Err(BadHello::TooLarge);
            }
            Ok(Some(length))
        }
        _ => Ok(None),
    }
}

/// Returns the part of a complete message that follows its header.
fn body(message: Cow<'_, [u8]>, length: usize) -> Cow<'_, [u8]> {
    match message {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[4..4 + length]),
        Cow::Owned(bytes) => Cow::Owned(bytes[4..4 + length].to_vec()),
    }
}

/// Takes parts off the front of a message; fails if a part is incomplete.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], BadHello> {
        let (part, rest) = self.0.split_at_checked(length).ok_or(BadHello::Hello)?;
        self.0 = rest;
        Ok(part)
    }

    fn byte(&mut self) -> Result<u8, BadHello> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u16, BadHello> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Takes a vector whose length precedes it in one byte.
    fn short_vector(&mut self) -> Result<&'a [u8], BadHello> {
        let length = self.byte()?;
        self.take(length.into())
    }

    /// Takes a vector whose length precedes it in two bytes.
    fn vector(&mut self) -> Result<&'a [u8], BadHello> {
        let length = self.number()?;
        self.take(length.into())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn server_name(body: &[u8]) -> Result<Option<Box<str>>, BadHello> {
    let mut hello = Reader(body);
    let version = hello.number()?;
    if version >> 8 != 3 {
        return Err(BadHello::Hello);
    }
    let _random = hello.take(32)?;
    if hello.short_vector()?.len() > 32 {
        return Err(BadHello::Hello);
    }
    let suites = hello.vector()?;
    if suites.is_empty() || suites.len() % 2 == 1 {
        return Err(BadHello::Hello);
    }
    if hello.short_vector()?.is_empty() {
        return Err(BadHello::Hello);
    }
    if hello.is_empty() {
        return Ok(None);
    }
    let mut extensions = Reader(hello.vector()?);
    if !hello.is_empty() {
        return Err(BadHello::Hello);
    }
    let mut found = None;
    while !extensions.is_empty() {
        let kind = extensions.number()?;
        let value = extensions.vector()?;
        if kind == SERVER_NAME && found.replace(value).is_some() {
            return Err(BadHello::ServerName);
        }
    }
    found.map(read_name).transpose()
}

/// Reads the `server_name` extension, which must hold exactly one host name. RFC 6066 allows one name per type and
/// defines no other type.
fn read_name(extension: &[u8]) -> Result<Box<str>, BadHello> {
    let wrong = |_| BadHello::ServerName;
    let mut extension = Reader(extension);
    let mut list = Reader(extension.vector().map_err(wrong)?);
    let kind = list.byte().map_err(wrong)?;
    let name = list.vector().map_err(wrong)?;
    let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_name = !name.is_empty() && name.len() <= 255 && name.iter().all(is_host);
    if kind != HOST_NAME || !list.is_empty() || !extension.is_empty() || !is_name {
        return Err(BadHello::ServerName);
    }
    let name = std::str::from_utf8(name).map_err(|_| BadHello::ServerName)?;
    Ok(name.to_ascii_lowercase().into())
}

#[cfg(test)]
pub(crate) mod tests;
