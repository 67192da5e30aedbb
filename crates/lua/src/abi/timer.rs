//! Timers of Lua code. A timer runs on the worker that has made it, as a coroutine without a request.

use super::{Cx, FOUND, NO_REQUEST, NONE, REFUSED};
use crate::target::Target;
use crate::vm::{self, Ran};
use plugin::{Node, RequestState};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Maximum number of timers of a worker that wait (`lua_max_pending_timers`) and that run (`lua_max_running_timers`).
const MAX_PENDING: u32 = 16_384;
const MAX_RUNNING: u32 = 4_096;
/// The longest time until a timer runs.
const LONGEST: f64 = 2_147_483.0;

thread_local! {
    static PENDING: Cell<u32> = const { Cell::new(0) };
    static RUNNING: Cell<u32> = const { Cell::new(0) };
}

/// Starts a timer. Lua knows the function by the number. Returns [`REFUSED`] with an error if there are too many.
pub(super) fn start(cx: &mut Cx, number: i32, seconds: f64) -> i32 {
    let Some(node) = cx.target.node().cloned() else {
        return NO_REQUEST;
    };
    let Ok(worker) = Handle::try_current() else {
        return NONE;
    };
    if PENDING.get() >= MAX_PENDING {
        return cx.refuse("too many pending timers");
    }
    PENDING.set(PENDING.get() + 1);
    let waiting = Waiting {
        number,
        node,
        generation: vm::generation(),
        owner: std::thread::current().id(),
        is_due: false,
    };
    let delay = Duration::from_secs_f64(seconds.clamp(0.0, LONGEST));
    worker.spawn(async move {
        tokio::time::sleep(delay).await;
        waiting.run().await;
    });
    FOUND
}

/// Returns the number of timers that wait (0) or run (1).
pub(super) fn count(_: &mut Cx, which: i32) -> i32 {
    let count = if which == 0 {
        PENDING.get()
    } else {
        RUNNING.get()
    };
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A timer that waits. If the worker ends before it is due, its function is told so (`premature`).
struct Waiting {
    number: i32,
    node: Arc<Node>,
    generation: u32,
    owner: std::thread::ThreadId,
    is_due: bool,
}

impl Waiting {
    async fn run(mut self) {
        self.is_due = true;
        PENDING.set(PENDING.get().saturating_sub(1));
        if RUNNING.get() >= MAX_RUNNING {
            tracing::error!("{MAX_RUNNING} lua_max_running_timers are not enough");
            return;
        }
        if self.generation != vm::generation() {
            return;
        }
        let _running = Running::new();
        run_entry(self.number, &self.node).await;
    }
}

/// Runs the function of a timer to its end. Errors are logged.
pub(super) async fn run_entry(number: i32, node: &Arc<Node>) {
    let mut state = RequestState::default();
    let mut ran = {
        let target = Target::timer(node, &mut state);
        vm::with(|vm| vm.start_timer(number, false, &target))
    };
    loop {
        match ran {
            Ran::Waits(suspended, pending) => {
                pending.await;
                let target = Target::timer(node, &mut state);
                ran = vm::with(|vm| vm.resume(suspended, &target));
            }
            other => return report(other),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_due || std::thread::current().id() != self.owner {
            return;
        }
        PENDING.set(PENDING.get().saturating_sub(1));
        if self.generation != vm::generation() {
            return;
        }
        let mut state = RequestState::default();
        let target = Target::timer(&self.node, &mut state);
        if let Some(ran) = vm::try_with(|vm| vm.start_timer(self.number, true, &target)) {
            report(ran);
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
