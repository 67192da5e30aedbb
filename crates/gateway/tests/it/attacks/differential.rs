//! Other servers parse the gateway's upstream requests in the same way. Whatever a client sends, nginx, HAProxy and
//! hyper find the same requests with the same bodies in the bytes that reach the upstream.

use super::origin::{Connection, Origin};
use super::others::{Reading, readers};
use super::requests::configuration;
use super::{bytes, cases, shown};
use crate::launch;
use serde_json::Value;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use testkit::random::{Random, mutated};

/// Number of mutated inputs that are sent.
const CHANGES: usize = 4000;
/// Maximum time for sending the mutated inputs. The test fails after that, because fewer inputs would find less.
const LIMIT: Duration = Duration::from_secs(240);
/// Maximum length of a mutated input. Longer inputs test limits, for which mutations are of little use.
const MAX_BYTES: usize = 2000;
/// Maximum number of bytes that a mutation replaces, removes or inserts. Inputs with more changes are mostly refused.
const MAX_CHANGES: usize = 2;

/// Last request of each replay. A server that parses the bytes differently misses it, or finds others before it.
const LAST: &[u8] = b"GET /last HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

#[test]
fn other_servers_parse_upstream_requests_in_the_same_way() {
    let cases: Vec<Value> = cases("requests.json");
    let seeds: Vec<Vec<u8>> = cases
        .iter()
        .map(|case| bytes(case["send"].as_str().expect("a text")))
        .collect();
    // Mutations of refused inputs are mostly refused too, so three of four mutations start from inputs that pass.
    let passing = cases.iter().zip(&seeds).filter(|(case, seed)| {
        case["upstream"].is_array() && case["refused"].is_null() && seed.len() <= MAX_BYTES
    });
    let passing: Vec<&Vec<u8>> = passing.map(|(_, seed)| seed).collect();
    let sent = what_goes_upstream(&seeds, &passing);
    assert!(sent.len() > 100, "{} connections", sent.len());
    println!("{} connections to compare", sent.len());
    for reader in readers() {
        let mut refused = 0;
        for connection in &sent {
            let mut replay = connection.bytes.clone();
            let mut expected: Vec<Reading> = connection.requests.iter().map(reading).collect();
            if connection.whole {
                replay.extend_from_slice(LAST);
                expected.push(last());
            }
            let (read, answer) = reader.read(&replay, !connection.whole);
            if read == expected {
                continue;
            }
            // A server may refuse a request, but the requests before it must be the same.
            let refuses = [400, 405, 414, 431, 501].iter().any(|status| {
                let line = format!("HTTP/1.1 {status} ");
                memmem(&answer, line.as_bytes())
            });
            assert!(
                expected.starts_with(&read) && (refuses || !connection.whole),
                "{} reads {}\nas {read:?}\nand answers {}",
                reader.name(),
                shown(&replay),
                shown(&answer)
            );
            refused += 1;
        }
        println!("{} refused {refused}", reader.name());
        let many = refused * 10 > sent.len();
        assert!(
            !many,
            "{} refused {refused} of {}",
            reader.name(),
            sent.len()
        );
    }
}

#[test]
fn a_different_parse_would_be_detected() {
    let hidden = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbodyGET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let replay = [&hidden[..], LAST].concat();
    for reader in readers() {
        let (read, _) = reader.read(&replay, false);
        let targets: Vec<&str> = read.iter().map(|one| &one.target[..]).collect();
        assert_eq!(targets, ["/", "/hidden", "/last"], "{}", reader.name());
        assert_eq!(read[0].body, b"body", "{}", reader.name());
    }
}

/// The distinct upstream connections that the gateway makes for the inputs and for their mutations.
fn what_goes_upstream(seeds: &[Vec<u8>], passing: &[&Vec<u8>]) -> Vec<Connection> {
    let origin = Origin::start();
    // Each request has its own connection. The replay shows how a request affects the next one.
    let gateway = launch()
        .set("upstream_keepalive_pool_size", "0")
        .configuration(&configuration(&origin))
        .start();
    for seed in seeds {
        send(gateway.proxy, seed);
    }
    let small: Vec<&Vec<u8>> = seeds
        .iter()
        .filter(|seed| seed.len() <= MAX_BYTES)
        .collect();
    let mut random = Random::new(0x2545_f491_4f6c_dd1d);
    let deadline = Instant::now() + LIMIT;
    for number in 0..CHANGES {
        assert!(
            Instant::now() < deadline,
            "only {number} of {CHANGES} changes were sent in time"
        );
        let inputs = if number % 4 == 0 { &small[..] } else { passing };
        send(gateway.proxy, &mutated(&mut random, inputs, MAX_CHANGES));
    }
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
    // The gateway has sent all data when it has stopped. The origin may record the connections a moment later.
    gateway.stop();
    let mut known = HashSet::new();
    let mut connections = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(5);
    while connections.is_empty() && Instant::now() < deadline {
        connections = origin.take_connections();
    }
    connections.retain(|connection| known.insert(without_ids(&connection.bytes)));
    connections
}

fn send(proxy: SocketAddr, input: &[u8]) {
    let mut stream = TcpStream::connect(proxy).expect("it listens");
    let limit = Some(Duration::from_secs(20));
    stream
        .set_read_timeout(limit)
        .expect("a limit above zero is accepted");
    let _ = stream.write_all(input);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
}

/// Removes request ids, which differ between equal requests.
fn without_ids(bytes: &[u8]) -> Vec<u8> {
    let name = b"X-Kong-Request-Id: ";
    let mut out = bytes.to_vec();
    let found = out.windows(name.len()).position(|window| window == name);
    if let Some(at) = found {
        let end = (at + name.len() + 32).min(out.len());
        out.drain(at..end);
    }
    out
}

fn reading(message: &super::wire::Message) -> Reading {
    Reading {
        method: message.method().to_owned(),
        target: message.target().to_owned(),
        body: message.body.clone(),
    }
}

fn last() -> Reading {
    Reading {
        method: "GET".to_owned(),
        target: "/last".to_owned(),
        body: Vec::new(),
    }
}

fn memmem(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
