//! Limits the concurrent requests of one worker to a target. Further requests wait in a queue of limited length, first
//! in, first out. Each worker counts only its own requests, so that the workers share no counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

#[derive(Debug)]
pub struct Gate {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Permission for one request to use the target. It is returned to the gate on drop.
#[derive(Debug)]
pub struct GatePlace {
    _permit: OwnedSemaphorePermit,
}

/// The target has its maximum of concurrent requests. Either the queue is full, or the request has waited too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no place became free")]
pub struct GateClosed;

impl Gate {
    pub fn new(places: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Admits a request if the target has fewer than the maximum and no other request is waiting.
    pub fn try_enter(&self) -> Option<GatePlace> {
        let permit = self.places.clone().try_acquire_owned().ok()?;
        Some(GatePlace { _permit: permit })
    }

    /// Waits for admission, at most as long as `limit`. Fails at once if `queue` requests are already waiting.
    pub async fn enter(&self, queue: usize, limit: Duration) -> Result<GatePlace, GateClosed> {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = Waits(&self.waiting);
        if waiting >= queue {
            return Err(GateClosed);
        }
        match timeout(limit, self.places.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(GatePlace { _permit: permit }),
            _ => Err(GateClosed),
        }
    }
}

/// Decrements the count of waiting requests on drop, also if the task is cancelled.
struct Waits<'g>(&'g AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn places_are_given_in_order_and_the_queue_is_bounded() {
        let gate = Gate::new(1);
        let limit = Duration::from_secs(5);
        let first = gate.try_enter().unwrap();
        assert!(gate.try_enter().is_none());
        let (mut second, mut third) = (
            Box::pin(gate.enter(2, limit)),
            Box::pin(gate.enter(2, limit)),
        );
        tokio::select! {
            biased;
            _ = &mut second => panic!("there is no place"),
            _ = &mut third => panic!("there is no place"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(gate.enter(2, limit).await.unwrap_err(), GateClosed);
        drop(first);
        assert!(gate.try_enter().is_none(), "a waiting request goes first");
        let second = second.await.unwrap();
        assert_eq!(third.await.unwrap_err(), GateClosed, "time is up");
        drop(second);
        assert!(gate.try_enter().is_some());
        assert_eq!(gate.waiting.load(Ordering::Relaxed), 0);
    }
}
