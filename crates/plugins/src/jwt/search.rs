//! Searches a request for tokens. Source of the behaviour: kong/plugins/jwt/handler.lua retrieve_tokens().

use super::config::Config;
use plugin::{Request, args};
use std::borrow::Cow;

/// The tokens of a request. The same token in several places is one.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Found<'r> {
    #[default]
    Nothing,
    Token(Cow<'r, [u8]>),
    /// A query argument without a value, which is not a text.
    Flag,
    Several,
}

impl<'r> Found<'r> {
    fn add(&mut self, other: Found<'r>) {
        let is_empty = matches!(&other, Self::Token(token) if token.is_empty());
        if is_empty || *self == other {
            return;
        }
        *self = match self {
            Self::Nothing => other,
            _ => Self::Several,
        };
    }
}

/// Searches all places that the configuration names.
pub(super) fn tokens<'r>(request: &'r Request<'_>, config: &Config) -> Found<'r> {
    let mut found = Found::default();
    let names = config.uri_param_names.as_deref().unwrap_or_default();
    if !names.is_empty() {
        let is_named = |name: &[u8]| names.iter().any(|one| one.as_bytes() == name);
        for arg in args::parse(request.query()).filter(|arg| is_named(&arg.name)) {
            found.add(arg.value.map_or(Found::Flag, Found::Token));
        }
    }
    for name in config.cookie_names.iter().flatten() {
        if let Some(token) = request.cookie(name) {
            found.add(Found::Token(token.into()));
        }
    }
    for name in config.header_names.iter().flatten() {
        let value = request.first_header_field(name);
        if let Some(token) = value.and_then(bearer) {
            found.add(Found::Token(token.into()));
        }
    }
    found
}

/// Returns the token in the value of a header: everything after `Bearer` or `bearer` and white space. As in Kong, the
/// word may be anywhere in the value.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    // Nearly always the value begins with the word. A search for it would cost more than all the rest.
    if let [b'B' | b'b', b'e', b'a', b'r', b'e', b'r', rest @ ..] = value
        && let Some(token) = after_blanks(rest)
    {
        return Some(token);
    }
    memchr::memmem::find_iter(value, b"earer").find_map(|at| {
        let is_word = at.checked_sub(1).map(|at| value[at]);
        if !matches!(is_word, Some(b'B' | b'b')) {
            return None;
        }
        after_blanks(&value[at + b"earer".len()..])
    })
}

/// Returns what follows white space; `None` if there is no white space, or nothing after it.
fn after_blanks(text: &[u8]) -> Option<&[u8]> {
    let blanks = text.iter().take_while(|byte| is_space(**byte)).count();
    let token = &text[blanks..];
    (blanks > 0 && !token.is_empty()).then_some(token)
}

/// Whether a byte is white space in the regexes of PCRE.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_what_follows_the_word_and_white_space() {
        let cases: [(&str, Option<&str>); 13] = [
            ("Bearer a.b.c", Some("a.b.c")),
            ("bearer a.b.c", Some("a.b.c")),
            ("  Bearer \t a b", Some("a b")),
            ("Token Bearer a", Some("a")),
            ("xBearer a", Some("a")),
            ("Bearer, Bearer a", Some("a")),
            ("Bearer Bearer a", Some("Bearer a")),
            ("BEARER a", None),
            ("earer a", None),
            ("Bearera", None),
            ("Bearer", None),
            ("Bearer   ", None),
            ("", None),
        ];
        for (value, wanted) in cases {
            let found = bearer(value.as_bytes());
            assert_eq!(found, wanted.map(str::as_bytes), "{value}");
        }
    }

    #[test]
    fn the_search_for_the_word_costs_as_much_as_the_value_is_long() {
        testkit::cost::assert_linear(
            5_000,
            |size| ["Bearer", "earer ", "Bearer,", "b", " "].map(|piece| piece.repeat(size)),
            |values| {
                for value in &values {
                    std::hint::black_box(bearer(value.as_bytes()));
                }
            },
        );
    }
}
