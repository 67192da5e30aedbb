//! Behaviour when the process has reached its limit of open files.

use crate::{launch, shop};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, Echo};

/// Maximum number of open files of the gateway.
const MOST: u32 = 160;

fn metric(admin: &mut Client, name: &str) -> u64 {
    let text = admin.request("GET", "/metrics", &[], b"").text();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("{name} is missing in {text}"))
        .parse()
        .expect("a number")
}

#[test]
fn a_start_without_enough_descriptors_fails_and_names_their_limit() {
    let mut failed = 0;
    for most in (16..80).step_by(4) {
        let log = match launch().open_files(most).try_start() {
            Ok(gateway) => gateway.log(),
            Err(log) => {
                failed += 1;
                let limit = format!("at most {most} files open");
                assert!(log.contains(&limit) && log.contains("`ulimit -n"), "{log}");
                log
            }
        };
        assert!(!log.contains("started again"), "with {most}: {log}");
    }
    assert!((1..16).contains(&failed), "{failed}");
}

#[test]
fn without_descriptors_new_connections_wait_and_open_ones_work() {
    let echo = Echo::start();
    let gateway = launch()
        .configuration(&shop(&echo))
        .open_files(MOST)
        .start();
    let mut admin = Client::connect(gateway.admin);
    assert_eq!(metric(&mut admin, "silverback_accept_errors_total"), 0);
    // These requests leave idle connections to the upstream. The gateway closes them when it runs out of descriptors.
    let mut clients: Vec<Client> = (0..20).map(|_| Client::connect(gateway.proxy)).collect();
    for client in &mut clients {
        client
            .send("GET /open/__delay/100 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
    }
    for client in &mut clients {
        assert_eq!(client.receive("GET").expect("an answer").status, 200);
    }
    let flood: Vec<TcpStream> = (0..MOST)
        .map(|_| TcpStream::connect(gateway.proxy).expect("the kernel accepts the connection"))
        .collect();
    let deadline = Instant::now() + Duration::from_secs(30);
    while metric(&mut admin, "silverback_accept_errors_total") < 5 {
        assert!(Instant::now() < deadline, "no failed accept is counted");
        thread::sleep(Duration::from_millis(20));
    }
    for client in &mut clients {
        // This route needs no connection to the upstream.
        assert_eq!(client.request("GET", "/gone", &[], b"").status, 410);
    }
    // This route needs a connection to the upstream. If no descriptor is free, the response must be a server error. The
    // request succeeds if the gateway has just freed a descriptor.
    let answer = clients[0].request("GET", "/open", &[], b"");
    assert!(matches!(answer.status, 200 | 502 | 503), "{}", answer.line);
    gateway.wait_for_log("cannot accept connections");
    let told = gateway.log().matches("cannot accept connections").count();
    assert!(
        (1..=2).contains(&told),
        "logged {told} times:\n{}",
        gateway.log()
    );
    drop(flood);
    // The gateway recovers after the clients have closed their connections.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mut client = Client::connect(gateway.proxy);
        if client.request("GET", "/open", &[], b"").status == 200 {
            break;
        }
        assert!(Instant::now() < deadline, "the gateway does not recover");
    }
    assert_eq!(clients[1].request("GET", "/open", &[], b"").status, 200);
    assert_eq!(metric(&mut admin, "silverback_panics_total"), 0);
    assert!(gateway.stop().success());
}
