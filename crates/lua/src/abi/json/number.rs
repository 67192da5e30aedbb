//! Numbers as C's `strtod` reads them and `printf` writes them.

use std::io::Write;

/// Whether this is a number only for `strtod`: a hexadecimal one, one with a leading zero, `inf` or `nan`.
pub(super) fn is_invalid(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    match text {
        [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
        [b'0'..=b'9', ..] => false,
        _ => starts_with(text, b"inf") || starts_with(text, b"nan"),
    }
}

fn starts_with(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Reads a number at the start of a text. Returns it with its length.
pub(super) fn read(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(text.first() == Some(&b'-'));
    let rest = &text[sign..];
    let (number, length) = unsigned(rest)?;
    let number = if sign == 1 { -number } else { number };
    Some((number, sign + length))
}

fn unsigned(text: &[u8]) -> Option<(f64, usize)> {
    for (word, number) in [
        (&b"infinity"[..], f64::INFINITY),
        (b"inf", f64::INFINITY),
        (b"nan", f64::NAN),
    ] {
        if starts_with(text, word) {
            return Some((number, word.len()));
        }
    }
    if let [b'0', b'x' | b'X', digits @ ..] = text
        && let Some((number, length)) = hexadecimal(digits)
    {
        return Some((number, 2 + length));
    }
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        let end = rest.iter().position(|byte| !byte.is_ascii_digit());
        end.unwrap_or(rest.len())
    };
    let mut length = digits(0);
    if length == 0 {
        return None;
    }
    if text.get(length) == Some(&b'.') {
        length += 1 + digits(length + 1);
    }
    if let Some(b'e' | b'E') = text.get(length) {
        let sign = usize::from(matches!(text.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    let number = std::str::from_utf8(&text[..length]).ok()?.parse().ok()?;
    Some((number, length))
}

/// Reads hexadecimal digits, with a fraction and a binary exponent.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let (mut number, mut at, mut digits, mut scale) = (0.0_f64, 0, 0, 0_i32);
    let mut has_point = false;
    while let Some(byte) = text.get(at) {
        match char::from(*byte).to_digit(16) {
            Some(digit) => {
                number = number * 16.0 + f64::from(digit);
                digits += 1;
                scale -= if has_point { 4 } else { 0 };
            }
            None if *byte == b'.' && !has_point => has_point = true,
            None => break,
        }
        at += 1;
    }
    if digits == 0 {
        return None;
    }
    if let Some(b'p' | b'P') = text.get(at) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let rest = &text[at + 1 + sign..];
        let end = rest.iter().position(|byte| !byte.is_ascii_digit());
        let end = end.unwrap_or(rest.len());
        if end > 0 {
            let exponent: i32 = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
            let is_negative = text[at + 1] == b'-';
            scale = scale.saturating_add(if is_negative { -exponent } else { exponent });
            at += 1 + sign + end;
        }
    }
    Some((number * f64::from(scale).exp2(), at))
}

/// Appends a number with so many significant digits (`%.14g`).
pub(super) fn write(number: f64, precision: usize, out: &mut Vec<u8>) {
    if number.fract() == 0.0 && number.abs() < 1e9 && precision >= 9 && number != 0.0 {
        let _ = write!(out, "{}", number as i64);
        return;
    }
    if number == 0.0 {
        let zero: &[u8] = if number.is_sign_negative() {
            b"-0"
        } else {
            b"0"
        };
        out.extend_from_slice(zero);
        return;
    }
    // The exponent after rounding decides about the form, as in C.
    let scientific = format!("{:.*e}", precision - 1, number);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let limit = i32::try_from(precision).unwrap_or(17);
    if (-4..limit).contains(&exponent) {
        let decimals = usize::try_from(limit - 1 - exponent).unwrap_or(0);
        let fixed = format!("{number:.decimals$}");
        out.extend_from_slice(without_zeros(&fixed).as_bytes());
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let digits = without_zeros(digits);
        let _ = write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
}

fn without_zeros(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}
