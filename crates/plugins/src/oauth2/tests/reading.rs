//! Parsers of what clients send.

use super::super::client::{Claimed, basic, encoded_basic};
use super::super::own::signed::split;
use super::super::redirect::{Part, with_parameters};
use super::super::search::bearer;
use super::*;
use data_encoding::BASE64;
use proptest::prelude::*;

#[test]
fn a_bearer_token_is_the_second_of_two_words() {
    for (header, wanted) in [
        ("Bearer a", Some("a")),
        ("  token \t a ", Some("a")),
        ("Bearer", None),
        ("Bearer a b", None),
        ("Basic a", None),
        ("a", None),
        ("", None),
    ] {
        assert_eq!(
            bearer(header.as_bytes()),
            wanted.map(str::as_bytes),
            "{header}"
        );
    }
}

#[test]
fn basic_credentials_are_found_as_in_kong() {
    let encoded = BASE64.encode(b"id:se:cret");
    let given = |id: Option<&str>, secret: Option<&str>| Claimed {
        id: id.map(str::to_owned),
        secret: secret.map(str::to_owned),
        from_header: true,
        decoded: None,
    };
    for header in ["Basic {}", "basic {}", "Basic{}", "x Basic   {}"] {
        let header = header.replace("{}", &encoded);
        assert_eq!(
            basic(header.as_bytes()),
            given(Some("id"), Some("se")),
            "{header}"
        );
    }
    let alone = format!("Basic {}", BASE64.encode(b"id"));
    assert_eq!(basic(alone.as_bytes()), given(Some("id"), None));
    for header in [
        "BASIC x",
        "asic aWQ6c2U=",
        "Basic",
        "Basic  ",
        "Basic ?",
        "Bearer x",
        "",
    ] {
        assert_eq!(basic(header.as_bytes()), given(None, None), "{header}");
    }
}

#[test]
fn parameters_are_merged_into_redirect_uris() {
    let with = |uri: &str, part, pairs: &[(&str, model::Value)]| with_parameters(uri, part, pairs);
    let code = [("code", model::Value::from("n-1"))];
    for (uri, wanted) in [
        ("http://a.test/cb", "http://a.test/cb?code=n%2d1"),
        ("http://a.test", "http://a.test?code=n%2d1"),
        (
            "http://a.test/cb?k=v&code=1&a",
            "http://a.test/cb?a=true&code=n%2d1&k=v",
        ),
        (
            "http://u:p@a.test:8/c;p?x=1&x=2",
            "http://u:p@a.test:8/c;p?code=n%2d1&x%5b1%5d=1&x%5b2%5d=2",
        ),
    ] {
        assert_eq!(with(uri, Part::Query, &code), wanted);
    }
    let pairs = [
        (
            "state",
            model::Value::Array(vec![model::Value::Int(5), model::Value::Bool(false)]),
        ),
        ("token", model::Value::from("é")),
    ];
    let wanted = "app:/cb?k=v#state%5b1%5d=5&state%5b2%5d=false&token=%c3%a9";
    assert_eq!(with("app:/cb?k=v", Part::Fragment, &pairs), wanted);
}

#[test]
fn basic_credentials_may_be_encoded_as_a_form() {
    let read =
        |text: &str| encoded_basic(format!("Basic {}", BASE64.encode(text.as_bytes())).as_bytes());
    for (text, id, secret, decoded) in [
        ("id:secret", "id", Some("secret"), None),
        ("id:se:cret", "id", Some("se:cret"), None),
        ("id:", "id", Some(""), None),
        ("id", "id", None, None),
        (
            "my%2Did:a%2Bb+c%25=",
            "my%2Did",
            Some("a%2Bb+c%25="),
            Some(("my-id", "a+b c%=")),
        ),
        // These cannot be encoded.
        ("id:a+b&c", "id", Some("a+b&c"), None),
        ("id:%ff", "id", Some("%ff"), None),
    ] {
        let decoded = decoded.map(|(id, secret): (&str, &str)| (id.to_owned(), secret.to_owned()));
        let wanted = Claimed {
            id: Some(id.to_owned()),
            secret: secret.map(str::to_owned),
            from_header: true,
            decoded,
        };
        assert_eq!(read(text), wanted, "{text}");
    }
    let nobody = Claimed {
        from_header: true,
        ..Claimed::default()
    };
    assert_eq!(encoded_basic(b"Basic ?"), nobody);
}

proptest! {
    /// Whatever a client sends as its state, it comes back as it was and adds no other parameter.
    #[test]
    fn a_state_stays_one_parameter(state in any::<String>()) {
        let pairs = [("code", model::Value::from("c")), ("state", model::Value::from(state.as_str()))];
        let uri = with_parameters("https://a.test/cb?x=1", Part::Query, &pairs);
        let query = uri.strip_prefix("https://a.test/cb?").expect("the rest of the URI stays");
        let all: Vec<_> = plugin::args::parse(query.as_bytes()).collect();
        prop_assert_eq!(all.len(), 3);
        let text = all.iter().find(|arg| &*arg.name == b"state").and_then(|arg| arg.value.as_deref());
        prop_assert_eq!(text, Some(state.as_bytes()));
    }

    #[test]
    fn no_token_makes_the_parser_fail(token in ".{0,200}") {
        if let Some(parts) = split(&token) {
            prop_assert_eq!(format!("{}.{}.{}", parts.header, parts.claims, parts.signature), token);
        }
    }
}

#[test]
fn reading_costs_as_much_as_the_text_is_long() {
    testkit::cost::assert_linear(
        5_000,
        |size| {
            ["Basic", "asic ", "Bearer ", ".", "eyJ.", " ", "a:"].map(|piece| piece.repeat(size))
        },
        |texts| {
            for text in &texts {
                std::hint::black_box((bearer(text.as_bytes()), basic(text.as_bytes())));
                std::hint::black_box(split(text));
            }
        },
    );
}

#[tokio::test]
async fn deep_or_long_parameters_do_no_harm() {
    let shop = shop(json!({}));
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let deep: Value = serde_json::from_str(&deep).expect("JSON");
    for state in [
        deep,
        json!("x".repeat(100_000)),
        json!({"a": {"b": [1, 2]}}),
    ] {
        let outcome = shop.authorize(json!({"state": state})).await;
        assert_eq!(outcome.client.status, 200);
        let outcome = shop
            .token(credentials("web", json!({"state": state})))
            .await;
        assert_eq!(outcome.client.json()["state"], state);
    }
}
