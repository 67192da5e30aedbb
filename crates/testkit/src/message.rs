//! Reads HTTP/1.1 messages in tests. The parser is lenient and keeps the letter case of header names.

use std::io::{self, BufRead, Read};

/// The head of a message: its first line and its headers, with names as received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) first: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    /// Returns the value of the first header with this name, compared without case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(present, _)| present.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.header("transfer-encoding")
            .is_some_and(|value| value.to_ascii_lowercase().contains("chunked"))
    }

    pub(crate) fn content_length(&self) -> Option<usize> {
        self.header("content-length")?.parse().ok()
    }
}

/// Reads a head and skips empty lines before it. Returns `None` if the connection was closed before a head began.
pub(crate) fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Head>> {
    let mut first = String::new();
    while first.is_empty() {
        match read_line(reader)? {
            None => return Ok(None),
            Some(line) => first = line,
        }
    }
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if line.is_empty() {
            return Ok(Some(Head { first, headers }));
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
}

/// Reads a chunked body including its trailers, and returns the content.
pub(crate) fn read_chunked(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
        if size == 0 {
            while read_line(reader)?.is_some_and(|trailer| !trailer.is_empty()) {}
            return Ok(body);
        }
        let start = body.len();
        body.resize(start + size, 0);
        reader.read_exact(&mut body[start..])?;
        read_line(reader)?;
    }
}

pub(crate) fn read_sized(reader: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn read_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    if reader.read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    while matches!(bytes.last(), Some(b'\n' | b'\r')) {
        bytes.pop();
    }
    // Latin-1 maps every byte to a character, so that no byte is lost.
    Ok(Some(bytes.into_iter().map(char::from).collect()))
}
