//! Decodes base64 as OpenResty does under Kong: padding may be missing, text after the padding is ignored, and so are
//! unused bits at the end.

use data_encoding::{BASE64_NOPAD, Encoding};
use std::sync::LazyLock;

static LENIENT: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = BASE64_NOPAD.specification();
    specification.check_trailing_bits = false;
    specification
        .encoding()
        .expect("the usual encoding stays valid with one check less")
});

/// Returns `None` if a character or the length is invalid.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let end = memchr::memchr(b'=', text).unwrap_or(text.len());
    LENIENT.decode(&text[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_the_text_after_it_are_ignored() {
        for (text, wanted) in [
            ("", Some("")),
            ("Zg==", Some("f")),
            ("Zg==!?", Some("f")),
            ("Zh", Some("f")),
            ("Zm8", Some("fo")),
            ("Zm9v", Some("foo")),
            ("bm9yYTpwdw==", Some("nora:pw")),
            ("Zm9vY", None),
            ("Zm9-", None),
            ("Zm 9v", None),
        ] {
            assert_eq!(
                decode(text.as_bytes()).as_deref(),
                wanted.map(str::as_bytes),
                "{text}"
            );
        }
    }
}
