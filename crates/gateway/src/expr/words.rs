//! Describes expressions in words.

use expr::{
    AddressField, AddressTest, Comparison, Expression, NumberField, Quantifier, TextField,
    TextPredicate, TextTest, Transform,
};
use std::fmt::Write;

/// Writes one line for each test. A group of tests has a line of its own, and its tests are indented below it.
pub(super) fn describe(expression: &Expression, depth: usize, out: &mut String) {
    let indent = depth * 2;
    let _ = write!(out, "{:indent$}", "");
    let parts = match expression {
        Expression::All(parts) => {
            out.push_str("all of these hold:\n");
            &parts[..]
        }
        Expression::Any(parts) => {
            out.push_str("at least one of these holds:\n");
            &parts[..]
        }
        Expression::Not(part) => {
            out.push_str("this does not hold:\n");
            std::slice::from_ref(&**part)
        }
        Expression::Text(predicate) => return text(predicate, out),
        Expression::Number(predicate) => {
            let field = match predicate.field {
                NumberField::SourcePort => "the client's port",
                NumberField::DestinationPort => {
                    "the port in the Host header, or else the listener's,"
                }
                NumberField::SegmentCount => "the number of segments of the path",
            };
            let comparison = match predicate.comparison {
                Comparison::Equal => "is",
                Comparison::NotEqual => "is known and not",
                Comparison::Less => "is less than",
                Comparison::LessOrEqual => "is at most",
                Comparison::Greater => "is greater than",
                Comparison::GreaterOrEqual => "is at least",
            };
            let _ = writeln!(out, "{field} {comparison} {}", predicate.value);
            return;
        }
        Expression::Address(predicate) => {
            let field = match predicate.field {
                AddressField::Source => "the client's address",
                AddressField::Destination => "the listener's address",
            };
            let _ = match predicate.test {
                AddressTest::Equals(address) => writeln!(out, "{field} is {address}"),
                AddressTest::Differs(address) => {
                    writeln!(out, "{field} is known and not {address}")
                }
                AddressTest::In(block) => writeln!(out, "{field} is in {block}"),
                AddressTest::NotIn(block) => writeln!(out, "{field} is known and not in {block}"),
            };
            return;
        }
    };
    for part in parts {
        describe(part, depth + 1, out);
    }
}

fn text(predicate: &TextPredicate, out: &mut String) {
    let field = field(predicate);
    let lower = match predicate.transform {
        Transform::None => "",
        Transform::Lower | Transform::LowerAscii => ", in lower case,",
    };
    let (test, literal): (_, &str) = match &predicate.test {
        TextTest::Equals(text) => ("is", text),
        TextTest::Differs(text) => ("is there and not", text),
        TextTest::StartsWith(text) => ("begins with", text),
        TextTest::EndsWith(text) => ("ends with", text),
        TextTest::Contains(text) => ("contains", text),
        TextTest::Matches(regex) => {
            let place = if regex.pattern().starts_with('^') {
                "from its beginning"
            } else {
                "somewhere"
            };
            let pattern = regex.pattern();
            let _ = writeln!(out, "{field}{lower} matches the regex {pattern} {place}");
            return;
        }
    };
    let _ = writeln!(out, "{field}{lower} {test} {literal:?}");
}

fn field(predicate: &TextPredicate) -> String {
    let each = match predicate.quantifier {
        Quantifier::All => "there is a value, and every value,",
        Quantifier::Any => "any value",
    };
    match &predicate.field {
        TextField::Protocol => "the protocol".to_owned(),
        TextField::Sni => "the server name of the TLS handshake".to_owned(),
        TextField::Method => "the method".to_owned(),
        TextField::Host | TextField::WildcardHost => "the host without its port".to_owned(),
        TextField::SentHost => "the Host header".to_owned(),
        TextField::Path => "the path".to_owned(),
        TextField::Segments { first, last } if first == last => {
            format!("segment {first} of the path (counted from 0)")
        }
        TextField::Segments { first, last } => {
            format!("the text of segments {first} to {last} of the path (counted from 0)")
        }
        TextField::Header(name) => {
            format!("{each} of the header {}", name.replace('_', "-"))
        }
        TextField::Query(name) => format!("{each} of the query argument {name}"),
    }
}

/// Returns warnings about tests that are valid but probably not intended.
pub(super) fn warnings(expression: &Expression) -> Vec<String> {
    let mut warnings = Vec::new();
    expression.each_text(&mut |predicate| {
        let Some(warning) = warning(predicate) else {
            return;
        };
        warnings.push(format!(
            "{}: {warning}",
            Expression::from(predicate.clone())
        ));
    });
    warnings
}

fn warning(predicate: &TextPredicate) -> Option<&'static str> {
    let is_lowered = predicate.transform == Transform::Lower;
    let is_path = predicate.field == TextField::Path;
    match &predicate.test {
        TextTest::Equals(text)
        | TextTest::StartsWith(text)
        | TextTest::EndsWith(text)
        | TextTest::Contains(text)
            if is_lowered && text.to_lowercase() != **text =>
        {
            Some("the value is in lower case and the literal is not, so it is never true")
        }
        TextTest::EndsWith(_) if is_path => {
            Some("with strip_path as many bytes are cut off the beginning of the path, not its end")
        }
        TextTest::Matches(regex) if is_path && !regex.pattern().starts_with('^') => Some(
            "the regex may match anywhere, and with strip_path as many bytes are cut off the beginning of the path; begin it with ^",
        ),
        TextTest::StartsWith(text) | TextTest::Equals(text)
            if is_path && !text.starts_with('/') =>
        {
            Some("every path begins with a slash, so it is never true")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expr::{Dialect, Regex, Subsystem};

    fn read(text: &str) -> Expression {
        let mut compile = |pattern: &str| Regex::new(pattern, Dialect::Rust);
        expr::read(text, Subsystem::Http, &mut compile).expect("a valid expression")
    }

    fn words(text: &str) -> String {
        let mut out = String::new();
        describe(&read(text), 0, &mut out);
        out
    }

    #[test]
    fn groups_are_lists_of_their_conditions() {
        assert_eq!(
            words(
                r#"http.path ^= "/a" && (http.method == "GET" || lower(http.headers.x_y) != "b") && !(net.src.ip in 10.0.0.0/8)"#
            ),
            "\
all of these hold:
  the path begins with \"/a\"
  at least one of these holds:
    the method is \"GET\"
    there is a value, and every value, of the header x-y, in lower case, is there and not \"b\"
  this does not hold:
    the client's address is in 10.0.0.0/8
"
        );
    }

    #[test]
    fn every_kind_of_test_has_words() {
        for (text, wanted) in [
            (
                r#"any(http.queries.a) =^ "b""#,
                "any value of the query argument a ends with \"b\"\n",
            ),
            (
                r##"http.path.segments.0_1 ~ r#"^a\d"#"##,
                "the text of segments 0 to 1 of the path (counted from 0) matches the regex ^a\\d from its beginning\n",
            ),
            (
                "http.path.segments.len >= 2",
                "the number of segments of the path is at least 2\n",
            ),
            ("net.src.port < 5", "the client's port is less than 5\n"),
            (
                "net.dst.ip not in ::1/128",
                "the listener's address is known and not in ::1/128\n",
            ),
            (
                r#"tls.sni contains "x""#,
                "the server name of the TLS handshake contains \"x\"\n",
            ),
        ] {
            assert_eq!(words(text), wanted, "{text}");
        }
    }

    #[test]
    fn probable_mistakes_cause_warnings() {
        for text in [
            r#"lower(http.path) == "/A""#,
            r#"http.path =^ "/a""#,
            r#"http.path ~ "/a""#,
            r#"http.path ^= "a""#,
        ] {
            assert_eq!(warnings(&read(text)).len(), 1, "{text}");
        }
        assert!(warnings(&read(r#"http.path ~ "^/a" && lower(http.host) == "a""#)).is_empty());
    }
}
