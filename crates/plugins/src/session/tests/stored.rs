//! Tests of the storage `kong`.

use super::*;
use tokens::sessions::{Bounds, EmbeddedSessions, SessionStore};
use tokens::testing::{DisturbedSessions, Meanwhile};

/// A store whose directory is removed with it.
pub(super) struct Store {
    sessions: Arc<dyn SessionStore>,
    _directory: tempfile::TempDir,
}

impl Store {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path().join("sessions");
        let sessions = EmbeddedSessions::open(&path, 1 << 28, Bounds::default());
        Self {
            sessions: Arc::new(sessions.expect("it is opened")),
            _directory: directory,
        }
    }
}

pub(super) fn stored(store: &Store, config: serde_json::Value) -> Case {
    with(config).sessions(store.sessions.clone())
}

#[test]
fn stored_sessions_end_when_they_are_logged_out() {
    let store = Store::new();
    let config = json!({"storage": "kong", "rolling_timeout": 400, "stale_ttl": 10});
    let case = stored(&store, config);
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
    log_out(&case, &renewed);
    assert_eq!(run(&case, &renewed).consumer(), Some("guest"));
    let in_cookie = with(json!({}));
    assert_eq!(
        run(&case, &jar(&log_in(&in_cookie))).consumer(),
        Some("guest")
    );
}

/// Two audiences on one node, and a cookie with sessions of both. The second one also takes otto's password.
fn two_audiences(store: &Store) -> (Case, Case, String) {
    let config = |audience: &str| json!({"storage": "kong", "audience": audience, "rolling_timeout": 400, "secret": "a secret of tests"});
    let one = stored(store, config("one"));
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

/// Logs out on a thread, because the reply waits for the disk.
fn log_out(case: &Case, cookies: &str) -> Outcome {
    let run = || {
        let call = case.request("POST /?session_logout=1");
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime can be made");
        runtime.block_on(call.header("Cookie", cookies).run())
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("it does not panic"))
}

#[test]
fn a_new_session_does_not_bring_back_what_was_logged_out_meanwhile() {
    let store = Store::new();
    let after = |meanwhile: bool| {
        let (one, two, both) = two_audiences(&store);
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
    let store = Store::new();
    let (one, two, both) = two_audiences(&store);
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

#[test]
fn stored_sessions_survive_a_restart_and_a_client_ends_only_its_own() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let open = |of_owner| {
        let bounds = Bounds {
            of_owner,
            ..Bounds::default()
        };
        let path = directory.path().join("sessions");
        let store = EmbeddedSessions::open(&path, 1 << 28, bounds);
        let store: Arc<dyn SessionStore> = Arc::new(store.expect("it is opened"));
        with(json!({"storage": "kong"})).sessions(store)
    };
    let case = open(5);
    let otto = case
        .request("GET /")
        .state(|state| {
            let otto = Uuid::from_u128(0x0770);
            state.credential = Some(Credential { id: otto });
            state.consumer = Some(Arc::new(Consumer {
                id: model::entities::ConsumerId(otto),
                username: Some("otto".into()),
                custom_id: None,
            }));
        })
        .run_now();
    let otto = jar(&otto);
    let all: Vec<String> = (0..20).map(|_| jar(&log_in(&case))).collect();
    drop(case);
    let case = open(5);
    assert_eq!(run(&case, &otto).consumer(), Some("otto"));
    let lasting = all
        .iter()
        .filter(|one| run(&case, one).consumer() == Some("nora"));
    assert_eq!(
        lasting.collect::<Vec<_>>(),
        all[15..].iter().collect::<Vec<_>>()
    );
}

#[test]
fn a_node_without_a_store_refuses() {
    let outcome = log_in_anyhow(&with(json!({"storage": "kong"})));
    assert_eq!(
        (outcome.client.status, outcome.upstream.is_none()),
        (500, true)
    );
}

fn log_in_anyhow(case: &Case) -> Outcome {
    case.request("GET /").header("apikey", "good").run_now()
}

/// Returns a store where somebody else is busy.
pub(super) fn disturbed(
    store: &Store,
    meanwhile: impl IntoIterator<Item = Meanwhile>,
) -> Arc<dyn SessionStore> {
    let meanwhile = meanwhile.into_iter().collect();
    Arc::new(DisturbedSessions::new(store.sessions.clone(), meanwhile))
}

#[test]
fn a_logout_that_the_store_cannot_do_is_not_told_as_done() {
    let store = Store::new();
    let mut disturbed = DisturbedSessions::new(store.sessions.clone(), Vec::new());
    disturbed.can_delete = false;
    let case = with(json!({"storage": "kong"})).sessions(Arc::new(disturbed));
    let cookie = jar(&log_in(&case));
    let outcome = log_out(&case, &cookie);
    assert_eq!(outcome.client.status, 500);
    assert!(cookies(&outcome).is_empty(), "the client can try again");
    assert_eq!(run(&case, &cookie).consumer(), Some("nora"));
}
