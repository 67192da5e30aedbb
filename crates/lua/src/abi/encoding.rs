//! Encodings, hashes and checks of texts.

use super::{Cx, NONE};
use aws_lc_rs::hmac;
use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER};
use md5::{Digest, Md5};
use model::uri::Slashes;
use sha1::Sha1;
use std::borrow::Cow;

super::numbered! {
    pub(super) enum Encoding {
        EscapeUri = "escape_uri",
        EscapeUriPath = "escape_uri_path",
        UnescapeUri = "unescape_uri",
        NormalizePath = "normalize_path",
        EscapePath = "escape_path",
        LowerCase = "lower_case",
        Base64 = "base64",
        Base64Unpadded = "base64_unpadded",
        Base64Url = "base64url",
        DecodeBase64 = "decode_base64",
        DecodeBase64Url = "decode_base64url",
        Md5 = "md5",
        Md5Binary = "md5_binary",
        Sha1 = "sha1",
        Crc32 = "crc32",
        EscapeUriWhole = "escape_uri_whole",
        UnescapeUriWhole = "unescape_uri_whole",
        QuoteSql = "quote_sql",
        Uuid = "uuid",
    }
}

/// Encodes a text. Returns [`NONE`] if it cannot be decoded.
pub(super) fn encode(cx: &mut Cx, how: i32, text: &[u8]) -> i32 {
    let Some(how) = Encoding::numbered(how) else {
        return NONE;
    };
    match how {
        Encoding::EscapeUri => escape(cx, text, b"!'()*-._~"),
        // nginx's escaping of a whole URI keeps most of what separates its parts.
        Encoding::EscapeUriWhole => escape(cx, text, b"!\"$&'()*+,-./:;<=>@[\\]^_`{|}~"),
        Encoding::EscapeUriPath => escape(cx, text, b"!$&'()*+,-./:;=@_~"),
        Encoding::UnescapeUriWhole => {
            super::list::cow(cx, percent_encoding::percent_decode(text).into())
        }
        Encoding::UnescapeUri => {
            let plain: Vec<u8> = text
                .iter()
                .map(|byte| if *byte == b'+' { b' ' } else { *byte })
                .collect();
            let decoded: Cow<'_, [u8]> = percent_encoding::percent_decode(&plain).into();
            // The decoded text may be in `plain`, which ends here.
            cx.made(|out| out.extend_from_slice(&decoded))
        }
        Encoding::NormalizePath => {
            super::list::cow(cx, model::uri::normalize(text, Slashes::Merge))
        }
        Encoding::EscapePath => cx.made(|out| model::uri::escape_into(text, out)),
        Encoding::LowerCase => cx.made(|out| out.extend(text.to_ascii_lowercase())),
        Encoding::Uuid => {
            let id = uuid::Uuid::new_v4().hyphenated().to_string();
            cx.made(|out| out.extend_from_slice(id.as_bytes()))
        }
        Encoding::Base64 => cx.made(|out| append(out, &BASE64, text)),
        Encoding::Base64Unpadded => cx.made(|out| append(out, &BASE64_NOPAD, text)),
        Encoding::Base64Url => cx.made(|out| append(out, &BASE64URL_NOPAD, text)),
        Encoding::DecodeBase64 => decoded(cx, text, [b'+', b'/']),
        Encoding::DecodeBase64Url => decoded(cx, text, [b'-', b'_']),
        Encoding::Md5 => {
            let digest = Md5::digest(text);
            cx.made(|out| append(out, &HEXLOWER, &digest))
        }
        Encoding::Md5Binary => {
            let digest = Md5::digest(text);
            cx.made(|out| out.extend_from_slice(&digest))
        }
        Encoding::Sha1 => {
            let digest = Sha1::digest(text);
            cx.made(|out| out.extend_from_slice(&digest))
        }
        Encoding::Crc32 => cx.number(crc32fast::hash(text).into()),
        Encoding::QuoteSql => cx.made(|out| quote_sql(text, out)),
    }
}

/// Returns the HMAC of a text by SHA-1.
pub(super) fn hmac_sha1(cx: &mut Cx, key: &[u8], text: &[u8]) -> i32 {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key);
    let tag = hmac::sign(&key, text);
    cx.made(|out| out.extend_from_slice(tag.as_ref()))
}

fn append(out: &mut Vec<u8>, encoding: &data_encoding::Encoding, text: &[u8]) {
    let start = out.len();
    out.resize(start + encoding.encode_len(text.len()), 0);
    encoding.encode_mut(text, &mut out[start..]);
}

/// Decodes base64 as nginx does: the text ends at the first `=`, padding is not needed, and bits that are left over do
/// not matter.
fn decoded(cx: &mut Cx, text: &[u8], last: [u8; 2]) -> i32 {
    let text = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    if text.len() % 4 == 1 {
        return NONE;
    }
    let mut is_valid = true;
    let code = cx.made(|out| {
        let (mut bits, mut count) = (0_u32, 0);
        for byte in text {
            let value = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                byte if *byte == last[0] => 62,
                byte if *byte == last[1] => 63,
                _ => {
                    is_valid = false;
                    return;
                }
            };
            bits = bits << 6 | u32::from(value);
            count += 6;
            if count >= 8 {
                count -= 8;
                out.push((bits >> count) as u8);
            }
        }
    });
    if is_valid { code } else { NONE }
}

/// Writes a text as a literal of MySQL.
fn quote_sql(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'\'');
    for byte in text {
        let letter = match byte {
            0 => b'0',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            8 => b'b',
            26 => b'Z',
            b'\'' | b'"' | b'\\' => *byte,
            _ => {
                out.push(*byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
    out.push(b'\'');
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
