//! Limits the log lines of each kind, so that no client can fill a disk or hide other events. A kind is one logging
//! statement in the source code (tracing's callsite). After a burst, further lines of a kind are only counted, and one
//! line reports their number.

use super::queue::Queue;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Maximum number of lines of one kind that are logged in each interval.
const BURST: u64 = 100;
const INTERVAL: Duration = Duration::from_secs(10);
/// Tracing target of the reports of held lines.
const TARGET: &str = module_path!();
/// Maximum number of bytes of the message in the line that reports held lines.
const MAX_TEXT: usize = 200;

/// All kinds that have logged so far. Their number is limited by the number of logging statements.
pub(super) struct Kinds {
    known: ArcSwap<HashMap<Identifier, Arc<Kind>>>,
    start: Instant,
    queue: Queue,
}

struct Kind {
    level: Level,
    /// Start of the interval, in milliseconds since `Kinds::start`.
    since: AtomicU64,
    /// Number of lines in the interval.
    seen: AtomicU64,
    /// Number of lines that were held back and not reported yet.
    held: AtomicU64,
    /// Time of the first held line, in milliseconds since `Kinds::start`.
    held_since: AtomicU64,
    /// Message of the first held line.
    text: Mutex<String>,
}

impl Kinds {
    pub(super) fn new(queue: Queue) -> Self {
        Self {
            known: ArcSwap::default(),
            start: Instant::now(),
            queue,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn kind(&self, about: &'static Metadata<'static>) -> Arc<Kind> {
        let place = about.callsite();
        if let Some(kind) = self.known.load().get(&place) {
            return Arc::clone(kind);
        }
        let kind = Arc::new(Kind::new(*about.level(), self.now()));
        self.known.rcu(|known| {
            let mut known = HashMap::clone(known);
            known
                .entry(place.clone())
                .or_insert_with(|| Arc::clone(&kind));
            known
        });
        kind
    }

    fn admits(&self, event: &Event<'_>) -> bool {
        let kind = self.kind(event.metadata());
        let now = self.now();
        if kind.has_room(now) {
            return true;
        }
        if kind.hold(now, event) {
            // Wake the writer thread, so that it computes when to report the line.
            self.queue.wake();
        }
        false
    }

    /// Returns the time until held lines must be reported, or `None` if there are none.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let now = self.now();
        let known = self.known.load();
        let held = known.values().filter_map(|kind| kind.due());
        let due = held.min()?;
        Some(Duration::from_millis(due.saturating_sub(now)))
    }

    /// Reports the lines of each kind whose first held line is at least one interval old.
    pub(super) fn tell_due(&self) {
        let now = self.now();
        self.tell(|due| due <= now);
    }

    /// Reports all held lines.
    pub(super) fn tell_all(&self) {
        self.tell(|_| true);
    }

    fn tell(&self, is_due: impl Fn(u64) -> bool) {
        for kind in self.known.load().values() {
            if kind.due().is_some_and(&is_due) {
                kind.tell();
            }
        }
    }
}

impl Kind {
    fn new(level: Level, now: u64) -> Self {
        Self {
            level,
            since: AtomicU64::new(now),
            seen: AtomicU64::new(0),
            held: AtomicU64::new(0),
            held_since: AtomicU64::new(0),
            text: Mutex::default(),
        }
    }

    /// Counts a line, and returns whether it may be logged.
    fn has_room(&self, now: u64) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        let is_over = now.saturating_sub(since) >= INTERVAL.as_millis() as u64;
        let begin = |begin| {
            let order = Ordering::Relaxed;
            begin
                && self
                    .since
                    .compare_exchange(since, now, order, order)
                    .is_ok()
        };
        if begin(is_over) {
            self.seen.store(0, Ordering::Relaxed);
        }
        self.seen.fetch_add(1, Ordering::Relaxed) < BURST
    }

    /// Holds a line back, and returns whether it is the first one.
    fn hold(&self, now: u64, event: &Event<'_>) -> bool {
        if self.held.fetch_add(1, Ordering::Relaxed) > 0 {
            return false;
        }
        self.held_since.store(now, Ordering::Relaxed);
        let mut text = Text::default();
        event.record(&mut text);
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text.0;
        true
    }

    /// Returns when the held lines must be reported, in milliseconds since `Kinds::start`.
    fn due(&self) -> Option<u64> {
        let since = self.held_since.load(Ordering::Relaxed);
        let due = since.saturating_add(INTERVAL.as_millis() as u64);
        (self.held.load(Ordering::Relaxed) > 0).then_some(due)
    }

    fn tell(&self) {
        let more = self.held.swap(0, Ordering::Relaxed);
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        match self.level {
            Level::ERROR => tracing::error!(more, "and {more} more like it: {text}"),
            Level::WARN => tracing::warn!(more, "and {more} more like it: {text}"),
            _ => tracing::info!(more, "and {more} more like it: {text}"),
        }
    }
}

/// The message of an event, without its fields.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
            self.0.truncate(self.0.floor_char_boundary(MAX_TEXT));
        }
    }
}

/// Layer that holds back the lines of a kind after its burst.
pub(super) struct Limit(pub(super) Arc<Kinds>);

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let about = event.metadata();
        // The `h2` crate warns about every unusual frame that it receives. Clients could cause many such lines.
        if *about.level() == Level::WARN && about.target().starts_with("h2::") {
            return false;
        }
        // Detail levels are not limited, because they are enabled on purpose. Reports of held lines are not limited
        // either: they would count as lines of one kind.
        let is_detail = *about.level() > Level::INFO;
        is_detail || about.target() == TARGET || self.0.admits(event)
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::queue;
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    /// Collects the lines that pass the limit.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Seen {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut text = Text::default();
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
    }

    #[test]
    fn after_a_burst_lines_of_a_kind_are_counted_and_others_are_logged() {
        let (queue, _lane) = queue();
        let kinds = Arc::new(Kinds::new(queue));
        let seen = Seen::default();
        let subscriber = tracing_subscriber::registry()
            .with(Limit(Arc::clone(&kinds)))
            .with(seen.clone());
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..BURST + 7 {
                tracing::warn!(target: "proxy", number, "no answer");
            }
            tracing::warn!(target: "proxy", "something else");
            for number in 0..2 * BURST {
                tracing::debug!(target: "proxy", number, "a detail");
            }
            assert!(kinds.next_due().is_some());
            kinds.tell_due();
            assert!(kinds.next_due().is_some(), "it is too early");
            kinds.tell_all();
            assert!(kinds.next_due().is_none());
        });
        let lines = seen.0.lock().unwrap();
        let count = |text: &str| lines.iter().filter(|line| *line == text).count() as u64;
        assert_eq!(count("no answer"), BURST);
        assert_eq!(count("something else"), 1);
        assert_eq!(count("a detail"), 2 * BURST);
        assert_eq!(count("and 7 more like it: no answer"), 1);
    }

    #[test]
    fn panics_are_limited_and_the_first_ones_are_complete() {
        let (queue, _lane) = queue();
        let kinds = Arc::new(Kinds::new(queue));
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let log = file.reopen().expect("a file");
        let subscriber = tracing_subscriber::registry()
            .with(Limit(Arc::clone(&kinds)))
            .with(
                tracing_subscriber::fmt::layer()
                    .with_ansi(false)
                    .with_writer(log),
            );
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..BURST + 5 {
                super::super::tell_panic(&format!("panic {number}."));
            }
            kinds.tell_all();
        });
        let text = std::fs::read_to_string(file.path()).expect("readable");
        for number in 0..BURST {
            assert!(text.contains(&format!("panic {number}.")), "{text}");
        }
        assert_eq!(text.matches(" backtrace=").count() as u64, BURST);
        assert!(
            text.contains("and 5 more like it: a task panicked"),
            "{text}"
        );
    }

    #[test]
    fn an_interval_later_there_is_room_again() {
        let kind = Kind::new(Level::WARN, 5);
        let interval = INTERVAL.as_millis() as u64;
        let in_turn = |now| (0..BURST + 1).filter(|_| kind.has_room(now)).count() as u64;
        assert_eq!(in_turn(5), BURST);
        assert_eq!(in_turn(4 + interval), 0);
        assert_eq!(in_turn(5 + interval), BURST);
    }
}
