use super::super::rules::Rule;
use super::super::testing::{Request, compile};
use super::*;

const JSON: &[u8] = b"application/json";
const PARTS: &[u8] = b"multipart/form-data; boundary=BB";

fn pairs(entries: &[(&str, &str)]) -> Box<[Rule]> {
    let rule = |&(name, value): &(&str, &str)| Rule {
        name: name.into(),
        value: compile(value),
        breaks: false,
    };
    entries.iter().map(rule).collect()
}

/// Returns the new body, or `None` if it stays.
fn changed(rules: &RuleSet, content_type: &[u8], body: &str) -> Option<String> {
    let request = Request::with_headers(&[("x-in", "1\r\n--BB\r\n")]);
    let kind = Kind::of(content_type).expect("a known type");
    let body = transform(rules, kind, content_type, body.as_bytes(), &request).expect("rendered");
    body.map(|body| String::from_utf8(body).expect("a text"))
}

fn add(name: &str, value: &str) -> RuleSet {
    RuleSet {
        add: pairs(&[(name, value)]),
        ..RuleSet::default()
    }
}

#[test]
fn the_type_is_found_anywhere_in_the_header() {
    assert_eq!(
        Kind::of(b"Application/JSON; charset=utf-8"),
        Some(Kind::Json)
    );
    assert_eq!(
        Kind::of(b"x, application/x-www-form-urlencoded"),
        Some(Kind::Form)
    );
    assert_eq!(Kind::of(PARTS), Some(Kind::Multipart));
    assert_eq!(Kind::of(b"text/plain"), None);
}

#[test]
fn all_rules_apply_to_a_json_object() {
    let rules = RuleSet {
        remove: ["d".into()].into(),
        rename: pairs(&[("o", "p"), ("f", "g")]),
        replace: pairs(&[("r", "new"), ("no", "x"), ("off", "x"), ("null", "x")]),
        add: pairs(&[("n", "1"), ("have", "x"), ("off", "on")]),
        append: pairs(&[
            ("l", "2"),
            ("s", "b"),
            ("a", "1"),
            ("num", "2"),
            ("obj", "v"),
            ("obj", "w"),
            ("new", "1"),
        ]),
    };
    let body = concat!(
        r#"{"have":"h","r":1,"d":true,"o":{"k":1},"f":false,"off":false,"null":null,"l":["1"],"s":"a","a":{},"#,
        r#""num":5,"obj":{"k":1},"e":[],"big":1.5}"#
    );
    assert_eq!(
        changed(&rules, JSON, body).as_deref(),
        Some(concat!(
            r#"{"have":"h","r":"new","f":false,"off":"on","null":"x","l":["1","2"],"s":["a","b"],"a":["1"],"#,
            r#""num":["2"],"obj":{"k":1,"1":"v","2":"w"},"e":[],"big":1.5,"p":{"k":1},"n":"1","new":["1"]}"#
        ))
    );
}

#[test]
fn json_that_is_no_object_stays_as_it_is() {
    for body in ["not json", "[1]", "\"text\"", "5", "{\"a\":1"] {
        assert_eq!(changed(&add("a", "1"), JSON, body), None, "{body}");
    }
}

#[test]
fn an_empty_body_counts_as_an_empty_object() {
    assert_eq!(
        changed(&add("a", "1"), JSON, "").as_deref(),
        Some(r#"{"a":"1"}"#)
    );
    let others = RuleSet {
        remove: ["a".into()].into(),
        rename: pairs(&[("a", "b")]),
        replace: pairs(&[("a", "b")]),
        ..RuleSet::default()
    };
    assert_eq!(changed(&others, JSON, ""), None);
}

#[test]
fn a_form_is_encoded_again() {
    let rules = RuleSet {
        add: pairs(&[("b", "v w"), ("n", "$(headers.none)")]),
        ..RuleSet::default()
    };
    let form = b"application/x-www-form-urlencoded";
    assert_eq!(
        changed(&rules, form, "z=1").as_deref(),
        Some("b=v%20w&n=&z=1")
    );
}

fn part(name: &str, content: &str) -> String {
    format!("--BB\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
}

#[test]
fn parts_are_renamed_first_and_never_appended() {
    let body = [
        part("x", "1"),
        part("y", "2"),
        part("z", "3"),
        "--BB--\r\n".to_owned(),
    ]
    .concat();
    let rules = RuleSet {
        remove: ["y".into()].into(),
        rename: pairs(&[("x", "w"), ("none", "n")]),
        replace: pairs(&[("z", "new"), ("none", "n")]),
        add: pairs(&[("a", "2"), ("z", "no")]),
        append: pairs(&[("n", "1")]),
    };
    let wanted = [
        part("w", "1"),
        part("z", "new"),
        part("a", "2"),
        "--BB--\r\n".to_owned(),
    ];
    assert_eq!(changed(&rules, PARTS, &body), Some(wanted.concat()));
    let append = RuleSet {
        append: pairs(&[("n", "1")]),
        ..RuleSet::default()
    };
    assert_eq!(changed(&append, PARTS, &body), None);
}

#[test]
fn parts_without_a_boundary_or_an_end_stay_as_they_are() {
    assert_eq!(
        changed(&add("a", "1"), b"multipart/form-data", "--BB--"),
        None
    );
    assert_eq!(changed(&add("a", "1"), PARTS, "--BB\r\nunfinished"), None);
    assert_eq!(
        changed(&add("a", "1"), PARTS, ""),
        Some(part("a", "1") + "--BB--\r\n")
    );
}

#[test]
fn a_value_cannot_smuggle_parts() {
    let request = Request::with_headers(&[("x-in", "1\r\n--BB\r\n")]);
    let rules = add("a", "$(headers.x_in)");
    let error = transform(&rules, Kind::Multipart, PARTS, b"--BB--", &request);
    assert!(matches!(error, Err(BodyError::Boundary)));
}

#[test]
fn an_object_gets_a_value_under_its_first_free_number() {
    let rules = RuleSet {
        append: pairs(&[("o", "v")]),
        ..RuleSet::default()
    };
    for (before, after) in [
        (r#"{"1":0,"2":0,"4":0}"#, r#"{"1":0,"2":0,"4":0,"3":"v"}"#),
        (
            r#"{"01":0,"+1":0,"0":0}"#,
            r#"{"01":0,"+1":0,"0":0,"1":"v"}"#,
        ),
        (r#"{"1":0}"#, r#"{"1":0,"2":"v"}"#),
    ] {
        let body = format!(r#"{{"o":{before}}}"#);
        let wanted = format!(r#"{{"o":{after}}}"#);
        assert_eq!(changed(&rules, JSON, &body), Some(wanted));
    }
}

#[test]
fn appending_costs_as_much_as_the_body_is_long() {
    let rules = RuleSet {
        append: pairs(&[("o", "v")]),
        ..RuleSet::default()
    };
    testkit::cost::assert_linear(
        500,
        |size| {
            let fields: Vec<String> = (1..=size)
                .map(|number| format!(r#""{number}":0"#))
                .collect();
            format!(r#"{{"o":{{{}}}}}"#, fields.join(","))
        },
        |body: String| {
            std::hint::black_box(changed(&rules, JSON, &body));
        },
    );
}

#[test]
fn text_that_lenient_parsers_accept_does_not_hide_a_field() {
    let rules = RuleSet {
        remove: ["admin".into()].into(),
        ..RuleSet::default()
    };
    let request = Request::with_headers(&[]);
    for (value, wanted) in [
        (&b"\xff"[..], "\u{fffd}"),
        (br"\ud800", "\u{fffd}"),
        (br"\uDC00x", "\u{fffd}x"),
        (br"\ud800\ud83d\ude00", "\u{fffd}\u{1f600}"),
        (br"\\ud800\ud800", "\\\\ud800\u{fffd}"),
        (br"\uD800\n", "\u{fffd}\\n"),
        (b"a\tb\nc", "a\\tb\\nc"),
    ] {
        let body = [br#"{"admin":1,"x":""#, value, br#""}"#].concat();
        let changed = transform(&rules, Kind::Json, JSON, &body, &request).expect("rendered");
        let wanted = format!(r#"{{"x":"{wanted}"}}"#);
        assert_eq!(changed.as_deref(), Some(wanted.as_bytes()));
    }
}

#[test]
fn numbers_that_only_some_parsers_read_hide_no_field() {
    let rules = RuleSet {
        remove: ["admin".into()].into(),
        ..RuleSet::default()
    };
    for number in ["NaN", "-Infinity", "01", "0x1f", "+1", "1."] {
        let body = format!(r#"{{"admin":1,"x":{number}}}"#);
        let body = changed(&rules, JSON, &body).expect("a JSON object");
        assert!(!body.contains("admin"), "{body}");
    }
    let deep = format!(
        "{{\"admin\":NaN,\"x\":{}",
        "[".repeat(9_000) + &"]".repeat(9_000) + "}"
    );
    let request = Request::with_headers(&[]);
    let refused = transform(&rules, Kind::Json, JSON, deep.as_bytes(), &request);
    assert!(matches!(refused, Err(BodyError::Unreadable)));
}

#[test]
fn a_part_cannot_hide_in_a_body_without_an_end() {
    let rules = RuleSet {
        remove: ["admin".into()].into(),
        ..RuleSet::default()
    };
    let body = b"--BB\r\nContent-Disposition: form-data; name=\"admin\"\r\n\r\n1\r\n";
    let request = Request::with_headers(&[]);
    let refused = transform(&rules, Kind::Multipart, PARTS, body, &request);
    assert!(matches!(refused, Err(BodyError::Unreadable)));
}
