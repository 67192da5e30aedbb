//! Explains to people why an expression is false for a request: which parts are false, and which values the request
//! has.

use crate::evaluate::NoObserver;
use crate::field::{AddressField, Fields, NumberField, TextField};
use crate::tree::{Expression, TextTest};
use std::ops::ControlFlow;

/// A part of an expression that is false.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The part in the expression language.
    pub part: String,
    /// The alternatives of the part, if one true alternative would have been enough. Otherwise empty.
    pub any_of: Vec<String>,
    /// Each field that the part tests, with the values of the request.
    pub found: Vec<(String, Vec<String>)>,
}

/// The distance of a request from satisfying an expression; smaller is nearer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Distance {
    /// Number of false parts.
    pub parts: u32,
    /// Sum over the false parts. Each part counts the bytes of its literal that remain after the longest prefix that
    /// the literal shares with a value of the request.
    bytes: usize,
}

/// Maximum length of a shown text in bytes. Longer texts and lists are cut, because people do not read so much.
const MAX_TEXT: usize = 2000;
const MAX_ALTERNATIVES: usize = 20;
const MAX_VALUES: usize = 20;

impl Expression {
    /// The false parts that make the expression false, in order. Empty if the expression is true.
    pub fn reasons(&self, fields: &impl Fields) -> Vec<Reason> {
        let mut reasons = Vec::new();
        self.each_false(fields, &mut Vec::new(), &mut |part| {
            let any_of = match part {
                Self::Any(parts) => {
                    let first = parts.iter().take(MAX_ALTERNATIVES);
                    first.map(|part| shortened(part.to_string())).collect()
                }
                _ => Vec::new(),
            };
            let mut found = Vec::new();
            part.each_value(fields, &mut found);
            reasons.push(Reason {
                part: shortened(part.to_string()),
                any_of,
                found,
            });
        });
        reasons
    }

    /// The distance of the request, which is zero if the expression is true.
    pub fn distance(&self, fields: &impl Fields, buffer: &mut Vec<u8>) -> Distance {
        let mut distance = Distance { parts: 0, bytes: 0 };
        self.each_false(fields, buffer, &mut |part| {
            distance.parts += 1;
            distance.bytes += part.missing(fields);
        });
        distance
    }

    /// Calls `visit` with each false part of a conjunction and of the conjunctions in it. An expression that is not a
    /// conjunction counts as one part.
    fn each_false<'e>(
        &'e self,
        fields: &impl Fields,
        buffer: &mut Vec<u8>,
        visit: &mut dyn FnMut(&'e Expression),
    ) {
        match self {
            Self::All(parts) => {
                for part in parts {
                    part.each_false(fields, buffer, visit);
                }
            }
            part if part.evaluate(fields, buffer, &mut NoObserver) => {}
            part => visit(part),
        }
    }

    /// Number of bytes of the literal that remain after the longest prefix that it shares with a value of the request.
    /// For alternatives, this is the smallest number. The prefix is compared for every test, also for `=^` and
    /// `contains`, because this is only an estimate.
    fn missing(&self, fields: &impl Fields) -> usize {
        match self {
            Self::All(parts) => parts.iter().map(|part| part.missing(fields)).sum(),
            Self::Any(parts) => {
                let missing = parts.iter().map(|part| part.missing(fields));
                missing.min().unwrap_or(0)
            }
            Self::Text(predicate) => {
                let wanted = match &predicate.test {
                    TextTest::Equals(text)
                    | TextTest::StartsWith(text)
                    | TextTest::EndsWith(text)
                    | TextTest::Contains(text) => text,
                    TextTest::Matches(regex) => regex.pattern().trim_start_matches('^'),
                    TextTest::Differs(_) => return 0,
                };
                let mut shared = 0;
                visit_text(fields, &predicate.field, &mut |value| {
                    let pairs = wanted.bytes().zip(value);
                    let equal = pairs.take_while(|(wanted, byte)| wanted == *byte);
                    shared = shared.max(equal.count());
                });
                wanted.len() - shared
            }
            Self::Not(_) | Self::Number(_) | Self::Address(_) => 0,
        }
    }

    fn each_value(&self, fields: &impl Fields, found: &mut Vec<(String, Vec<String>)>) {
        let field = match self {
            Self::All(parts) | Self::Any(parts) => {
                return parts.iter().for_each(|part| part.each_value(fields, found));
            }
            Self::Not(part) => return part.each_value(fields, found),
            Self::Text(predicate) => predicate.field.to_string(),
            Self::Number(predicate) => predicate.field.to_string(),
            Self::Address(predicate) => predicate.field.to_string(),
        };
        if found.iter().all(|(known, _)| *known != field) {
            found.push((field, self.values(fields)));
        }
    }

    /// The values of the field that a predicate tests.
    fn values(&self, fields: &impl Fields) -> Vec<String> {
        let number = |field: NumberField| fields.number(field).map(|number| number.to_string());
        let address =
            |field: AddressField| fields.address(field).map(|address| address.to_string());
        match self {
            Self::Text(predicate) => {
                let mut values = Vec::new();
                visit_text(fields, &predicate.field, &mut |value| {
                    if values.len() < MAX_VALUES {
                        values.push(shortened(String::from_utf8_lossy(value).into_owned()));
                    }
                });
                values
            }
            Self::Number(predicate) => number(predicate.field).into_iter().collect(),
            Self::Address(predicate) => address(predicate.field).into_iter().collect(),
            Self::All(_) | Self::Any(_) | Self::Not(_) => Vec::new(),
        }
    }
}

fn visit_text(fields: &impl Fields, field: &TextField, visit: &mut dyn FnMut(&[u8])) {
    if field.has_several_values() {
        fields.texts(field, &mut |value| {
            visit(value);
            ControlFlow::Continue(())
        });
    } else if let Some(value) = fields.text(field) {
        visit(value);
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Dialect, Regex};
    use crate::syntax::Subsystem;
    use std::net::IpAddr;

    /// `GET /users/7` with two values of `x`.
    struct Request;

    impl Fields for Request {
        fn text(&self, field: &TextField) -> Option<&[u8]> {
            match field {
                TextField::Path => Some(b"/users/7"),
                TextField::Method => Some(b"GET"),
                _ => None,
            }
        }

        fn texts(&self, field: &TextField, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {
            if *field == TextField::Header("x".into()) {
                for value in [&b"1"[..], b"2"] {
                    if visit(value).is_break() {
                        return;
                    }
                }
            }
        }

        fn number(&self, field: NumberField) -> Option<i64> {
            (field == NumberField::DestinationPort).then_some(80)
        }

        fn address(&self, _: AddressField) -> Option<IpAddr> {
            None
        }
    }

    fn read(text: &str) -> Expression {
        let mut compile = |pattern: &str| Regex::new(pattern, Dialect::Rust);
        crate::read(text, Subsystem::Http, &mut compile).expect("a valid expression")
    }

    fn reasons(text: &str) -> Vec<Reason> {
        read(text).reasons(&Request)
    }

    fn found(reason: &Reason) -> Vec<(&str, Vec<&str>)> {
        let found = reason.found.iter();
        let found = found.map(|(field, values)| {
            let values = values.iter().map(String::as_str);
            (field.as_str(), values.collect())
        });
        found.collect()
    }

    #[test]
    fn a_true_expression_has_no_reasons() {
        assert_eq!(
            reasons(r#"http.path ^= "/users" && net.dst.port == 80"#),
            []
        );
        let distance = read(r#"http.method == "GET""#).distance(&Request, &mut Vec::new());
        assert_eq!(distance, Distance { parts: 0, bytes: 0 });
    }

    #[test]
    fn every_false_part_is_reported_with_the_values_of_the_request() {
        let reasons = reasons(
            r#"http.method == "POST" && http.path ^= "/users" && http.headers.x == "1" && net.src.ip in 10.0.0.0/8"#,
        );
        let parts: Vec<&str> = reasons.iter().map(|reason| reason.part.as_str()).collect();
        assert_eq!(
            parts,
            [
                r#"http.method == "POST""#,
                r#"http.headers.x == "1""#,
                "net.src.ip in 10.0.0.0/8"
            ]
        );
        assert_eq!(found(&reasons[0]), [("http.method", vec!["GET"])]);
        assert_eq!(found(&reasons[1]), [("http.headers.x", vec!["1", "2"])]);
        assert_eq!(found(&reasons[2]), [("net.src.ip", vec![])]);
    }

    #[test]
    fn all_alternatives_are_reported() {
        let reasons = reasons(r#"http.path == "/a" || http.path == "/b" || net.dst.port > 80"#);
        assert_eq!(reasons.len(), 1);
        assert_eq!(
            reasons[0].any_of,
            [
                r#"http.path == "/a""#,
                r#"http.path == "/b""#,
                "net.dst.port > 80"
            ]
        );
        assert_eq!(
            found(&reasons[0]),
            [
                ("http.path", vec!["/users/7"]),
                ("net.dst.port", vec!["80"])
            ]
        );
    }

    #[test]
    fn a_negation_is_one_part() {
        let reasons = reasons(r#"!(http.path ^= "/users" && http.method == "GET")"#);
        assert_eq!(reasons.len(), 1);
        assert_eq!(
            found(&reasons[0]),
            [
                ("http.path", vec!["/users/7"]),
                ("http.method", vec!["GET"])
            ]
        );
    }

    #[test]
    fn the_nearest_fails_in_the_fewest_parts_and_then_in_the_fewest_bytes() {
        let mut expressions = [
            r#"http.path == "/orders" && http.method == "PUT""#,
            r#"http.path == "/orders""#,
            r#"http.path == "/users/8" || http.path == "/x""#,
            r#"http.path ^= "/users""#,
            r#"http.path ~ "^/usex""#,
        ]
        .map(|text| (read(text).distance(&Request, &mut Vec::new()), text));
        expressions.sort_unstable();
        assert_eq!(
            expressions.map(|(_, text)| text),
            [
                r#"http.path ^= "/users""#,
                r#"http.path == "/users/8" || http.path == "/x""#,
                r#"http.path ~ "^/usex""#,
                r#"http.path == "/orders""#,
                r#"http.path == "/orders" && http.method == "PUT""#,
            ]
        );
    }

    #[test]
    fn very_long_parts_are_cut() {
        let many: Vec<String> = (0..1000)
            .map(|number| format!(r#"http.path == "/{number}""#))
            .collect();
        let reasons = reasons(&many.join(" || "));
        assert_eq!(reasons[0].any_of.len(), MAX_ALTERNATIVES);
        assert!(reasons[0].part.len() < MAX_TEXT + 10 && reasons[0].part.ends_with('…'));
    }
}
