//! Suggestions for unknown names.

/// Number of letters of a known name per allowed difference. In shorter names, one difference is allowed.
const LETTERS_PER_DIFFERENCE: usize = 4;

/// Returns the known name that is most like an unknown one, if one is similar enough. If several are equally similar,
/// this returns the first of them in alphabetical order.
pub fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let similar = known.filter_map(|known| Some((difference(name, known)?, known)));
    similar.min().map(|(_, known)| known)
}

/// Returns the number of letters in which two names differ, or `None` if too many differ for a suggestion.
pub(crate) fn difference(name: &str, known: &str) -> Option<usize> {
    let most = (known.len() / LETTERS_PER_DIFFERENCE).max(1);
    // The difference in length is a lower bound. Checking it first saves the comparison of very long names.
    if known.len().abs_diff(name.chars().count()) > most {
        return None;
    }
    let differences = differences(name, known);
    (differences <= most).then_some(differences)
}

/// Returns the number of letters to change, add, remove, or swap with the next one, to turn one name into the other.
fn differences(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let changed = last[j] + usize::from(a != b);
            let mut least = changed.min(row[j] + 1).min(last[j + 1] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_suggested_when_few_of_its_letters_are_wrong() {
        let known = ["host", "id", "path", "paths", "read_timeout", "url"];
        for (name, expected) in [
            ("ulr", Some("url")),
            ("uri", Some("url")),
            ("hots", Some("host")),
            ("hosts", Some("host")),
            ("pathe", Some("path")),
            ("raed_timeuot", Some("read_timeout")),
            ("read_time", Some("read_timeout")),
            ("read_tim", None),
            ("hst", Some("host")),
            ("hs", None),
            ("", None),
            ("é", None),
        ] {
            assert_eq!(nearest(name, known.into_iter()), expected, "{name}");
        }
    }

    #[test]
    fn differences_are_counted_in_letters() {
        for (left, right, expected) in [
            ("", "", 0),
            ("abc", "", 3),
            ("", "abc", 3),
            ("abc", "acb", 1),
            ("abcd", "badc", 2),
            ("äbc", "abc", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(differences(left, right), expected, "{left} {right}");
            assert_eq!(differences(right, left), expected, "{right} {left}");
        }
    }
}
