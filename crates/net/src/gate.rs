//! Limits the concurrent requests of one worker to a target, and the queue of waiting requests. The queue is first in,
//! first out. Each worker counts for itself; threads share no count.

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

/// Admission through a gate, released on drop.
#[derive(Debug)]
pub struct GatePlace {
    _permit: OwnedSemaphorePermit,
}

/// All places are taken, and the queue is full or did not move in time.
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

    /// Takes a place if one is free and no request is waiting for it.
    pub fn try_enter(&self) -> Option<GatePlace> {
        let permit = self.places.clone().try_acquire_owned().ok()?;
        Some(GatePlace { _permit: permit })
    }

    /// Waits for a place, at most for `limit`. Fails at once if `queue` requests are already waiting.
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
