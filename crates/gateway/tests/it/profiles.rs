//! Profiles of the running gateway, over its socket and over the Admin API, and the view of `top`.

use crate::{SetOnDrop, launch, shop};
use profile::Profile;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, Echo, Gateway, HttpResponse, request};

/// Naming the functions of a debug build takes seconds. Even on a busy machine, it takes less than this.
const LIMIT: Duration = Duration::from_secs(120);

fn serve_until(gateway: &Gateway, end: &AtomicBool) {
    while !end.load(Ordering::SeqCst) {
        // The gateway closes a connection after a number of requests.
        let mut client = Client::connect(gateway.proxy);
        for _ in 0..100 {
            assert_eq!(client.request("GET", "/open", &[], b"").status, 200);
        }
    }
}

fn run(gateway: &Gateway, words: &[&str]) -> String {
    let output = gateway.launch().other(words).output().expect("it runs");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_profile_under_load_names_the_functions_of_the_workers() {
    let (echo, directory) = (Echo::start(), tempfile::tempdir().expect("a directory"));
    let gateway = launch().configuration(&shop(&echo)).start();
    let end = AtomicBool::new(false);
    let name = directory.path().join("taken").display().to_string();
    let said = thread::scope(|scope| {
        let _end = SetOnDrop(&end);
        scope.spawn(|| serve_until(&gateway, &end));
        run(
            &gateway,
            &["profile", "cpu", "--seconds", "2", "--output", &name],
        )
    });
    assert!(said.contains("of CPU time in 2."), "{said}");
    let bytes = std::fs::read(format!("{name}.pb.gz")).expect("written");
    let profile = Profile::from_pprof(&bytes).expect("a profile");
    let of_worker = |wanted: &str| {
        profile.stacks.iter().any(|stack| {
            let mut names = stack
                .frames
                .iter()
                .map(|frame| &profile.functions[frame.function].name);
            stack.thread == "worker-0" && names.any(|name| name.contains(wanted))
        })
    };
    for wanted in ["proxy::session", "net::http1", "tokio::runtime"] {
        assert!(of_worker(wanted), "{wanted}: {said}");
    }
    let svg = std::fs::read_to_string(format!("{name}.svg")).expect("written");
    assert!(svg.contains("<title>worker ("), "{}", svg.len());
}

/// Asks for a profile of this many seconds.
fn ask(gateway: &Gateway, seconds: u32) -> HttpResponse {
    let target = format!("/debug/pprof/profile?seconds={seconds}&format=folded");
    request(gateway.admin, "GET", &target, &[], b"")
}

/// Begins a profile of ten minutes. Returns its client, and what another client gets meanwhile.
fn begin_long(gateway: &Gateway) -> (Client, HttpResponse) {
    let wanted = b"GET /debug/pprof/profile?seconds=600 HTTP/1.1\r\nHost: a\r\n\r\n";
    let deadline = Instant::now() + LIMIT;
    // If it arrives after the next one, it is the one that is refused, and has to be sent again.
    loop {
        let mut client = Client::connect(gateway.admin);
        client.send(wanted).expect("sent");
        let answer = ask(gateway, 1);
        if answer.status == 409 {
            return (client, answer);
        }
        assert!(Instant::now() < deadline, "the long one begins");
    }
}

#[test]
fn one_profile_at_a_time_which_ends_when_its_client_is_gone() {
    let gateway = launch().start();
    let (client, refused) = begin_long(&gateway);
    let busy = refused.json();
    let message = busy["message"].as_str().unwrap_or_default();
    assert!(message.contains("only one at a time"), "{message}");
    drop(client);
    let deadline = Instant::now() + LIMIT;
    while ask(&gateway, 1).status != 200 {
        assert!(Instant::now() < deadline, "the long one ends");
    }
    assert_eq!(ask(&gateway, 0).status, 400);
    let unknown = request(
        gateway.admin,
        "GET",
        "/debug/pprof/profile?format=x",
        &[],
        b"",
    );
    assert_eq!(unknown.status, 400);
}

#[test]
fn a_profile_does_not_hold_up_the_stop() {
    let gateway = launch().start();
    let (mut client, _) = begin_long(&gateway);
    let begun = Instant::now();
    assert!(gateway.stop().success());
    // By default, requests in flight get 30 seconds.
    assert!(begun.elapsed() < Duration::from_secs(15), "{begun:?}");
    assert_eq!(client.receive("GET").expect("an answer").status, 503);
}

#[test]
fn the_role_read_only_takes_no_profiles_and_there_is_none_of_the_heap() {
    let gateway = launch().start();
    let create = |name, role| {
        let token = run(&gateway, &["tokens", "create", name, "--role", role]);
        format!("Bearer {}", token.trim())
    };
    let (writer, reader) = (create("ci", "admin"), create("eyes", "read-only"));
    let ask = |path: &str, token: &str| {
        let headers = [("Authorization", token)];
        request(gateway.admin, "GET", path, &headers, b"")
    };
    for path in ["/debug/pprof/profile?seconds=1", "/debug/pprof/heap"] {
        let refused = ask(path, &reader);
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.text().contains("may not take profiles"), "{path}");
    }
    let heap = ask("/debug/pprof/heap", &writer);
    assert_eq!(heap.status, 501);
    assert!(heap.text().contains("mimalloc"), "{}", heap.text());
    // The Status API has no roles, and no profiles.
    let status = testkit::get(gateway.status, "/debug/pprof/profile?seconds=1", &[]);
    assert_eq!(status.status, 404);
    let output = gateway
        .launch()
        .other(&["profile", "heap"])
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("perf record"));
}

#[test]
fn top_shows_workers_and_traffic_as_text_where_there_is_no_terminal() {
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    let end = AtomicBool::new(false);
    let text = thread::scope(|scope| {
        let _end = SetOnDrop(&end);
        scope.spawn(|| serve_until(&gateway, &end));
        run(&gateway, &["top", "--interval", "1"])
    });
    let first = text.lines().next().unwrap_or_default();
    assert!(first.starts_with("requests "), "{text}");
    assert!(!first.contains("2xx 0/s"), "{text}");
    let mut rows = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert!(
        rows.any(|row| row.len() > 3 && row[0] == "0" && row[2] == "%"),
        "{text}"
    );
}
