//! A client's connection and the requests on it. `Connection::serve_request` is the life of a request; each of its
//! phases is a function in one of the files here.
//!
//! Not here: how bytes become heads (`net::http1`), what heads say (`forward`, `forward_response`, `respond`), and what a
//! configuration means (`snapshot`). A stream of an HTTP/2 connection is a connection here like any other (`http2`).

mod access;
mod admission;
mod answer;
mod connect;
pub(crate) mod date;
mod exchange;
mod failure;
mod filtering;
mod hashing;
mod http2;
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
mod tries;
mod tunnel;
mod worker;

pub use admission::{ConnectionLimits, UpstreamLimits};
pub use pace::MinRate;
pub use plane::{DataPlane, Settings, Totals};
pub use real_ip::{RealIp, Source};
pub use server::{Entrances, Stop, serve};

use crate::forward::usual_forwarded;
use net::deadline::Deadline;
use net::outgoing::Outgoing;
use net::stream::Stream;
use opening::Opening;
use pace::Pace;
use plugin::{Latencies, LogEntry, Phases, RequestCx, Scheme};
use request_body::BodyShare;
use routing::Routed;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tries::Tries;
use tunnel::Tunnel;
use worker::Reusable;

/// A client's connection. Between requests it owns no buffer.
struct Connection {
    plane: Arc<DataPlane>,
    stream: Stream,
    arrival: Arc<Arrival>,
    /// None: a stream of an HTTP/2 connection, which has one of its own.
    ticket: Option<server::Ticket>,
    /// Read, and not used yet: the beginning of a head, of a body, or the next request.
    carry: Vec<u8>,
    out: Outgoing,
    /// Bytes of the current request so far.
    received: u64,
    /// Of the bytes sent for it, how many were heads.
    head_size: u64,
    tries: Tries,
    /// How many there were, the current one included.
    requests: u32,
    /// For what `out` holds of an answer that was read ahead of the client.
    ahead: BodyShare,
    deadline: Deadline,
    /// The time as last looked at. Looking costs as much as a header line, so it is done where time may have passed.
    now: Instant,
    /// `100 Continue` has been dealt with.
    continued: bool,
    request_body: RequestBodyAt,
    /// What the connection becomes after the current request.
    tunnel: Option<Box<Tunnel>>,
}

/// Where the body of the current request is, which decides whether another request can follow on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestBodyAt {
    /// As it came: what has come of it is at the beginning of `carry`.
    Carry,
    /// Taken out of `carry`, whole.
    Memory,
    /// Partly sent to an upstream: where the next request begins is not known.
    Streaming,
}

/// How a connection came in.
#[derive(Debug, Clone)]
struct Arrival {
    peer: SocketAddr,
    /// The listener's, mapped by `port_maps`.
    port: u16,
    /// The address that the client has reached: the listener's, or asked of the connection when a route asks for it.
    local: OnceLock<IpAddr>,
    scheme: Scheme,
    /// The client speaks HTTP/2, and this is one of its streams.
    http2: bool,
    sni: Option<Box<str>>,
    /// The client, as a load balancer tells it by the PROXY protocol.
    told: Option<SocketAddr>,
    /// The forwarding headers as most requests of this connection have them, written once.
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

/// What becomes of the connection after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Next,
    /// Close when everything is sent.
    Close,
    /// Close when everything is sent, and take in what the client still sends, or it would lose the answer.
    Linger,
    /// Nothing more can be said.
    Abort,
}

/// How a request was dealt with.
struct Outcome {
    status: u16,
    /// Of the upstream's answer.
    upstream_status: Option<u16>,
    after: After,
    /// When the last upstream was contacted and when the head of an answer was there, if one was contacted.
    upstream: Option<(Instant, Instant)>,
}

impl Connection {
    /// `until` is when a client must have begun its first request.
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

    /// Not an `async fn`, which would hold the connection twice, as its argument and as a variable of it.
    #[expect(clippy::manual_async_fn)]
    fn run(mut self) -> impl Future<Output = ()> {
        async move {
            // Counted once per connection: what requests borrow of these outlives their hold on the connection.
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

    /// Life of a request: receive its head, open it (id, client, host), find its route, answer it or pass it to the
    /// upstream ([`Self::dispatch`]), send what is left of the answer, log.
    async fn serve_request(&mut self, plane: &DataPlane, arrival: &Arrival) -> After {
        let head = match self.receive_head().await {
            Ok(head) => head,
            Err(reason) => return self.refuse(reason).await,
        };
        if let Some(ticket) = &mut self.ticket {
            ticket.served = true;
        }
        let view = worker::with(|worker| worker.view(plane));
        let opening = Opening::new(self, &head, arrival);
        let client = opening.client();
        let mut routed = Routed::find(&view.snapshot, &head, arrival, client, &self.stream);
        let captures = routed.captures();
        let plan = routed.plan(&view.snapshot);
        // What plugins fill takes longer to move than a request without any would spend on it.
        let mut memory = match plan.is_empty() {
            true => Reusable::default(),
            false => worker::with(|worker| worker.reusable()),
        };
        let mut cx = RequestCx {
            head: &head,
            client,
            scheme: arrival.scheme,
            http2: arrival.http2,
            host: &opening.host,
            port: arrival.port,
            request_id: opening.request_id(),
            route: routed.route(&view.snapshot).map(|route| route.as_ref()),
            service: routed
                .service(&view.snapshot)
                .map(|service| service.as_ref()),
            captures: &captures,
            body: plugin::RequestBody::Unread,
            lookup: &*plane.lookup,
            consumer: None,
            credential: None,
            upstream: std::mem::take(&mut memory.edits),
        };
        let outcome = self
            .dispatch(
                &view.snapshot,
                &opening,
                &routed,
                &mut cx,
                &mut memory.picked,
            )
            .await;
        if let Some(tunnel) = self.tunnel.take() {
            self.run_tunnel(tunnel).await;
        }
        let after = self.finish(outcome.after).await;
        if plan.has(Phases::LOG) || plane.settings.access_log.is_some() {
            let entry = self.log_entry(&cx, &opening, &outcome);
            if plan.has(Phases::LOG) {
                memory.picked.log(view.snapshot.instances(), &entry);
            }
            self.log_access(&entry);
        }
        if !plan.is_empty() {
            memory.edits = std::mem::take(&mut cx.upstream);
            worker::with(|worker| worker.give_reusable(memory));
        }
        drop(cx);
        worker::with(|worker| {
            worker.give_buffer(std::mem::take(&mut routed.uri));
            worker.counters(plane).requests.add();
        });
        after
    }

    fn log_entry<'r>(
        &'r self,
        cx: &'r RequestCx<'r>,
        opening: &Opening<'_>,
        outcome: &Outcome,
    ) -> LogEntry<'r> {
        let now = Instant::now();
        let took = now - opening.started;
        let (contacted, headed) = match outcome.upstream {
            Some((contacted, headed)) => (Some(contacted), headed),
            None => (None, now),
        };
        LogEntry {
            request: cx,
            status: outcome.status,
            upstream_status: outcome.upstream_status,
            started_at: SystemTime::now() - took,
            latencies: Latencies {
                request: took,
                gateway: contacted.unwrap_or(now) - opening.started,
                upstream: contacted.map(|contacted| headed - contacted),
                receive: now - headed,
            },
            tries: self.tries.made(),
            request_size: self.received,
            response_size: self.out.sent(),
        }
    }

    /// Whether the connection may carry another request. A stream's may, which does not stand for its connection.
    #[inline]
    fn may_go_on(&self) -> bool {
        let most = self.plane.settings.max_requests;
        most == 0 || self.requests < most || self.ticket.is_none()
    }

    /// Waits until the client has taken the answer, and sets the limit for its next request.
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

    /// Sends what is waiting, as long as the client takes any.
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

    /// Ends our side; with [`After::Linger`], lets the client finish its own first: bytes that nobody reads make the
    /// system reset the connection, and the answer would be lost with it.
    async fn close(&mut self, after: After) {
        if poll_fn(|cx| self.stream.poll_shutdown(cx)).await.is_err() || after != After::Linger {
            return;
        }
        /// How much more a client may send, and for how long.
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
}
