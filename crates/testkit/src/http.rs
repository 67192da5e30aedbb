//! A plain HTTP/1.1 client. It sends the given bytes unchanged on one connection and does not normalise the response.

use crate::message::{self, Head};
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time limit for reads and writes. It is longer than any test waits, and turns a hang into a failure with a message.
const LIMIT: Duration = Duration::from_secs(60);

/// A connection to a server. `S` is the stream: TCP, or TLS over TCP.
#[derive(Debug)]
pub struct Client<S: Read + Write = TcpStream> {
    reader: BufReader<S>,
}

/// A response with its headers as received.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    pub status: u16,
    /// The status line.
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(LIMIT)).expect("a limit above zero is accepted");
        }
        stream
            .set_nodelay(true)
            .expect("a TCP socket has the option");
        Self::over(stream)
    }

    pub fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }
}

impl<S: Read + Write> Client<S> {
    pub fn over(stream: S) -> Self {
        Self {
            reader: BufReader::new(stream),
        }
    }

    /// Returns the underlying stream.
    pub fn stream_ref(&self) -> &S {
        self.reader.get_ref()
    }

    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let stream = self.reader.get_mut();
        stream.write_all(bytes.as_ref())?;
        stream.flush()
    }

    /// Reads the final response to a request with this method and skips interim responses.
    pub fn receive(&mut self, method: &str) -> io::Result<HttpResponse> {
        loop {
            let head = message::read_head(&mut self.reader)?
                .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "closed, no answer"))?;
            let status = status_of(&head)?;
            if (100..200).contains(&status) {
                continue;
            }
            let body = self.read_body(method, status, &head)?;
            return Ok(HttpResponse {
                status,
                line: head.first,
                headers: head.headers,
                body,
            });
        }
    }

    /// Sends a request with `Host` and `Content-Length` filled in, and reads its response.
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> HttpResponse {
        self.send(encode(method, target, headers, body))
            .unwrap_or_else(|error| panic!("cannot send {method} {target}: {error}"));
        self.receive(method)
            .unwrap_or_else(|error| panic!("no answer to {method} {target}: {error}"))
    }

    /// Waits until the server sends a byte or closes the connection. Returns whether it closed the connection.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.reader.read(&mut byte) {
            Ok(read) => read == 0,
            // Other errors are mainly the client's own time limit.
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
            ),
        }
    }

    fn read_body(&mut self, method: &str, status: u16, head: &Head) -> io::Result<Vec<u8>> {
        if method == "HEAD" || matches!(status, 204 | 304) {
            return Ok(Vec::new());
        }
        if head.is_chunked() {
            return message::read_chunked(&mut self.reader);
        }
        match head.content_length() {
            Some(length) => message::read_sized(&mut self.reader, length),
            None => {
                let mut body = Vec::new();
                self.reader.read_to_end(&mut body)?;
                Ok(body)
            }
        }
    }
}

impl HttpResponse {
    /// Returns the value of the first header with this name, compared without case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(present, _)| present.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error} in the body of {}: {}", self.status, self.text())
        })
    }
}

/// Encodes a request. `Host` and `Content-Length` are added unless they are given.
pub fn encode(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let given = |name: &str| {
        headers
            .iter()
            .any(|(present, _)| present.eq_ignore_ascii_case(name))
    };
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    if !given("host") {
        head.push_str("Host: localhost\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let has_body = !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH");
    if has_body && !given("content-length") && !given("transfer-encoding") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Sends one request on a new connection.
pub fn request(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> HttpResponse {
    Client::connect(address).request(method, target, headers, body)
}

/// Sends one `GET` request on a new connection.
pub fn get(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> HttpResponse {
    request(address, "GET", target, headers, b"")
}

fn status_of(head: &Head) -> io::Result<u16> {
    let status = head.first.split(' ').nth(1);
    status.and_then(|text| text.parse().ok()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("no status in `{}`", head.first),
        )
    })
}
