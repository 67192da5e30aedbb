//! The header in which an upstream tells what a response uses up: `video=2, image=1`.

use std::str;

/// Returns how much is used up of each of these names, in their order. Parts that name something else, or that are not
/// a name and a number, are ignored, as in Kong. If a name occurs twice, the last one counts.
pub(super) fn increments<'v>(lines: impl Iterator<Item = &'v [u8]>, names: &[&str]) -> Vec<i64> {
    let mut increments = vec![0; names.len()];
    let texts = lines.filter_map(|line| str::from_utf8(line).ok());
    for part in texts.flat_map(|line| line.split(',')) {
        let mut sides = part.split('=');
        let (Some(name), Some(number), None) = (sides.next(), sides.next(), sides.next()) else {
            continue;
        };
        let name = name.trim();
        let found = names
            .iter()
            .zip(&mut increments)
            .find(|(known, _)| **known == name);
        if let (Some((_, increment)), Some(number)) = (found, number_of(number.trim())) {
            *increment = number;
        }
    }
    increments
}

/// Reads a number. A part of a unit counts as a whole one, because counters have no fractions.
fn number_of(text: &str) -> Option<i64> {
    let is_number =
        |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    // Rust also reads words such as "inf".
    let number: f64 = text.bytes().all(is_number).then(|| text.parse().ok())??;
    // Far below the largest number that a counter holds.
    const MAX: f64 = (1_u64 << 53) as f64;
    let rounded = if number > 0.0 {
        number.ceil()
    } else {
        number.floor()
    };
    Some(rounded.clamp(-MAX, MAX) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[&str], expected: [i64; 2]) {
        let lines = lines.iter().map(|line| line.as_bytes());
        assert_eq!(increments(lines, &["video", "image"]), expected);
    }

    #[test]
    fn parts_are_names_with_numbers() {
        check(&["video=2, image = 3"], [2, 3]);
        check(&["video=2", "image=1,video=4"], [4, 1]);
        check(&["video=-1"], [-1, 0]);
        check(&["video=1.5,image=1e3"], [2, 1000]);
        check(&["video=1e300"], [1 << 53, 0]);
    }

    #[test]
    fn malformed_parts_are_ignored() {
        check(&["video=1=2,=3,video=x,video,VIDEO=1,audio=2,,="], [0, 0]);
        check(&["video=inf,image=nan"], [0, 0]);
        check(&[""], [0, 0]);
    }
}
