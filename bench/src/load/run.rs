//! The course of one run: when which request is due, and what is counted where.

use super::answer::Failure;
use super::{Mode, Outcome};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

pub struct Run {
    started: Instant,
    duration: Duration,
    window: Duration,
    /// The end of the current window; none for the last, which lasts until all is answered.
    window_end: Option<Instant>,
    pace: Pace,
    in_flight: usize,
    /// The current window's, last.
    outcomes: Vec<Outcome>,
    /// Where the current window starts.
    window_start: Instant,
    window_cpu: Duration,
    last: Instant,
}

enum Pace {
    Closed {
        end: Instant,
    },
    /// Requests `sent..total` are yet to be sent. Those that are late are not kept in a queue: their number says when they
    /// were due.
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

    /// Whether a connection that is free at `now` has something to send; from when on its latency counts.
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

    /// In an open loop: when the next request is due.
    pub fn next_due(&self) -> Option<Instant> {
        match self.pace {
            Pace::Open { rate, sent, total } if sent < total => {
                // From its number, not from the one before: what is rounded away does not add up.
                let nanoseconds = (sent as f64 * 1e9 / rate) as u64;
                Some(self.started + Duration::from_nanos(nanoseconds))
            }
            _ => None,
        }
    }

    pub fn sent(&mut self) {
        self.in_flight += 1;
    }

    /// Returns the time, which the next request may count from.
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

    /// Counts what came without having been asked for.
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

    /// Whether all has been sent and answered.
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

    /// Counts as failed what is in flight and what should have been sent.
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
        // The processor time between the last answer and here is next to nothing.
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

/// As exact as schedstat, and up to date for a thread that is running: schedstat lags by up to a tick of the scheduler then.
fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
