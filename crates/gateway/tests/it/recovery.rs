//! What is left after a crash, and a store that cannot be read.

use crate::{launch_in, one_route, shop};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use testkit::{Client, Echo, http};

#[test]
fn a_kill_during_loads_leaves_the_old_or_the_new_configuration_whole() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    // Each configuration has its number in every route: a mixture of two would show.
    let configuration = |number: usize| {
        let mut text = format!(
            "_format_version: '3.0'\nservices:\n- name: s\n  url: {}\n  routes:\n",
            echo.url()
        );
        for route in 0..300 {
            text.push_str(&format!(
                "  - {{name: r{route}, paths: [/{route}/of/{number}]}}\n"
            ));
        }
        text
    };
    let mut acknowledged = 0;
    for round in 0..8 {
        let gateway = launch_in(prefix.path()).set("database", "off").start();
        if round > 0 {
            let at_least = acknowledged;
            let alive: Vec<usize> = (at_least..at_least + 20)
                .filter(|number| gateway.get(&format!("/0/of/{number}"), &[]).status == 200)
                .collect();
            let [current] = alive.as_slice() else {
                panic!("after an acknowledged {at_least}, routes of {alive:?} are served");
            };
            for route in [1, 150, 299] {
                let target = format!("/{route}/of/{current}");
                assert_eq!(gateway.get(&target, &[]).status, 200, "{target}");
            }
            acknowledged = *current;
        }
        let admin = gateway.admin;
        let first = acknowledged + 1;
        let texts: Vec<String> = (first..first + 10).map(configuration).collect();
        let loader = thread::spawn(move || {
            let mut last = first - 1;
            for text in texts {
                let mut client = Client::connect(admin);
                let headers = [("Content-Type", "text/yaml")];
                let bytes = http::encode("POST", "/config", &headers, text.as_bytes());
                let sent = client.send(bytes).and_then(|()| client.receive("POST"));
                match sent {
                    Ok(answer) => assert_eq!(answer.status, 201, "{}", answer.text()),
                    Err(_) => break,
                }
                last += 1;
            }
            last
        });
        // A different moment of the loads in each round; no moment is a wrong one.
        thread::sleep(Duration::from_millis(7 * round));
        gateway.kill();
        acknowledged = acknowledged.max(loader.join().expect("the loader panicked"));
    }
}

#[test]
fn a_damaged_store_is_told_and_not_served_as_empty() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let first = launch_in(prefix.path()).configuration(&shop(&echo)).start();
    assert!(first.stop().success());
    damage(&prefix.path().join("silverback.lmdb"));
    for attempt in 0..2 {
        let log = launch_in(prefix.path())
            .set("database", "off")
            .try_start()
            .map(drop)
            .expect_err("a damaged store was served");
        assert!(log.contains("unreadable"), "attempt {attempt}: {log}");
    }
    let again = launch_in(prefix.path()).configuration(&shop(&echo)).start();
    assert_eq!(again.get("/open", &[]).status, 200);
    assert!(again.stop().success());
    let persisted = launch_in(prefix.path()).set("database", "off").start();
    assert_eq!(persisted.get("/open", &[]).status, 200);
}

/// Overwrites every store file's pages, headers included.
fn damage(directory: &Path) {
    let path = directory.join("data.mdb");
    let length = fs::metadata(&path).expect("the store is there").len() as usize;
    fs::write(&path, vec![0x5a; length]).expect("the store is writable");
}

#[test]
fn a_start_with_a_wrong_file_keeps_the_store() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let first = launch_in(prefix.path())
        .configuration(&one_route(&echo.url(), "/a"))
        .start();
    assert!(first.stop().success());
    let log = launch_in(prefix.path())
        .configuration("_format_version: '3.0'\nservices: [{name: a}]\n")
        .try_start()
        .map(drop)
        .expect_err("a wrong file was started");
    assert!(
        log.contains("error parsing declarative config file"),
        "{log}"
    );
    assert!(log.contains("in 'host': required field missing"), "{log}");
    let second = launch_in(prefix.path()).set("database", "off").start();
    assert_eq!(second.get("/a", &[]).status, 200);
}
