//! Points in time as history shows and takes them: RFC 3339, and seconds since 1970.

const DAY: i64 = 86_400;

/// `2026-02-03T04:05:06.789Z`.
pub(crate) fn rfc3339(ms: u64) -> String {
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (days, of_day) = (seconds / DAY as u64, seconds % DAY as u64);
    let (year, month, day) = civil(days as i64);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Milliseconds since 1970 of either form; finer fractions are cut off, and what was before 1970 is 1970.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let ms = match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() => (seconds * 1000.0).round() as i64,
        Ok(_) => return None,
        Err(_) => parse_rfc3339(text)?,
    };
    Some(u64::try_from(ms).unwrap_or(0))
}

fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let (ms, zone) = fraction(rest)?;
    let days = days(year, month, day)?;
    // A leap second counts as the one after it.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days * DAY + hour * 3600 + minute * 60 + second - offset(zone)?;
    Some(seconds * 1000 + ms)
}

/// Numbers of so many digits each, between separators.
fn numbers(text: &str, separator: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut found = [0; 3];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = is_number.then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(found)
}

/// Milliseconds, and what follows them.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(rest) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let (digits, zone) = rest.split_at(end);
    let thousandths = format!("{:0<3}", digits.get(..digits.len().min(3))?);
    (!digits.is_empty()).then(|| Some((thousandths.parse().ok()?, zone)))?
}

/// Seconds east of Greenwich.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let [hours, minutes, _] = numbers(&format!("{rest}:00"), ':', [2, 2, 2])?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Days since 1970 of a date that exists.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) {
        return None;
    }
    // Years begin in March, so that a leap day is the last of its year.
    let year = if month < 3 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year
            - 719_468;
    (civil(days).2 == day).then_some(days)
}

/// Year, month and day of a day since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    const CYCLE: i64 = 146_097;
    let days = days + 719_468;
    let (cycle, of_cycle) = (days.div_euclid(CYCLE), days.rem_euclid(CYCLE));
    let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = (month + 2) % 12 + 1;
    let year = cycle * 400 + year + i64::from(month < 3);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_and_read_in_both_forms() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_001, "2000-02-29T00:00:00.001Z"),
            (1_798_761_599_999, "2026-12-31T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
            assert_eq!(parse(text), Some(ms));
            assert_eq!(parse(&format!("{}.{:03}", ms / 1000, ms % 1000)), Some(ms));
        }
        for (text, ms) in [
            ("2000-01-01T00:00:00+01:30", 946_679_400_000),
            ("2000-01-01 00:00:00.5-00:00", 946_684_800_500),
            ("2000-01-01t00:00:00.123456z", 946_684_800_123),
            ("1960-01-01T00:00:00Z", 0),
            ("-5", 0),
            ("946684800", 946_684_800_000),
        ] {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_is_read_as_it_is_shown() {
        for day in 0..146_097 {
            let ms = day * DAY as u64 * 1000;
            assert_eq!(parse(&rfc3339(ms)), Some(ms));
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "inf",
            "2000-01-01",
            "2000-01-01T00:00:00",
            "2000-02-30T00:00:00Z",
            "2001-02-29T00:00:00Z",
            "2000-13-01T00:00:00Z",
            "2000-00-01T00:00:00Z",
            "2000-01-00T00:00:00Z",
            "2000-01-01T24:00:00Z",
            "2000-01-01T00:00:00.Z",
            "2000-01-01T00:00:00+1:00",
            "2000-01-01T00:00:00ü",
            "20ü0-01-01T00:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
