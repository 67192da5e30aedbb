//! A timer for instants: epoll's own limit counts whole milliseconds, and at 10,000 requests a second ten of them are due in
//! each. Waiting for the instant in a busy loop would take the processor from the upstream on a machine with two cores.

use anyhow::{Context, Result};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

pub struct Timer {
    descriptor: OwnedFd,
    /// One moment by both clocks: an `Instant` does not say what the kernel calls it.
    epoch: (Instant, Duration),
    set: Option<Instant>,
}

impl Timer {
    pub fn register(registry: &Registry, token: Token) -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor =
            timerfd_create(TimerfdClockId::Monotonic, flags).context("cannot make a timer")?;
        registry.register(
            &mut SourceFd(&descriptor.as_raw_fd()),
            token,
            Interest::READABLE,
        )?;
        Ok(Self {
            descriptor,
            epoch: (Instant::now(), monotonic()),
            set: None,
        })
    }

    /// Forgets what it was set to.
    pub fn start(&mut self) {
        // The instant first: the timer can then be late by the time between the two readings, never early.
        self.epoch = (Instant::now(), monotonic());
        self.set = None;
    }

    /// Setting it again also clears the last time it went off: nobody has to read it.
    pub fn set(&mut self, at: Instant) -> Result<()> {
        if self.set == Some(at) {
            return Ok(());
        }
        let (instant, monotonic) = self.epoch;
        let value = monotonic + at.saturating_duration_since(instant);
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(value).context("an instant out of range")?,
        };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::ABSTIME, &once)
            .context("cannot set a timer")?;
        self.set = Some(at);
        Ok(())
    }

    pub fn went_off(&mut self) {
        self.set = None;
    }
}

fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::try_from(time).unwrap_or_default()
}
