//! Tests of signatures that count once.

use super::*;

#[test]
fn a_signature_counts_once_if_replays_are_refused() {
    let config = json!({"refuse_replays": true, "validate_request_body": true});
    let case = hmac_auth(config.clone());
    let used = format!("401 {USED}");
    let right = date_signature();
    // A request that is refused for its body does not use the signature up.
    let bad_body = call(&case, "POST /", &right).body("x");
    assert_eq!(run(bad_body), NO_MATCH);
    assert_eq!(run(call(&case, "GET /", &right)), "nora");
    assert_eq!(run(call(&case, "GET /other", &right)), used);
    // The same signature in another spelling of base64.
    let other = right.trim_end_matches('"').trim_end_matches('=').to_owned() + "\"";
    assert_ne!(other, right);
    assert_eq!(run(call(&case, "GET /", &other)), used);
    let more = signed("date x-nonce", &format!("date: {DATE}\nx-nonce: 2"));
    let nonce = call(&case, "GET /", &more).header("X-Nonce", "2");
    assert_eq!(run(nonce), "nora");
    // Another configuration on the same node knows the signatures.
    let changed = hmac_auth(json!({"refuse_replays": true})).on(case.node().clone());
    assert_eq!(run(call(&changed, "GET /", &right)), used);
    // Without the field, signatures may be used again.
    let open = hmac_auth(json!({})).on(case.node().clone());
    assert_eq!(run(call(&open, "GET /", &right)), "nora");
}

#[test]
fn the_date_must_be_signed_if_replays_are_refused() {
    let case = hmac_auth(json!({"refuse_replays": true}));
    let host = signed("host", "host: a.test");
    assert_eq!(run(call(&case, "GET /", &host)), NOT_VERIFIABLE);
    // A signed date that is too old does not count, although another date is near.
    let old = signed("x-date", &format!("x-date: {LATE}"));
    let request = call(&case, "GET /", &old).header("X-Date", LATE);
    assert_eq!(run(request), NOT_VERIFIABLE);
    let both = signed("Date", &format!("Date: {DATE}"));
    assert_eq!(run(call(&case, "GET /", &both)), "nora");
}

#[test]
fn a_second_date_does_not_let_a_signature_be_used_again_later() {
    let case = hmac_auth(json!({"refuse_replays": true}));
    let text = format!("date: {DATE}\nx-date: {LATE}");
    let authorization = signed("date x-date", &text);
    let request = || call(&case, "GET /", &authorization).header("X-Date", LATE);
    assert_eq!(
        run(request()),
        NOT_VERIFIABLE,
        "the second date is not near yet"
    );
    case.node().clock.advance(Duration::from_secs(1));
    assert_eq!(run(request()), "nora");
    assert_eq!(run(request()), "401 HMAC signature was used before");
}

#[test]
fn a_signature_of_one_plugin_is_remembered_for_those_with_a_longer_skew() {
    let short = hmac_auth(json!({"refuse_replays": true, "clock_skew": 10}));
    let long = hmac_auth(json!({"refuse_replays": true})).on(short.node().clone());
    let authorization = date_signature();
    // The first request starts the plugin.
    let other = signed("date x-nonce", &format!("date: {DATE}\nx-nonce: 1"));
    assert_eq!(
        run(call(&long, "GET /", &other).header("X-Nonce", "1")),
        "nora"
    );
    assert_eq!(run(call(&short, "GET /", &authorization)), "nora");
    short.node().clock.advance(Duration::from_secs(100));
    assert_eq!(
        run(call(&long, "GET /", &authorization)),
        "401 HMAC signature was used before"
    );
}

#[test]
fn a_signature_whose_date_is_too_old_when_the_body_ends_admits_nothing() {
    let case = hmac_auth(json!({}));
    let config = plugin::testing::completed(NAME, json!({"refuse_replays": true}));
    let config = serde_json::to_value(config.expect("it is valid")).expect("it is JSON");
    let cx = BuildCx {
        identity: &Default::default(),
        lua: &Default::default(),
        life: &Arc::default(),
    };
    let config = serde_json::from_value(config).expect("it is a configuration");
    let plugin = HmacAuth::build(config, &cx).expect("it is built");
    plugin.start(case.node());
    let now = case.node().clock.since_epoch().as_secs();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"k"), b"text");
    let use_up = |until: u64| {
        let date = until - CLOCK_SKEW as u64;
        let used = plugin.use_up(case.node(), CREDENTIAL, &tag, date);
        used.expect("it was started")
    };
    // What was noted after its end would count as unused for every further request.
    for _ in 0..2 {
        assert!(matches!(
            use_up(now - 1),
            Err(Refusal::Unauthorized(NO_DATE))
        ));
    }
    assert!(use_up(now).is_ok());
    assert!(matches!(use_up(now), Err(Refusal::Unauthorized(USED))));
}

#[test]
fn a_client_without_room_for_signatures_is_not_anonymous() {
    let case = hmac_auth(json!({"refuse_replays": true, "anonymous": "guest"}));
    assert_eq!(run(call(&case, "GET /", &date_signature())), "nora");
    let table = case.node().shared.get_or_insert(NAME, "signatures", || {
        panic!("the plugin has the table");
    });
    let date = signature::parse_date(DATE.as_bytes()).expect("it is a date");
    while Signatures::note(
        &table,
        CREDENTIAL,
        &fastrand::u128(..).to_le_bytes(),
        date,
        date,
    ) == Use::First
    {}
    let other = signed("date x-nonce", &format!("date: {DATE}\nx-nonce: 2"));
    let outcome = call(&case, "GET /", &other)
        .header("X-Nonce", "2")
        .run_now();
    assert_eq!(
        (outcome.client.status, outcome.upstream.is_none()),
        (503, true)
    );
    // A used signature is known as such, and makes the client anonymous.
    assert_eq!(run(call(&case, "GET /", &date_signature())), "guest");
}

#[test]
fn a_change_of_the_configuration_allows_no_replay() {
    let case = hmac_auth(json!({"refuse_replays": true}));
    let node = case.node().clone();
    assert_eq!(run(call(&case, "GET /", &date_signature())), "nora");
    drop(case);
    let again = hmac_auth(json!({"refuse_replays": true, "realm": "x"})).on(node);
    let used = format!("401 {USED}");
    assert_eq!(run(call(&again, "GET /", &date_signature())), used);
}
