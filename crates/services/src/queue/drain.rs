//! The order to drain, which all queues of a node watch.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

#[derive(Default)]
pub(super) struct Drain(watch::Sender<Option<Instant>>);

impl Drain {
    pub(super) fn begin(&self, deadline: Instant) {
        self.0.send_replace(Some(deadline));
    }

    pub(super) fn has_begun(&self) -> bool {
        self.0.borrow().is_some()
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
            let at = *deadline.borrow_and_update();
            tokio::select! {
                () = sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => return,
                _ = deadline.changed() => {}
            }
        }
    }
}
