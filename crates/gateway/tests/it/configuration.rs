//! Declarative configurations: the gateway serves requests with a valid one and refuses an invalid one.

use crate::{launch, launch_in, one_route, shop};
use serde_json::json;
use std::fmt::Write;
use testkit::{Client, Echo, http};

#[test]
fn a_file_is_served_with_authentication() {
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    assert_eq!(gateway.get("/open/x?y=1", &[]).json()["uri"], "/x?y=1");
    assert_eq!(gateway.get("/closed", &[]).status, 401);
    let wrong = gateway.get("/closed", &[("apikey", "wrong")]);
    assert_eq!(wrong.status, 401);
    let seen = gateway.get("/closed/a", &[("apikey", "alice-key")]).json();
    assert_eq!(seen["headers"]["x-consumer-username"], "alice");
    let gone = gateway.get("/gone", &[]);
    assert_eq!(
        (gone.status, gone.json()),
        (410, json!({"message": "gone for good"}))
    );
    let nowhere = gateway.get("/nowhere", &[]);
    assert_eq!(nowhere.status, 404);
    assert_eq!(
        nowhere.json()["message"],
        "no Route matched with those values"
    );
    assert!(gateway.stop().success());
}

#[test]
fn a_posted_configuration_is_live_when_the_response_arrives() {
    let echo = Echo::start();
    let gateway = launch()
        .set("database", "off")
        .set("nginx_worker_processes", "2")
        .start();
    assert_eq!(gateway.get("/open", &[]).status, 404);
    for round in 0..30 {
        let path = format!("/round-{round}");
        let posted = gateway.post_config(&one_route(&echo.url(), &path));
        assert_eq!(posted.status, 201, "{}", posted.text());
        // The kernel spreads connections over the workers, and every worker must have the new configuration.
        for _ in 0..4 {
            assert_eq!(gateway.get(&path, &[]).status, 200, "{path}");
        }
        if round > 0 {
            let before = format!("/round-{}", round - 1);
            assert_eq!(gateway.get(&before, &[]).status, 404);
        }
    }
}

#[test]
fn unimplemented_plugins_that_guard_or_limit_refuse_requests() {
    let echo = Echo::start();
    let route = |name: &str, plugin: &str, config: serde_json::Value| {
        json!({
            "name": name, "paths": [format!("/{name}")],
            "plugins": [{"name": plugin, "config": config}],
        })
    };
    let configuration = json!({
        "_format_version": "3.0",
        "services": [{"name": "all", "url": echo.url(), "routes": [
            route("guarded", "ai-prompt-guard", json!({"allow_patterns": ["staff"]})),
            route("converted", "grpc-gateway", json!({})),
            route("open", "cors", json!({})),
        ]}],
        "plugins": [{"name": "acme", "config": {"account_email": "a@b.test"}}],
    });
    let gateway = launch().configuration(&configuration.to_string()).start();
    for path in ["/guarded", "/converted"] {
        let refused = gateway.get(path, &[]);
        assert_eq!(refused.status, 500, "{path}");
        let (body, id) = (refused.json(), refused.header("x-kong-request-id"));
        assert_eq!(body["message"], "An unexpected error occurred", "{path}");
        assert_eq!(body["request_id"].as_str(), id, "{path}");
    }
    assert_eq!(gateway.get("/open", &[]).status, 200);
    for (plugin, route) in [
        ("ai-prompt-guard", "guarded"),
        ("grpc-gateway", "converted"),
    ] {
        let missing = format!("plugin {plugin} is not implemented");
        gateway.wait_for_log(&format!(
            "{missing}: every request it applies to (routes: {route}) gets 500"
        ));
        gateway.wait_for_log(&format!("a request gets 500: {missing}"));
    }
    gateway.wait_for_log("plugin acme is not implemented: it is ignored (all requests)");
}

#[test]
fn a_kept_connection_sees_the_new_configuration() {
    let echo = Echo::start();
    let gateway = launch()
        .configuration(&one_route(&echo.url(), "/a"))
        .start();
    let mut client = Client::connect(gateway.proxy);
    assert_eq!(client.request("GET", "/a", &[], b"").status, 200);
    assert_eq!(
        gateway.post_config(&one_route(&echo.url(), "/b")).status,
        201
    );
    assert_eq!(client.request("GET", "/a", &[], b"").status, 404);
    assert_eq!(client.request("GET", "/b", &[], b"").status, 200);
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    let hash = gateway.admin_get("/status").json()["configuration_hash"].clone();
    let wrong = [
        (
            "not even yaml: [",
            "failed parsing declarative configuration",
        ),
        (
            "{\"_format_version\": \"3.0\", \"services\": [",
            "failed parsing declarative configuration",
        ),
        ("services: []", "required field missing"),
        ("_format_version: '3.0'\nservces: []", "unknown field"),
        (
            "_format_version: '3.0'\nservices: [{name: a, host: h, colour: red}]",
            "unknown field",
        ),
        (
            "_format_version: '3.0'\nservices: [{name: a, host: h, port: high}]",
            "expected an integer",
        ),
        (
            "_format_version: '3.0'\nservices: [{name: a, host: h}, {name: a, host: i}]",
            "already declared",
        ),
        (
            "_format_version: '3.0'\nroutes: [{name: r, paths: [/r], service: missing}]",
            "invalid reference",
        ),
        (
            "_format_version: '3.0'\nplugins: [{name: no-such-plugin}]",
            "not enabled",
        ),
        (
            "_format_version: '3.0'\nroutes: [{name: r, paths: ['~/(']}]",
            "invalid regex: '/('",
        ),
        (
            "_format_version: '3.0'\ncertificates: [{cert: nonsense, key: nonsense}]",
            "invalid",
        ),
    ];
    for (text, expected) in wrong {
        let answer = gateway.post_config(text);
        assert_eq!(answer.status, 400, "{text}\n{}", answer.text());
        assert_eq!(answer.json()["code"], 14, "{text}");
        assert!(
            answer.text().contains(expected),
            "{text}\n{}",
            answer.text()
        );
        assert_eq!(gateway.get("/open", &[]).status, 200, "{text}");
    }
    assert_eq!(
        gateway.admin_get("/status").json()["configuration_hash"],
        hash
    );
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

#[test]
fn the_same_text_is_recognised_by_its_hash() {
    let echo = Echo::start();
    let gateway = launch().set("database", "off").start();
    let empty = gateway.admin_get("/status").json();
    assert_eq!(empty["configuration_hash"], "0".repeat(32));
    let text = shop(&echo);
    assert_eq!(gateway.post_config(&text).status, 201);
    let headers = [("Content-Type", "text/yaml")];
    let again = || {
        let body = text.as_bytes();
        http::request(
            gateway.admin,
            "POST",
            "/config?check_hash=1",
            &headers,
            body,
        )
    };
    assert_eq!(again().status, 304);
    assert_eq!(
        gateway.post_config(&one_route(&echo.url(), "/a")).status,
        201
    );
    assert_eq!(again().status, 201);
}

#[test]
fn a_body_of_64_mib_is_handled_in_bounded_memory() {
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    let body = vec![b'x'; 64 << 20];
    let answer = http::request(gateway.proxy, "POST", "/open", &[], &body);
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.json()["body"].as_str().map(str::len),
        Some(body.len())
    );
    // The gateway streams the body in both directions. It would exceed this limit if it held the complete request and
    // the complete response.
    assert!(gateway.peak_memory() < body.len() as u64 * 3 / 2);
    let nonsense = gateway.post_config(&"- ".repeat(32 << 20));
    assert!(matches!(nonsense.status, 400 | 413), "{}", nonsense.status);
    assert!(gateway.peak_memory() < 1 << 30);
    assert_eq!(gateway.get("/open", &[]).status, 200);
}

#[test]
fn without_a_file_the_store_is_the_configuration() {
    let gateway = launch().start();
    let about = gateway.admin_get("/").json();
    assert_eq!(about["configuration"]["database"], "lmdb");
    assert_eq!(about["version"], "3.9.1");
    let refused = gateway.post_config("_format_version: '3.0'\n");
    assert_eq!(refused.status, 400);
    assert_eq!(gateway.get("/", &[]).status, 404);
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let echo = Echo::start();
    let gateway = launch()
        .set("nginx_http_client_max_body_size", "1k")
        .configuration(&shop(&echo))
        .start();
    let refused = http::request(gateway.proxy, "POST", "/open", &[], &[b'x'; 2048]);
    assert_eq!(refused.status, 413);
    let accepted = http::request(gateway.proxy, "POST", "/open", &[], &[b'x'; 1024]);
    assert_eq!(accepted.status, 200);
}

#[test]
fn a_restart_serves_the_last_revision_without_the_file() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let first = launch_in(prefix.path()).configuration(&shop(&echo)).start();
    assert_eq!(
        first.post_config(&one_route(&echo.url(), "/posted")).status,
        201
    );
    let hash = first.admin_get("/status").json()["configuration_hash"].clone();
    assert!(first.stop().success());
    std::fs::remove_file(prefix.path().join("kong.yml")).expect("it was written there");
    let second = launch_in(prefix.path()).set("database", "off").start();
    assert_eq!(second.get("/posted", &[]).status, 200);
    assert_eq!(second.get("/open", &[]).status, 404);
    assert_eq!(
        second.admin_get("/status").json()["configuration_hash"],
        hash
    );
}

#[test]
fn thousands_of_routes_are_live_at_once() {
    let echo = Echo::start();
    let gateway = launch().set("database", "off").start();
    let mut text = format!(
        "_format_version: '3.0'\nservices:\n- name: s\n  url: {}\n  routes:\n",
        echo.url()
    );
    for number in 0..3000 {
        let _ = writeln!(
            text,
            "  - {{name: r{number}, paths: [/path/{number}/], plugins: [{{name: key-auth}}]}}"
        );
    }
    text.push_str("consumers:\n");
    for number in 0..3000 {
        let _ = writeln!(
            text,
            "- {{username: c{number}, keyauth_credentials: [{{key: key-{number}}}]}}"
        );
    }
    let posted = gateway.post_config(&text);
    assert_eq!(
        posted.status,
        201,
        "{}",
        posted.text().chars().take(300).collect::<String>()
    );
    assert_eq!(
        posted.json()["routes"]
            .as_object()
            .map(|routes| routes.len()),
        Some(3000)
    );
    for number in [0, 1, 1500, 2999] {
        let target = format!("/path/{number}/x");
        assert_eq!(gateway.get(&target, &[]).status, 401);
        let key = format!("key-{}", 2999 - number);
        assert_eq!(gateway.get(&target, &[("apikey", &key)]).status, 200);
    }
    assert_eq!(gateway.post_config(&text).status, 201);
}

#[test]
fn one_route_among_many_changes_and_the_others_stay() {
    let echo = Echo::start();
    let configuration = |changed: &str| {
        let mut text = shop(&echo);
        for number in 0..20 {
            let path = match number {
                7 => changed.to_owned(),
                _ => format!("/many-{number}"),
            };
            let route = format!("      - name: many-{number}\n        paths: [{path}]\n");
            text = text.replace("consumers:", &format!("{route}consumers:"));
        }
        text
    };
    let gateway = launch().configuration(&configuration("/many-7")).start();
    for path in ["/moved", "/closed/below", "/many-7"] {
        let before = gateway.get(path, &[]).status;
        let posted = gateway.post_config(&configuration(path));
        assert_eq!(posted.status, 201, "{}", posted.text());
        assert_eq!(
            gateway.get(path, &[]).status,
            200,
            "{path}, {before} before"
        );
        assert_eq!(gateway.get("/many-8/x", &[]).status, 200);
        assert_eq!(gateway.get("/closed", &[]).status, 401);
        assert_eq!(gateway.get("/gone", &[]).status, 410);
        if path != "/many-7" {
            assert_eq!(gateway.get("/many-7", &[]).status, 404);
        }
    }
    let plans = gateway.admin_get("/metrics").text();
    assert!(
        plans.contains("silverback_rebuild_seconds_count{part=\"router\"} 4"),
        "{plans}"
    );
}

#[test]
fn a_configuration_that_does_not_fit_is_refused_and_the_running_one_stays() {
    let echo = Echo::start();
    let gateway = launch()
        .set("database", "off")
        .set("lmdb_map_size", "1m")
        .start();
    let running = one_route(&echo.url(), "/a");
    assert_eq!(gateway.post_config(&running).status, 201);
    let mut large = String::from("_format_version: '3.0'\nconsumers:\n");
    for number in 0..4000 {
        let _ = writeln!(large, "- username: {}-{number}", "long".repeat(100));
    }
    let answer = gateway.post_config(&large);
    assert_eq!(answer.status, 413, "{}", answer.text());
    assert!(answer.text().contains("lmdb_map_size"), "{}", answer.text());
    assert_eq!(gateway.get("/a", &[]).status, 200);
}

#[test]
fn sessions_of_a_document_are_left_out_because_they_are_not_configuration() {
    let gateway = launch().set("database", "off").start();
    let session =
        r#"{"session_id": "abc", "data": "the data of a session", "expires": 9999999999}"#;
    let document = format!(r#"{{"_format_version": "3.0", "sessions": [{session}]}}"#);
    let posted = gateway.post_config(&document);
    assert_eq!(posted.status, 201, "{}", posted.text());
    let left_out = "the sessions (1) are left out, because they are not configuration";
    let warning = posted.header("warning").unwrap_or_default();
    assert!(warning.contains(left_out), "{warning}");
    gateway.wait_for_log(left_out);
    let store = gateway.launch().prefix().join("silverback.lmdb/data.mdb");
    let stored = std::fs::read(store).expect("the store can be read");
    let is_there = stored
        .windows(b"the data of a session".len())
        .any(|part| part == b"the data of a session");
    assert!(!is_there, "sessions are in no revision");
}
