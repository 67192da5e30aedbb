//! Old field names that expressions may still use.
//! Source: kong/router/transform.lua (amending_expression).

const FORMER: &str = "net.port";
const PRESENT: &str = "net.dst.port";

/// Returns the expression with old field names replaced by the current ones: `net.port` becomes `net.dst.port`. Returns
/// `None` if the expression uses no old name, which is the usual case.
///
/// A name is replaced if a comparison follows it, as in Kong. Unlike Kong, this leaves names inside literals alone.
pub fn modernized(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find(['n', '"']).map(|found| at + found) {
        if text.as_bytes()[found] == b'"' {
            at = end_of_literal(text, found);
        } else if is_former(text, found) {
            out.push_str(&text[copied..found]);
            out.push_str(PRESENT);
            at = found + FORMER.len();
            copied = at;
        } else {
            at = found + 1;
        }
    }
    if copied == 0 {
        return None;
    }
    out.push_str(&text[copied..]);
    Some(out)
}

fn is_former(text: &str, at: usize) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let before = text.as_bytes()[..at].last();
    let Some(rest) = text[at..].strip_prefix(FORMER) else {
        return false;
    };
    let rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
    !before.is_some_and(|byte| is_of_name(*byte)) && rest.starts_with(['=', '>', '<', '!'])
}

/// Returns the position behind the literal whose first quote is at `quote`, or the end of the text if it is unclosed.
fn end_of_literal(text: &str, quote: usize) -> usize {
    let inner = &text[quote + 1..];
    if text[..quote].ends_with("r#") {
        let end = inner.find("\"#").map(|end| end + 2);
        return quote + 1 + end.unwrap_or(inner.len());
    }
    let mut escaped = false;
    for (offset, byte) in inner.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return quote + 2 + offset,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::modernized;

    #[track_caller]
    fn becomes(text: &str, present: &str) {
        assert_eq!(modernized(text).as_deref(), Some(present));
    }

    #[track_caller]
    fn stays(text: &str) {
        assert_eq!(modernized(text), None, "{text}");
    }

    #[test]
    fn the_old_name_of_the_destination_port_is_replaced() {
        becomes("net.port == 80", "net.dst.port == 80");
        becomes(
            "http.path == \"/\" && (net.port\n >= 1||net.port!=2)",
            "http.path == \"/\" && (net.dst.port\n >= 1||net.dst.port!=2)",
        );
        becomes(
            r##"http.path == r#"a\"# && net.port < 1"##,
            r##"http.path == r#"a\"# && net.dst.port < 1"##,
        );
        becomes(
            r#"http.path == "a\"\\" && net.port < 1"#,
            r#"http.path == "a\"\\" && net.dst.port < 1"#,
        );
    }

    #[test]
    fn present_names_and_literals_stay() {
        stays("");
        stays("net.dst.port == 80");
        stays("net.port");
        stays("net.port.x == 1");
        stays("any(net.port) == 1");
        stays("http.headers.net.port == \"1\"");
        stays("http.path == \"net.port == 1\"");
        stays(r#"http.path == "a\" net.port == 1""#);
        stays(r##"http.path == r#"" net.port == 1"#"##);
        stays("http.path == \"net.port == 1");
        stays("\"");
        stays("net.src.port == 1 && é == 1");
    }
}
