//! Numbers as Lua writes them (`%.14g`), and so as Kong shows them in headers and templates.

use compact_str::{CompactString, format_compact};

/// Digits that Lua writes of a number.
const PRECISION: i32 = 14;
/// Whole numbers below this have at most [`PRECISION`] digits and are written as integers.
const WHOLE: f64 = 1e14;

/// Passes the text of a whole number on.
#[inline]
pub(crate) fn with_whole(number: u64, write: impl FnOnce(&[u8])) {
    // The cast of the constant is exact.
    match number < WHOLE as u64 {
        true => write(itoa::Buffer::new().format(number).as_bytes()),
        false => write(text(number as f64).as_bytes()),
    }
}

pub(crate) fn text(number: f64) -> CompactString {
    if number.is_nan() {
        return CompactString::const_new("nan");
    }
    if number.fract() == 0.0 && number.abs() < WHOLE && number.to_bits() != (-0.0_f64).to_bits() {
        // The cast is exact.
        return CompactString::new(itoa::Buffer::new().format(number as i64));
    }
    let scientific = format_compact!("{number:.*e}", PRECISION as usize - 1);
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..PRECISION).contains(&exponent) {
        let decimals = usize::try_from(PRECISION - 1 - exponent).unwrap_or_default();
        let fixed = format_compact!("{number:.decimals$}");
        return trimmed(&fixed).into();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format_compact!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
}

fn trimmed(number: &str) -> &str {
    if !number.contains('.') {
        return number;
    }
    number.trim_end_matches('0').trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_lua_writes_them() {
        // Computed with `string.format("%.14g", …)`.
        let cases = [
            (0.0, "0"),
            (99.0, "99"),
            (1.5, "1.5"),
            (0.5, "0.5"),
            (0.1 + 0.2, "0.3"),
            (1e13, "10000000000000"),
            (99_999_999_999_999.0, "99999999999999"),
            (1e14, "1e+14"),
            (123_456_789_012_345_680.0, "1.2345678901235e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (2.5e-7, "2.5e-07"),
            (1e300, "1e+300"),
        ];
        for (number, expected) in cases {
            assert_eq!(text(number), expected);
            if number.fract() == 0.0 && number < 1e18 {
                let mut written = Vec::new();
                with_whole(number as u64, |text| written.extend_from_slice(text));
                assert_eq!(written, expected.as_bytes());
            }
        }
    }
}
