//! Checks and conversions of single setting values. Each error says what was expected.

use super::table::{Format, Kind, Setting};
use std::time::Duration;

/// Reason why a value does not fit its setting. The text begins with "expected".
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("expected a number")]
    Number,
    #[error("expected a number from {0} to {1}")]
    Range(u64, u64),
    #[error("expected on, off, true or false")]
    Boolean,
    #[error("expected on or off")]
    NgxBoolean,
    #[error("expected one of: {0}")]
    Enum(String),
    #[error("expected a size such as 512, 8k, 10m or 1g")]
    Size,
    #[error("expected a time such as 500ms, 30s, 1m or 60 (seconds)")]
    Duration,
    #[error("expected a whole number")]
    Count,
    #[error("expected a UUID")]
    Uuid,
    #[error("expected a number and a size, such as 4 8k")]
    Buffers,
    #[error("expected auto or a number from 1 to 1024")]
    Workers,
}

/// Checks one value against its setting in the table.
pub(crate) fn check(setting: &Setting, text: &str) -> Result<(), ValueError> {
    match setting.kind {
        Kind::Number => check_number(setting, text),
        Kind::Boolean => boolean(text).map(drop),
        Kind::NgxBoolean if matches!(text, "on" | "off") => Ok(()),
        Kind::NgxBoolean => Err(ValueError::NgxBoolean),
        Kind::Enum if setting.values.iter().any(|value| value == text) => Ok(()),
        Kind::Enum => Err(ValueError::Enum(setting.values.join(", "))),
        Kind::Array => Ok(()),
        Kind::String => match setting.format {
            None => Ok(()),
            Some(Format::Size) => size(text).map(drop),
            Some(Format::Duration) => duration(text).map(drop),
            Some(Format::Count) => count(text).map(drop),
            Some(Format::Uuid) => uuid::Uuid::try_parse(text)
                .map(drop)
                .map_err(|_| ValueError::Uuid),
            Some(Format::Buffers) => buffers(text).map(drop),
            Some(Format::Workers) => workers(text, 1).map(drop),
        },
    }
}

fn check_number(setting: &Setting, text: &str) -> Result<(), ValueError> {
    let number: f64 = text.parse().map_err(|_| ValueError::Number)?;
    if !number.is_finite() {
        return Err(ValueError::Number);
    }
    match setting.range {
        Some([least, most]) if !(least..=most).contains(&number) => {
            Err(ValueError::Range(least as u64, most as u64))
        }
        _ => Ok(()),
    }
}

pub(crate) fn boolean(text: &str) -> Result<bool, ValueError> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(ValueError::Boolean),
    }
}

pub(crate) fn count(text: &str) -> Result<u64, ValueError> {
    text.parse().map_err(|_| ValueError::Count)
}

/// Parses a size such as `512`, `8k`, `10m` or `1g` to bytes, as nginx does.
pub(crate) fn size(text: &str) -> Result<u64, ValueError> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| ValueError::Size)?;
    number.checked_mul(unit).ok_or(ValueError::Size)
}

/// Parses a time such as `500ms`, `30s`, `1m`, `2h` or `1d`. A number without a unit is in seconds. nginx's sums (`1m
/// 30s`) are not supported.
pub(crate) fn duration(text: &str) -> Result<Duration, ValueError> {
    let digits = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| ValueError::Duration)?;
    let milliseconds = match &text[digits..] {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(ValueError::Duration),
    };
    number
        .checked_mul(milliseconds)
        .map(Duration::from_millis)
        .ok_or(ValueError::Duration)
}

/// Parses `4 8k`: the number of buffers and the size of each.
pub(crate) fn buffers(text: &str) -> Result<(usize, usize), ValueError> {
    let mut words = text.split_whitespace();
    let number = words.next().and_then(|word| word.parse().ok());
    let size = words.next().and_then(|word| size(word).ok());
    match (number, size, words.next()) {
        (Some(number @ 1..=1024), Some(size @ 64..=16_777_216), None) => {
            Ok((number, size as usize))
        }
        _ => Err(ValueError::Buffers),
    }
}

/// Returns the number of workers. `auto` means `processors`.
pub(crate) fn workers(text: &str, processors: usize) -> Result<usize, ValueError> {
    if text == "auto" {
        return Ok(processors);
    }
    match text.parse() {
        Ok(number @ 1..=1024) => Ok(number),
        _ => Err(ValueError::Workers),
    }
}

/// Returns the parts of a list, without empty ones.
pub(crate) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_nginx_reads_them() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("8k"), Ok(8192));
        assert_eq!(size("10M"), Ok(10 << 20));
        assert_eq!(size("1g"), Ok(1 << 30));
        for wrong in [
            "",
            "k",
            "1.5m",
            "-1",
            "8kb",
            "99999999999999999999",
            "99999999999g",
        ] {
            assert_eq!(size(wrong), Err(ValueError::Size), "{wrong}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("60"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "1x", "-1s", "1 s"] {
            assert_eq!(duration(wrong), Err(ValueError::Duration), "{wrong}");
        }
    }

    #[test]
    fn workers_are_auto_or_a_positive_number() {
        assert_eq!(workers("auto", 3), Ok(3));
        assert_eq!(workers("2", 3), Ok(2));
        for wrong in ["0", "-1", "many", "4096"] {
            assert_eq!(workers(wrong, 3), Err(ValueError::Workers), "{wrong}");
        }
    }
}
