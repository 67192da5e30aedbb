//! Tests the evaluation of expressions, and which patterns each regex dialect accepts and what they match.

use expr::{
    AddressField, AddressTest, Comparison, Dialect, Expression, Fields, NoObserver, NumberField,
    Observer, Quantifier, Regex, TextField, TextPredicate, TextTest, Transform,
};
use std::net::IpAddr;
use std::ops::{ControlFlow, Range};

#[derive(Default)]
struct Sample {
    path: Option<&'static str>,
    port: Option<i64>,
    address: Option<IpAddr>,
    header: Vec<&'static str>,
}

impl Fields for Sample {
    fn text(&self, field: &TextField) -> Option<&[u8]> {
        match field {
            TextField::Path => self.path.map(str::as_bytes),
            _ => None,
        }
    }

    fn number(&self, _field: NumberField) -> Option<i64> {
        self.port
    }

    fn address(&self, _field: AddressField) -> Option<IpAddr> {
        self.address
    }

    fn texts(&self, _field: &TextField, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {
        let _ = self
            .header
            .iter()
            .try_for_each(|value| visit(value.as_bytes()));
    }
}

fn passes(expression: &Expression, sample: &Sample) -> bool {
    expression.evaluate(sample, &mut Vec::new(), &mut NoObserver)
}

fn path(test: TextTest) -> Expression {
    Expression::text(TextField::Path, test)
}

fn header(quantifier: Quantifier, transform: Transform, test: TextTest) -> Expression {
    TextPredicate {
        field: TextField::Header("x".into()),
        quantifier,
        transform,
        test,
    }
    .into()
}

#[test]
fn text_tests_compare_bytes() {
    let sample = Sample {
        path: Some("/a/b"),
        ..Sample::default()
    };
    for (test, expected) in [
        (TextTest::Equals("/a/b".into()), true),
        (TextTest::Equals("/A/b".into()), false),
        (TextTest::Differs("/a".into()), true),
        (TextTest::StartsWith("/a".into()), true),
        (TextTest::StartsWith("/b".into()), false),
        (TextTest::EndsWith("/b".into()), true),
        (TextTest::EndsWith("x/a/b".into()), false),
        (TextTest::Contains("a/".into()), true),
        (TextTest::Contains("".into()), true),
        (TextTest::Contains("c".into()), false),
    ] {
        let shown = format!("{test:?}");
        assert_eq!(passes(&path(test), &sample), expected, "{shown}");
    }
}

#[test]
fn a_field_without_a_value_passes_no_test() {
    let sample = Sample::default();
    assert!(!passes(&path(TextTest::Differs("/a".into())), &sample));
    assert!(passes(
        &Expression::Not(Box::new(path(TextTest::Differs("/a".into())))),
        &sample
    ));
    let port = Expression::number(NumberField::DestinationPort, Comparison::NotEqual, 80);
    assert!(!passes(&port, &sample));
    let test = TextTest::Differs("1".into());
    assert!(!passes(
        &header(Quantifier::All, Transform::None, test),
        &sample
    ));
}

#[test]
fn all_of_several_values_must_pass_unless_one_is_enough() {
    let sample = Sample {
        header: vec!["One", "two"],
        ..Sample::default()
    };
    for (quantifier, transform, text, expected) in [
        (Quantifier::Any, Transform::None, "One", true),
        (Quantifier::Any, Transform::Lower, "one", true),
        (Quantifier::Any, Transform::LowerAscii, "one", true),
        (Quantifier::Any, Transform::None, "two", true),
        (Quantifier::Any, Transform::None, "three", false),
        (Quantifier::All, Transform::None, "One", false),
        (Quantifier::All, Transform::None, "two", false),
    ] {
        let expression = header(quantifier, transform, TextTest::Equals(text.into()));
        assert_eq!(passes(&expression, &sample), expected, "{expression:?}");
    }
    let either = header(
        Quantifier::All,
        Transform::None,
        TextTest::Contains("o".into()),
    );
    assert!(!passes(&either, &sample), "\"One\" has no small o");
}

#[test]
fn lower_knows_unicode_and_its_ascii_form_does_not() {
    let sample = Sample {
        header: vec!["ÄB"],
        ..Sample::default()
    };
    let test = || TextTest::Equals("äb".into());
    assert!(passes(
        &header(Quantifier::Any, Transform::Lower, test()),
        &sample
    ));
    assert!(!passes(
        &header(Quantifier::Any, Transform::LowerAscii, test()),
        &sample
    ));
    assert!(passes(
        &header(
            Quantifier::Any,
            Transform::LowerAscii,
            TextTest::Equals("Äb".into())
        ),
        &sample
    ));
}

#[test]
fn the_observer_is_notified_of_located_parts_of_the_path() {
    #[derive(Default)]
    struct Located(Vec<Range<usize>>);
    impl Observer for Located {
        fn path(&mut self, located: Range<usize>) {
            self.0.push(located);
        }
    }
    let regex = Regex::new("^/a(b)", Dialect::Rust).unwrap();
    let expression = Expression::any(vec![
        Expression::all(vec![
            path(TextTest::StartsWith("/a".into())),
            path(TextTest::Contains("z".into())),
        ]),
        path(TextTest::EndsWith("c".into())),
        path(TextTest::Matches(regex)),
    ]);
    let sample = Sample {
        path: Some("/ab"),
        ..Sample::default()
    };
    let mut located = Located::default();
    assert!(expression.evaluate(&sample, &mut Vec::new(), &mut located));
    assert_eq!(located.0, [0..2, 0..3]);
}

#[test]
fn regexes_report_groups_that_took_part() {
    for dialect in [Dialect::Rust, Dialect::Pcre] {
        let regex = Regex::new("^/(?<a>x)?(y)", dialect).unwrap();
        assert!(regex.has_groups());
        let mut groups = Vec::new();
        regex.captures(b"/xy", &mut |group, value| {
            groups.push(format!("{group:?}={}", String::from_utf8_lossy(value)));
        });
        assert_eq!(groups, ["Number(1)=x", "Name(\"a\")=x", "Number(2)=y"]);
        groups.clear();
        regex.captures(b"/y", &mut |group, _| groups.push(format!("{group:?}")));
        assert_eq!(groups, ["Number(2)"]);
    }
}

#[test]
fn dialects_differ_as_their_engines_do() {
    assert!(Regex::new("(?=a)", Dialect::Rust).is_err());
    assert!(Regex::new("(?=a)", Dialect::Pcre).is_ok());
    assert!(Regex::new(r"(a)\1", Dialect::Rust).is_err());
    let doubled = Regex::new(r"(a|b)\1", Dialect::Pcre).unwrap();
    assert_eq!(doubled.find(b"xabba"), Some(2..4));
    let arabic_digit = "٣".as_bytes();
    assert!(
        Regex::new(r"\d", Dialect::Rust)
            .unwrap()
            .is_match(arabic_digit)
    );
    assert!(
        !Regex::new(r"\d", Dialect::Pcre)
            .unwrap()
            .is_match(arabic_digit)
    );
    let possessive = Regex::new("^a++a", Dialect::Pcre).unwrap();
    assert!(!possessive.is_match(b"aaa"));
    let bytes = Regex::new("^/.+/x", Dialect::Pcre).unwrap();
    assert!(bytes.is_match(b"/\xff\xfe/x"));
}

#[test]
fn adversarial_patterns_are_refused_or_given_up() {
    for dialect in [Dialect::Rust, Dialect::Pcre] {
        assert!(Regex::new("((\\w{100}){100}){100}", dialect).is_err());
    }
    // Without a limit on backtracking, the time of this search would be exponential in the length of the text.
    let catastrophic = Regex::new(r"^(?:(a+)+)\1$", Dialect::Pcre).unwrap();
    let text = [b"a".repeat(200), b"!".to_vec()].concat();
    assert!(!catastrophic.is_match(&text));
}

#[test]
fn addresses_are_compared_and_looked_for_in_blocks() {
    let sample = Sample {
        address: Some("10.1.2.3".parse().unwrap()),
        ..Sample::default()
    };
    let (own, other) = ("10.1.2.3".parse().unwrap(), "10.1.2.4".parse().unwrap());
    let (around, elsewhere) = ("10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap());
    for (test, expected) in [
        (AddressTest::Equals(own), true),
        (AddressTest::Equals(other), false),
        (AddressTest::Differs(other), true),
        (AddressTest::In(around), true),
        (AddressTest::In(elsewhere), false),
        (AddressTest::NotIn(around), false),
        (AddressTest::NotIn(elsewhere), true),
    ] {
        let expression = Expression::address(AddressField::Source, test);
        assert_eq!(passes(&expression, &sample), expected, "{test:?}");
        assert!(!passes(&expression, &Sample::default()), "{test:?}");
    }
}
