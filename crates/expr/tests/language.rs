//! Compares the expression language with Kong's: which texts are accepted, what they mean, and which errors refused
//! texts cause.

use expr::syntax::{ErrorKind, MAX_DEPTH, MAX_LENGTH};
use expr::{
    AddressField, AddressTest, Dialect, Error, Expression, Fields, NoObserver, NumberField,
    Quantifier, Regex, Subsystem, TextField, TextPredicate, TextTest, Transform, parse, read,
};
use std::net::IpAddr;
use std::ops::ControlFlow;

fn compiled(text: &str) -> Result<Expression, Error> {
    read(text, Subsystem::Http, &mut |pattern| {
        Regex::new(pattern, Dialect::Rust)
    })
}

#[test]
fn texts_are_accepted_and_refused_as_by_kong() {
    let vectors = include_str!("../../router/tests/data/router-vectors.json");
    let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
    let cases = vectors["expression_validation"]["cases"]
        .as_array()
        .unwrap();
    for case in cases {
        let text = case["expression"].as_str().unwrap();
        let subsystem = match case["protocol"].as_str().unwrap() {
            "http" => Subsystem::Http,
            _ => Subsystem::Stream,
        };
        let typed = parse(text).and_then(|parsed| parsed.check(subsystem));
        let read = typed.and_then(|typed| {
            typed.compile(&mut |pattern| Regex::new(pattern, Dialect::Rust))?;
            Ok(typed)
        });
        match (case["valid"].as_bool().unwrap(), read) {
            (true, Ok(typed)) => {
                let fields: Vec<_> = typed.fields().collect();
                assert_eq!(serde_json::json!(fields), case["fields"], "{text}");
            }
            (true, Err(error)) => panic!("{text}\n{error}"),
            (false, Ok(_)) => panic!("accepted: {text}"),
            (false, Err(error)) => {
                let kongs = case["error"].as_str().unwrap();
                let kongs = kongs.rsplit("  = ").next().unwrap();
                let kongs = kongs.split('\n').next().unwrap();
                let own = error.to_string();
                assert!(own.starts_with(kongs), "{text}\n{own}\nnot {kongs}");
            }
        }
    }
}

#[test]
fn or_binds_tighter_than_and() {
    for (text, expected) in [
        (
            "net.dst.port == 1 && net.dst.port == 2 || net.dst.port == 3",
            "net.dst.port == 1 && (net.dst.port == 2 || net.dst.port == 3)",
        ),
        (
            "net.dst.port == 1 || net.dst.port == 2 && net.dst.port == 3",
            "(net.dst.port == 1 || net.dst.port == 2) && net.dst.port == 3",
        ),
        (
            "(net.dst.port == 1 && net.dst.port == 2) || net.dst.port == 3",
            "(net.dst.port == 1 && net.dst.port == 2) || net.dst.port == 3",
        ),
        (
            "net.dst.port==0717&&(net.dst.port!=0x1F90&&(net.dst.port>-09))",
            "net.dst.port == 463 && net.dst.port != 8080 && net.dst.port > -9",
        ),
    ] {
        assert_eq!(parse(text).unwrap().to_string(), expected);
        assert_eq!(compiled(text).unwrap().to_string(), expected);
    }
}

#[test]
fn the_grammar_goes_beyond_the_vectors() {
    // The second text is the printed form. It is empty if the first text must be refused.
    for (text, printed) in [
        ("net.src.ip in10.0.0.0/8", "net.src.ip in 10.0.0.0/8"),
        (
            "net.src.ip not\n\tin 10.0.0.0/08",
            "net.src.ip not in 10.0.0.0/8",
        ),
        ("net.src.ip in ::/0", "net.src.ip in ::/0"),
        ("net.src.ip == FD00:0::1", "net.src.ip == fd00::1"),
        (
            "net.src.ip == ::ffff:102:304",
            "net.src.ip == ::ffff:102:304",
        ),
        ("net.src.ip in 10.0.0.1/32", "net.src.ip in 10.0.0.1/32"),
        ("net.dst.port==0x", ""),
        ("net.dst.port == 0779", ""),
        ("net.dst.port == - 1", ""),
        ("net.dst.port == 080", "net.dst.port == 80"),
        ("net.dst.port == -0x10", "net.dst.port == -16"),
        (
            "net.dst.port == 9223372036854775807",
            "net.dst.port == 9223372036854775807",
        ),
        ("net.dst.port == 9223372036854775808", ""),
        (
            "net.dst.port == -9223372036854775808",
            "net.dst.port == -9223372036854775808",
        ),
        (
            "net.dst.port == 0x99999999999999999999999999999999999999",
            "",
        ),
        ("http.path contains\"a\"", "http.path contains \"a\""),
        ("http.path == r#\"\"#", "http.path == \"\""),
        ("http.path == r#\"a\"b\"\"#", "http.path == r#\"a\"b\"\"#"),
        (
            "http.path == \"\\t\\r\\n\\\"\\\\\"",
            "http.path == \"\\t\\r\\n\\\"\\\\\"",
        ),
        ("http.path == \"a\nb\"", "http.path == \"a\\nb\""),
        ("http.path == \"\\\"#\"", "http.path == \"\\\"#\""),
        (
            "http.path == \"\u{e9}\u{4f60}\"",
            "http.path == \"\u{e9}\u{4f60}\"",
        ),
        (
            "lower ( any( http.headers.a )) == \"b\"",
            "lower(any(http.headers.a)) == \"b\"",
        ),
        ("lower() == \"a\"", ""),
        ("lower(http.path == \"a\"", ""),
        ("any(net.dst.port) == 1", "any(net.dst.port) == 1"),
        ("net.src.ip notin 10.0.0.0/8", ""),
        ("net.src.ip in 10.0.0.0/33", ""),
        ("net.src.ip in ::/129", ""),
        ("net.src.ip == 256.0.0.1", ""),
        ("net.src.ip == 010.0.0.1", ""),
        ("net.src.ip == 1.2.3", ""),
        ("net.src.ip == ::1::2", ""),
        ("net.src.ip == ::ffff:1.2.3.4", ""),
        ("net.src.ip ~ \"1\"", ""),
        ("http.path ~ 1", ""),
        ("http.path ^= 1", ""),
        ("net.dst.port in 10.0.0.0/8", ""),
        ("net.src.ip > 10.0.0.0", ""),
        ("net.src.ip contains 10.0.0.0", ""),
        ("net.src.ip ^= 10.0.0.0", ""),
        ("http.headers.a.b == \"c\"", ""),
        ("http.headers. == \"c\"", "http.headers. == \"c\""),
        ("http.path\u{a0}== \"a\"", ""),
        ("\u{feff}http.path == \"a\"", ""),
        ("()", ""),
        ("(http.path == \"a\"", ""),
        ("http.path == \"a\")", ""),
        ("http.path == \"a\" and http.path == \"b\"", ""),
        ("http.path = \"a\"", ""),
        ("http.path == \"a", ""),
        ("http.path == r#\"a\"", ""),
    ] {
        match parse(text).and_then(|parsed| compiled(text).map(|_| parsed)) {
            Ok(parsed) => assert_eq!(parsed.to_string(), printed, "{text}"),
            Err(error) => assert_eq!(printed, "", "{text}\n{error}"),
        }
    }
}

#[test]
fn segments_are_numbers_in_their_shortest_form() {
    for (range, is_known) in [
        ("0", true),
        ("0_1", true),
        ("9_10", true),
        ("len", true),
        ("4294967296", true),
        ("4294967296_99999999999999999999999", true),
        ("", false),
        ("len0", false),
        ("abc", false),
        ("a_c", false),
        ("01", false),
        ("00", false),
        ("1_", false),
        ("_1", false),
        ("1_1", false),
        ("2_1", false),
        ("10_9", false),
        ("1_02", false),
        ("0_0", false),
        ("1_2_3", false),
        ("99999999999999999999999_99999999999999999999999", false),
    ] {
        let literal = if range == "len" { "1" } else { "\"a\"" };
        let text = format!("http.path.segments.{range} == {literal}");
        let checked = parse(&text).unwrap().check(Subsystem::Http);
        assert_eq!(checked.is_ok(), is_known, "{range}");
    }
}

#[test]
fn streams_have_no_fields_of_http() {
    for (field, is_known) in [
        ("net.protocol", true),
        ("tls.sni", true),
        ("http.path", false),
        ("http.headers.a", false),
        ("http.path.segments.0", false),
    ] {
        let parsed = parse(&format!("{field} == \"a\"")).unwrap();
        assert_eq!(parsed.check(Subsystem::Stream).is_ok(), is_known, "{field}");
        assert!(parsed.check(Subsystem::Http).is_ok(), "{field}");
    }
}

#[test]
fn redundant_groups_and_negations_are_not_compiled() {
    let (a, b, c) = (
        "http.path == \"a\"",
        "http.host == \"b\"",
        "tls.sni == \"c\"",
    );
    for (text, shown) in [
        (format!("!(!({a}))"), a.to_owned()),
        (format!("!(!(!({a})))"), format!("!({a})")),
        (
            format!("{a} && !(!({b} && {c}))"),
            format!("{a} && {b} && {c}"),
        ),
        (
            format!("({a} || ({b} || !(!({c} || {a}))))"),
            format!("{a} || {b} || {c} || {a}"),
        ),
        (
            "lower(any(lower(http.path))) == \"x\"".to_owned(),
            "lower(http.path) == \"x\"".to_owned(),
        ),
        (
            "lower(any(http.headers.X_A)) == \"x\"".to_owned(),
            "any(lower(http.headers.x_a)) == \"x\"".to_owned(),
        ),
        (
            "http.queries.Q == \"x\"".to_owned(),
            "http.queries.Q == \"x\"".to_owned(),
        ),
    ] {
        assert_eq!(compiled(&text).unwrap().to_string(), shown);
    }
}

#[test]
fn trees_of_classic_routes_print_in_the_language() {
    let text = |field| Expression::text(field, TextTest::StartsWith("a".into()));
    let header = TextPredicate {
        field: TextField::Header("x-real-ip".into()),
        quantifier: Quantifier::Any,
        transform: Transform::LowerAscii,
        test: TextTest::Matches(Regex::new(r"^\d$", Dialect::Pcre).unwrap()),
    };
    let block = "fd00::1/8".parse().unwrap();
    let expression = Expression::all(vec![
        Expression::any(vec![
            text(TextField::SentHost),
            text(TextField::WildcardHost),
        ]),
        header.into(),
        Expression::address(AddressField::Source, AddressTest::NotIn(block)),
    ]);
    let shown = "(http.headers.host ^= \"a\" || http.host ^= \"a\") \
                 && any(lower(http.headers.x_real_ip)) ~ r#\"^\\d$\"# && net.src.ip not in fd00::/8";
    assert_eq!(expression.to_string(), shown);
    assert_eq!(compiled(shown).unwrap().to_string(), shown);
    assert_eq!(Expression::all(Vec::new()).to_string(), "true");
}

#[test]
fn names_are_found_where_they_stand() {
    let text = "net.port == 80 || any(net.port) != 1";
    let parsed = parse(text).unwrap();
    let names = parsed.names();
    assert_eq!(names, [("net.port", 0..8), ("net.port", 22..30)]);
}

const TEST: &str = "http.path == \"/\"";

#[test]
fn nesting_has_a_limit_and_below_it_small_stacks_are_enough() {
    let parentheses = |depth: usize| format!("{}{TEST}{}", "(".repeat(depth), ")".repeat(depth));
    let negations = |depth: usize| format!("{}{TEST}{}", "!(".repeat(depth), ")".repeat(depth));
    // Each parenthesis adds two levels.
    let groups = |depth: usize| {
        let open = format!("{TEST} && {TEST} || (").repeat(depth / 2);
        format!("{open}{TEST}{}", ")".repeat(depth / 2))
    };
    let check = move || {
        for deepest in [parentheses(MAX_DEPTH), negations(MAX_DEPTH)] {
            round(&deepest);
        }
        round(&groups(MAX_DEPTH));
        for text in [
            parentheses(MAX_DEPTH + 1),
            negations(MAX_DEPTH + 1),
            parentheses(100_000),
            "(".repeat(MAX_LENGTH),
            "!(".repeat(MAX_LENGTH / 2),
            "lower(".repeat(MAX_LENGTH / 6),
        ] {
            assert!(parse(&text).is_err());
        }
        let error = parse(&groups(2 * MAX_DEPTH)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooDeep);
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    thread.spawn(check).unwrap().join().unwrap();
}

/// Performs every operation that descends the tree of an expression.
fn round(text: &str) {
    let parsed = parse(text).expect("a valid expression");
    assert_eq!(
        parse(&parsed.to_string()).expect("a valid expression"),
        parsed
    );
    assert_eq!(
        parse(&parsed.format(40)).expect("a valid expression"),
        parsed
    );
    let compiled = compiled(text).expect("a valid expression");
    assert_eq!(compiled.to_string(), compiled.clone().to_string());
    compiled.evaluate(&Nothing, &mut Vec::new(), &mut NoObserver);
}

/// A request without any values.
struct Nothing;

impl Fields for Nothing {
    fn text(&self, _field: &TextField) -> Option<&[u8]> {
        None
    }

    fn texts(&self, _field: &TextField, _visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {}

    fn number(&self, _field: NumberField) -> Option<i64> {
        None
    }

    fn address(&self, _field: AddressField) -> Option<IpAddr> {
        None
    }
}

#[test]
fn long_chains_are_no_nesting() {
    let parts = vec![TEST; MAX_LENGTH / (TEST.len() + 4)];
    for operator in [" || ", " && "] {
        let text = parts.join(operator);
        round(&text);
    }
    let longer = [TEST; MAX_LENGTH / TEST.len()].join("||");
    assert_eq!(parse(&longer).unwrap_err().kind, ErrorKind::TooLong);
}

#[test]
fn expressions_are_laid_out_within_the_width() {
    let text = "http.host == \"a.example\" && (http.path ^= \"/one\" || http.path ^= \"/two\" && http.method == \"GET\") \
                && !(net.src.ip in 10.0.0.0/8 || net.src.ip in fd00::/8) && !(http.path =^ \".php\")";
    let parsed = parse(text).unwrap();
    assert_eq!(parsed.format(usize::MAX), parsed.to_string());
    let expected = "\
http.host == \"a.example\"
&& (http.path ^= \"/one\" || http.path ^= \"/two\")
&& http.method == \"GET\"
&& !(
    net.src.ip in 10.0.0.0/8
    || net.src.ip in fd00::/8
)
&& !(http.path =^ \".php\")";
    assert_eq!(parsed.format(50), expected);
    let narrow = parsed.format(1);
    assert!(
        narrow.contains("\n&& (\n    http.path ^= \"/one\"\n    || http.path ^= \"/two\"\n)\n")
    );
}

/// Each case of the file consists of an expression, a line of four hyphens, the error, and a line of four equals signs.
#[test]
fn diagnostics_point_at_what_is_wrong() {
    let file = include_str!("data/diagnostics.txt");
    let mut told = String::new();
    for case in file.split_terminator("\n====\n") {
        let (text, _) = case.split_once("\n----\n").unwrap();
        let error = compiled(text).expect_err(text);
        told += &format!("{text}\n----\n{error}\n====\n");
    }
    assert!(told == file, "the file should contain:\n{told}");
}

#[test]
fn errors_tell_lines_and_columns() {
    let error = compiled("http.path == \"\u{e9}\" &&\r\n  http.foo == \"a\"").unwrap_err();
    assert_eq!((error.line(), error.column()), (2, 3));
    assert_eq!(error.span, 24..32);
}
