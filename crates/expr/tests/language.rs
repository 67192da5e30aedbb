//! The language as Kong has it: what is accepted and refused, what it means, and what is said of what is refused.

use expr::{Dialect, Error, Expression, Regex, Subsystem, parse, read};

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
