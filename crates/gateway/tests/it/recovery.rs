//! The store after a crash, unreadable stores, and starts that fail and must not change the store.

use crate::{launch_in, one_route, shop};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use testkit::{Client, Echo, Gateway, http};

/// Number of routes in each configuration. The path of every route contains the number of its configuration. This shows
/// whether the served routes come from different configurations.
const ROUTES: usize = 300;

fn numbered(echo: &Echo, number: usize) -> String {
    let mut text = format!(
        "_format_version: '3.0'\nservices:\n- name: s\n  url: {}\n  routes:\n",
        echo.url()
    );
    for route in 0..ROUTES {
        text.push_str(&format!(
            "  - {{name: r{route}, paths: [/{route}/of/{number}]}}\n"
        ));
    }
    text
}

/// Returns the number of the served configuration. Checks that it is exactly one of `candidates`, and complete.
fn served(gateway: &Gateway, candidates: std::ops::Range<usize>) -> usize {
    let is_served = |route: usize, number: usize| {
        gateway.get(&format!("/{route}/of/{number}"), &[]).status == 200
    };
    let alive: Vec<usize> = candidates
        .clone()
        .filter(|number| is_served(0, *number))
        .collect();
    let [number] = alive.as_slice() else {
        panic!("exactly one of {candidates:?} must be served, not {alive:?}");
    };
    for route in [1, ROUTES / 2, ROUTES - 1] {
        assert!(is_served(route, *number), "route {route} of {number}");
    }
    *number
}

/// Posts configurations until the gateway is killed, and sends the number of each acknowledged one to the channel.
fn post_until_killed(
    admin: SocketAddr,
    texts: Vec<(usize, String)>,
    acknowledged: &mpsc::Sender<usize>,
) {
    for (number, text) in texts {
        let headers = [("Content-Type", "text/yaml")];
        let bytes = http::encode("POST", "/config", &headers, text.as_bytes());
        let Ok(stream) = TcpStream::connect(admin) else {
            break;
        };
        let mut client = Client::over(stream);
        match client.send(bytes).and_then(|()| client.receive("POST")) {
            Ok(answer) => assert_eq!(answer.status, 201, "{}", answer.text()),
            Err(_) => break,
        }
        // If the receiver is gone, the test has already failed.
        let _ = acknowledged.send(number);
    }
}

#[test]
fn a_kill_during_loads_leaves_the_old_or_the_new_configuration_whole() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let first = launch_in(prefix.path())
        .configuration(&numbered(&echo, 0))
        .start();
    first.kill();
    let mut acknowledged = 0;
    for round in 0..8 {
        let gateway = launch_in(prefix.path()).set("database", "off").start();
        // The configuration after the last acknowledged one may have been stored although its response was lost.
        acknowledged = served(&gateway, acknowledged..acknowledged + 2);
        let texts: Vec<_> = (acknowledged + 1..acknowledged + 200)
            .map(|number| (number, numbered(&echo, number)))
            .collect();
        let admin = gateway.admin;
        let (sender, numbers) = mpsc::channel();
        let loader = thread::spawn(move || post_until_killed(admin, texts, &sender));
        acknowledged = numbers.recv().expect("a load was acknowledged");
        // The gateway is loading the next configuration now. Each round kills it at a different moment of this load.
        thread::sleep(Duration::from_millis(4 * round));
        gateway.kill();
        loader.join().expect("a load was refused");
        acknowledged = numbers.iter().last().unwrap_or(acknowledged);
    }
}

#[test]
fn a_damaged_store_is_reported_and_not_served_as_empty() {
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

/// Truncates the file of the store after its meta pages.
fn damage(directory: &Path) {
    let path = directory.join("data.mdb");
    let file = fs::File::options().write(true).open(path);
    let cut = file.and_then(|file| file.set_len(8192));
    cut.expect("the store is writable");
}

#[test]
fn commands_that_read_a_damaged_store_report_it_and_leave_it() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).configuration(&shop(&echo)).start();
    assert!(gateway.stop().success());
    let directory = prefix.path().join("silverback.lmdb");
    damage(&directory);
    let damaged = fs::read(directory.join("data.mdb")).expect("there");
    let words: [&[&str]; 6] = [
        &["export"],
        &["revisions", "list"],
        &["revisions", "show", "1"],
        &["revisions", "rollback", "0"],
        &["explain", "http://example.com/open"],
        &["check"],
    ];
    for words in words {
        let mut command = launch_in(prefix.path()).other(words);
        let output = command.output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {errors}");
        assert!(errors.contains("damaged"), "{words:?}: {errors}");
        let file = fs::read(directory.join("data.mdb")).expect("the file stays");
        assert_eq!(file, damaged, "{words:?}");
    }
    let files = fs::read_dir(&directory).expect("readable").flatten();
    let renamed = files.filter(|file| file.file_name().to_string_lossy().contains("unreadable"));
    assert_eq!(renamed.count(), 0);
}

#[test]
fn damage_under_a_running_gateway_is_reported_with_what_to_do() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).configuration(&shop(&echo)).start();
    let run = |words: &[&str]| {
        let mut command = launch_in(prefix.path()).other(words);
        let output = command.output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), errors)
    };
    let (is_valid, errors) = run(&["check"]);
    assert!(is_valid, "{errors}");
    overwrite(&prefix.path().join("silverback.lmdb/data.mdb"));
    let advice =
        "the store cannot be read; stop the gateway and start it again, which examines the store";
    for words in [["export", "--format=yaml"], ["revisions", "list"]] {
        let (is_done, errors) = run(&words);
        assert!(!is_done, "{words:?}");
        assert!(errors.contains(advice), "{words:?}: {errors}");
    }
    for path in ["/export", "/services", "/revisions"] {
        let answer = gateway.admin_get(path);
        assert_eq!(answer.status, 500, "{path}: {}", answer.text());
        assert!(answer.text().contains(advice), "{path}: {}", answer.text());
    }
    assert_eq!(gateway.get("/open", &[]).status, 200);
    let closed = gateway.get("/closed", &[("apikey", "alice-key")]);
    assert_eq!(closed.status, 500, "{}", closed.text());
    let (is_valid, errors) = run(&["check"]);
    assert!(!is_valid);
    for part in ["is damaged: page ", "silverback import FILE"] {
        assert!(errors.contains(part), "{errors}");
    }
}

/// Overwrites all pages of a store but the two meta pages. The file keeps its length, as at a fault of a disk.
fn overwrite(path: &Path) {
    let length = fs::metadata(path).expect("there").len();
    let noise = vec![0x5a; usize::try_from(length).expect("small") - 8192];
    let file = fs::File::options().write(true).open(path);
    let written = file.and_then(|file| file.write_all_at(&noise, 8192));
    written.expect("the store is writable");
}

#[test]
fn a_check_beside_changes_of_the_store_finds_no_damage() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).start();
    thread::scope(|scope| {
        let writes = scope.spawn(|| {
            for number in 0..200 {
                let body = format!("{{\"username\": \"c{number}\"}}");
                let created = gateway.admin_send("POST", "/consumers", &body);
                assert_eq!(created.status, 201, "{}", created.text());
            }
        });
        while !writes.is_finished() {
            let mut check = launch_in(prefix.path()).other(&["check"]);
            let output = check.output().expect("it runs");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{errors}");
        }
    });
}

#[test]
fn after_damage_an_import_makes_a_new_store() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let backup = prefix.path().join("backup.yml");
    fs::write(&backup, shop(&echo)).expect("writable");
    let backup = backup.to_str().expect("a path in UTF-8");
    let import_of = |file: &str| {
        let mut command = launch_in(prefix.path()).other(&["import", file]);
        let output = command.output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), errors)
    };
    let import = || import_of(backup);
    assert!(import().0);
    damage(&prefix.path().join("silverback.lmdb"));
    let log = launch_in(prefix.path()).try_start().map(drop);
    let log = log.expect_err("a damaged store was served");
    for way in [
        "`cp COPY ",
        "`silverback import FILE`",
        "`silverback start FILE --set database=off`",
    ] {
        assert!(log.contains(way), "{way} is missing in: {log}");
    }
    let (is_done, errors) = import();
    assert!(is_done, "{errors}");
    let again = launch_in(prefix.path()).start();
    assert_eq!(again.get("/open", &[]).status, 200);
    assert!(again.stop().success());
    // Now `import` is the first command to find the damage. A wrong file leaves the store as it is.
    let store = prefix.path().join("silverback.lmdb");
    damage(&store);
    let damaged = fs::read(store.join("data.mdb")).expect("there");
    let wrong = prefix.path().join("wrong.yml");
    fs::write(&wrong, "_format_version: '3.0'\nservices: [{name: a}]\n").expect("writable");
    let (is_done, errors) = import_of(wrong.to_str().expect("a path in UTF-8"));
    assert!(
        !is_done && errors.contains("required field missing"),
        "{errors}"
    );
    assert_eq!(fs::read(store.join("data.mdb")).expect("there"), damaged);
    let (is_done, errors) = import();
    assert!(is_done, "{errors}");
    for part in ["warning: ", "damaged", ".unreadable-", "empty store"] {
        assert!(errors.contains(part), "{errors}");
    }
    let again = launch_in(prefix.path()).start();
    assert_eq!(again.get("/open", &[]).status, 200);
}

#[test]
fn a_store_of_another_program_is_refused_and_kept() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let directory = prefix.path().join("dbless.lmdb");
    fs::create_dir(&directory).expect("writable");
    let theirs = b"the file of another program".repeat(1000);
    fs::write(directory.join("data.mdb"), &theirs).expect("writable");
    let launch = || launch_in(prefix.path()).set("lmdb_environment_path", "dbless.lmdb");
    for launch in [launch(), launch().configuration(&shop(&echo))] {
        let log = launch.try_start().map(drop).expect_err("it was opened");
        for part in [
            "not an LMDB file",
            "left as it is",
            "lmdb_environment_path",
            "If it is Silverback's own store, its first page is damaged",
        ] {
            assert!(log.contains(part), "{part} is missing in: {log}");
        }
        assert_eq!(fs::read(directory.join("data.mdb")).expect("there"), theirs);
    }
}

#[test]
fn an_unreadable_node_id_is_reported_with_its_file() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(prefix.path().join("silverback.id")).expect("writable");
    let log = launch_in(prefix.path()).try_start().map(drop);
    let log = log.expect_err("it has no id");
    assert!(log.contains("silverback.id: Is a directory"), "{log}");
}

#[test]
fn a_file_that_replaces_entities_of_the_admin_api_is_reported() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let first = launch_in(prefix.path()).start();
    for body in [r#"{"username": "a"}"#, r#"{"username": "b"}"#] {
        assert_eq!(first.admin_send("POST", "/consumers", body).status, 201);
    }
    assert!(first.stop().success());
    let file = prefix.path().join("shop.yml");
    fs::write(&file, shop(&echo)).expect("writable");
    let check = || {
        let mut check = launch_in(prefix.path()).other(&["check", file.to_str().expect("UTF-8")]);
        let output = check.output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        errors
    };
    let warned = check();
    for part in [
        "warning: the store has 2 entities at revision 2, last written by 127.0.0.1:",
        "shop.yml will replace them",
    ] {
        assert!(warned.contains(part), "{warned}");
    }
    let with_file = || launch_in(prefix.path()).configuration(&shop(&echo)).start();
    let second = with_file();
    second.wait_for_log("the store had 2 entities at revision 2, last written by 127.0.0.1:");
    second.wait_for_log(&format!(
        "to go back: stop the gateway, run `silverback revisions rollback 2 --prefix {}`, and start without the file",
        prefix.path().display()
    ));
    assert!(second.stop().success());
    let warned = check();
    assert!(!warned.contains("the store has"), "{warned}");
    // The file has replaced its own entities only.
    let third = with_file();
    third.wait_for_log("silverback is serving");
    assert!(!third.log().contains("the store had"), "{}", third.log());
    assert!(third.stop().success());
    let mut back = launch_in(prefix.path()).other(&["revisions", "rollback", "2"]);
    assert!(back.output().expect("it runs").status.success());
    let again = launch_in(prefix.path()).start();
    assert_eq!(again.admin_get("/consumers/a").status, 200);
    assert!(again.stop().success());
    // If the log is a file, the warning is printed too.
    let last = launch_in(prefix.path())
        .set("proxy_error_log", "logs/error.log")
        .configuration(&shop(&echo))
        .start();
    last.wait_for_log(
        "warning: the store had 2 entities at revision 4, last written by command line;",
    );
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
        log.contains("Failed parsing declarative config file"),
        "{log}"
    );
    assert!(log.contains("in 'host': required field missing"), "{log}");
    let second = launch_in(prefix.path()).set("database", "off").start();
    assert_eq!(second.get("/a", &[]).status, 200);
}

#[test]
fn a_start_that_cannot_listen_keeps_the_store_and_reports_other_errors() {
    let echo = Echo::start();
    let occupied = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = occupied.local_addr().expect("a bound address").to_string();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let refused = |text: &str| {
        let launch = launch_in(prefix.path()).set("proxy_listen", &address);
        let started = launch.configuration(text).try_start();
        let log = started.map(drop).expect_err("the port is taken");
        assert!(
            log.contains("setting proxy_listen (flag --set): cannot listen"),
            "{log}"
        );
        log
    };
    let log = refused(&one_route(&echo.url(), "/b"));
    assert!(!log.contains("live"), "{log}");
    assert!(!prefix.path().join("silverback.lmdb").exists());
    let first = launch_in(prefix.path())
        .configuration(&one_route(&echo.url(), "/a"))
        .start();
    assert!(first.stop().success());
    refused(&one_route(&echo.url(), "/b"));
    let log = refused("_format_version: '3.0'\nservices: [{name: a}]\n");
    assert!(log.contains("kong.yml"), "{log}");
    assert!(log.contains("in 'host': required field missing"), "{log}");
    let second = launch_in(prefix.path()).set("database", "off").start();
    assert_eq!(second.get("/a", &[]).status, 200);
    let prefix = format!("prefix={}", prefix.path().display());
    // A thread of its own writes the log, perhaps after the first response.
    second.wait_for_log(&prefix);
}
