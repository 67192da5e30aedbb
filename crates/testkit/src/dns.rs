//! A small name server on a free port, over UDP and TCP. It answers from a zone that the test writes and records every
//! query. On request it stays silent, fails or sends wrong answers.

use std::collections::HashMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const TYPES: [(&str, u16); 4] = [("A", 1), ("CNAME", 5), ("AAAA", 28), ("SRV", 33)];
const OPT: u16 = 41;

/// A running name server. It stops with the process.
pub struct NameServer {
    pub address: SocketAddr,
    state: Arc<Mutex<ServerState>>,
}

#[derive(Default)]
struct ServerState {
    /// Encoded records by lower-case name and record type.
    zone: HashMap<(String, u16), Vec<Vec<u8>>>,
    behaviour: Option<Arc<Behaviour>>,
    asked: Vec<String>,
}

/// A function that replaces the correct response by any number of messages.
type Behaviour = dyn Fn(&Question, Vec<u8>) -> Vec<Vec<u8>> + Send + Sync;

/// A query that the server received.
pub struct Question {
    pub id: u16,
    /// The queried name in lower case, without the final dot.
    pub name: String,
    pub kind: u16,
    pub over_tcp: bool,
    /// Whether the query has an EDNS record.
    pub edns: bool,
    /// The bytes of the question section, as received.
    section: Vec<u8>,
}

impl NameServer {
    pub fn start() -> Self {
        let (udp, tcp) = bind();
        let address = tcp.local_addr().expect("a bound address");
        let state = Arc::new(Mutex::new(ServerState::default()));
        let of_udp = Arc::clone(&state);
        thread::spawn(move || serve_udp(&udp, &of_udp));
        let of_tcp = Arc::clone(&state);
        thread::spawn(move || {
            for stream in tcp.incoming().map_while(Result::ok) {
                let state = Arc::clone(&of_tcp);
                thread::spawn(move || serve_tcp(stream, &state));
            }
        });
        Self { address, state }
    }

    /// Adds records. `zone` contains a line `name ttl type data` for each record. Names are absolute, without the final
    /// dot. The new records replace all records that have the same name and type.
    pub fn set(&self, zone: &str) {
        let lines = zone.lines().map(str::trim).filter(|line| !line.is_empty());
        let records: Vec<_> = lines.map(encode).collect();
        let mut state = self.state();
        for (key, _) in &records {
            state.zone.remove(key);
        }
        for (key, record) in records {
            state.zone.entry(key).or_default().push(record);
        }
    }

    pub fn remove(&self, name: &str) {
        self.state().zone.retain(|(known, _), _| known != name);
    }

    /// Stops answering queries.
    pub fn go_silent(&self) {
        self.behave(|_, _| Vec::new());
    }

    /// Answers every query with this response code, for example 2 (SERVFAIL).
    pub fn fail(&self, code: u8) {
        self.behave(move |question, _| vec![question.reply(code, &[])]);
    }

    /// From now on, sends the messages that `behaviour` returns instead of the correct response. `behaviour` receives
    /// the query and the correct response.
    pub fn behave(
        &self,
        behaviour: impl Fn(&Question, Vec<u8>) -> Vec<Vec<u8>> + Send + Sync + 'static,
    ) {
        self.state().behaviour = Some(Arc::new(behaviour));
    }

    /// Sends correct responses again.
    pub fn recover(&self) {
        self.state().behaviour = None;
    }

    /// Returns the queries since the last call, each as `name type`.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state().asked)
    }

    /// Waits until this query has arrived. Only queries since the last call of [`NameServer::asked`] count. The query
    /// is written as `name type`.
    pub fn wait_for(&self, question: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.state().asked.iter().any(|asked| asked == question) {
            assert!(
                Instant::now() < deadline,
                "the query did not arrive: {question}"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for NameServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "NameServer({})", self.address)
    }
}

impl Question {
    /// Parses a query; returns `None` if the message is malformed.
    fn read(message: &[u8], over_tcp: bool) -> Option<Self> {
        let id = u16::from_be_bytes(message.get(..2)?.try_into().ok()?);
        let additionals = u16::from_be_bytes(message.get(10..12)?.try_into().ok()?);
        let mut labels = Vec::new();
        let mut at = 12;
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            let label = message.get(at..at + length)?;
            labels.push(String::from_utf8_lossy(label).to_lowercase());
            at += length;
        }
        let kind = u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?);
        Some(Self {
            id,
            name: labels.join("."),
            kind,
            over_tcp,
            edns: additionals > 0,
            section: message.get(12..at + 4)?.to_vec(),
        })
    }

    /// Builds a response with a response code and encoded records.
    pub fn reply(&self, code: u8, answers: &[Vec<u8>]) -> Vec<u8> {
        let mut message = self.id.to_be_bytes().to_vec();
        message.extend([0x81, 0x80 | code, 0, 1]);
        let count = u16::try_from(answers.len()).expect("few answers");
        message.extend(count.to_be_bytes());
        message.extend([0, 0, 0, u8::from(self.edns)]);
        message.extend(&self.section);
        message.extend(answers.iter().flatten());
        if self.edns {
            message.push(0);
            message.extend(OPT.to_be_bytes());
            message.extend([0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
        }
        message
    }

    /// Builds an empty response that is marked as truncated.
    pub fn truncated(&self) -> Vec<u8> {
        let mut message = self.reply(0, &[]);
        message[2] |= 0x02;
        message
    }

    fn kind_name(&self) -> String {
        let known = TYPES.iter().find(|(_, kind)| *kind == self.kind);
        known.map_or_else(|| self.kind.to_string(), |(name, _)| (*name).to_owned())
    }
}

/// Encodes a line `name ttl type data` as a record of a message.
pub fn encoded(line: &str) -> Vec<u8> {
    encode(line).1
}

/// Binds UDP and TCP sockets to the same free port.
fn bind() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = tcp.local_addr().expect("a bound address");
        if let Ok(udp) = UdpSocket::bind(address) {
            return (udp, tcp);
        }
    }
    panic!("no port is free for UDP and TCP");
}

fn serve_udp(socket: &UdpSocket, state: &Mutex<ServerState>) {
    let mut buffer = [0; 4096];
    while let Ok((length, asker)) = socket.recv_from(&mut buffer) {
        for message in answer(&buffer[..length], false, state) {
            let _ = socket.send_to(&message, asker);
        }
    }
}

fn serve_tcp(mut stream: TcpStream, state: &Mutex<ServerState>) {
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut message = vec![0; u16::from_be_bytes(length).into()];
        if stream.read_exact(&mut message).is_err() {
            return;
        }
        for message in answer(&message, true, state) {
            let length = u16::try_from(message.len()).expect("a short message");
            let whole = [&length.to_be_bytes()[..], &message].concat();
            if stream.write_all(&whole).is_err() {
                return;
            }
        }
    }
}

fn answer(message: &[u8], over_tcp: bool, state: &Mutex<ServerState>) -> Vec<Vec<u8>> {
    let Some(question) = Question::read(message, over_tcp) else {
        return Vec::new();
    };
    let (right, behaviour) = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = format!("{} {}", question.name, question.kind_name());
        state.asked.push(asked);
        (right_answer(&question, &state), state.behaviour.clone())
    };
    match behaviour {
        Some(behaviour) => behaviour(&question, right),
        None => vec![right],
    }
}

fn right_answer(question: &Question, state: &ServerState) -> Vec<u8> {
    let of = |kind| state.zone.get(&(question.name.clone(), kind));
    let exists = state.zone.keys().any(|(name, _)| *name == question.name);
    match of(question.kind).or_else(|| of(5)) {
        Some(records) => question.reply(0, records),
        None if exists => question.reply(0, &[]),
        None => question.reply(3, &[]),
    }
}

fn encode(line: &str) -> ((String, u16), Vec<u8>) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, ttl, kind, data @ ..] = &words[..] else {
        panic!("not a record: {line}");
    };
    let number = TYPES.iter().find(|(known, _)| known == kind);
    let (_, number) = *number.unwrap_or_else(|| panic!("unknown record type: {line}"));
    let data = match (*kind, data) {
        ("A", [ip]) => ip.parse::<Ipv4Addr>().expect("IPv4").octets().to_vec(),
        ("AAAA", [ip]) => ip.parse::<Ipv6Addr>().expect("IPv6").octets().to_vec(),
        ("CNAME", [target]) => encode_name(target),
        ("SRV", [priority, weight, port, target]) => {
            let numbers = [priority, weight, port];
            let numbers = numbers.map(|text| text.parse::<u16>().expect("a number").to_be_bytes());
            [numbers.concat(), encode_name(target)].concat()
        }
        _ => panic!("wrong data for the record type: {line}"),
    };
    let length = u16::try_from(data.len()).expect("short data");
    let record = [
        encode_name(name),
        number.to_be_bytes().to_vec(),
        vec![0, 1],
        ttl.parse::<u32>().expect("a TTL").to_be_bytes().to_vec(),
        length.to_be_bytes().to_vec(),
        data,
    ];
    ((name.to_lowercase(), number), record.concat())
}

fn encode_name(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> = labels
        .flat_map(|label| {
            let length = u8::try_from(label.len()).expect("a short label");
            [&[length][..], label.as_bytes()].concat()
        })
        .collect();
    bytes.push(0);
    bytes
}
