//! Escapes values that clients send, so that they cannot end a log line or a quoted text.

use super::format::Escape;

/// Appends a value, escaped for the format. Source: nginx ngx_http_log_escape() and ngx_escape_json().
pub(super) fn write(escape: Escape, bytes: &[u8], out: &mut Vec<u8>) {
    match escape {
        Escape::Default => write_default(bytes, out),
        Escape::Json => write_json(bytes, out),
    }
}

fn write_default(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        match byte {
            b'"' | b'\\' | ..=0x1f | 0x7f.. => {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                out.extend_from_slice(&[b'\\', b'x', DIGITS[high], DIGITS[low]]);
            }
            _ => out.push(byte),
        }
    }
}

/// Appends a value for JSON. Invalid UTF-8 becomes U+FFFD, so that the line is always valid JSON. nginx
/// copies such bytes unchanged.
fn write_json(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'"' => out.extend_from_slice(b"\\\""),
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                ..=0x1f | 0x7f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => out.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}
