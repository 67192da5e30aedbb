//! Client for the Admin API of the running gateway, used by the other commands of this program. It connects to the
//! socket in the prefix and acts as the operator. Calls block, and each request opens its own connection, so that an
//! upgrade between two requests goes unnoticed.

use crate::instance::not_running;
use crate::local;
use crate::workers::current_thread_runtime;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("{}", not_running(.0))]
    NotRunning(PathBuf),
    #[error(
        "the gateway with prefix {0} belongs to another user, who alone may administer it over its socket"
    )]
    Denied(PathBuf),
    #[error("cannot ask the gateway: {0}")]
    Io(#[from] io::Error),
    #[error("cannot ask the gateway: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("the gateway has not answered after {} s; its log tells more", .0.as_secs())]
    TooLate(Duration),
    #[error("the gateway has not answered in full: {0}")]
    Http(#[from] hyper::Error),
}

/// A client of the gateway that runs with this prefix.
#[derive(Debug)]
pub(crate) struct ApiClient {
    prefix: PathBuf,
    runtime: Runtime,
    /// Maximum time for a complete response.
    limit: Duration,
}

/// A complete response with any status.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// A response whose body is read line by line while the gateway still sends it.
#[derive(Debug)]
pub(crate) struct Lines<'c> {
    pub(crate) status: u16,
    runtime: &'c Runtime,
    body: Incoming,
    read: Vec<u8>,
    /// Number of bytes at the start of `read` that were searched and contain no line end.
    searched: usize,
}

impl ApiClient {
    /// Fails when no gateway listens on the socket of the prefix.
    pub(crate) fn connect(prefix: &Path) -> Result<Self, ClientError> {
        let client = Self {
            prefix: prefix.to_owned(),
            runtime: current_thread_runtime()?,
            limit: Duration::MAX,
        };
        client.open()?;
        Ok(client)
    }

    /// Limits the time that [`ApiClient::request`] waits for a response.
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Sends a request and reads its whole response.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<ApiResponse, ClientError> {
        let answer = async {
            let response = self.send(method, path, headers, body.into()).await?;
            let (head, body) = response.into_parts();
            Ok(ApiResponse {
                status: head.status.as_u16(),
                body: body.collect().await?.to_bytes(),
            })
        };
        let limited = async { tokio::time::timeout(self.limit, answer).await };
        let answer = self.runtime.block_on(limited);
        answer.unwrap_or(Err(ClientError::TooLate(self.limit)))
    }

    /// Sends a request and returns its response for reading line by line.
    pub(crate) fn lines(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Lines<'_>, ClientError> {
        let response = self.send(method, path, headers, body.into());
        let (head, body) = self.runtime.block_on(response)?.into_parts();
        Ok(Lines {
            status: head.status.as_u16(),
            runtime: &self.runtime,
            body,
            read: Vec::new(),
            searched: 0,
        })
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body))?;
        let stream = self.open()?;
        stream.set_nonblocking(true)?;
        let stream = TokioIo::new(UnixStream::from_std(stream)?);
        let (mut sender, connection) = http1::handshake(stream).await?;
        // This task runs while the response is read. Its errors reach the reader of the response.
        tokio::spawn(connection);
        Ok(sender.send_request(request).await?)
    }

    fn open(&self) -> Result<std::os::unix::net::UnixStream, ClientError> {
        local::connect(&self.prefix, local::ADMIN).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotRunning(self.prefix.clone())
            }
            io::ErrorKind::PermissionDenied => ClientError::Denied(self.prefix.clone()),
            _ => ClientError::Io(error),
        })
    }
}

impl ApiResponse {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns `None` if the body is not JSON.
    pub(crate) fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl Lines<'_> {
    /// Returns the next line without its line end, or `None` after the last line.
    pub(crate) fn next_line(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        loop {
            if let Some(length) = self.read[self.searched..].iter().position(|&b| b == b'\n') {
                let mut line: Vec<u8> = self.read.drain(..=self.searched + length).collect();
                line.pop();
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.read.len();
            let Some(frame) = self.runtime.block_on(self.body.frame()) else {
                self.searched = 0;
                let rest = std::mem::take(&mut self.read);
                return Ok((!rest.is_empty()).then_some(rest));
            };
            if let Ok(data) = frame?.into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;
    use tempfile::TempDir;

    /// Returns a prefix with a test gateway that reads the head of each request and sends the next of these responses.
    fn answering(answers: &'static [&'static str]) -> TempDir {
        let prefix = tempfile::tempdir().expect("a temporary directory");
        let listener: UnixListener = local::listen(prefix.path(), local::ADMIN).expect("a socket");
        listener.set_nonblocking(false).expect("a socket has it");
        thread::spawn(move || {
            // The first connection is the check in `ApiClient::connect`.
            drop(listener.accept().expect("a connection"));
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut seen = Vec::new();
                while !seen.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).expect("a head");
                    seen.push(byte[0]);
                }
                stream.write_all(answer.as_bytes()).expect("sent");
            }
        });
        prefix
    }

    #[test]
    fn an_answer_is_read_whole() {
        let prefix = answering(&[
            "HTTP/1.1 404 Not Found\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ]);
        let client = ApiClient::connect(prefix.path()).expect("it runs");
        let answer = client
            .request("GET", "/x", &[("C", "d")], "")
            .expect("an answer");
        assert_eq!((answer.status, answer.is_success()), (404, false));
        assert_eq!(answer.json(), Some(serde_json::json!({})));
    }

    #[test]
    fn lines_do_not_depend_on_chunks() {
        let prefix = answering(&[
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n6\r\n\ntwo\n\n\r\n4\r\nlast\r\n0\r\n\r\n",
        ]);
        let client = ApiClient::connect(prefix.path()).expect("it runs");
        let mut lines = client.lines("GET", "/x", &[], "").expect("an answer");
        let mut seen = Vec::new();
        while let Some(line) = lines.next_line().expect("it goes on") {
            seen.push(String::from_utf8(line).expect("text"));
        }
        assert_eq!(seen, ["one", "two", "", "last"]);
    }

    #[test]
    fn an_answer_that_breaks_off_is_an_error() {
        let prefix = answering(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf\n"]);
        let client = ApiClient::connect(prefix.path()).expect("it runs");
        let error = client
            .request("GET", "/x", &[], "")
            .expect_err("half of it");
        assert!(error.to_string().contains("in full"), "{error}");
    }

    #[test]
    fn an_answer_that_does_not_come_in_time_is_an_error() {
        // This gateway accepts the connection into its queue and never reads the request.
        let silent = tempfile::tempdir().expect("a temporary directory");
        let _listener = local::listen(silent.path(), local::ADMIN).expect("a socket");
        let client = ApiClient::connect(silent.path()).expect("it runs");
        let client = client.within(Duration::from_millis(10));
        let error = client.request("GET", "/x", &[], "").expect_err("silence");
        assert!(matches!(error, ClientError::TooLate(_)), "{error}");
    }

    #[test]
    fn a_prefix_without_a_gateway_is_an_error() {
        let prefix = tempfile::tempdir().expect("a temporary directory");
        for _ in 0..2 {
            let error = ApiClient::connect(prefix.path()).expect_err("nobody is there");
            assert!(matches!(error, ClientError::NotRunning(_)), "{error}");
            // The socket file of a dead process must give the same error.
            drop(local::listen(prefix.path(), local::ADMIN).expect("a socket"));
        }
    }
}
