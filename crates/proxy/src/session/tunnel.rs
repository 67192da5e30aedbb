//! A connection after a `101` response. Bytes are forwarded both ways, without parsing, until both sides have ended.
//! Each direction is as fast as its receiver and buffers at most one read. When one side ends, its end is forwarded
//! and the other direction continues. As in nginx, there is one idle limit for both directions, and one for a side that
//! does not receive the bytes queued for it.

use super::Connection;
use super::admission::GatePlace;
use super::worker::{self, Worker};
use crate::balance::Stay;
use crate::upstream::Target;
use net::outgoing::Outgoing;
use net::pool;
use net::stream::Stream;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) struct Tunnel {
    upstream: Box<pool::Connection>,
    ways: Ways,
    read_timeout: Duration,
    write_timeout: Duration,
    /// Counts the request at its target.
    _stay: Option<Stay>,
    /// Request slot at the target, held while the tunnel runs.
    _place: Option<GatePlace>,
}

/// The state of both directions between a client and an upstream.
#[derive(Default)]
pub(super) struct Ways {
    up: Flow,
    down: Flow,
    /// Bytes that the upstream has not accepted yet.
    up_out: Outgoing,
}

/// The client's side of [`Ways`].
pub(super) struct ClientSide<'t> {
    pub(super) stream: &'t mut Stream,
    /// Bytes that the client has not accepted yet.
    pub(super) out: &'t mut Outgoing,
}

/// Result of a poll of both directions.
pub(super) struct Passed {
    pub(super) moved: bool,
    /// Bytes read from the client.
    pub(super) from_client: u64,
    pub(super) from_upstream: u64,
}

impl Ways {
    /// Moves bytes until both directions have to wait.
    pub(super) fn pump(
        &mut self,
        cx: &mut Context<'_>,
        client: ClientSide<'_>,
        upstream: &mut Stream,
        buffer: &mut [u8],
    ) -> Passed {
        let mut upward = Direction {
            flow: &mut self.up,
            back: &mut self.down,
            from: client.stream,
            to: upstream,
            out: &mut self.up_out,
        };
        let from_client = upward.pump(cx, buffer);
        let mut downward = Direction {
            flow: &mut self.down,
            back: &mut self.up,
            from: upstream,
            to: client.stream,
            out: client.out,
        };
        let from_upstream = downward.pump(cx, buffer);
        Passed {
            moved: from_client.moved || from_upstream.moved,
            from_client: from_client.read,
            from_upstream: from_upstream.read,
        }
    }

    /// Number of bytes that the upstream has accepted.
    pub(super) fn sent_upstream(&self) -> u64 {
        self.up_out.sent()
    }

    pub(super) fn have_ended(&self) -> bool {
        self.up == Flow::Ended && self.down == Flow::Ended
    }
}

/// State of one direction.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Flow {
    #[default]
    Open,
    /// The source has ended. The receiver gets the remaining bytes and then the end.
    Ending,
    /// The connection to the source failed. The receiver gets the remaining bytes, but no regular end such as TLS's
    /// `close_notify`.
    Breaking,
    Ended,
}

impl Tunnel {
    /// `unsent` holds bytes that the upstream has not accepted yet.
    pub(super) fn new(
        upstream: Box<pool::Connection>,
        unsent: Outgoing,
        target: &Target,
        place: Option<GatePlace>,
    ) -> Self {
        Self {
            upstream,
            ways: Ways {
                up_out: unsent,
                ..Ways::default()
            },
            read_timeout: target.read_timeout,
            write_timeout: target.write_timeout,
            _stay: None,
            _place: place,
        }
    }

    /// Keeps the request counted at its target until the tunnel ends.
    pub(super) fn stay(&mut self, stay: Option<Stay>) {
        self._stay = stay;
    }

    /// Queues the bytes that the client sent right after its request. The upstream gets them first.
    fn begin(&mut self, client: &mut Connection) {
        client.received += client.carry.len() as u64;
        self.ways.up_out.push(&client.carry);
        client.carry = Vec::new();
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        client: &mut Connection,
    ) -> Poll<()> {
        let side = ClientSide {
            stream: &mut client.stream,
            out: &mut client.out,
        };
        let upstream = &mut self.upstream.stream;
        let passed = self.ways.pump(cx, side, upstream, &mut worker.read);
        client.received += passed.from_client;
        if self.ways.have_ended() {
            return Poll::Ready(());
        }
        if passed.moved {
            client.now = Instant::now();
            let limit = self.limit(client);
            client.deadline.set(client.now + limit);
        }
        self.poll_idle(cx, client)
    }

    /// Ready when the idle limit has passed. A part of an HTTP/2 frame that arrives also restarts the limit.
    fn poll_idle(&self, cx: &mut Context<'_>, client: &mut Connection) -> Poll<()> {
        loop {
            ready!(client.deadline.poll_passed(cx));
            let streams = [&client.stream, &self.upstream.stream];
            let partial = streams.iter().filter_map(|stream| stream.partial()).max();
            match partial {
                Some(at) if at > client.now => client.now = at,
                _ => return Poll::Ready(()),
            }
            let limit = self.limit(client);
            client.deadline.set(client.now + limit);
        }
    }

    /// Returns the time limit of the side that the tunnel waits for.
    fn limit(&self, client: &Connection) -> Duration {
        let for_upstream = (!self.ways.up_out.is_empty()).then_some(self.write_timeout);
        let for_client = (!client.out.is_empty()).then_some(client.plane.settings.send_timeout);
        let limits = for_upstream.into_iter().chain(for_client);
        limits.min().unwrap_or(self.read_timeout)
    }
}

/// One direction and everything that it uses.
struct Direction<'t> {
    flow: &'t mut Flow,
    back: &'t mut Flow,
    from: &'t mut Stream,
    to: &'t mut Stream,
    out: &'t mut Outgoing,
}

/// Result of a poll of one direction.
#[derive(Default)]
struct Pumped {
    moved: bool,
    read: u64,
}

impl Direction<'_> {
    /// Moves bytes until one of the two sides has to wait.
    fn pump(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Pumped {
        let mut pumped = Pumped::default();
        while let Poll::Ready(()) = self.step(cx, buffer, &mut pumped) {
            pumped.moved = true;
        }
        pumped
    }

    /// Makes one step. Returns `Pending` when a side has to wait, and also when the direction has ended.
    fn step(&mut self, cx: &mut Context<'_>, buffer: &mut [u8], pumped: &mut Pumped) -> Poll<()> {
        if *self.flow == Flow::Ended {
            return Poll::Pending;
        }
        if !self.out.is_empty() {
            let before = self.out.taken(self.to);
            let flushed = self.out.poll_flush(self.to, cx);
            pumped.moved |= self.out.taken(self.to) != before;
            return ready!(flushed).map_or_else(|_| self.receiver_lost(), Poll::Ready);
        }
        if *self.flow == Flow::Breaking {
            *self.flow = Flow::Ended;
            return Poll::Ready(());
        }
        if *self.flow == Flow::Ending {
            // An error only means that the receiver has already closed the connection.
            let _ = ready!(self.to.poll_shutdown(cx));
            *self.flow = Flow::Ended;
            return Poll::Ready(());
        }
        match ready!(self.from.poll_read(cx, buffer)) {
            Ok(0) => *self.flow = Flow::Ending,
            Ok(read) => {
                pumped.read += read as u64;
                if self.out.send(self.to, cx, &buffer[..read], b"").is_err() {
                    return self.receiver_lost();
                }
            }
            Err(_) => {
                // Bytes that the source sent before are still forwarded, but it can receive nothing more.
                *self.flow = Flow::Breaking;
                *self.back = Flow::Ended;
            }
        }
        Poll::Ready(())
    }

    /// Ends this direction after a write error. The other direction still forwards what the receiver has sent.
    fn receiver_lost(&mut self) -> Poll<()> {
        self.out.clear();
        *self.flow = Flow::Ended;
        Poll::Ready(())
    }
}

impl Connection {
    /// Runs a tunnel until both sides have ended, the idle limit has passed, or the worker ends its tunnels.
    pub(super) async fn run_tunnel(&mut self, tunnel: Box<Tunnel>) {
        // Boxed because a tunnel is rare and would enlarge the task of every idle connection.
        Box::pin(self.follow_tunnel(tunnel)).await;
    }

    async fn follow_tunnel(&mut self, mut tunnel: Box<Tunnel>) {
        tunnel.begin(self);
        let limit = tunnel.limit(self);
        self.deadline.set(self.now + limit);
        until_end(|cx, worker| tunnel.poll(cx, worker, self)).await;
        self.out.clear();
    }
}

/// Polls until `poll` is ready or the worker ends its tunnels. Meanwhile the worker counts one more tunnel.
pub(super) async fn until_end(mut poll: impl FnMut(&mut Context<'_>, &mut Worker) -> Poll<()>) {
    let (_counted, end) = Counted::begin();
    let mut end = pin!(end.notified());
    poll_fn(|cx| {
        if Pin::as_mut(&mut end).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        worker::with(|worker| poll(cx, worker))
    })
    .await;
}

/// A tunnel that the worker counts, until this is dropped. It is dropped even if the task is aborted.
struct Counted;

impl Counted {
    /// Counts a tunnel, and returns the signal for tunnels to end.
    fn begin() -> (Self, Arc<Notify>) {
        worker::with(|worker| {
            worker.tunnels += 1;
            (Self, worker.tunnels_end.clone())
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        worker::with(|worker| worker.tunnels -= 1);
    }
}
