//! Bytes both ways between a client and an upstream until both have ended. Each direction is as fast as its receiver and holds at
//! most one read; a relay without traffic holds none. The end of one side is passed on and the other may go on, where nginx ends both
//! (`proxy_half_close`): a client that says all and then waits for the answer gets it.

use crate::balance::Stay;
use crate::session::tunnel::{Counted, Direction, Flow};
use crate::session::worker::{self, Worker};
use net::deadline::Deadline;
use net::outgoing::Outgoing;
use net::pool;
use net::stream::Stream;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

pub(super) struct Relay {
    client: Stream,
    upstream: Box<pool::Connection>,
    client_out: Outgoing,
    upstream_out: Outgoing,
    up: Flow,
    down: Flow,
    /// Without a byte either way: the service's `read_timeout`.
    idle: Duration,
    deadline: Deadline,
    moved: Moved,
    /// Counts it at its peer.
    _stay: Option<Stay>,
}

/// Bytes that have passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl Relay {
    pub(super) fn new(
        client: Stream,
        upstream: Box<pool::Connection>,
        idle: Duration,
        stay: Option<Stay>,
    ) -> Self {
        Self {
            client,
            upstream,
            client_out: Outgoing::default(),
            upstream_out: Outgoing::default(),
            up: Flow::Open,
            down: Flow::Open,
            idle,
            deadline: Deadline::new(Instant::now() + idle),
            moved: Moved::default(),
            _stay: stay,
        }
    }

    /// Until both sides have ended, nothing moves for too long, or the worker goes.
    pub(super) async fn run(mut self) -> Moved {
        let (_counted, end) = Counted::begin();
        let mut end = pin!(end.notified());
        poll_fn(|cx| {
            if Pin::as_mut(&mut end).poll(cx).is_ready() {
                return Poll::Ready(());
            }
            worker::with(|worker| self.poll(cx, worker))
        })
        .await;
        self.moved
    }

    fn poll(&mut self, cx: &mut Context<'_>, worker: &mut Worker) -> Poll<()> {
        let mut upward = Direction {
            flow: &mut self.up,
            back: &mut self.down,
            from: &mut self.client,
            to: &mut self.upstream.stream,
            out: &mut self.upstream_out,
        };
        let from_client = upward.pump(cx, &mut worker.read);
        let mut downward = Direction {
            flow: &mut self.down,
            back: &mut self.up,
            from: &mut self.upstream.stream,
            to: &mut self.client,
            out: &mut self.client_out,
        };
        let from_upstream = downward.pump(cx, &mut worker.read);
        self.moved.received += from_client.read;
        self.moved.sent += from_upstream.read;
        if self.up == Flow::Ended && self.down == Flow::Ended {
            return Poll::Ready(());
        }
        if from_client.moved || from_upstream.moved {
            self.deadline.set(Instant::now() + self.idle);
        }
        self.deadline.poll_passed(cx)
    }
}
