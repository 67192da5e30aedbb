//! Reads names, operators and literals at a position in a text. As in Kong, alternatives are tried in the order of the
//! grammar and without backtracking. So `0779` is the octal number 077 followed by a nine.

use super::error::{Error, ErrorKind, Expected, Hint};
use super::excerpt::position;
use super::tree::{Literal, Operator, Span};
use crate::block::Block;
use std::net::IpAddr;
use std::ops::Range;

/// An address family.
#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

pub(super) struct Scanner<'t> {
    pub(super) text: &'t str,
    /// Position in the text, always at a character boundary.
    pub(super) at: usize,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    pub(super) fn skip_blanks(&mut self) {
        self.at += run(self.rest(), |byte| {
            matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
        });
    }

    pub(super) fn is_at(&self, word: &str) -> bool {
        self.rest().starts_with(word)
    }

    /// Skips the word if the text continues with it. Returns whether it does.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is_here = self.is_at(word);
        if is_here {
            self.at += word.len();
        }
        is_here
    }

    pub(super) fn span_from(&self, start: usize) -> Span {
        Span::new(start..self.at)
    }

    pub(super) fn error(&self, kind: ErrorKind, span: Range<usize>) -> Error {
        Error::new(kind, self.text, span)
    }

    /// Returns the error that the text does not continue with what is `expected`.
    pub(super) fn expected(&self, expected: Expected, hint: Option<Hint>) -> Error {
        self.error(ErrorKind::Expected(expected, hint), self.at..self.at)
    }

    pub(super) fn position(&self, at: usize) -> (usize, usize) {
        position(self.text, at)
    }

    /// Reads the name of a field or function.
    pub(super) fn name(&mut self) -> Option<&'t str> {
        let rest = self.rest();
        if !rest.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return None;
        }
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        let length = run(rest, is_part);
        self.at += length;
        Some(&rest[..length])
    }

    pub(super) fn operator(&mut self) -> Result<(Operator, Span), Error> {
        let start = self.at;
        for operator in Operator::ALL {
            let is_here = match operator {
                Operator::NotIn => self.not_in(),
                operator => self.take(operator.symbol()),
            };
            if is_here {
                return Ok((operator, self.span_from(start)));
            }
        }
        let hint = match self.rest().as_bytes().first() {
            Some(b'-') => Hint::HyphenInName,
            Some(b'=') => Hint::SingleEquals,
            _ => Hint::Operators,
        };
        Err(self.expected(Expected::Operator, Some(hint)))
    }

    fn not_in(&mut self) -> bool {
        let start = self.at;
        if self.take("not") {
            let behind = self.at;
            self.skip_blanks();
            if self.at > behind && self.take("in") {
                return true;
            }
        }
        self.at = start;
        false
    }

    pub(super) fn literal(&mut self) -> Result<(Literal, Span), Error> {
        let start = self.at;
        let literal = if self.is_at("\"") {
            Literal::Text(self.quoted()?)
        } else if self.is_at("r#\"") {
            Literal::Text(self.raw()?)
        } else if let Some(length) = ipv4_length(self.rest()) {
            self.address(length, Family::V4)?
        } else if let Some(length) = ipv6_length(self.rest()) {
            self.address(length, Family::V6)?
        } else {
            Literal::Number(self.number()?)
        };
        Ok((literal, self.span_from(start)))
    }

    fn quoted(&mut self) -> Result<Box<str>, Error> {
        let start = self.at;
        self.at += 1;
        let mut value = String::new();
        loop {
            let plain = run(self.rest(), |byte| !matches!(byte, b'"' | b'\\'));
            value.push_str(&self.rest()[..plain]);
            self.at += plain;
            let escaped = match self.rest().as_bytes() {
                [b'"', ..] => {
                    self.at += 1;
                    return Ok(value.into());
                }
                [b'\\', b'n', ..] => '\n',
                [b'\\', b'r', ..] => '\r',
                [b'\\', b't', ..] => '\t',
                [b'\\', b'"', ..] => '"',
                [b'\\', b'\\', ..] => '\\',
                [] => return Err(self.unterminated(start, Expected::Character)),
                _ => return Err(self.expected(Expected::Character, Some(Hint::Escapes))),
            };
            value.push(escaped);
            self.at += 2;
        }
    }

    fn raw(&mut self) -> Result<Box<str>, Error> {
        let start = self.at;
        let value = &self.rest()[3..];
        let Some(length) = value.find("\"#") else {
            self.at = self.text.len();
            return Err(self.unterminated(start, Expected::RawEnd));
        };
        self.at += 3 + length + 2;
        Ok(value[..length].into())
    }

    fn unterminated(&self, start: usize, expected: Expected) -> Error {
        let (line, column) = self.position(start);
        self.expected(expected, Some(Hint::Unterminated { line, column }))
    }

    /// Reads an address of `length` bytes, or the block that begins with this address.
    fn address(&mut self, length: usize, family: Family) -> Result<Literal, Error> {
        let start = self.at;
        let text = &self.rest()[..length];
        self.at += length;
        let address = family.parse(text);
        let digits = self.rest().strip_prefix('/').map_or(0, digits);
        let digits = digits.min(family.most_digits());
        let literal = if digits == 0 {
            address.map(Literal::Address)
        } else {
            let bits = &self.rest()[1..=digits];
            self.at += 1 + digits;
            let block = address.and_then(|address| block(address, bits));
            block.map(Literal::Block)
        };
        literal.map_err(|kind| self.error(kind, start..self.at))
    }

    fn number(&mut self) -> Result<i64, Error> {
        let start = self.at;
        let rest = self.rest();
        let unsigned = rest.strip_prefix('-').unwrap_or(rest);
        let (digits, radix, skipped) = magnitude(unsigned);
        if digits.is_empty() {
            return Err(self.expected(Expected::Literal, literal_hint(rest)));
        }
        self.at += rest.len() - unsigned.len() + skipped + digits.len();
        let is_negative = unsigned.len() < rest.len();
        let value = i128::from_str_radix(digits, radix).ok();
        let value = value.and_then(|value| {
            let signed = if is_negative { -value } else { value };
            i64::try_from(signed).ok()
        });
        value.ok_or_else(|| self.error(ErrorKind::NumberTooLarge, start..self.at))
    }
}

impl Family {
    fn parse(self, text: &str) -> Result<IpAddr, ErrorKind> {
        match self {
            Self::V4 => text.parse().map(IpAddr::V4).map_err(|_| ErrorKind::BadIpv4),
            Self::V6 => text.parse().map(IpAddr::V6).map_err(|_| ErrorKind::BadIpv6),
        }
    }

    /// Maximum number of digits of a prefix length.
    fn most_digits(self) -> usize {
        match self {
            Self::V4 => 2,
            Self::V6 => 3,
        }
    }
}

/// Returns the length of the longest prefix of the text in which `is_part` accepts every byte.
fn run(text: &str, is_part: impl Fn(u8) -> bool) -> usize {
    let bytes = text.as_bytes();
    let end = bytes.iter().position(|&byte| !is_part(byte));
    end.unwrap_or(bytes.len())
}

fn digits(text: &str) -> usize {
    run(text, |byte| byte.is_ascii_digit())
}

/// Returns the digits of a number, their radix, and the length of the radix prefix.
fn magnitude(text: &str) -> (&str, u32, usize) {
    let octal = run(text, |byte| matches!(byte, b'0'..=b'7'));
    if text.starts_with('0') && octal > 1 {
        return (&text[..octal], 8, 0);
    }
    if let Some(text) = text.strip_prefix("0x") {
        let length = run(text, |byte| byte.is_ascii_hexdigit());
        if length > 0 {
            return (&text[..length], 16, 2);
        }
    }
    (&text[..digits(text)], 10, 0)
}

/// Returns the length of an apparent IPv4 address at the start of the text: four groups of one to three digits,
/// separated by dots.
fn ipv4_length(text: &str) -> Option<usize> {
    let mut length = 0;
    for part in 0..4 {
        if part > 0 {
            length += usize::from(text[length..].starts_with('.'));
        }
        let digits = digits(&text[length..]).min(3);
        let follows_dot = part == 0 || text[..length].ends_with('.');
        if digits == 0 || !follows_dot {
            return None;
        }
        length += digits;
    }
    Some(length)
}

/// Returns the length of an apparent IPv6 address at the start of the text. It begins with up to four hexadecimal
/// digits and a colon, or with two colons.
fn ipv6_length(text: &str) -> Option<usize> {
    let first = run(text, |byte| byte.is_ascii_hexdigit()).min(4);
    let first = if first == 0 && text.starts_with(':') {
        1
    } else {
        first
    };
    let is_address = first > 0 && text[first..].starts_with(':');
    is_address.then(|| run(text, |byte| byte.is_ascii_hexdigit() || byte == b':'))
}

fn block(address: IpAddr, bits: &str) -> Result<Block, ErrorKind> {
    let most = if address.is_ipv4() { 32 } else { 128 };
    // The prefix length has at most three digits, so it fits in 16 bits.
    let bits: u16 = bits.parse().unwrap_or(u16::MAX);
    let too_long = ErrorKind::PrefixTooLong { bits, most };
    let block = u8::try_from(bits)
        .ok()
        .and_then(|bits| Block::new(address, bits));
    let block = block.ok_or(too_long)?;
    if block.is_aligned() {
        Ok(block)
    } else {
        let aligned = block.aligned();
        Err(ErrorKind::HostBits { aligned })
    }
}

fn literal_hint(rest: &str) -> Option<Hint> {
    match rest.as_bytes().first()? {
        b'\'' | b'`' => Some(Hint::SingleQuotes),
        _ => Some(Hint::Literals),
    }
}
