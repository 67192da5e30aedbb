//! Tests of key-auth. They run the plans of built snapshots.

use crate::fixture::{
    CREDENTIAL, Context, GUEST, NORA, People, access, context, head, plugin, snapshot_of,
};
use serde_json::{Value, json};
use uuid::Uuid;

fn key_auth(overrides: Value) -> Value {
    let mut config = json!({
        "key_names": ["apikey"], "key_in_header": true, "key_in_query": true, "key_in_body": false,
        "hide_credentials": false, "run_on_preflight": true,
    });
    let fields = overrides.as_object().expect("the overrides are an object");
    for (name, value) in fields {
        config[name] = value.clone();
    }
    plugin("key-auth", config)
}

/// Returns the status, message and challenge of the response, or the consumer of an admitted request.
fn outcome(config: Value, lines: &[&str], body: &'static str) -> String {
    let snapshot = snapshot_of([key_auth(config)]);
    let request = head(lines);
    let mut cx = context(&request, body, People);
    match access(&snapshot, &mut cx) {
        None => cx
            .state
            .consumer
            .and_then(|consumer| consumer.username.clone())
            .map_or("nobody".to_owned(), String::from),
        Some(answer) => {
            let body: Value = serde_json::from_slice(&answer.body).expect("the body is JSON");
            let message = body["message"].as_str().expect("the body has a message");
            let challenge = answer.headers.value("www-authenticate").unwrap_or_default();
            let challenge = String::from_utf8_lossy(challenge);
            format!("{} {message} [{challenge}]", answer.status)
        }
    }
}

const GET: &str = "GET /echo HTTP/1.1";
const NONE: &str = "401 No API key found in request [Key]";
const TWICE: &str = "401 Duplicate API key found [Key]";
const WRONG: &str = "401 Unauthorized [Key]";
const BROKEN: &str = "500 An unexpected error occurred []";

#[test]
fn a_key_is_searched_in_headers_and_query() {
    let cases: [(&[&str], &str); 19] = [
        (&[GET], NONE),
        (&[GET, "apikey: good"], "nora"),
        (&[GET, "APIKEY: lasting"], "nora"),
        (&[GET, "apikey: expired"], WRONG),
        (&[GET, "apikey: nope"], WRONG),
        (&[GET, "apikey: \u{fc}"], WRONG),
        (&[GET, "apikey:"], NONE),
        (&[GET, "apikey: good", "apikey: good"], TWICE),
        (&[GET, "apikey: orphan"], BROKEN),
        (&[GET, "apikey: broken"], BROKEN),
        (&["GET /?apikey=good HTTP/1.1"], "nora"),
        (&["GET /?api%6Bey=goo%64 HTTP/1.1"], "nora"),
        (&["GET /?apikey=nope HTTP/1.1"], WRONG),
        (&["GET /?apikey= HTTP/1.1"], NONE),
        (&["GET /?apikey HTTP/1.1"], NONE),
        (&["GET /?apikey=a&apikey=b HTTP/1.1"], TWICE),
        (&["GET /?apikey[]=good HTTP/1.1"], NONE),
        (&["GET /?apikey=good HTTP/1.1", "apikey: nope"], WRONG),
        (&["GET /?apikey=good HTTP/1.1", "apikey:"], NONE),
    ];
    for (lines, wanted) in cases {
        assert_eq!(outcome(json!({}), lines, ""), wanted, "{lines:?}");
    }
}

#[test]
fn settings_choose_the_places_and_names_to_search() {
    let query = "GET /?apikey=good HTTP/1.1";
    let cases: [(Value, &[&str], &str); 12] = [
        (
            json!({"key_in_header": false}),
            &[GET, "apikey: good"],
            NONE,
        ),
        (
            json!({"key_in_header": false}),
            &[query, "apikey: nope"],
            "nora",
        ),
        (json!({"key_in_query": false}), &[query], NONE),
        (
            json!({"key_names": ["x-a", "x-b"]}),
            &[GET, "X-B: good"],
            "nora",
        ),
        (
            json!({"key_names": ["x-a", "x-b"]}),
            &[GET, "X-B: good", "X-A: no"],
            WRONG,
        ),
        (
            json!({"key_names": ["api_key"]}),
            &[GET, "api-key: good"],
            "nora",
        ),
        (
            json!({"key_names": ["api_key"]}),
            &[GET, "api_key: good"],
            "nora",
        ),
        (
            json!({"key_names": ["api-key"]}),
            &[GET, "api_key: good"],
            NONE,
        ),
        (
            json!({"realm": "shop"}),
            &[GET],
            "401 No API key found in request [Key realm=\"shop\"]",
        ),
        (
            json!({"run_on_preflight": false}),
            &["OPTIONS / HTTP/1.1"],
            "nobody",
        ),
        (json!({"run_on_preflight": false}), &[GET], NONE),
        (json!({}), &["OPTIONS / HTTP/1.1"], NONE),
    ];
    for (config, lines, wanted) in cases {
        assert_eq!(
            outcome(config.clone(), lines, ""),
            wanted,
            "{config} {lines:?}"
        );
    }
}

#[test]
fn a_key_is_searched_in_bodies() {
    const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
    const JSON: &str = "Content-Type: application/json";
    const PARTS: &str = "Content-Type: multipart/form-data; boundary=XyZ";
    let cases = [
        (FORM, "apikey=good", "nora"),
        (FORM, "apikey=good&apikey=good", TWICE),
        (FORM, "apikey[]=good", NONE),
        (FORM, "apikey", NONE),
        (JSON, r#"{"apikey":"good"}"#, "nora"),
        (JSON, r#"{"apikey":["good"]}"#, TWICE),
        (JSON, r#"{"apikey":5}"#, NONE),
        (JSON, r#"{"apikey":"good""#, NONE),
        ("Content-Type: text/plain", "apikey=good", NONE),
        ("X-No: type", "apikey=good", NONE),
        (
            PARTS,
            "--XyZ\r\nContent-Disposition: form-data; name=\"apikey\"\r\n\r\ngood\r\n--XyZ--\r\n",
            "nora",
        ),
    ];
    for (content_type, body, wanted) in cases {
        let lines = ["POST /echo HTTP/1.1", content_type];
        let found = outcome(json!({"key_in_body": true}), &lines, body);
        assert_eq!(found, wanted, "{content_type} {body}");
    }
    let lines = ["POST /echo HTTP/1.1", FORM];
    assert_eq!(outcome(json!({}), &lines, "apikey=good"), NONE);
}

#[test]
fn without_a_valid_key_the_request_continues_as_the_anonymous_consumer() {
    let by_id = json!({"anonymous": Uuid::from_u128(GUEST).to_string()});
    let by_name = json!({"anonymous": "guest"});
    for config in [&by_id, &by_name] {
        assert_eq!(outcome(config.clone(), &[GET], ""), "guest");
        assert_eq!(outcome(config.clone(), &[GET, "apikey: nope"], ""), "guest");
        assert_eq!(outcome(config.clone(), &[GET, "apikey: good"], ""), "nora");
    }
    assert_eq!(outcome(by_name, &[GET, "apikey: broken"], ""), BROKEN);
    assert_eq!(outcome(json!({"anonymous": "gone"}), &[GET], ""), BROKEN);
}

/// Runs key-auth, which must admit the request, and passes the context to `check`.
fn after(config: Value, lines: &[&str], body: &'static str, check: impl FnOnce(&Context<'_>)) {
    let snapshot = snapshot_of([key_auth(config)]);
    let request = head(lines);
    let mut cx = context(&request, body, People);
    assert!(access(&snapshot, &mut cx).is_none(), "{lines:?}");
    check(&cx);
}

fn added<'c>(cx: &'c Context<'_>) -> Vec<(&'c str, String)> {
    let text = |value| String::from_utf8_lossy(value).into_owned();
    let edits = cx.request.upstream.headers.added();
    edits.map(|(name, value)| (name, text(value))).collect()
}

#[test]
fn the_upstream_gets_the_consumer_and_not_the_headers_of_the_client() {
    after(json!({}), &[GET, "apikey: good"], "", |cx| {
        let wanted = [
            ("X-Consumer-ID", Uuid::from_u128(NORA).to_string()),
            ("X-Consumer-Custom-ID", "ext-77".to_owned()),
            ("X-Consumer-Username", "nora".to_owned()),
            (
                "X-Credential-Identifier",
                Uuid::from_u128(CREDENTIAL).to_string(),
            ),
        ];
        assert_eq!(added(cx), wanted);
        for name in wanted.iter().map(|(name, _)| *name) {
            assert!(cx.request.upstream.headers.drops(name), "{name}");
        }
        assert!(cx.request.upstream.headers.drops("x-anonymous-consumer"));
        assert!(cx.request.upstream.query.is_none() && cx.request.upstream.body.is_none());
    });
}

#[test]
fn the_upstream_gets_the_anonymous_consumer() {
    after(json!({"anonymous": "guest"}), &[GET], "", |cx| {
        let wanted = [
            ("X-Consumer-ID", Uuid::from_u128(GUEST).to_string()),
            ("X-Consumer-Username", "guest".to_owned()),
            ("X-Anonymous-Consumer", "true".to_owned()),
        ];
        assert_eq!(added(cx), wanted);
        for name in ["x-consumer-custom-id", "x-credential-identifier"] {
            assert!(cx.request.upstream.headers.drops(name), "{name}");
        }
        assert!(cx.state.credential.is_none());
    });
}

#[test]
fn keys_can_be_hidden_from_the_upstream() {
    let hide = || json!({"hide_credentials": true, "key_in_body": true, "key_names": ["api_key"]});
    for spelling in ["api_key: good", "api-key: good"] {
        after(hide(), &[GET, spelling], "", |cx| {
            assert!(
                cx.request
                    .upstream
                    .headers
                    .drops(spelling.split_once(':').expect("a name").0)
            );
        });
    }
    let query = "GET /?c=v%611&api%5Fkey=good&a=v%333 HTTP/1.1";
    after(hide(), &[query], "", |cx| {
        assert_eq!(cx.request.upstream.query.as_deref(), Some("c=va1&a=v33"));
    });
    let form = "Content-Type: application/x-www-form-urlencoded";
    after(
        hide(),
        &["POST / HTTP/1.1", form],
        "zeta=2&api_key=good&alpha=1",
        |cx| {
            assert_eq!(
                cx.request.upstream.body.as_deref(),
                Some(&b"alpha=1&zeta=2"[..])
            );
        },
    );
}

#[test]
fn a_bad_key_is_hidden_too_when_the_request_goes_on() {
    let config = json!({"hide_credentials": true, "anonymous": "guest"});
    after(config, &[GET, "apikey: nope"], "", |cx| {
        assert!(cx.request.upstream.headers.drops("apikey"));
    });
}

#[test]
fn with_anonymous_a_credential_of_another_plugin_is_enough() {
    let snapshot = snapshot_of([key_auth(json!({"anonymous": "guest"}))]);
    let request = head(&[GET]);
    let mut cx = context(&request, "", People);
    cx.state.credential = Some(plugin::Credential { id: Uuid::nil() });
    assert!(access(&snapshot, &mut cx).is_none());
    assert_eq!(cx.state.consumer, None);
    assert!(cx.request.upstream.headers.is_empty());
}
