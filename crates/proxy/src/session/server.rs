//! One worker: its listeners, their connections, and its shutdown.

use super::admission::Admitted;
use super::handshake::{Caller, HandshakeError, count_handshake, handshake, is_held, tls_info};
use super::http2::{serve_either, serve_http2};
use super::plane::DataPlane;
use super::stream::{serve_datagrams, serve_stream};
use super::worker::{self, Phase, Which, Worker};
use super::{Arrival, Connection};
use net::listen::{Keepalive, Listen, accept_loop, accept_queued, is_out_of_descriptors};
use net::peek::{first_byte, take_proxy_header};
use net::stream::Stream;
use net::tls::{ServerTls, ServerTlsStream};
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

/// Orders to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Serve,
    /// Keep serving, but close every connection with its next response. Used before a shutdown, while load balancers
    /// are being informed.
    Announce,
    /// Accept no more connections, close idle ones at once, let requests finish within this time, then stop.
    Drain(Duration),
    /// Stop after another process has taken over the listeners. Connections without a request stay until their next
    /// response or their idle limit. `None` sets no time limit.
    HandOver(Option<Duration>),
}

/// Interval of the worker's regular cleanup.
const TIDY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time for the first request of a connection that was opened just before a drain.
const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// The listeners of a worker, by their use.
pub struct Entrances {
    /// HTTP listeners (`proxy_listen`).
    pub http: Vec<(Listen, std::net::TcpListener)>,
    pub http_tls: ServerTls,
    /// TCP listeners (`stream_listen`).
    pub streams: Vec<(Listen, std::net::TcpListener)>,
    pub stream_tls: ServerTls,
    /// UDP listeners (`stream_listen` with `udp`).
    pub datagrams: Vec<(Listen, std::net::UdpSocket)>,
}

/// Serves listeners on the current thread until ordered to stop, and then drains their connections. `number` is this
/// worker's index in the plane. Must run on a current-thread runtime of its own.
pub async fn serve(
    plane: Arc<DataPlane>,
    number: usize,
    entrances: Entrances,
    stop: watch::Receiver<Stop>,
) -> io::Result<()> {
    let bell = worker::with(|worker| worker.set_up(&plane, number));
    let mut doors = Doors::open(&plane, entrances)?;
    worker::with(|worker| worker.look(&plane));
    let handle = tokio::runtime::Handle::current();
    let _registration = plane.node.workers.register(number, handle);
    plane.pulses[number].here();
    plane.init_worker(number);
    let _serving = plane.counters(number).serving();
    serve_on(&plane, &mut doors, stop, &bell).await;
    worker::with(|worker| worker.end_journals());
    Ok(())
}

/// Runs until the last connection has closed.
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
                worker::with(|worker| worker.is_ending = true);
                abort(worker::with(|worker| worker.connections.handles(Which::All)));
                // Aborted tasks are dropped when the runtime gets to them. They write their logs then.
                settle(|worker| worker.connections.count() == 0).await;
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
        // The sender of orders is gone.
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

/// The progress of a worker's shutdown.
#[derive(Default)]
struct Ending {
    /// Whether the worker accepts no more connections.
    has_begun: bool,
    /// When connections that still wait for a request are closed.
    idle_until: Option<Instant>,
    /// When all connections are closed.
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

    /// Closes the listeners. Before that, accepts the connections that are already queued, because closing would reset
    /// them. If another process shares a listener, clients notice nothing.
    async fn close(&mut self) {
        self.accepting.shutdown().await;
        for (listener, server) in self.listeners.drain(..) {
            accept_queued(&listener, server.keepalive, |stream, peer| {
                server.start_guarded(stream, peer);
            });
        }
    }
}

/// Ends all tunnels, because they might never end by themselves. They end gracefully, so that they are logged.
async fn end_tunnels() {
    worker::with(|worker| worker.end_tunnels());
    settle(|worker| worker.tunnels == 0).await;
}

/// Lets other tasks run until nothing is left of what has been ended, at most for [`LAST_MOMENT`].
async fn settle(is_over: impl Fn(&Worker) -> bool) {
    let waiting = async {
        while !worker::with(|worker| is_over(worker)) {
            yield_now().await;
        }
    };
    let _ = timeout(LAST_MOMENT, waiting).await;
}

/// Maximum time for connections and tunnels to end that were told to.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Returns the port that clients connect to: the listener's port, mapped by `port_maps`.
fn public_port(plane: &DataPlane, listen: &Listen, port: u16) -> u16 {
    let maps = &plane.settings.port_maps;
    maps.get(&listen.address.port()).copied().unwrap_or(port)
}

/// The kind of traffic that a listener accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Http,
    Stream,
}

/// The settings of a listener that its connections need.
#[derive(Clone)]
pub(super) struct Server {
    purpose: Use,
    pub(super) plane: Arc<DataPlane>,
    pub(super) tls: Option<ServerTls>,
    /// Whether connections begin with a PROXY protocol header.
    pub(super) proxy_protocol: bool,
    keepalive: Keepalive,
    http2: bool,
    pub(super) port: u16,
    /// `None` if the listener accepts on every address.
    local: Option<IpAddr>,
}

impl Server {
    /// Starts a connection. A panic closes only this connection and not the listener.
    fn start_guarded(&self, stream: TcpStream, peer: SocketAddr) {
        // A panic may leave the list of connections inconsistent. Dropping the ticket repairs the list.
        let _ = catch_unwind(AssertUnwindSafe(|| self.start(stream, peer)));
    }

    /// Counts a failed accept, and closes idle upstream connections if descriptors ran out.
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
        // Closing is the cheapest way to refuse a connection.
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
            tls: None,
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

/// A counted connection. Dropping the ticket removes it from the counts.
pub(super) struct Ticket {
    pub(super) plane: Arc<DataPlane>,
    pub(super) number: usize,
    pub(super) phase: Phase,
    /// Whether the connection has sent a request.
    pub(super) served: bool,
    /// The connection's count against the limits, given back on drop.
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
        // A client that connects and sends nothing gets as long as one that stops in the middle of a head.
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
            worker.end_connection(self.number, &self.plane);
        });
    }
}

/// Reads the PROXY protocol header, which must come first. A malformed one closes the connection, as in nginx.
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
    arrival.told = header.client();
    // Boxed because a handshake is rare and would enlarge the task of every connection of such a listener.
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
        // A TLS handshake never begins with a letter, a request always does. Boxed because it is rare.
        let connection = ticket.connection(Stream::Tcp(stream), arrival);
        return Box::pin(connection.refuse_plain_http()).await;
    }
    let began = Instant::now();
    let shaken = timeout_at(end, shake_hands(&ticket.plane, &tls, stream, &arrival)).await;
    count_handshake(&ticket.plane, began, shaken.as_ref().ok());
    let stream = match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(peer = %arrival.peer, "connection closed: {error}");
            return;
        }
        Err(_) => return,
    };
    arrival.scheme = Scheme::Https;
    arrival.tls = Some(Box::new(tls_info(&stream)));
    let session = stream.get_ref().1;
    arrival.sni = session.server_name().map(Box::from);
    let http2 = session.alpn_protocol() == Some(net::http2::ALPN);
    let stream = Stream::Tls(Box::new(stream.into()));
    if http2 {
        // Boxed because it would enlarge the task of an HTTP/1.1 connection.
        return Box::pin(serve_http2(ticket, stream, Vec::new(), arrival)).await;
    }
    ticket.connection(stream, arrival).run().await;
}

async fn shake_hands(
    plane: &Arc<DataPlane>,
    tls: &ServerTls,
    stream: TcpStream,
    arrival: &Arrival,
) -> Result<ServerTlsStream<TcpStream>, HandshakeError> {
    let view = worker::with(|worker| worker.view(plane));
    if !is_held(&view.snapshot.globals) {
        drop(view);
        return Ok(tls.accept(stream).await?);
    }
    // The address that a PROXY header tells counts from the first request on, as in nginx.
    let caller = Caller {
        client: arrival.peer,
        peer: arrival.peer,
        port: arrival.port,
    };
    // Boxed because it would enlarge the task of every connection with TLS.
    let snapshot = &*view.snapshot;
    let plugins = snapshot.installed(&plane.node);
    Box::pin(handshake(tls, stream, &snapshot.globals, plugins, caller)).await
}

/// The task of a connection, for measuring and fuzzing.
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
        tls: None,
        told: None,
        forwarded: Box::default(),
    };
    (Ticket::begin(plane), arrival)
}
