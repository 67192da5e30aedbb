//! What the gateway sends upstream means the same to others: for whatever bytes a client sends, nginx, HAProxy and hyper take what
//! reaches the upstream for the same requests with the same bodies.

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
use testkit::random::Random;

/// How many changes of the corpus are sent.
const CHANGES: usize = 4000;
/// How long sending them may take. Fewer changes would show less, so the test fails then.
const LIMIT: Duration = Duration::from_secs(240);
/// Longer inputs are about limits, which changes say little about.
const MOST_BYTES: usize = 2000;

/// Ends each replay: a server that is out of step does not see it, or sees something else before it.
const LAST: &[u8] = b"GET /last HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

#[test]
fn others_read_what_goes_upstream_as_the_same_requests() {
    let cases: Vec<Value> = cases("requests.json");
    let seeds: Vec<Vec<u8>> = cases
        .iter()
        .map(|case| bytes(case["send"].as_str().expect("a text")))
        .collect();
    // A change of what is refused is mostly refused too.
    let passing = cases.iter().zip(&seeds).filter(|(case, seed)| {
        case["upstream"].is_array() && case["refused"].is_null() && seed.len() <= MOST_BYTES
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
            // Refusing is no other reading. Whatever came before must be the same.
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
fn another_reading_would_be_seen() {
    let hidden = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbodyGET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let replay = [&hidden[..], LAST].concat();
    for reader in readers() {
        let (read, _) = reader.read(&replay, false);
        let targets: Vec<&str> = read.iter().map(|one| &one.target[..]).collect();
        assert_eq!(targets, ["/", "/hidden", "/last"], "{}", reader.name());
        assert_eq!(read[0].body, b"body", "{}", reader.name());
    }
}

/// The distinct connections that the gateway makes for the corpus and changes of it.
fn what_goes_upstream(seeds: &[Vec<u8>], passing: &[&Vec<u8>]) -> Vec<Connection> {
    let origin = Origin::start();
    // A connection for each request: what one of them does to the next is seen in the replay.
    let gateway = launch()
        .set("upstream_keepalive_pool_size", "0")
        .configuration(&configuration(&origin))
        .start();
    for seed in seeds {
        send(gateway.proxy, seed);
    }
    let small: Vec<&Vec<u8>> = seeds
        .iter()
        .filter(|seed| seed.len() <= MOST_BYTES)
        .collect();
    let mut random = Random::new(0x2545_f491_4f6c_dd1d);
    let deadline = Instant::now() + LIMIT;
    for number in 0..CHANGES {
        assert!(
            Instant::now() < deadline,
            "only {number} of {CHANGES} changes were sent in time"
        );
        let inputs = if number % 4 == 0 { &small[..] } else { passing };
        send(gateway.proxy, &changed(&mut random, inputs));
    }
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
    // Everything of its connections has come once it is gone.
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

/// Equal requests have different ids.
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

/// One input with the end of another, or with a few bytes replaced, removed or inserted.
fn changed(random: &mut Random, inputs: &[&Vec<u8>]) -> Vec<u8> {
    const TELLING: &[u8] = b"\r\n\0 \t:;,=/\\%#?\"0159afFxX+-@[]\x0b\x7f\x80\xa0\xff";
    let mut input = inputs[random.index(inputs.len())].clone();
    if random.index(4) == 0 {
        let other = inputs[random.index(inputs.len())];
        input.truncate(random.index(input.len() + 1));
        input.extend_from_slice(&other[random.index(other.len() + 1)..]);
    }
    for _ in 0..random.index(3) {
        let at = random.index(input.len() + 1);
        let byte = TELLING[random.index(TELLING.len())];
        match random.index(3) {
            0 => input.insert(at, byte),
            1 if at < input.len() => input[at] = byte,
            _ if at < input.len() => {
                input.remove(at);
            }
            _ => {}
        }
    }
    input
}
