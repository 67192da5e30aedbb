//! Tests of basic-auth, of request-termination, and of basic-auth together with key-auth. They run the plans of built
//! snapshots.

use crate::fixture::{People, access, context, head, plugin, snapshot_of};
use plugin::{Capture, EntityRef};
use proxy::snapshot::Snapshot;
use serde_json::{Value, json};
use uuid::Uuid;

fn basic_auth(anonymous: Option<&str>) -> Value {
    let mut config = json!({"hide_credentials": true, "realm": "service"});
    if let Some(anonymous) = anonymous {
        config["anonymous"] = anonymous.into();
    }
    plugin("basic-auth", config)
}

fn outcome(snapshot: &Snapshot, lines: &[&str]) -> String {
    let request = head(lines);
    let mut cx = context(&request, "", People);
    match access(snapshot, &mut cx) {
        Some(answer) => {
            let challenge = answer.headers.value("www-authenticate").unwrap_or_default();
            format!("{} {}", answer.status, String::from_utf8_lossy(challenge))
        }
        None => cx
            .state
            .consumer
            .and_then(|consumer| consumer.username.clone())
            .map_or("nobody".to_owned(), String::from),
    }
}

const GET: &str = "GET / HTTP/1.1";
/// Header with the credentials `otto:pw2`.
const OTTO: &str = "Authorization: Basic b3R0bzpwdzI=";
const REFUSED: &str = "401 Basic realm=\"service\"";

#[test]
fn a_password_is_read_from_either_header() {
    let snapshot = snapshot_of([basic_auth(None)]);
    let cases: [(&[&str], &str); 9] = [
        (&[GET], REFUSED),
        (&[GET, OTTO], "otto"),
        (&[GET, "Authorization: basic b3R0bzpwdzI"], "otto"),
        (&[GET, "Authorization: Bearer b3R0bzpwdzI="], REFUSED),
        // The next three encode `otto:pw3`, `otto` and `:pw2`.
        (&[GET, "Authorization: Basic b3R0bzpwdzM="], REFUSED),
        (&[GET, "Authorization: Basic b3R0bw=="], REFUSED),
        (&[GET, "Authorization: Basic OnB3Mg=="], REFUSED),
        // If Proxy-Authorization has an unknown user, Authorization counts. If it has a known user with a wrong
        // password, Authorization does not count.
        (&[GET, OTTO, "Proxy-Authorization: Basic bm9uZTp4"], "otto"),
        (
            &[GET, OTTO, "Proxy-Authorization: Basic b3R0bzpwdzM="],
            REFUSED,
        ),
    ];
    for (lines, wanted) in cases {
        assert_eq!(outcome(&snapshot, lines), wanted, "{lines:?}");
    }
}

#[test]
fn two_authentications_are_both_needed_unless_anonymous_is_set() {
    let key_auth = |anonymous: Option<&str>| {
        let mut config = json!({
            "key_names": ["apikey"], "key_in_header": true, "key_in_query": true,
            "key_in_body": false, "hide_credentials": false, "run_on_preflight": true,
        });
        if let Some(anonymous) = anonymous {
            config["anonymous"] = anonymous.into();
        }
        plugin("key-auth", config)
    };
    let both = snapshot_of([basic_auth(None), key_auth(None)]);
    assert_eq!(outcome(&both, &[GET, "apikey: good", OTTO]), "otto");
    assert_eq!(outcome(&both, &[GET, "apikey: good"]), REFUSED);
    assert_eq!(outcome(&both, &[GET, OTTO]), "401 Key");
    let either = snapshot_of([basic_auth(Some("guest")), key_auth(Some("guest"))]);
    assert_eq!(outcome(&either, &[GET, "apikey: good", OTTO]), "nora");
    assert_eq!(outcome(&either, &[GET, "apikey: good"]), "nora");
    assert_eq!(outcome(&either, &[GET, OTTO]), "otto");
    assert_eq!(outcome(&either, &[GET]), "guest");
}

fn terminated(config: Value, lines: &[&str], body: &'static str) -> Option<(u16, String)> {
    let mut complete = json!({"status_code": 503, "echo": false});
    for (name, value) in config.as_object().expect("a configuration is an object") {
        complete[name] = value.clone();
    }
    let snapshot = snapshot_of([plugin("request-termination", complete)]);
    let request = head(lines);
    let mut cx = context(&request, body, People);
    // A named group has two captures: one with its number, and one with its name.
    let capture = |number, name: Option<&str>, value: &str| Capture {
        number,
        name: name.map(str::to_owned),
        value: value.to_owned(),
    };
    cx.request.captures = vec![
        capture(1, None, "7"),
        capture(0, Some("id"), "7"),
        capture(2, None, "x"),
    ];
    cx.request.route = Some(EntityRef {
        id: Uuid::from_u128(5),
        name: None,
    });
    let answer = access(&snapshot, &mut cx)?;
    Some((
        answer.status,
        String::from_utf8_lossy(&answer.body).into_owned(),
    ))
}

#[test]
fn a_termination_answers_with_what_is_configured() {
    let cases = [
        (json!({}), 503, r#"{"message":"Service unavailable"}"#),
        (
            json!({"status_code": 502}),
            502,
            r#"{"message":"Bad Gateway"}"#,
        ),
        (json!({"status_code": 418}), 418, ""),
        (json!({"message": "\"x\""}), 503, r#"{"message":"\"x\""}"#),
        (
            json!({"body": "<p>", "content_type": "text/html"}),
            503,
            "<p>",
        ),
    ];
    for (config, status, body) in cases {
        let found = terminated(config.clone(), &[GET], "");
        assert_eq!(found, Some((status, body.to_owned())), "{config}");
    }
}

#[test]
fn a_trigger_is_a_header_or_a_query_argument() {
    let terminates = |lines: &[&str]| terminated(json!({"trigger": "x_stop"}), lines, "").is_some();
    assert!(!terminates(&[GET]));
    assert!(terminates(&[GET, "X-Stop: no"]));
    assert!(terminates(&["GET /?x_stop HTTP/1.1"]));
    assert!(terminates(&["GET /?x_stop=1&x_stop=2 HTTP/1.1"]));
    assert!(!terminates(&["GET /?x_stops=1 HTTP/1.1"]));
}

#[test]
fn an_echo_shows_the_request() {
    plugins::install();
    let lines = [
        "POST /a/../b?q=1&q=2&flag HTTP/1.1",
        "Content-Type: application/x-www-form-urlencoded",
        "X-Twice: 1",
        "X-Twice: 2",
    ];
    let (status, body) = terminated(json!({"echo": true}), &lines, "a=1&a=2").expect("an answer");
    let shown: Value = serde_json::from_str(&body).expect("the body is JSON");
    assert_eq!(
        (status, &shown["message"]),
        (503, &json!("Service unavailable"))
    );
    assert!(shown["kong"]["worker_pid"].is_number());
    assert_eq!(shown["matched_route"]["kind"], "routes");
    assert_eq!(
        shown["matched_route"]["ws_id"],
        "0dc6f45b-8f8d-40d2-a504-473544ee190b"
    );
    let wanted = json!({
        "scheme": "http", "host": "a.test", "port": 8000, "method": "POST", "path": "/b",
        "headers": {
            "host": "a.test", "content-type": "application/x-www-form-urlencoded", "x-twice": ["1", "2"],
        },
        "query": {"q": ["1", "2"], "flag": true},
        "body": {"a": ["1", "2"]}, "raw_body": "a=1&a=2",
        "uri_captures": {"named": {"id": "7"}, "unnamed": ["7", "x"]},
    });
    assert_eq!(shown["request"], wanted);
}

#[test]
fn an_echo_shows_that_there_is_no_body() {
    plugins::install();
    let (_, body) = terminated(json!({"echo": true}), &[GET], "").expect("an answer");
    let shown: Value = serde_json::from_str(&body).expect("the body is JSON");
    assert_eq!(shown["request"]["raw_body"], "");
    assert_eq!(shown["request"].get("body"), None);
}
