//! One worker: its listeners, their connections, and the drain at the end.

use super::admission::Admitted;
use super::http2::{serve_either, serve_http2};
use super::plane::DataPlane;
use super::stream::{serve_datagrams, serve_stream};
use super::worker::{self, Phase, Which};
use super::{Arrival, Connection};
use net::listen::{Keepalive, Listen, accept_loop, accept_queued, is_out_of_descriptors};
use net::peek::{first_byte, take_proxy_header};
use net::stream::Stream;
use net::tls::ServerTls;
use net::udp::DatagramListener;
use plugin::Scheme;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet, yield_now};
use tokio::time::{Instant, interval, sleep_until, timeout, timeout_at};

/// What a worker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Serve,
    /// Serve on, but end every connection with its next answer: the end is near, and load balancers are being told.
    Announce,
    /// Take no more connections, let requests end within this time, then go. Connections without a request end at once.
    Drain(Duration),
    /// The same after another process has taken over the listeners: there is time, so connections without a request live
    /// until their next answer or their idle limit, and without a limit until they end by themselves.
    HandOver(Option<Duration>),
}

/// How often a worker looks after what only time changes.
const TIDY_INTERVAL: Duration = Duration::from_secs(1);
/// How long a connection that was made just before a drain may take to send its first request.
const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// What a worker listens on.
pub struct Entrances {
    /// `proxy_listen`.
    pub http: Vec<(Listen, std::net::TcpListener)>,
    pub http_tls: ServerTls,
    /// `stream_listen`.
    pub streams: Vec<(Listen, std::net::TcpListener)>,
    pub stream_tls: ServerTls,
    /// Those of `stream_listen` with `udp`.
    pub datagrams: Vec<(Listen, std::net::UdpSocket)>,
}

/// Serves listeners on the current thread, until told to stop and drained. `number` is this worker's among those of the
/// plane. To be run on a current-thread runtime of its own.
pub async fn serve(
    plane: Arc<DataPlane>,
    number: usize,
    entrances: Entrances,
    stop: watch::Receiver<Stop>,
) -> io::Result<()> {
    let bell = worker::with(|worker| worker.set_up(&plane, number));
    let mut doors = Doors::open(&plane, entrances)?;
    worker::with(|worker| worker.look(&plane));
    let _serving = plane.counters(number).serving();
    serve_on(&plane, &mut doors, stop, &bell).await;
    worker::with(|worker| worker.end_journals());
    Ok(())
}

/// Until the last connection has ended.
async fn serve_on(
    plane: &Arc<DataPlane>,
    doors: &mut Doors,
    mut stop: watch::Receiver<Stop>,
    bell: &Notify,
) {
    let mut published = plane.published();
    let mut tick = interval(TIDY_INTERVAL);
    let mut ending = Ending::default();
    loop {
        tokio::select! {
            _ = tick.tick() => worker::with(|worker| worker.tidy(plane)),
            _ = published.changed() => worker::with(|worker| worker.look(plane)),
            order = next_order(&mut stop) => {
                ending.apply(order);
                if ending.has_begun {
                    doors.close().await;
                }
            }
            () = bell.notified(), if ending.has_begun => {}
            () = until(ending.idle_until) => ending.end_idle(),
            () = until(ending.until) => {
                end_tunnels().await;
                abort(worker::with(|worker| worker.connections.handles(Which::All)));
                return;
            }
        }
        if ending.has_begun && worker::with(|worker| worker.connections.count()) == 0 {
            return;
        }
    }
}

async fn next_order(stop: &mut watch::Receiver<Stop>) -> Stop {
    match stop.changed().await {
        Ok(()) => *stop.borrow_and_update(),
        // Whoever could tell is gone.
        Err(_) => Stop::Drain(Duration::ZERO),
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn abort(connections: Vec<AbortHandle>) {
    for handle in connections {
        handle.abort();
    }
}

/// How far a worker has come in ending.
#[derive(Default)]
struct Ending {
    /// No more connections are taken.
    has_begun: bool,
    /// When those that still wait for a request are ended.
    idle_until: Option<Instant>,
    /// When everything is ended.
    until: Option<Instant>,
}

impl Ending {
    fn apply(&mut self, order: Stop) {
        if order == Stop::Serve {
            return;
        }
        worker::with(|worker| {
            worker.draining = true;
            worker.connections.wake();
        });
        let now = Instant::now();
        match order {
            Stop::Serve | Stop::Announce => {}
            Stop::Drain(limit) => {
                self.has_begun = true;
                self.until = Some(now + limit);
                self.idle_until = Some(now + limit.min(FIRST_REQUEST));
                abort(worker::with(|worker| {
                    worker.connections.handles(Which::Idle)
                }));
            }
            Stop::HandOver(limit) => {
                self.has_begun = true;
                self.until = limit.map(|limit| now + limit);
            }
        }
    }

    fn end_idle(&mut self) {
        self.idle_until = None;
        abort(worker::with(|worker| {
            worker.ends_waiting = true;
            worker.connections.wake();
            worker.connections.handles(Which::Waiting)
        }));
    }
}

/// The listeners of a worker, open or closed.
struct Doors {
    accepting: JoinSet<()>,
    listeners: Vec<(Arc<TcpListener>, Server)>,
}

impl Doors {
    fn open(plane: &Arc<DataPlane>, entrances: Entrances) -> io::Result<Self> {
        let mut doors = Self {
            accepting: JoinSet::new(),
            listeners: Vec::new(),
        };
        for (listen, listener) in entrances.http {
            doors.add(plane, Use::Http, &listen, listener, &entrances.http_tls)?;
        }
        for (listen, listener) in entrances.streams {
            doors.add(plane, Use::Stream, &listen, listener, &entrances.stream_tls)?;
        }
        for (listen, socket) in entrances.datagrams {
            let listener = DatagramListener::from_std(socket)?;
            let port = public_port(plane, &listen, listener.local_port());
            let serving = serve_datagrams(plane.clone(), listener, port);
            doors.accepting.spawn(serving);
        }
        Ok(doors)
    }

    fn add(
        &mut self,
        plane: &Arc<DataPlane>,
        purpose: Use,
        listen: &Listen,
        listener: std::net::TcpListener,
        tls: &ServerTls,
    ) -> io::Result<()> {
        let listener = Arc::new(TcpListener::from_std(listener)?);
        let local = listener.local_addr()?;
        let server = Server {
            purpose,
            plane: plane.clone(),
            tls: listen.ssl.then(|| match purpose {
                Use::Http => tls.offering(listen.http2),
                Use::Stream => tls.clone(),
            }),
            http2: listen.http2,
            proxy_protocol: listen.proxy_protocol,
            keepalive: listen.keepalive,
            port: public_port(plane, listen, local.port()),
            local: Some(local.ip()).filter(|address| !address.is_unspecified()),
        };
        self.listeners.push((listener.clone(), server.clone()));
        self.accepting.spawn(async move {
            let accepted = |stream, peer| server.start_guarded(stream, peer);
            let refused = |error: &io::Error| server.make_room(error);
            accept_loop(&listener, server.keepalive, accepted, refused).await;
        });
        Ok(())
    }

    /// Takes what waits in the queues already: closing would reset it. Then closes, which for a listener that another
    /// process has as well changes nothing for its clients.
    async fn close(&mut self) {
        self.accepting.shutdown().await;
        for (listener, server) in self.listeners.drain(..) {
            accept_queued(&listener, server.keepalive, |stream, peer| {
                server.start_guarded(stream, peer);
            });
        }
    }
}

/// Tunnels have no end of their own to wait for. They end in an orderly way, so that they are logged.
async fn end_tunnels() {
    worker::with(|worker| worker.end_tunnels());
    let none_left = async {
        while worker::with(|worker| worker.tunnels) > 0 {
            yield_now().await;
        }
    };
    let _ = timeout(LAST_MOMENT, none_left).await;
}

/// How long ending takes at most, once there is nothing left to wait for.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// What a listener's port is called to the outside.
fn public_port(plane: &DataPlane, listen: &Listen, port: u16) -> u16 {
    let maps = &plane.settings.port_maps;
    maps.get(&listen.address.port()).copied().unwrap_or(port)
}

/// What connections of a listener carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Http,
    Stream,
}

/// A listener as its connections know it.
#[derive(Clone)]
pub(super) struct Server {
    purpose: Use,
    pub(super) plane: Arc<DataPlane>,
    pub(super) tls: Option<ServerTls>,
    /// Connections begin with what a load balancer says of them.
    pub(super) proxy_protocol: bool,
    keepalive: Keepalive,
    http2: bool,
    pub(super) port: u16,
    /// None where it is every address.
    local: Option<IpAddr>,
}

impl Server {
    /// A panic costs its connection, not the listener.
    fn start_guarded(&self, stream: TcpStream, peer: SocketAddr) {
        // What it may leave half done, the list of connections, is put right by its ticket.
        let _ = catch_unwind(AssertUnwindSafe(|| self.start(stream, peer)));
    }

    /// After an accept that failed for want of descriptors or memory: idle upstream connections are what is spare.
    fn make_room(&self, error: &io::Error) {
        worker::with(|worker| {
            worker.counters(&self.plane).accept_errors.add();
            if is_out_of_descriptors(error) {
                worker.close_idle();
            }
        });
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr) {
        let address = peer.ip().to_canonical();
        let trusted = self.plane.settings.real_ip.trusts(address);
        // Closing is the answer that costs nothing.
        let Some(admitted) = self.plane.admission.enter(address, trusted) else {
            return worker::with(|worker| worker.counters(&self.plane).refused.add());
        };
        let mut ticket = Ticket::begin(&self.plane);
        ticket.admitted = Some(admitted);
        let number = ticket.number;
        let task = match self.purpose {
            Use::Http => self.start_http(ticket, stream, peer),
            Use::Stream => tokio::spawn(serve_stream(self.clone(), ticket, stream, peer)),
        };
        let handle = task.abort_handle();
        worker::with(|worker| worker.connections.set_abort(number, handle));
    }

    fn start_http(&self, ticket: Ticket, stream: TcpStream, peer: SocketAddr) -> JoinHandle<()> {
        let arrival = Arrival {
            peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
            port: self.port,
            local: self.local.map(OnceLock::from).unwrap_or_default(),
            scheme: Scheme::Http,
            http2: false,
            sni: None,
            told: None,
            forwarded: Box::default(),
        };
        match &self.tls {
            _ if self.proxy_protocol => {
                tokio::spawn(serve_proxied(ticket, self.clone(), stream, arrival))
            }
            None if self.http2 => tokio::spawn(serve_either(ticket, stream, arrival)),
            None => tokio::spawn(ticket.connection(Stream::Tcp(stream), arrival).run()),
            Some(tls) => tokio::spawn(serve_tls(ticket, tls.clone(), stream, arrival)),
        }
    }
}

/// A counted connection; uncounts it when dropped.
pub(super) struct Ticket {
    pub(super) plane: Arc<DataPlane>,
    pub(super) number: usize,
    pub(super) phase: Phase,
    /// It has sent a request.
    pub(super) served: bool,
    /// How it is counted among those that are let in.
    admitted: Option<Admitted>,
}

impl Ticket {
    pub(super) fn begin(plane: &Arc<DataPlane>) -> Self {
        Self {
            number: worker::with(|worker| worker.begin_connection(plane)),
            plane: plane.clone(),
            phase: Phase::Starting,
            served: false,
            admitted: None,
        }
    }

    pub(super) fn connection(self, stream: Stream, mut arrival: Arrival) -> Connection {
        arrival.write_usual_forwarded();
        // A client that connects and says nothing gets as long as one that stops in the middle of a head.
        let until = Instant::now() + self.plane.settings.header_timeout;
        Connection::new(
            self.plane.clone(),
            Some(self),
            stream,
            Arc::new(arrival),
            until,
        )
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(admitted) = self.admitted.take() {
            self.plane.admission.leave(admitted);
        }
        worker::with(|worker| {
            worker.count_phase(&self.plane, &mut self.phase, Phase::Starting);
            if std::thread::panicking() {
                // The request that it happened in got as far as this; the log has the rest.
                worker.counters(&self.plane).requests.add();
            }
            worker.end_connection(self.number, &self.plane);
        });
    }
}

/// Reads the PROXY header, without which nothing else is read. A malformed one ends the connection, as in nginx.
async fn serve_proxied(
    ticket: Ticket,
    server: Server,
    mut stream: TcpStream,
    mut arrival: Arrival,
) {
    let limit = ticket.plane.settings.header_timeout;
    let header = match timeout(limit, take_proxy_header(&mut stream)).await {
        Ok(Ok(header)) => header,
        Ok(Err(error)) => {
            tracing::debug!(peer = %arrival.peer, "connection closed: {error}");
            return;
        }
        Err(_) => return,
    };
    arrival.told = header.addresses.map(|addresses| addresses.source);
    // Boxed: rare, and every connection of such a listener would be larger by a handshake.
    match server.tls {
        None if server.http2 => Box::pin(serve_either(ticket, stream, arrival)).await,
        None => ticket.connection(Stream::Tcp(stream), arrival).run().await,
        Some(tls) => Box::pin(serve_tls(ticket, tls, stream, arrival)).await,
    }
}

async fn serve_tls(ticket: Ticket, tls: ServerTls, stream: TcpStream, mut arrival: Arrival) {
    let end = Instant::now() + ticket.plane.settings.header_timeout;
    let Ok(Ok(first)) = timeout_at(end, first_byte(&stream)).await else {
        return;
    };
    if first.is_ascii_alphabetic() {
        // No TLS begins with a letter, every request does. Boxed: rare.
        let connection = ticket.connection(Stream::Tcp(stream), arrival);
        return Box::pin(connection.refuse_plain_http()).await;
    }
    let Ok(Ok(stream)) = timeout_at(end, tls.accept(stream)).await else {
        return;
    };
    arrival.scheme = Scheme::Https;
    let session = stream.get_ref().1;
    arrival.sni = session.server_name().map(Box::from);
    let http2 = session.alpn_protocol() == Some(net::http2::ALPN);
    let stream = Stream::Tls(Box::new(stream.into()));
    if http2 {
        // Boxed: the task of an HTTP/1.1 connection would be larger by it.
        return Box::pin(serve_http2(ticket, stream, Vec::new(), arrival)).await;
    }
    ticket.connection(stream, arrival).run().await;
}

/// The task of a connection, to be measured or fuzzed.
#[cfg(any(test, feature = "memory"))]
pub(super) fn connection_over(
    plane: &Arc<DataPlane>,
    stream: Stream,
) -> impl Future<Output = ()> + use<> {
    let (ticket, arrival) = ticket_over(plane);
    ticket.connection(stream, arrival).run()
}

#[cfg(any(test, feature = "memory"))]
pub(super) fn ticket_over(plane: &Arc<DataPlane>) -> (Ticket, Arrival) {
    let arrival = Arrival {
        peer: SocketAddr::from(([127, 0, 0, 1], 1)),
        port: 1,
        local: OnceLock::new(),
        scheme: Scheme::Http,
        http2: false,
        sni: None,
        told: None,
        forwarded: Box::default(),
    };
    (Ticket::begin(plane), arrival)
}
