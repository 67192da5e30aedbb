//! JSON for Lua, as lua-cjson reads and writes it. Reading makes a list of tokens, of which Lua builds tables. Writing
//! appends the parts that Lua names to a text. So no function of this crate touches a table.

use super::{Cx, FOUND, MAX_KEPT_BUFFER, NONE, REFUSED, length};
use crate::vm::{self, MAX_GROWTH};
use model::Value;
use std::io::Write;

super::numbered! {
    pub(super) enum Token {
        End = "end",
        Null = "null",
        True = "true",
        False = "false",
        Number = "number",
        String = "string",
        ObjectStart = "object_start",
        ObjectEnd = "object_end",
        ArrayStart = "array_start",
        ArrayEnd = "array_end",
        /// The name of a member; its value follows.
        Name = "name",
    }
}

impl Tokens {
    /// Frees buffers that are larger than usual.
    pub(super) fn shrink(&mut self) {
        let Self {
            tokens, texts, out, ..
        } = self;
        if tokens.capacity() + texts.capacity() + out.capacity() > MAX_KEPT_BUFFER {
            (*tokens, *texts, *out) = Default::default();
        }
    }

    /// Whether the tokens take so much memory that Lua could not build tables of them.
    fn are_too_many(&self) -> bool {
        self.tokens.len() > MAX_TOKENS
    }
}

/// The tokens of the text that was read last, and the text that is being written.
#[derive(Default)]
pub(super) struct Tokens {
    tokens: Vec<(Token, f64, usize, usize)>,
    texts: Vec<u8>,
    out: Vec<u8>,
    /// Significant digits of the numbers that are written.
    precision: usize,
    escapes_slash: bool,
}

/// Maximum depth of nested arrays and objects, also if a snippet allows more: Lua builds the tables recursively.
const MAX_DEPTH: usize = 10_000;

/// Maximum number of tokens. Each takes 8 bytes in a table of Lua at the least.
const MAX_TOKENS: usize = MAX_GROWTH / 8;

/// Numbers with a form that JSON does not have are read, such as `0x10` and `nan`.
const INVALID_NUMBERS: i32 = 1 << 30;
/// `/` is written as `\/`.
const ESCAPE_SLASH: i32 = 1 << 8;

pub(super) fn value(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(text).ok()
}

/// Reads a text. `settings` is the maximum depth, with the bit [`INVALID_NUMBERS`].
pub(super) fn read(cx: &mut Cx, settings: i32, text: &[u8]) -> i32 {
    let mut tokens = std::mem::take(&mut cx.tokens);
    tokens.tokens.clear();
    tokens.texts.clear();
    let depth = usize::try_from(settings & !INVALID_NUMBERS).unwrap_or(0);
    let mut reader = Reader {
        text,
        at: 0,
        max_depth: depth.min(MAX_DEPTH),
        invalid_numbers: settings & INVALID_NUMBERS != 0,
        tokens: &mut tokens,
    };
    let result = reader.document();
    cx.tokens = tokens;
    match result {
        Ok(()) => FOUND,
        Err(error) => {
            if cx.tokens.are_too_many() {
                vm::stop_for_memory();
            }
            cx.refuse(error);
            REFUSED
        }
    }
}

/// Returns a token, counted from 0: its kind as the result, and its number or text.
pub(super) fn token(cx: &mut Cx, at: i32) -> i32 {
    let found = usize::try_from(at).ok();
    let found = found.and_then(|at| cx.tokens.tokens.get(at).copied());
    let Some((kind, number, start, end)) = found else {
        return Token::End as i32;
    };
    match kind {
        Token::Number => cx.number = number,
        Token::String | Token::Name => {
            let text = &cx.tokens.texts[start..end];
            (cx.ptr, cx.len) = (text.as_ptr(), length(text));
        }
        _ => {}
    }
    kind as i32
}

/// A reader of a text. It needs no recursion, so no text can exhaust the stack.
struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    max_depth: usize,
    invalid_numbers: bool,
    tokens: &'t mut Tokens,
}

/// What follows in the text.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Value,
    /// A value, or the end of an array that has just begun.
    FirstValue,
    /// A name, or the end of an object that has just begun.
    FirstName,
    Name,
    /// What follows a value: a comma, or the end of the innermost array or object.
    After,
}

/// An error of the text at a position.
struct Wrong {
    found: &'static str,
    at: usize,
}

impl Wrong {
    fn expected(&self, what: &str) -> String {
        format!(
            "Expected {what} but found {} at character {}",
            self.found,
            self.at + 1
        )
    }
}

impl Reader<'_> {
    fn document(&mut self) -> Result<(), String> {
        if matches!(self.text, [0, _, ..] | [_, 0, ..]) {
            return Err("JSON parser does not support UTF-16 or UTF-32".to_owned());
        }
        // Whether each open array or object is an object.
        let mut open: Vec<bool> = Vec::new();
        let mut next = Next::Value;
        loop {
            if self.tokens.are_too_many() {
                return Err("not enough memory".to_owned());
            }
            self.blanks();
            let byte = self.text.get(self.at).copied();
            next = match (next, byte) {
                (Next::FirstValue, Some(b']')) => self.close(&mut open, Token::ArrayEnd),
                (Next::FirstName, Some(b'}')) => self.close(&mut open, Token::ObjectEnd),
                (Next::Value | Next::FirstValue, Some(b'{')) => {
                    self.open(&mut open, Token::ObjectStart)?
                }
                (Next::Value | Next::FirstValue, Some(b'[')) => {
                    self.open(&mut open, Token::ArrayStart)?
                }
                (Next::Value | Next::FirstValue, _) => {
                    self.scalar().map_err(|wrong| wrong.expected("value"))?;
                    Next::After
                }
                (Next::FirstName | Next::Name, Some(b'"')) => {
                    let name = self.string(Token::Name);
                    name.map_err(|wrong| wrong.expected("object key string"))?;
                    self.blanks();
                    if self.text.get(self.at) != Some(&b':') {
                        return Err(self.found().expected("colon"));
                    }
                    self.at += 1;
                    Next::Value
                }
                (Next::FirstName | Next::Name, _) => {
                    return Err(self.found().expected("object key string"));
                }
                (Next::After, byte) => match (open.last(), byte) {
                    (Some(false), Some(b',')) => self.skip(Next::Value),
                    (Some(true), Some(b',')) => self.skip(Next::Name),
                    (Some(false), Some(b']')) => self.close(&mut open, Token::ArrayEnd),
                    (Some(true), Some(b'}')) => self.close(&mut open, Token::ObjectEnd),
                    (Some(false), _) => return Err(self.found().expected("comma or array end")),
                    (Some(true), _) => return Err(self.found().expected("comma or object end")),
                    // A NUL ends the text, as in C.
                    (None, None | Some(0)) => return Ok(()),
                    (None, _) => return Err(self.found().expected("the end")),
                },
            };
        }
    }

    fn skip(&mut self, next: Next) -> Next {
        self.at += 1;
        next
    }

    fn open(&mut self, open: &mut Vec<bool>, token: Token) -> Result<Next, String> {
        self.at += 1;
        let is_object = token == Token::ObjectStart;
        open.push(is_object);
        if open.len() > self.max_depth {
            let (depth, at) = (open.len(), self.at);
            return Err(format!(
                "Found too many nested data structures ({depth}) at character {at}"
            ));
        }
        self.push(token);
        Ok(match is_object {
            true => Next::FirstName,
            false => Next::FirstValue,
        })
    }

    fn close(&mut self, open: &mut Vec<bool>, token: Token) -> Next {
        self.at += 1;
        open.pop();
        self.push(token);
        Next::After
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    fn push(&mut self, kind: Token) {
        self.tokens.tokens.push((kind, 0.0, 0, 0));
    }

    fn wrong(&self, found: &'static str) -> Wrong {
        Wrong { found, at: self.at }
    }

    /// Names the token at the position, which is not the expected one. A token with an error of its own is named by it.
    fn found(&mut self) -> Wrong {
        let at = self.at;
        let found = match self.text.get(at) {
            None | Some(0) => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b',') => "T_COMMA",
            Some(b':') => "T_COLON",
            Some(_) => match self.scalar() {
                Err(wrong) => return wrong,
                Ok(()) => match self.tokens.tokens.last().map(|token| token.0) {
                    Some(Token::String) => "T_STRING",
                    Some(Token::Number) => "T_NUMBER",
                    Some(Token::Null) => "T_NULL",
                    _ => "T_BOOLEAN",
                },
            },
        };
        Wrong { found, at }
    }

    fn scalar(&mut self) -> Result<(), Wrong> {
        let rest = &self.text[self.at..];
        match rest.first() {
            None | Some(0 | b'{' | b'}' | b'[' | b']' | b',' | b':') => return Err(self.found()),
            Some(b'"') => return self.string(Token::String),
            Some(b'-' | b'0'..=b'9') => return self.number(),
            Some(_) => {}
        }
        let words: [(&[u8], Token); 3] = [
            (b"true", Token::True),
            (b"false", Token::False),
            (b"null", Token::Null),
        ];
        for (word, token) in words {
            if rest.starts_with(word) {
                self.at += word.len();
                self.push(token);
                return Ok(());
            }
        }
        match rest {
            [b'i' | b'I' | b'n' | b'N', ..] if self.invalid_numbers && number::is_invalid(rest) => {
                self.number()
            }
            _ => Err(self.wrong("invalid token")),
        }
    }

    fn number(&mut self) -> Result<(), Wrong> {
        let rest = &self.text[self.at..];
        if !self.invalid_numbers && number::is_invalid(rest) {
            return Err(self.wrong("invalid number"));
        }
        let Some((number, length)) = number::read(rest) else {
            return Err(self.wrong("invalid number"));
        };
        self.at += length;
        self.tokens.tokens.push((Token::Number, number, 0, 0));
        Ok(())
    }

    fn string(&mut self, kind: Token) -> Result<(), Wrong> {
        let start = self.tokens.texts.len();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let length = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | 0));
            let length = length.unwrap_or(rest.len());
            self.tokens.texts.extend_from_slice(&rest[..length]);
            self.at += length;
            match self.text.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                _ => return Err(self.wrong("unexpected end of string")),
            }
        }
        self.at += 1;
        let end = self.tokens.texts.len();
        self.tokens.tokens.push((kind, 0.0, start, end));
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Wrong> {
        let plain = match self.text.get(self.at + 1) {
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                let Some((letter, length)) = unicode(&self.text[self.at..]) else {
                    return Err(self.wrong("invalid unicode escape code"));
                };
                self.at += length;
                let mut buffer = [0; 4];
                let text = letter.encode_utf8(&mut buffer);
                self.tokens.texts.extend_from_slice(text.as_bytes());
                return Ok(());
            }
            _ => return Err(self.wrong("invalid escape code")),
        };
        self.at += 2;
        self.tokens.texts.push(plain);
        Ok(())
    }
}

/// Returns the character of an escape such as `\u00e4`, or of a pair of surrogates, and the escape's length.
fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let hex = |at: usize| {
        let digits = text.get(at..at + 4)?;
        digits.iter().try_fold(0, |code, digit| {
            Some(code * 16 + char::from(*digit).to_digit(16)?)
        })
    };
    let code: u32 = hex(2)?;
    if code & 0xf800 != 0xd800 {
        return Some((char::from_u32(code)?, 6));
    }
    let is_pair = code & 0x400 == 0 && text.get(6..8) == Some(b"\\u");
    let low = is_pair.then(|| hex(8)).flatten()?;
    if low & 0xfc00 != 0xdc00 {
        return None;
    }
    let code = 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff);
    Some((char::from_u32(code)?, 12))
}

/// Begins a text. `settings` is the number of significant digits, with the bit [`ESCAPE_SLASH`].
pub(super) fn begin(cx: &mut Cx, settings: i32) -> i32 {
    cx.tokens.out.clear();
    cx.tokens.escapes_slash = settings & ESCAPE_SLASH != 0;
    cx.tokens.precision = usize::try_from(settings & 0xff).unwrap_or(14).clamp(1, 17);
    FOUND
}

pub(super) fn raw(cx: &mut Cx, text: &[u8]) -> i32 {
    cx.tokens.out.extend_from_slice(text);
    stop_if_long(cx)
}

/// Stops the slice if the text is longer than what Lua could take.
fn stop_if_long(cx: &mut Cx) -> i32 {
    if cx.tokens.out.len() > MAX_GROWTH {
        cx.tokens.out.clear();
        vm::stop_for_memory();
    }
    FOUND
}

/// Cuts the text to a length, or returns the length if `length` is negative.
pub(super) fn cut(cx: &mut Cx, length: i32) -> i32 {
    if let Ok(length) = usize::try_from(length) {
        cx.tokens.out.truncate(length);
    }
    i32::try_from(cx.tokens.out.len()).unwrap_or(i32::MAX)
}

/// Appends a string. Bytes that are no UTF-8 stay as they are, as in lua-cjson.
pub(super) fn string(cx: &mut Cx, text: &[u8]) -> i32 {
    let escapes_slash = cx.tokens.escapes_slash;
    let out = &mut cx.tokens.out;
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' if escapes_slash => out.extend_from_slice(b"\\/"),
            8 => out.extend_from_slice(b"\\b"),
            9 => out.extend_from_slice(b"\\t"),
            10 => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            13 => out.extend_from_slice(b"\\r"),
            0..32 | 127 => {
                let _ = write!(out, "\\u{byte:04x}");
            }
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
    stop_if_long(cx)
}

/// Appends a number. Returns [`NONE`] if JSON does not have it.
pub(super) fn number(cx: &mut Cx, number: f64) -> i32 {
    if !number.is_finite() {
        return NONE;
    }
    let Tokens { out, precision, .. } = &mut cx.tokens;
    number::write(number, *precision, out);
    FOUND
}

pub(super) fn end(cx: &mut Cx) -> i32 {
    let out = &cx.tokens.out;
    (cx.ptr, cx.len) = (out.as_ptr(), length(out));
    FOUND
}

mod number;

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_written_as_c_does() {
        for (value, precision, wanted) in [
            (1.0, 14, "1"),
            (-0.0, 14, "-0"),
            (0.1, 16, "0.1"),
            (1e14, 14, "1e+14"),
            (99_999_999_999_999.0, 14, "99999999999999"),
            (9_007_199_254_740_992.0, 14, "9.007199254741e+15"),
            (9_007_199_254_740_992.0, 16, "9007199254740992"),
            (1.234_56, 3, "1.23"),
            (999.9, 3, "1e+03"),
            (0.000_01, 14, "1e-05"),
            (0.000_123_4, 14, "0.0001234"),
            (1e300, 14, "1e+300"),
            (123_456_789.0, 3, "1.23e+08"),
        ] {
            let mut out = Vec::new();
            number::write(value, precision, &mut out);
            assert_eq!(String::from_utf8(out).expect("ASCII"), wanted);
        }
    }

    #[test]
    fn numbers_are_read_as_c_does() {
        for (text, wanted) in [
            ("1", Some((1.0, 1))),
            ("-0", Some((0.0, 2))),
            ("01", Some((1.0, 2))),
            ("1.", Some((1.0, 2))),
            ("1e", Some((1.0, 1))),
            ("1e5x", Some((1e5, 3))),
            ("1e999", Some((f64::INFINITY, 5))),
            ("0x10", Some((16.0, 4))),
            ("0x", Some((0.0, 1))),
            ("0x1.8p1", Some((3.0, 7))),
            ("-Infinity!", Some((f64::NEG_INFINITY, 9))),
            ("-", None),
            ("-.5", None),
        ] {
            assert_eq!(number::read(text.as_bytes()), wanted, "{text}");
        }
    }
}
