//! Tests of the reading of tokens.

use super::signer::{signed, unsigned};
use super::{case, outcome, refused};
use crate::jwt::algorithm::Algorithm;
use crate::jwt::members::Member;
use crate::jwt::token::{BadToken, Key, Token, decode};
use data_encoding::BASE64URL_NOPAD;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const HS256: &str = r#"{"alg":"HS256"}"#;

/// The outcome of a token with these parts, which is signed with the right secret.
fn of(header: &str, claims: &str) -> String {
    outcome(&case(json!({})), &signed(Algorithm::Hs256, header, claims))
}

#[test]
fn what_is_not_a_token_is_refused() {
    let case = case(json!({}));
    let json = refused("Bad token; invalid JSON");
    let good = super::good();
    let (unsigned_part, signature) = good.rsplit_once('.').expect("a token has dots");
    let cases = [
        "abc".to_owned(),
        ".".to_owned(),
        "..".to_owned(),
        "a.b.c".to_owned(),
        unsigned_part.to_owned(),
        unsigned("{", "{}") + ".",
        unsigned("{}", "{") + ".",
        unsigned("{}", "{} {}") + ".",
        unsigned("{} x", "{}") + ".",
        unsigned("", "{}") + ".",
        unsigned("{}", "\u{fe}") + ".",
        format!(" {good}").replace('.', ". "),
        good.replacen('.', "=x.", 1),
    ];
    for token in cases {
        assert_eq!(outcome(&case, &token), json, "{token}");
    }
    let signature_is_wrong = refused("Bad token; invalid signature");
    for wrong in ["a", "a+b/", "a.b", " a", "ab=c"] {
        let token = format!("{unsigned_part}.{wrong}");
        assert_eq!(outcome(&case, &token), signature_is_wrong, "{wrong}");
    }
    // Padding is not part of the format, but Kong accepts it.
    assert_eq!(
        outcome(&case, &format!("{unsigned_part}.{signature}=")),
        "nora"
    );
}

#[test]
fn only_the_names_of_algorithms_are_algorithms() {
    let wanted = refused("Bad token; invalid alg");
    let values = [
        json!("none"),
        json!("None"),
        json!("NONE"),
        json!("hs256"),
        json!("HS256 "),
        json!("HS1"),
        json!("RS1"),
        json!("ES256K"),
        json!("dir"),
        json!(""),
        json!(null),
        json!(256),
        json!(["HS256"]),
        json!({"HS256": 1}),
    ];
    for alg in values {
        let header = json!({"alg": alg}).to_string();
        assert_eq!(of(&header, r#"{"iss":"hs"}"#), wanted, "{alg}");
    }
    for header in ["{}", "[]", "[\"alg\"]", "\"HS256\"", "null", "true", "1"] {
        assert_eq!(of(header, r#"{"iss":"hs"}"#), wanted, "{header}");
    }
    // Without a signature, as `none` has it.
    let bare = unsigned(r#"{"alg":"none"}"#, r#"{"iss":"hs"}"#) + ".";
    assert_eq!(outcome(&case(json!({})), &bare), wanted);
}

#[test]
fn extensions_that_must_be_understood_are_refused() {
    let wanted = refused("Bad token; invalid crit");
    for crit in ["[\"b64\"]", "[\"exp\"]", "[]", "null", "false", "\"\""] {
        let header = format!(r#"{{"alg":"HS256","crit":{crit},"b64":false}}"#);
        assert_eq!(of(&header, r#"{"iss":"hs"}"#), wanted, "{crit}");
    }
    let twice = r#"{"crit":["x"],"alg":"HS256","\u0063rit":null}"#;
    assert_eq!(of(twice, r#"{"iss":"hs"}"#), wanted);
    // In claims it is a claim.
    assert_eq!(of(HS256, r#"{"iss":"hs","crit":["x"]}"#), "nora");
}

#[test]
fn claims_must_be_an_object() {
    let wanted = refused("Bad token; invalid claims");
    for claims in [
        "[]",
        "[{\"iss\":\"hs\"}]",
        "\"iss\"",
        "false",
        "null",
        "7",
        "-1",
        "1.5",
    ] {
        assert_eq!(of(HS256, claims), wanted, "{claims}");
    }
}

#[test]
fn of_members_with_the_same_name_the_last_counts() {
    assert_eq!(
        of(r#"{"alg":"none","alg":"HS256"}"#, r#"{"iss":"hs"}"#),
        "nora"
    );
    assert_eq!(
        of(r#"{"alg":"HS256","\u0061lg":"none"}"#, r#"{"iss":"hs"}"#),
        refused("Bad token; invalid alg")
    );
    assert_eq!(of(HS256, r#"{"iss":"nobody","iss":"hs"}"#), "nora");
    assert_eq!(
        of(HS256, r#"{"iss":"hs","iss":"nobody"}"#),
        refused("No credentials found for given 'iss'")
    );
}

#[test]
fn the_key_is_a_text_in_claims_or_header() {
    let absent = refused("No mandatory 'iss' in claims");
    let invalid = refused("Invalid 'iss' in claims");
    let unknown = refused("No credentials found for given 'iss'");
    let cases = [
        (HS256, r#"{"sub":"hs"}"#, &*absent),
        (HS256, r#"{"iss":false}"#, &absent),
        (HS256, r#"{"ISS":"hs"}"#, &absent),
        (HS256, r#"{"iss":""}"#, &invalid),
        (HS256, r#"{"iss":null}"#, &invalid),
        (HS256, r#"{"iss":true}"#, &invalid),
        (HS256, r#"{"iss":7}"#, &invalid),
        (HS256, r#"{"iss":["hs"]}"#, &invalid),
        (HS256, r#"{"iss":{"iss":"hs"}}"#, &invalid),
        (HS256, r#"{"iss":"HS"}"#, &unknown),
        (HS256, r#"{"iss":"hs "}"#, &unknown),
        (HS256, r#"{"iss":"hs\u0000"}"#, &unknown),
        (HS256, r#"{"iss":"h\u0073"}"#, "nora"),
        (r#"{"alg":"HS256","iss":"hs"}"#, "{}", "nora"),
        (r#"{"alg":"HS256","iss":"hs"}"#, r#"{"iss":false}"#, "nora"),
        (
            r#"{"alg":"HS256","iss":"hs"}"#,
            r#"{"iss":"nobody"}"#,
            &unknown,
        ),
        (r#"{"alg":"HS256","iss":""}"#, "{}", &invalid),
        // The id of a key, and other hints to keys, are not used.
        (
            r#"{"alg":"HS256","kid":"hs","jku":"http://a/","jwk":{}}"#,
            "{}",
            &absent,
        ),
    ];
    for (header, claims, wanted) in cases {
        assert_eq!(of(header, claims), wanted, "{header} {claims}");
    }
}

#[test]
fn any_claim_may_have_the_key() {
    for name in ["kid", "alg", "exp", "crit", "a.b", "ü"] {
        let case = case(json!({"key_claim_name": name}));
        let claims = json!({name: "hs"}).to_string();
        let token = signed(Algorithm::Hs256, HS256, &claims);
        assert_eq!(outcome(&case, &token), "nora", "{name}");
    }
    let case = case(json!({"key_claim_name": "kid"}));
    let wanted = refused("No mandatory 'kid' in claims");
    assert_eq!(outcome(&case, &super::good()), wanted);
}

#[test]
fn a_token_costs_as_much_to_read_as_it_is_long() {
    testkit::cost::assert_linear(
        2_000,
        |size| {
            let claims = [
                r#""iss":"x","#.repeat(size),
                r#""\u0061":1,"#.repeat(size),
                format!(r#""a":{}{},"#, "[".repeat(size), "]".repeat(size)),
                format!(r#""iss":"{}","#, "x".repeat(size)),
                format!(r#""exp":{},"#, "1".repeat(size)),
            ];
            let tokens = claims
                .map(|claims| signed(Algorithm::Hs256, HS256, &format!("{{{claims}\"z\":1}}")));
            let dots = [
                ".".repeat(size),
                "=".repeat(size),
                format!("{HS256}.{}", "=.".repeat(size)),
            ];
            (tokens, dots)
        },
        |(tokens, dots)| {
            for token in tokens.iter().chain(&dots) {
                let _ = std::hint::black_box(Token::read(token.as_bytes(), "iss"));
            }
        },
    );
}

/// Deep values that are not used need no stack.
#[test]
fn deep_claims_are_read_or_refused() {
    for name in ["a", "iss", "exp"] {
        let deep = format!(
            r#"{{"{name}":{}1{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        let token = signed(Algorithm::Hs256, HS256, &deep);
        let _ = std::hint::black_box(Token::read(token.as_bytes(), "iss"));
    }
}

fn member() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (-1e15..1e15).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        vec(any::<u8>(), 0..3).prop_map(Value::from),
    ]
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    let name = prop_oneof!["alg|crit|exp|nbf|iss", ".{0,5}"];
    let one = (name, member());
    vec(one, 0..6).prop_map(|members| members.into_iter().collect())
}

/// Returns the number that serde_json reads, which may differ in the last digit from what was written.
fn number(value: Option<&Value>) -> Option<f64> {
    let text = value?.to_string();
    let again: Value = serde_json::from_str(&text).ok()?;
    again.as_f64()
}

fn read_number(member: &Member) -> Option<f64> {
    match member {
        Member::Number(number) => Some(*number),
        _ => None,
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(text in vec(any::<u8>(), 0..200)) {
        let _ = Token::read(&text, "iss");
    }

    #[test]
    fn base64url_decodes_to_what_was_encoded(bytes in vec(any::<u8>(), 0..50), padding in 0..5_usize) {
        let text = BASE64URL_NOPAD.encode(&bytes) + &"=".repeat(padding);
        prop_assert_eq!(decode(text.as_bytes()), Some(bytes));
    }

    #[test]
    fn a_token_says_what_another_reader_of_json_finds(
        mut header in object(),
        claims in object(),
        algorithm in prop::sample::select(Algorithm::ALL),
        is_named in prop::bool::weighted(0.9),
        signature in vec(any::<u8>(), 0..70),
    ) {
        if is_named {
            header.insert("alg".into(), algorithm.name().into());
        }
        let text = |object: &Map<String, Value>| BASE64URL_NOPAD.encode(Value::Object(object.clone()).to_string().as_bytes());
        let signed = format!("{}.{}", text(&header), text(&claims));
        let token = format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature));
        let read = Token::read(token.as_bytes(), "iss");
        let named = header.get("alg").and_then(Value::as_str).and_then(Algorithm::from_name);
        let Some(named) = named else {
            prop_assert_eq!(read, Err(BadToken::Algorithm));
            return Ok(());
        };
        if header.contains_key("crit") {
            prop_assert_eq!(read, Err(BadToken::Critical));
            return Ok(());
        }
        let read = read.expect("the token is good");
        prop_assert_eq!(read.algorithm, named);
        prop_assert_eq!(read.signed, signed.as_bytes());
        prop_assert_eq!(&read.signature, &signature);
        prop_assert_eq!(read_number(&read.exp), number(claims.get("exp")));
        prop_assert_eq!(read_number(&read.nbf), number(claims.get("nbf")));
        let given = |object: &Map<String, Value>| object.get("iss").filter(|value| **value != json!(false)).cloned();
        let wanted = given(&claims).or_else(|| given(&header));
        match (read.key(), wanted) {
            (Key::Absent, None) => {}
            (Key::Text(key), Some(Value::String(wanted))) => prop_assert_eq!(key, wanted),
            (Key::Invalid, Some(Value::String(wanted))) => prop_assert!(wanted.is_empty()),
            (Key::Invalid, Some(_)) => {}
            (found, wanted) => prop_assert!(false, "{found:?} {wanted:?}"),
        }
        // A part of a token is not the token.
        for end in 0..token.len() {
            let part = Token::read(&token.as_bytes()[..end], "iss");
            prop_assert!(part.map_or(true, |part| part.signature.len() < signature.len() || signature.is_empty()));
        }
    }
}
