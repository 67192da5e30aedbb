//! Runs a whole connection without a socket. The bytes that a client and the upstreams send go in; the bytes that both
//! receive come out. For fuzzing only: released programs are built without the feature `memory`.

use super::http2::serve_http2;
use super::server::{connection_over, ticket_over};
use super::{DataPlane, SessionSettings, worker};
use crate::snapshot::{BuildSettings, Live, Snapshot};
use model::entities::{Config, Protocol, Route, RouteId, Service, ServiceId};
use net::memory::{Memory, Then, expect_dials};
use net::pool::PoolSettings;
use net::stream::Stream;
use plugin::Node;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use uuid::Uuid;

/// The result of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub to_client: Vec<u8>,
    /// Bytes sent to each upstream connection, in the order in which they were opened.
    pub to_upstreams: Vec<Vec<u8>>,
}

/// A data plane with one service. Requests below `/` are buffered, those below `/stream` are not. Each upstream
/// connection serves one request.
pub struct Bench {
    plane: Arc<DataPlane>,
    runtime: Runtime,
}

/// A time longer than every time limit. After it, all waiting tasks have timed out.
const LONG: Duration = Duration::from_secs(1000);

impl Bench {
    /// Sets up this thread as the only worker. The value must therefore stay on this thread.
    pub fn new() -> Self {
        let config = Config {
            services: vec![service()],
            routes: vec![route(2, "/", true), route(3, "/stream", false)],
            ..Config::default()
        };
        let snapshot = Snapshot::build(config, 1, None, &BuildSettings::default());
        let snapshot = snapshot.expect("the configuration is right");
        let settings = SessionSettings {
            pool: PoolSettings {
                size: 0,
                ..PoolSettings::default()
            },
            ..SessionSettings::default()
        };
        let plane = DataPlane::new(
            Live::new(snapshot),
            settings,
            Node::bare().expect("a thread can be started"),
            Vec::new(),
            1,
        );
        let plane = Arc::new(plane);
        worker::with(|worker| worker.set_up(&plane, 0));
        let runtime = runtime();
        Self { plane, runtime }
    }

    /// Runs one client connection. The client sends `client` and then does `then`; each upstream sends its bytes and
    /// closes. All bytes are transferred in pieces of at most `piece` bytes.
    pub fn connection(
        &self,
        client: &[u8],
        then: Then,
        upstreams: &[&[u8]],
        piece: usize,
    ) -> Outcome {
        exchange(client, then, upstreams, piece, |stream| {
            self.runtime.block_on(connection_over(&self.plane, stream));
        })
    }

    /// Runs one HTTP/2 connection like [`Self::connection`]. The client's preface is added to `client`.
    pub fn http2(&self, client: &[u8], then: Then, upstreams: &[&[u8]], piece: usize) -> Outcome {
        let client = [net::http2::PREFACE, client].concat();
        exchange(&client, then, upstreams, piece, |stream| {
            // Each stream is a task. Dropping this runtime ends all of them.
            runtime().block_on(async {
                let (ticket, arrival) = ticket_over(&self.plane);
                serve_http2(ticket, stream, Vec::new(), arrival).await;
                tokio::time::sleep(LONG).await;
            });
        })
    }
}

fn exchange(
    client: &[u8],
    then: Then,
    upstreams: &[&[u8]],
    piece: usize,
    serve: impl FnOnce(Stream),
) -> Outcome {
    let (stream, to_client) = Memory::new(client.to_vec(), then, piece);
    let memories = upstreams
        .iter()
        .map(|said| Memory::new(said.to_vec(), Then::Close, piece));
    let (memories, sent): (Vec<_>, Vec<_>) = memories.unzip();
    // If the client waits for its response, upstreams wait for their request. Otherwise they respond before it arrives.
    expect_dials(memories.into_iter().map(|memory| match then {
        Then::Wait => memory.patient(),
        Then::Close => memory,
    }));
    serve(Stream::Memory(Box::new(stream)));
    Outcome {
        to_client: to_client.take(),
        to_upstreams: sent.iter().map(net::memory::Sent::take).collect(),
    }
}

/// A runtime with a paused clock, in which waiting tasks reach their time limits at once.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs nothing but memory")
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

fn service() -> Service {
    Service {
        id: ServiceId(Uuid::from_u128(1)),
        name: None,
        enabled: true,
        protocol: Protocol::Http,
        host: "127.0.0.1".into(),
        port: 1,
        path: None,
        retries: 0,
        connect_timeout: 1000,
        write_timeout: 1000,
        read_timeout: 1000,
        client_certificate: None,
        tls_verify: None,
        tls_verify_depth: None,
        ca_certificates: None,
    }
}

fn route(id: u128, path: &str, buffers: bool) -> Route {
    Route {
        paths: vec![path.into()],
        regex_priority: Some(0),
        strip_path: false,
        request_buffering: buffers,
        response_buffering: buffers,
        service: Some(ServiceId(Uuid::from_u128(1))),
        ..Route::blank(RouteId(Uuid::from_u128(id)))
    }
}
