//! An exchange that has to wait: for how long, for whom, and what else is worth looking at meanwhile.

use super::{Exchange, Source};
use crate::session::failure::{Failed, UpstreamFailure};
use crate::session::pace::Pace;
use crate::session::worker::Worker;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// A client that has not taken everything after this long is a slow one.
const PATIENCE: Duration = Duration::from_millis(20);
/// An upstream that is silent for so long may be working for a client that has gone. The web server under Kong looks at
/// once, and so refuses every client that ends its side after the request; here those have this long to get an answer.
const WATCH_AFTER: Duration = Duration::from_secs(1);
/// How much of the requests that follow is kept while looking.
const WATCHED_BYTES: usize = 16 * 1024;

/// A client that has not taken all that there is for it.
pub(super) struct Blocked {
    /// Since when, and how fast it takes.
    pace: Pace,
    /// When it last took any. What the upstream sends meanwhile is no progress of the client.
    took: Instant,
}

impl Exchange<'_> {
    /// Whether there is room for another read of the answer though the client has not taken what it has. Only a client
    /// that is slow gets that: to a fast one it would be a copy more for every byte.
    pub(super) fn may_read_ahead(&mut self, bytes: usize) -> bool {
        let client = &mut *self.client;
        let held = client.out.waiting() + bytes;
        self.slow && held <= self.terms.read_ahead && client.ahead.grow(held)
    }

    /// Keeps what the client sends meanwhile, and notices its end.
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

    /// One limit at a time: that of whoever we are waiting for. Ready with nothing when it is only time to look closer.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Option<Failed>> {
        let settings = &self.client.plane.settings;
        let waits_for_client = !self.client.out.is_empty();
        let waits_for_body =
            !self.request_body.is_done() && !self.refused && self.up_out.is_empty();
        let (mut sooner, mut too_slow) = (None, None);
        let mut since = self.progress;
        let (limit, failure) = if waits_for_client {
            if let Some(Blocked { pace, took }) = self.blocked.as_deref() {
                let ahead = self.terms.read_ahead > 0 && !self.slow;
                sooner = ahead.then(|| pace.since() + PATIENCE);
                let taken = self.client.out.taken(&self.client.stream);
                too_slow = pace.due(taken, settings.min_rate);
                since = *took;
            }
            (settings.send_timeout, Failed::ClientGone)
        } else if !self.up_out.is_empty() {
            (self.terms.write_timeout, self.timeout())
        } else if waits_for_body && self.answer.is_none() {
            too_slow = self.pace.due(self.received, settings.min_rate);
            (settings.body_timeout, Failed::ClientTimeout)
        } else {
            if !self.watching && settings.client_may_abort && !self.client.stream.is_http2() {
                sooner = Some(self.progress + WATCH_AFTER);
            }
            (self.terms.read_timeout, self.timeout())
        };
        let due = since + limit;
        let due = too_slow.map_or(due, |too_slow| too_slow.min(due));
        let at = sooner.map_or(due, |sooner| sooner.min(due));
        self.client.deadline.set(at);
        ready!(self.client.deadline.poll_passed(cx));
        if at == due {
            let failed = !self.has_partial(waits_for_client);
            return Poll::Ready(failed.then_some(failure));
        }
        match waits_for_client {
            true => self.slow = true,
            false => self.watching = true,
        }
        Poll::Ready(None)
    }

    /// Whether a part of a frame came from whoever we are waiting for since something was last seen.
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

    /// The client has something left to take.
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

    /// The client has taken a part of what it has left to take.
    pub(super) fn note_taken(&mut self) {
        self.note_progress();
        if let Some(blocked) = &mut self.blocked {
            blocked.took = self.progress;
        }
    }

    pub(super) fn note_progress(&mut self) {
        self.progress = Instant::now();
        self.client.now = self.progress;
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
