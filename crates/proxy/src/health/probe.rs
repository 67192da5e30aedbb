//! An active check of one address. Source: lua-resty-healthcheck run_single_check().

use super::checks::Outcome;
use crate::upstream::in_authority;
use model::entities::{ActiveChecks, CheckType, Upstream};
use net::tls::ClientTls;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// The settings of an upstream's probes.
#[derive(Debug, Clone, PartialEq)]
pub struct Probing {
    kind: CheckType,
    /// Timeout of each step: connecting, TLS, sending and receiving.
    timeout: Duration,
    tls: Option<ClientTls>,
    /// Server name for TLS: `https_sni`, or else the upstream's `host_header`. If it is `None`, the target's name is
    /// used.
    sni: Option<Box<str>>,
    /// The upstream's `host_header`. If it is `None`, the target's name is used.
    host: Option<Box<str>>,
    /// The request head up to `Host: `. The value of `Host` follows.
    head: Box<str>,
}

/// Timeout that applies if the configured timeout is 0. It is the default timeout of sockets in OpenResty.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum length of a status line. A longer one is an error.
const STATUS_LINE: usize = 8 * 1024;

impl Probing {
    /// `tls` is only used by the types `https` and `grpcs`.
    pub fn new(upstream: &Upstream, timeout: Duration, tls: Option<ClientTls>) -> Self {
        let active = &upstream.healthchecks.active;
        let host: Option<Box<str>> = upstream
            .host_header
            .as_deref()
            .map(|host| in_authority(host).into());
        Self {
            kind: active.kind,
            timeout: if timeout.is_zero() {
                DEFAULT_TIMEOUT
            } else {
                timeout
            },
            tls,
            sni: active
                .https_sni
                .as_deref()
                .map(Box::from)
                .or_else(|| host.clone()),
            host,
            head: head(active).into(),
        }
    }

    /// Probes an address. `name` is the target's host.
    pub async fn run(&self, address: SocketAddr, name: &str) -> Outcome {
        let checked = match self.kind {
            CheckType::Tcp | CheckType::Grpc => {
                self.connect(address).await.map(|_| Outcome::Connected)
            }
            CheckType::Grpcs => self.secure(address, name).await.map(|_| Outcome::Connected),
            CheckType::Http => match self.connect(address).await {
                Ok(stream) => self.ask(stream, name).await,
                Err(error) => Err(error),
            },
            CheckType::Https => match self.secure(address, name).await {
                Ok(stream) => self.ask(stream, name).await,
                Err(error) => Err(error),
            },
        };
        checked.unwrap_or_else(|error| match error.kind() {
            io::ErrorKind::TimedOut => Outcome::Timeout,
            _ => {
                tracing::debug!(%address, name, %error, "a health check failed");
                Outcome::TcpFailure
            }
        })
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.within(TcpStream::connect(address)).await
    }

    async fn secure(
        &self,
        address: SocketAddr,
        name: &str,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + use<>> {
        let stream = self.connect(address).await?;
        let tls = self.tls.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let sni = self.sni.as_deref().unwrap_or(name);
        self.within(tls.connect(stream, sni)).await
    }

    async fn ask(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        name: &str,
    ) -> io::Result<Outcome> {
        let host = self.host.as_deref().unwrap_or(name);
        let request = format!("{}{host}\r\n\r\n", self.head);
        self.within(stream.write_all(request.as_bytes())).await?;
        self.within(stream.flush()).await?;
        let line = self.within(read_line(&mut stream)).await?;
        Ok(Outcome::Status(status(&line).unwrap_or(0)))
    }

    async fn within<T>(&self, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        tokio::time::timeout(self.timeout, step)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Builds the request head. Header values with line breaks are skipped, although the schema should already refuse them.
fn head(active: &ActiveChecks) -> String {
    let mut head = format!("GET {} HTTP/1.0\r\n", active.http_path);
    let lines = active.headers.iter();
    let lines = lines.flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    for (name, value) in lines.filter(|(_, value)| !value.contains(['\r', '\n'])) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("Host: ");
    head
}

async fn read_line(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut piece = [0; 512];
    loop {
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(&piece[..read]);
        if let Some(end) = memchr::memchr(b'\n', &line) {
            line.truncate(end);
            return Ok(line);
        }
        if line.len() > STATUS_LINE {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Parses the status from a status line such as `HTTP/1.1 200 OK`.
fn status(line: &[u8]) -> Option<u16> {
    let line = str::from_utf8(line).ok()?;
    let (version, rest) = line.strip_prefix("HTTP/")?.split_once([' ', '\t'])?;
    let (major, minor) = version.split_once('.')?;
    for number in [major, minor] {
        number.parse::<u8>().ok()?;
    }
    let digits = rest.trim_start();
    let end = digits.find(|digit: char| !digit.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;
    use uuid::Uuid;

    fn probing(fields: Value) -> Probing {
        let mut upstream = json!({"id": Uuid::nil(), "name": "pool"});
        for (name, value) in fields.as_object().unwrap() {
            upstream[name] = value.clone();
        }
        let upstream: Upstream = serde_json::from_value(upstream).unwrap();
        Probing::new(&upstream, Duration::from_millis(500), None)
    }

    fn active(fields: Value) -> Value {
        json!({"healthchecks": {"active": fields}})
    }

    /// Returns the outcome of a probe when the server sends `answer`, and the request that the server received.
    async fn check(fields: Value, answer: &'static [u8]) -> (Outcome, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            let mut piece = [0; 1024];
            while !asked.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece).await {
                    Ok(read) if read > 0 => asked.extend_from_slice(&piece[..read]),
                    _ => break,
                }
            }
            let _ = stream.write_all(answer).await;
            String::from_utf8(asked).unwrap()
        });
        let outcome = probing(fields).run(address, "target.test").await;
        (outcome, server.await.unwrap())
    }

    #[tokio::test]
    async fn a_probe_asks_for_the_path_with_its_headers_and_reads_the_status() {
        let fields = active(json!({
            "http_path": "/ready?full=1", "headers": {"X-One": ["1"], "X-Two": ["2", "3"]},
        }));
        let (outcome, asked) = check(fields, b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n").await;
        assert_eq!(outcome, Outcome::Status(204));
        assert_eq!(
            asked,
            "GET /ready?full=1 HTTP/1.0\r\nX-One: 1\r\nX-Two: 2\r\nX-Two: 3\r\nHost: target.test\r\n\r\n"
        );
    }

    #[tokio::test]
    async fn the_host_header_of_the_upstream_replaces_the_name() {
        let (_, asked) = check(json!({"host_header": "shop.test:81"}), b"HTTP/1.0 200\n").await;
        assert!(asked.ends_with("Host: shop.test:81\r\n\r\n"), "{asked}");
    }

    #[tokio::test]
    async fn an_answer_that_makes_no_sense_has_status_zero() {
        for answer in [
            &b"SSH-2.0-OpenSSH\r\n"[..],
            b"HTTP/1.1\r\n",
            b"HTTP/x.y 200\r\n",
            b"\r\n",
            b"HTTP/1.1 ok\r\n",
        ] {
            let (outcome, _) = check(json!({}), answer).await;
            assert_eq!(outcome, Outcome::Status(0), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_ends_without_a_line_is_a_tcp_failure() {
        let (outcome, _) = check(json!({}), b"HTTP/1.1 200").await;
        assert_eq!(outcome, Outcome::TcpFailure);
    }

    #[tokio::test]
    async fn a_refused_connection_is_a_tcp_failure_for_every_type() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        for kind in ["tcp", "http", "https", "grpc", "grpcs"] {
            let outcome = probing(active(json!({"type": kind})))
                .run(address, "a.test")
                .await;
            assert_eq!(outcome, Outcome::TcpFailure, "{kind}");
        }
    }

    #[tokio::test]
    async fn silence_is_a_timeout_and_enough_for_a_tcp_probe() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for (kind, expected) in [("http", Outcome::Timeout), ("tcp", Outcome::Connected)] {
            let outcome = probing(active(json!({"type": kind})))
                .run(address, "a.test")
                .await;
            assert_eq!(outcome, expected, "{kind}");
        }
    }
}
