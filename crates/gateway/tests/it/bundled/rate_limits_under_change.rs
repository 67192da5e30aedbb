//! The counts of rate-limiting while the configuration changes: a change keeps the counts of what it does not concern,
//! and a plugin that moves to another route leaves its counts behind.
//!
//! All limits here are per year, so that no window ends during a test.

use super::rate_limiting::{count, limited, number, storm};
use super::{DATABASES, admin, apply, one_service, reload, start, workers};
use crate::SetOnDrop;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use testkit::{Echo, Gateway, HttpResponse};

const PLUGIN: &str = "5d2f3a0e-0d7b-4a35-9a52-94d1a4f6f001";

/// Routes `/a` and `/b`. The plugin is on the one with this name.
fn on_route(echo: &Echo, name: &str, limit: usize) -> Value {
    let plugin = json!({"id": PLUGIN, "name": "rate-limiting", "config": {"year": limit}});
    let routes = ["a", "b"].map(|route| {
        let plugins = if route == name { vec![&plugin] } else { vec![] };
        json!({"name": route, "paths": [format!("/{route}")], "plugins": plugins})
    });
    one_service(&echo.url(), json!(routes))
}

/// Sends a request that must pass, and returns how many more the limit allows.
fn remaining(gateway: &Gateway, path: &str) -> usize {
    let answer = gateway.get(path, &[]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    number(&answer, "x-ratelimit-remaining-year")
}

fn is_limited(answer: &HttpResponse) -> bool {
    answer.header("x-ratelimit-limit-year").is_some()
}

#[test]
fn counts_survive_changes_through_the_admin_api_and_a_reload() {
    let echo = Echo::start();
    let gateway = start(workers(), "lmdb", &on_route(&echo, "a", 20));
    let path = format!("/plugins/{PLUGIN}");
    let change = |method, path: &str, body: Value, status| {
        admin(&gateway, method, path, &body, &[status]);
    };
    assert_eq!(remaining(&gateway, "/a"), 19);
    change("PATCH", &path, json!({"config": {"year": 10}}), 200);
    assert_eq!(remaining(&gateway, "/a"), 8);
    change("PATCH", &path, json!({"config": {"hour": 10}}), 200);
    assert_eq!(remaining(&gateway, "/a"), 7);
    change("PUT", "/consumers/new", json!({}), 200);
    change(
        "PUT",
        "/routes/other",
        json!({"paths": ["/other"], "service": {"name": "shop"}}),
        200,
    );
    change("PATCH", "/services/shop", json!({"retries": 1}), 200);
    assert_eq!(remaining(&gateway, "/a"), 6);
    change("PATCH", "/routes/a", json!({"paths": ["/a", "/more"]}), 200);
    assert_eq!(remaining(&gateway, "/more"), 5);
    change("PATCH", &path, json!({"enabled": false}), 200);
    assert!(!is_limited(&gateway.get("/a", &[])));
    change("PATCH", &path, json!({"enabled": true}), 200);
    assert_eq!(remaining(&gateway, "/a"), 4);
    reload(&gateway);
    assert_eq!(remaining(&gateway, "/a"), 3);
    change("DELETE", &path, Value::Null, 204);
    assert!(!is_limited(&gateway.get("/a", &[])));
    let again = json!({"name": "rate-limiting", "config": {"year": 10}});
    change("POST", "/routes/a/plugins", again, 201);
    assert_eq!(remaining(&gateway, "/a"), 2);
}

#[test]
fn counts_survive_another_declarative_configuration_and_a_reload() {
    let echo = Echo::start();
    let before = on_route(&echo, "a", 20);
    let gateway = start(workers(), "off", &before);
    assert_eq!(remaining(&gateway, "/a"), 19);
    let mut changed = on_route(&echo, "a", 10);
    changed["consumers"] = json!([{"username": "new"}]);
    apply(&gateway, "off", &changed);
    assert_eq!(remaining(&gateway, "/a"), 8);
    // The file still has the limit of 20.
    reload(&gateway);
    assert_eq!(remaining(&gateway, "/a"), 17);
}

#[test]
fn a_plugin_that_moves_to_another_route_leaves_its_counts_behind() {
    for database in DATABASES {
        let echo = Echo::start();
        let gateway = start(workers(), database, &on_route(&echo, "a", 5));
        let move_to = |name: &str| {
            if database == "off" {
                return apply(&gateway, database, &on_route(&echo, name, 5));
            }
            let body = json!({"route": {"name": name}});
            admin(
                &gateway,
                "PATCH",
                &format!("/plugins/{PLUGIN}"),
                &body,
                &[200],
            );
        };
        assert_eq!(
            [remaining(&gateway, "/a"), remaining(&gateway, "/a")],
            [4, 3]
        );
        move_to("b");
        assert_eq!(remaining(&gateway, "/b"), 4, "{database}");
        assert!(!is_limited(&gateway.get("/a", &[])));
        move_to("a");
        assert_eq!(remaining(&gateway, "/a"), 2, "{database}");
    }
}

#[test]
fn a_lower_limit_refuses_at_once_and_a_higher_one_admits_the_difference() {
    let echo = Echo::start();
    let gateway = start(workers(), "off", &on_route(&echo, "a", 10));
    let pass = |limit: usize| {
        apply(&gateway, "off", &on_route(&echo, "a", limit));
        let responses = storm(gateway.proxy, |_| Vec::new());
        count(responses.iter().flatten(), 200)
    };
    assert_eq!(pass(10), 10);
    assert_eq!(pass(7), 0);
    assert_eq!(pass(25), 15);
}

#[test]
fn a_limit_is_exact_while_other_entities_change() {
    const LIMIT: usize = 200;
    for database in DATABASES {
        let echo = Echo::start();
        let configuration = limited(&echo, &json!({"year": LIMIT}));
        let gateway = start(workers(), database, &configuration);
        let done = AtomicBool::new(false);
        let changes = thread::scope(|scope| {
            let changing = scope.spawn(|| {
                let mut changes = 0;
                while !done.load(Ordering::SeqCst) || changes == 0 {
                    changes += 1;
                    if database == "off" {
                        let mut configuration = configuration.clone();
                        configuration["plugins"] = other_plugin(changes);
                        apply(&gateway, database, &configuration);
                    } else {
                        let path = format!("/routes/r{}", changes % 5);
                        let paths = json!({"paths": [format!("/r{changes}")]});
                        admin(&gateway, "PUT", &path, &paths, &[200]);
                    }
                }
                changes
            });
            let _done = SetOnDrop(&done);
            let responses = storm(gateway.proxy, |_| Vec::new());
            assert_eq!(count(responses.iter().flatten(), 200), LIMIT, "{database}");
            done.store(true, Ordering::SeqCst);
            changing.join().expect("all changes are accepted")
        });
        assert!(changes > 0);
        assert_eq!(gateway.get("/a", &[]).status, 429);
        assert_eq!(echo.requests(), LIMIT as u64);
    }
}

/// A global plugin with another configuration for each number, so that every plan is compiled again.
fn other_plugin(number: usize) -> Value {
    let config = json!({"add": {"headers": [format!("x-number:{number}")]}});
    json!([{"name": "request-transformer", "config": config}])
}
