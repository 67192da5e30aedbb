//! The lines of the error log, for plugins that send them elsewhere. While nobody wants them, a line costs one load.
//!
//! Lines about a request stay with the thread that serves it, so that the log phase of the request can read them
//! ([`visit`]). All other lines go to each [`Tap`] at once. Kong has the same two ways.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::SystemTime;

/// A line of the log.
#[derive(Debug, Clone)]
pub struct LogLine {
    pub time: SystemTime,
    /// nginx's level: 1 is `emerg` and 8 is `debug`.
    pub level: u8,
    pub text: Box<str>,
    pub request_id: Option<Box<str>>,
    /// Number of the line of code, for lines of Lua code.
    pub source_line: Option<u32>,
}

/// Someone who wants all lines that are about no request.
pub trait Tap: Send + Sync {
    fn take(&self, line: &LogLine);
}

/// Maximum number of lines about requests that a thread keeps, as in Kong. The oldest are dropped.
const MAX_KEPT: usize = 1000;
/// Maximum size of a line. The rest is cut off.
pub const MAX_TEXT: usize = 16 * 1024;

/// The number of taps and of others that want lines.
static WANTED: AtomicUsize = AtomicUsize::new(0);
/// The level of the log.
static LEVEL: AtomicU8 = AtomicU8::new(8);
static TAPS: RwLock<Vec<Weak<dyn Tap>>> = RwLock::new(Vec::new());

thread_local! {
    static KEPT: RefCell<VecDeque<LogLine>> = const { RefCell::new(VecDeque::new()) };
    /// Whether a line is being passed on, which can itself lead to a line.
    static IS_BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Passes lines to a tap until it is dropped.
pub struct Tapped(Arc<dyn Tap>);

impl Tapped {
    pub fn new(tap: Arc<dyn Tap>) -> Self {
        let mut taps = TAPS.write().unwrap_or_else(PoisonError::into_inner);
        taps.retain(|tap| tap.strong_count() > 0);
        taps.push(Arc::downgrade(&tap));
        drop(taps);
        WANTED.fetch_add(1, Ordering::Relaxed);
        Self(tap)
    }
}

impl Drop for Tapped {
    fn drop(&mut self) {
        WANTED.fetch_sub(1, Ordering::Relaxed);
        let mut taps = TAPS.write().unwrap_or_else(PoisonError::into_inner);
        taps.retain(|tap| !std::ptr::addr_eq(tap.as_ptr(), Arc::as_ptr(&self.0)));
    }
}

/// Sets the level of the log. Lines of higher numbers are not passed on.
pub fn set_level(level: u8) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Whether somebody wants lines of this level.
#[inline]
pub fn is_wanted(level: u8) -> bool {
    WANTED.load(Ordering::Relaxed) > 0 && level <= LEVEL.load(Ordering::Relaxed)
}

/// Passes on a line, if it is wanted.
pub fn offer(line: LogLine) {
    if !is_wanted(line.level) || IS_BUSY.replace(true) {
        return;
    }
    if line.request_id.is_some() {
        KEPT.with_borrow_mut(|kept| {
            if kept.len() == MAX_KEPT {
                kept.pop_front();
            }
            kept.push_back(line);
        });
    } else {
        let taps = TAPS.read().unwrap_or_else(PoisonError::into_inner);
        for tap in taps.iter().filter_map(Weak::upgrade) {
            tap.take(&line);
        }
    }
    IS_BUSY.set(false);
}

/// Passes the lines about a request that this thread serves. They stay, because more than one may want them, until
/// others take their place.
pub fn visit(request_id: &str, mut visit: impl FnMut(&LogLine)) {
    KEPT.with_borrow(|kept| {
        let of_request = |line: &&LogLine| line.request_id.as_deref() == Some(request_id);
        kept.iter().filter(of_request).for_each(&mut visit);
    });
}

/// Cuts a text to the maximum size of a line.
pub fn cut(text: &str) -> &str {
    text.split_at(text.floor_char_boundary(MAX_TEXT)).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Seen(Mutex<Vec<String>>);

    impl Tap for Seen {
        fn take(&self, line: &LogLine) {
            self.0.lock().unwrap().push(line.text.to_string());
            // A tap that logs is not called again.
            offer(line.clone());
        }
    }

    fn line(text: &str, request_id: Option<&str>) -> LogLine {
        LogLine {
            time: SystemTime::UNIX_EPOCH,
            level: 4,
            text: text.into(),
            request_id: request_id.map(Into::into),
            source_line: None,
        }
    }

    fn of_request(id: &str) -> Vec<String> {
        let mut seen = Vec::new();
        visit(id, |line| seen.push(line.text.to_string()));
        seen
    }

    /// One test, because the taps and the level are those of the process.
    #[test]
    fn lines_go_to_taps_or_wait_for_their_request() {
        let seen = Arc::new(Seen::default());
        offer(line("nobody wants it", Some("a")));
        let tapped = Tapped::new(seen.clone());
        assert!(is_wanted(4));
        offer(line("for all", None));
        offer(line("one", Some("a")));
        offer(line("other", Some("b")));
        assert_eq!(*seen.0.lock().unwrap(), ["for all"]);
        assert_eq!(of_request("a"), ["one"]);
        for number in 0..MAX_KEPT {
            offer(line(&number.to_string(), Some("c")));
        }
        assert!(of_request("a").is_empty() && of_request("c").len() == MAX_KEPT);
        set_level(3);
        assert!(!is_wanted(4));
        set_level(8);
        drop(tapped);
        offer(line("late", None));
        assert_eq!(seen.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn long_lines_are_cut_before_a_character() {
        let long = format!("{}é", "x".repeat(MAX_TEXT - 1));
        assert_eq!(cut(&long).len(), MAX_TEXT - 1);
        assert_eq!(cut("short"), "short");
    }
}
