//! Finds the elements of a JSON document's collections without parsing them. The loader can then recognise an element
//! of the previous document by its text, and only has to read the bytes.
//!
//! Only the two outermost levels are checked here. The inside of an element is checked when the element is parsed.

use super::positions::Token;
use compact_str::CompactString;

/// Maximum number of fields of an object that [`split`] accepts. It compares each name with all others, so larger
/// objects are left to the full parser.
const MAX_FIELDS: usize = 128;

/// A top-level field of a document.
#[derive(Debug, PartialEq)]
pub(super) enum Field<'a> {
    /// The texts of an array's elements.
    Array(Vec<&'a [u8]>),
    Other(&'a [u8]),
}

/// Splits an object into its top-level fields. Returns `None` if the text is malformed at these levels, is not an
/// object, or has more than [`MAX_FIELDS`] fields. Also returns `None` for a repeated name, because the full parser
/// decides which value counts.
pub(super) fn split(text: &[u8]) -> Option<Vec<(CompactString, Field<'_>)>> {
    let mut scanner = Scanner { text, at: 0 };
    let mut fields: Vec<(CompactString, Field<'_>)> = Vec::new();
    scanner.members(b'{', b'}', |scanner| {
        let name = scanner.name()?;
        let field = match scanner.peek()? {
            b'[' => Field::Array(scanner.elements()?),
            _ => Field::Other(scanner.value()?),
        };
        if fields.len() == MAX_FIELDS || fields.iter().any(|(other, _)| *other == name) {
            return None;
        }
        fields.push((name, field));
        Some(())
    })?;
    scanner.peek().is_none().then_some(fields)
}

/// Returns the top-level fields of an object as texts, in order, including repeated names. Returns `None` if the text
/// is malformed at this level or is not an object.
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

/// Reads the tokens of a text that the parser has already accepted, for callers that need only their lines.
pub(super) struct Tokens<'a> {
    scanner: Scanner<'a>,
    /// Line of the last token, counted from 1.
    line: u64,
    /// Byte offset of the last token.
    begin: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self {
            scanner: Scanner { text, at: 0 },
            line: 1,
            begin: 0,
        }
    }

    /// Returns the next token and its line, or `None` at the end of the text.
    pub(super) fn next(&mut self) -> Option<(u64, Token)> {
        while matches!(self.scanner.peek()?, b',' | b':') {
            self.scanner.at += 1;
        }
        let begin = self.scanner.at;
        let passed = &self.scanner.text[self.begin..begin];
        self.line += passed
            .iter()
            .map(|byte| u64::from(*byte == b'\n'))
            .sum::<u64>();
        self.begin = begin;
        let token = match self.scanner.text[begin] {
            b'"' => {
                self.scanner.skip_string()?;
                let text = self.scanner.text.get(begin..self.scanner.at)?;
                Token::Text(serde_json::from_slice(text).ok()?)
            }
            bracket @ (b'{' | b'[' | b'}' | b']') => {
                self.scanner.at += 1;
                match bracket {
                    b'{' => Token::Map,
                    b'[' => Token::List,
                    _ => Token::End,
                }
            }
            _ => {
                self.scanner.skip_word();
                Token::Other
            }
        };
        Some((self.line, token))
    }
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Returns the next byte that is not white space, without consuming it.
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

    /// Reads `open`, members separated by commas, and `close`.
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

    /// Reads the text of a value: a string, everything up to the matching bracket, or a bare word.
    fn value(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        let start = self.at;
        match self.text[start] {
            b'"' => self.skip_string()?,
            b'{' | b'[' => self.skip_nested()?,
            _ => self.skip_word(),
        }
        // If the word is empty, the value is missing.
        (self.at > start).then(|| &self.text[start..self.at])
    }

    fn skip_word(&mut self) {
        let ends = |byte: &u8| CLASSES[usize::from(*byte)] & ENDS_WORD != 0;
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(ends).unwrap_or(rest.len());
    }

    fn skip_string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            self.at += plain_length(self.text.get(self.at..)?);
            match self.text.get(self.at)? {
                b'"' => break,
                // Skip the backslash and the character that it escapes.
                _ => self.at += 2,
            }
        }
        self.at += 1;
        Some(())
    }

    /// Skips an array or object. Any closing bracket closes any opening one. A mismatch is found when the element is
    /// parsed.
    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            let byte = *self.text.get(self.at)?;
            match CLASSES[usize::from(byte)] & (QUOTE | OPENS | CLOSES) {
                QUOTE => {
                    self.skip_string()?;
                    continue;
                }
                OPENS => depth += 1,
                CLOSES => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

const QUOTE: u8 = 1;
const OPENS: u8 = 2;
const CLOSES: u8 = 4;
const ENDS_WORD: u8 = 8;

/// The classes of each byte outside of strings. One table lookup replaces several comparisons.
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    classes[b'"' as usize] = QUOTE | ENDS_WORD;
    classes[b'{' as usize] = OPENS | ENDS_WORD;
    classes[b'[' as usize] = OPENS | ENDS_WORD;
    classes[b'}' as usize] = CLOSES | ENDS_WORD;
    classes[b']' as usize] = CLOSES | ENDS_WORD;
    classes[b',' as usize] = ENDS_WORD;
    classes[b':' as usize] = ENDS_WORD;
    classes[b' ' as usize] = ENDS_WORD;
    classes[b'\n' as usize] = ENDS_WORD;
    classes[b'\r' as usize] = ENDS_WORD;
    classes[b'\t' as usize] = ENDS_WORD;
    classes
};

/// Returns the number of bytes before the first quote or backslash. Compares eight bytes at a time.
fn plain_length(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zeros(word ^ repeated(b'"')) | zeros(word ^ repeated(b'\\'));
        if found != 0 {
            return 8 * index + found.trailing_zeros() as usize / 8;
        }
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\');
    8 * words.len() + rest.iter().position(is_special).unwrap_or(rest.len())
}

const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

fn repeated(byte: u8) -> u64 {
    EACH_BYTE * u64::from(byte)
}

/// Sets the highest bit of the first zero byte of a word. The bits of later bytes are meaningless.
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(EACH_BYTE) & !word & EACH_BYTE << 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_whatever_they_contain() {
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
    fn other_texts_are_left_to_the_parser() {
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

    #[test]
    fn strings_end_at_their_unescaped_quote() {
        for length in 0..40 {
            let plain = "\u{e9}a\u{1}\u{7f}#]!".repeat(length);
            for special in ["", "\\\"", "\\\\", "\\u0022"] {
                let text = format!("{{\"a\":[{{\"{plain}{special}\":\"{special}{plain}\"}}]}}");
                let element = &text[6..text.len() - 2];
                let fields = split(text.as_bytes());
                let expected = Field::Array(vec![element.as_bytes()]);
                assert_eq!(fields, Some(vec![("a".into(), expected)]), "{text}");
            }
        }
    }
}
