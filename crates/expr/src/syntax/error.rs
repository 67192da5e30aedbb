//! Errors in the text of an expression. A printed error consists of Kong's message, the line with the affected part
//! underlined, and a hint if there is one.

use super::excerpt::Excerpt;
use super::{MAX_DEPTH, MAX_LENGTH};
use crate::block::Block;
use std::fmt;
use std::ops::Range;

/// The reason why a text is not an expression, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    /// The affected bytes of the text. An empty range is the position where something is missing.
    pub span: Range<usize>,
    excerpt: Box<Excerpt>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    #[error("an expression may have at most {MAX_LENGTH} bytes")]
    TooLong,
    #[error("an expression may be nested at most {MAX_DEPTH} deep")]
    TooDeep,
    #[error("expected {0}")]
    Expected(Expected, Option<Hint>),
    #[error("unknown transformation function: {0}")]
    UnknownFunction(Box<str>),
    #[error("number does not fit in 64 bits")]
    NumberTooLarge,
    #[error("invalid IPv4 address syntax")]
    BadIpv4,
    #[error("invalid IPv6 address syntax")]
    BadIpv6,
    #[error("network length {bits} is too long (maximum: {most})")]
    PrefixTooLong { bits: u16, most: u8 },
    #[error("host part of address was not zero")]
    HostBits { aligned: Block },
    #[error("Unknown LHS field")]
    UnknownField(Hint),
    #[error("illformed http.path.segments.* field")]
    BadSegments,
    #[error("Type mismatch between the LHS and RHS values of predicate")]
    TypeMismatch { field: Type, literal: Type },
    #[error("lower-case transformation function only supported with String type fields")]
    LowerOfOther(Type),
    #[error("Regex operators only supports string operands")]
    RegexOfOther,
    #[error("Regex/Prefix/Postfix operators only supports string operands")]
    AffixOfOther,
    #[error("Contains operator only supports string operands")]
    ContainsOfOther,
    #[error("Greater/GreaterOrEqual/Lesser/LesserOrEqual operators only supports integer operands")]
    OrderOfOther,
    #[error("In/NotIn operators only supports IP in CIDR")]
    InOfOther,
    /// The message comes from the regex engine.
    #[error("{}", first_line(.0))]
    Regex(Box<str>),
}

/// The grammar rule that was expected instead of the text found. The names are those of Kong's grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Expected {
    #[error("term")]
    Term,
    #[error("lhs")]
    Field,
    #[error("`)`")]
    Close,
    #[error("binary_operator")]
    Operator,
    #[error("rhs")]
    Literal,
    #[error("str_char or str_esc")]
    Character,
    #[error("end of rawstr_literal")]
    RawEnd,
    #[error("and_op, or_op, or EOI")]
    LogicalOrEnd,
    #[error("and_op, or_op, or `)`")]
    LogicalOrClose,
}

/// The types of fields and literals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Type {
    #[error("String")]
    String,
    #[error("Int")]
    Int,
    #[error("IpAddr")]
    IpAddr,
    #[error("IpCidr")]
    IpCidr,
}

/// A suggestion of what was probably meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Hint {
    #[error("`!` must be followed by a parenthesis: !(…)")]
    NotNeedsParentheses,
    #[error("write the field on the left and the literal on the right")]
    LiteralOnTheLeft,
    #[error("a predicate is a field, an operator and a literal, such as http.path ^= \"/api\"")]
    Predicate,
    #[error(
        "names consist of letters, digits, `_` and `.`; in the name of a header write `_` for `-`"
    )]
    HyphenInName,
    #[error("equality is `==`")]
    SingleEquals,
    #[error("operators are == != ~ ^= =^ > >= < <= in, not in, contains")]
    Operators,
    #[error("write texts in double quotes, or between r#\" and \"#")]
    SingleQuotes,
    #[error(
        "two fields cannot be compared: the right side is a text in double quotes, a number, an address or an address block"
    )]
    Literals,
    #[error(
        "escapes are \\\" \\\\ \\n \\r \\t; in regexes double each backslash, or write r#\"…\"#"
    )]
    Escapes,
    #[error("the text that begins at {line}:{column} is not closed")]
    Unterminated { line: usize, column: usize },
    #[error("the parenthesis at {line}:{column} is not closed")]
    Unclosed { line: usize, column: usize },
    #[error("functions enclose a field: lower(http.host), any(lower(http.headers.x_a))")]
    Functions,
    #[error("this parenthesis has no matching `(`")]
    ClosesNone,
    #[error("write `&&` for and, `||` for or")]
    LogicalOperators,
    #[error("a number that begins with 0 is octal, one that begins with 0x hexadecimal")]
    Octal,
    #[error("did you mean `{0}`?")]
    Nearest(&'static str),
    #[error(
        "fields are http.method, http.host, http.path, http.path.segments.…, http.headers.…, http.queries.…, \
         net.protocol, net.src.ip, net.src.port, net.dst.ip, net.dst.port, tls.sni"
    )]
    HttpFields,
    #[error("fields are net.protocol, net.src.ip, net.src.port, net.dst.ip, net.dst.port, tls.sni")]
    StreamFields,
    #[error("`net.port` is now `net.dst.port`")]
    OldPort,
    #[error("routes of stream protocols have no HTTP fields")]
    HttpFieldInStream,
    #[error("names of headers and query arguments must not contain dots here")]
    DotInName,
}

impl Error {
    pub(super) fn new(kind: ErrorKind, text: &str, span: Range<usize>) -> Self {
        let excerpt = Box::new(Excerpt::new(text, span.clone()));
        Self {
            kind,
            span,
            excerpt,
        }
    }

    /// Line of the beginning of the error, counted from 1.
    pub fn line(&self) -> usize {
        self.excerpt.line()
    }

    /// Column of the beginning of the error, in characters counted from 1.
    pub fn column(&self) -> usize {
        self.excerpt.column()
    }

    /// A hint that may help, if there is one.
    pub fn note(&self) -> Option<String> {
        self.kind.note()
    }
}

impl ErrorKind {
    fn note(&self) -> Option<String> {
        match self {
            Self::Expected(_, hint) => hint.as_ref().map(ToString::to_string),
            Self::UnknownField(hint) => Some(hint.to_string()),
            Self::UnknownFunction(_) => Some("functions are lower() and any()".to_owned()),
            Self::NumberTooLarge => Some(format!("numbers are from {} to {}", i64::MIN, i64::MAX)),
            Self::BadIpv4 => Some(
                "an IPv4 address has four numbers from 0 to 255 without leading zeros".to_owned(),
            ),
            Self::BadIpv6 => Some(
                "an IPv6 address has eight groups of up to four hexadecimal digits, or fewer around one `::`"
                    .to_owned(),
            ),
            Self::HostBits { aligned } => Some(format!("the block is {aligned}")),
            Self::BadSegments => Some(
                "a segment is http.path.segments.N, several are http.path.segments.N_M with N less than M, \
                 counted from 0, without leading zeros; their number is http.path.segments.len"
                    .to_owned(),
            ),
            Self::TypeMismatch { field, literal } => {
                Some(format!("the field is {field}, the literal is {literal}"))
            }
            Self::LowerOfOther(field) => Some(format!("the field is {field}")),
            Self::InOfOther => Some(
                "`in` and `not in` require an address field and an address block such as 10.0.0.0/8"
                    .to_owned(),
            ),
            Self::Regex(text) => Some(text.to_string()),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.kind)?;
        write!(formatter, "{}", self.excerpt)?;
        if let Some(note) = self.note() {
            let gutter = " ".repeat(self.excerpt.gutter());
            write!(formatter, "\n{gutter} |\n{gutter} = ")?;
            let indented = format!("\n{gutter}   ");
            formatter.write_str(&note.replace('\n', &indented))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Shortens the message of the `regex` crate to its first line and the actual error. The message shows the pattern
/// between these two.
fn first_line(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    match text.rsplit_once("\nerror: ") {
        Some((_, what)) => format!("{first} {what}"),
        None => first.to_owned(),
    }
}
