//! Tests what happens while the store cannot be written: full disk, file size limit, full store, read-only store.
//! Writes are refused with the cause, everything else keeps working, and writes succeed again when there is room.
//!
//! Tests that need a file system of their own run themselves again in a new mount namespace (`unshare`). If the system
//! does not allow that, they print that they are skipped.

use crate::launch_in;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use testkit::{Echo, Gateway, HttpResponse, Launch};

const MOUNTED: &str = "NO_ROOM_MOUNTED";

/// Runs `work` with a directory on a file system of `bytes` bytes. `test` is the name of the calling test.
fn in_small_filesystem(test: &str, bytes: usize, work: impl FnOnce(&Path)) {
    if let Some(directory) = std::env::var_os(MOUNTED) {
        let directory = PathBuf::from(directory);
        let size = format!("size={bytes}");
        assert!(run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(&directory)));
        return work(&directory);
    }
    let ways: [&[&str]; 2] = [&["-m"], &["-Urm"]];
    let way = ways
        .into_iter()
        .find(|way| run(Command::new("unshare").args(*way).arg("true")));
    let Some(way) = way else {
        eprintln!("{test} is skipped: no file system can be mounted here");
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let binary = std::env::current_exe().expect("the path of this test binary");
    let again = run(Command::new("unshare")
        .args(way)
        .arg(binary)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(MOUNTED, directory.path()));
    assert!(again, "{test} failed in its own mount namespace");
}

/// Whether the command could be started and succeeded.
fn run(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

fn launch_small(prefix: &Path) -> Launch {
    launch_in(prefix).set("database", "lmdb")
}

/// Creates a route `/open` for everybody and a route `/closed` that requires alice's key.
fn open_shop(gateway: &Gateway, echo: &Echo) {
    let create = |kind: &str, data: &str| {
        format!(r#"{{"action": "create", "type": "{kind}", "data": {data}}}"#)
    };
    let service = format!(r#"{{"name": "shop", "url": "{}"}}"#, echo.url());
    let changes = [
        create("services", &service),
        create(
            "routes",
            r#"{"name": "open", "paths": ["/open"], "service": {"name": "shop"}}"#,
        ),
        create(
            "routes",
            r#"{"name": "closed", "paths": ["/closed"], "service": {"name": "shop"}}"#,
        ),
        create(
            "plugins",
            r#"{"name": "key-auth", "route": {"name": "closed"}}"#,
        ),
        create("consumers", r#"{"username": "alice"}"#),
        create(
            "keyauth_credentials",
            r#"{"key": "alice-key", "consumer": {"username": "alice"}}"#,
        ),
    ];
    let body = format!(r#"{{"changes": [{}]}}"#, changes.join(","));
    let made = gateway.admin_send("POST", "/changes", &body);
    assert_eq!(made.status, 200, "{}", made.text());
}

/// Sends requests in the background until [`Traffic::finish`]. No request may fail.
struct Traffic {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Traffic {
    fn start(gateway: &Gateway) -> Self {
        let (stop, rounds) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let proxy = gateway.proxy;
        let thread = {
            let (stop, rounds) = (Arc::clone(&stop), Arc::clone(&rounds));
            thread::spawn(move || {
                let get =
                    |path, key: &str| testkit::http::get(proxy, path, &[("apikey", key)]).status;
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(get("/open", ""), 200);
                    assert_eq!(get("/closed", "alice-key"), 200);
                    // This key is in no cache, so the gateway must read the store.
                    let number = rounds.fetch_add(1, Ordering::Relaxed);
                    let key = format!("nobody-{number}");
                    assert_eq!(get("/closed", &key), 401);
                }
            })
        };
        Self {
            stop,
            rounds,
            thread,
        }
    }

    /// Waits until some more requests have been answered.
    fn proceed(&self) {
        let until = self.rounds.load(Ordering::Relaxed) + 5;
        while self.rounds.load(Ordering::Relaxed) < until {
            assert!(!self.thread.is_finished(), "a request has failed");
            thread::yield_now();
        }
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no request has failed");
    }
}

/// The consumers that the test has tried to create, and those whose creation was acknowledged.
#[derive(Default)]
struct Ledger {
    next: usize,
    acknowledged: BTreeSet<String>,
}

impl Ledger {
    /// Creates a consumer with a long name.
    fn write(&mut self, gateway: &Gateway) -> HttpResponse {
        let username = format!("{}-{}", "long".repeat(500), self.next);
        self.next += 1;
        let body = format!(r#"{{"username": "{username}"}}"#);
        let answer = gateway.admin_send("POST", "/consumers", &body);
        if answer.status == 201 {
            self.acknowledged.insert(username);
        }
        answer
    }

    /// Writes until a write is refused, and returns the response to it.
    fn write_until_refused(&mut self, gateway: &Gateway) -> HttpResponse {
        for _ in 0..5000 {
            let answer = self.write(gateway);
            if answer.status != 201 {
                return answer;
            }
        }
        panic!("nothing was refused");
    }

    /// Checks that the store has exactly the acknowledged consumers and alice.
    fn check(&self, gateway: &Gateway) {
        let mut found = BTreeSet::new();
        let mut next = Some("/consumers?size=1000".to_owned());
        while let Some(target) = next {
            let list = gateway.admin_get(&target).json();
            for consumer in list["data"].as_array().expect("a list") {
                found.insert(consumer["username"].as_str().expect("a name").to_owned());
            }
            next = list["next"].as_str().map(str::to_owned);
        }
        assert!(found.remove("alice"));
        assert_eq!(found, self.acknowledged);
    }
}

/// Checks that small and large writes are refused with the cause and that everything else works.
fn check_refused(gateway: &Gateway, traffic: &Traffic, ledger: &mut Ledger, cause: &str) {
    let refused = ledger.write_until_refused(gateway);
    assert_eq!(refused.status, 507, "{}", refused.text());
    assert_cause(&refused, cause);
    for _ in 0..10 {
        let answer = ledger.write(gateway);
        assert!([201, 507].contains(&answer.status), "{}", answer.text());
    }
    let creations: Vec<String> = (0..200)
        .map(|number| {
            let username = format!("{}-{number}", "set".repeat(1000));
            format!(r#"{{"action": "create", "type": "consumers", "data": {{"username": "{username}"}}}}"#)
        })
        .collect();
    let body = format!(r#"{{"changes": [{}]}}"#, creations.join(","));
    let refused = gateway.admin_send("POST", "/changes", &body);
    assert_eq!(refused.status, 507, "{}", refused.text());
    assert_cause(&refused, cause);
    ledger.check(gateway);
    traffic.proceed();
    let status = testkit::http::get(gateway.status, "/status", &[]);
    assert_eq!(status.status, 200);
    let ready = testkit::http::get(gateway.status, "/status/ready", &[]);
    assert_eq!(ready.status, 200);
    let metrics = gateway.admin_get("/metrics").text();
    assert!(metrics.contains("silverback_panics_total 0"), "{metrics}");
}

/// Checks that the response names `cause`. If a write to the disk was incomplete, the response names only the general
/// cause.
fn assert_cause(refused: &HttpResponse, cause: &str) {
    let text = refused.text();
    let is_cut_short = text.contains("the disk is full or failing") && cause != "lmdb_map_size";
    assert!(text.contains(cause) || is_cut_short, "{text}");
}

/// Checks that writes succeed again.
fn check_recovered(gateway: &Gateway, traffic: &Traffic, ledger: &mut Ledger) {
    for _ in 0..20 {
        let answer = ledger.write(gateway);
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    ledger.check(gateway);
    traffic.proceed();
}

/// Writes a file that takes all the free space.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("the file can be created");
    while file.write_all(&[7; 4096]).is_ok() {}
    while file.write_all(&[7]).is_ok() {}
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let test = "no_room::a_full_disk_refuses_writes_until_there_is_room";
    in_small_filesystem(test, 4 << 20, |directory| {
        let echo = Echo::start();
        let prefix = directory.join("prefix");
        let filler = directory.join("filler");
        let gateway = launch_small(&prefix).start();
        open_shop(&gateway, &echo);
        let traffic = Traffic::start(&gateway);
        let mut ledger = Ledger::default();
        for _ in 0..3 {
            fill(&filler);
            check_refused(&gateway, &traffic, &mut ledger, "the disk is full");
            fs::remove_file(&filler).expect("the file exists");
            check_recovered(&gateway, &traffic, &mut ledger);
        }
        traffic.finish();
        gateway.kill();
        let gateway = launch_small(&prefix).start();
        ledger.check(&gateway);
    });
}

/// Returns the listening addresses from the log (`proxy 127.0.0.1:8000, admin 127.0.0.1:8001`). The usual file with the
/// addresses is missing, because the prefix cannot be written.
fn logged_addresses(log: impl BufRead) -> String {
    for line in log.lines().map_while(Result::ok) {
        if line.contains("is serving") {
            let (_, rest) = line.split_once(" addresses=").expect("the addresses");
            let (addresses, _) = rest.split_once(" workers=").expect("the next field");
            return addresses.to_owned();
        }
    }
    panic!("the gateway does not serve");
}

#[test]
fn a_start_on_a_full_disk_serves_what_is_stored() {
    let test = "no_room::a_start_on_a_full_disk_serves_what_is_stored";
    in_small_filesystem(test, 3 << 20, |directory| {
        let echo = Echo::start();
        let prefix = directory.join("prefix");
        let gateway = launch_small(&prefix).start();
        open_shop(&gateway, &echo);
        fill(&directory.join("filler"));
        gateway.kill();
        let _ = fs::remove_file(prefix.join("silverback.addresses.json"));
        fill(&directory.join("another"));
        let mut command = launch_small(&prefix).command();
        let child = command.stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program can be run");
        let log = child.stderr.take().expect("standard error is piped");
        let addresses = logged_addresses(BufReader::new(log));
        let [proxy, admin] = ["proxy", "admin"].map(|name| {
            let mut listed = addresses.split(", ");
            let text = listed.find_map(|one| one.strip_prefix(name)?.strip_prefix(' '));
            let text = text.expect("an address for each listener");
            text.parse().expect("an address")
        });
        let key = [("apikey", "alice-key")];
        assert_eq!(testkit::http::get(proxy, "/closed", &key).status, 200);
        let write = || {
            let body = format!(r#"{{"username": "{}"}}"#, "long".repeat(10_000));
            let headers = [("Content-Type", "application/json")];
            testkit::http::request(admin, "POST", "/consumers", &headers, body.as_bytes())
        };
        let refused = write();
        assert_eq!(refused.status, 507, "{}", refused.text());
        fs::remove_file(directory.join("filler")).expect("the file exists");
        let made = write();
        assert_eq!(made.status, 201, "{}", made.text());
        child.kill().expect("the gateway is running");
        child.wait().expect("a child can be waited for");
    });
}

/// Tests the file size limit (`ulimit -f`). Where no file system can be mounted, this test also stands in for a full
/// disk.
#[test]
fn a_file_that_may_not_grow_refuses_writes_until_it_may() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_small(prefix.path()).start();
    open_shop(&gateway, &echo);
    let traffic = Traffic::start(&gateway);
    let mut ledger = Ledger::default();
    let limit = |most| {
        let pid = Pid::from_raw(gateway.pid().cast_signed()).expect("a process");
        let maximum = prlimit(
            Some(pid),
            Resource::Fsize,
            Rlimit {
                current: most,
                maximum: None,
            },
        );
        maximum.expect("the limit of a child can be lowered");
    };
    for _ in 0..3 {
        let data = prefix.path().join("silverback.lmdb/data.mdb");
        limit(Some(data.metadata().expect("the file exists").len() + 5000));
        check_refused(&gateway, &traffic, &mut ledger, "largest size of a file");
        limit(None);
        check_recovered(&gateway, &traffic, &mut ledger);
    }
    traffic.finish();
    assert!(gateway.stop().success());
}

#[test]
fn a_full_store_refuses_writes_until_something_is_removed() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_small(prefix.path())
        .set("lmdb_map_size", "1m")
        .start();
    open_shop(&gateway, &echo);
    let traffic = Traffic::start(&gateway);
    let mut ledger = Ledger::default();
    for _ in 0..3 {
        check_refused(&gateway, &traffic, &mut ledger, "lmdb_map_size");
        let removed: Vec<String> = ledger.acknowledged.iter().take(40).cloned().collect();
        for username in removed {
            let answer = gateway.admin_send("DELETE", &format!("/consumers/{username}"), "");
            assert_eq!(answer.status, 204, "{}", answer.text());
            ledger.acknowledged.remove(&username);
        }
        check_recovered(&gateway, &traffic, &mut ledger);
    }
    traffic.finish();
    assert!(gateway.stop().success());
}

/// A file with the immutable attribute. Nobody can write it, not even through an open descriptor.
struct Immutable(PathBuf);

impl Immutable {
    fn make(path: PathBuf) -> Option<Self> {
        run(Command::new("chattr").arg("+i").arg(&path)).then_some(Self(path))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        run(Command::new("chattr").arg("-i").arg(&self.0));
    }
}

#[test]
fn a_store_that_becomes_read_only_refuses_writes_until_it_is_writable() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_small(prefix.path()).start();
    open_shop(&gateway, &echo);
    let traffic = Traffic::start(&gateway);
    let mut ledger = Ledger::default();
    for _ in 0..3 {
        let data = prefix.path().join("silverback.lmdb/data.mdb");
        let Some(immutable) = Immutable::make(data) else {
            eprintln!("skipped: chattr is not allowed here");
            break;
        };
        check_refused(&gateway, &traffic, &mut ledger, "read-only");
        drop(immutable);
        check_recovered(&gateway, &traffic, &mut ledger);
    }
    traffic.finish();
    assert!(gateway.stop().success());
}

/// The gateway keeps the store's files open, and open files stay writable.
#[test]
fn a_directory_that_becomes_read_only_changes_nothing() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_small(prefix.path()).start();
    open_shop(&gateway, &echo);
    let traffic = Traffic::start(&gateway);
    let mut ledger = Ledger::default();
    let directories = [
        prefix.path().join("silverback.lmdb"),
        prefix.path().to_owned(),
    ];
    let permit = |mode| {
        for directory in &directories {
            fs::set_permissions(directory, Permissions::from_mode(mode))
                .expect("the test owns the directory");
        }
    };
    permit(0o555);
    check_recovered(&gateway, &traffic, &mut ledger);
    permit(0o755);
    check_recovered(&gateway, &traffic, &mut ledger);
    traffic.finish();
}

#[test]
fn a_start_on_a_read_only_file_system_says_so() {
    let test = "no_room::a_start_on_a_read_only_file_system_says_so";
    in_small_filesystem(test, 4 << 20, |directory| {
        let echo = Echo::start();
        let prefix = directory.join("prefix");
        let gateway = launch_small(&prefix).start();
        open_shop(&gateway, &echo);
        assert!(gateway.stop().success());
        let remount = |how| {
            assert!(run(Command::new("mount").args(["-o", how]).arg(directory)));
        };
        remount("remount,ro");
        let output = launch_small(&prefix).command().output();
        let output = output.expect("the program can be run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("Read-only file system"), "{said}");
        remount("remount,rw");
        let gateway = launch_small(&prefix).start();
        assert_eq!(gateway.get("/open", &[]).status, 200);
    });
}
