//! JSON for Lua. Reading makes a list of tokens, of which Lua builds tables. Writing appends the parts that Lua names to a
//! text. So no function of this crate touches a table.

use super::{Cx, FOUND, NONE, REFUSED, length};
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

/// The tokens of the text that was read last, and the text that is being written.
#[derive(Default)]
pub(super) struct Tokens {
    tokens: Vec<(Token, f64, usize, usize)>,
    texts: Vec<u8>,
    out: Vec<u8>,
}

/// Maximum depth of nested arrays and objects (`cjson.decode_max_depth`).
const MAX_DEPTH: usize = 1000;

pub(super) fn value(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(text).ok()
}

pub(super) fn read(cx: &mut Cx, text: &[u8]) -> i32 {
    let mut tokens = std::mem::take(&mut cx.tokens);
    tokens.tokens.clear();
    tokens.texts.clear();
    let mut reader = Reader {
        text,
        at: 0,
        tokens: &mut tokens,
    };
    let result = reader.document();
    cx.tokens = tokens;
    match result {
        Ok(()) => FOUND,
        Err(error) => {
            cx.refuse(error);
            REFUSED
        }
    }
}

/// Returns a token, counted from 0: its kind as the result, and its number or text.
pub(super) fn token(cx: &mut Cx, at: i32) -> i32 {
    let found = usize::try_from(at)
        .ok()
        .and_then(|at| cx.tokens.tokens.get(at).copied());
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

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    tokens: &'t mut Tokens,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<(), String> {
        self.value(0)?;
        self.blanks();
        match self.text.get(self.at) {
            None => Ok(()),
            Some(_) => Err(self.expected("the end")),
        }
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    /// Returns an error in the words of lua-cjson.
    fn expected(&self, what: &str) -> String {
        let found = match self.text.get(self.at) {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b',') => "T_COMMA",
            Some(b':') => "T_COLON",
            Some(b'"') => "T_STRING",
            Some(b'-' | b'0'..=b'9') => "T_NUMBER",
            Some(_) => "invalid token",
        };
        format!(
            "Expected {what} but found {found} at character {}",
            self.at + 1
        )
    }

    fn push(&mut self, kind: Token) {
        self.tokens.tokens.push((kind, 0.0, 0, 0));
    }

    fn value(&mut self, depth: usize) -> Result<(), String> {
        self.blanks();
        match self.text.get(self.at) {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string(Token::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, token) in [
                    ("null", Token::Null),
                    ("true", Token::True),
                    ("false", Token::False),
                ] {
                    if self.text[self.at..].starts_with(word.as_bytes()) {
                        self.at += word.len();
                        self.push(token);
                        return Ok(());
                    }
                }
                Err(self.expected("value"))
            }
        }
    }

    fn number(&mut self) -> Result<(), String> {
        let rest = &self.text[self.at..];
        let part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = rest
            .iter()
            .position(|byte| !part(byte))
            .unwrap_or(rest.len());
        let text = std::str::from_utf8(&rest[..length]).unwrap_or_default();
        let Ok(number) = text.parse() else {
            return Err(self.expected("value"));
        };
        self.at += length;
        self.tokens.tokens.push((Token::Number, number, 0, 0));
        Ok(())
    }

    fn string(&mut self, kind: Token) -> Result<(), String> {
        let start = self.tokens.texts.len();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let Some(length) = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | 0..32))
            else {
                self.at = self.text.len();
                return Err(self.expected("value"));
            };
            self.tokens.texts.extend_from_slice(&rest[..length]);
            self.at += length + 1;
            match rest[length] {
                b'"' => break,
                b'\\' => self.escape()?,
                _ => {
                    self.at -= 1;
                    return Err(self.expected("value"));
                }
            }
        }
        let end = self.tokens.texts.len();
        self.tokens.tokens.push((kind, 0.0, start, end));
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let byte = self.text.get(self.at).copied();
        self.at += 1;
        let plain = match byte {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.expected("value")),
        };
        self.tokens.texts.push(plain);
        Ok(())
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let digits = std::str::from_utf8(digits).ok()?;
        let code = u32::from_str_radix(digits, 16).ok()?;
        self.at += 4;
        Some(code)
    }

    fn unicode(&mut self) -> Result<(), String> {
        let mut code = self.hex().ok_or_else(|| self.expected("value"))?;
        if (0xd800..0xdc00).contains(&code) && self.text[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let low = self.hex().ok_or_else(|| self.expected("value"))?;
            code = 0x10000 + ((code - 0xd800) << 10) + (low.wrapping_sub(0xdc00) & 0x3ff);
        }
        let letter = char::from_u32(code).ok_or_else(|| self.expected("value"))?;
        let mut buffer = [0; 4];
        let text = letter.encode_utf8(&mut buffer);
        self.tokens.texts.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), String> {
        self.deep_enough(depth)?;
        self.at += 1;
        self.push(Token::ArrayStart);
        self.blanks();
        if self.text.get(self.at) == Some(&b']') {
            self.at += 1;
            self.push(Token::ArrayEnd);
            return Ok(());
        }
        loop {
            self.value(depth)?;
            self.blanks();
            match self.text.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.expected("comma or array end")),
            }
        }
        self.at += 1;
        self.push(Token::ArrayEnd);
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), String> {
        self.deep_enough(depth)?;
        self.at += 1;
        self.push(Token::ObjectStart);
        self.blanks();
        if self.text.get(self.at) == Some(&b'}') {
            self.at += 1;
            self.push(Token::ObjectEnd);
            return Ok(());
        }
        loop {
            self.blanks();
            match self.text.get(self.at) {
                Some(b'"') => self.string(Token::Name)?,
                _ => return Err(self.expected("object key string")),
            }
            self.blanks();
            match self.text.get(self.at) {
                Some(b':') => self.at += 1,
                _ => return Err(self.expected("colon")),
            }
            self.value(depth)?;
            self.blanks();
            match self.text.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.expected("comma or object end")),
            }
        }
        self.at += 1;
        self.push(Token::ObjectEnd);
        Ok(())
    }

    fn deep_enough(&self, depth: usize) -> Result<(), String> {
        match depth > MAX_DEPTH {
            true => Err(format!(
                "Found too many nested data structures ({depth}) at character {}",
                self.at + 1
            )),
            false => Ok(()),
        }
    }
}

pub(super) fn begin(cx: &mut Cx) -> i32 {
    cx.tokens.out.clear();
    FOUND
}

pub(super) fn raw(cx: &mut Cx, text: &[u8]) -> i32 {
    cx.tokens.out.extend_from_slice(text);
    FOUND
}

/// Appends a string. Bytes that are no UTF-8 stay as they are, as in lua-cjson.
pub(super) fn string(cx: &mut Cx, text: &[u8]) -> i32 {
    let out = &mut cx.tokens.out;
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
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
    FOUND
}

/// Appends a number with 16 digits, as `cjson.encode_number_precision` of Kong.
pub(super) fn number(cx: &mut Cx, number: f64) -> i32 {
    if !number.is_finite() {
        return NONE;
    }
    let _ = write!(cx.tokens.out, "{number}");
    FOUND
}

pub(super) fn end(cx: &mut Cx) -> i32 {
    let out = &cx.tokens.out;
    (cx.ptr, cx.len) = (out.as_ptr(), length(out));
    FOUND
}
