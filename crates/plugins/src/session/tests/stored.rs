//! Tests of the storage `kong`.

use super::*;

#[test]
fn stored_sessions_end_when_they_are_logged_out() {
    let case = with(json!({"storage": "kong", "rolling_timeout": 400, "stale_ttl": 10}));
    let first = jar(&log_in(&case));
    assert_eq!(first.len(), "session=".len() + format::HEADER_TEXT);
    assert_eq!(run(&case, &first).consumer(), Some("nora"));
    case.node().clock.advance(Duration::from_secs(301));
    let renewed = jar(&run(&case, &first));
    assert_eq!(
        run(&case, &first).consumer(),
        Some("nora"),
        "it is stale, but accepted"
    );
    case.node().clock.advance(Duration::from_secs(10));
    assert_eq!(run(&case, &first).consumer(), Some("guest"));
    assert_eq!(run(&case, &renewed).consumer(), Some("nora"));
    case.request("POST /?session_logout=1")
        .header("Cookie", &renewed)
        .run_now();
    assert_eq!(run(&case, &renewed).consumer(), Some("guest"));
    let in_cookie = with(json!({}));
    assert_eq!(
        run(&case, &jar(&log_in(&in_cookie))).consumer(),
        Some("guest")
    );
}

/// Two audiences on one node, and a cookie with sessions of both. The second one also takes otto's password.
fn two_audiences() -> (Case, Case, String) {
    let config = |audience: &str| json!({"storage": "kong", "audience": audience, "rolling_timeout": 400, "secret": "a secret of tests"});
    let one = with(config("one"));
    let two = case(def(), config("two"))
        .and(basic_auth::def(), json!({"anonymous": "guest"}))
        .and(key_auth::def(), json!({"anonymous": "guest"}))
        .and(
            crate::post_function::def(),
            json!({"access": ["kong.request.get_raw_body()"]}),
        )
        .on(one.node().clone());
    let first = jar(&log_in(&one));
    let both = two
        .request("GET /")
        .header("Cookie", &first)
        .header("apikey", "good")
        .run_now();
    let both = jar(&both);
    (one, two, both)
}

fn log_out(case: &Case, cookies: &str) -> Outcome {
    let call = case.request("POST /?session_logout=1");
    call.header("Cookie", cookies).run_now()
}

#[test]
fn a_new_session_does_not_bring_back_what_was_logged_out_meanwhile() {
    let after = |meanwhile: bool| {
        let (one, two, both) = two_audiences();
        // A session of this audience would settle who the client is.
        let only_one = jar(&log_out(&two, &both));
        let request = two.request("POST /").header("Cookie", &only_one);
        let request = request.header("apikey", "good").body("x");
        let outcome = request
            .while_the_body_comes(|| {
                if meanwhile {
                    log_out(&one, &only_one);
                }
            })
            .run_now();
        let new = jar(&outcome);
        assert_eq!(run(&two, &new).consumer(), Some("nora"));
        run(&one, &new).consumer().map(str::to_owned)
    };
    assert_eq!(after(false).as_deref(), Some("nora"));
    assert_eq!(after(true).as_deref(), Some("guest"));
}

#[test]
fn a_replaced_session_is_not_renewed() {
    let (one, two, both) = two_audiences();
    one.node().clock.advance(Duration::from_secs(301));
    log_out(&one, &both);
    let outcome = run(&two, &both);
    assert_eq!(
        outcome.consumer(),
        Some("nora"),
        "it is stale, but accepted"
    );
    assert!(cookies(&outcome).is_empty());
}
