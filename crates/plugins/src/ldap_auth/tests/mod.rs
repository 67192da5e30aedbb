//! Tests of ldap-auth.

mod directory;
mod given;
mod real;
mod results;

use super::*;
use crate::key_auth;
use crate::testing::{self, GUEST, NORA, case};
use data_encoding::BASE64;
use directory::Directory;
use plugin::testing::{Case, Outcome, refusal};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The configuration for a directory, with these fields in addition.
fn config(address: SocketAddr, more: Value) -> Value {
    let mut config = json!({
        "ldap_host": address.ip().to_string(), "ldap_port": address.port(),
        "base_dn": "dc=x", "attribute": "uid",
    });
    let fields = config.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    config
}

fn header(name: &str, username: &str, password: &str) -> String {
    let text = BASE64.encode(format!("{username}:{password}").as_bytes());
    format!("{name}: ldap {text}")
}

fn authorization(username: &str, password: &str) -> String {
    header("Authorization", username, password)
}

async fn run(case: &Case, lines: &[&str]) -> Outcome {
    case.request("GET /").lines(lines).run().await
}

/// The user that the upstream gets, or the status with the challenge.
fn shown(outcome: &Outcome) -> String {
    match &outcome.upstream {
        Some(sent) => {
            let user = sent.header("x-credential-identifier");
            user.or(outcome.consumer()).unwrap_or("nobody").to_owned()
        }
        None => {
            let challenge = outcome.client.header("www-authenticate");
            format!("{} {}", outcome.client.status, challenge.unwrap_or("-"))
        }
    }
}

async fn user(case: &Case, username: &str, password: &str) -> String {
    shown(&run(case, &[&authorization(username, password)]).await)
}

#[tokio::test]
async fn a_user_is_who_the_directory_accepts() {
    let directory = Directory::start();
    let case = case(def(), config(directory.address, json!({})));
    assert_eq!(shown(&run(&case, &[]).await), "401 LDAP");
    assert_eq!(directory.binds(), []);
    let lines = [
        &authorization("nora", "nora-pw"),
        "X-Consumer-ID: 1",
        "X-Consumer-Username: root",
        "X-Consumer-Custom-ID: 1",
        "X-Credential-Identifier: root",
        "X-Anonymous-Consumer: true",
    ];
    let outcome = run(&case, &lines).await;
    let sent = outcome.sent();
    assert_eq!(sent.header("x-credential-identifier"), Some("nora"));
    for name in [
        "x-consumer-id",
        "x-consumer-username",
        "x-consumer-custom-id",
        "x-anonymous-consumer",
    ] {
        assert_eq!(sent.header(name), None, "{name}");
    }
    assert!(sent.header("authorization").is_some());
    assert!(outcome.state.consumer.is_none() && outcome.state.credential.is_some());
    let bind = |name: &str, password: &str| (format!("uid={name},dc=x"), password.to_owned());
    assert_eq!(directory.binds(), [bind("nora", "nora-pw")]);
    assert_eq!(user(&case, "nora", "otto-pw").await, "401 LDAP");
    assert_eq!(directory.binds(), [bind("nora", "otto-pw")]);
    assert_eq!(user(&case, "nora,ou=a", "nora-pw").await, "401 LDAP");
    assert_eq!(directory.binds(), [bind("nora\\,ou\\=a", "nora-pw")]);
    // What cannot be right is not asked.
    for (username, password) in [("nora", ""), ("", "-pw"), ("no\nra", "no\nra-pw")] {
        assert_eq!(user(&case, username, password).await, "401 LDAP");
    }
    assert_eq!(directory.binds(), []);
    assert_eq!(directory.connections(), 1);
}

#[tokio::test]
async fn the_credential_is_the_same_for_each_password_and_another_for_each_user() {
    let directory = Directory::start();
    let case = case(def(), config(directory.address, json!({})));
    let lines = [
        authorization("nora", "nora-pw"),
        authorization("otto", "otto-pw"),
    ];
    let mut ids = Vec::new();
    for line in &lines {
        ids.push(run(&case, &[line]).await.state.credential);
    }
    assert_eq!(run(&case, &[&lines[0]]).await.state.credential, ids[0]);
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn proxy_authorization_is_tried_first() {
    let directory = Directory::start();
    let more = json!({"hide_credentials": true});
    let case = case(def(), config(directory.address, more));
    let proxy = |username: &str, password: &str| header("Proxy-Authorization", username, password);
    let otto = authorization("otto", "otto-pw");
    let cases = [
        (proxy("nora", "nora-pw"), "nora", 1),
        (proxy("nora", "wrong"), "otto", 2),
        ("Proxy-Authorization: Basic eA==".to_owned(), "otto", 0),
    ];
    for (line, wanted, binds) in cases {
        let outcome = run(&case, &[&otto, &line]).await;
        assert_eq!(shown(&outcome), wanted);
        assert_eq!(directory.binds().len(), binds);
        let sent = outcome.sent();
        assert_eq!(sent.header("authorization"), None);
        assert_eq!(sent.header("proxy-authorization"), None);
    }
}

#[tokio::test]
async fn results_are_kept_for_their_time_by_all_instances_with_equal_settings() {
    let directory = Directory::start();
    let settings = config(directory.address, json!({"cache_ttl": 30}));
    let case = case(def(), settings.clone());
    let same = Case::new(def(), settings).on(case.node().clone());
    let longer = config(directory.address, json!({"cache_ttl": 31}));
    let longer = Case::new(def(), longer).on(case.node().clone());
    let binds = |wanted: usize| assert_eq!(directory.binds().len(), wanted);
    for case in [&case, &same] {
        assert_eq!(user(case, "nora", "nora-pw").await, "nora");
        assert_eq!(user(case, "nora", "wrong").await, "401 LDAP");
    }
    binds(2);
    assert_eq!(user(&longer, "nora", "nora-pw").await, "nora");
    binds(1);
    case.node().clock.advance(Duration::from_secs(30));
    assert_eq!(user(&case, "nora", "nora-pw").await, "nora");
    assert_eq!(user(&case, "nora", "wrong").await, "401 LDAP");
    binds(2);
    // Instances with equal connections share those too.
    assert_eq!(directory.connections(), 1);
}

#[tokio::test]
async fn a_clock_that_is_set_back_makes_no_result_last_longer() {
    let directory = Directory::start();
    let settings = config(directory.address, json!({"cache_ttl": 30}));
    let case = case(def(), settings);
    let clock = &case.node().clock;
    let binds = async |wanted: usize| {
        assert_eq!(user(&case, "nora", "nora-pw").await, "nora");
        assert_eq!(directory.binds().len(), wanted);
    };
    binds(1).await;
    clock.set(std::time::UNIX_EPOCH);
    binds(0).await;
    clock.advance(Duration::from_secs(30));
    binds(1).await;
}

#[tokio::test]
async fn checks_of_clients_that_left_are_forgotten() {
    let directory = Directory::start();
    directory.delay(Duration::from_millis(50));
    let case = case(def(), config(directory.address, json!({})));
    // The first request starts the plugin.
    assert_eq!(shown(&run(&case, &[]).await), "401 LDAP");
    let results = (case.node().shared).get_or_try_insert(NAME, "results", Results::new);
    let results = results.expect("the plugin has it");
    for number in 0..20 {
        let line = authorization(&format!("user{number}"), "wrong");
        let lines = [&*line];
        let waits = run(&case, &lines);
        // Dropping the request is what happens when its connection ends.
        let ended = tokio::time::timeout(Duration::from_millis(2), waits).await;
        assert!(ended.is_err(), "it has waited");
    }
    assert_eq!(results.running_checks(), 0);
    directory.delay(Duration::ZERO);
    assert_eq!(user(&case, "nora", "nora-pw").await, "nora");
}

#[tokio::test]
async fn what_is_known_needs_no_wait() {
    let directory = Directory::start();
    let case = case(def(), config(directory.address, json!({})));
    let line = authorization("nora", "nora-pw");
    run(&case, &[&line]).await;
    assert_eq!(
        shown(&case.request("GET /").lines(&[&line]).run_now()),
        "nora"
    );
}

#[tokio::test]
async fn nothing_is_kept_without_a_time_or_for_a_state_that_passes() {
    let directory = Directory::start();
    for ttl in [0, -1] {
        let case = case(def(), config(directory.address, json!({"cache_ttl": ttl})));
        for _ in 0..2 {
            assert_eq!(user(&case, "nora", "nora-pw").await, "nora");
        }
        assert_eq!(directory.binds().len(), 2);
    }
    let case = case(def(), config(directory.address, json!({})));
    for (code, binds) in [(51, 2), (53, 1)] {
        directory.answer_with(code);
        for _ in 0..2 {
            assert_eq!(user(&case, "nora", "nora-pw").await, "401 LDAP");
        }
        assert_eq!(directory.binds().len(), binds, "{code}");
    }
}

#[tokio::test]
async fn equal_requests_at_the_same_time_ask_once() {
    let directory = Directory::start();
    directory.delay(Duration::from_millis(50));
    let case = case(def(), config(directory.address, json!({})));
    let (first, second, other) = tokio::join!(
        user(&case, "nora", "nora-pw"),
        user(&case, "nora", "nora-pw"),
        user(&case, "otto", "otto-pw"),
    );
    assert_eq!((&*first, &*second, &*other), ("nora", "nora", "otto"));
    assert_eq!(directory.binds().len(), 2);
}

#[tokio::test]
async fn a_directory_that_is_away_is_an_error_also_with_anonymous() {
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    for more in [json!({}), json!({"anonymous": "guest"})] {
        let case = case(def(), config(address, more));
        assert_eq!(user(&case, "nora", "nora-pw").await, "500 -");
        assert_eq!(user(&case, "nora", "nora-pw").await, "500 -");
    }
}

#[tokio::test]
async fn a_directory_that_hangs_costs_the_timeout() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let case = case(def(), config(address, json!({"timeout": 20})));
    let outcome = run(&case, &[&authorization("nora", "nora-pw")]).await;
    assert_eq!(shown(&outcome), "500 -");
    let log = format!("{:?}", outcome.failures);
    assert!(log.contains("no answer within 20ms"), "{log}");
    assert!(!log.contains("nora"), "{log}");
}

#[tokio::test]
async fn the_anonymous_consumer_takes_what_is_refused() {
    let directory = Directory::start();
    let more = json!({"anonymous": "guest", "hide_credentials": true});
    let case = case(def(), config(directory.address, more));
    for line in [authorization("nora", "wrong"), "X-A: 1".to_owned()] {
        let outcome = run(&case, &[&line]).await;
        let sent = outcome.sent();
        assert_eq!(sent.header("x-consumer-id"), Some(&*GUEST.to_string()));
        assert_eq!(sent.header("x-anonymous-consumer"), Some("true"));
        assert_eq!(sent.header("x-credential-identifier"), None);
        let given = line.starts_with("Authorization");
        assert_eq!(sent.header("authorization").is_some(), given);
    }
    assert_eq!(user(&case, "nora", "nora-pw").await, "nora");
}

#[tokio::test]
async fn another_plugin_is_enough_only_with_anonymous() {
    let directory = Directory::start();
    let both = |config: Value, of_keys: Value| case(key_auth::def(), of_keys).and(def(), config);
    let anonymous = json!({"anonymous": "guest"});
    let either = both(config(directory.address, anonymous.clone()), anonymous);
    let outcome = run(&either, &["apikey: good"]).await;
    assert_eq!(outcome.consumer(), Some("nora"));
    let outcome = run(&either, &[&authorization("otto", "otto-pw")]).await;
    assert_eq!(shown(&outcome), "otto");
    assert!(outcome.state.consumer.is_none());
    let all = both(config(directory.address, json!({})), json!({}));
    assert_eq!(shown(&run(&all, &["apikey: good"]).await), "401 LDAP");
    // The credential of the last one counts, which has no consumer.
    let otto = authorization("otto", "otto-pw");
    let outcome = run(&all, &["apikey: good", &otto]).await;
    assert_eq!(shown(&outcome), "otto");
    assert_eq!(outcome.sent().header("x-consumer-id"), None);
    assert_ne!(
        outcome.state.credential.map(|credential| credential.id),
        Some(NORA)
    );
}

#[test]
fn the_challenge_has_the_scheme_and_the_realm() {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    for (more, wanted) in [
        (json!({}), "401 LDAP"),
        (json!({"header_type": "LdAp"}), "401 LdAp"),
        (
            json!({"header_type": "Basic", "realm": "a b"}),
            "401 Basic realm=\"a b\"",
        ),
    ] {
        let case = case(def(), config(address, more));
        assert_eq!(shown(&case.request("OPTIONS /").run_now()), wanted);
    }
}

#[test]
fn settings_are_those_of_the_configuration() {
    use services::ldap::Security;
    let address = SocketAddr::from(([127, 0, 0, 1], 7));
    let config = |more| -> Config { testing::config(NAME, config(address, more)) };
    let plain = config(json!({})).settings();
    let of_plain = (plain.security, plain.verify, plain.timeout, plain.keepalive);
    let [ten, sixty] = [10, 60].map(Duration::from_secs);
    assert_eq!(of_plain, (Security::Plain, false, ten, sixty));
    assert_eq!((&*plain.host, plain.port), ("127.0.0.1", 7));
    let more = json!({"ldaps": true, "verify_ldap_host": true, "timeout": 0.5, "keepalive": 0});
    let tls = config(more).settings();
    assert_eq!((tls.security, tls.verify), (Security::Tls, true));
    assert_eq!(tls.timeout, Duration::from_micros(500));
    assert!(tls.keepalive > Duration::from_secs(24 * 3600));
    let more = json!({"start_tls": true, "timeout": null, "keepalive": 1e300});
    let start_tls = config(more).settings();
    assert_eq!(start_tls.security, Security::StartTls);
    assert_eq!(start_tls.timeout, ten);
    assert_eq!(config(json!({"timeout": 0})).settings().timeout, sixty);
    assert_eq!(
        config(json!({"cache_ttl": 0.5})).ttl(),
        Duration::from_millis(500)
    );
    assert_eq!(config(json!({"cache_ttl": -1})).ttl(), Duration::ZERO);
}

#[test]
fn two_kinds_of_tls_are_refused() {
    crate::install();
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let both = config(address, json!({"ldaps": true, "start_tls": true}));
    let reason = refusal(&def(), both);
    let wanted = "'ldaps' and 'start_tls' cannot be enabled simultaneously";
    assert!(reason.contains(wanted), "{reason}");
}
