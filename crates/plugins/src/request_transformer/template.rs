//! Templates of values: literal text with `$(expression)`. They are compiled when the plugin is built.
//!
//! Expressions that are look-ups in the tables of the request, literals, and chains of `or` and `and` are evaluated here,
//! because that is faster. A template with another one is rendered in Lua. Source of the syntax: Penlight's templates
//! (lua/pl/template.lua).

use super::lua::{Item, LuaCode, RenderError};
use compact_str::CompactString;
use plugin::{BuildCx, HeaderValue};
use std::borrow::Cow;

/// Maximum length of an expression that is evaluated here. It bounds how deep one nests.
const MAX_EXPRESSION: usize = 4096;

/// Maximum depth of parentheses in an expression.
const MAX_DEPTH: usize = 32;

/// The values that expressions see. A plugin's own changes to the request are not visible there.
pub(super) trait Environment {
    fn header(&self, name: &str) -> Item<'_>;
    fn query_param(&self, name: &str) -> Item<'_>;
    fn capture(&self, key: &Key) -> Item<'_>;
    fn shared(&self, name: &str) -> Item<'_>;
    /// Whether the shared values are in Lua.
    fn has_lua_shared(&self) -> bool;
    /// Renders a template in Lua.
    fn render_lua(&self, code: &LuaCode) -> Result<Vec<u8>, RenderError>;
}

/// A compiled value.
#[derive(Debug)]
pub(super) enum Template {
    /// Text without expressions, also as the value of a header.
    Plain {
        text: CompactString,
        header: HeaderValue,
    },
    Pieces {
        pieces: Box<[Piece]>,
        /// Whether an expression uses the shared values, which may be in Lua.
        uses_shared: bool,
        /// Renders what the pieces cannot: a table, or the functions of a string.
        code: LuaCode,
    },
    Lua(LuaCode),
    /// A value with an expression where expressions are off. It can never be rendered.
    Off,
}

#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Text(Box<[u8]>),
    Expression(Expression),
}

#[derive(Debug, PartialEq)]
pub(super) enum Expression {
    Literal(Literal),
    LookUp {
        table: Table,
        path: Box<[Key]>,
    },
    /// The first value that is true, else the last one.
    Or(Box<[Expression]>),
    /// The first value that is false, else the last one.
    And(Box<[Expression]>),
}

#[derive(Debug, PartialEq)]
pub(super) enum Literal {
    Nil,
    Bool(bool),
    Number(f64),
    Text(Box<[u8]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Headers,
    QueryParams,
    UriCaptures,
    Shared,
}

/// The key of a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    Name(CompactString),
    Number(u32),
}

/// Whether expressions may run (`untrusted_lua`).
#[derive(Clone, Copy)]
pub(super) enum Expressions<'a> {
    Allowed(&'a BuildCx<'a>),
    /// Values with an expression fail when they are rendered. Others are taken as they are.
    Off,
}

impl Template {
    pub(super) fn compile(text: &str, expressions: Expressions<'_>) -> Self {
        let cx = match expressions {
            Expressions::Off if has_expression(text) => return Self::Off,
            Expressions::Off => return Self::plain(text),
            Expressions::Allowed(cx) => cx,
        };
        let spans = lua::expression_spans(text.as_bytes());
        if spans.is_empty() {
            return Self::plain(text);
        }
        let Ok(code) = LuaCode::new(text, cx) else {
            return Self::Off;
        };
        let mut pieces = Vec::with_capacity(2 * spans.len() + 1);
        let mut end = 0;
        for (open, close) in spans {
            push_text(&mut pieces, &text[end..open - 1]);
            let Some(expression) = compile_expression(&text[open + 1..close]) else {
                return Self::Lua(code);
            };
            pieces.push(Piece::Expression(expression));
            end = close + 1;
        }
        push_text(&mut pieces, &text[end..]);
        let uses_shared = pieces.iter().any(
            |piece| matches!(piece, Piece::Expression(expression) if expression.uses_shared()),
        );
        Self::Pieces {
            pieces: pieces.into(),
            uses_shared,
            code,
        }
    }

    fn plain(text: &str) -> Self {
        Self::Plain {
            text: text.into(),
            header: HeaderValue::from_text(text),
        }
    }

    /// Returns the text for this request. It is borrowed where possible.
    pub(super) fn render<'v>(
        &'v self,
        environment: &'v dyn Environment,
    ) -> Result<Cow<'v, [u8]>, RenderError> {
        match self {
            Self::Plain { text, .. } => Ok(Cow::Borrowed(text.as_bytes())),
            Self::Off => Err(RenderError::Off),
            Self::Lua(code) => environment.render_lua(code).map(Cow::Owned),
            Self::Pieces {
                uses_shared: true,
                code,
                ..
            } if environment.has_lua_shared() => environment.render_lua(code).map(Cow::Owned),
            Self::Pieces { pieces, code, .. } => match render_pieces(pieces, environment) {
                Err(RenderError::NeedsLua) => environment.render_lua(code).map(Cow::Owned),
                rendered => rendered,
            },
        }
    }
}

fn render_pieces<'v>(
    pieces: &'v [Piece],
    environment: &'v dyn Environment,
) -> Result<Cow<'v, [u8]>, RenderError> {
    if let [Piece::Expression(only)] = pieces {
        return only.evaluate(environment)?.render();
    }
    let mut out = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text),
            Piece::Expression(expression) => {
                out.extend_from_slice(&expression.evaluate(environment)?.render()?);
            }
        }
    }
    Ok(Cow::Owned(out))
}

impl Expression {
    fn uses_shared(&self) -> bool {
        match self {
            Self::Literal(_) => false,
            Self::LookUp { table, .. } => *table == Table::Shared,
            Self::Or(operands) | Self::And(operands) => operands.iter().any(Self::uses_shared),
        }
    }

    fn evaluate<'v>(&'v self, environment: &'v dyn Environment) -> Result<Item<'v>, RenderError> {
        match self {
            Self::Literal(literal) => Ok(match literal {
                Literal::Nil => Item::Nil,
                Literal::Bool(value) => Item::Bool(*value),
                Literal::Number(number) => Item::Number(*number),
                Literal::Text(text) => Item::Text(Cow::Borrowed(text)),
            }),
            Self::LookUp { table, path } => {
                let Some((first, rest)) = path.split_first() else {
                    return Ok(Item::Table);
                };
                let found = table.look_up(first, environment);
                rest.iter().try_fold(found, |item, key| item.index(key))
            }
            Self::Or(operands) => first_or_last(operands, environment, Item::is_true),
            Self::And(operands) => first_or_last(operands, environment, |item| !item.is_true()),
        }
    }
}

fn first_or_last<'v>(
    operands: &'v [Expression],
    environment: &'v dyn Environment,
    decides: impl Fn(&Item<'v>) -> bool,
) -> Result<Item<'v>, RenderError> {
    let mut last = Item::Nil;
    for operand in operands {
        last = operand.evaluate(environment)?;
        if decides(&last) {
            break;
        }
    }
    Ok(last)
}

impl Table {
    fn look_up<'v>(self, key: &'v Key, environment: &'v dyn Environment) -> Item<'v> {
        match (self, key) {
            (Self::Headers, Key::Name(name)) => environment.header(name),
            (Self::QueryParams, Key::Name(name)) => environment.query_param(name),
            (Self::Shared, Key::Name(name)) => environment.shared(name),
            (Self::UriCaptures, key) => environment.capture(key),
            (Self::Headers | Self::QueryParams | Self::Shared, Key::Number(_)) => Item::Nil,
        }
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.as_bytes().into()));
    }
}

/// Whether Kong takes a text for one with expressions if they are off: `$(`, and `)` anywhere after it.
fn has_expression(text: &str) -> bool {
    text.find("$(").is_some_and(|at| text[at..].contains(')'))
}

/// Returns `None` for an expression that needs Lua.
fn compile_expression(text: &str) -> Option<Expression> {
    if text.len() > MAX_EXPRESSION {
        return None;
    }
    let mut parser = Parser {
        rest: text.as_bytes(),
        depth: 0,
    };
    let expression = parser.or()?;
    parser.space();
    parser.rest.is_empty().then_some(expression)
}

/// A parser of the expressions that need no Lua. Its methods return `None` for all others.
struct Parser<'t> {
    rest: &'t [u8],
    depth: usize,
}

impl<'t> Parser<'t> {
    fn or(&mut self) -> Option<Expression> {
        self.chain(b"or", Self::and, Expression::Or)
    }

    fn and(&mut self) -> Option<Expression> {
        self.chain(b"and", Self::operand, Expression::And)
    }

    fn chain(
        &mut self,
        operator: &[u8],
        operand: impl Fn(&mut Self) -> Option<Expression>,
        combine: impl Fn(Box<[Expression]>) -> Expression,
    ) -> Option<Expression> {
        let first = operand(self)?;
        let mut all = vec![first];
        while self.take_word(operator) {
            all.push(operand(self)?);
        }
        if all.len() == 1 {
            return all.pop();
        }
        Some(combine(all.into()))
    }

    fn operand(&mut self) -> Option<Expression> {
        self.space();
        match self.rest.first()? {
            b'(' => {
                self.rest = &self.rest[1..];
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return None;
                }
                let inner = self.or()?;
                self.take(b')')?;
                self.depth -= 1;
                // An index or a call after the parentheses, as in `("x"):rep(3)`, ends the expression too early and is
                // refused there.
                Some(inner)
            }
            b'"' | b'\'' => Some(Expression::Literal(Literal::Text(self.string()?.into()))),
            b'0'..=b'9' | b'.' => Some(Expression::Literal(Literal::Number(self.number()?))),
            _ => self.named(),
        }
    }

    fn named(&mut self) -> Option<Expression> {
        let table = match self.word()? {
            b"nil" => return Some(Expression::Literal(Literal::Nil)),
            b"true" => return Some(Expression::Literal(Literal::Bool(true))),
            b"false" => return Some(Expression::Literal(Literal::Bool(false))),
            b"headers" => Table::Headers,
            b"query_params" => Table::QueryParams,
            b"uri_captures" => Table::UriCaptures,
            b"shared" => Table::Shared,
            _ => return None,
        };
        let mut path = Vec::new();
        while let Some(key) = self.key()? {
            path.push(key);
        }
        Some(Expression::LookUp {
            table,
            path: path.into(),
        })
    }

    /// Parses `.name` or `[key]`. The inner `None` means that neither follows.
    fn key(&mut self) -> Option<Option<Key>> {
        self.space();
        match self.rest.first() {
            Some(b'.') if self.rest.get(1) != Some(&b'.') => {
                self.rest = &self.rest[1..];
                self.space();
                let name = self.word().filter(|word| !KEYWORDS.contains(word))?;
                Some(Some(Key::Name(utf8(name)?)))
            }
            Some(b'[') => {
                self.rest = &self.rest[1..];
                self.space();
                let key = match self.rest.first()? {
                    b'"' | b'\'' => Key::Name(utf8(&self.string()?)?),
                    b'0'..=b'9' => Key::Number(index_number(self.number()?)?),
                    _ => return None,
                };
                self.take(b']')?;
                Some(Some(key))
            }
            _ => Some(None),
        }
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.space();
        self.rest = self.rest.strip_prefix(&[byte])?;
        Some(())
    }

    fn take_word(&mut self, wanted: &[u8]) -> bool {
        self.space();
        let before = self.rest;
        let found = self.word() == Some(wanted);
        if !found {
            self.rest = before;
        }
        found
    }

    fn word(&mut self) -> Option<&'t [u8]> {
        let rest = self.rest;
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let end = rest.iter().position(|byte| !is_part(byte));
        let word = &rest[..end.unwrap_or(rest.len())];
        let first = word.first()?;
        if first.is_ascii_digit() {
            return None;
        }
        self.rest = &rest[word.len()..];
        Some(word)
    }

    /// Parses a decimal or hexadecimal number without a sign.
    fn number(&mut self) -> Option<f64> {
        let rest = self.rest;
        if let Some(digits) = rest
            .strip_prefix(b"0x")
            .or_else(|| rest.strip_prefix(b"0X"))
        {
            let end = digits.iter().position(|byte| !byte.is_ascii_hexdigit());
            let digits = &digits[..end.unwrap_or(digits.len())];
            let number = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            self.rest = &rest[2 + digits.len()..];
            return self.end_of_number().map(|()| number as f64);
        }
        let mut length = 0;
        while let Some(byte) = rest.get(length) {
            let sign_of_exponent = matches!(byte, b'+' | b'-')
                && length > 0
                && matches!(rest[length - 1], b'e' | b'E');
            if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E') || sign_of_exponent) {
                break;
            }
            length += 1;
        }
        let number = std::str::from_utf8(&rest[..length]).ok()?.parse().ok()?;
        self.rest = &rest[length..];
        self.end_of_number().map(|()| number)
    }

    /// Refuses a name directly after a number, as in `1x`.
    fn end_of_number(&self) -> Option<()> {
        match self.rest.first() {
            Some(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.') => None,
            _ => Some(()),
        }
    }

    /// Parses a string in quotes with its escapes.
    fn string(&mut self) -> Option<Vec<u8>> {
        let (&quote, mut rest) = self.rest.split_first()?;
        let mut out = Vec::new();
        loop {
            let (&byte, after) = rest.split_first()?;
            rest = after;
            match byte {
                b'\n' | b'\r' => return None,
                b'\\' => rest = escape(rest, &mut out)?,
                _ if byte == quote => break,
                _ => out.push(byte),
            }
        }
        self.rest = rest;
        Some(out)
    }
}

const KEYWORDS: [&[u8]; 22] = [
    b"and",
    b"break",
    b"do",
    b"else",
    b"elseif",
    b"end",
    b"false",
    b"for",
    b"function",
    b"goto",
    b"if",
    b"in",
    b"local",
    b"nil",
    b"not",
    b"or",
    b"repeat",
    b"return",
    b"then",
    b"true",
    b"until",
    b"while",
];

/// Decodes the text after a backslash. Returns the text that follows.
fn escape<'t>(text: &'t [u8], out: &mut Vec<u8>) -> Option<&'t [u8]> {
    let (&byte, rest) = text.split_first()?;
    let plain = match byte {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'v' => 11,
        b'\\' | b'"' | b'\'' => byte,
        b'z' => return Some(rest.trim_ascii_start()),
        b'x' => {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            out.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
            return Some(&rest[2..]);
        }
        b'0'..=b'9' => {
            let digits = text.iter().take(3).take_while(|byte| byte.is_ascii_digit());
            let length = digits.count();
            out.push(std::str::from_utf8(&text[..length]).ok()?.parse().ok()?);
            return Some(&text[length..]);
        }
        _ => return None,
    };
    out.push(plain);
    Some(rest)
}

fn utf8(name: &[u8]) -> Option<CompactString> {
    CompactString::from_utf8(name).ok()
}

fn index_number(number: f64) -> Option<u32> {
    let fits = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
    fits.then_some(number as u32)
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
