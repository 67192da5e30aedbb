//! The labels of a series as the text format writes them, for example `code="200",route="a"`. A series keeps only this
//! text, because a scrape in the text format then copies it. The other formats read the values back from it.

use std::borrow::Cow;

/// Appends a label. A value may have any characters: backslashes, quotes and line ends are escaped.
pub(super) fn push(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push(',');
    }
    out.push_str(name);
    out.push_str("=\"");
    escape(out, value, true);
    out.push('"');
}

/// Appends an escaped text. The text format escapes quotes in label values, but not in the help of a metric.
pub(super) fn escape(out: &mut String, text: &str, quotes: bool) {
    let mut rest = text;
    let special = |character: char| match character {
        '"' => quotes,
        other => matches!(other, '\\' | '\n'),
    };
    while let Some(at) = rest.find(special) {
        let (plain, from) = rest.split_at(at);
        out.push_str(plain);
        out.push_str(match from.as_bytes().first() {
            Some(b'\n') => "\\n",
            Some(b'"') => "\\\"",
            _ => "\\\\",
        });
        // All three characters have one byte.
        rest = from.get(1..).unwrap_or_default();
    }
    out.push_str(rest);
}

/// The labels in a text that [`push`] has written.
pub(super) struct Labels<'t>(pub(super) &'t str);

impl<'t> Iterator for Labels<'t> {
    type Item = (&'t str, Cow<'t, str>);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.0.strip_prefix(',').unwrap_or(self.0);
        let (name, text) = text.split_once("=\"")?;
        let mut escaped = false;
        let end = text.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })?;
        self.0 = text.get(end + 1..)?;
        Some((name, unescape(text.get(..end)?)))
    }
}

fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn labels_are_read_back_as_they_were_written(values in prop::collection::vec("[a\\\\\"\n,={}ü]{0,8}", 0..5)) {
            let mut text = String::new();
            for value in &values {
                push(&mut text, "name", value);
            }
            prop_assert!(!text.contains('\n'));
            let read: Vec<String> = Labels(&text).map(|(_, value)| value.into_owned()).collect();
            prop_assert_eq!(read, values);
        }
    }
}
