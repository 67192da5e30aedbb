//! Tests of the cookie that the browser keeps.

use super::*;

const CONFIG: &str = r#"{"remember": true, "remember_rolling_timeout": 5000}"#;

fn remembering() -> Case {
    with(serde_json::from_str(CONFIG).expect("it is JSON"))
}

fn kept(outcome: &Outcome) -> String {
    let all = jar(outcome);
    let mut pairs = all.split("; ").map(str::to_owned);
    let kept = pairs.find(|pair| pair.starts_with("remember="));
    kept.expect("a cookie to keep")
}

async fn come(case: &Case, cookies: &str) -> Outcome {
    case.request("GET /").header("Cookie", cookies).run().await
}

#[tokio::test]
async fn a_remembered_client_gets_a_session_again() {
    let case = remembering();
    let first = log_in(&case);
    let (all, keep) = (jar(&first), kept(&first));
    let lines = cookies(&first);
    let line = lines.into_iter().find(|line| line.starts_with("remember="));
    assert!(line.expect("it is set").ends_with("; Max-Age=5000"));
    case.node().clock.advance(Duration::from_secs(4000));
    assert_eq!(
        run(&case, &all.replace("remember", "other")).consumer(),
        Some("guest")
    );
    let again = come(&case, &keep).await;
    assert_eq!(again.consumer(), Some("nora"));
    assert_eq!(cookies(&again).len(), 2);
    assert!(!jar(&again).contains(&keep), "it has a new id");
    let ended = case
        .request("POST /?session_logout=1")
        .header("Cookie", jar(&again))
        .run_now();
    assert_eq!(cookies(&ended).len(), 2);
    assert!(
        cookies(&ended)
            .iter()
            .all(|line| line.ends_with("Max-Age=0"))
    );
}

#[test]
#[should_panic(expected = "a plugin waits")]
fn no_worker_derives_the_key_of_a_cookie() {
    let case = remembering();
    let keep = kept(&log_in(&case));
    run(&case, &keep);
}

#[tokio::test]
async fn a_cookie_that_was_noted_like_a_session_is_refused() {
    let case = remembering();
    let first = log_in(&case);
    let keep = kept(&first);
    let value = keep.strip_prefix("remember=").expect("it is this cookie");
    let (header, payload) = value.split_at(format::HEADER_TEXT);
    let secret = format::Secret::new("a secret of tests");
    let header = secret.open_header(header.as_bytes()).expect("it is ours");
    let with_idling = |idling| {
        let header = secret.header_text(&header.touched(idling));
        format!("remember={}{payload}", header.expect("it has a MAC"))
    };
    assert_eq!(with_idling(0), keep);
    assert_eq!(run(&case, &with_idling(1)).consumer(), Some("guest"));
    assert_eq!(come(&case, &with_idling(0)).await.consumer(), Some("nora"));
}

#[test]
fn without_a_key_the_cookie_of_the_former_consumer_is_deleted() {
    let of_nora = jar(&log_in(&remembering()));
    // On this node nothing derives keys.
    let node = Arc::clone(case(key_auth::def(), json!({})).clock(clock()).node());
    let permits = || tokio::sync::Semaphore::new(0);
    let _permits = node.shared.get_or_insert(NAME, "derivations", permits);
    let config = json!({"secret": "a secret of tests", "remember": true});
    let case = case(def(), config)
        .and(basic_auth::def(), json!({}))
        .on(node);
    let otto = || {
        let call = case.request("GET /");
        call.header("Authorization", "Basic b3R0bzpwdzI=")
    };
    // There are two keys at the start.
    for wanted in [2, 2, 1] {
        assert_eq!(cookies(&otto().run_now()).len(), wanted);
    }
    let outcome = otto().header("Cookie", &of_nora).run_now();
    let lines = cookies(&outcome);
    let [session, remember] = lines[..] else {
        panic!("two cookies: {lines:?}");
    };
    assert!(session.starts_with("session=A"), "{session}");
    assert!(remember.starts_with("remember=;") && remember.ends_with("Max-Age=0"));
}
