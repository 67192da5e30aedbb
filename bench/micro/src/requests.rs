//! Operations with whole requests through the session. A client and an upstream use loopback sockets on the gateway's
//! own thread, so that the order of events is the same in every run.
//!
//! Instruction counts include the gateway and its runtime, which also wakes the client and the upstream. The code of
//! the client and the upstream is not counted. Times include everything, also system calls.

use crate::fixtures::{build_settings, config, key, path, route, service, spread};
use crate::operation::{LeftOut, Operation};
use crate::phases;
use crate::storage;
use model::entities::{Config, Route};
use net::listen::{Listen, bind};
use net::tls::ServerTls;
use plugin::trace::Tracing;
use plugin::{Entities, NoEntities, Node, NodeIdentity, PluginDef};
use proxy::plugins::publish;
use proxy::session::{self, DataPlane, Entrances, SessionSettings, Stop};
use proxy::snapshot::{BuildSettings, Live, Snapshot};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;
use tokio::task::yield_now;

const COUNT: u32 = 200;
const SMALL: usize = 512;
const LARGE: usize = 64 << 10;
/// Number of routes and keys that the requests use in turn, if the configuration has many.
const TURNS: usize = 100;

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        exchange("request/plain", || Setup::one_route(Vec::new())),
        exchange("request/key-auth", || {
            Setup::one_route(vec![crate::fixtures::key_auth(0)]).with_keys()
        }),
        exchange("request/prometheus", || {
            Setup::one_route(vec![crate::logs::prometheus()])
        }),
        exchange("request/two-plugins/10000-routes", || {
            Setup::many_routes(10_000).with_keys()
        }),
        exchange("request/five-plugins", || Setup {
            plugins: phases::definitions::<()>(),
            ..Setup::one_route(phases::configured())
        }),
        exchange("request/body-1024", || Setup {
            requests: vec![post("/users", 1024)],
            ..Setup::one_route(Vec::new())
        }),
        exchange("request/answer-65536", || Setup {
            answer: with_length(LARGE),
            ..Setup::one_route(Vec::new())
        }),
        exchange("request/answer-chunks/100x100", || Setup {
            answer: in_chunks(100, 100),
            ..Setup::one_route(Vec::new())
        }),
        exchange("request/answer-chunks/16x4096", || Setup {
            answer: in_chunks(16, 4096),
            ..Setup::one_route(Vec::new())
        }),
        exchange("request/no-route", || Setup {
            requests: vec![get("/", 0)],
            config: Box::new(|_| Config::default()),
            ..Setup::one_route(Vec::new())
        }),
    ]
}

/// The parts in which the operations differ.
pub(crate) struct Setup {
    /// Creates the configuration for an upstream at the given address.
    pub(crate) config: Box<dyn Fn(SocketAddr) -> Config>,
    /// The plugins that the gateway knows.
    pub(crate) plugins: Vec<Arc<PluginDef>>,
    pub(crate) entities: Option<(TempDir, Arc<dyn Entities>)>,
    pub(crate) tracing: Tracing,
    /// The requests that the client sends in turn.
    pub(crate) requests: Vec<Vec<u8>>,
    /// The upstream's response, in pieces that the gateway reads one by one.
    pub(crate) answer: Vec<Vec<u8>>,
}

impl Setup {
    pub(crate) fn one_route(plugins: Vec<model::entities::Plugin>) -> Self {
        Self {
            config: Box::new(move |upstream| Config {
                services: vec![service(upstream)],
                routes: vec![Route {
                    paths: vec!["/".into()],
                    ..route(0)
                }],
                plugins: plugins.clone(),
                ..Config::default()
            }),
            plugins: plugins::bundled().to_vec(),
            entities: None,
            tracing: Tracing::default(),
            requests: vec![get("/users/42", 0)],
            answer: with_length(SMALL),
        }
    }

    fn many_routes(count: usize) -> Self {
        Self {
            config: Box::new(move |upstream| config(count, upstream)),
            requests: spread(TURNS, count)
                .map(|number| get(&path(number), number))
                .collect(),
            ..Self::one_route(Vec::new())
        }
    }

    /// Adds 10,000 consumers with keys in a store.
    fn with_keys(mut self) -> Self {
        let (directory, entities) = storage::entities();
        self.entities = Some((directory, Arc::new(entities)));
        self
    }
}

fn get(path: &str, consumer: usize) -> Vec<u8> {
    let key = key(consumer);
    format!(
        "GET {path} HTTP/1.1\r\nHost: gateway.test\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\napikey: {key}\r\n\r\n"
    )
    .into_bytes()
}

fn post(path: &str, size: usize) -> Vec<u8> {
    let body = "x".repeat(size);
    format!(
        "POST {path} HTTP/1.1\r\nHost: gateway.test\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\
         Content-Type: text/plain\r\nContent-Length: {size}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn with_length(size: usize) -> Vec<Vec<u8>> {
    let body = "x".repeat(size);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
    vec![format!("{head}{size}\r\n\r\n{body}").into_bytes()]
}

/// Returns a chunked response with one piece for each chunk.
fn in_chunks(chunks: usize, size: usize) -> Vec<Vec<u8>> {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("{size:x}\r\n{}\r\n", "x".repeat(size));
    let mut pieces = vec![chunk.into_bytes(); chunks];
    pieces[0].splice(..0, head.bytes());
    pieces.push(b"0\r\n\r\n".to_vec());
    pieces
}

pub(crate) fn exchange(name: &str, setup: impl Fn() -> Setup + Send + Sync + 'static) -> Operation {
    Operation::repeat(name, COUNT, move || {
        let Running {
            runtime,
            mut client,
            _directory,
            _stop,
        } = Running::start(setup()).expect("loopback sockets work");
        move || {
            let _ = (&_directory, &_stop);
            runtime.block_on(LeftOut(pin!(client.exchange())));
        }
    })
}

/// A gateway that serves one client connection.
struct Running {
    runtime: Runtime,
    client: Client,
    _directory: Option<TempDir>,
    /// The gateway stops when this is dropped.
    _stop: watch::Sender<Stop>,
}

impl Running {
    fn start(setup: Setup) -> std::io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (directory, entities) = match setup.entities {
            Some((directory, entities)) => (Some(directory), entities),
            None => (None, Arc::new(NoEntities) as Arc<dyn Entities>),
        };
        let (stop, stopped) = watch::channel(Stop::Serve);
        let stream = runtime.block_on(async {
            let upstream = start_upstream(setup.answer).await?;
            let config = (setup.config)(upstream);
            let plugins = (setup.plugins, setup.tracing);
            let gateway = start_gateway(config, plugins, entities, stopped);
            TcpStream::connect(gateway).await
        })?;
        stream.set_nodelay(true)?;
        Ok(Self {
            runtime,
            client: Client {
                stream,
                requests: setup.requests,
                next: 0,
                buffer: vec![0; 2 * LARGE],
            },
            _directory: directory,
            _stop: stop,
        })
    }
}

fn start_gateway(
    config: Config,
    (plugins, tracing): (Vec<Arc<PluginDef>>, Tracing),
    entities: Arc<dyn Entities>,
    stopped: watch::Receiver<Stop>,
) -> SocketAddr {
    let identity = NodeIdentity {
        tracing,
        ..NodeIdentity::default()
    };
    let settings = BuildSettings {
        node: identity.clone(),
        plugins: plugins.clone(),
        ..build_settings()
    };
    let snapshot = Snapshot::build(config, 1, None, &settings);
    let snapshot = snapshot.expect("the configuration can be served");
    let mut node = Node::with_entities(entities).expect("a thread can be started");
    if let Some(node) = Arc::get_mut(&mut node) {
        node.identity = identity;
    }
    publish(None, snapshot.instances(), &[], &node);
    let live = Live::new(snapshot);
    let tls = ServerTls::new(Arc::new(live.clone())).expect("no certificate is needed");
    let listen: Listen = "127.0.0.1:0".parse().expect("this is an address");
    let mut sockets = bind(&listen, 1).expect("a free port can be listened on");
    let socket = sockets.remove(0);
    let address = socket.local_addr().expect("the socket is bound");
    let settings = SessionSettings::default();
    let plane = Arc::new(DataPlane::new(live, settings, node, plugins, 1));
    tokio::spawn(session::serve(
        plane,
        0,
        Entrances {
            http: vec![(listen, socket)],
            stream_tls: tls.clone(),
            http_tls: tls,
            streams: Vec::new(),
            datagrams: Vec::new(),
        },
        stopped,
    ));
    address
}

struct Client {
    stream: TcpStream,
    requests: Vec<Vec<u8>>,
    next: usize,
    buffer: Vec<u8>,
}

impl Client {
    /// Sends the next request and reads its response to the end.
    async fn exchange(&mut self) {
        let request = &self.requests[self.next];
        self.next = (self.next + 1) % self.requests.len();
        let sent = self.stream.write_all(request).await;
        sent.expect("the gateway is there");
        let mut read = 0;
        while !is_whole(&self.buffer[..read]) {
            let more = self.stream.read(&mut self.buffer[read..]).await;
            let more = more.expect("the gateway is there");
            assert!(more > 0, "the gateway keeps the connection");
            read += more;
        }
    }
}

/// Starts an upstream that answers every request on the gateway's one connection.
async fn start_upstream(answer: Vec<Vec<u8>>) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let serving = pin!(async {
            // An error here needs no handling: the client then gets no response and panics.
            if let Ok((stream, _)) = listener.accept().await {
                let _ = answer_all(stream, &answer).await;
            }
        });
        LeftOut(serving).await;
    });
    Ok(address)
}

async fn answer_all(mut stream: TcpStream, answer: &[Vec<u8>]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; LARGE];
    loop {
        let mut read = 0;
        while !is_whole(&buffer[..read]) {
            match stream.read(&mut buffer[read..]).await? {
                0 => return Ok(()),
                more => read += more,
            }
        }
        for (number, piece) in answer.iter().enumerate() {
            if number > 0 {
                // Let the gateway read this piece before the next one is sent.
                yield_now().await;
            }
            stream.write_all(piece).await?;
        }
    }
}

/// Whether the bytes are a complete message. A chunked message counts as complete if its last bytes look like the last
/// chunk, so the data in its chunks must contain no line breaks.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(head) = memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4) else {
        return false;
    };
    let values = |name: &'static str| {
        let lines = bytes[..head].split(|&byte| byte == b'\n');
        lines.filter_map(move |line| {
            let (given, value) = line.split_at(memchr::memchr(b':', line)?);
            let value = std::str::from_utf8(&value[1..]).ok()?.trim();
            given.eq_ignore_ascii_case(name.as_bytes()).then_some(value)
        })
    };
    if values("transfer-encoding").next().is_some() {
        return bytes[head..].ends_with(b"0\r\n\r\n");
    }
    let lengths = values("content-length").filter_map(|value| value.parse::<usize>().ok());
    bytes.len() >= head + lengths.sum::<usize>()
}
