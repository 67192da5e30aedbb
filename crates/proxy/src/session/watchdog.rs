//! Watches the workers from another thread. It gives each worker a tiny task ten times a second. The time until the
//! worker runs it is the delay of its event loop. A worker that does not run it for half a second stalls: the log says
//! so, with the plugin that it runs.

use super::plane::DataPlane;
use crate::plugins::Running;
use model::entities::RouteId;
use std::fmt::{self, Display};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time after which a worker without an answer stalls.
const STALLS_AFTER: Duration = Duration::from_millis(500);
/// Interval at which a worker that still stalls is reported again.
const REPEAT: Duration = Duration::from_secs(10);

/// What the watchdog knows of a worker, for metrics.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Whether the worker has not yet run the last task.
    waiting: AtomicBool,
    pub(super) stalls: AtomicU64,
    stalled: Mutex<Option<Stalled>>,
    /// Number of the worker's thread, or 0.
    thread: AtomicU64,
}

/// A worker that stalls.
#[derive(Debug, Clone)]
pub(super) struct Stalled {
    since: Instant,
    pub(super) doing: Option<Doing>,
}

/// The handler of a plugin that a worker runs, by names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doing {
    pub(super) plugin: String,
    pub(super) phase: &'static str,
    /// Name or id of the route. Empty if it is not known.
    pub(super) route: String,
}

/// How long the thread of a worker has run, and has waited for a processor while it could run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerTime {
    pub running: Duration,
    pub waiting: Duration,
}

impl Pulse {
    /// Returns the stall that lasts at this moment.
    pub(super) fn stalled(&self) -> Option<Stalled> {
        let stalled = self.stalled.lock();
        stalled.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_stalled(&self, stalled: Option<Stalled>) {
        *self.stalled.lock().unwrap_or_else(PoisonError::into_inner) = stalled;
    }

    /// Notes the number of the current thread, which must be that of the worker.
    pub(super) fn here(&self) {
        // The link is `PROCESS/task/THREAD`.
        let link = std::fs::read_link("/proc/thread-self").ok();
        let number = link.and_then(|link| link.file_name()?.to_str()?.parse().ok());
        self.thread.store(number.unwrap_or(0), Ordering::Relaxed);
    }

    /// Reads the times of the worker's thread. `None` if the system does not report them.
    pub(super) fn time(&self) -> Option<WorkerTime> {
        let thread = self.thread.load(Ordering::Relaxed);
        let path = format!("/proc/self/task/{thread}/schedstat");
        parse_schedstat(&std::fs::read_to_string(path).ok()?)
    }
}

/// Reads `schedstat`: nanoseconds on a processor, nanoseconds of waiting for one, number of slices.
fn parse_schedstat(text: &str) -> Option<WorkerTime> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    let mut next = || Some(Duration::from_nanos(numbers.next()?.ok()?));
    Some(WorkerTime {
        running: next()?,
        waiting: next()?,
    })
}

impl Stalled {
    pub(super) fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }
}

impl Display for Doing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            plugin,
            phase,
            route,
        } = self;
        write!(formatter, "it runs {plugin} ({phase})")?;
        match route.as_str() {
            "" => Ok(()),
            route => write!(formatter, " for the route {route}"),
        }
    }
}

/// The task that a worker runs to show that it is alive. It also counts as run if the worker ends.
struct Sign {
    plane: Arc<DataPlane>,
    worker: usize,
}

impl Drop for Sign {
    fn drop(&mut self) {
        self.plane.pulses[self.worker]
            .waiting
            .store(false, Ordering::Release);
    }
}

/// Watches the workers of a data plane.
pub struct Watchdog {
    plane: Arc<DataPlane>,
    watched: Vec<Watched>,
}

/// The last task that a worker was given.
#[derive(Debug, Clone, Copy)]
struct Watched {
    sent: Instant,
    /// When the stall was last reported, if there is one.
    reported: Option<Instant>,
    /// The times of the thread when the task was sent.
    before: Option<WorkerTime>,
}

impl Watchdog {
    /// Interval at which [`Self::look`] is to be called.
    pub const INTERVAL: Duration = Duration::from_millis(100);

    pub fn new(plane: Arc<DataPlane>) -> Self {
        let watched = Watched {
            sent: Instant::now(),
            reported: None,
            before: None,
        };
        Self {
            watched: vec![watched; plane.pulses.len()],
            plane,
        }
    }

    /// Looks at each worker, and gives a new task to those that have run the last one.
    pub fn look(&mut self) {
        let now = Instant::now();
        for worker in 0..self.watched.len() {
            self.look_at(worker, now);
        }
    }

    fn look_at(&mut self, worker: usize, now: Instant) {
        let pulse = &self.plane.pulses[worker];
        let watched = &mut self.watched[worker];
        let took = now.saturating_duration_since(watched.sent);
        if pulse.waiting.load(Ordering::Acquire) {
            let is_due = match watched.reported {
                None => took >= STALLS_AFTER,
                Some(last) => now - last >= REPEAT,
            };
            if is_due {
                report(&self.plane, worker, watched, took);
                watched.reported = Some(now);
            }
            return;
        }
        if watched.reported.take().is_some() {
            pulse.set_stalled(None);
            let milliseconds = took.as_millis();
            tracing::warn!(worker, milliseconds, "the worker responds again");
        }
        watched.sent = now;
        watched.before = pulse.time();
        pulse.waiting.store(true, Ordering::Release);
        let sign = Sign {
            plane: Arc::clone(&self.plane),
            worker,
        };
        let answer = async move {
            let counters = sign.plane.counters(sign.worker);
            counters.loop_delays.observe(now.elapsed());
        };
        // A worker that does not serve now drops the task, which then counts as run.
        let _ = self.plane.node.workers.spawn_on(worker, answer);
    }
}

fn report(plane: &DataPlane, worker: usize, watched: &Watched, took: Duration) {
    let pulse = &plane.pulses[worker];
    let doing = plane.counters(worker).doing.running();
    let doing = doing.map(|running| name(plane, running));
    if watched.reported.is_none() {
        pulse.stalls.fetch_add(1, Ordering::Relaxed);
    }
    let milliseconds = took.as_millis();
    // A thread that did not run because there was no processor for it says more about the machine than about its work.
    let times = watched.before.zip(pulse.time());
    // Its thread can be another one meanwhile, with less time.
    let milliseconds_since =
        |before: Duration, now: Duration| now.saturating_sub(before).as_millis();
    let running_ms = times.map(|(before, now)| milliseconds_since(before.running, now.running));
    let without_cpu_ms = times.map(|(before, now)| milliseconds_since(before.waiting, now.waiting));
    let what = match &doing {
        Some(doing) => doing.to_string(),
        None => "it runs no plugin".to_owned(),
    };
    tracing::warn!(
        worker,
        milliseconds,
        running_ms,
        without_cpu_ms,
        "a worker does not respond: {what}"
    );
    pulse.set_stalled(Some(Stalled {
        since: watched.sent,
        doing,
    }));
}

/// Returns the names of what a worker does. The route's is found in the current configuration, which may be newer than
/// that of the request.
fn name(plane: &DataPlane, running: Running) -> Doing {
    let plugin = plane.plugin_name(usize::from(running.plugin));
    let snapshot = plane.snapshot.load();
    let shown = |name: Option<&str>, id: RouteId| match name {
        Some(name) => name.to_owned(),
        None => id.0.to_string(),
    };
    let route = running.route.and_then(|index| {
        if running.phase.is_of_streams() {
            let route = snapshot.stream_routes().get(index as usize)?;
            return Some(shown(route.name.as_deref(), route.id));
        }
        let route = snapshot.route_at(index)?;
        Some(shown(route.name.as_deref(), route.id))
    });
    Doing {
        plugin: plugin.unwrap_or_default().to_owned(),
        phase: running.phase.name(),
        route: route.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_thread_are_read() {
        let time = parse_schedstat("1500000000 20000000 318\n").expect("times");
        let expected = WorkerTime {
            running: Duration::from_millis(1500),
            waiting: Duration::from_millis(20),
        };
        assert_eq!(time, expected);
        assert_eq!(parse_schedstat(""), None);
        assert_eq!(parse_schedstat("12"), None);
        assert_eq!(parse_schedstat("x y z"), None);
    }

    #[test]
    fn the_times_of_the_own_thread_are_known() {
        let pulse = Pulse::default();
        assert_eq!(pulse.time(), None);
        pulse.here();
        let began = std::time::Instant::now();
        while pulse.time().expect("times").running < Duration::from_millis(1) {
            assert!(began.elapsed() < Duration::from_secs(30));
        }
    }
}
