//! Tests of hmac-auth.

mod bodies;
mod replays;

use super::*;
use crate::testing::{CREDENTIAL, NORA, case, people};
use aws_lc_rs::hmac;
use data_encoding::BASE64;
use plugin::LogCx;
use plugin::testing::{Call, Case, FakeEntities, Outcome, refusal};
use serde_json::{Value, json};
use source::HMACAUTH_CREDENTIALS;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The time of the node's clock in tests, and one that is 301 seconds later.
const DATE: &str = "Tue, 14 Nov 2023 22:13:20 GMT";
const LATE: &str = "Tue, 14 Nov 2023 22:18:21 GMT";
const SECRET: &str = "nora-hmac-secret";

fn hmac_auth(config: Value) -> Case {
    let credential =
        json!({"id": CREDENTIAL, "consumer": {"id": NORA}, "username": "nora-h", "secret": SECRET});
    case(def(), config).entities(people().with(HMACAUTH_CREDENTIALS, credential))
}

/// Returns the header with the signature of a text.
fn signed(headers: &str, text: &str) -> String {
    signed_with(hmac::HMAC_SHA256, "hmac-sha256", headers, text)
}

fn signed_with(algorithm: hmac::Algorithm, name: &str, headers: &str, text: &str) -> String {
    let key = hmac::Key::new(algorithm, SECRET.as_bytes());
    let signature = BASE64.encode(hmac::sign(&key, text.as_bytes()).as_ref());
    format!(
        "hmac username=\"nora-h\", algorithm=\"{name}\", headers=\"{headers}\", signature=\"{signature}\""
    )
}

/// A request with the date of the node and a signature.
fn call<'c>(case: &'c Case, line: &str, authorization: &str) -> Call<'c> {
    let call = case.request(line).header("Date", DATE);
    call.header("Authorization", authorization)
}

fn result(outcome: &Outcome) -> String {
    match outcome.upstream {
        Some(_) => outcome.consumer().unwrap_or("nobody").to_owned(),
        None => format!("{} {}", outcome.client.status, outcome.client.message()),
    }
}

fn run(call: Call<'_>) -> String {
    result(&call.run_now())
}

const NO_MATCH: &str = "401 HMAC signature does not match";
const NOT_VERIFIABLE: &str = "401 HMAC signature cannot be verified";

fn date_signature() -> String {
    signed("date", &format!("date: {DATE}"))
}

#[test]
fn a_signed_date_identifies_the_consumer() {
    let case = hmac_auth(json!({}));
    let outcome = call(&case, "GET /", &date_signature()).run_now();
    let sent = outcome.sent();
    assert_eq!(sent.header("x-consumer-username"), Some("nora"));
    assert_eq!(sent.header("x-consumer-custom-id"), Some("ext-77"));
    assert_eq!(sent.header("x-credential-identifier"), Some("nora-h"));
    assert_eq!(sent.header("authorization"), Some(&*date_signature()));
    assert_eq!(
        outcome.state.credential.expect("a credential").id,
        CREDENTIAL
    );
}

#[test]
fn each_algorithm_verifies_its_own_signatures() {
    let case = hmac_auth(json!({}));
    let some = hmac_auth(json!({"algorithms": ["hmac-sha256", "hmac-sha512"]}));
    let text = format!("date: {DATE}");
    for algorithm in Algorithm::ALL {
        let own = signed_with(algorithm.hmac(), algorithm.name(), "date", &text);
        assert_eq!(run(call(&case, "GET /", &own)), "nora");
        let is_allowed = matches!(algorithm, Algorithm::Sha256 | Algorithm::Sha512);
        let wanted = if is_allowed { "nora" } else { NOT_VERIFIABLE };
        assert_eq!(run(call(&some, "GET /", &own)), wanted);
        let other = match algorithm {
            Algorithm::Sha1 => Algorithm::Sha256,
            _ => Algorithm::Sha1,
        };
        let wrong = signed_with(other.hmac(), algorithm.name(), "date", &text);
        assert_eq!(run(call(&case, "GET /", &wrong)), NO_MATCH);
    }
}

#[test]
fn the_signing_string_has_a_line_for_each_name() {
    let case = hmac_auth(json!({}));
    let target = "/a/./%41?q=%41&x";
    for (headers, text) in [
        ("host", "host: a.test".to_owned()),
        ("HOST", "HOST: a.test".to_owned()),
        ("x_many", "x_many: 1".to_owned()),
        ("x-many host", "x-many: 1\nhost: a.test".to_owned()),
        ("request-line", format!("PUT {target} HTTP/1.1")),
        ("@request-target", format!("@request-target: put {target}")),
        ("Request-Line", "Request-Line:".to_owned()),
        ("none  host", "none:\n:\nhost: a.test".to_owned()),
        ("\u{e9}", "\u{e9}:".to_owned()),
    ] {
        let call = call(&case, &format!("PUT {target}"), &signed(headers, &text));
        let call = call.lines(&["X-Many: 1", "X-Many: 2"]).routed_to("/other");
        assert_eq!(run(call), "nora", "{headers}");
    }
    let http2 = call(&case, "GET /", &signed("request-line", "GET / HTTP/2.0"));
    assert_eq!(run(http2.http2()), "nora");
}

#[test]
fn one_date_must_be_near() {
    let case = hmac_auth(json!({}));
    let x_date = signed("x-date", &format!("x-date: {DATE}"));
    let with = |lines: &[&str]| {
        let call = case.request("GET /").header("Authorization", &x_date);
        run(call.lines(lines))
    };
    let date = format!("X-Date: {DATE}");
    let late = format!("Date: {LATE}");
    let no_date = format!("401 {NO_DATE}");
    assert_eq!(with(&[&date]), "nora");
    assert_eq!(with(&[&date, &late]), "nora");
    assert_eq!(with(&[&late]), no_date);
    assert_eq!(with(&[]), no_date);
    assert_eq!(with(&["Date: yesterday"]), no_date);
    case.node().clock.advance(Duration::from_secs(300));
    assert_eq!(with(&[&date]), "nora");
    case.node().clock.advance(Duration::from_secs(1));
    assert_eq!(with(&[&date]), no_date);
}

#[test]
fn refusals_name_the_first_failed_check() {
    let case = hmac_auth(json!({"realm": "shop", "enforce_headers": ["date", "host"]}));
    let both = signed("host date", &format!("host: a.test\ndate: {DATE}"));
    let unknown = both.replace("nora-h", "nobody");
    let outcome = case.request("GET /").run_now();
    assert_eq!(result(&outcome), "401 Unauthorized");
    assert_eq!(
        outcome.client.header("www-authenticate"),
        Some("hmac realm=\"shop\"")
    );
    for (authorization, wanted) in [
        (&*both, "nora"),
        (&date_signature(), NOT_VERIFIABLE),
        (&unknown, NOT_VERIFIABLE),
        (&both.replace("hmac-sha256", "hmac-md5"), NOT_VERIFIABLE),
        (&both.replace("signature=\"", "signature=\"A"), NO_MATCH),
        (&both.replace("signature=\"", "signature=\"!"), NO_MATCH),
        ("Basic bm9yYTpwdw==", NOT_VERIFIABLE),
    ] {
        assert_eq!(
            run(call(&case, "GET /", authorization)),
            wanted,
            "{authorization}"
        );
    }
}

#[test]
fn a_credential_without_a_secret_verifies_nothing() {
    let credential = json!({"id": CREDENTIAL, "consumer": {"id": NORA}, "username": "nora-h"});
    let entities = people().with(HMACAUTH_CREDENTIALS, credential);
    let case = case(def(), json!({})).entities(entities);
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"");
    let text = format!("date: {DATE}");
    let signature = BASE64.encode(hmac::sign(&key, text.as_bytes()).as_ref());
    let authorization = format!(
        "hmac username=\"nora-h\", algorithm=\"hmac-sha256\", headers=\"date\", signature=\"{signature}\""
    );
    assert_eq!(run(call(&case, "GET /", &authorization)), NOT_VERIFIABLE);
}

#[test]
fn a_list_of_signed_headers_is_limited() {
    let case = hmac_auth(json!({}));
    for (number, wanted) in [(MAX_SIGNED, "nora"), (MAX_SIGNED + 1, NOT_VERIFIABLE)] {
        let headers = vec!["date"; number].join(" ");
        let text = vec![format!("date: {DATE}"); number].join("\n");
        assert_eq!(run(call(&case, "GET /", &signed(&headers, &text))), wanted);
    }
}

#[test]
fn the_proxy_header_comes_first_if_it_has_a_signature() {
    let case = hmac_auth(json!({"hide_credentials": true}));
    let right = date_signature();
    let unknown = right.replace("nora-h", "nobody");
    let run = |proxy: &str, own: &str| {
        let call = call(&case, "GET /", own).header("Proxy-Authorization", proxy);
        let outcome = call.run_now();
        let sent = outcome.upstream.as_ref().map(|_| {
            let has = |name| outcome.sent().header(name).is_some();
            (has("proxy-authorization"), has("authorization"))
        });
        (result(&outcome), sent)
    };
    assert_eq!(run("Basic x", &right), ("nora".into(), Some((true, false))));
    assert_eq!(run(&right, "Basic x"), ("nora".into(), Some((false, true))));
    assert_eq!(run(&unknown, &right), (NOT_VERIFIABLE.into(), None));
}

#[test]
fn anonymous_takes_requests_without_a_valid_signature() {
    let case = hmac_auth(json!({"anonymous": "guest"}));
    assert_eq!(run(case.request("GET /")), "guest");
    assert_eq!(run(call(&case, "GET /", "hmac x")), "guest");
    assert_eq!(run(call(&case, "GET /", &date_signature())), "nora");
}

/// The digest of the body `x`.
const DIGEST: &str = "SHA-256=LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE=";

#[test]
fn the_digest_is_that_of_the_body() {
    let case = hmac_auth(json!({"validate_request_body": true}));
    let digest = |digest: &str, body: &'static str| {
        let call = call(&case, "POST /", &date_signature()).body(body);
        run(match digest {
            "" => call,
            digest => call.header("Digest", digest),
        })
    };
    assert_eq!(digest(DIGEST, "x"), "nora");
    assert_eq!(digest("", ""), "nora");
    assert_eq!(digest("", "x"), NO_MATCH);
    assert_eq!(digest(DIGEST, "y"), NO_MATCH);
    assert_eq!(digest(&DIGEST.to_lowercase(), "x"), NO_MATCH);
    let pieces = call(&case, "POST /", &date_signature()).header("Digest", DIGEST);
    assert_eq!(run(pieces.pieces(["x"])), "nora");
    let large = call(&case, "POST /", &date_signature()).header("Digest", DIGEST);
    assert_eq!(run(large.body("x").too_large()), NO_MATCH);
    let no_body = call(&case, "GET /", &date_signature());
    assert_eq!(run(no_body), "nora");
}

/// Counts the requests whose body was read.
#[derive(Default)]
struct Bodies(OnceLock<Arc<AtomicUsize>>);

impl Plugin for Bodies {
    type Config = ();
    type Own = ();

    fn build((): (), _: &BuildCx<'_>) -> Result<Self, BuildError> {
        Ok(Self::default())
    }

    fn start(&self, node: &Arc<Node>) {
        self.0.get_or_init(|| count_of(node));
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        if matches!(cx.request.body, RequestBody::Whole(_)) {
            self.0.get().expect("it was started").fetch_add(1, Relaxed);
        }
    }
}

fn count_of(node: &Node) -> Arc<AtomicUsize> {
    node.shared
        .get_or_insert("bodies", "count", AtomicUsize::default)
}

#[test]
fn the_body_is_read_only_if_the_signature_is_right() {
    let bodies = PluginDef::bundled::<Bodies>("bodies", 1, Phases::LOG, Scopes::ALL);
    let case = hmac_auth(json!({"validate_request_body": true})).and_complete(bodies, json!(null));
    let run = |authorization: &str| {
        let call = call(&case, "POST /", authorization).body("x");
        assert_eq!(run(call.header("Digest", "wrong")), NO_MATCH);
        count_of(case.node()).load(Relaxed)
    };
    assert_eq!(run(&signed("date", "date: other")), 0);
    assert_eq!(run(&date_signature()), 1);
}

#[test]
fn a_required_digest_must_be_signed() {
    let case = hmac_auth(json!({"validate_request_body": true, "require_signed_digest": true}));
    let with = |headers: &str, text: &str| {
        let call = call(&case, "POST /", &signed(headers, text)).body("x");
        run(call.header("Digest", DIGEST))
    };
    assert_eq!(with("date", &format!("date: {DATE}")), NOT_VERIFIABLE);
    let text = format!("date: {DATE}\nDigest: {DIGEST}");
    assert_eq!(with("date Digest", &text), "nora");
    assert_eq!(with("date digest", &text), NO_MATCH);
    crate::install();
    let refusal = refusal(&def(), json!({"require_signed_digest": true}));
    assert!(refusal.contains("validate_request_body"), "{refusal}");
}

#[test]
fn fields_that_kong_lacks_are_shown_only_where_they_are_set() {
    let registry = crate::install();
    let schema = registry
        .plugin(NAME)
        .expect("it has a schema")
        .schema_json();
    assert!(!schema.to_string().contains("refuse_replays"));
    let complete = plugin::testing::completed(NAME, json!({})).expect("it is valid");
    let complete = complete.as_object().expect("a record");
    assert!(complete.get("refuse_replays").is_none());
    let set =
        plugin::testing::completed(NAME, json!({"refuse_replays": false})).expect("it is valid");
    assert!(
        set.as_object()
            .expect("a record")
            .get("refuse_replays")
            .is_some()
    );
}

#[test]
fn a_header_that_is_signed_as_absent_cannot_be_added() {
    let case = hmac_auth(json!({"enforce_headers": ["x-role"]}));
    let authorization = signed("date x-role", &format!("date: {DATE}\nx-role:"));
    let request = || call(&case, "GET /", &authorization);
    assert_eq!(run(request()), "nora");
    assert_eq!(run(request().header("X-Role", "admin")), NO_MATCH);
    assert_eq!(
        run(request().header("X_Role", "admin")),
        NO_MATCH,
        "upstreams may take it for the same"
    );
    let hidden = (0..120).fold(request(), |request, number| {
        request.header(&format!("X-Filler-{number}"), "x")
    });
    assert_eq!(run(hidden.header("X-Role", "admin")), NO_MATCH);
}

#[test]
fn a_credential_that_changes_while_the_body_comes_admits_nothing() {
    let credential = |secret: &str| json!({"id": CREDENTIAL, "consumer": {"id": NORA}, "username": "nora-h", "secret": secret});
    let admitted = |change: &(dyn Fn(&FakeEntities) + Sync)| {
        let entities = Arc::new(people().with(HMACAUTH_CREDENTIALS, credential(SECRET)));
        let case = case(def(), json!({"validate_request_body": true})).entities(entities.clone());
        let call = call(&case, "POST /", &date_signature()).header("Digest", DIGEST);
        run(call
            .pieces(["x"])
            .while_the_body_comes(|| change(&entities)))
    };
    assert_eq!(admitted(&|_| {}), "nora");
    let deleted = |all: &FakeEntities| all.remove(HMACAUTH_CREDENTIALS, CREDENTIAL);
    assert_eq!(admitted(&deleted), NOT_VERIFIABLE);
    let changed = |all: &FakeEntities| all.put(HMACAUTH_CREDENTIALS, credential("another"));
    assert_eq!(admitted(&changed), NOT_VERIFIABLE);
}

#[test]
fn a_long_header_is_not_hashed_again_and_again() {
    let case = hmac_auth(json!({}));
    let long = "x".repeat(7000);
    let with = |times: usize| {
        let headers = vec!["x-long"; times].join(" ");
        let text = vec![format!("x-long: {long}"); times].join("\n");
        run(call(&case, "GET /", &signed(&headers, &text)).header("X-Long", &long))
    };
    assert_eq!(with(4), "nora");
    assert_eq!(with(MAX_SIGNED), NOT_VERIFIABLE);
}
