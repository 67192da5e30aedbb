//! The VM of a worker: its memory, its functions and coroutines, and the slices in which it runs.
//!
//! Rules, besides those of the ABI (`crate::abi`):
//!
//! - Nothing that may raise an error of Lua is called outside of a protected call. With a memory limit, everything that
//!   allocates may raise. So texts go in by FFI: Lua asks for them.
//! - Frames that an error of Lua unwinds have no destructors.
//! - A VM belongs to its thread. What other threads or drops during a slice release waits in a list ([`take_released`]).

#![expect(unsafe_code, reason = "LuaJIT's interface is C's")]

use crate::abi::{self, Code, Cx, Ending, Pending, Said, WaitKind};
use crate::globals::Globals;
use crate::handles::{
    Context, Function, Suspended, Thread, begin_generation, contexts, take_released,
};
use crate::memory::Memory;
use crate::metrics::{Meter, Slice, Stop};
use crate::open::{Opened, open};
use crate::sys::*;
use crate::target::Target;
use crate::watchdog::{Slot, Watched};
use libc::c_int;
use std::cell::{Cell, RefCell};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Instant;

/// Maximum memory of the VM of a worker. A VM that comes near to it is replaced.
const MAX_MEMORY: usize = 256 << 20;
/// Maximum memory that a slice may add to a VM.
pub(crate) const MAX_GROWTH: usize = 64 << 20;

/// The error of a slice that is stopped for its memory.
pub(crate) const STOPPED_FOR_MEMORY: &str = "stopped: it used too much memory";

/// The VM of a worker.
pub(crate) struct Vm {
    l: *mut lua_State,
    memory: NonNull<Memory>,
    pub(crate) cx: Box<Cx>,
    watched: Watched,
    /// Coroutines that can run a function.
    pool: Vec<Thread>,
    /// Number of coroutines that wait.
    waiting: usize,
    /// Lua functions of `core.lua`.
    compile: c_int,
    forget: c_int,
    take_timer: c_int,
    /// Identifies this VM among those that its thread had.
    generation: u32,
    /// Whether it was nearly full after its garbage was collected.
    is_worn_out: bool,
    /// Why the last slice was stopped.
    stop: Option<Stop>,
    meter: Meter,
}

thread_local! {
    static VM: RefCell<Option<Vm>> = const { RefCell::new(None) };
    /// The VM of the running slice, for the signal handler. It has no destructor, so a handler may read it.
    static RUNNING: Cell<*mut lua_State> = const { Cell::new(null_mut()) };
    /// The registry indexes of the errors of a stop: for its time and for its memory.
    static STOPPED: Cell<[c_int; 2]> = const { Cell::new([0; 2]) };
    /// The state that the VM of this thread shares with the watchdog.
    static SLOT: Cell<*const Slot> = const { Cell::new(std::ptr::null()) };
    /// Whether the running slice is stopped for its memory.
    static IS_FULL: Cell<bool> = const { Cell::new(false) };
}

/// Runs something with the VM of this thread, which is made if there is none.
pub(crate) fn with<T>(run: impl FnOnce(&mut Vm) -> T) -> T {
    VM.with_borrow_mut(|vm| {
        if let Some(old) = &mut *vm
            && old.must_be_replaced()
        {
            old.give_up();
            // Before the new one is made, because both use the lists of the thread.
            *vm = None;
        }
        let vm = vm.get_or_insert_with(Vm::new);
        vm.release();
        run(vm)
    })
}

/// Runs something with the VM of this thread, if it has one that nothing else uses.
pub(crate) fn try_with<T>(run: impl FnOnce(&mut Vm) -> T) -> Option<T> {
    let with = |vm: &RefCell<Option<Vm>>| Some(run(vm.try_borrow_mut().ok()?.as_mut()?));
    VM.try_with(with).ok().flatten()
}

/// The result of running a coroutine.
pub(crate) enum Ran {
    /// The function has ended. It may have returned a function.
    Done(Option<Function>),
    Ended(Ending),
    /// The phase ends here, and the request goes on.
    Stopped,
    Failed(String),
    /// It waits for a future.
    Waits(Suspended, Pending),
    /// It waits for the client's body.
    WaitsForBody(Suspended),
}

impl Vm {
    fn new() -> Self {
        let watched = Watched::here();
        let mut cx = Box::new(Cx::new(watched.slot().clone()));
        let generation = begin_generation();
        // SAFETY: a new VM, which nothing else uses. `open` runs protected.
        let (l, memory, opened) = unsafe {
            let l = luaL_newstate();
            assert!(!l.is_null(), "there is memory for a VM");
            let memory = Memory::watch(l, MAX_MEMORY, stop_for_memory);
            let mut opened = Opened {
                cx: &raw mut *cx,
                compile: 0,
                forget: 0,
                take_timer: 0,
                stopped: [0; 2],
            };
            let status = lua_cpcall(l, open, (&raw mut opened).cast());
            if status != 0 {
                panic!("the Lua code of this crate runs: {}", text_at(l, -1));
            }
            (l, memory, opened)
        };
        STOPPED.set(opened.stopped);
        SLOT.set(Arc::as_ptr(watched.slot()));
        Self {
            l,
            memory,
            cx,
            watched,
            pool: Vec::new(),
            waiting: 0,
            compile: opened.compile,
            forget: opened.forget,
            take_timer: opened.take_timer,
            generation,
            is_worn_out: false,
            stop: None,
            meter: Meter::default(),
        }
    }

    /// Prepares the replacement of the VM.
    fn give_up(&mut self) {
        let waiting = self.waiting;
        let timers = abi::end_timers(self);
        tracing::warn!(
            waiting,
            timers,
            "the Lua VM of a worker is replaced, because its memory is nearly used up"
        );
        self.meter.replaced();
    }

    /// Releases what was dropped since the last time.
    fn release(&mut self) {
        let Some(released) = take_released() else {
            return;
        };
        self.waiting -= released.threads.len();
        let threads = released.threads.iter().map(|thread| thread.reference);
        for reference in released.functions.into_iter().chain(threads) {
            // SAFETY: the references are of this VM, and `luaL_unref` does not raise.
            unsafe { luaL_unref(self.l, REGISTRY, reference) };
        }
        for number in released.contexts {
            let forget = self.forget;
            self.slice(|l| unsafe {
                // SAFETY: none of these raises.
                lua_rawgeti(l, REGISTRY, forget);
                lua_pushnumber(l, number.into());
                lua_pcall(l, 1, 0, 0);
                lua_settop(l, 0);
                0
            });
        }
    }

    /// Enters the VM: the watchdog looks at it until this ends.
    fn slice(&mut self, run: impl FnOnce(*mut lua_State) -> c_int) -> c_int {
        self.memory().begin_slice(MAX_GROWTH);
        IS_FULL.set(false);
        RUNNING.set(self.l);
        self.watched.slot().begin();
        let status = run(self.l);
        // A signal that comes later finds no VM, and one that came before has left its mark.
        RUNNING.set(null_mut());
        let is_late = self.watched.slot().must_stop();
        self.watched.slot().end();
        self.memory().end_slice();
        self.stop = match IS_FULL.get() {
            true => Some(Stop::Memory),
            false => is_late.then_some(Stop::Time),
        };
        if self.stop.is_some() {
            // SAFETY: nothing runs in the VM.
            unsafe { lua_sethook(self.l, None, 0, 0) };
        }
        let used = self.memory().used();
        self.meter.set_memory(used);
        status
    }

    /// Compiles a text of the target's plugin. It sees the globals.
    pub(crate) fn compile(
        &mut self,
        code: Code,
        text: &str,
        globals: &Globals,
        target: &Target<'_>,
    ) -> Result<Function, String> {
        self.cx.offer(text.as_bytes(), globals.text().as_bytes());
        self.cx.number = f64::from(code as u32);
        let mut job = Job {
            function: self.compile,
            from: null_mut(),
            reference: 0,
        };
        let status = self.slice(|l| unsafe {
            // SAFETY: `keep_result` runs protected, and `job` lives during the call.
            lua_cpcall(l, keep_result, (&raw mut job).cast())
        });
        if status != 0 {
            let node = target.raw.node().map(|node| &**node);
            self.meter.count_error(target.raw.plugin_name, node);
            return Err(self.take_error(self.l));
        }
        Ok(self.function(job.reference))
    }

    fn function(&self, reference: c_int) -> Function {
        Function {
            reference,
            generation: self.generation,
        }
    }

    fn take_error(&mut self, l: *mut lua_State) -> String {
        // SAFETY: nothing runs in the VM, and the error is at the top of the stack.
        unsafe {
            let text = text_at(l, -1);
            lua_settop(l, 0);
            text
        }
    }

    /// Whether the function is of this VM, and not of one that was replaced.
    pub(crate) fn has(&self, function: &Function) -> bool {
        function.generation == self.generation
    }

    /// Starts a function of this VM in a coroutine.
    pub(crate) fn start(&mut self, function: &Function, target: &Target<'_>) -> Ran {
        debug_assert!(self.has(function), "the caller has asked");
        let Some(thread) = self.thread() else {
            return Ran::Failed("not enough memory for a coroutine".to_owned());
        };
        // SAFETY: the coroutine is new or has ended, and this does not raise.
        unsafe { lua_rawgeti(thread.l, REGISTRY, function.reference) };
        self.run(thread, true, target)
    }

    /// Starts the function of a timer. `is_premature` tells it that the worker ends.
    pub(crate) fn start_timer(
        &mut self,
        number: i32,
        is_premature: bool,
        target: &Target<'_>,
    ) -> Ran {
        match self.take_timer(number, is_premature) {
            Ok(function) => self.start(&function, target),
            Err(error) => Ran::Failed(error),
        }
    }

    /// Forgets the function of a timer that does not run.
    pub(crate) fn drop_timer(&mut self, number: i32) {
        // Without memory, the function stays.
        let _ = self.take_timer(number, false);
    }

    fn take_timer(&mut self, number: i32, is_premature: bool) -> Result<Function, String> {
        self.cx.number = number.into();
        self.cx.flags = is_premature.into();
        let mut job = Job {
            function: self.take_timer,
            from: null_mut(),
            reference: 0,
        };
        let status = self.slice(|l| unsafe {
            // SAFETY: `keep_result` runs protected, and `job` lives during the call.
            lua_cpcall(l, keep_result, (&raw mut job).cast())
        });
        if status != 0 {
            return Err(self.take_error(self.l));
        }
        Ok(self.function(job.reference))
    }

    /// Continues a coroutine that waits.
    pub(crate) fn resume(&mut self, mut suspended: Suspended, target: &Target<'_>) -> Ran {
        let is_here = std::thread::current().id() == suspended.owner;
        match suspended.thread.take() {
            Some(thread) if is_here && suspended.generation == self.generation => {
                self.waiting -= 1;
                self.run(thread, false, target)
            }
            _ => Ran::Failed("the VM of the worker was replaced".to_owned()),
        }
    }

    /// Runs a coroutine for a slice. `is_call` tells whether it begins.
    fn run(&mut self, thread: Thread, is_call: bool, target: &Target<'_>) -> Ran {
        let context = target.raw.state().and_then(|state| {
            let interpreter = state.interpreter.as_deref()?;
            let context = interpreter.downcast_ref::<Context>()?;
            (context.generation == self.generation).then_some(context.number)
        });
        self.cx.memory_used = self.memory().used();
        self.cx.enter(target.raw, context.unwrap_or(0));
        let cx = &raw mut *self.cx;
        let began = Instant::now();
        let status = self.slice(|_| unsafe {
            // SAFETY: the function and its arguments are on the stack of the coroutine. `lua_resume` is protected.
            loop {
                let status = lua_resume(thread.l, 0);
                // What the user's code yields at the outermost level goes on at once, as in OpenResty. It is still the
                // same slice, so that an endless loop of yields is stopped.
                if status != YIELD || (*cx).wait != 0 {
                    return status;
                }
                lua_settop(thread.l, 0);
            }
        });
        let slice = Slice {
            began,
            is_call,
            has_failed: status != 0 && status != YIELD,
            stop: self.stop,
        };
        let node = target.raw.node().map(|node| &**node);
        self.meter.count(target.raw.plugin_name, node, &slice);
        let said = match status {
            0 => abi::said_by(&mut self.cx),
            _ => None,
        };
        self.cx.leave();
        let ran = self.finish(thread, status, said);
        let grown = self.memory().used().saturating_sub(self.cx.memory_used);
        if slice.stop.is_some() && grown > MAX_GROWTH / 4 {
            // Nearly all that it has left is garbage. LuaJIT itself would let much more of it come together.
            self.collect_garbage();
        }
        ran
    }

    fn finish(&mut self, thread: Thread, status: c_int, said: Option<Said>) -> Ran {
        // SAFETY: nothing runs in the VM. None of these calls raises.
        unsafe {
            match status {
                0 => {
                    let returned = (lua_gettop(thread.l) > 0 && lua_type(thread.l, 1) == TFUNCTION)
                        .then(|| self.keep(thread))
                        .flatten();
                    lua_settop(thread.l, 0);
                    self.pool.push(thread);
                    // What was said is the response, also if nothing ends it.
                    match said {
                        Some(said) => Ran::Ended(Ending::AtOnce(said.response())),
                        None => Ran::Done(returned),
                    }
                }
                YIELD => {
                    lua_settop(thread.l, 0);
                    self.waiting += 1;
                    let suspended = Suspended {
                        thread: Some(thread),
                        generation: self.generation,
                        owner: std::thread::current().id(),
                    };
                    let kind = self.cx.wait;
                    match (self.cx.ending.take(), self.cx.waiting.take()) {
                        // Dropping `suspended` abandons the coroutine.
                        (Some(ending), _) if kind == WaitKind::End as u32 => Ran::Ended(ending),
                        (_, Some(pending)) if kind == WaitKind::Future as u32 => {
                            Ran::Waits(suspended, pending)
                        }
                        _ if kind == WaitKind::End as u32 => Ran::Stopped,
                        _ if kind == WaitKind::Body as u32 => Ran::WaitsForBody(suspended),
                        _ => Ran::Failed("it waits for nothing".to_owned()),
                    }
                }
                _ => {
                    let mut error = self.take_error(thread.l);
                    if self.stop == Some(Stop::Memory) {
                        // LuaJIT's own error can come first.
                        STOPPED_FOR_MEMORY.clone_into(&mut error);
                    }
                    luaL_unref(self.l, REGISTRY, thread.reference);
                    self.cx.ending = None;
                    self.cx.waiting = None;
                    Ran::Failed(error)
                }
            }
        }
    }

    /// Returns a coroutine that runs nothing.
    fn thread(&mut self) -> Option<Thread> {
        if let Some(thread) = self.pool.pop() {
            return Some(thread);
        }
        let mut thread = Thread {
            l: null_mut(),
            reference: 0,
        };
        // SAFETY: `new_thread` runs protected, and `thread` lives during the call.
        let status = unsafe { lua_cpcall(self.l, new_thread, (&raw mut thread).cast()) };
        if status != 0 {
            self.take_error(self.l);
            return None;
        }
        Some(thread)
    }

    /// Keeps the function that a coroutine has returned as its first result.
    fn keep(&mut self, thread: Thread) -> Option<Function> {
        let mut job = Job {
            function: 0,
            from: thread.l,
            reference: 0,
        };
        // SAFETY: the function is the only value on the stack of the coroutine after this, and `keep_result` runs
        // protected.
        let status = unsafe {
            lua_settop(thread.l, 1);
            lua_cpcall(self.l, keep_result, (&raw mut job).cast())
        };
        if status != 0 {
            self.take_error(self.l);
            return None;
        }
        Some(self.function(job.reference))
    }

    fn memory(&self) -> &Memory {
        // SAFETY: the memory lives as long as the VM.
        unsafe { self.memory.as_ref() }
    }

    /// Whether the VM should be replaced. Coroutines that wait delay that, until there is hardly any memory left: then all
    /// code on this worker would fail.
    fn must_be_replaced(&mut self) -> bool {
        if self.memory().free() >= MAX_MEMORY / 4 {
            return false;
        }
        if !self.is_worn_out {
            // Code that was stopped for its memory leaves much garbage.
            self.collect_garbage();
            self.is_worn_out = self.memory().free() < MAX_MEMORY / 4;
        }
        // Requests that are in the middle would lose their tables, and those that wait would fail.
        let is_idle = self.waiting == 0 && contexts() == 0;
        self.is_worn_out && (is_idle || self.memory().free() < MAX_MEMORY / 16)
    }

    fn collect_garbage(&mut self) {
        let status = self.slice(|l| unsafe {
            // SAFETY: it runs protected, because the user's finalizers may raise.
            lua_cpcall(l, collect_garbage, null_mut())
        });
        if status != 0 {
            let error = self.take_error(self.l);
            tracing::error!(error, "a finalizer of Lua code failed");
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        begin_generation();
        SLOT.set(std::ptr::null());
        // SAFETY: nothing runs in the VM, and the memory is freed after it.
        unsafe {
            lua_close(self.l);
            drop(Box::from_raw(self.memory.as_ptr()));
        }
    }
}

/// The signal handler of the watchdog. It runs on the worker's own thread, so nothing of the VM runs at the same time.
/// It can come after the slice that it is for; then the next one goes on.
pub(crate) extern "C" fn on_signal(_: c_int) {
    if is_late() {
        stop();
    }
}

/// Whether the watchdog has stopped the running slice.
fn is_late() -> bool {
    let slot = SLOT.get();
    // SAFETY: the VM of this thread keeps the slot, and clears the pointer before it is dropped.
    !slot.is_null() && unsafe { &*slot }.must_stop()
}

/// Whether the running slice is stopped for its memory.
pub(crate) fn is_full() -> bool {
    IS_FULL.get()
}

/// Stops the running slice, because it may use no more memory. The error of LuaJIT alone could be caught.
pub(crate) fn stop_for_memory() {
    IS_FULL.set(true);
    stop();
}

/// Makes the running slice raise an error at each instruction.
fn stop() {
    let l = RUNNING.get();
    if !l.is_null() {
        // SAFETY: LuaJIT allows this call in a signal handler. Clearing the hook first repairs the table of the
        // interpreter, if the signal came while it was changed.
        unsafe {
            lua_sethook(l, None, 0, 0);
            lua_sethook(l, Some(stop_hook), MASKCOUNT, 1);
        }
    }
}

/// Raises an error at each instruction, so that no `pcall` and no coroutine can go on.
unsafe extern "C-unwind" fn stop_hook(l: *mut lua_State, _: *mut libc::c_void) {
    // SAFETY: LuaJIT calls it while Lua code runs, and it has no destructors.
    unsafe {
        lua_rawgeti(l, REGISTRY, STOPPED.get()[usize::from(IS_FULL.get())]);
        lua_error(l);
    }
}

/// The text of an error at a place of the stack.
///
/// # Safety
///
/// Nothing may run in the VM.
pub(crate) unsafe fn text_at(l: *mut lua_State, at: c_int) -> String {
    // SAFETY: the type is checked first, and a string is not converted.
    unsafe {
        match lua_type(l, at) {
            TSTRING => {
                let mut length = 0;
                let text = lua_tolstring(l, at, &mut length);
                let text = std::slice::from_raw_parts(text.cast::<u8>(), length);
                String::from_utf8_lossy(text).into_owned()
            }
            TNUMBER => lua_tonumber(l, at).to_string(),
            TBOOLEAN => (lua_toboolean(l, at) != 0).to_string(),
            TTABLE => "(error object is a table value)".to_owned(),
            TTHREAD => "(error object is a thread value)".to_owned(),
            TLIGHTUSERDATA => "(error object is a userdata value)".to_owned(),
            _ => "(error object is no text)".to_owned(),
        }
    }
}

/// What [`keep_result`] needs and returns.
struct Job {
    /// The function whose result is kept, or 0.
    function: c_int,
    /// The coroutine whose value is kept otherwise.
    from: *mut lua_State,
    reference: c_int,
}

/// Calls a function without arguments, or takes the value of a coroutine, and keeps it in the registry.
unsafe extern "C-unwind" fn keep_result(l: *mut lua_State) -> c_int {
    // SAFETY: the argument is a `Job`. Errors unwind through this frame, which has no destructors.
    unsafe {
        let job = lua_touserdata(l, 1).cast::<Job>();
        if (*job).function != 0 {
            lua_rawgeti(l, REGISTRY, (*job).function);
            lua_call(l, 0, 1);
        } else {
            lua_xmove((*job).from, l, 1);
        }
        (*job).reference = luaL_ref(l, REGISTRY);
    }
    0
}

unsafe extern "C-unwind" fn new_thread(l: *mut lua_State) -> c_int {
    // SAFETY: the argument is a `Thread`. Errors unwind through this frame, which has no destructors.
    unsafe {
        let thread = lua_touserdata(l, 1).cast::<Thread>();
        (*thread).l = lua_newthread(l);
        (*thread).reference = luaL_ref(l, REGISTRY);
    }
    0
}

/// Whether the running slice must stop. LPeg asks for it while it matches.
#[unsafe(no_mangle)]
extern "C" fn silverback_lua_is_stopped() -> c_int {
    c_int::from(is_late() || IS_FULL.get())
}

unsafe extern "C-unwind" fn collect_garbage(l: *mut lua_State) -> c_int {
    // SAFETY: errors unwind through this frame, which has no destructors.
    unsafe { lua_gc(l, GC_COLLECT, 0) };
    0
}
