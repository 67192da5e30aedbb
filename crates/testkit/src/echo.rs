//! An HTTP/1.1 upstream that answers each request with a JSON description of it, and remembers the descriptions.
//!
//! The normal response is 200 with `Content-Type: application/json`, a `Content-Length` and an object with `serial`,
//! `method`, `uri` (raw target), `path`, `query`, `headers` (lower-case name to text, or to a list if the header came
//! in several lines), `body`, `json`, `form`, `http_version` and `connection`. The path `/__resp/<base64url of {status,
//! headers, body}>` returns exactly that response, `/__delay/MS` responds after a delay, `/__reset` resets the
//! connection, `/__stream/N` responds with N chunks, and `/__bytes/N` with N bytes.

use crate::message::{self, Head};
use data_encoding::BASE64URL_NOPAD;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// A running echo server. It stops with the process.
#[derive(Debug, Clone)]
pub struct Echo {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Vec<Value>>,
    requests: AtomicU64,
    connections: AtomicU64,
}

impl Echo {
    /// Starts on a free port of the loopback address.
    pub fn start() -> Self {
        Self::start_on("127.0.0.1:0").expect("a free port")
    }

    pub fn start_on(address: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let echo = Self {
            address,
            shared: Arc::clone(&shared),
        };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                // Errors are ignored, because the client may disconnect at any time.
                thread::spawn(move || shared.serve(stream));
            }
        });
        Ok(echo)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the descriptions of all requests so far, oldest first.
    pub fn seen(&self) -> Vec<Value> {
        self.shared.lock_seen().clone()
    }

    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn lock_seen(&self) -> std::sync::MutexGuard<'_, Vec<Value>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let connection = self.connections.fetch_add(1, Ordering::SeqCst) + 1;
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(head) = message::read_head(&mut reader)? {
            if !self.exchange(&mut reader, &stream, &head, connection)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Answers one request. Returns whether the connection stays open.
    fn exchange(
        &self,
        reader: &mut BufReader<TcpStream>,
        mut stream: &TcpStream,
        head: &Head,
        connection: u64,
    ) -> io::Result<bool> {
        let body = read_body(reader, stream, head)?;
        let serial = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let (record, target) = describe(head, &body, serial, connection);
        self.lock_seen().push(record.clone());
        let path = target.split('?').next().unwrap_or_default();
        if path.ends_with("/__reset") {
            return reset(stream);
        }
        if let Some(milliseconds) = number_after(path, "/__delay/") {
            thread::sleep(Duration::from_millis(milliseconds));
        }
        let close = head
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
            || head.first.ends_with("1.0");
        let is_head = head.first.starts_with("HEAD ");
        stream.write_all(&answer(path, &record, close, is_head))?;
        Ok(!close)
    }
}

/// Makes the kernel send a TCP reset when the stream is closed. No response is sent before the reset.
fn reset(stream: &TcpStream) -> io::Result<bool> {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    Ok(false)
}

fn read_body(
    reader: &mut BufReader<TcpStream>,
    mut stream: &TcpStream,
    head: &Head,
) -> io::Result<Vec<u8>> {
    let expects = head
        .header("expect")
        .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
    if expects {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    if head.is_chunked() {
        message::read_chunked(reader)
    } else {
        message::read_sized(reader, head.content_length().unwrap_or(0))
    }
}

fn describe(head: &Head, body: &[u8], serial: u64, connection: u64) -> (Value, String) {
    let mut words = head.first.splitn(3, ' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let (method, target, version) = (word(), word(), word());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), Value::from(value.as_str())));
    let content_type = head
        .header("content-type")
        .unwrap_or_default()
        .to_ascii_lowercase();
    let text = String::from_utf8_lossy(body);
    let as_json = content_type
        .contains("json")
        .then(|| serde_json::from_slice(body).ok())
        .flatten()
        .unwrap_or(Value::Null);
    let form = content_type
        .contains("form-urlencoded")
        .then(|| parse_query(&text));
    let record = json!({
        "serial": serial, "method": method, "uri": target, "path": path, "query": parse_query(query),
        "headers": one_or_list(headers), "body": text, "json": as_json, "form": form,
        "http_version": version.rsplit('/').next(), "connection": connection,
    });
    (record, target)
}

fn answer(path: &str, record: &Value, close: bool, is_head: bool) -> Vec<u8> {
    let told = told_answer(path);
    let status = told
        .as_ref()
        .and_then(|told| told["status"].as_u64())
        .unwrap_or(200);
    let mut head = format!("HTTP/1.1 {status} Echo\r\n");
    for (name, value) in told_headers(told.as_ref()) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if close {
        head.push_str("Connection: close\r\n");
    }
    let mut body = match (&told, number_after(path, "/__bytes/")) {
        (_, Some(size)) => vec![b'x'; size as usize],
        (Some(told), None) => told["body"].as_str().unwrap_or_default().into(),
        (None, None) => record.to_string().into_bytes(),
    };
    if let Some(chunks) = number_after(path, "/__stream/") {
        head.push_str("Transfer-Encoding: chunked\r\n");
        body = chunked(chunks);
    } else if status != 204 && status != 304 {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    } else {
        body.clear();
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    if !is_head {
        bytes.extend(body);
    }
    bytes
}

fn told_headers(told: Option<&Value>) -> Vec<(String, String)> {
    let Some(told) = told else {
        return vec![("Content-Type".to_owned(), "application/json".to_owned())];
    };
    let pairs = told["headers"].as_array().into_iter().flatten();
    pairs
        .map(|pair| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&pair[0]), text(&pair[1]))
        })
        .collect()
}

fn chunked(chunks: u64) -> Vec<u8> {
    let mut body = String::new();
    for index in 0..chunks {
        let chunk = format!("chunk {index}\n");
        body.push_str(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
    }
    body.push_str("0\r\n\r\n");
    body.into_bytes()
}

fn told_answer(path: &str) -> Option<Value> {
    let (_, rest) = path.split_once("/__resp/")?;
    let encoded = rest.split('/').next().unwrap_or_default();
    let encoded = encoded.trim_end_matches('=').as_bytes();
    serde_json::from_slice(&BASE64URL_NOPAD.decode(encoded).ok()?).ok()
}

fn number_after(path: &str, marker: &str) -> Option<u64> {
    let (_, rest) = path.split_once(marker)?;
    let digits = rest.split(|character: char| !character.is_ascii_digit());
    digits.into_iter().next()?.parse().ok()
}

/// Parses a query string: `a=1&b` becomes `{"a": "1", "b": true}`. A name without `=` has the value `true`.
fn parse_query(text: &str) -> Value {
    let pairs =
        text.split('&')
            .filter(|part| !part.is_empty())
            .map(|part| match part.split_once('=') {
                Some((name, value)) => (unescape(name), Value::from(unescape(value))),
                None => (unescape(part), Value::Bool(true)),
            });
    one_or_list(pairs)
}

fn one_or_list(pairs: impl Iterator<Item = (String, Value)>) -> Value {
    let mut fields = Map::new();
    for (name, value) in pairs {
        match fields.get_mut(&name) {
            None => {
                fields.insert(name, value);
            }
            Some(Value::Array(values)) => values.push(value),
            Some(present) => *present = json!([present.take(), value]),
        }
    }
    Value::Object(fields)
}

fn unescape(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{get, request};

    #[test]
    fn a_request_comes_back_as_json() {
        let echo = Echo::start();
        let headers = [
            ("X-A", "1"),
            ("X-A", "2"),
            ("Content-Type", "application/json"),
        ];
        let answer = request(echo.address, "POST", "/a%20b?x=1&y", &headers, b"{\"k\":1}");
        let record = answer.json();
        assert_eq!(answer.status, 200);
        assert_eq!(record["uri"], "/a%20b?x=1&y");
        assert_eq!(record["query"], json!({"x": "1", "y": true}));
        assert_eq!(record["headers"]["x-a"], json!(["1", "2"]));
        assert_eq!(record["json"], json!({"k": 1}));
        assert_eq!(echo.seen(), [record]);
    }

    #[test]
    fn an_answer_can_be_dictated() {
        // The base64url form of {"status":418,"headers":[["X-B","2"]],"body":"tea"}.
        let told = "eyJzdGF0dXMiOjQxOCwiaGVhZGVycyI6W1siWC1CIiwiMiJdXSwiYm9keSI6InRlYSJ9";
        let answer = get(Echo::start().address, &format!("/__resp/{told}/x"), &[]);
        assert_eq!((answer.status, answer.text().as_str()), (418, "tea"));
        assert_eq!(answer.header("x-b"), Some("2"));
        assert_eq!(answer.header("content-type"), None);
    }

    #[test]
    fn streams_sizes_and_resets_are_as_asked() {
        let echo = Echo::start();
        assert_eq!(
            get(echo.address, "/__stream/2", &[]).text(),
            "chunk 0\nchunk 1\n"
        );
        assert_eq!(get(echo.address, "/__bytes/70000", &[]).body.len(), 70_000);
        let mut client = crate::Client::connect(echo.address);
        client.send("GET /__reset HTTP/1.1\r\n\r\n").expect("sent");
        assert!(client.is_closed());
    }
}
