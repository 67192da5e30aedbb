//! Finds the elements of a JSON document's collections without building them, so that an element that was loaded
//! before is recognised by its text and costs no more than reading it.
//!
//! Only the outermost two levels are checked here; what is inside an element is checked when it is parsed.

use compact_str::CompactString;

/// Objects with more fields are left to the parser, which finds repeated names faster.
const MOST_FIELDS: usize = 128;

/// A top-level field of a document.
#[derive(Debug, PartialEq)]
pub(super) enum Field<'a> {
    /// The texts of an array's elements.
    Array(Vec<&'a [u8]>),
    Other(&'a [u8]),
}

/// The top-level fields; `None` unless the text is an object as far as this looks. A repeated name also gives `None`:
/// which of the two counts is for the real parser to say.
pub(super) fn split(text: &[u8]) -> Option<Vec<(CompactString, Field<'_>)>> {
    let mut scanner = Scanner { text, at: 0 };
    let mut fields: Vec<(CompactString, Field<'_>)> = Vec::new();
    scanner.members(b'{', b'}', |scanner| {
        let name = scanner.name()?;
        let field = match scanner.peek()? {
            b'[' => Field::Array(scanner.elements()?),
            _ => Field::Other(scanner.value()?),
        };
        if fields.len() == MOST_FIELDS || fields.iter().any(|(other, _)| *other == name) {
            return None;
        }
        fields.push((name, field));
        Some(())
    })?;
    scanner.peek().is_none().then_some(fields)
}

/// The top-level fields of an object as texts, in their order, repeated names included.
pub(super) fn fields(text: &[u8]) -> Option<Vec<(CompactString, &[u8])>> {
    let mut scanner = Scanner { text, at: 0 };
    let mut fields = Vec::new();
    scanner.members(b'{', b'}', |scanner| {
        let name = scanner.name()?;
        fields.push((name, scanner.value()?));
        Some(())
    })?;
    scanner.peek().is_none().then_some(fields)
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// The next byte that is no white space, without taking it.
    fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    fn take(&mut self, expected: u8) -> Option<()> {
        (self.peek()? == expected).then(|| self.at += 1)
    }

    /// Reads `open member, member close`.
    fn members(
        &mut self,
        open: u8,
        close: u8,
        mut member: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.take(open)?;
        if self.peek()? == close {
            return self.take(close);
        }
        loop {
            member(self)?;
            match self.peek()? {
                b',' => self.at += 1,
                byte if byte == close => return self.take(close),
                _ => return None,
            }
        }
    }

    fn name(&mut self) -> Option<CompactString> {
        if self.peek()? != b'"' {
            return None;
        }
        let name = serde_json::from_slice(self.value()?).ok()?;
        self.take(b':')?;
        Some(name)
    }

    fn elements(&mut self) -> Option<Vec<&'a [u8]>> {
        let mut elements = Vec::new();
        self.members(b'[', b']', |scanner| {
            elements.push(scanner.value()?);
            Some(())
        })?;
        Some(elements)
    }

    /// The text of a value: to the end of its string, the bracket that closes it, or what ends a bare word.
    fn value(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        let start = self.at;
        match self.text[start] {
            b'"' => self.skip_string()?,
            b'{' | b'[' => self.skip_nested()?,
            _ => self.skip_word(),
        }
        // An empty word is a missing value.
        (self.at > start).then(|| &self.text[start..self.at])
    }

    fn skip_word(&mut self) {
        let rest = &self.text[self.at..];
        let ends = |byte: &u8| {
            matches!(
                byte,
                b',' | b'}' | b']' | b':' | b'"' | b'{' | b'[' | b' ' | b'\n' | b'\r' | b'\t'
            )
        };
        self.at += rest.iter().position(ends).unwrap_or(rest.len());
    }

    fn skip_string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            let rest = self.text.get(self.at..)?;
            let stop = rest
                .iter()
                .position(|&byte| byte == b'"' || byte == b'\\')?;
            self.at += stop + 1;
            if rest[stop] == b'"' {
                return Some(());
            }
            self.at += 1;
        }
    }

    /// Brackets are counted without regard to their kind: a mismatch is found when the element is parsed.
    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            let rest = self.text.get(self.at..)?;
            let stop = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']'))?;
            self.at += stop;
            match rest[stop] {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                _ => depth -= 1,
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_whatever_is_in_them() {
        let text = br#" {"a" : [ {"x":"]}\"\\"}, [1,[2]] ,"s,]", 3.5 ,null], "b\u0063":{"y":[1]}, "c":"t" } "#;
        let fields = split(text).expect("an object");
        let expected: Vec<&[u8]> = vec![
            br#"{"x":"]}\"\\"}"#,
            b"[1,[2]]",
            br#""s,]""#,
            b"3.5",
            b"null",
        ];
        assert_eq!(fields[0], ("a".into(), Field::Array(expected)));
        assert_eq!(fields[1], ("bc".into(), Field::Other(br#"{"y":[1]}"#)));
        assert_eq!(fields[2], ("c".into(), Field::Other(br#""t""#)));
        assert_eq!(split(b"{}"), Some(vec![]));
        assert_eq!(
            split(br#"{"a":[]}"#),
            Some(vec![("a".into(), Field::Array(vec![]))])
        );
    }

    #[test]
    fn what_is_no_plain_object_is_left_to_the_parser() {
        for text in [
            "",
            "[]",
            "{",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":[1 2]}"#,
            r#"{"a":[1,]}"#,
            r#"{"a":[,]}"#,
            r#"{"a":1}{}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":"x}"#,
            r#"{a:1}"#,
            r#"{"a":["\"#,
            "{\"a\":[\"x\\\"",
        ] {
            assert_eq!(split(text.as_bytes()), None, "{text}");
        }
    }
}
