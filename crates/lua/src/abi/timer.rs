//! Timers of Lua code. A timer runs on the worker that has made it, as a coroutine without a request.

use super::wait::Pending;
use super::{Cx, FOUND, NO_REQUEST, NONE, REFUSED};
use crate::handles::{self, Suspended};
use crate::target::Target;
use crate::vm::{self, Ran, Vm};
use plugin::{Node, RequestState};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

/// Maximum number of timers of a worker that wait (`lua_max_pending_timers`) and that run (`lua_max_running_timers`).
const MAX_PENDING: usize = 16_384;
const MAX_RUNNING: u32 = 4_096;
/// The longest time until a timer runs.
const LONGEST: f64 = 2_147_483.0;

thread_local! {
    /// The timers of this thread's VM that wait, by number.
    static PENDING: RefCell<BTreeMap<i32, Timer>> = const { RefCell::new(BTreeMap::new()) };
    static RUNNING: Cell<u32> = const { Cell::new(0) };
    /// The turn of the timers of this thread.
    static TURN: Turn = Turn::default();
}

/// Timers that are due begin one after the other, and leave half of the time to requests: timers that start timers would
/// otherwise fill the worker.
#[derive(Default)]
struct Turn {
    only: Arc<Mutex<()>>,
    /// The end of the time that the latest timers have used and must leave to others.
    rests_until: Cell<Option<Instant>>,
}

impl Turn {
    /// Timers follow each other at once if the end of the rest is not later than this.
    const SOON: Duration = Duration::from_millis(1);

    /// Notes a slice. Returns the end of the rest if the next timer must wait for it.
    fn note(&self, began: Instant, ended: Instant) -> Option<Instant> {
        let from = self.rests_until.get().map_or(began, |end| end.max(began));
        let end = from + (ended - began) * 2;
        self.rests_until.set(Some(end));
        (end > ended + Self::SOON).then_some(end)
    }

    /// Gives the turn to the next timer, at once or after a rest.
    fn pass(turn: OwnedMutexGuard<()>, began: Instant) {
        if let Some(end) = TURN.with(|all| all.note(began, Instant::now())) {
            tokio::spawn(async move {
                tokio::time::sleep_until(end).await;
                drop(turn);
            });
        }
    }
}

/// Starts a timer. Lua knows the function by the number. Returns [`REFUSED`] with an error if there are too many.
pub(super) fn start(cx: &mut Cx, number: i32, seconds: f64) -> i32 {
    let Some(node) = cx.target.node().cloned() else {
        return NO_REQUEST;
    };
    let Ok(worker) = Handle::try_current() else {
        return NONE;
    };
    if PENDING.with_borrow(BTreeMap::len) >= MAX_PENDING {
        return cx.refuse("too many pending timers");
    }
    let timer = Timer {
        node,
        plugin: cx.target.plugin_name,
    };
    PENDING.with_borrow_mut(|pending| pending.insert(number, timer));
    let waiting = Waiting {
        number,
        generation: handles::generation(),
        owner: std::thread::current().id(),
        is_taken: false,
    };
    // NaN is no time.
    let delay = Duration::try_from_secs_f64(seconds.clamp(0.0, LONGEST)).unwrap_or_default();
    worker.spawn(async move {
        tokio::time::sleep(delay).await;
        waiting.run().await;
    });
    FOUND
}

/// Returns the number of timers that wait (0) or run (1).
pub(super) fn count(_: &mut Cx, which: i32) -> i32 {
    let count = if which == 0 {
        PENDING.with_borrow(BTreeMap::len)
    } else {
        RUNNING.get() as usize
    };
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Calls the functions of all timers that wait, because their VM is about to be replaced. They are told so
/// (`premature`), as at the end of a worker. Returns their number.
pub(crate) fn end_timers(vm: &mut Vm) -> usize {
    let timers = PENDING.take();
    let count = timers.len();
    for (number, timer) in timers {
        timer.start(vm, number, true, &mut RequestState::default());
    }
    // Timers that these functions have started would not find their VM any more.
    PENDING.take();
    count
}

/// What a timer needs to run.
struct Timer {
    node: Arc<Node>,
    /// Name of the plugin whose code has started it.
    plugin: &'static str,
}

impl Timer {
    /// Calls the function of the timer. Returns its coroutine if it waits.
    fn start(
        &self,
        vm: &mut Vm,
        number: i32,
        is_premature: bool,
        state: &mut RequestState,
    ) -> Option<(Suspended, Pending)> {
        let target = Target::timer(&self.node, state).of(self.plugin);
        waits(vm.start_timer(number, is_premature, &target))
    }

    async fn run_to_end(&self, mut coroutine: (Suspended, Pending), state: &mut RequestState) {
        loop {
            let (suspended, pending) = coroutine;
            pending.await;
            let target = Target::timer(&self.node, state).of(self.plugin);
            match waits(vm::with(|vm| vm.resume(suspended, &target))) {
                Some(next) => coroutine = next,
                None => return,
            }
        }
    }
}

/// Runs the entry of Lua code with this number to its end, as a timer.
pub(super) async fn run_entry(number: i32, node: Arc<Node>) {
    let entry = Timer { node, plugin: "" };
    let mut state = RequestState::default();
    let started = vm::with(|vm| entry.start(vm, number, false, &mut state));
    if let Some(coroutine) = started {
        entry.run_to_end(coroutine, &mut state).await;
    }
}

/// The task of a timer that waits. If the worker ends before it is due, its function is told so (`premature`).
struct Waiting {
    number: i32,
    generation: u32,
    owner: std::thread::ThreadId,
    /// Whether the timer was taken. Its number may be that of another one then.
    is_taken: bool,
}

impl Waiting {
    /// Returns the timer, unless it was called already, also because its VM was replaced.
    fn take(&mut self) -> Option<Timer> {
        if std::mem::replace(&mut self.is_taken, true) {
            return None;
        }
        let is_of_vm = self.generation == handles::generation();
        let take = |pending: &RefCell<BTreeMap<i32, Timer>>| {
            is_of_vm.then(|| pending.borrow_mut().remove(&self.number))?
        };
        // The list may be gone at the end of the thread.
        PENDING.try_with(take).ok().flatten()
    }

    async fn run(mut self) {
        let turn = TURN.with(|turn| turn.only.clone()).lock_owned().await;
        let began = Instant::now();
        let mut state = RequestState::default();
        // The VM may be replaced before it is entered. So the timer is taken after that.
        let started = vm::with(|vm| {
            let timer = self.take()?;
            if RUNNING.get() >= MAX_RUNNING {
                tracing::error!("{MAX_RUNNING} lua_max_running_timers are not enough");
                vm.drop_timer(self.number);
                return None;
            }
            let running = Running::new();
            let coroutine = timer.start(vm, self.number, false, &mut state)?;
            Some((timer, running, coroutine))
        });
        Turn::pass(turn, began);
        if let Some((timer, _running, coroutine)) = started {
            timer.run_to_end(coroutine, &mut state).await;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if std::thread::current().id() != self.owner {
            return;
        }
        if let Some(timer) = self.take() {
            let mut state = RequestState::default();
            vm::try_with(|vm| timer.start(vm, self.number, true, &mut state));
        }
    }
}

/// Returns the coroutine of a timer if it waits. An error ends the timer.
fn waits(ran: Ran) -> Option<(Suspended, Pending)> {
    match ran {
        Ran::Waits(suspended, pending) => Some((suspended, pending)),
        other => {
            report(other);
            None
        }
    }
}

fn report(ran: Ran) {
    if let Ran::Failed(error) = ran {
        tracing::error!("lua entry thread aborted: runtime error: {error}");
    }
}

/// Counts a timer that runs.
struct Running;

impl Running {
    fn new() -> Self {
        RUNNING.set(RUNNING.get() + 1);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The counter may be gone at the end of the thread.
        let _ = RUNNING.try_with(|running| running.set(running.get().saturating_sub(1)));
    }
}

const _: () = assert!(REFUSED < 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_leave_half_of_the_time_to_others() {
        let (turn, start) = (Turn::default(), Instant::now());
        let at = |micros| start + Duration::from_micros(micros);
        // Short ones follow each other until they have used half a millisecond.
        assert_eq!(turn.note(at(0), at(400)), None);
        assert_eq!(turn.note(at(400), at(700)), None);
        assert_eq!(turn.note(at(700), at(1200)), Some(at(2400)));
        assert_eq!(turn.note(at(2400), at(12_400)), Some(at(22_400)));
        assert_eq!(turn.note(at(60_000), at(60_100)), None);
    }
}
