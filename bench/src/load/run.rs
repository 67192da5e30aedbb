//! The timing of one run: when requests are due, and in which window they count.

use super::answer::Failure;
use super::{Mode, Outcome};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

pub struct Run {
    started: Instant,
    duration: Duration,
    window: Duration,
    /// End of the current window. `None` for the last window, which lasts until all responses have arrived.
    window_end: Option<Instant>,
    pace: Pace,
    in_flight: usize,
    /// Results of the windows; the last one is the current window's.
    outcomes: Vec<Outcome>,
    /// Start of the current window.
    window_start: Instant,
    window_cpu: Duration,
    last: Instant,
}

enum Pace {
    Closed {
        end: Instant,
    },
    /// Requests `sent..total` are still to be sent. Late requests need no queue, because a request's number gives its
    /// due time.
    Open {
        rate: f64,
        sent: u64,
        total: u64,
    },
}

impl Run {
    pub fn start(mode: Mode, duration: Duration, window: Duration) -> Self {
        let cpu = thread_cpu_time();
        let started = Instant::now();
        let pace = match mode {
            Mode::Closed => Pace::Closed {
                end: started + duration,
            },
            Mode::Open { rate } => Pace::Open {
                rate,
                sent: 0,
                total: (rate * duration.as_secs_f64()).round() as u64,
            },
        };
        let mut run = Self {
            started,
            duration,
            window,
            window_end: None,
            pace,
            in_flight: 0,
            outcomes: vec![Outcome::default()],
            window_start: started,
            window_cpu: cpu,
            last: started,
        };
        run.window_end = run.end_of_window();
        run
    }

    fn end_of_window(&self) -> Option<Instant> {
        let windows = u32::try_from(self.outcomes.len()).unwrap_or(u32::MAX);
        let end = self.window.checked_mul(windows)?;
        (end < self.duration && !self.window.is_zero()).then(|| self.started + end)
    }

    pub fn outcome(&mut self) -> &mut Outcome {
        self.outcomes
            .last_mut()
            .expect("a run has at least one window")
    }

    pub fn is_open(&self) -> bool {
        matches!(self.pace, Pace::Open { .. })
    }

    /// If a request can be sent at `now`, counts it as sent in an open loop, and returns the time from which its
    /// latency counts.
    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        match &mut self.pace {
            Pace::Closed { end } => (now < *end).then_some(now),
            Pace::Open { .. } => {
                let due = self.next_due().filter(|due| *due <= now)?;
                if let Pace::Open { sent, .. } = &mut self.pace {
                    *sent += 1;
                }
                Some(due)
            }
        }
    }

    /// Returns the time when the next request is due in an open loop.
    pub fn next_due(&self) -> Option<Instant> {
        match self.pace {
            Pace::Open { rate, sent, total } if sent < total => {
                // Computed from the request's number and not from the previous due time, so that rounding errors do not
                // add up.
                let nanoseconds = (sent as f64 * 1e9 / rate) as u64;
                Some(self.started + Duration::from_nanos(nanoseconds))
            }
            _ => None,
        }
    }

    pub fn sent(&mut self) {
        self.in_flight += 1;
    }

    /// Records a response. Returns the current time, from which the latency of the next request can count.
    pub fn answered(&mut self, since: Instant) -> Instant {
        let now = self.enter_window();
        self.in_flight -= 1;
        self.outcome().record(now.saturating_duration_since(since));
        now
    }

    pub fn failed(&mut self, failure: &Failure) -> Instant {
        let now = self.enter_window();
        self.in_flight -= 1;
        self.outcome().record_failures(1, failure);
        now
    }

    /// Counts a failure of a connection without an outstanding request.
    pub fn unasked(&mut self, failure: &Failure) {
        self.outcome().record_failures(1, failure);
    }

    fn enter_window(&mut self) -> Instant {
        let now = Instant::now();
        while let Some(end) = self.window_end.filter(|end| now >= *end) {
            self.close_window(end);
            self.outcomes.push(Outcome::default());
            self.window_end = self.end_of_window();
        }
        self.last = now;
        now
    }

    fn close_window(&mut self, end: Instant) {
        let cpu = thread_cpu_time();
        let elapsed = end.saturating_duration_since(self.window_start);
        let spent = cpu.saturating_sub(self.window_cpu);
        let outcome = self.outcome();
        (outcome.elapsed, outcome.cpu) = (elapsed, spent);
        (self.window_start, self.window_cpu) = (end, cpu);
    }

    /// Whether all requests have been sent and all responses received.
    pub fn is_over(&self) -> bool {
        self.in_flight == 0
            && match self.pace {
                Pace::Closed { .. } => true,
                Pace::Open { sent, total, .. } => sent == total,
            }
    }

    pub fn end(&self) -> Instant {
        self.started + self.duration
    }

    /// Counts outstanding and unsent requests as failed.
    pub fn give_up(&mut self) {
        let mut unsent = 0;
        if let Pace::Open { sent, total, .. } = &mut self.pace {
            unsent = *total - *sent;
            *sent = *total;
        }
        self.enter_window();
        let unanswered = std::mem::take(&mut self.in_flight) as u64;
        self.outcome()
            .record_failures(unanswered + unsent, &Failure::TooLate);
    }

    pub fn finish(mut self) -> Vec<Outcome> {
        // No response arrived after the ends of these windows. The processor time since the last response is
        // negligible, so it does not matter to which window it is added.
        while let Some(end) = self.window_end {
            self.close_window(end);
            self.outcomes.push(Outcome::default());
            self.window_end = self.end_of_window();
        }
        let end = self.last.max(self.end());
        self.close_window(end);
        self.outcomes
    }
}

/// Returns the processor time of this thread. It is as precise as `/proc/thread-self/schedstat`, whose value for a
/// running thread may be old by up to a scheduler tick.
fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
