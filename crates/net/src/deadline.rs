//! A cheap deadline for timeouts that every request moves and that almost never pass. Moving the deadline usually does
//! not touch the timer of tokio. The timer is set again only if the new deadline is earlier than the timer's, or if the
//! timer has fired. With timeouts of a minute, this happens once a minute per connection instead of several times per
//! request.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Debug)]
pub struct Deadline {
    at: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub fn new(at: Instant) -> Self {
        Self { at, timer: None }
    }

    #[inline]
    pub fn set(&mut self, at: Instant) {
        self.at = at;
    }

    /// Ready when the deadline has passed. A task calls this before it waits for something else. All calls must come
    /// from the same task: a call that finds the timer early enough does not register its waker again.
    #[inline]
    pub fn poll_passed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.timer {
            // The timer already wakes this task, and not later than the deadline.
            Some(timer) if timer.deadline() <= self.at && !timer.is_elapsed() => Poll::Pending,
            _ => self.poll_timer(cx),
        }
    }

    #[cold]
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let at = self.at;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.is_elapsed() && timer.deadline() >= at {
            return Poll::Ready(());
        }
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

    async fn waited(deadline: &mut Deadline) -> Duration {
        let start = Instant::now();
        poll_fn(|cx| deadline.poll_passed(cx)).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_moved_later_or_earlier_passes_when_it_should() {
        let start = Instant::now();
        let mut deadline = Deadline::new(start + Duration::from_secs(5));
        poll_fn(|cx| {
            assert!(deadline.poll_passed(cx).is_pending());
            deadline.set(start + Duration::from_secs(9));
            assert!(deadline.poll_passed(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(waited(&mut deadline).await, Duration::from_secs(9));
        deadline.set(start + Duration::from_secs(60));
        let passed = poll_fn(|cx| Poll::Ready(deadline.poll_passed(cx).is_ready())).await;
        assert!(!passed);
        deadline.set(start + Duration::from_secs(10));
        assert_eq!(waited(&mut deadline).await, Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_passed_deadline_stays_passed_until_it_is_set_again() {
        let mut deadline = Deadline::new(Instant::now() + Duration::from_secs(1));
        assert_eq!(waited(&mut deadline).await, Duration::from_secs(1));
        assert_eq!(waited(&mut deadline).await, Duration::ZERO);
        deadline.set(Instant::now() + Duration::from_secs(2));
        assert_eq!(waited(&mut deadline).await, Duration::from_secs(2));
    }
}
