//! `silverback events`: another process follows the revisions of a running gateway, through upgrades and crashes.

use crate::{SetOnDrop, launch, launch_in};
use admin::events::wire::{self, Frame, Reason, Start};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use testkit::{Client, Gateway, HttpResponse, Launch, http};

const WRITERS: usize = 5;
const WRITES_EACH: usize = 200;
/// Maximum time to wait for an event. It is long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A running `silverback events` and the lines that it prints. It is killed when dropped.
struct Printed {
    child: Child,
    lines: Receiver<String>,
}

impl Printed {
    fn start(launch: &Launch, more: &[&str]) -> Self {
        let words: Vec<&str> = ["events"].iter().chain(more).copied().collect();
        let mut child = launch
            .other(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program can be run");
        let output = child.stdout.take().expect("a pipe");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(LIMIT).expect("another line")
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.next()).expect("a line of JSON")
    }

    /// Reads this many revisions and returns their numbers. Checks that each contains one change.
    fn revisions(&self, count: usize) -> Vec<u64> {
        let revision = |_| {
            let event = self.json();
            assert_eq!(
                event["changes"].as_array().map(Vec::len),
                Some(1),
                "{event}"
            );
            event["revision"].as_u64().expect("a number")
        };
        (0..count).map(revision).collect()
    }
}

impl Drop for Printed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(prefix: &Path) -> PathBuf {
    prefix.join("events.sock")
}

/// A subscriber that uses the protocol directly, without the command.
struct Raw {
    stream: UnixStream,
    read: Vec<u8>,
}

impl Raw {
    fn subscribe(prefix: &Path, start: Start) -> Self {
        let mut raw = Self::connect(prefix);
        // A process that is stopping may have closed the connection already. The next read returns that error.
        let _ = raw.stream.write_all(&wire::encode_opening(start));
        raw
    }

    fn connect(prefix: &Path) -> Self {
        let stream = UnixStream::connect(socket(prefix)).expect("somebody listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// Returns the number of the next revision when all its changes have arrived. If the connection ends before that,
    /// returns the reason that the gateway sent, if any.
    fn revision(&mut self) -> Result<u64, Option<Reason>> {
        let mut coming = None;
        loop {
            while let Some((frame, length)) = wire::decode(&self.read).expect("the protocol") {
                match frame {
                    Frame::Revision(head) => coming = Some((head.revision, head.changes as usize)),
                    Frame::Changes(changes) => {
                        let (_, left) = coming
                            .as_mut()
                            .expect("the head of the revision comes first");
                        *left -= changes.len();
                    }
                    Frame::End { reason, .. } => return Err(Some(reason)),
                    Frame::Welcome { .. } | Frame::Heartbeat => {}
                    Frame::Gap { .. } => panic!("{frame:?}"),
                }
                self.read.drain(..length);
                if let Some((revision, 0)) = coming {
                    return Ok(revision);
                }
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(length @ 1..) => self.read.extend_from_slice(&piece[..length]),
                Ok(0) | Err(_) => return Err(None),
            }
        }
    }
}

/// Follows all revisions, but opens a new connection after every 17 of them. Ends early if the test is over.
fn reconnecting(prefix: &Path, last: u64, is_over: &AtomicBool) -> Vec<u64> {
    let mut seen = Vec::new();
    while seen.len() < last as usize && !is_over.load(Ordering::SeqCst) {
        let start = Start::After(seen.last().copied().unwrap_or(0));
        let mut raw = Raw::subscribe(prefix, start);
        for _ in 0..17 {
            match raw.revision() {
                Ok(revision) => seen.push(revision),
                Err(_) => break,
            }
            if seen.len() == last as usize {
                break;
            }
        }
    }
    seen
}

fn write(gateway: &Gateway, writer: usize, number: usize) {
    let body = format!(r#"{{"username": "w{writer}-{number}"}}"#);
    let answer = gateway.admin_send("POST", "/consumers", &body);
    assert_eq!(answer.status, 201, "{}", answer.text());
}

#[test]
fn subscribers_see_every_revision_once_and_in_order_through_an_upgrade() {
    let mut gateway = launch().start();
    let prefix = gateway.launch().prefix().to_owned();
    let total = (WRITERS * WRITES_EACH) as u64;
    let fast = Printed::start(gateway.launch(), &["--json", "--from", "1"]);
    let mut slow = Raw::subscribe(&prefix, Start::After(0));
    let admin = gateway.admin;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _running = SetOnDrop(&is_over);
        let hopping = scope.spawn(|| reconnecting(&prefix, total, &is_over));
        let write = move |writer: usize| {
            for number in 0..WRITES_EACH {
                let body = format!(r#"{{"username": "w{writer}-{number}"}}"#);
                let json = [("Content-Type", "application/json")];
                let answer = testkit::request(admin, "POST", "/consumers", &json, body.as_bytes());
                assert_eq!(answer.status, 201, "{}", answer.text());
            }
        };
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        // Upgrade while the writers are still creating revisions.
        assert_eq!(fast.revisions(100), (1..=100).collect::<Vec<_>>());
        gateway.upgrade().expect("it takes over");
        for writer in writers {
            writer.join().expect("no write fails");
        }
        assert_eq!(
            fast.revisions(total as usize - 100),
            (101..=total).collect::<Vec<_>>()
        );
        let all: Vec<u64> = (1..=total).collect();
        assert_eq!(hopping.join().expect("it follows"), all);
        // This subscriber has read nothing so far. Meanwhile its process has sent the end frame because of the upgrade.
        let mut seen = Vec::new();
        let ended = loop {
            match slow.revision() {
                Ok(revision) => seen.push(revision),
                Err(ended) => break ended,
            }
        };
        assert!(matches!(ended, None | Some(Reason::Leaving)), "{ended:?}");
        let mut again = Raw::subscribe(&prefix, Start::After(seen.len() as u64));
        while seen.len() < all.len() {
            seen.push(again.revision().expect("the new process sends the rest"));
        }
        assert_eq!(seen, all);
    });
    assert!(gateway.wait().success());
}

/// Creates consumers until the gateway is killed. Returns the ids of the consumers whose creation was acknowledged.
fn write_until_killed(admin: SocketAddr, writer: usize) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let Ok(stream) = TcpStream::connect(admin) else {
            break;
        };
        let body = format!(r#"{{"username": "w{writer}-{number}"}}"#);
        let headers = [("Content-Type", "application/json")];
        let bytes = http::encode("POST", "/consumers", &headers, body.as_bytes());
        let mut client = Client::over(stream);
        let sent = client.send(&bytes);
        let Ok(answer) = sent.and_then(|()| client.receive("POST")) else {
            break;
        };
        assert_eq!(answer.status, 201, "{}", answer.text());
        acknowledged.push(id_of(&answer));
    }
    acknowledged
}

fn id_of(created: &HttpResponse) -> String {
    let id = &created.json()["id"];
    id.as_str().expect("an id").to_owned()
}

#[test]
fn a_crash_loses_no_reported_revision_and_repeats_none() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let prefix = directory.path();
    let first = launch_in(prefix).start();
    let follower = Printed::start(first.launch(), &["--json", "--from", "1"]);
    let admin = first.admin;
    let mut told = Vec::new();
    let acknowledged = thread::scope(|scope| {
        let writers = (0..3).map(|writer| scope.spawn(move || write_until_killed(admin, writer)));
        let writers: Vec<_> = writers.collect();
        told.extend((0..60).map(|_| follower.json()));
        first.kill();
        let each = writers.into_iter().map(|writer| writer.join());
        each.flat_map(|ids| ids.expect("no write fails"))
            .collect::<Vec<_>>()
    });
    let second = launch_in(prefix).start();
    let last = second.admin_send("POST", "/consumers", r#"{"username": "last"}"#);
    let id = |event: &Value| {
        let id = &event["changes"][0]["id"];
        id.as_str().expect("an id").to_owned()
    };
    while told.last().map(id) != Some(id_of(&last)) {
        told.push(follower.json());
    }
    let revisions: Vec<_> = told
        .iter()
        .map(|event| event["revision"].as_u64())
        .collect();
    assert_eq!(
        revisions,
        (1..=told.len() as u64).map(Some).collect::<Vec<_>>()
    );
    let told: BTreeSet<String> = told.iter().map(id).collect();
    assert!(acknowledged.iter().all(|id| told.contains(id)));
    // Every reported consumer exists.
    for id in &told {
        let answer = second.admin_get(&format!("/consumers/{id}"));
        assert_eq!(answer.status, 200, "{id}");
    }
}

#[test]
fn each_line_says_who_changed_what() {
    let gateway = launch().start();
    let prefix = gateway.launch().prefix().to_owned();
    let mode = std::fs::metadata(socket(&prefix))
        .expect("there")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let headers = [
        ("Content-Type", "application/json"),
        ("X-Change-Message", "a new one"),
    ];
    let body = br#"{"username": "alice"}"#;
    let created = testkit::request(gateway.admin, "POST", "/consumers", &headers, body);
    let id = id_of(&created);
    let text = Printed::start(gateway.launch(), &["--from", "1"]).next();
    assert!(text.starts_with("1  20"), "{text}");
    let rest = format!("  created consumers {id}  \"a new one\"");
    assert!(text.ends_with(&rest), "{text}");
    let event = Printed::start(gateway.launch(), &["--from", "1", "--json"]).json();
    assert_eq!(event["message"], "a new one");
    let source = event["source"].as_str().expect("an address");
    assert!(source.starts_with("127.0.0.1:"), "{source}");
    let change = serde_json::json!({ "action": "create", "type": "consumers", "id": id });
    assert_eq!(event["changes"], serde_json::json!([change]));
}

#[test]
fn hostile_clients_are_disconnected_and_others_unaffected() {
    let gateway = launch().start();
    let prefix = gateway.launch().prefix().to_owned();
    let follower = Printed::start(gateway.launch(), &["--json", "--from", "1"]);
    write(&gateway, 0, 0);
    assert_eq!(follower.revisions(1), [1]);
    let hostile = |bytes: &[u8]| {
        let mut raw = Raw::connect(&prefix);
        // The gateway may close the connection before it has read everything.
        let _ = raw.stream.write_all(bytes);
        let _ = raw.stream.shutdown(std::net::Shutdown::Write);
        while raw.revision().is_ok() {}
    };
    let opening = wire::encode_opening(Start::Now);
    let long = [&opening[..], &[0xff; 100_000]].concat();
    for bytes in [
        &b""[..],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        &opening[..7],
        &opening,
        &long,
        &[0; 4096],
    ] {
        for _ in 0..20 {
            hostile(bytes);
        }
    }
    write(&gateway, 0, 1);
    assert_eq!(follower.revisions(1), [2]);
    assert_eq!(gateway.admin_get("/status").status, 200);
    assert!(!gateway.log().contains("panic"), "{}", gateway.log());
}

#[test]
fn following_reports_why_it_is_impossible() {
    let failed = |mut command: Command| {
        let output = command.output().expect("the program can be run");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let nobody = failed(launch_in(directory.path()).other(&["events"]));
    assert!(
        nobody.contains("no gateway is running with prefix"),
        "{nobody}"
    );
    let gateway = launch().start();
    let unknown = failed(gateway.launch().other(&["events", "--from", "9"]));
    assert!(unknown.contains("revision 8 is unknown"), "{unknown}");
    let prefix = gateway.launch().prefix().to_owned();
    assert!(gateway.stop().success());
    assert!(!socket(&prefix).exists(), "the process removes its socket");
}
