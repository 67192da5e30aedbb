//! The credentials that a request has, and the distinguished name of a user.

use plugin::base64;

/// A username and a password. The username is not empty and has no control characters; the password is not empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Given {
    pub username: String,
    pub password: Vec<u8>,
}

/// Parses `<scheme> <base64 of username:password>`. The scheme counts in any case.
pub fn parse(value: &[u8], scheme: &str) -> Option<Given> {
    let value = trim_start(value);
    let (start, rest) = value.split_at_checked(scheme.len())?;
    if !start.eq_ignore_ascii_case(scheme.as_bytes()) {
        return None;
    }
    let text = trim_start(rest);
    if text.len() == rest.len() {
        return None;
    }
    let mut username = base64::decode(text)?;
    let colon = memchr::memchr(b':', &username)?;
    let password = username.split_off(colon + 1);
    username.pop();
    let username = String::from_utf8(username).ok()?;
    // The username becomes a header for the upstream.
    if username.is_empty() || username.chars().any(char::is_control) || password.is_empty() {
        return None;
    }
    Some(Given { username, password })
}

/// Removes what `\s` of a regex means, which Kong looks for.
fn trim_start(value: &[u8]) -> &[u8] {
    let is_blank = |&byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = value.iter().take_while(|byte| is_blank(byte)).count();
    &value[start..]
}

/// Returns the name of a user: `<attribute>=<username>,<base>`. Everything in the username that has a meaning in a
/// distinguished name is escaped as RFC 4514 says (section 2.4), so that a username cannot lead to another place.
pub fn distinguished_name(attribute: &str, username: &str, base: &str) -> String {
    let mut name = String::with_capacity(attribute.len() + username.len() + base.len() + 8);
    name.push_str(attribute);
    name.push('=');
    let last = username.len().saturating_sub(1);
    for (at, character) in username.char_indices() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '=' | '>' | '\\' => escape(&mut name, character),
            '#' if at == 0 => escape(&mut name, character),
            ' ' if at == 0 || at == last => escape(&mut name, character),
            '\0' => name.push_str("\\00"),
            _ => name.push(character),
        }
    }
    name.push(',');
    name.push_str(base);
    name
}

fn escape(name: &mut String, character: char) {
    name.push('\\');
    name.push(character);
}
