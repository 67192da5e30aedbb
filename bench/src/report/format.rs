//! Formatting of numbers for people.

/// Formats with three significant digits, or with all digits before the decimal point if there are more: `0.0123`,
/// `1.23`, `45.6`, `1,234`.
pub fn number(value: f64) -> String {
    with_decimals(value, decimals(value))
}

/// Formats with as many decimals as [`number`] uses for `like`, but with at least one significant digit.
pub fn number_like(value: f64, like: f64) -> String {
    let one_digit = decimals(value).saturating_sub(2);
    with_decimals(value, decimals(like).max(one_digit))
}

/// Formats a tick of an axis, without trailing zeros.
pub fn tick(value: f64) -> String {
    // A tick is a multiple of its step, and steps such as 0.1 are not exact in binary.
    let rounded: f64 = format!("{value:.9e}").parse().unwrap_or(value);
    let exact = format!("{rounded}");
    let decimals = exact.split_once('.').map_or(0, |(_, rest)| rest.len());
    with_decimals(rounded, decimals.min(9))
}

/// Formats a ratio as a change in percent with a sign: `+5.2 %`.
pub fn percent_change(ratio: f64) -> String {
    if !ratio.is_finite() {
        return if ratio.is_nan() { "–" } else { "+∞" }.into();
    }
    let change = (ratio - 1.0) * 100.0;
    let decimals = if change.abs() < 10.0 { 1 } else { 0 };
    format!(
        "{}{} %",
        if change < 0.0 { "-" } else { "+" },
        with_decimals(change.abs(), decimals)
    )
}

fn decimals(value: f64) -> usize {
    let size = value.abs();
    if size == 0.0 || size >= 100.0 || !size.is_finite() {
        return 0;
    }
    // For example 0.0123: its first significant digit is the second decimal, so three digits need four decimals.
    (2.0 - size.log10().floor()).clamp(0.0, 9.0) as usize
}

fn with_decimals(value: f64, decimals: usize) -> String {
    if value.is_nan() {
        return "–".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "-∞" }.into();
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let zero = text.chars().all(|digit| matches!(digit, '0' | '.'));
    let sign = if value < 0.0 && !zero { "-" } else { "" };
    format!("{sign}{}{rest}", grouped(whole))
}

/// Groups digits: `1234567` becomes `1,234,567`.
fn grouped(digits: &str) -> String {
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (0.01234, "0.0123"),
            (1.0, "1.00"),
            (45.678, "45.7"),
            (999.6, "1,000"),
            (1234567.8, "1,234,568"),
            (-1234.0, "-1,234"),
            (-0.0, "0"),
            (f64::NAN, "–"),
            (f64::INFINITY, "∞"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(number_like(0.4567, 12.3), "0.5");
        assert_eq!(number_like(0.031, 450.0), "0.03");
    }

    #[test]
    fn ticks_have_no_zeros_at_the_end() {
        assert_eq!(tick(0.1 + 0.2), "0.3");
        assert_eq!(tick(2.0), "2");
        assert_eq!(tick(100000.0), "100,000");
    }

    #[test]
    fn changes_have_a_sign() {
        assert_eq!(percent_change(1.0523), "+5.2 %");
        assert_eq!(percent_change(0.75), "-25 %");
        assert_eq!(percent_change(f64::INFINITY), "+∞");
    }
}
