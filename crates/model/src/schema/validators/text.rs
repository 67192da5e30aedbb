//! Validators of texts. Source: kong/db/schema/typedefs.lua, kong/tools/{ip,http,uri}.lua, and the plugins' schemas.

use crate::address::{Address, is_ip_or_cidr};
use crate::schema::shorthand::UrlParts;

type Verdict = Result<(), String>;

pub(super) fn utf8_name(text: &str) -> Verdict {
    let is_fine = text.bytes().all(|byte| {
        !byte.is_ascii()
            || byte.is_ascii_alphanumeric()
            || matches!(byte, b'.' | b'-' | b'_' | b'~')
    });
    if is_fine {
        return Ok(());
    }
    Err(format!(
        "invalid value '{text}': the only accepted ascii characters are alphanumerics or ., -, _, and ~"
    ))
}

pub(super) fn tag(text: &str) -> Verdict {
    let is_fine = text.bytes().all(|byte| {
        !byte.is_ascii() || matches!(byte, b' '..=b'~') && byte != b',' && byte != b'/'
    });
    if is_fine {
        return Ok(());
    }
    Err(format!(
        "invalid tag '{text}': expected printable ascii (except `,` and `/`) or valid utf-8 sequences"
    ))
}

pub(super) fn host(text: &str) -> Verdict {
    match Address::parse(text) {
        Err(_) => Err(format!("invalid value: {text}")),
        Ok(address) if address.port.is_some() => Err("must not have a port".to_owned()),
        Ok(_) => Ok(()),
    }
}

pub(super) fn host_with_optional_port(text: &str) -> Verdict {
    Address::parse(text)
        .map(drop)
        .map_err(|error| error.to_string())
}

pub(super) fn host_with_wildcards(text: &str) -> Verdict {
    if text.contains('*') {
        return host_with_optional_port(&text.replace('*', "abc"));
    }
    host_with_optional_port(text)
}

/// Validates a server name that may have one `*` as its first or last character.
pub(super) fn wildcard_host(text: &str) -> Verdict {
    let stars = text.bytes().filter(|&byte| byte == b'*').count();
    if stars == 0 {
        return sni(text);
    }
    if stars > 1 {
        return Err("only one wildcard must be specified".to_owned());
    }
    if !text.starts_with('*') && !text.ends_with('*') {
        return Err("wildcard must be leftmost or rightmost character".to_owned());
    }
    sni(&text.replace('*', "wildcard"))
}

pub(super) fn sni(text: &str) -> Verdict {
    match Address::parse(text) {
        Err(_) => Err(format!("invalid value: {text}")),
        Ok(address) if address.host.is_ip() => Err("must not be an IP".to_owned()),
        Ok(address) if address.port.is_some() => Err("must not have a port".to_owned()),
        Ok(_) => Ok(()),
    }
}

pub(super) fn path(text: &str) -> Verdict {
    // RFC 3986 allows unreserved characters, the reserved characters for paths, and the percent sign.
    let is_allowed = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'-' | b'.'
                    | b'_'
                    | b'~'
                    | b'/'
                    | b'%'
                    | b':'
                    | b'@'
                    | b'!'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'('
                    | b')'
                    | b'*'
                    | b'+'
                    | b','
                    | b';'
                    | b'='
            )
    };
    if !text.bytes().all(is_allowed) {
        return Err(format!(
            "invalid path: '{text}' (characters outside of the reserved list of RFC 3986 found)"
        ));
    }
    percent_encoding(text)
}

/// Validates that every `%` is followed by two hexadecimal digits.
pub(super) fn percent_encoding(text: &str) -> Verdict {
    let bytes = text.as_bytes();
    for (at, _) in text.match_indices('%') {
        let digits = bytes.get(at + 1..at + 3).unwrap_or_default();
        if digits.len() < 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
            let shown = String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)]);
            return Err(format!("invalid url-encoded value: '{shown}'"));
        }
    }
    Ok(())
}

fn is_header_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

pub(super) fn header_name(text: &str) -> Verdict {
    if text.is_empty() {
        return Err("no header name provided".to_owned());
    }
    if is_header_name(text) {
        return Ok(());
    }
    Err(format!(
        "bad header name '{text}', allowed characters are A-Z, a-z, 0-9, '_', and '-'"
    ))
}

pub(super) fn cookie_name(text: &str) -> Verdict {
    if text.is_empty() {
        return Err("no cookie token provided".to_owned());
    }
    let is_refused =
        |byte: u8| byte <= b' ' || byte == 127 || b"()<>@,;:\\\"/?={}[]".contains(&byte);
    if text.bytes().any(is_refused) {
        return Err("contains one or more invalid characters. ASCII control characters (0-31;127), space, tab and the characters ()<>@,;:\\\"/?={}[] are not allowed.".to_owned());
    }
    Ok(())
}

pub(super) fn ip(text: &str) -> Verdict {
    if crate::address::is_ip(text) {
        return Ok(());
    }
    Err("not an ip address".to_owned())
}

pub(super) fn ip_or_cidr(text: &str) -> Verdict {
    if is_ip_or_cidr(text) {
        return Ok(());
    }
    Err(format!("invalid ip or cidr range: '{text}'"))
}

pub(super) fn ip_or_cidr_range(text: &str) -> Verdict {
    ip_or_cidr(text)
}

pub(super) fn upstream_name(text: &str) -> Verdict {
    let problem = match Address::parse(text) {
        Err(_) => "must be a valid hostname",
        Ok(address) if address.host.is_ip() => "no ip addresses allowed",
        Ok(address) if address.port.is_some() => "no port allowed",
        Ok(_) => return Ok(()),
    };
    Err(format!("Invalid name ('{text}'); {problem}"))
}

pub(super) fn target(text: &str) -> Verdict {
    if Address::parse(text).is_ok() {
        return Ok(());
    }
    Err(format!(
        "Invalid target ('{text}'); not a valid hostname or ip address"
    ))
}

pub(super) fn url(text: &str) -> Verdict {
    let parts = UrlParts::split(text);
    if parts.host.is_none() {
        return Err("missing host in url".to_owned());
    }
    if parts.scheme.is_none() {
        return Err("missing scheme in url".to_owned());
    }
    Ok(())
}

pub(super) fn regex_or_star(text: &str) -> Verdict {
    if text == "*" || expr::check_pcre(text).is_ok() {
        return Ok(());
    }
    Err(format!("'{text}' is not a valid regex"))
}

/// Validates `name:value`, where the name is a header name.
pub(super) fn header_pair(text: &str) -> Verdict {
    let name = text.split(':').next().unwrap_or_default();
    header_of_pair(name)
}

/// Validates `old:new`, where both are header names.
pub(super) fn header_rename(text: &str) -> Verdict {
    let (old, new) = text.split_once(':').unwrap_or((text, ""));
    header_of_pair(old)?;
    header_of_pair(new)
}

fn header_of_pair(name: &str) -> Verdict {
    if is_header_name(name) {
        return Ok(());
    }
    Err(format!("'{name}' is not a valid header"))
}

/// Accepts any text. Lua sources are parsed when the plugin is built.
pub(super) fn lua(_: &str) -> Verdict {
    Ok(())
}
