//! The time limits of an exchange that has to wait, and the checks that it makes meanwhile.

use super::{Exchange, Source};
use crate::session::failure::{Failed, Limit, UpstreamFailure};
use crate::session::pace::Pace;
use crate::session::worker::Worker;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Time after which a client that has not received everything counts as slow.
const SLOW_CLIENT_AFTER: Duration = Duration::from_millis(20);
/// Time without progress at the upstream after which the gateway checks that the client is still connected. nginx
/// checks at once, and so drops every client that half-closes after its request. Here, such a client still gets a
/// response that comes within this time.
const WATCH_AFTER: Duration = Duration::from_millis(200);
/// Maximum bytes of pipelined requests that this check reads and keeps.
const WATCHED_BYTES: usize = 16 * 1024;

/// A client that has not yet received everything queued for it.
pub(super) struct Blocked {
    /// When the client was first blocked, and the rate at which it has received bytes since.
    pace: Pace,
    /// When the client last received something. Bytes that arrive from the upstream do not count.
    took: Instant,
}

impl Exchange<'_, '_> {
    /// Whether `bytes` more of the response may be read although the client has not received everything yet. Reading
    /// ahead copies every byte once more, so the gateway does it only for slow clients.
    pub(super) fn may_read_ahead(&mut self, bytes: usize) -> bool {
        let client = &mut *self.client;
        let held = client.out.waiting() + bytes;
        self.slow && held <= self.terms.read_ahead && client.ahead.grow(held)
    }

    /// Reads what the client sends after its request into `carry`, and detects that the client has closed.
    pub(super) fn watch_client(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
    ) -> Result<(), Failed> {
        let client = &mut *self.client;
        while self.request_body.is_done() && client.carry.len() < WATCHED_BYTES {
            match client
                .stream
                .poll_read(cx, &mut worker.read[..WATCHED_BYTES])
            {
                Poll::Ready(Ok(read)) if read > 0 => {
                    client.carry.extend_from_slice(&worker.read[..read]);
                }
                Poll::Ready(_) => return Err(Failed::ClientGone),
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Applies the time limit of the side that the exchange waits for. `Ready(None)` means that the limit has not
    /// passed, but that the caller must poll everything again.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Option<Failed>> {
        let settings = &self.client.plane.settings;
        let waits_for_client = !self.client.out.is_empty();
        let waits_for_body =
            !self.request_body.is_done() && !self.refused && self.up_out.is_empty();
        let (mut sooner, mut too_slow) = (None, None);
        let mut since = self.progress;
        let (limit, failure, stage) = if waits_for_client {
            if let Some(Blocked { pace, took }) = self.blocked.as_deref() {
                let ahead = self.terms.read_ahead > 0 && !self.slow;
                sooner = ahead.then(|| pace.since() + SLOW_CLIENT_AFTER);
                let taken = self.client.out.taken(&self.client.stream);
                too_slow = pace.due(taken, settings.min_rate);
                since = *took;
            }
            (settings.send_timeout, Failed::ClientGone, None)
        } else if !self.up_out.is_empty() {
            let limit = Some(Limit::Write);
            (self.terms.write_timeout, self.timeout(), limit)
        } else if waits_for_body && self.answer.is_none() {
            too_slow = self.pace.due(self.received, settings.min_rate);
            (settings.body_timeout, Failed::ClientTimeout, None)
        } else {
            if !self.watching && settings.client_may_abort && !self.client.stream.is_http2() {
                sooner = Some(self.progress + WATCH_AFTER);
            }
            (self.terms.read_timeout, self.timeout(), Some(Limit::Read))
        };
        let due = since + limit;
        let due = too_slow.map_or(due, |too_slow| too_slow.min(due));
        let at = sooner.map_or(due, |sooner| sooner.min(due));
        self.client.deadline.set(at);
        ready!(self.client.deadline.poll_passed(cx));
        if at == due {
            let failed = !self.has_partial(waits_for_client);
            self.passed = stage.filter(|_| failed);
            return Poll::Ready(failed.then_some(failure));
        }
        if waits_for_client {
            self.slow = true;
        } else {
            self.watching = true;
        }
        Poll::Ready(None)
    }

    /// Whether a part of an HTTP/2 frame has arrived since the last progress. If so, it counts as progress. A slow peer
    /// may need longer than the time limit for one frame.
    fn has_partial(&mut self, waits_for_client: bool) -> bool {
        if waits_for_client || !self.up_out.is_empty() {
            return false;
        }
        let streams = [&self.client.stream, &self.upstream.stream];
        let partial = streams.iter().filter_map(|stream| stream.partial()).max();
        match partial {
            Some(at) if at > self.progress => {
                self.progress = at;
                true
            }
            _ => false,
        }
    }

    /// Notes that the client has bytes left to receive.
    pub(super) fn note_blocked(&mut self) {
        let client = &*self.client;
        let now = client.now;
        self.blocked.get_or_insert_with(|| {
            Box::new(Blocked {
                pace: Pace::new(now, client.out.taken(&client.stream)),
                took: now,
            })
        });
    }

    /// Notes that the client has received a part of its waiting bytes.
    pub(super) fn note_taken(&mut self) {
        self.note_progress();
        if let Some(blocked) = &mut self.blocked {
            blocked.took = self.progress;
        }
    }

    pub(super) fn note_progress(&mut self) {
        self.progress = Instant::now();
        self.client.now = self.progress;
        // For a streamed body, the upstream's time starts at the last progress before the response.
        let streams = matches!(self.terms.source, Source::Client) && !self.terms.counts_upload;
        if streams && self.answer.is_none() && !self.answered {
            self.sent_at = self.sent_at.max(self.progress);
        }
    }

    fn timeout(&self) -> Failed {
        match &self.answer {
            Some(answer) => answer.broken(),
            None => Failed::Upstream(UpstreamFailure::Timeout),
        }
    }
}
