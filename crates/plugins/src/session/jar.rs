//! Cookies of a session: putting together those of a request, and the lines that set those of a response. A long session is split into several
//! cookies, `NAME`, `NAME2`, … up to `NAME9`.
//! Source: lua-resty-session 4.0.5, lib/resty/session.lua calculate_cookie_chunks(), save(), destroy().

use super::format::{HEADER_TEXT, Invalid};
use plugin::Request;
use std::fmt::Write;

/// Maximum length of a cookie with its name and the `=`, without attributes.
const MAX_COOKIE: usize = 4096;
const MAX_COOKIES: usize = 9;

const EXPIRED: &str = "; Expires=Thu, 01 Jan 1970 00:00:01 GMT; Max-Age=0";

/// A line `Set-Cookie`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetCookie {
    pub(crate) name: String,
    pub(crate) line: String,
}

impl SetCookie {
    pub(crate) fn new(name: String, value: &str, attributes: &str) -> Self {
        let mut line = String::with_capacity(name.len() + 1 + value.len() + attributes.len());
        let _ = write!(line, "{name}={value}{attributes}");
        Self { name, line }
    }

    fn expired(name: String, attributes: &str) -> Self {
        let mut cookie = Self::new(name, "", attributes);
        cookie.line.push_str(EXPIRED);
        cookie
    }

    /// Whether a line sets the cookie of this one.
    pub(crate) fn replaces(&self, line: &[u8]) -> bool {
        let rest = line.strip_prefix(self.name.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"="))
    }
}

/// Returns the number of cookies for a payload of this length.
pub(crate) fn pieces(name: &str, payload: usize) -> Result<usize, Invalid> {
    let mut needed = name.len() + 1 + HEADER_TEXT + payload;
    for count in 1..=MAX_COOKIES {
        if count > 1 {
            needed += name.len() + 2;
        }
        if needed <= MAX_COOKIE * count {
            return Ok(count);
        }
    }
    Err(Invalid::TooLarge)
}

fn numbered(name: &str, number: usize) -> String {
    match number {
        1 => name.to_owned(),
        _ => format!("{name}{number}"),
    }
}

/// Splits a session into cookies.
pub(crate) fn split(
    name: &str,
    header: &str,
    payload: &str,
    attributes: &str,
) -> Result<Vec<SetCookie>, Invalid> {
    let count = pieces(name, payload.len())?;
    let first = MAX_COOKIE.saturating_sub(header.len() + name.len() + 1);
    let (start, mut rest) = payload.split_at(first.min(payload.len()));
    let mut cookies = vec![SetCookie::new(
        name.to_owned(),
        &format!("{header}{start}"),
        attributes,
    )];
    for number in 2..=count {
        let next = MAX_COOKIE.saturating_sub(name.len() + 2);
        let (piece, after) = rest.split_at(next.min(rest.len()));
        rest = after;
        cookies.push(SetCookie::new(numbered(name, number), piece, attributes));
    }
    Ok(cookies)
}

/// Returns the lines that delete the cookies with these numbers.
pub(crate) fn expire(
    name: &str,
    numbers: impl Iterator<Item = usize>,
    attributes: &str,
) -> impl Iterator<Item = SetCookie> {
    numbers.map(move |number| SetCookie::expired(numbered(name, number), attributes))
}

/// Returns the payload of a session, put together from its cookies. `first` is the value of the first one.
pub(crate) fn join(
    request: &Request<'_>,
    name: &str,
    first: &[u8],
    size: usize,
) -> Result<Vec<u8>, Invalid> {
    let count = pieces(name, size)?;
    let mut payload = first.get(HEADER_TEXT..).unwrap_or_default().to_vec();
    for number in 2..=count {
        let piece = request
            .cookie(&numbered(name, number))
            .ok_or(Invalid::Payload)?;
        payload.extend_from_slice(piece);
    }
    match payload.len() == size {
        true => Ok(payload),
        false => Err(Invalid::Payload),
    }
}
