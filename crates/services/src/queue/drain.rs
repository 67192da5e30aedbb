//! The order to drain, which all queues of a node watch.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

#[derive(Default)]
pub(super) struct Drain(watch::Sender<Option<Order>>);

#[derive(Clone, Copy)]
struct Order {
    begun: Instant,
    deadline: Instant,
}

impl Drain {
    pub(super) fn begin(&self, deadline: Instant) {
        let begun = self.since().unwrap_or_else(Instant::now);
        self.0.send_replace(Some(Order { begun, deadline }));
    }

    /// Returns the time at which the drain began, if it did.
    pub(super) fn since(&self) -> Option<Instant> {
        self.0.borrow().map(|order| order.begun)
    }

    /// Waits until the drain begins.
    pub(super) async fn begun(&self) {
        // The sender lives as long as `self`, so the channel is open.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }

    /// Waits until the deadline of the drain, which a later drain can change.
    pub(super) async fn over(&self) {
        let mut deadline = self.0.subscribe();
        loop {
            let at = deadline.borrow_and_update().map(|order| order.deadline);
            tokio::select! {
                () = sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => return,
                _ = deadline.changed() => {}
            }
        }
    }
}
