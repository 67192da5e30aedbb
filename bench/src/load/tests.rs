//! Tests of the load generator. Each starts a server in a thread, with a script for its responses.

use super::*;
use crate::certificate;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const WHOLE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const SHORT: Duration = Duration::from_millis(50);

/// A server's reaction to a request.
enum Act {
    Answer(&'static str),
    /// Answers and closes the connection.
    Last(&'static str),
    AnswerAfter(Duration),
    Ignore,
}

/// The requests and connections that a server has received.
#[derive(Default)]
struct Seen {
    requests: AtomicUsize,
    heads: Mutex<Vec<String>>,
    streams: Mutex<Vec<TcpStream>>,
}

impl Seen {
    fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst) as u64
    }
}

/// Starts a server. The script receives the number of the request, counted over all connections.
fn server(script: impl Fn(usize) -> Act + Send + Sync + 'static) -> (Target, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Seen::default());
    let (script, record) = (Arc::new(script), Arc::clone(&seen));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (script, seen) = (Arc::clone(&script), Arc::clone(&record));
            let copy = stream.try_clone().unwrap();
            seen.streams.lock().unwrap().push(copy);
            std::thread::spawn(move || {
                serve(&stream, &*script, &seen);
                // Dropping the stream would not close it, because `seen` has a copy. The client may have closed it
                // first.
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
    });
    let tls = false;
    (Target { address, tls }, seen)
}

fn serve(mut stream: impl Read + Write, script: impl Fn(usize) -> Act, seen: &Seen) {
    while let Some(head) = read_head(&mut stream) {
        seen.heads.lock().unwrap().push(head);
        let (text, more) = match script(seen.requests.fetch_add(1, Ordering::SeqCst)) {
            Act::Answer(text) => (text, true),
            Act::Last(text) => (text, false),
            Act::AnswerAfter(time) => {
                std::thread::sleep(time);
                (WHOLE, true)
            }
            Act::Ignore => ("", true),
        };
        if stream.write_all(text.as_bytes()).is_err() || !more {
            return;
        }
    }
}

/// Reads a request head; returns `None` if the client has closed the connection.
fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = String::new();
    let mut byte = [0];
    while !head.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0] as char);
    }
    Some(head)
}

fn client(target: &Target, connections: usize) -> Client {
    let requests: Arc<[Request]> = [Request::get("/").with_any_body()].into();
    Client::connect(target, connections, &requests).unwrap()
}

fn run(target: &Target, connections: usize, mode: Mode) -> Outcome {
    let mut outcomes = client(target, connections).run(mode, SHORT, SHORT).unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

#[test]
fn a_closed_loop_counts_every_answer_once() {
    let (target, seen) = server(|_| Act::Answer(WHOLE));
    let outcome = run(&target, 4, Mode::Closed);
    assert!(outcome.requests >= 4);
    assert_eq!(outcome.requests, seen.requests());
    assert_eq!(outcome.latency.len(), outcome.requests);
    assert_eq!((outcome.failed, outcome.reconnects), (0, 0));
    assert!(outcome.elapsed >= SHORT);
    assert!(outcome.cpu > Duration::ZERO);
}

#[test]
fn answers_in_chunks_are_understood() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let (target, seen) = server(move |_| Act::Answer(chunked));
    let outcome = run(&target, 2, Mode::Closed);
    assert_eq!(outcome.first_failure, None);
    assert_eq!(outcome.requests, seen.requests());
}

#[test]
fn an_answer_that_is_not_200_fails_and_the_connection_stays() {
    let (target, seen) = server(|number| match number {
        1 => Act::Answer("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"),
        _ => Act::Answer(WHOLE),
    });
    let outcome = run(&target, 1, Mode::Open { rate: 200.0 });
    assert_eq!((outcome.requests, outcome.failed), (10, 1));
    assert_eq!(outcome.latency.len(), 9);
    assert_eq!(outcome.reconnects, 0);
    assert_eq!(seen.requests(), 10);
    let failure = outcome.first_failure.unwrap();
    assert!(failure.contains("503"), "{failure}");
}

#[test]
fn an_answer_that_is_broken_off_fails_and_the_connection_is_opened_anew() {
    let (target, _) = server(|number| match number {
        3 => Act::Last("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"),
        _ => Act::Answer(WHOLE),
    });
    let outcome = run(&target, 1, Mode::Open { rate: 200.0 });
    assert_eq!((outcome.requests, outcome.failed), (10, 1));
    assert_eq!(outcome.reconnects, 1);
    let failure = outcome.first_failure.unwrap();
    assert!(failure.contains("before the end"), "{failure}");
}

#[test]
fn an_answer_that_is_longer_than_announced_fails() {
    let (target, _) = server(|_| Act::Answer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhello"));
    let outcome = run(&target, 1, Mode::Closed);
    assert!(outcome.failed > 0);
    assert_eq!(outcome.failed, outcome.requests);
    let failure = outcome.first_failure.unwrap();
    assert!(failure.contains("after the end"), "{failure}");
}

#[test]
fn connections_that_were_closed_while_idle_are_opened_again() {
    let (target, seen) = server(|_| Act::Answer(WHOLE));
    let mut client = client(&target, 3);
    let mode = Mode::Open { rate: 100.0 };
    let first = client.run(mode, SHORT, SHORT).unwrap();
    assert_eq!((first[0].failed, first[0].reconnects), (0, 0));
    for stream in seen.streams.lock().unwrap().drain(..) {
        stream.shutdown(Shutdown::Both).unwrap();
    }
    let second = client.run(mode, SHORT, SHORT).unwrap();
    assert_eq!((second[0].failed, second[0].reconnects), (0, 3));
    assert_eq!(seen.requests(), 10);
}

#[test]
fn an_answer_that_ends_its_connection_does_not_fail() {
    let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let (target, seen) = server(move |_| Act::Last(last));
    let outcome = run(&target, 2, Mode::Closed);
    assert_eq!(outcome.first_failure, None);
    assert_eq!(outcome.requests, seen.requests());
    assert_eq!(outcome.reconnects, outcome.requests - 2);
}

#[test]
fn an_open_loop_sends_as_many_requests_as_rate_and_duration_say() {
    let (target, seen) = server(|_| Act::Answer(WHOLE));
    let mut client = client(&target, 4);
    let mode = Mode::Open { rate: 3000.0 };
    let outcomes = client.run(mode, SHORT * 2, SHORT / 2).unwrap();
    assert_eq!(outcomes.len(), 4);
    let mut all = Outcome::default();
    outcomes.iter().for_each(|outcome| all.merge(outcome));
    assert_eq!((all.requests, all.failed), (300, 0));
    assert_eq!(all.latency.len(), 300);
    assert_eq!(seen.requests(), 300);
    assert!(all.elapsed >= SHORT * 2);
}

/// The server stalls for 200 ms on the only connection. Requests that become due in that time cannot be sent.
#[test]
fn an_open_loop_shows_what_was_due_while_the_server_stalled() {
    let (target, _) = server(|number| match number {
        20 => Act::AnswerAfter(Duration::from_millis(200)),
        _ => Act::Answer(WHOLE),
    });
    let mode = Mode::Open { rate: 1000.0 };
    let duration = Duration::from_millis(300);
    let outcome = &client(&target, 1).run(mode, duration, duration).unwrap()[0];
    assert_eq!((outcome.requests, outcome.failed), (300, 0));
    // Requests that were due in the first half of the stall wait for the second half, which is 100 ms long.
    let late = outcome.latency.count_between(99_000_000, u64::MAX);
    assert!(late >= 99, "{late}");
}

#[test]
fn a_late_response_fails_and_does_not_affect_the_next_run() {
    let (target, _) = server(|number| match number {
        3 => Act::Ignore,
        _ => Act::Answer(WHOLE),
    });
    let mut client = client(&target, 1);
    client.patience = Duration::from_millis(500);
    let mode = Mode::Open { rate: 1000.0 };
    let first = client.run(mode, SHORT, SHORT).unwrap().remove(0);
    assert_eq!((first.requests, first.failed), (50, 47));
    assert!(first.first_failure.unwrap().contains("in time"));
    client.patience = DRAIN_LIMIT;
    let second = client.run(mode, SHORT, SHORT).unwrap().remove(0);
    assert_eq!((second.requests, second.failed), (50, 0));
    assert_eq!(second.reconnects, 1);
}

#[test]
fn connections_start_at_different_places_of_the_list() {
    let (target, seen) = server(|_| Act::Answer(WHOLE));
    let requests: Arc<[Request]> = (0..10)
        .map(|number| Request::get(&format!("/{number}")).with_any_body())
        .collect();
    let mut client = Client::connect(&target, 5, &requests).unwrap();
    client
        .run(Mode::Open { rate: 100.0 }, SHORT, SHORT)
        .unwrap();
    let mut paths: Vec<_> = seen.heads.lock().unwrap().clone();
    paths.sort();
    let starts = ["GET /0 ", "GET /2 ", "GET /4 ", "GET /6 ", "GET /8 "];
    assert_eq!(paths.len(), 5);
    assert!(
        paths
            .iter()
            .zip(starts)
            .all(|(path, start)| path.starts_with(start))
    );
}

#[test]
fn a_target_that_does_not_listen_is_an_error() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let target = Target {
        address,
        tls: false,
    };
    let requests: Arc<[Request]> = [Request::get("/").with_any_body()].into();
    let error = Client::connect(&target, 1, &requests).err().unwrap();
    assert!(format!("{error:#}").contains("cannot connect"), "{error:#}");
}

#[test]
fn a_target_that_goes_away_ends_the_run_with_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = client(
        &Target {
            address,
            tls: false,
        },
        2,
    );
    drop(listener);
    assert!(client.run(Mode::Closed, SHORT, SHORT).is_err());
}

fn tls_server(answer: &'static str) -> Target {
    let directory = tempfile::tempdir().unwrap();
    let files = certificate::self_signed(directory.path()).unwrap();
    let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let stream = StreamOwned::new(connection, stream);
            std::thread::spawn(move || serve(stream, |_| Act::Answer(answer), &Seen::default()));
        }
    });
    Target { address, tls: true }
}

#[test]
fn requests_and_large_answers_go_through_tls() {
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n{}",
        "x".repeat(65_536)
    );
    let target = tls_server(answer.leak());
    let mut client = client(&target, 3);
    for mode in [Mode::Closed, Mode::Open { rate: 200.0 }] {
        let outcome = client.run(mode, SHORT, SHORT).unwrap().remove(0);
        assert_eq!(outcome.first_failure, None);
        assert!(outcome.requests >= 3);
        assert_eq!(outcome.reconnects, 0);
    }
}

#[test]
fn a_server_without_tls_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            stream.write_all(b"220 not TLS at all\r\n").unwrap();
        }
    });
    let requests: Arc<[Request]> = [Request::get("/").with_any_body()].into();
    let error = Client::connect(&Target { address, tls: true }, 1, &requests)
        .err()
        .unwrap();
    assert!(format!("{error:#}").contains("cannot connect"), "{error:#}");
}
