//! Encodings, hashes and checks of texts.

use super::{Cx, NONE};
use model::uri::Slashes;
use std::borrow::Cow;

super::numbered! {
    pub(super) enum Encoding {
        EscapeUri = "escape_uri",
        EscapeUriPath = "escape_uri_path",
        UnescapeUri = "unescape_uri",
        NormalizePath = "normalize_path",
        EscapePath = "escape_path",
        LowerCase = "lower_case",
        HttpTime = "http_time",
        ParseHttpTime = "parse_http_time",
        Base64 = "base64",
        Base64Unpadded = "base64_unpadded",
        DecodeBase64 = "decode_base64",
        DecodeBase64Url = "decode_base64url",
        Md5 = "md5",
        Sha1 = "sha1",
        Crc32 = "crc32",
        Uuid = "uuid",
    }
}

/// Encodes a text. Returns [`NONE`] if it cannot be decoded.
pub(super) fn encode(cx: &mut Cx, how: i32, text: &[u8]) -> i32 {
    let Some(how) = Encoding::numbered(how) else {
        return NONE;
    };
    match how {
        Encoding::EscapeUri => escape(cx, text, b"-._~"),
        Encoding::EscapeUriPath => escape(cx, text, b"!$&'()*+,-./:;=@_~"),
        Encoding::UnescapeUri => {
            let plain: Vec<u8> =
                text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
            let decoded: Cow<'_, [u8]> = percent_encoding::percent_decode(&plain).into();
            super::list::cow(cx, decoded)
        }
        Encoding::NormalizePath => super::list::cow(cx, model::uri::normalize(text, Slashes::Merge)),
        Encoding::EscapePath => cx.made(|out| model::uri::escape_into(text, out)),
        Encoding::LowerCase => cx.made(|out| out.extend(text.to_ascii_lowercase())),
        Encoding::Uuid => {
            let id = uuid::Uuid::new_v4().hyphenated().to_string();
            cx.made(|out| out.extend_from_slice(id.as_bytes()))
        }
        _ => NONE,
    }
}

fn escape(cx: &mut Cx, text: &[u8], kept: &[u8]) -> i32 {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    cx.made(|out| {
        for byte in text {
            if byte.is_ascii_alphanumeric() || kept.contains(byte) {
                out.push(*byte);
            } else {
                let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                out.extend_from_slice(&[b'%', high, low]);
            }
        }
    })
}
