//! The history of revisions, over the Admin API and on the command line, with and without a running gateway.

use crate::{launch, launch_in, shop};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::{Echo, Gateway, Launch};

/// Runs a command that must succeed, and returns its output.
fn say(launch: &Launch, words: &[&str]) -> String {
    let output = launch.other(words).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn refused(launch: &Launch, words: &[&str]) -> String {
    let output = launch.other(words).output().expect("it runs");
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8(output.stderr).expect("text")
}

fn in_json(launch: &Launch, words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    serde_json::from_str(&say(launch, &words)).expect("JSON")
}

/// Creates three revisions. Revision 1 creates a service, 2 creates a route for it, and 3 changes the path of the
/// route.
fn three_revisions(gateway: &Gateway, echo: &Echo) {
    let service = format!(r#"{{"name": "shop", "url": "{}"}}"#, echo.url());
    let route = r#"{"name": "r", "paths": ["/old"]}"#;
    let moved = r#"{"paths": ["/new"]}"#;
    for (method, path, body, status) in [
        ("POST", "/services", service.as_str(), 201),
        ("POST", "/services/shop/routes", route, 201),
        ("PATCH", "/routes/r", moved, 200),
    ] {
        assert_eq!(gateway.admin_send(method, path, body).status, status);
    }
}

fn statuses(gateway: &Gateway) -> [u16; 2] {
    ["/old", "/new"].map(|path| gateway.get(path, &[]).status)
}

#[test]
fn a_rollback_is_live_when_the_response_arrives_and_after_a_restart() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).start();
    three_revisions(&gateway, &echo);
    assert_eq!(statuses(&gateway), [404, 200]);
    let answer = gateway.admin_send(
        "POST",
        "/revisions/2/rollback",
        r#"{"message": "too early"}"#,
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["revision"], 4);
    assert_eq!(statuses(&gateway), [200, 404]);
    gateway.kill();
    let gateway = launch_in(prefix.path()).start();
    assert_eq!(statuses(&gateway), [200, 404]);
    let newest = gateway.admin_get("/revisions/4").json();
    assert_eq!(newest["message"], "too early");
    assert!(
        newest["source"]
            .as_str()
            .is_some_and(|source| source.starts_with("127.0.0.1:"))
    );
}

#[test]
fn without_a_database_the_hash_goes_back_with_the_configuration() {
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    let hash =
        |gateway: &Gateway| gateway.admin_get("/status").json()["configuration_hash"].clone();
    let first = hash(&gateway);
    assert_eq!(gateway.post_config("_format_version: '3.0'\n").status, 201);
    assert_ne!(hash(&gateway), first);
    assert_eq!(gateway.get("/open", &[]).status, 404);
    let answer = gateway.admin_send("POST", "/revisions/1/rollback", "");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(gateway.get("/open", &[]).status, 200);
    assert_eq!(hash(&gateway), first);
    // A new configuration is compared with the one that the rollback restored.
    assert_eq!(gateway.post_config(&shop(&echo)).status, 201);
    assert_eq!(gateway.get("/open", &[]).status, 200);
    // With one entity of it missing, the configuration is another one, and no document has its hash.
    assert_eq!(
        gateway
            .post_config("_format_version: '3.0'\nconsumers: [{username: a}]\n")
            .status,
        201
    );
    assert_eq!(gateway.post_config(&shop(&echo)).status, 201);
    let body = r#"{"entities": ["consumers/a"]}"#;
    let before = hash(&gateway);
    let head = gateway.admin_get("/revisions?size=1").json()["data"][0]["revision"].clone();
    let with_consumer = head.as_u64().expect("a number") - 1;
    let path = format!("/revisions/{with_consumer}/rollback");
    let answer = gateway.admin_send("POST", &path, body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_ne!(hash(&gateway), before);
    assert_eq!(gateway.admin_get("/consumers/a").status, 200);
    assert_eq!(gateway.post_config(&shop(&echo)).status, 201);
    assert_eq!(gateway.admin_get("/consumers/a").status, 404);
    assert_eq!(gateway.get("/open", &[]).status, 200);
}

#[test]
fn the_command_line_shows_the_same_with_and_without_a_gateway() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).start();
    three_revisions(&gateway, &echo);
    let questions: [&[&str]; 5] = [
        &["revisions", "list", "--limit", "2"],
        &["revisions", "list", "--entity", "routes/r"],
        &["revisions", "show", "3"],
        &["revisions", "diff", "1", "3"],
        &[
            "revisions",
            "rollback",
            "2",
            "--dry-run",
            "--expected-revision",
            "3",
        ],
    ];
    let told = |launch: &Launch| {
        let texts = questions.map(|words| say(launch, words));
        (texts, questions.map(|words| in_json(launch, words)))
    };
    let running = told(gateway.launch());
    let (texts, answers) = &running;
    assert_eq!(texts[0].lines().count(), 1 + 2 + 1, "{}", texts[0]);
    assert!(
        texts[2].contains("    - paths: [\"/old\"]\n    + paths: [\"/new\"]\n"),
        "{}",
        texts[2]
    );
    assert!(texts[3].starts_with("+ routes "), "{}", texts[3]);
    assert!(
        texts[4].starts_with("would roll back to revision 2: +0 ~1 -0\n"),
        "{}",
        texts[4]
    );
    assert_eq!(answers[0]["data"][0]["revision"], 3);
    assert_eq!(
        answers[1]["data"][0]["change"]["before"]["paths"],
        json!(["/old"])
    );
    let unknown = refused(gateway.launch(), &["revisions", "show", "9"]);
    assert_eq!(unknown, "error: there is no revision 9, the newest is 3\n");
    gateway.stop();
    assert_eq!(told(&launch_in(prefix.path())), running);
}

#[test]
fn a_list_says_that_it_is_cut_off_and_json_has_every_revision() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).start();
    for number in 0..21 {
        let body = format!(r#"{{"username": "c{number}"}}"#);
        assert_eq!(gateway.admin_send("POST", "/consumers", &body).status, 201);
    }
    let list = |more: &[&str]| say(gateway.launch(), &[&["revisions", "list"], more].concat());
    let cut = list(&[]);
    assert_eq!(cut.lines().count(), 1 + 20 + 1, "{cut}");
    assert!(
        cut.ends_with("\n… older revisions: --limit N shows more\n"),
        "{cut}"
    );
    let whole = list(&["--limit", "21"]);
    assert!(!whole.contains('…'), "{whole}");
    let count = |words: &[&str]| {
        let listed = in_json(gateway.launch(), &[&["revisions", "list"], words].concat());
        listed["data"].as_array().map(Vec::len)
    };
    assert_eq!(count(&[]), Some(21));
    assert_eq!(count(&["--limit", "3"]), Some(3));
}

#[test]
fn a_store_without_a_gateway_is_rolled_back_for_the_next_start() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).start();
    three_revisions(&gateway, &echo);
    assert_eq!(gateway.admin_send("DELETE", "/routes/r", "").status, 204);
    gateway.stop();

    let launch = launch_in(prefix.path());
    let stale = refused(
        &launch,
        &["revisions", "rollback", "1", "--expected-revision", "2"],
    );
    assert_eq!(stale, "error: the newest revision is 4, not 2\n");
    let done = say(
        &launch,
        &["revisions", "rollback", "2", "--message", "by hand"],
    );
    assert!(
        done.starts_with("revision 5: rolled back to revision 2: +1 ~0 -0\n"),
        "{done}"
    );
    let gateway = launch.start();
    assert_eq!(statuses(&gateway), [200, 404]);
    let newest = gateway.admin_get("/revisions/5").json();
    assert_eq!(
        (&newest["source"], &newest["message"]),
        (&json!("command line"), &json!("by hand"))
    );
}

#[test]
fn one_entity_is_restored_with_and_without_a_gateway() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).start();
    three_revisions(&gateway, &echo);
    let carol = r#"{"username": "carol"}"#;
    assert_eq!(gateway.admin_send("POST", "/consumers", carol).status, 201);
    let words = ["revisions", "rollback", "2", "--entity", "routes/r"];
    let tried = say(gateway.launch(), &[&words[..], &["--dry-run"]].concat());
    assert!(
        tried.starts_with("would roll back routes/r to revision 2: +0 ~1 -0\n~ routes "),
        "{tried}"
    );
    let done = say(gateway.launch(), &words);
    assert!(
        done.starts_with("revision 5: rolled back routes/r to revision 2: +0 ~1 -0\n"),
        "{done}"
    );
    assert_eq!(statuses(&gateway), [200, 404]);
    assert_eq!(gateway.admin_get("/consumers/carol").status, 200);
    gateway.stop();
    let launch = launch_in(prefix.path());
    let again = say(&launch, &words);
    assert_eq!(
        again,
        "nothing to change: routes/r as in revision 2 already\n"
    );
    let words = [
        "revisions",
        "rollback",
        "3",
        "--entity",
        "consumers/carol",
        "--entity",
        "routes/r",
    ];
    let done = say(&launch, &words);
    assert!(
        done.starts_with(
            "revision 6: rolled back consumers/carol, routes/r to revision 3: +0 ~1 -1\n"
        ),
        "{done}"
    );
    let list = ["revisions", "list", "--entity"];
    let gone = say(&launch, &[&list[..], &["consumers/carol"]].concat());
    for revision in ["\n6 ", "\n4 "] {
        assert!(gone.contains(revision), "{gone}");
    }
    assert_eq!(
        refused(&launch, &[&list[..], &["consumers/nobody"]].concat()),
        "error: there is no consumers/nobody, neither now nor in the kept history\n"
    );
    let gateway = launch.start();
    assert_eq!(statuses(&gateway), [404, 200]);
}

#[test]
fn a_rollback_without_a_database_names_the_file_that_undoes_it() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let warned = |launch: &Launch, revision: &str| {
        let words = ["revisions", "rollback", revision];
        let output = launch.other(&words).output().expect("it runs");
        let errors = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.success(), "{errors}");
        errors
    };
    let gateway = launch_in(prefix.path()).configuration(&shop(&echo)).start();
    let root = gateway.admin_get("/").json();
    let file = root["configuration"]["declarative_config"].as_str();
    let expected = format!(
        "warning: the next start or reload with the declarative file {} undoes a rollback: change the file too\n",
        file.expect("a path")
    );
    assert_eq!(warned(gateway.launch(), "0"), expected);
    gateway.stop();
    let gateway = launch_in(prefix.path()).configuration(&shop(&echo)).start();
    gateway.stop();
    assert_eq!(warned(&launch_in(prefix.path()), "0"), expected);
    // The store of a gateway with a database is not undone by a file.
    let gateway = launch_in(prefix.path()).start();
    assert_eq!(warned(gateway.launch(), "1"), "");
}

#[test]
fn without_gateway_and_store_there_is_no_history() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let told = refused(&launch_in(prefix.path()), &["revisions", "list"]);
    assert!(
        told.contains("no gateway is running") && told.contains("no store"),
        "{told}"
    );
    assert_eq!(
        std::fs::read_dir(prefix.path()).expect("readable").count(),
        0
    );
}

#[test]
fn revisions_beyond_the_limit_are_removed_without_further_changes() {
    let gateway = launch().set("history_max_revisions", "2").start();
    for number in 0..5 {
        let body = format!(r#"{{"username": "c{number}"}}"#);
        assert_eq!(gateway.admin_send("POST", "/consumers", &body).status, 201);
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while gateway.admin_get("/revisions/3").status != 410 {
        assert!(Instant::now() < deadline, "old revisions are not removed");
        std::thread::yield_now();
    }
    let kept = gateway.admin_get("/revisions").json();
    let kept = kept["data"].as_array().expect("a list");
    let kept: Vec<&Value> = kept.iter().map(|one| &one["revision"]).collect();
    assert_eq!(kept, [5, 4]);
}
