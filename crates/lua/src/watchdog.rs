//! Stops Lua code that runs for too long.
//!
//! A slice is the time from the entry into a VM to its return. It costs its worker two stores. A thread looks at all
//! workers at each tick, and counts the ticks that a slice lasts. If these are too many, it marks the worker and sends its
//! thread a signal. The handler sets a hook that raises an error at each instruction, so that no `pcall` can go on.
//!
//! A signal is needed because only the thread of a VM may set its hook: LuaJIT patches the table of its interpreter then.

#![expect(unsafe_code, reason = "signals and threads are C's")]

use crate::vm::on_signal;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Time between two looks at the workers.
const TICK: Duration = Duration::from_millis(5);
/// Ticks after which a slice is stopped.
const MAX_TICKS: u32 = 40;

/// Maximum time that a slice may run, more or less a tick.
pub const MAX_SLICE: Duration = Duration::from_millis(TICK.as_millis() as u64 * MAX_TICKS as u64);

/// The signal. Its default is to be ignored, and nothing else in the program uses it.
const SIGNAL: libc::c_int = libc::SIGURG;

/// The state that a worker and the watchdog share.
pub(crate) struct Slot {
    /// Number of begun and ended slices: odd while one runs.
    slice: AtomicU64,
    /// The last slice that the watchdog has stopped. It is a number and no flag, because the slice that took too long
    /// may have ended when the watchdog writes it; the next one must go on.
    stopped: AtomicU64,
    thread: libc::pthread_t,
    /// The slice that the watchdog saw last, and for how many ticks.
    seen: AtomicU64,
    ticks: AtomicU32,
    /// Ticks after which a slice is stopped.
    max_ticks: u32,
}

impl Slot {
    fn here() -> Self {
        Self {
            slice: AtomicU64::new(0),
            // No slice has this number.
            stopped: AtomicU64::new(u64::MAX),
            // SAFETY: it has no preconditions.
            thread: unsafe { libc::pthread_self() },
            seen: AtomicU64::new(0),
            ticks: AtomicU32::new(0),
            max_ticks: max_ticks(),
        }
    }

    #[inline]
    pub(crate) fn begin(&self) {
        self.slice.store(self.slice.load(Relaxed) + 1, Release);
    }

    #[inline]
    pub(crate) fn end(&self) {
        self.slice.store(self.slice.load(Relaxed) + 1, Release);
    }

    /// Whether the running slice must stop. Functions of this crate that can run for long ask this.
    #[inline]
    pub(crate) fn must_stop(&self) -> bool {
        self.stopped.load(Relaxed) == self.slice.load(Relaxed)
    }

    fn look(&self) {
        let now = self.slice.load(Acquire);
        if now != self.seen.load(Relaxed) || now.is_multiple_of(2) {
            self.seen.store(now, Relaxed);
            self.ticks.store(0, Relaxed);
            return;
        }
        if self.ticks.fetch_add(1, Relaxed) < self.max_ticks {
            return;
        }
        self.stopped.store(now, Relaxed);
        // Again at each tick until the slice has ended: a signal can be lost.
        // SAFETY: the thread runs, because it removes the slot under the lock before it ends.
        unsafe { libc::pthread_kill(self.thread, SIGNAL) };
    }
}

/// Returns the ticks after which slices of this thread are stopped.
fn max_ticks() -> u32 {
    #[cfg(test)]
    if tests::IS_PATIENT.get() {
        return u32::MAX;
    }
    MAX_TICKS
}

/// The workers that the watchdog looks at.
static SLOTS: Mutex<Vec<Arc<Slot>>> = Mutex::new(Vec::new());

fn slots() -> std::sync::MutexGuard<'static, Vec<Arc<Slot>>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread's slot. The watchdog looks at it until this is dropped, which must happen on the same thread.
pub(crate) struct Watched(Arc<Slot>);

impl Watched {
    pub(crate) fn here() -> Self {
        static STARTED: OnceLock<()> = OnceLock::new();
        STARTED.get_or_init(start);
        let slot = Arc::new(Slot::here());
        slots().push(slot.clone());
        Self(slot)
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.0
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        slots().retain(|slot| !Arc::ptr_eq(slot, &self.0));
    }
}

fn start() {
    // SAFETY: the handler only calls functions that may be called in a signal handler on the thread of the VM.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        let set = libc::sigaction(SIGNAL, &action, std::ptr::null_mut());
        assert_eq!(set, 0, "the signal exists");
    }
    let watch = || {
        loop {
            std::thread::sleep(TICK);
            slots().iter().for_each(|slot| slot.look());
        }
    };
    let thread = std::thread::Builder::new().name("lua-watchdog".to_owned());
    thread.spawn(watch).expect("a thread can be started");
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{MAX_TICKS, Slot, start};
    use std::cell::Cell;

    thread_local! {
        /// Whether slices of this thread have all the time, for tests of other limits. It must be set before the thread
        /// has a VM.
        pub(crate) static IS_PATIENT: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn only_the_slice_that_took_too_long_is_stopped() {
        start();
        let slot = Slot::here();
        let look_too_often = || (0..=MAX_TICKS + 1).for_each(|_| slot.look());
        assert!(!slot.must_stop(), "no slice has begun");
        slot.begin();
        slot.look();
        assert!(!slot.must_stop());
        look_too_often();
        assert!(slot.must_stop());
        slot.end();
        assert!(!slot.must_stop());
        slot.begin();
        assert!(!slot.must_stop(), "a mark for the slice before");
        look_too_often();
        assert!(slot.must_stop());
    }
}
