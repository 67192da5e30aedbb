//! Prints expressions in one canonical form: blanks around operators, parentheses around every nested group, decimal
//! numbers, and raw strings where they avoid escapes.

use super::tree::{Literal, Node, Parsed, Predicate};
use crate::block::Block;
use crate::tree::{
    AddressPredicate, AddressTest, Comparison, Expression, NumberPredicate, Quantifier,
    TextPredicate, TextTest, Transform,
};
use std::fmt::{self, Display, Formatter, Write};
use std::net::IpAddr;

impl Display for Parsed {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.root, formatter)
    }
}

impl Display for Node {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(parts) => joined(formatter, parts, " && ", Self::is_group),
            Self::Any(parts) => joined(formatter, parts, " || ", Self::is_group),
            Self::Not(part) => write!(formatter, "!({part})"),
            Self::Test(test) => Display::fmt(&test.predicate, formatter),
        }
    }
}

impl Node {
    pub(super) fn is_group(&self) -> bool {
        matches!(self, Self::All(_) | Self::Any(_))
    }
}

impl Display for Predicate {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for function in &self.functions {
            write!(formatter, "{}(", function.name())?;
        }
        formatter.write_str(&self.field)?;
        for _ in &self.functions {
            formatter.write_char(')')?;
        }
        write!(formatter, " {} ", self.operator.symbol())?;
        match &self.literal {
            Literal::Text(text) => quote(formatter, text),
            Literal::Number(number) => Display::fmt(number, formatter),
            Literal::Address(address) => write_address(formatter, *address),
            Literal::Block(block) => write_block(formatter, *block),
        }
    }
}

/// Prints the expression in the language, even if it was not created from a text. A test that the language lacks is
/// shown as the nearest one: header names with `_`, ASCII lower case as `lower`. A group without parts, which only code
/// can create, is shown as its constant value.
impl Display for Expression {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(parts) if parts.is_empty() => formatter.write_str("true"),
            Self::Any(parts) if parts.is_empty() => formatter.write_str("false"),
            Self::All(parts) => joined(formatter, parts, " && ", Self::is_group),
            Self::Any(parts) => joined(formatter, parts, " || ", Self::is_group),
            Self::Not(part) => write!(formatter, "!({part})"),
            Self::Text(predicate) => Display::fmt(predicate, formatter),
            Self::Number(predicate) => Display::fmt(predicate, formatter),
            Self::Address(predicate) => Display::fmt(predicate, formatter),
        }
    }
}

impl Expression {
    fn is_group(&self) -> bool {
        matches!(self, Self::All(_) | Self::Any(_))
    }
}

impl Display for TextPredicate {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let field = match self.transform {
            Transform::None => self.field.to_string(),
            Transform::Lower | Transform::LowerAscii => format!("lower({})", self.field),
        };
        match self.quantifier {
            Quantifier::All => formatter.write_str(&field)?,
            Quantifier::Any => write!(formatter, "any({field})")?,
        }
        let (operator, literal): (_, &str) = match &self.test {
            TextTest::Equals(text) => ("==", text),
            TextTest::Differs(text) => ("!=", text),
            TextTest::StartsWith(text) => ("^=", text),
            TextTest::EndsWith(text) => ("=^", text),
            TextTest::Contains(text) => ("contains", text),
            TextTest::Matches(regex) => ("~", regex.pattern()),
        };
        write!(formatter, " {operator} ")?;
        quote(formatter, literal)
    }
}

impl Display for NumberPredicate {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (field, value) = (self.field, self.value);
        write!(formatter, "{field} {} {value}", self.comparison)
    }
}

impl Display for Comparison {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        })
    }
}

impl Display for AddressPredicate {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ", self.field)?;
        match self.test {
            AddressTest::Equals(address) => {
                formatter.write_str("== ")?;
                write_address(formatter, address)
            }
            AddressTest::Differs(address) => {
                formatter.write_str("!= ")?;
                write_address(formatter, address)
            }
            AddressTest::In(block) => {
                formatter.write_str("in ")?;
                write_block(formatter, block)
            }
            AddressTest::NotIn(block) => {
                formatter.write_str("not in ")?;
                write_block(formatter, block)
            }
        }
    }
}

fn joined<N: Display>(
    formatter: &mut Formatter<'_>,
    parts: &[N],
    operator: &str,
    is_group: impl Fn(&N) -> bool,
) -> fmt::Result {
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            formatter.write_str(operator)?;
        }
        if is_group(part) {
            write!(formatter, "({part})")?;
        } else {
            write!(formatter, "{part}")?;
        }
    }
    Ok(())
}

/// Writes a string literal. It is a raw string if that avoids escapes and the text has no line breaks or tabs.
fn quote(formatter: &mut Formatter<'_>, text: &str) -> fmt::Result {
    let gains = text.contains(['\\', '"']);
    if gains && !text.contains("\"#") && !text.contains(['\n', '\r', '\t']) {
        return write!(formatter, "r#\"{text}\"#");
    }
    formatter.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' => formatter.write_str("\\\"")?,
            '\\' => formatter.write_str("\\\\")?,
            '\n' => formatter.write_str("\\n")?,
            '\r' => formatter.write_str("\\r")?,
            '\t' => formatter.write_str("\\t")?,
            character => formatter.write_char(character)?,
        }
    }
    formatter.write_char('"')
}

/// Writes an address. The language does not accept the notation `::ffff:1.2.3.4`, so such IPv6 addresses are written in
/// hexadecimal only.
fn write_address(formatter: &mut Formatter<'_>, address: IpAddr) -> fmt::Result {
    match address {
        IpAddr::V6(address) if address.to_string().contains('.') => match address.segments() {
            [0, 0, 0, 0, 0, 0xffff, high, low] => write!(formatter, "::ffff:{high:x}:{low:x}"),
            [.., high, low] => write!(formatter, "::{high:x}:{low:x}"),
        },
        address => Display::fmt(&address, formatter),
    }
}

/// Writes a block with its host bits set to zero. Matching ignores host bits, and the language does not accept them.
fn write_block(formatter: &mut Formatter<'_>, block: Block) -> fmt::Result {
    let block = block.aligned();
    write_address(formatter, block.address())?;
    write!(formatter, "/{}", block.bits())
}
