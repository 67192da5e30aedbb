//! A scripted request, and the scripted response of its upstream.

use super::case::{Case, ROUTE, SERVICE};
use super::outcome::Outcome;
use super::run;
use crate::log::Latencies;
use crate::request::{Capture, Consumer, Credential, RequestState, Scheme};
use crate::route_slot::RouteSlot;
use bytes::Bytes;
use net::http1::{Limits, RequestHead, ResponseHead};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// A request of a test. [`Call::run`] sends it.
pub struct Call<'c> {
    pub(super) case: &'c Case,
    line: String,
    headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<Bytes>,
    pub(super) client: SocketAddr,
    pub(super) scheme: Scheme,
    pub(super) http2: bool,
    pub(super) port: u16,
    pub(super) sni: Option<String>,
    pub(super) route: (Uuid, Option<String>),
    pub(super) slot: RouteSlot,
    pub(super) service: Option<(Uuid, Option<String>)>,
    pub(super) captures: Vec<Capture>,
    pub(super) routed_path: Option<String>,
    pub(super) state: RequestState,
    pub(super) script: Script,
    pub(super) client_left: bool,
    pub(super) meanwhile: Option<Box<dyn FnOnce() + Send + 'c>>,
    pub(super) body_is_too_large: bool,
    pub(super) started_at: SystemTime,
    pub(super) latencies: Latencies,
}

pub(super) enum Script {
    Answers(Upstream),
    Fails(u16),
}

/// The response of an upstream.
#[derive(Debug, Clone)]
pub struct Upstream {
    status: u16,
    headers: Vec<(String, String)>,
    pub(super) pieces: Vec<Bytes>,
    is_chunked: bool,
    pub(super) breaks_off: bool,
    pub(super) trailers: Vec<(String, String)>,
}

impl Upstream {
    /// A response without a body.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            pieces: Vec::new(),
            is_chunked: false,
            breaks_off: false,
            trailers: Vec::new(),
        }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body, sent in one piece with its length.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.pieces = vec![body.into()];
        self
    }

    /// Adds a piece to the body, which is then sent in chunks. The body filters get each piece in a call of its own.
    #[must_use]
    pub fn piece(mut self, piece: impl Into<Bytes>) -> Self {
        self.is_chunked = true;
        self.pieces.push(piece.into());
        self
    }

    /// Adds a trailer. The body is then sent in chunks.
    #[must_use]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.is_chunked = true;
        self.trailers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes the upstream close the connection before the end of the body.
    #[must_use]
    pub fn breaks_off(mut self) -> Self {
        self.breaks_off = true;
        self
    }

    pub(super) fn head(&self, to_head: bool) -> ResponseHead {
        let mut text = format!("HTTP/1.1 {} Scripted\r\n", self.status);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        let has_length =
            (self.headers.iter()).any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        if self.is_chunked {
            text += "Transfer-Encoding: chunked\r\n";
        } else if !has_length && !matches!(self.status, 101 | 204 | 304) {
            let length: usize = self.pieces.iter().map(Bytes::len).sum();
            text += &format!("Content-Length: {length}\r\n");
        }
        text += "\r\n";
        let (head, _) = ResponseHead::parse(text.as_bytes(), to_head, &Limits::default())
            .expect("the scripted response is well formed")
            .expect("the scripted response is complete");
        head
    }
}

impl<'c> Call<'c> {
    pub(super) fn new(case: &'c Case, line: &str) -> Self {
        Self {
            case,
            line: line.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            client: SocketAddr::from(([127, 0, 0, 1], 1234)),
            scheme: Scheme::Http,
            http2: false,
            port: 8000,
            sni: None,
            route: (ROUTE, None),
            slot: RouteSlot::default(),
            service: Some((SERVICE, None)),
            captures: Vec::new(),
            routed_path: None,
            state: RequestState::default(),
            script: Script::Answers(Upstream::new(200)),
            client_left: false,
            meanwhile: None,
            body_is_too_large: false,
            started_at: case.node().clock.now(),
            latencies: Latencies {
                request: Duration::from_millis(10),
                gateway: Duration::from_millis(1),
                upstream: Some(Duration::from_millis(7)),
                receive: Duration::from_millis(2),
            },
        }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers
            .push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Adds header lines such as `apikey: k`.
    #[must_use]
    pub fn lines(mut self, lines: &[&str]) -> Self {
        for line in lines {
            let (name, value) = line.split_once(':').expect("a header line has a colon");
            self = self.header(name, value.trim());
        }
        self
    }

    /// Sets the body, sent in one piece with its length.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = vec![body.into()];
        let length = self.body[0].len().to_string();
        self.header("Content-Length", length)
    }

    /// Sets a body in chunks, which arrive one after another.
    #[must_use]
    pub fn pieces<B: Into<Bytes>>(mut self, pieces: impl IntoIterator<Item = B>) -> Self {
        self.body = pieces.into_iter().map(Into::into).collect();
        self.header("Transfer-Encoding", "chunked")
    }

    /// Makes the body exceed the limit of the data plane, so that plugins cannot read it.
    #[must_use]
    pub fn too_large(mut self) -> Self {
        self.body_is_too_large = true;
        self
    }

    /// Sets the client's address and port.
    #[must_use]
    pub fn client(mut self, address: &str) -> Self {
        self.client = address.parse().expect("an address with a port");
        self
    }

    #[must_use]
    pub fn https(mut self, sni: Option<&str>) -> Self {
        (self.scheme, self.port) = (Scheme::Https, 8443);
        self.sni = sni.map(str::to_owned);
        self
    }

    #[must_use]
    pub fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    /// Makes the request a gRPC call.
    #[must_use]
    pub fn grpc(self) -> Self {
        self.http2()
            .header("Content-Type", "application/grpc")
            .header("TE", "trailers")
    }

    /// Sets the consumer that an earlier plugin has found, with a credential.
    #[must_use]
    pub fn consumer(mut self, id: Uuid, username: &str) -> Self {
        let consumer = Consumer {
            id: model::entities::ConsumerId(id),
            username: Some(username.into()),
            custom_id: None,
        };
        self.state.consumer = Some(Arc::new(consumer));
        self.credential(Uuid::from_u128(0xc4ed))
    }

    /// Sets the credential that an earlier plugin has found.
    #[must_use]
    pub fn credential(mut self, id: Uuid) -> Self {
        self.state.credential = Some(Credential { id });
        self
    }

    /// Changes what earlier plugins have found out.
    #[must_use]
    pub fn state(mut self, change: impl FnOnce(&mut RequestState)) -> Self {
        change(&mut self.state);
        self
    }

    #[must_use]
    pub fn route(mut self, id: Uuid, name: Option<&str>) -> Self {
        self.route = (id, name.map(str::to_owned));
        self
    }

    #[must_use]
    pub fn service(mut self, id: Uuid, name: Option<&str>) -> Self {
        self.service = Some((id, name.map(str::to_owned)));
        self
    }

    #[must_use]
    pub fn without_service(mut self) -> Self {
        self.service = None;
        self
    }

    /// Sets the captures of the route's path regex.
    #[must_use]
    pub fn captures(mut self, captures: impl IntoIterator<Item = Capture>) -> Self {
        self.captures = captures.into_iter().collect();
        self
    }

    /// Sets the upstream path that routing has determined. Otherwise it is the path of the request.
    #[must_use]
    pub fn routed_to(mut self, path: &str) -> Self {
        self.routed_path = Some(path.to_owned());
        self
    }

    /// Sets the response of the upstream. Otherwise it has status 200 and no body.
    #[must_use]
    pub fn answered(mut self, upstream: Upstream) -> Self {
        self.script = Script::Answers(upstream);
        self
    }

    /// Makes the upstream fail, so that the gateway responds with this status.
    #[must_use]
    pub fn upstream_fails(mut self, status: u16) -> Self {
        self.script = Script::Fails(status);
        self
    }

    /// Makes the client leave before the first wait.
    #[must_use]
    pub fn client_leaves(mut self) -> Self {
        self.client_left = true;
        self
    }

    /// Runs this when `access` of a plugin has asked for the body, before the body is there.
    #[must_use]
    pub fn while_the_body_comes(mut self, happen: impl FnOnce() + Send + 'c) -> Self {
        self.meanwhile = Some(Box::new(happen));
        self
    }

    /// Sets the time of the request, which is that of the node's clock otherwise, and its latencies for the log phase.
    #[must_use]
    pub fn took(mut self, started_at: SystemTime, latencies: Latencies) -> Self {
        (self.started_at, self.latencies) = (started_at, latencies);
        self
    }

    /// Runs the request through all phases.
    pub async fn run(self) -> Outcome {
        run::run(self).await
    }

    /// Runs the request through all phases. Panics if a plugin waits for something that is not there yet.
    pub fn run_now(self) -> Outcome {
        let mut future = std::pin::pin!(run::run(self));
        let mut cx = Context::from_waker(Waker::noop());
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("a plugin waits"),
        }
    }

    pub(super) fn head(&self) -> RequestHead {
        let mut text = format!("{} HTTP/1.1\r\n", self.line).into_bytes();
        let has_host = (self.headers.iter()).any(|(name, _)| name.eq_ignore_ascii_case("host"));
        if !has_host {
            text.extend_from_slice(b"Host: a.test\r\n");
        }
        for (name, value) in &self.headers {
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"\r\n");
        let (head, _) = RequestHead::parse(&text, &Limits::default())
            .expect("the scripted request is well formed")
            .expect("the scripted request is complete");
        head
    }
}
