//! Control characters in lines of the error log. Some texts come from clients, by way of Lua code or of errors: such a text
//! must not look like another line.

use std::borrow::Cow;

/// Returns a line as it is written. Further lines of a message begin with a tab, and other control characters are
/// escaped. Lines in JSON have none.
pub(super) fn shown(line: &[u8]) -> Cow<'_, [u8]> {
    let (body, end) = match line {
        [body @ .., b'\n'] => (body, &b"\n"[..]),
        body => (body, &b""[..]),
    };
    if !body.iter().any(|byte| is_special(*byte)) {
        return line.into();
    }
    let mut out = Vec::with_capacity(line.len() + 16);
    for byte in body {
        match byte {
            b'\n' => out.extend_from_slice(b"\n\t"),
            byte if is_special(*byte) => {
                out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
            }
            byte => out.push(*byte),
        }
    }
    out.extend_from_slice(end);
    out.into()
}

fn is_special(byte: u8) -> bool {
    byte < 0x20 && byte != b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_control_characters_cannot_look_like_another_line() {
        let cases: [(&[u8], &[u8]); 4] = [
            (b"INFO a\tb \xff\n", b"INFO a\tb \xff\n"),
            (b"INFO a\nINFO b\n", b"INFO a\n\tINFO b\n"),
            (b"a\r\x00\x1b[2J\n", b"a\\x0d\\x00\\x1b[2J\n"),
            (b"no end\x01", b"no end\\x01"),
        ];
        for (line, expected) in cases {
            assert_eq!(&*shown(line), expected);
        }
        assert!(matches!(shown(b"plain\n"), Cow::Borrowed(_)));
    }
}
