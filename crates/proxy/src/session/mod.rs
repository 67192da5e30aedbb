//! A client connection and the requests on it. `Connection::serve_request` handles one request from its head to its log
//! line; each phase is a function in one of the files here.
//!
//! Other modules parse heads (`net::http1`), interpret them (`forward`, `forward_response`, `respond`) and give the
//! configuration its meaning (`snapshot`). Each stream of an HTTP/2 connection is a `Connection` of its own (`http2`).

mod admission;
mod answer;
mod collected;
mod connect;
mod counts;
pub(crate) mod date;
mod debugging;
mod exchange;
mod exposed;
mod failure;
mod filtering;
mod form;
mod going_on;
mod handling;
mod handshake;
mod hashing;
mod http2;
mod log_entries;
#[cfg(feature = "memory")]
pub mod memory;
mod multiplex;
mod opening;
mod pace;
mod plane;
mod proxying;
mod real_ip;
mod receive;
mod request_body;
mod routing;
mod server;
mod stream;
#[cfg(test)]
mod tests;
mod times;
mod tries;
mod tunnel;
mod watchdog;
mod worker;

pub use admission::{ConnectionLimits, UpstreamLimits};
pub use pace::MinRate;
pub use plane::{DataPlane, PLUGIN_BODY, SessionSettings, Totals};
pub use real_ip::{RealIp, Source};
pub use server::{Entrances, Stop, serve};
pub use watchdog::{Watchdog, WorkerTime};

use crate::forward::usual_forwarded;
use crate::plugins::SentHead;
use bytes::Bytes;
use handling::Handling;
use net::deadline::Deadline;
use net::outgoing::Outgoing;
use net::stream::Stream;
use opening::Opening;
use pace::Pace;
use plugin::{Latencies, LogEntry, Origin, Phases, Reason, Request, Scheme, TlsInfo};
use request_body::BodyShare;
use routing::Routed;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;
use tries::Tries;
use tunnel::Tunnel;

/// A client connection. It owns no buffer between requests.
struct Connection {
    plane: Arc<DataPlane>,
    stream: Stream,
    arrival: Arc<Arrival>,
    /// `None` for a stream of an HTTP/2 connection: the HTTP/2 connection owns the ticket.
    ticket: Option<server::Ticket>,
    /// Bytes that were read and not used yet: the start of a head, of a body, or of the next request.
    carry: Vec<u8>,
    out: Outgoing,
    /// Bytes of the current request received so far.
    received: u64,
    /// Bytes of response heads among the bytes sent for the current request.
    head_size: u64,
    tries: Tries,
    /// Number of requests on this connection, the current one included.
    requests: u32,
    /// Memory accounted for response bytes in `out` that were read ahead of a slow client.
    ahead: BodyShare,
    deadline: Deadline,
    /// Time when the clock was last read. Reading it costs as much as a header line, so it is read only where time may
    /// have passed.
    now: Instant,
    /// Whether `100 Continue` has been sent or is not needed.
    continued: bool,
    request_body: RequestBodyAt,
    /// Tunnel that takes over the connection after the current request.
    tunnel: Option<Box<Tunnel>>,
}

/// The place of the current request's body. This decides whether another request can follow on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestBodyAt {
    /// Unread: the part that has arrived is at the start of `carry`.
    Carry,
    /// Completely read, and removed from `carry`.
    Memory,
    /// Partly sent to an upstream, so the start of the next request is not known.
    Streaming,
}

/// The origin of a connection: its addresses, protocol and server name.
#[derive(Debug, Clone)]
struct Arrival {
    peer: SocketAddr,
    /// Port of the listener, mapped by `port_maps`.
    port: u16,
    /// Address that the client connected to: the listener's, or read from the socket when a route first needs it.
    local: OnceLock<IpAddr>,
    scheme: Scheme,
    /// Whether the client speaks HTTP/2. All streams of a connection share one `Arrival`.
    http2: bool,
    sni: Option<Box<str>>,
    /// Boxed, because most connections have none.
    tls: Option<Box<TlsInfo>>,
    /// Client address that a load balancer sent in a PROXY protocol header.
    told: Option<SocketAddr>,
    /// The forwarding headers that most requests of this connection get, written once.
    forwarded: Box<[u8]>,
}

impl Arrival {
    fn write_usual_forwarded(&mut self) {
        let usual = usual_forwarded(self.peer.ip(), self.scheme, self.port, self.http2);
        self.forwarded = usual.into();
    }

    fn local(&self, stream: &Stream) -> Option<IpAddr> {
        if let Some(known) = self.local.get() {
            return Some(*known);
        }
        let address = stream.local_addr()?.ip().to_canonical();
        Some(*self.local.get_or_init(|| address))
    }
}

/// The next step for the connection after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Next,
    /// Close once everything is sent.
    Close,
    /// Close once everything is sent, and read what the client still sends. Unread bytes could make the client lose the
    /// response.
    Linger,
    /// Close at once: nothing more can be sent.
    Abort,
}

/// The result of handling a request.
struct Outcome {
    status: u16,
    origin: Origin,
    /// Status of the upstream's response. Of a type that needs little memory.
    upstream_status: Option<NonZeroU16>,
    /// Why the response is not an upstream's complete one.
    reason: Option<Reason>,
    after: After,
    /// When the last upstream was contacted and when its response head arrived, if one was contacted. For a response that
    /// counts as the upstream's, as that of a cache, both are its time.
    upstream: Option<(Instant, Instant)>,
    /// The pieces of the response's body that are still to be sent.
    pieces: Vec<Bytes>,
    /// The upstream's whole body, if the response was read into memory. Boxed because it is rare.
    whole: Option<Box<WholeBody>>,
}

/// A response's body in memory. It is given back when the response was sent and logged.
struct WholeBody {
    bytes: Bytes,
    _share: BodyShare,
}

impl Connection {
    /// `until` is the time by which a client must have begun its first request.
    fn new(
        plane: Arc<DataPlane>,
        ticket: Option<server::Ticket>,
        stream: Stream,
        arrival: Arc<Arrival>,
        until: Instant,
    ) -> Self {
        let now = Instant::now();
        Self {
            ahead: BodyShare::none(&plane),
            plane,
            ticket,
            stream,
            arrival,
            carry: Vec::new(),
            out: Outgoing::default(),
            received: 0,
            head_size: 0,
            tries: Tries::new(now),
            requests: 0,
            deadline: Deadline::new(until),
            now,
            continued: false,
            request_body: RequestBodyAt::Carry,
            tunnel: None,
        }
    }

    /// This is not an `async fn`, because that would store the connection twice: as its argument and as a local
    /// variable.
    #[expect(clippy::manual_async_fn)]
    fn run(mut self) -> impl Future<Output = ()> {
        async move {
            // Cloned once per connection, so that a request can borrow the clones and borrow `self` mutably.
            let (plane, arrival) = (self.plane.clone(), self.arrival.clone());
            loop {
                let after = self.serve_request(&plane, &arrival).await;
                match after {
                    After::Next => {}
                    After::Close | After::Linger => return self.close(after).await,
                    After::Abort => return,
                }
            }
        }
    }

    /// Handles one request: receives its head, opens it (id, client, host), finds its route, responds or forwards it to
    /// the upstream ([`Self::dispatch`]), sends the rest of the response, and logs.
    async fn serve_request(&mut self, plane: &DataPlane, arrival: &Arrival) -> After {
        let head = match self.receive_head().await {
            Ok(head) => head,
            Err(reason) => return self.refuse(reason).await,
        };
        if let Some(ticket) = &mut self.ticket {
            ticket.served = true;
        }
        let (view, counters) = worker::with(|worker| (worker.view(plane), worker.counters(plane)));
        let snapshot = &*view.snapshot;
        let opening = Opening::new(self, &head, arrival);
        let mut handling = Handling::new(opening.request(&head), snapshot, plane, counters);
        if head.asks_for_timings() {
            handling.begin_debug(plane);
        }
        let access_log = plane.settings.access_log.as_ref();
        if access_log.is_some_and(|log| log.reads_sent_head) {
            handling.use_memory();
            handling.chain.ask_for_sent_head();
        }
        let mut outcome = loop {
            let outcome = 'request: {
                if snapshot.globals.has(Phases::REWRITE) {
                    // Boxed because it is rare, and would enlarge the task of every connection. So would its result in
                    // a variable, which would last until the end of the request.
                    let rewritten = self.rewrite(&snapshot.globals, &opening, &mut handling);
                    if let Some(outcome) = Box::pin(rewritten).await {
                        break 'request outcome;
                    }
                }
                let routed = Routed::find(snapshot, &mut handling.request, arrival, &self.stream);
                handling.chain.set_route(routed.index());
                let request = &mut handling.request;
                let route = routed.route(snapshot);
                request.route = route.map(|route| route.as_ref());
                request.route_path = route.map_or("", |route| &route.path);
                request.slot = route.map(|route| &route.slot);
                request.service = routed.service(snapshot).map(|service| service.as_ref());
                self.dispatch(snapshot, &opening, &routed, &mut handling)
                    .await
            };
            if !std::mem::take(&mut handling.restarts) {
                break outcome;
            }
        };
        handling.body_share = None;
        if let Some(tunnel) = self.tunnel.take() {
            self.run_tunnel(tunnel).await;
        }
        let after = self.finish_pieces(&outcome).await;
        if after == After::Abort && outcome.after != After::Abort {
            outcome.reason.get_or_insert(Reason::ClientGone);
        }
        let has_log = handling.chain.has(Phases::LOG) || plane.settings.access_log.is_some();
        if has_log {
            // Filters and the client have taken time since the clock was read last.
            self.now = Instant::now();
        }
        handling.is_logged = true;
        let latencies = self.latencies(&opening, &outcome);
        self.count(&handling, &latencies, &outcome);
        if has_log {
            let Handling { request, chain, .. } = &mut handling;
            let sent_head = chain.take_sent_head();
            let entry = self.log_entry(request, &opening, latencies, &outcome, &sent_head);
            chain.log(request, &entry);
            self.log_access(request, chain.state(), &entry, chain.answered_by());
            chain.give_sent_head(sent_head);
        }
        if head.asks_for_timings() {
            handling.end_debug();
        }
        let rest = handling.take_rest();
        handling.give_memory();
        if let Some(rest) = rest {
            drop(handling);
            self.go_on(head, view, rest);
        }
        after
    }

    /// The times of a finished request, up to the last time that the clock was read for it.
    #[inline]
    fn latencies(&self, opening: &Opening<'_>, outcome: &Outcome) -> Latencies {
        let request = self.now - opening.started;
        match outcome.upstream {
            None => Latencies {
                request,
                gateway: request,
                upstream: None,
                receive: Duration::ZERO,
            },
            Some((contacted, headed)) => {
                let (contacted, headed) = (contacted - opening.started, headed - opening.started);
                Latencies {
                    request,
                    gateway: contacted,
                    upstream: Some(headed.saturating_sub(contacted)),
                    receive: request.saturating_sub(headed),
                }
            }
        }
    }

    /// Counts a finished request.
    #[inline]
    fn count(&self, handling: &Handling<'_>, latencies: &Latencies, outcome: &Outcome) {
        let counters = handling.counters;
        counters.count_request(outcome.status, latencies.request, outcome.reason);
        if let (Some(upstream), Some(_)) = (latencies.upstream, outcome.upstream_status) {
            counters.first_byte_times.observe(upstream);
        }
        if let Some(plugin) = handling.chain.answerer() {
            counters.count_plugin_answer(plugin, outcome.status);
        }
    }

    fn log_entry<'r>(
        &'r self,
        request: &'r Request<'_>,
        opening: &Opening<'_>,
        latencies: Latencies,
        outcome: &'r Outcome,
        sent_head: &'r SentHead,
    ) -> LogEntry<'r> {
        LogEntry {
            status: outcome.status,
            origin: outcome.origin,
            reason: outcome.reason,
            upstream_status: outcome.upstream_status.map(NonZeroU16::get),
            started_at: worker::with(|worker| worker.date.wall_time(opening.started, self.now)),
            latencies,
            tries: self.tries.made(),
            request_size: self.received,
            response_size: self.out.sent(),
            response_head: &sent_head.bytes,
            response_head_size: sent_head.size,
            upstream_path: request.upstream_path(),
            upstream_body: outcome.whole.as_deref().map(|whole| &whole.bytes),
        }
    }

    /// Whether the connection may carry another request. `max_requests` does not apply to a stream of an HTTP/2
    /// connection.
    #[inline]
    fn may_go_on(&self) -> bool {
        let most = self.plane.settings.max_requests;
        most == 0 || self.requests < most || self.ticket.is_none()
    }

    /// Sends the remaining pieces of the response, each when the client has received the one before, and finishes.
    async fn finish_pieces(&mut self, outcome: &Outcome) -> After {
        for piece in &outcome.pieces {
            if self.flush().await.is_err() {
                return self.finish(After::Abort).await;
            }
            self.now = Instant::now();
            self.out.push(piece);
        }
        self.finish(outcome.after).await
    }

    /// Waits until the whole response is sent, and sets the time limit for the client's next request.
    async fn finish(&mut self, after: After) -> After {
        if !self.out.is_empty() && after != After::Abort && self.flush().await.is_err() {
            return After::Abort;
        }
        self.ahead.release();
        let limit = match &self.ticket {
            Some(_) => self.plane.settings.idle_timeout,
            None => http2::SESSION_IDLE,
        };
        self.deadline.set(self.now + limit);
        after
    }

    /// Sends the waiting bytes. Fails with a timeout if the client stops receiving or receives too slowly.
    async fn flush(&mut self) -> std::io::Result<()> {
        let limit = self.plane.settings.send_timeout;
        let rate = self.plane.settings.min_rate;
        let mut taken = self.out.taken(&self.stream);
        let pace = Pace::new(self.now, taken);
        poll_fn(|cx| {
            let flushed = self.out.poll_flush(&mut self.stream, cx);
            if flushed.is_ready() {
                return flushed;
            }
            if self.out.taken(&self.stream) != taken {
                taken = self.out.taken(&self.stream);
                self.now = Instant::now();
            }
            let due = self.now + limit;
            let too_slow = pace.due(taken, rate);
            self.deadline
                .set(too_slow.map_or(due, |too_slow| too_slow.min(due)));
            let timed_out = || Err(std::io::ErrorKind::TimedOut.into());
            self.deadline.poll_passed(cx).map(|()| timed_out())
        })
        .await
    }

    /// Closes our side of the connection. With [`After::Linger`], first lets the client finish its side: unread bytes
    /// would make the system reset the connection, and the client would lose the response.
    async fn close(&mut self, after: After) {
        if self.shut_down().await.is_err() || after != After::Linger {
            return;
        }
        /// Maximum bytes that the client may still send.
        const LINGER_BYTES: usize = 4 * 1024 * 1024;
        const LINGER_TIME: Duration = Duration::from_secs(5);
        self.deadline.set(Instant::now() + LINGER_TIME);
        let mut taken = 0;
        poll_fn(|cx| {
            loop {
                let read = worker::with(|worker| self.stream.poll_read(cx, &mut worker.read));
                match read {
                    Poll::Ready(Ok(read)) if read > 0 && taken < LINGER_BYTES => taken += read,
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return self.deadline.poll_passed(cx),
                }
            }
        })
        .await;
    }

    /// Ends our side of the connection. Over TLS this sends `close_notify`, so it fails with a timeout if the client
    /// has stopped receiving.
    async fn shut_down(&mut self) -> std::io::Result<()> {
        let limit = self.plane.settings.send_timeout;
        self.deadline.set(Instant::now() + limit);
        poll_fn(|cx| match self.stream.poll_shutdown(cx) {
            Poll::Pending => {
                let timed_out = || Err(std::io::ErrorKind::TimedOut.into());
                self.deadline.poll_passed(cx).map(|()| timed_out())
            }
            ended => ended,
        })
        .await
    }
}
