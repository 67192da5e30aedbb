//! Prints a term in the expression language, in one of the many ways to write it.

use crate::random::Random;
use crate::term::{AddressOperator, Lower, Operator, Taken, Term};
use expr::{AddressField, Comparison, NumberField, TextField};

pub(crate) fn print(term: &Term, random: &mut Random) -> String {
    let mut out = String::new();
    write(term, random, &mut out);
    out
}

fn write(term: &Term, random: &mut Random, out: &mut String) {
    match term {
        Term::And(parts) => join(parts, "&&", random, out, |_| false),
        // Unlike in most languages, `||` binds tighter than `&&`, so a conjunction needs parentheses here.
        Term::Or(parts) => join(parts, "||", random, out, |part| {
            matches!(part, Term::And(_))
        }),
        Term::Not(part) => {
            out.push('!');
            blank(random, out);
            out.push('(');
            write(part, random, out);
            out.push(')');
        }
        Term::Text(field, taken, operator, literal) => {
            left(&text_field(field), *taken, random, out);
            around(text_operator(*operator), random, out);
            text(literal, random, out);
        }
        Term::Number(field, comparison, literal) => {
            out.push_str(number_field(*field));
            around(number_operator(*comparison), random, out);
            number(*literal, random, out);
        }
        Term::Address(field, operator) => {
            out.push_str(match field {
                AddressField::Source => "net.src.ip",
                AddressField::Destination => "net.dst.ip",
            });
            out.push_str(&match operator {
                AddressOperator::Equal(address) => format!(" == {address}"),
                AddressOperator::Differs(address) => format!(" != {address}"),
                AddressOperator::In(block) => format!(" in {block}"),
                AddressOperator::NotIn(block) => format!(" not in {block}"),
            });
        }
    }
}

fn join(
    parts: &[Term],
    sign: &str,
    random: &mut Random,
    out: &mut String,
    needs: impl Fn(&Term) -> bool,
) {
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            around(sign, random, out);
        }
        if needs(part) || random.once_in(4) {
            out.push('(');
            write(part, random, out);
            out.push(')');
        } else {
            write(part, random, out);
        }
    }
}

fn blank(random: &mut Random, out: &mut String) {
    out.push_str(random.word(&["", " ", " ", "\n", "\t ", "\r\n"]));
}

/// Blanks around operator signs are optional; around words they are required.
fn around(sign: &str, random: &mut Random, out: &mut String) {
    if sign == "contains" {
        out.push_str(" contains ");
        return;
    }
    blank(random, out);
    out.push_str(sign);
    blank(random, out);
}

fn left(field: &str, taken: Taken, random: &mut Random, out: &mut String) {
    let lower = taken.lower == Lower::Unicode;
    out.push_str(&match (taken.any, lower) {
        (false, false) => field.to_owned(),
        (true, false) => format!("any({field})"),
        (false, true) => format!("lower({field})"),
        (true, true) if random.below(2) == 0 => format!("any(lower({field}))"),
        (true, true) => format!("lower(any({field}))"),
    });
}

fn text_field(field: &TextField) -> String {
    match field {
        TextField::Protocol => "net.protocol".to_owned(),
        TextField::Sni => "tls.sni".to_owned(),
        TextField::Method => "http.method".to_owned(),
        TextField::Host | TextField::WildcardHost => "http.host".to_owned(),
        TextField::SentHost => "http.headers.host".to_owned(),
        TextField::Path => "http.path".to_owned(),
        TextField::Segments { first, last } if first == last => {
            format!("http.path.segments.{first}")
        }
        TextField::Segments { first, last } => format!("http.path.segments.{first}_{last}"),
        TextField::Header(name) => format!("http.headers.{name}"),
        TextField::Query(name) => format!("http.queries.{name}"),
    }
}

fn number_field(field: NumberField) -> &'static str {
    match field {
        NumberField::SourcePort => "net.src.port",
        NumberField::DestinationPort => "net.dst.port",
        NumberField::SegmentCount => "http.path.segments.len",
    }
}

fn text_operator(operator: Operator) -> &'static str {
    match operator {
        Operator::Equal => "==",
        Operator::Differs => "!=",
        Operator::Matches => "~",
        Operator::StartsWith => "^=",
        Operator::EndsWith => "=^",
        Operator::Contains => "contains",
    }
}

fn number_operator(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "==",
        Comparison::NotEqual => "!=",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}

fn text(literal: &str, random: &mut Random, out: &mut String) {
    if !literal.contains("\"#") && random.once_in(3) {
        out.push_str(&format!("r#\"{literal}\"#"));
        return;
    }
    out.push('"');
    for letter in literal.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other => out.push(other),
        }
    }
    out.push('"');
}

fn number(literal: i64, random: &mut Random, out: &mut String) {
    let sign = if literal < 0 { "-" } else { "" };
    let size = literal.unsigned_abs();
    out.push_str(&match random.below(6) {
        0 => format!("{sign}0x{size:x}"),
        1 if size > 0 => format!("{sign}0{size:o}"),
        _ => literal.to_string(),
    });
}
