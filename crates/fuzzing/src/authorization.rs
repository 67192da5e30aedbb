//! Fuzz target for the credentials in headers: those of basic-auth and of ldap-auth.

use plugins::parsers::{basic_auth_credentials, distinguished_name, ldap_credentials};
use regex::bytes::Regex;
use std::sync::LazyLock;

static BASIC: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?-u)[Bb]asic(.*)").expect("the regex is valid"));
static LDAP: LazyLock<Regex> = LazyLock::new(|| {
    let regex = r"(?-u)^[ \t-\r]*[Ll][Dd][Aa][Pp][ \t-\r]+(.*)$";
    Regex::new(regex).expect("the regex is valid")
});

const BASE: &str = "ou=users,dc=test";

/// Checks a header value. It has no line feed, as the gateway refuses a head with one in a value.
pub fn authorization(data: &[u8]) {
    if data.contains(&b'\n') {
        return;
    }
    let decoded = |regex: &Regex| {
        let captures = regex.captures(data)?;
        plugin::base64::decode(captures.get(1)?.as_bytes().trim_ascii())
    };
    let basic = basic_auth_credentials(data);
    if let Some((username, password)) = &basic {
        let text = [username.as_bytes(), b":", password].concat();
        assert_eq!(decoded(&BASIC), Some(text));
        assert!(!username.is_empty() && !username.contains(':'));
    }
    let Some(given) = ldap_credentials(data, "ldap") else {
        return;
    };
    let text = [given.username.as_bytes(), b":", &given.password].concat();
    assert_eq!(decoded(&LDAP), Some(text));
    // A directory takes an empty password for an anonymous bind.
    assert!(!given.username.is_empty() && !given.password.is_empty());
    let name = distinguished_name("uid", &given.username, BASE);
    let rest = name
        .strip_suffix(BASE)
        .and_then(|name| name.strip_suffix(','));
    let value = rest.and_then(|name| name.strip_prefix("uid="));
    let value = value.expect("the name is one below the base");
    assert_eq!(unescaped(value).as_deref(), Some(&*given.username));
}

/// Reads the value of an attribute (RFC 4514 section 3). Returns `None` if something in it has a meaning.
fn unescaped(value: &str) -> Option<String> {
    let mut text = String::new();
    let last = value.chars().count().checked_sub(1)?;
    let mut characters = value.chars().enumerate();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => match characters.next()?.1 {
                '0' if characters.next()?.1 == '0' => text.push('\0'),
                special @ (' ' | '#' | '"' | '+' | ',' | ';' | '<' | '=' | '>' | '\\') => {
                    text.push(special);
                }
                _ => return None,
            },
            '"' | '+' | ',' | ';' | '<' | '=' | '>' | '\0' => return None,
            '#' | ' ' if at == 0 => return None,
            ' ' if at == last => return None,
            other => text.push(other),
        }
    }
    Some(text)
}
