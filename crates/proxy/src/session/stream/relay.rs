//! Forwards bytes in both directions between a client and an upstream until both have ended. Each direction is as fast
//! as its receiver and holds at most one read; an idle relay holds none. When one side ends, the other may continue, so
//! that a client that half-closes gets its response. nginx closes both sides unless `proxy_half_close` is on.

use super::record::Moved;
use crate::balance::Stay;
use crate::session::tunnel::{ClientSide, Ways, until_end};
use crate::session::worker::{self, Worker};
use net::deadline::Deadline;
use net::outgoing::Outgoing;
use net::pool;
use net::stream::Stream;
use plugin::Reason;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

pub(super) struct Relay {
    client: Stream,
    client_out: Outgoing,
    upstream: Box<pool::Connection>,
    ways: Ways,
    /// Maximum time without a byte in either direction: the service's `read_timeout`.
    idle: Duration,
    deadline: Deadline,
    /// Counts the connection at its target.
    _stay: Option<Stay>,
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
            client_out: Outgoing::default(),
            upstream,
            ways: Ways::default(),
            idle,
            deadline: Deadline::new(Instant::now() + idle),
            _stay: stay,
        }
    }

    /// Runs until both sides have ended, the idle limit expires, or the worker stops. Counts the bytes in `moved`. Returns
    /// the reason if the gateway has ended it.
    pub(super) async fn run(mut self, moved: &mut Moved) -> Option<Reason> {
        until_end(|cx, worker| self.poll(cx, worker, moved)).await;
        if self.ways.have_ended() {
            None
        } else if worker::with(|worker| worker.is_ending) {
            Some(Reason::Draining)
        } else {
            Some(Reason::ReadTimeout)
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, worker: &mut Worker, moved: &mut Moved) -> Poll<()> {
        let client = ClientSide {
            stream: &mut self.client,
            out: &mut self.client_out,
        };
        let upstream = &mut self.upstream.stream;
        let passed = self.ways.pump(cx, client, upstream, &mut worker.read);
        moved.received += passed.from_client;
        moved.upstream_received += passed.from_upstream;
        moved.upstream_sent = self.ways.sent_upstream();
        moved.sent = self.client_out.sent();
        if self.ways.have_ended() {
            return Poll::Ready(());
        }
        if passed.moved {
            self.deadline.set(Instant::now() + self.idle);
        }
        self.deadline.poll_passed(cx)
    }
}
