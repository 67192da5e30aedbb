//! Clients that are slow on purpose, or idle, at every stage of a request. The tests measure their cost in memory and
//! their effect on other clients.

use crate::{launch, shop};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use testkit::http::Client;
use testkit::{Echo, Gateway};

/// Bytes that slow clients send before they stop, each at a different stage of a request.
const STAGES: [&[u8]; 8] = [
    b"",
    b"G",
    b"GET /open HTTP/1.1\r\nHo",
    b"GET /open HTTP/1.1\r\nHost: a\r\nX: y\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nslow",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsl",
    b"POST /open HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n",
    // The client never reads the response.
    b"GET /open/__bytes/300000 HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// The wanted number of connections, but at most a third of the descriptors that the test process may have.
fn most_connections(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let allowed = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    (allowed.unwrap_or(u64::MAX) / 3).min(wanted)
}

/// The cost of a request.
#[derive(Debug)]
struct Cost {
    /// Smallest median response time of several rounds. Other tests run at the same time and slow some rounds down.
    time: Duration,
    /// CPU time of the gateway per request. Other processes hardly affect it.
    processor: Duration,
}

impl Cost {
    fn of(gateway: &Gateway) -> Self {
        const ROUNDS: u32 = 5;
        const REQUESTS: u32 = 200;
        let before = on_processor(gateway);
        let medians = (0..ROUNDS).map(|_| median(gateway, REQUESTS));
        Self {
            time: medians.min().expect("there are rounds"),
            processor: (on_processor(gateway) - before) / (ROUNDS * REQUESTS),
        }
    }
}

fn median(gateway: &Gateway, requests: u32) -> Duration {
    let mut times: Vec<Duration> = (0..requests)
        .map(|_| {
            let started = Instant::now();
            assert_eq!(gateway.get("/open", &[]).status, 200);
            started.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

/// Returns the CPU time that the gateway has used, with that of threads that have exited.
fn on_processor(gateway: &Gateway) -> Duration {
    let path = format!("/proc/{}/stat", gateway.pid());
    let text = fs::read_to_string(path).expect("the process runs");
    // The name of the program, in parentheses, may contain blanks. The times in user and in kernel mode are the 12th and
    // 13th field after it.
    let (_, fields) = text.rsplit_once(')').expect("the name is in parentheses");
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = times
        .map(|ticks| ticks.parse::<u64>().expect("a number"))
        .sum();
    Duration::from_secs(ticks) / u32::try_from(clock_ticks_per_second()).expect("a small number")
}

#[test]
fn slow_clients_at_every_stage_leave_others_unharmed() {
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    let before = Cost::of(&gateway);
    let count = most_connections(10_000);
    let mut slow = Vec::new();
    for (_, stage) in (0..count).zip(STAGES.iter().cycle()) {
        let mut stream = TcpStream::connect(gateway.proxy).expect("it accepts");
        stream.write_all(stage).expect("it reads");
        slow.push(stream);
    }
    // Wait, so that the cost of accepting the slow clients does not count as a cost of other requests.
    wait_until_read(&gateway);
    let during = Cost::of(&gateway);
    println!("{count} slow clients: {before:?} before, {during:?} during");
    // A request would cost many times as much if the gateway looked at every slow client for each request.
    assert!(
        during.processor < before.processor * 2,
        "a request cost {before:?}, and costs {during:?}"
    );
    // The limit is twice the time plus 2 ms for the scheduler. Waiting for a slow client would take longer.
    assert!(
        during.time < before.time * 2 + Duration::from_millis(2),
        "a request took {before:?}, and takes {during:?}"
    );
    drop(slow);
    assert_eq!(gateway.get("/open", &[]).status, 200);
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

#[test]
fn an_idle_connection_costs_little_memory() {
    const LIMIT: u64 = 4096;
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    let connect = |count: u64| -> Vec<Client> {
        (0..count)
            .map(|_| {
                let mut client = Client::connect(gateway.proxy);
                assert_eq!(client.request("GET", "/open", &[], b"").status, 200);
                client
            })
            .collect()
    };
    // The gateway allocates some memory only once. The first connections keep that memory out of the measurement.
    let first = connect(200);
    let before = resident(&gateway);
    let count = most_connections(2000);
    let idle = connect(count);
    let each = resident(&gateway).saturating_sub(before) / count;
    println!("{each} bytes for each of {count} idle connections");
    assert!(each <= LIMIT, "{each} bytes each");
    drop((first, idle));
}

#[test]
fn a_slow_client_costs_no_more_memory_than_it_has_sent() {
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    let head = format!("GET /open HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(1000));
    let open = |count: u64| -> Vec<TcpStream> {
        (0..count)
            .map(|_| {
                let mut stream = TcpStream::connect(gateway.proxy).expect("it accepts");
                stream.write_all(head.as_bytes()).expect("it reads");
                stream
            })
            .collect()
    };
    let first = open(200);
    wait_until_read(&gateway);
    let before = resident(&gateway);
    let count = most_connections(2000);
    let slow = open(count);
    wait_until_read(&gateway);
    let each = resident(&gateway).saturating_sub(before) / count;
    println!("{each} bytes for each of {count} connections with 1 KB of a head");
    assert!(each <= 6 * 1024, "{each} bytes each");
    drop((first, slow));
}

/// Waits until the gateway has read the data that clients have sent. This works because the gateway has only one
/// worker, which handles input in the order of arrival.
fn wait_until_read(gateway: &Gateway) {
    for _ in 0..3 {
        assert_eq!(gateway.get("/open", &[]).status, 200);
    }
}

/// Private resident memory of the gateway process, in bytes.
fn resident(gateway: &Gateway) -> u64 {
    let path = format!("/proc/{}/status", gateway.pid());
    let mut status = String::new();
    let read = fs::File::open(path).and_then(|mut file| file.read_to_string(&mut status));
    read.expect("the process runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.expect("the kernel reports the number") * 1024
}
