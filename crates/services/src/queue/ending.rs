//! How a queue ends: by the drop of its last handle, by a drain, or with its task.

use super::Sender;
use super::state::{Locked, State};
use std::time::Duration;
use tokio::time::Instant;

/// Time after which a queue that nobody holds any more drops what it has, if no batch was accepted meanwhile. It is the
/// time that Kong's log plugins give a receiver by default, so that an attempt can run to its end.
const LAST_TRY: Duration = Duration::from_secs(10);
/// Time after which such a queue ends also if its receiver accepts batches, but slowly.
const LAST_TRIES: Duration = Duration::from_secs(60);
/// Time after which a drain gives up a queue if no batch was accepted meanwhile. A dead receiver must not use up the time
/// of the shutdown.
const DRAIN_TRY: Duration = Duration::from_secs(5);

impl<T> State<T> {
    /// Closes the queue if this handle is the newest.
    pub(super) fn close(&self, number: u64) {
        let mut locked = self.lock();
        if locked.handle == number {
            locked.closed = Some(Instant::now());
            drop(locked);
            self.wake.notify_one();
            self.closing.notify_waiters();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    /// Waits until the last handle is dropped.
    pub(super) async fn closed(&self) {
        loop {
            let mut closing = std::pin::pin!(self.closing.notified());
            // The notification is enabled before the check, so that a change in between is not missed.
            closing.as_mut().enable();
            if self.is_closed() {
                return;
            }
            closing.await;
        }
    }

    /// Returns the time at which the queue gives up, if nobody holds it or a drain has begun at `draining`.
    pub(super) fn last(&self, draining: Option<Instant>) -> Option<Instant> {
        self.lock().last(draining)
    }

    /// Ends the queue if it is time to give up.
    pub(super) fn gives_up(&self, draining: Option<Instant>) -> bool {
        let mut locked = self.lock();
        let is_over = locked
            .last(draining)
            .is_some_and(|last| last <= Instant::now());
        if is_over {
            // Under the lock, so that nobody gets a new handle from now on.
            locked.ended = true;
            locked.abandoned = draining.is_none();
        }
        is_over
    }

    /// Ends the queue and drops what it holds, because its task ends.
    pub(super) fn end(&self) {
        let mut locked = self.lock();
        locked.ended = true;
        let rest = std::mem::take(&mut locked.items);
        let waiting = std::mem::take(&mut locked.waiting);
        let lost = waiting as u64 + std::mem::take(&mut locked.counts.sending);
        let abandoned = locked.abandoned;
        match abandoned {
            true => locked.counts.dropped_unused += lost,
            false => locked.counts.dropped_shutdown += lost,
        }
        locked.counts.bytes = 0;
        // The sender can hold anything, and the registry keeps the state for its counters.
        let sender = std::mem::replace(&mut locked.sender, Sender::none());
        drop(locked);
        drop((rest, sender));
        self.idle.notify_waiters();
        if lost > 0 {
            let cause = match abandoned {
                true => {
                    "because no plugin uses the queue any more and the receiver has not accepted them"
                }
                false => "because the gateway shuts down",
            };
            tracing::error!("{}: {lost} queue entries were lost {cause}", self.tag);
        }
    }
}

impl<T> Locked<T> {
    /// Returns the time at which the queue gives up. Every accepted batch is a reason to go on.
    fn last(&self, draining: Option<Instant>) -> Option<Instant> {
        let since = |begin: Instant| self.accepted.map_or(begin, |accepted| accepted.max(begin));
        let closed = self
            .closed
            .map(|closed| (since(closed) + LAST_TRY).min(closed + LAST_TRIES));
        let drained = draining.map(|draining| since(draining) + DRAIN_TRY);
        closed.into_iter().chain(drained).min()
    }
}
