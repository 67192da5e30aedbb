//! JSON that others wrote, and that Kong reads although it is not quite right.

use std::borrow::Cow;

/// Replaces what is not JSON, but which Kong and many upstreams accept. A client could otherwise pass a field that the
/// rules remove. This concerns bytes that are not UTF-8, escaped halves of surrogate pairs, control characters in
/// strings, numbers as C writes them (`NaN`, `0x1f`, `01`), and what follows a NUL.
pub(crate) fn mended(json: &[u8]) -> String {
    let text = String::from_utf8_lossy(json);
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '"' => mend_string(rest, &mut out),
            '\0' => break,
            _ if is_bare(first) => {
                let end = rest.find(|other| !is_bare(other)).unwrap_or(rest.len());
                let (token, after) = rest.split_at(end);
                out.push_str(&mended_token(token));
                after
            }
            _ => {
                out.push(first);
                &rest[first.len_utf8()..]
            }
        };
    }
    out
}

/// Mends the string at the beginning of a text. Returns the text after it.
fn mend_string<'t>(text: &'t str, out: &mut String) -> &'t str {
    use std::fmt::Write as _;
    out.push('"');
    let mut rest = &text[1..];
    while let Some(at) = rest.find(|other: char| matches!(other, '"' | '\\') || other < ' ') {
        let (before, special) = rest.split_at(at);
        out.push_str(before);
        match special.as_bytes()[0] {
            b'"' => {
                out.push('"');
                return &special[1..];
            }
            b'\\' => rest = mend_escape(special, out),
            control => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{control:04x}");
                rest = &special[1..];
            }
        }
    }
    out.push_str(rest);
    ""
}

/// Mends the escape at the beginning of a text. Returns the text after it.
fn mend_escape<'t>(escape: &'t str, out: &mut String) -> &'t str {
    let length = match (code_unit(escape), escape.get(6..).and_then(code_unit)) {
        (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
        (Some(0xD800..=0xDFFF), _) => {
            out.push_str("\\ufffd");
            return &escape[6..];
        }
        // The backslash, and the character after it, which may be a backslash itself.
        _ => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
    };
    out.push_str(&escape[..length]);
    &escape[length..]
}

/// Whether a character can be in a number or in one of JSON's words.
fn is_bare(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.')
}

/// Returns JSON for a number that C reads. Other tokens stay as they are. JSON has no infinite numbers; JavaScript writes
/// `null` for them.
fn mended_token(token: &str) -> Cow<'_, str> {
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(token).is_ok();
    let starts_number = token.starts_with(|first: char| first != '.');
    let number = number(token).filter(|_| !is_json && starts_number);
    match number {
        None => Cow::Borrowed(token),
        Some(number) if number.is_finite() => Cow::Owned(number.to_string()),
        Some(_) => Cow::Borrowed("null"),
    }
}

fn number(token: &str) -> Option<f64> {
    let (sign, digits) = match token.strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, token),
    };
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    if lower.as_deref() == Some("0x") {
        let number = u64::from_str_radix(&digits[2..], 16).ok()?;
        return Some(sign * number as f64);
    }
    token.parse().ok()
}

/// Returns the number of an escape such as `\u0041` at the beginning of a text.
fn code_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kong_reads_becomes_json() {
        for (text, wanted) in [
            ("{\"a\":\"b\tc\nd\"}", r#"{"a":"b\u0009c\u000ad"}"#),
            ("{\"a\tb\":1}", r#"{"a\u0009b":1}"#),
            ("[NaN,-Infinity,inf,nan]", "[null,null,null,null]"),
            ("[01,-007,+1,1.,0x1F,-0XA,1e5]", "[1,-7,1,1,31,-10,1e5]"),
            ("{\"a\":1}\0rest", r#"{"a":1}"#),
            (r#"["NaN 01 \" 01"]"#, r#"["NaN 01 \" 01"]"#),
            ("[true,false,null,-0.50]", "[true,false,null,-0.50]"),
        ] {
            let mended = mended(text.as_bytes());
            assert_eq!(mended, wanted);
            assert!(serde_json::from_str::<serde_json::Value>(&mended).is_ok());
        }
    }

    #[test]
    fn what_kong_does_not_read_stays() {
        for text in [
            "{a:1}", "[.5]", "[0x]", "[1-2]", "'a'", "\"a", "\"\\", "{} x",
        ] {
            assert_eq!(mended(text.as_bytes()), text);
        }
    }
}
