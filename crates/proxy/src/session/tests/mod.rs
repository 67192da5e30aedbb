//! Tests of whole connections over loopback sockets: a gateway with one service, a client that writes and reads bytes,
//! and an upstream whose connections each follow a script. The clock is paused where time matters.

/// The part of a test plugin that has no configuration.
macro_rules! without_config {
    () => {
        type Config = serde::de::IgnoredAny;

        fn build(
            _: serde::de::IgnoredAny,
            _: &plugin::BuildCx<'_>,
        ) -> Result<Self, plugin::BuildError> {
            Ok(Self)
        }
    };
}

mod acts;
mod admission;
mod blame;
mod bodies;
mod buffering;
mod calls;
mod certificates;
mod connections;
mod datagrams;
mod failures;
mod filters;
mod harness;
mod heads;
mod http2;
mod http2_slow;
mod limits;
mod logging;
mod panics;
mod phases;
mod plugins;
mod retries;
mod shared;
mod streams;
mod websocket;
mod websocket_compressed;
mod websocket_frames;
mod websocket_http2;

use super::{DataPlane, Entrances, SessionSettings, Stop, serve};
use crate::snapshot::{BuildSettings, Live, Snapshot};
use model::entities::{
    Config, Plugin, PluginId, Protocol, Route, RouteId, Service, ServiceId, Target, Upstream,
};
use net::dns::Resolver;
use net::listen::{Listen, bind, bind_datagrams};
use net::tls::ServerTls;
use plugin::{Node, Phases, PluginDef, Scopes};
use serde_json::json;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use uuid::Uuid;

pub(super) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A gateway that has not been started.
pub(super) struct Setup {
    pub(super) service: Service,
    pub(super) route: Route,
    pub(super) settings: SessionSettings,
    pub(super) listen: &'static str,
    /// Definitions of the plugins to configure.
    pub(super) plugins: Vec<Arc<PluginDef>>,
    /// Whether the plugins are configured for the route instead of globally.
    pub(super) plugins_on_route: bool,
    /// Names of plugins that are configured for the route, whatever `plugins_on_route` says.
    pub(super) on_route: Vec<&'static str>,
    /// More entities.
    pub(super) also: Config,
    /// Whether upstreams may speak HTTP/2 (`nginx_proxy_proxy_http_version = 2`).
    pub(super) upstream_http2: bool,
    /// Number of failures to connect after which the target is unhealthy. 0 disables this check.
    pub(super) tcp_failures: u8,
    /// Number of responses with a bad status after which the target is unhealthy. 0 disables this check.
    pub(super) http_failures: u8,
}

pub(super) struct Gateway {
    pub(super) address: SocketAddr,
    pub(super) plane: Arc<DataPlane>,
    pub(super) stop: watch::Sender<Stop>,
    pub(super) done: tokio::task::JoinHandle<std::io::Result<()>>,
    /// A duplicate of the UDP listener, as the new process of an upgrade gets it.
    pub(super) datagrams: Option<std::net::UdpSocket>,
}

impl Setup {
    pub(super) fn new(upstream: SocketAddr) -> Self {
        Self {
            service: service(upstream),
            route: route(),
            settings: SessionSettings::default(),
            listen: "127.0.0.1:0",
            plugins: Vec::new(),
            plugins_on_route: false,
            on_route: Vec::new(),
            also: Config::default(),
            upstream_http2: false,
            tcp_failures: 0,
            http_failures: 0,
        }
    }

    /// Replaces the service's address by the name of an upstream with health checks. Returns the upstream and its
    /// target.
    fn check_health(&mut self) -> (Upstream, Target) {
        let (id, name) = (Uuid::from_u128(4), "pool");
        let address = format!("{}:{}", self.service.host, self.service.port);
        self.service.host = name.into();
        let unhealthy =
            json!({"tcp_failures": self.tcp_failures, "http_failures": self.http_failures});
        let checks = json!({"passive": {"unhealthy": unhealthy}});
        let upstream = json!({"id": id, "name": name, "healthchecks": checks});
        let target = json!({"id": Uuid::from_u128(5), "upstream": id, "target": address});
        (
            serde_json::from_value(upstream).unwrap(),
            serde_json::from_value(target).unwrap(),
        )
    }

    pub(super) fn start(mut self) -> Gateway {
        let is_checked = self.tcp_failures > 0 || self.http_failures > 0;
        let checked = is_checked.then(|| self.check_health());
        let (upstreams, targets) = checked.into_iter().unzip();
        let route = self.route.id;
        let on = |name: &str| {
            let on_route = self.plugins_on_route || self.on_route.contains(&name);
            on_route.then_some(route)
        };
        let is_stream = self.route.protocols.iter().any(|one| !one.is_http());
        let plugins = self.plugins.iter().zip(3..);
        let plugins = plugins.map(|(def, id)| configured(&def.name, id, on(&def.name)));
        let mut config = self.also;
        config.plugins.extend(plugins);
        config.upstreams.extend::<Vec<_>>(upstreams);
        config.targets.extend::<Vec<_>>(targets);
        config.services.push(self.service);
        config.routes.push(self.route);
        let (resolver, background) = Resolver::new(net::dns::DnsSettings::default());
        tokio::spawn(background.run());
        let build = BuildSettings {
            resolver,
            upstream_http2: self.upstream_http2,
            plugins: self.plugins.clone(),
            default_certificate: Some(Arc::new(net::tls::self_signed().unwrap())),
            ..BuildSettings::default()
        };
        let live = Live::new(Snapshot::build(config, 1, None, &build).unwrap());
        let tls = ServerTls::new(Arc::new(live.clone())).unwrap();
        let listen = self.listen.parse::<Listen>().unwrap();
        let (mut http, mut streams) = (Vec::new(), Vec::new());
        let (mut datagrams, mut duplicate) = (Vec::new(), None);
        let address = if listen.udp {
            let socket = bind_datagrams(&listen, 1).unwrap().remove(0);
            duplicate = Some(socket.try_clone().unwrap());
            let address = socket.local_addr().unwrap();
            datagrams.push((listen, socket));
            address
        } else {
            let listener = bind(&listen, 1).unwrap().remove(0);
            let address = listener.local_addr().unwrap();
            let listeners = if is_stream { &mut streams } else { &mut http };
            listeners.push((listen, listener));
            address
        };
        let plane = Arc::new(DataPlane::new(
            live,
            self.settings,
            Node::bare().unwrap(),
            self.plugins,
            1,
        ));
        let (stop, stopped) = watch::channel(Stop::Serve);
        let entrances = Entrances {
            http,
            stream_tls: tls.clone(),
            http_tls: tls,
            streams,
            datagrams,
        };
        let serving = serve(plane.clone(), 0, entrances, stopped);
        Gateway {
            address,
            plane,
            stop,
            done: tokio::spawn(serving),
            datagrams: duplicate,
        }
    }
}

/// Defines a test plugin.
pub(super) fn define<P: plugin::Plugin>(
    name: &'static str,
    priority: i32,
    phases: Phases,
) -> Arc<PluginDef> {
    Arc::new(PluginDef::bundled::<P>(name, priority, phases, Scopes::ALL))
}

pub(super) fn service(upstream: SocketAddr) -> Service {
    Service {
        id: ServiceId(Uuid::from_u128(1)),
        name: None,
        enabled: true,
        protocol: Protocol::Http,
        host: upstream.ip().to_string().into(),
        port: upstream.port(),
        path: None,
        retries: 5,
        connect_timeout: 60_000,
        write_timeout: 60_000,
        read_timeout: 60_000,
        client_certificate: None,
        tls_verify: None,
        tls_verify_depth: None,
        ca_certificates: None,
    }
}

pub(super) fn route() -> Route {
    Route {
        paths: vec!["/".into()],
        regex_priority: Some(0),
        strip_path: false,
        service: Some(ServiceId(Uuid::from_u128(1))),
        ..Route::blank(RouteId(Uuid::from_u128(2)))
    }
}

pub(super) fn configured(name: &str, id: u128, route: Option<RouteId>) -> Plugin {
    Plugin {
        id: PluginId(Uuid::from_u128(id)),
        name: name.into(),
        instance_name: None,
        enabled: true,
        protocols: vec![Protocol::Http, Protocol::Tcp],
        route,
        service: None,
        consumer: None,
        config: Arc::default(),
    }
}

/// Keeps the gateway from being dropped. In a test with several gateways, dropping one would drain the thread's worker,
/// which the next gateway uses too.
pub(super) fn keep(gateway: Gateway) -> &'static Gateway {
    Box::leak(Box::new(gateway))
}

impl Gateway {
    pub(super) async fn client(&self) -> Peer {
        Peer::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// Sends `text`, and reads until the gateway closes.
    pub(super) async fn exchange(&self, text: &str) -> String {
        let mut client = self.client().await;
        client.send(text).await;
        client.rest().await
    }
}

/// One end of a connection.
pub(super) struct Peer {
    pub(super) stream: TcpStream,
    read: Vec<u8>,
}

impl Peer {
    pub(super) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub(super) async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.stream.write_all(text.as_ref()).await.unwrap();
    }

    /// Reads up to and including `end`.
    pub(super) async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = memchr::memmem::find(&self.read, end.as_bytes()) {
                let rest = self.read.split_off(at + end.len());
                let found = std::mem::replace(&mut self.read, rest);
                return String::from_utf8(found).unwrap();
            }
            let more = self.stream.read_buf(&mut self.read).await.unwrap();
            assert!(
                more > 0,
                "closed after {:?}",
                String::from_utf8_lossy(&self.read)
            );
        }
    }

    pub(super) async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    pub(super) async fn take(&mut self, length: usize) -> Vec<u8> {
        while self.read.len() < length {
            assert!(self.stream.read_buf(&mut self.read).await.unwrap() > 0);
        }
        let rest = self.read.split_off(length);
        std::mem::replace(&mut self.read, rest)
    }

    /// Reads the head and body of a response with a length.
    pub(super) async fn answer(&mut self) -> String {
        let head = self.head().await;
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        head + std::str::from_utf8(&self.take(length).await).unwrap()
    }

    /// Reads everything up to the end of the connection or a reset.
    pub(super) async fn rest(&mut self) -> String {
        while let Ok(1..) = self.stream.read_buf(&mut self.read).await {}
        String::from_utf8(std::mem::take(&mut self.read)).unwrap()
    }
}

pub(super) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (other, value) = line.split_once(": ")?;
        other.eq_ignore_ascii_case(name).then_some(value)
    })
}

pub(super) fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

/// The behaviour of an upstream connection.
pub(super) type Script = Box<dyn FnOnce(Peer) -> std::pin::Pin<Box<dyn Future<Output = ()>>>>;

pub(super) fn script<F: Future<Output = ()> + 'static>(
    body: impl FnOnce(Peer) -> F + 'static,
) -> Script {
    Box::new(move |peer| Box::pin(body(peer)))
}

/// An upstream whose connections follow these scripts, in order of arrival.
pub(super) async fn upstream(scripts: Vec<Script>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let scripts = Rc::new(RefCell::new(VecDeque::from(scripts)));
    tokio::task::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let next = scripts.borrow_mut().pop_front();
            if let Some(script) = next {
                tokio::task::spawn_local(script(Peer::new(stream)));
            }
        }
    });
    address
}

/// A script that gives every request the same response.
pub(super) fn answers(answer: &'static str) -> Script {
    script(move |mut peer| async move {
        while let Some(head) = peer.head_or_end().await {
            let length =
                header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
            peer.take(length).await;
            peer.send(answer).await;
        }
    })
}

impl Peer {
    pub(super) async fn head_or_end(&mut self) -> Option<String> {
        loop {
            if memchr::memmem::find(&self.read, b"\r\n\r\n").is_some() {
                return Some(self.head().await);
            }
            match self.stream.read_buf(&mut self.read).await {
                Ok(1..) => {}
                _ => return None,
            }
        }
    }
}

/// Runs a test on a current-thread runtime, like a worker.
pub(super) fn run(test: impl Future<Output = ()>) {
    run_with(false, test);
}

/// Runs a test with a paused clock, which jumps ahead whenever everything waits.
pub(super) fn run_paused(test: impl Future<Output = ()>) {
    run_with(true, test);
}

fn run_with(paused: bool, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(paused)
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}
