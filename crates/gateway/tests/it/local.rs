//! The local socket of the Admin API in the prefix. Every running gateway has it, only its owner may use it, and after
//! an upgrade the new process serves it.

use crate::{SetOnDrop, launch, launch_in};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::{Client, HttpResponse};

fn socket(prefix: &Path) -> PathBuf {
    prefix.join("admin.sock")
}

fn ask(prefix: &Path, method: &str, target: &str, body: &[u8]) -> HttpResponse {
    let stream = UnixStream::connect(socket(prefix)).expect("somebody listens");
    let headers = [("Content-Type", "application/json")];
    Client::over(stream).request(method, target, &headers, body)
}

#[test]
fn it_serves_the_whole_admin_api_without_any_listener() {
    let mut gateway = launch().set("admin_listen", "off").start();
    let prefix = gateway.launch().prefix().to_owned();
    let mode = std::fs::metadata(socket(&prefix))
        .expect("there")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let created = ask(&prefix, "POST", "/services", br#"{"url": "http://a.test"}"#);
    assert_eq!(created.status, 201, "{}", created.text());
    let list = ask(&prefix, "GET", "/services", b"").json();
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1));
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert!(!socket(&prefix).exists(), "the process removes its socket");
}

#[test]
fn the_socket_left_by_a_crash_is_replaced() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let prefix = directory.path();
    launch_in(prefix).start().kill();
    assert!(UnixStream::connect(socket(prefix)).is_err());
    let _gateway = launch_in(prefix).start();
    assert_eq!(ask(prefix, "GET", "/status", b"").status, 200);
}

#[test]
fn an_upgrade_loses_no_request_and_leaves_the_socket_to_the_new_process() {
    let mut gateway = launch().start();
    let prefix = gateway.launch().prefix().to_owned();
    let pid = |answer: HttpResponse| answer.json()["pids"]["master"].as_u64();
    let first = Some(u64::from(gateway.pid()));
    assert_eq!(pid(ask(&prefix, "GET", "/", b"")), first);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                assert_eq!(ask(&prefix, "GET", "/status", b"").status, 200);
            }
        });
        let running = SetOnDrop(&stop);
        for _ in 0..3 {
            gateway.upgrade().expect("it takes over");
        }
        drop(running);
        asking.join().expect("no request fails");
    });
    let last = Some(u64::from(gateway.pid()));
    assert_eq!(pid(ask(&prefix, "GET", "/", b"")), last);
    gateway.signal("TERM");
    gateway.wait_for_successor();
    assert!(
        !socket(&prefix).exists(),
        "the last process removes the socket"
    );
}
