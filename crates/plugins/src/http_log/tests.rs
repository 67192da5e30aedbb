//! Tests of the plugin: the queue's name and parameters, the requests to the endpoint, and what is refused.

use super::{HttpLog, def};
use crate::fixture;
use plugin::BuildError;
use plugin::testing::Case;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

fn build(config: Value) -> Result<HttpLog, BuildError> {
    fixture::build("http-log", &config)
}

fn refusal(config: Value) -> String {
    match build(config) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("the configuration is accepted"),
    }
}

/// A request that a [`Sink`] has received.
struct Received {
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A log server that answers with these statuses, and then with 200.
struct Sink {
    address: SocketAddr,
    received: Receiver<Received>,
}

impl Sink {
    fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (send, received) = channel();
        thread::spawn(move || {
            let mut statuses = statuses.iter().copied();
            for stream in listener.incoming().map_while(Result::ok) {
                serve(&stream, &mut statuses, &send);
            }
        });
        Self { address, received }
    }

    fn next(&self) -> Received {
        let received = self.received.recv_timeout(Duration::from_secs(60));
        received.expect("the sink receives a request")
    }
}

fn serve(
    stream: &TcpStream,
    statuses: &mut impl Iterator<Item = u16>,
    send: &Sender<Received>,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = |reader: &mut BufReader<&TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        (!line.is_empty()).then(|| line.trim_end().to_owned())
    };
    loop {
        let first = line(&mut reader)?;
        let mut headers = Vec::new();
        loop {
            let line = line(&mut reader)?;
            match line.split_once(": ") {
                Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
                None => break,
            }
        }
        let mut received = Received {
            line: first,
            headers,
            body: Vec::new(),
        };
        let length = received.header("content-length")?.parse().ok()?;
        received.body = vec![0; length];
        reader.read_exact(&mut received.body).ok()?;
        let status = statuses.next().unwrap_or(200);
        let mut out = stream;
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nno");
        out.write_all(answer.as_bytes()).ok()?;
        send.send(received).ok()?;
    }
}

#[test]
fn a_record_is_sent_with_the_configured_headers() {
    let sink = Sink::start(&[]);
    let config = json!({
        "http_endpoint": format!("http://user:pass@{}/in/put?token=1", sink.address), "method": "PUT",
        "content_type": "application/json; charset=utf-8", "headers": {"X-Token": "abc"}
    });
    let case = Case::new(def(), config);
    case.request("GET /a?x=1").run_now();
    let received = sink.next();
    assert_eq!(received.line, "PUT /in/put HTTP/1.1");
    let header = |name| received.header(name).unwrap_or("-");
    assert_eq!(header("authorization"), "Basic dXNlcjpwYXNz");
    assert_eq!(header("content-type"), "application/json; charset=utf-8");
    assert_eq!(header("x-token"), "abc");
    assert_eq!(header("host"), sink.address.to_string());
    assert_eq!(received.json()["request"]["uri"], "/a?x=1");
    assert_eq!(received.json()["response"]["status"], 200);
}

#[test]
fn several_records_are_sent_as_a_list_also_if_there_is_only_one() {
    let sink = Sink::start(&[]);
    let config = json!({
        "http_endpoint": format!("http://{}", sink.address),
        "queue": {"max_batch_size": 2, "max_coalescing_delay": 0.01}
    });
    let case = Case::new(def(), config);
    case.request("GET /0").run_now();
    let mut uris = Vec::new();
    while uris.len() < 3 {
        let received = sink.next();
        let list = received.json();
        for record in list.as_array().expect("a list") {
            uris.push(record["request"]["uri"].as_str().unwrap().to_owned());
        }
        if uris.len() == 1 {
            case.request("GET /1").run_now();
            case.request("GET /2").run_now();
        }
    }
    assert_eq!(uris, ["/0", "/1", "/2"]);
}

#[test]
fn a_refused_record_is_sent_again() {
    let sink = Sink::start(&[500, 302]);
    let config = json!({
        "http_endpoint": format!("http://{}", sink.address),
        "queue": {"initial_retry_delay": 0.001}
    });
    let case = Case::new(def(), config);
    case.request("GET /0").run_now();
    let bodies = [sink.next().body, sink.next().body, sink.next().body];
    assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2]);
}

#[test]
fn deprecated_fields_replace_those_of_the_queue_unless_they_have_their_defaults() {
    let config = json!({
        "http_endpoint": "http://a", "retry_count": 3, "queue_size": 5, "flush_timeout": 0.5
    });
    let plugin = build(config).unwrap();
    assert_eq!(plugin.params.max_batch_size, 5);
    assert_eq!(plugin.params.max_coalescing_delay, Duration::from_millis(500));
    assert_eq!(
        plugin.deprecated,
        ["retry_count", "queue_size", "flush_timeout"]
    );
    let config = json!({
        "http_endpoint": "http://a", "retry_count": 10, "queue_size": 1, "flush_timeout": 2,
        "queue": {"max_batch_size": 7, "max_coalescing_delay": 3}
    });
    let plugin = build(config).unwrap();
    assert_eq!(plugin.params.max_batch_size, 7);
    assert_eq!(plugin.params.max_coalescing_delay, Duration::from_secs(3));
    assert!(plugin.deprecated.is_empty());
    let config = json!({"http_endpoint": "http://a", "queue_size": -1, "flush_timeout": -1});
    let plugin = build(config).unwrap();
    assert_eq!(plugin.params.max_batch_size, 1);
    assert_eq!(plugin.params.max_coalescing_delay, Duration::ZERO);
}

#[test]
fn the_name_of_the_queue_is_kongs() {
    let name = |config| build(config).unwrap().queue_name;
    assert_eq!(
        name(json!({"http_endpoint": "http://a/b"})),
        "http://a/b:POST:application/json:10000:60000:nil"
    );
    let other = json!({
        "http_endpoint": "http://a/b", "timeout": 9001, "retry_count": 2, "headers": {"a": "b"},
        "queue": {"max_batch_size": 9}, "queue_size": 4
    });
    assert_eq!(
        name(other),
        "http://a/b:POST:application/json:9001:60000:2"
    );
}

#[test]
fn lua_and_wrong_values_are_refused_by_the_name_of_their_field() {
    let lua = json!({"http_endpoint": "http://a", "custom_fields_by_lua": {"x": "return 1"}});
    assert_eq!(
        refusal(lua),
        "custom_fields_by_lua.x: Lua is not available yet"
    );
    let empty = json!({"http_endpoint": "http://a", "custom_fields_by_lua": {}});
    assert!(build(empty).is_ok());
    let header = json!({"http_endpoint": "http://a", "headers": {"x": "a\nb"}});
    assert!(refusal(header).starts_with("headers.x: "));
    let vault = json!({"http_endpoint": "{vault://env/a}"});
    assert!(refusal(vault).starts_with("http_endpoint: it is a vault reference"));
}
