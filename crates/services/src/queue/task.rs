//! The task of a queue: collects batches, sends them, and sends failed ones again. It runs in the background while the
//! queue has handles or entries.

use super::drain::Drain;
use super::state::{Next, Outcome, State};
use super::{SendError, Sender};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

/// Maximum number of entries that a queue with unlimited concurrency sends at once. Each can hold a connection.
pub const MAX_SENDS: usize = 256;

/// Ends the queue when its task ends, also if the runtime drops the task.
struct Ending<T>(Arc<State<T>>);

impl<T> Drop for Ending<T> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Runs the queue until its last handle is dropped and all is sent, or until the deadline of a drain. A receiver that
/// accepts nothing is given up before ([`State::gives_up`]).
///
/// The queue ends with the future even if the future is never polled.
pub(super) fn run<T: Send + Sync + 'static>(
    state: Arc<State<T>>,
    drain: Arc<Drain>,
) -> impl Future<Output = ()> + Send + 'static {
    let ending = Ending(state);
    async move {
        serve(&ending.0, &drain).await;
    }
}

async fn serve<T: Send + Sync + 'static>(state: &State<T>, drain: &Drain) {
    let mut sends = FuturesUnordered::new();
    let mut over = std::pin::pin!(drain.over());
    let mut collecting = None;
    loop {
        let draining = drain.since();
        let sending = (MAX_SENDS, draining.is_some());
        let until = match state.next(&mut collecting, sends.len(), sending) {
            Next::End => return,
            Next::Wait(until) => until,
            Next::Send(entries) => {
                let (entries, batch) = state.take(entries);
                if entries > 0 {
                    sends.push(deliver(state, drain, entries, batch));
                }
                continue;
            }
        };
        let last = state.last(draining);
        tokio::select! {
            Some(()) = sends.next() => {
                // A sender that never waits must not keep the thread from other queues.
                yield_now().await;
            }
            () = state.wake.notified() => {}
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
            () = sleep_until(last.unwrap_or_else(Instant::now)), if last.is_some() => {
                if state.gives_up(draining) {
                    return;
                }
            }
            () = drain.begun(), if draining.is_none() => {}
            () = &mut over => return,
        }
    }
}

/// Sends a batch of this number of entries, until it succeeds or is given up.
async fn deliver<T: Send + Sync + 'static>(
    state: &State<T>,
    drain: &Drain,
    entries: usize,
    batch: Vec<T>,
) {
    let (Sender { prepare, .. }, _) = state.sender();
    let prepared = async {
        match prepare {
            Some(prepare) => prepare(batch).await,
            None => batch,
        }
    };
    // A panic loses the batch, but not the queue.
    let Ok(batch) = AssertUnwindSafe(prepared).catch_unwind().await else {
        state.failed(&SendError::new("a text could not be written"));
        return state.finish(entries, Outcome::Refused);
    };
    let batch = Arc::new(batch);
    let start = Instant::now();
    let mut retry = 0;
    loop {
        let (sender, params) = state.sender();
        let Err(error) = attempt(sender, batch.clone()).await else {
            return state.finish(entries, Outcome::Sent);
        };
        state.failed(&error);
        if let Some(lost) = error.lost {
            let lost = lost.min(entries);
            state.finish(entries - lost, Outcome::Sent);
            return state.finish(lost, Outcome::Refused);
        }
        let give_up = params
            .max_retry_time
            .is_none_or(|limit| start.elapsed() > limit);
        if give_up {
            return state.finish(entries, Outcome::GivenUp);
        }
        let (draining, closed) = (drain.since().is_some(), state.is_closed());
        tokio::select! {
            () = sleep(params.retry_delay(retry, error.pause)) => retry += 1,
            // The back-off starts again, because there is little time left.
            () = drain.begun(), if !draining => retry = 0,
            () = state.closed(), if !closed => retry = 0,
        }
        state.retried();
    }
}

/// Calls the sender. A panic of it is a failure, as in Kong.
async fn attempt<T: Send + Sync + 'static>(
    sender: Sender<T>,
    batch: Arc<Vec<T>>,
) -> Result<(), SendError> {
    let sending = async move { sender.send(batch).await };
    let sent = AssertUnwindSafe(sending).catch_unwind().await;
    sent.unwrap_or_else(|_| Err(SendError::new("the sender panicked")))
}
