//! The origins that may read responses.
//!
//! Kong anchors a regex by a `$` at its end, so that each alternative but the last one of `a|b` also matches longer
//! texts. Here a regex must match the whole origin.

use crate::patterns::Patterns;
use plugin::{BuildError, HeaderValue};
use std::borrow::Cow;
use std::collections::HashSet;

#[derive(Debug)]
pub(super) enum Origins {
    /// Every origin, whether or not the request has one.
    All,
    /// One entry without special characters. It is sent whatever the origin of the request is.
    Fixed(HeaderValue),
    Listed(Box<Listed>),
}

#[derive(Debug)]
pub(super) struct Listed {
    /// Whether `*` is among the entries.
    pub(super) has_star: bool,
    /// Entries without special characters, normalised.
    plain: HashSet<Box<[u8]>>,
    /// Regexes without a colon, for the host.
    of_host: Patterns,
    /// Regexes with a colon, for the whole origin.
    of_origin: Patterns,
}

impl Origins {
    pub(super) fn compile(entries: &[String]) -> Result<Self, BuildError> {
        match entries {
            [] => return Ok(Self::All),
            [entry] if entry == "*" => return Ok(Self::All),
            [entry] if is_plain(entry) => return Ok(Self::Fixed(HeaderValue::from_text(entry))),
            _ => {}
        }
        let plain = entries.iter().filter(|entry| is_plain(entry));
        let plain = plain.map(|entry| normal(entry.as_bytes()).origin.into_owned().into());
        let regexes = entries
            .iter()
            .filter(|entry| !is_plain(entry) && *entry != "*");
        let (of_origin, of_host): (Vec<_>, Vec<_>) = regexes.partition(|entry| entry.contains(':'));
        let compile = |entries: Vec<&String>| {
            let whole: Vec<String> = entries.iter().map(|entry| whole(entry)).collect();
            Patterns::compile("origins", whole.iter().map(String::as_str))
        };
        Ok(Self::Listed(Box::new(Listed {
            has_star: entries.iter().any(|entry| entry == "*"),
            plain: plain.collect(),
            of_host: compile(of_host)?,
            of_origin: compile(of_origin)?,
        })))
    }

    /// Whether an origin may read responses. A search that needs too many steps counts as no match.
    pub(super) fn admits(&self, origin: &Normal<'_>) -> bool {
        let Self::Listed(listed) = self else {
            return true;
        };
        let host = origin.host.unwrap_or(&origin.origin);
        listed.has_star
            || listed.plain.contains(&*origin.origin)
            || listed.of_host.search(host).unwrap_or(false)
            || listed.of_origin.search(&origin.origin).unwrap_or(false)
    }
}

/// Whether an entry is a text and not a regex.
fn is_plain(entry: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:/-".contains(&byte);
    !entry.is_empty() && entry.bytes().all(is_plain)
}

/// Returns the regex that matches only whole texts.
fn whole(regex: &str) -> String {
    format!("^(?:{regex})$")
}

/// An origin, split and normalised as in Kong: without default port, path and user.
#[derive(Debug, PartialEq)]
pub(super) struct Normal<'o> {
    pub(super) origin: Cow<'o, [u8]>,
    /// `None` if the text has no host, as `null` and `example.com`.
    pub(super) host: Option<&'o [u8]>,
}

/// Source: kong/plugins/cors/handler.lua normalize_origin(), and LuaSocket's url.parse(). Other than there, the host of
/// an IPv6 address keeps its brackets in the origin, because browsers send them.
pub(super) fn normal(text: &[u8]) -> Normal<'_> {
    let raw = Normal {
        origin: Cow::Borrowed(text),
        host: None,
    };
    let Some(at) = memchr::memmem::find(text, b"://") else {
        return raw;
    };
    let (scheme, rest) = (&text[..at], &text[at + 3..]);
    if !is_scheme(scheme) {
        return raw;
    }
    let end = rest.iter().position(|byte| b"/?#".contains(byte));
    let authority = &rest[..end.unwrap_or(rest.len())];
    let user = memchr::memchr(b'@', authority);
    let server = &authority[user.map_or(0, |at| at + 1)..];
    let colon = memchr::memrchr(b':', server).filter(|at| !server[*at..].contains(&b']'));
    let (name, port) = match colon {
        Some(at) => (&server[..at], Some(&server[at + 1..])),
        None => (server, None),
    };
    if name.is_empty() {
        return raw;
    }
    let is_default = matches!(
        (scheme, port),
        (b"http", Some(b"80")) | (b"https", Some(b"443"))
    );
    let kept = if is_default { name } else { server };
    let prefix = &text[..at + 3];
    let origin = match text.strip_prefix(prefix) == Some(kept) {
        true => Cow::Borrowed(text),
        false => Cow::Owned([prefix, kept].concat()),
    };
    let bare = name
        .strip_prefix(b"[")
        .and_then(|name| name.strip_suffix(b"]"));
    Normal {
        origin,
        host: Some(bare.unwrap_or(name)),
    }
}

fn is_scheme(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_alphanumeric)
        && text
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
}
