//! Tests of session.

mod endpoints;
mod remembered;
mod stored;

use super::*;
use crate::testing::{CREDENTIAL, NORA, OTTO, case, people};
use crate::{basic_auth, key_auth};
use model::EntityKind;
use plugin::testing::{Case, FakeEntities, Outcome, Upstream};
use plugin::{Consumer, Credential};
use serde_json::json;
use services::Clock;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

fn clock() -> Clock {
    Clock::fixed(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
}

/// Adds key-auth, which lets anybody pass as guest.
fn with(mut config: serde_json::Value) -> Case {
    config["secret"] = "a secret of tests".into();
    case(def(), config)
        .clock(clock())
        .and(key_auth::def(), json!({"anonymous": "guest"}))
}

fn cookies(outcome: &Outcome) -> Vec<&str> {
    outcome.client.headers.all("set-cookie").collect()
}

/// What a client sends after a response.
fn jar(outcome: &Outcome) -> String {
    let pairs = cookies(outcome)
        .into_iter()
        .filter_map(|line| line.split(';').next());
    pairs.collect::<Vec<_>>().join("; ")
}

fn log_in(case: &Case) -> Outcome {
    let outcome = case.request("GET /").header("apikey", "good").run_now();
    assert_eq!(outcome.consumer(), Some("nora"));
    outcome
}

fn run(case: &Case, cookies: &str) -> Outcome {
    case.request("GET /").header("Cookie", cookies).run_now()
}

#[test]
fn cookies_for_all_sites_are_always_secure() {
    let case = with(json!({"cookie_same_site": "None", "cookie_secure": false}));
    let first = log_in(&case);
    let lines = cookies(&first);
    assert!(!lines.is_empty());
    for cookie in lines {
        assert!(cookie.contains("; SameSite=None; Secure"), "{cookie}");
    }
}

#[test]
fn a_session_takes_the_place_of_the_credential() {
    let case = with(json!({}));
    let first = log_in(&case);
    let [cookie] = cookies(&first)[..] else {
        panic!("one cookie: {:?}", cookies(&first));
    };
    assert!(
        cookie.ends_with("; Path=/; SameSite=Strict; Secure; HttpOnly"),
        "{cookie}"
    );
    let later = run(&case, &jar(&first));
    assert_eq!(later.consumer(), Some("nora"));
    assert_eq!(
        later.sent().header("x-credential-identifier"),
        Some(&*CREDENTIAL.to_string())
    );
    assert_eq!(later.sent().header("x-anonymous-consumer"), None);
    assert!(cookies(&later).is_empty());
}

#[test]
fn anonymous_clients_and_damaged_cookies_have_no_session() {
    let case = with(json!({}));
    let cookie = jar(&log_in(&case));
    let cut = &cookie[..cookie.len() - 1];
    for cookie in [
        "",
        "session",
        "session=",
        "session=x",
        cut,
        &format!("{cookie}A"),
        &cookie[1..],
    ] {
        let outcome = run(&case, cookie);
        assert_eq!(outcome.consumer(), Some("guest"), "{cookie}");
        assert!(cookies(&outcome).is_empty(), "{cookie}");
    }
    let other = with(json!({"cookie_name": "other"}));
    assert_eq!(run(&other, &cookie).consumer(), Some("guest"));
}

#[test]
fn a_session_ends_with_its_consumer_or_its_credential() {
    use crate::kinds::KEYAUTH_CREDENTIALS as KEYS;
    let is_over = |change: fn(&FakeEntities)| {
        let entities = Arc::new(people());
        let case = with(json!({})).entities(entities.clone());
        let cookie = jar(&log_in(&case));
        assert_eq!(run(&case, &cookie).consumer(), Some("nora"));
        change(&entities);
        let outcome = run(&case, &cookie);
        let [line] = cookies(&outcome)[..] else {
            panic!("the cookie is deleted: {:?}", cookies(&outcome));
        };
        assert!(
            line.starts_with("session=; ") && line.ends_with("; Max-Age=0"),
            "{line}"
        );
        outcome.consumer() == Some("guest")
    };
    assert!(is_over(|all| all.remove(KEYS, CREDENTIAL)));
    assert!(is_over(|all| all.remove(EntityKind::Consumers, NORA)));
    assert!(is_over(|all| all.put(
        KEYS,
        json!({"id": CREDENTIAL, "key": "good", "consumer": {"id": Uuid::nil()}}),
    )));
    assert!(is_over(|all| all.put(
        KEYS,
        json!({"id": CREDENTIAL, "key": "good", "consumer": {"id": NORA}, "ttl": 5}),
    )));
}

#[test]
fn another_consumer_gets_another_session() {
    let config = json!({"secret": "a secret of tests", "response_headers": ["id", "subject"]});
    let case = case(def(), config)
        .clock(clock())
        .and(basic_auth::def(), json!({}));
    let otto = || {
        case.request("GET /")
            .header("Authorization", "Basic b3R0bzpwdzI=")
    };
    let first = otto().run_now();
    assert_eq!(first.client.header("session-subject"), Some("otto"));
    let again = otto().header("Cookie", jar(&first)).run_now();
    assert!(cookies(&again).is_empty(), "it has the session already");
    assert_eq!(
        again.client.header("session-id"),
        first.client.header("session-id")
    );

    let nora = with(json!({}));
    let of_nora = jar(&log_in(&nora));
    let replaced = otto().header("Cookie", &of_nora).run_now();
    assert_ne!(jar(&replaced), of_nora);
    assert_eq!(replaced.client.header("session-subject"), Some("otto"));
}

#[test]
fn sessions_end_after_their_times() {
    let cases = [
        (json!({"idling_timeout": 30}), 31),
        (json!({"rolling_timeout": 30}), 31),
        (json!({"absolute_timeout": 30}), 31),
        (json!({}), 901),
    ];
    for (config, seconds) in cases {
        let case = with(config.clone());
        let cookie = jar(&log_in(&case));
        case.node().clock.advance(Duration::from_secs(seconds - 1));
        assert_eq!(run(&case, &cookie).consumer(), Some("nora"), "{config}");
        case.node().clock.advance(Duration::from_secs(1));
        assert_eq!(run(&case, &cookie).consumer(), Some("guest"), "{config}");
    }
}

#[test]
fn a_session_is_renewed_in_its_last_quarter_and_noted_each_minute() {
    let case = with(json!({"rolling_timeout": 400, "response_headers": ["id", "rolling-timeout"]}));
    let first = log_in(&case);
    let forward = |seconds| case.node().clock.advance(Duration::from_secs(seconds));
    forward(60);
    assert!(cookies(&run(&case, &jar(&first))).is_empty());
    forward(1);
    let noted = run(&case, &jar(&first));
    assert_eq!(cookies(&noted).len(), 1);
    assert_eq!(
        noted.client.header("session-id"),
        first.client.header("session-id")
    );
    assert_eq!(noted.client.header("session-rolling-timeout"), Some("339"));
    forward(240);
    let renewed = run(&case, &jar(&noted));
    assert_ne!(
        renewed.client.header("session-id"),
        first.client.header("session-id")
    );
    assert_eq!(
        renewed.client.header("session-rolling-timeout"),
        Some("400")
    );
    forward(200);
    assert_eq!(run(&case, &jar(&renewed)).consumer(), Some("nora"));
    assert_eq!(run(&case, &jar(&first)).consumer(), Some("guest"));
}

#[test]
fn a_logout_deletes_the_cookie() {
    let case = with(json!({"read_body_for_logout": true}));
    let cookie = jar(&log_in(&case));
    let form = "application/x-www-form-urlencoded";
    let asked = [
        case.request("POST /?session_logout"),
        case.request("DELETE /?a=b&session_logout=0"),
        case.request("POST /")
            .header("Content-Type", form)
            .body("session_logout=1"),
    ];
    for request in asked {
        let outcome = request.header("Cookie", &cookie).run_now();
        assert_eq!(
            (outcome.client.status, outcome.upstream.is_none()),
            (200, true)
        );
        assert_eq!(outcome.client.body, "");
        let [line] = cookies(&outcome)[..] else {
            panic!("the cookie is deleted");
        };
        assert!(line.starts_with("session=; Path=/"), "{line}");
    }
    let others = [
        case.request("GET /?session_logout=1"),
        case.request("PUT /?session_logout=1"),
        case.request("POST /")
            .header("Content-Type", form)
            .body("logout=1"),
    ];
    for request in others {
        let outcome = request.header("Cookie", &cookie).run_now();
        assert_eq!(outcome.consumer(), Some("nora"));
    }
    let without = case.request("POST /?session_logout=1").run_now();
    assert!(without.upstream.is_some(), "there is no session to end");
}

#[test]
fn audiences_have_their_sessions_in_one_cookie() {
    let one = with(json!({"audience": "one"}));
    let two = with(json!({"audience": "two"}));
    let first = jar(&log_in(&one));
    assert_eq!(run(&two, &first).consumer(), Some("guest"));
    let both = two
        .request("GET /")
        .header("Cookie", &first)
        .header("apikey", "good")
        .run_now();
    let both = jar(&both);
    assert_eq!(run(&one, &both).consumer(), Some("nora"));
    assert_eq!(run(&two, &both).consumer(), Some("nora"));
    let ended = two
        .request("POST /?session_logout=1")
        .header("Cookie", &both)
        .run_now();
    let rest = jar(&ended);
    assert_eq!(run(&one, &rest).consumer(), Some("nora"));
    assert_eq!(run(&two, &rest).consumer(), Some("guest"));
}

#[test]
fn clients_cannot_choose_the_headers_of_a_session() {
    let case = with(json!({"request_headers": ["id", "subject"]}));
    let spoofed = case
        .request("GET /")
        .header("Session-Subject", "root")
        .run_now();
    assert_eq!(spoofed.sent().header("session-subject"), None);
    let cookie = jar(&log_in(&case));
    let outcome = case
        .request("GET /")
        .header("Cookie", &cookie)
        .header("session-subject", "root");
    assert_eq!(
        outcome.run_now().sent().header("session-subject"),
        Some("nora")
    );
}

#[test]
fn the_cookie_replaces_one_of_the_upstream_with_its_name() {
    let case = with(json!({}));
    let upstream = Upstream::new(200)
        .header("Set-Cookie", "a=1")
        .header("Set-Cookie", "session=2")
        .header("Set-Cookie", "sessions=3");
    let outcome = case
        .request("GET /")
        .header("apikey", "good")
        .answered(upstream)
        .run_now();
    let names: Vec<&str> = (cookies(&outcome).iter())
        .filter_map(|line| line.split('=').next())
        .collect();
    assert_eq!(names, ["a", "sessions", "session"]);
    assert_eq!(run(&case, &jar(&outcome)).consumer(), Some("nora"));
}

#[test]
fn long_sessions_are_split() {
    let case = with(json!({}));
    let sessions = Sessions::new(
        &crate::testing::config(NAME, json!({"secret": "a secret of tests"})),
        "a secret of tests",
    );
    let mut random = fastrand::Rng::with_seed(0x5eed);
    let groups = (0..160).map(|_| {
        std::iter::repeat_with(|| random.alphanumeric())
            .take(30)
            .collect()
    });
    let login = Login {
        consumer: Some(NORA.to_string()),
        credential: Some(CREDENTIAL.to_string()),
        groups: Some(groups.collect()),
        ..Login::default()
    };
    let read = net::http1::RequestHead::parse(
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &net::http1::Limits::default(),
    );
    let (head, _) = read
        .expect("the head is valid")
        .expect("the head is complete");
    let request = plugin::Request::bare(&head);
    let scene = Scene {
        request: &request,
        now: 1_700_000_000,
        store: None,
    };
    let keys = Keys::new(sessions.secret.clone(), case.node());
    let cookies = sessions
        .log_in(scene, &mut Session::default(), &login, &keys)
        .expect("it is small enough");
    assert!(cookies.len() > 1);
    let pairs: Vec<&str> = (cookies.iter())
        .filter_map(|cookie| cookie.line.split(';').next())
        .collect();
    let outcome = run(&case, &pairs.join("; "));
    assert_eq!(outcome.state.groups.len(), 160);
    let without_last = pairs[..pairs.len() - 1].join("; ");
    assert_eq!(run(&case, &without_last).consumer(), Some("guest"));
    let ended = case
        .request("DELETE /?session_logout")
        .header("Cookie", pairs.join("; "))
        .run_now();
    assert_eq!(self::cookies(&ended).len(), pairs.len());
}

#[test]
fn a_reference_to_a_vault_is_no_secret() {
    let case = case(def(), json!({"secret": "{vault://env/session-secret}"}));
    let outcome = case.request("GET /").run_now();
    assert_eq!(
        (outcome.client.status, outcome.upstream.is_none()),
        (500, true)
    );
}

#[test]
fn groups_are_those_of_later_requests() {
    let case = with(json!({})).and(
        crate::post_function::def(),
        json!({"access": ["if not kong.request.get_header('cookie') then ngx.ctx.authenticated_groups = {'g1', 'g2'} end"]}),
    );
    let later = run(&case, &jar(&log_in(&case)));
    assert_eq!(
        later.sent().header("x-authenticated-groups"),
        Some("g1, g2")
    );
    assert_eq!(later.state.groups, ["g1", "g2"]);
    assert!(cookies(&later).is_empty());
}

#[test]
fn groups_of_one_consumer_do_not_pass_to_another() {
    let code =
        "if not kong.request.get_header('cookie') then ngx.ctx.authenticated_groups = {'g1'} end";
    let case_of_nora = with(json!({})).and(crate::post_function::def(), json!({"access": [code]}));
    let of_nora = jar(&log_in(&case_of_nora));
    assert_eq!(run(&case_of_nora, &of_nora).state.groups, ["g1"]);
    let otto = case(def(), json!({"secret": "a secret of tests"}))
        .clock(clock())
        .and(basic_auth::def(), json!({}));
    let request = |cookies: &str| {
        otto.request("GET /")
            .header("Authorization", "Basic b3R0bzpwdzI=")
            .header("Cookie", cookies)
            .run_now()
    };
    let first = request(&of_nora);
    let later = request(&jar(&first));
    assert!(cookies(&later).is_empty(), "otto has a session");
    for outcome in [first, later] {
        assert_eq!(outcome.consumer(), Some("otto"));
        assert_eq!(outcome.sent().header("x-authenticated-groups"), None);
        assert!(outcome.state.groups.is_empty());
    }
}

#[test]
fn lua_code_that_authenticates_another_consumer_forgets_the_groups_of_the_session() {
    let code = format!(
        "if kong.request.get_header('cookie') then kong.client.authenticate({{id = '{OTTO}', username = 'otto'}}, nil)
         else ngx.ctx.authenticated_groups = {{'g1'}} end"
    );
    let case = with(json!({})).and(crate::post_function::def(), json!({"access": [code]}));
    let outcome = run(&case, &jar(&log_in(&case)));
    assert_eq!(outcome.consumer(), Some("otto"));
    assert_eq!(outcome.sent().header("x-authenticated-groups"), None);
    assert!(outcome.state.groups.is_empty());
}

#[test]
fn a_session_that_ends_while_the_body_comes_authenticates_nobody() {
    let case = with(json!({"read_body_for_logout": true, "idling_timeout": 30}));
    let cookie = jar(&log_in(&case));
    let clock = &case.node().clock;
    let request = |seconds| {
        let call = case.request("POST /").header("Cookie", &cookie);
        let advance = move || clock.advance(Duration::from_secs(seconds));
        let call = call.body("a=b").while_the_body_comes(advance);
        call.run_now()
    };
    assert_eq!(request(30).consumer(), Some("nora"));
    let late = request(1);
    assert_eq!(late.consumer(), Some("guest"));
    assert!(cookies(&late).is_empty());
}

#[test]
fn a_configuration_without_secret_has_one_of_the_process() {
    let config: Config = crate::testing::config(NAME, json!({}));
    let secret = config.secret.expect("there is a default");
    assert_eq!(
        (secret.len(), &*secret),
        (44, model::schema::process_secret())
    );
}

#[test]
fn an_unknown_credential_begins_no_session() {
    let code = |id: Uuid| {
        format!("kong.client.authenticate({{id = '{NORA}', username = 'nora'}}, {{id = '{id}'}})")
    };
    let cookies_for = |id| {
        let case = with(json!({})).and(crate::post_function::def(), json!({"access": [code(id)]}));
        cookies(&run(&case, "")).len()
    };
    assert_eq!(cookies_for(Uuid::from_u128(77)), 0);
    assert_eq!(cookies_for(NORA), 1);
    assert_eq!(cookies_for(CREDENTIAL), 1);
}
