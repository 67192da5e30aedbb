//! Comparison of an output with the output that a page shows.

/// Matches any text within a line; alone on a line it matches any number of lines.
const ANY: char = '…';

/// Whether the output matches the shown output. White space at the end of lines is ignored.
pub(super) fn is_as_shown(shown: &str, output: &str) -> bool {
    let shown: Vec<&str> = shown.lines().map(str::trim_end).collect();
    let output: Vec<&str> = output.lines().map(str::trim_end).collect();
    lines_match(&shown, &output)
}

fn lines_match(shown: &[&str], output: &[&str]) -> bool {
    match shown.split_first() {
        None => output.is_empty(),
        Some((first, rest)) if first.trim().chars().eq([ANY]) => {
            (0..=output.len()).any(|left_out| lines_match(rest, &output[left_out..]))
        }
        Some((first, rest)) => output
            .split_first()
            .is_some_and(|(line, lines)| line_matches(first, line) && lines_match(rest, lines)),
    }
}

fn line_matches(shown: &str, line: &str) -> bool {
    let mut parts = shown.split(ANY);
    let first = parts.next().unwrap_or_default();
    let Some(mut line) = line.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return line.is_empty();
    };
    for part in parts {
        let Some(at) = line.find(part) else {
            return false;
        };
        line = &line[at + part.len()..];
    }
    line.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_compared_as_they_are() {
        assert!(is_as_shown("a\nb\n", "a\nb"));
        assert!(is_as_shown("a\n", "a  \r\n"));
        assert!(!is_as_shown("a\n", "a\nb\n"));
        assert!(!is_as_shown("a\nb\n", "a\n"));
        assert!(!is_as_shown("a\n", " a\n"));
    }

    #[test]
    fn dots_in_a_line_are_any_text() {
        assert!(is_as_shown("Date: …", "Date: Mon, 23 Nov 2026"));
        assert!(is_as_shown("a … c … e", "a b c d e"));
        assert!(!is_as_shown("a … c … e", "a b d e"));
        assert!(!is_as_shown("a…a", "a"));
        assert!(!is_as_shown("…, b", "a, b, c"));
    }

    #[test]
    fn a_line_of_dots_is_any_lines() {
        for output in ["a\nz", "a\nb\nz", "a\nb\nz\nc\nz"] {
            assert!(is_as_shown("a\n…\nz", output), "{output:?}");
        }
        assert!(!is_as_shown("a\n…\nz", "a\nb"));
        assert!(is_as_shown("…", ""));
    }
}
