//! The VM of a worker: its memory, its functions and coroutines, and the slices in which it runs.
//!
//! Rules, besides those of the ABI (`crate::abi`):
//!
//! - Nothing that may raise an error of Lua is called outside of a protected call. With a memory limit, everything that
//!   allocates may raise. So texts go in by FFI: Lua asks for them.
//! - Frames that an error of Lua unwinds have no destructors.
//! - A VM belongs to its thread. What other threads or drops during a slice release waits in a list ([`Released`]).

#![expect(unsafe_code, reason = "LuaJIT's interface is C's")]

use crate::abi::{self, Code, Cx, Ending, FUNCTIONS, Pending, Said, WaitKind};
use crate::globals::Globals;
use crate::memory::Memory;
use crate::sys::*;
use crate::target::Target;
use crate::watchdog::Watched;
use libc::{c_char, c_int};
use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum memory of the VM of a worker. A VM that comes near to it is replaced.
const MAX_MEMORY: usize = 256 << 20;
/// Maximum memory that a slice may add to a VM.
const MAX_GROWTH: usize = 64 << 20;

/// The Lua files of this crate, in the order in which they run. Each gets the table that they share.
const FILES: &[(&CStr, &str)] = &[
    (c"=lua/core.lua", include_str!("lua/core.lua")),
    (c"=lua/coroutine.lua", include_str!("lua/coroutine.lua")),
    (c"=lua/extras.lua", include_str!("lua/extras.lua")),
    (c"=lua/guard.lua", include_str!("lua/guard.lua")),
    (c"=lua/json.lua", include_str!("lua/json.lua")),
    (
        c"=./kong/pdk/private/phases.lua",
        include_str!("lua/pdk_phases.lua"),
    ),
    (c"=lua/lib_cjson.lua", include_str!("lua/lib_cjson.lua")),
    (c"=./kong/pdk/init.lua", include_str!("lua/pdk.lua")),
    (
        c"=./kong/pdk/request.lua",
        include_str!("lua/pdk_request.lua"),
    ),
    (c"=./kong/tools/mime.lua", include_str!("lua/pdk_body.lua")),
    (
        c"=./kong/pdk/service.lua",
        include_str!("lua/pdk_service.lua"),
    ),
    (
        c"=./kong/pdk/response.lua",
        include_str!("lua/pdk_response.lua"),
    ),
    (
        c"=./kong/pdk/service/request.lua",
        include_str!("lua/pdk_service_request.lua"),
    ),
    (
        c"=./kong/pdk/client.lua",
        include_str!("lua/pdk_client.lua"),
    ),
    (
        c"=./kong/pdk/client/tls.lua",
        include_str!("lua/pdk_client_tls.lua"),
    ),
    (
        c"=./kong/pdk/router.lua",
        include_str!("lua/pdk_router.lua"),
    ),
    (c"=./kong/pdk/log.lua", include_str!("lua/pdk_log.lua")),
    (c"=./kong/pdk/node.lua", include_str!("lua/pdk_node.lua")),
    (
        c"=./kong/pdk/tracing.lua",
        include_str!("lua/pdk_tracing.lua"),
    ),
    (c"=./kong/pdk/vault.lua", include_str!("lua/pdk_vault.lua")),
    (c"=./kong/db/dao/init.lua", include_str!("lua/pdk_db.lua")),
    (c"=ngx.lua", include_str!("lua/ngx.lua")),
    (c"=ngx_output.lua", include_str!("lua/ngx_output.lua")),
    (c"=ngx_var.lua", include_str!("lua/ngx_var.lua")),
    (c"=ngx_text.lua", include_str!("lua/ngx_text.lua")),
    (
        c"=./kong/globalpatches.lua",
        include_str!("lua/ngx_patched.lua"),
    ),
    (c"=ngx_req.lua", include_str!("lua/ngx_req.lua")),
    (c"=ngx_ctx.lua", include_str!("lua/ngx_ctx.lua")),
    (c"=ngx_re.lua", include_str!("lua/ngx_re.lua")),
    (
        c"=./resty/core/shdict.lua",
        include_str!("lua/ngx_shared.lua"),
    ),
    (
        c"=./resty/timerng/init.lua",
        include_str!("lua/ngx_timer.lua"),
    ),
    (
        c"=./kong/resty/mlcache/init.lua",
        include_str!("lua/cache.lua"),
    ),
    (c"=lua/lib_hash.lua", include_str!("lua/lib_hash.lua")),
    (c"=lua/lib_cache.lua", include_str!("lua/lib_cache.lua")),
    (c"=lua/lib_modules.lua", include_str!("lua/lib_modules.lua")),
    (
        c"=./kong/tools/kong-lua-sandbox.lua",
        include_str!("lua/kong_lua_sandbox.lua"),
    ),
    (
        c"=./kong/tools/sandbox.lua",
        include_str!("lua/sandbox.lua"),
    ),
];

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
}

/// A coroutine with its reference in the registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thread {
    l: *mut lua_State,
    reference: c_int,
}

// SAFETY: the pointer is only used on the thread of its VM (`Suspended` checks the generation).
unsafe impl Send for Thread {}

/// What is to be released in the VM of this thread when it runs next.
#[derive(Default)]
struct Released {
    functions: Vec<c_int>,
    threads: Vec<Thread>,
    contexts: Vec<u32>,
}

thread_local! {
    static VM: RefCell<Option<Vm>> = const { RefCell::new(None) };
    static RELEASED: RefCell<Released> = RefCell::default();
    /// Identifies the VM of this thread.
    static GENERATION: Cell<u32> = const { Cell::new(0) };
    /// The VM of the running slice, for the signal handler. It has no destructor, so a handler may read it.
    static RUNNING: Cell<*mut lua_State> = const { Cell::new(null_mut()) };
    /// The registry indexes of the errors of a stop: for its time and for its memory.
    static STOPPED: Cell<[c_int; 2]> = const { Cell::new([0; 2]) };
    /// The watchdog's mark of the VM of this thread.
    static STOP_MARK: Cell<*const AtomicBool> = const { Cell::new(std::ptr::null()) };
    /// Whether the running slice is stopped for its memory.
    static IS_FULL: Cell<bool> = const { Cell::new(false) };
}

/// Notes what is to be released. When the thread ends, the list can be gone before what is in it: then the VM is freed as
/// a whole.
fn release(note: impl FnOnce(&mut Released)) {
    let _ = RELEASED.try_with(|released| note(&mut released.borrow_mut()));
}

/// Runs something with the VM of this thread, which is made if there is none.
pub(crate) fn with<T>(run: impl FnOnce(&mut Vm) -> T) -> T {
    VM.with_borrow_mut(|vm| {
        if vm.as_ref().is_some_and(Vm::is_worn_out) {
            tracing::warn!(
                "the Lua VM of a worker is replaced, because its memory is nearly used up"
            );
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

/// Returns the number of the VM of this thread among those that the thread had.
pub(crate) fn generation() -> u32 {
    GENERATION.get()
}

/// A function of the VM of this thread. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Function {
    reference: c_int,
    generation: u32,
}

impl Drop for Function {
    fn drop(&mut self) {
        if GENERATION.get() == self.generation {
            release(|released| released.functions.push(self.reference));
        }
    }
}

/// The tables of a request (`ngx.ctx`, `kong.ctx`). Dropping it releases them.
pub(crate) struct Context {
    pub(crate) number: u32,
    /// What the request has said to the client.
    pub(crate) said: Option<Said>,
    generation: u32,
    thread: std::thread::ThreadId,
}

impl Context {
    pub(crate) fn new(number: u32) -> Self {
        Self {
            number,
            said: None,
            generation: GENERATION.get(),
            thread: std::thread::current().id(),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::current().id() == self.thread && GENERATION.get() == self.generation {
            release(|released| released.contexts.push(self.number));
        }
    }
}

/// A coroutine that waits. Dropping it abandons the coroutine.
pub(crate) struct Suspended {
    thread: Option<Thread>,
    generation: u32,
    owner: std::thread::ThreadId,
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let is_here = std::thread::current().id() == self.owner;
        if let Some(thread) = self.thread.take()
            && is_here
            && GENERATION.get() == self.generation
        {
            release(|released| released.threads.push(thread));
        }
    }
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
        GENERATION.set(GENERATION.get() + 1);
        RELEASED.take();
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
        STOP_MARK.set(&raw const watched.slot().must_stop);
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
            generation: GENERATION.get(),
        }
    }

    /// Releases what was dropped since the last time.
    fn release(&mut self) {
        let released = RELEASED.with_borrow_mut(|released| {
            let is_empty = released.functions.is_empty()
                && released.threads.is_empty()
                && released.contexts.is_empty();
            (!is_empty).then(|| std::mem::take(released))
        });
        let Some(released) = released else {
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
        self.watched.slot().end();
        RUNNING.set(null_mut());
        if self.watched.slot().must_stop.swap(false, Relaxed) | IS_FULL.get() {
            // SAFETY: nothing runs in the VM.
            unsafe { lua_sethook(self.l, None, 0, 0) };
        }
        status
    }

    /// Compiles a text. It sees the globals.
    pub(crate) fn compile(
        &mut self,
        code: Code,
        text: &str,
        globals: &Globals,
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
        self.run(thread, target)
    }

    /// Starts the function of a timer. `is_premature` tells it that the worker ends.
    pub(crate) fn start_timer(
        &mut self,
        number: i32,
        is_premature: bool,
        target: &Target<'_>,
    ) -> Ran {
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
            return Ran::Failed(self.take_error(self.l));
        }
        let function = self.function(job.reference);
        self.start(&function, target)
    }

    /// Continues a coroutine that waits.
    pub(crate) fn resume(&mut self, mut suspended: Suspended, target: &Target<'_>) -> Ran {
        let is_here = std::thread::current().id() == suspended.owner;
        match suspended.thread.take() {
            Some(thread) if is_here && suspended.generation == self.generation => {
                self.waiting -= 1;
                self.run(thread, target)
            }
            _ => Ran::Failed("the VM of the worker was replaced".to_owned()),
        }
    }

    fn run(&mut self, thread: Thread, target: &Target<'_>) -> Ran {
        let context = target.raw.state().and_then(|state| {
            let interpreter = state.interpreter.as_deref()?;
            let context = interpreter.downcast_ref::<Context>()?;
            (context.generation == self.generation).then_some(context.number)
        });
        self.cx.memory_used = self.memory().used();
        self.cx.enter(target.raw, context.unwrap_or(0));
        let cx = &raw mut *self.cx;
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
        let said = match status {
            0 => abi::said_by(&mut self.cx),
            _ => None,
        };
        self.cx.leave();
        self.finish(thread, status, said)
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
                    let error = self.take_error(thread.l);
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

    /// Whether the VM should be replaced, and nothing waits in it.
    fn is_worn_out(&self) -> bool {
        self.memory().is_nearly_full() && self.waiting == 0
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        GENERATION.set(GENERATION.get() + 1);
        STOP_MARK.set(std::ptr::null());
        // SAFETY: nothing runs in the VM, and the memory is freed after it.
        unsafe {
            lua_close(self.l);
            drop(Box::from_raw(self.memory.as_ptr()));
        }
    }
}

/// The signal handler of the watchdog. It runs on the worker's own thread, so nothing of the VM runs at the same time.
pub(crate) extern "C" fn on_signal(_: c_int) {
    stop();
}

/// Stops the running slice, because it may use no more memory. The error of LuaJIT alone could be caught.
fn stop_for_memory() {
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
unsafe fn text_at(l: *mut lua_State, at: c_int) -> String {
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

/// What [`open`] needs and returns.
struct Opened {
    cx: *mut Cx,
    compile: c_int,
    forget: c_int,
    take_timer: c_int,
    /// See [`STOPPED`].
    stopped: [c_int; 2],
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

/// Opens LPeg for `require`.
unsafe extern "C-unwind" fn open_lpeg(l: *mut lua_State) -> c_int {
    // SAFETY: Lua calls it as a function of C, and this frame has no destructors.
    unsafe { luaopen_lpeg(l) }
}

/// Whether the running slice must stop. LPeg asks for it while it matches.
#[unsafe(no_mangle)]
extern "C" fn silverback_lua_is_stopped() -> c_int {
    let mark = STOP_MARK.get();
    // SAFETY: the mark is of the VM of this thread, whose code is calling.
    let must_stop = !mark.is_null() && unsafe { &*mark }.load(Relaxed);
    c_int::from(must_stop || IS_FULL.get())
}

/// Loads the libraries and the Lua code of this crate.
unsafe extern "C-unwind" fn open(l: *mut lua_State) -> c_int {
    // The texts live as long as the process, so that no destructor runs in this frame.
    static DECLARATIONS: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    static CONSTANTS: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let declarations = DECLARATIONS.get_or_init(abi::declarations);
    let constants = CONSTANTS.get_or_init(abi::constants);
    // SAFETY: the argument is an `Opened`. Errors unwind through this frame, which has no destructors.
    unsafe {
        let opened = lua_touserdata(l, 1).cast::<Opened>();
        luaL_openlibs(l);
        push(l, "stopped: it ran for too long");
        (*opened).stopped[0] = luaL_ref(l, REGISTRY);
        push(l, "stopped: it used too much memory");
        (*opened).stopped[1] = luaL_ref(l, REGISTRY);
        lua_pushlightuserdata(l, (&raw const FUNCTIONS).cast_mut().cast());
        lua_setfield(l, GLOBALS, c"SB_FUNCTIONS".as_ptr());
        lua_pushlightuserdata(l, (*opened).cx.cast());
        lua_setfield(l, GLOBALS, c"SB_CX".as_ptr());
        lua_pushlightuserdata(l, null_mut());
        lua_setfield(l, GLOBALS, c"SB_NULL".as_ptr());
        // Nothing reads this address: a light userdata is only compared.
        lua_pushlightuserdata(l, std::ptr::dangling_mut::<u8>().cast());
        lua_setfield(l, GLOBALS, c"SB_EMPTY_ARRAY".as_ptr());
        lua_pushcclosure(l, open_lpeg, 0);
        lua_setfield(l, GLOBALS, c"SB_LPEG".as_ptr());
        push(l, declarations);
        lua_setfield(l, GLOBALS, c"SB_DECLARATIONS".as_ptr());
        load(l, c"=constants", constants);
        lua_call(l, 0, 1);
        lua_setfield(l, GLOBALS, c"SB_CONSTANTS".as_ptr());
        // The first file makes the table that the others share, and returns it.
        let mut shared = 0;
        for (number, (name, text)) in FILES.iter().enumerate() {
            load(l, name, text);
            if number == 0 {
                lua_call(l, 0, 1);
                shared = luaL_ref(l, REGISTRY);
            } else {
                lua_rawgeti(l, REGISTRY, shared);
                lua_call(l, 1, 0);
            }
        }
        load(
            l,
            c"=functions",
            "local SB = ... return SB.compile, SB.forget, SB.take_timer",
        );
        lua_rawgeti(l, REGISTRY, shared);
        lua_call(l, 1, 3);
        (*opened).take_timer = luaL_ref(l, REGISTRY);
        (*opened).forget = luaL_ref(l, REGISTRY);
        (*opened).compile = luaL_ref(l, REGISTRY);
        // Snippets without the sandbox can look into the registry.
        luaL_unref(l, REGISTRY, shared);
    }
    0
}

/// Pushes a string. It may raise.
unsafe fn push(l: *mut lua_State, text: &str) {
    // SAFETY: the bytes are copied.
    unsafe { lua_pushlstring(l, text.as_ptr().cast::<c_char>(), text.len()) };
}

/// Compiles a text of this crate and pushes it. It may raise.
unsafe fn load(l: *mut lua_State, name: &CStr, text: &str) {
    // SAFETY: the bytes live during the call. Mode "t" refuses bytecode, which is not safe.
    unsafe {
        let text = (text.as_ptr().cast::<c_char>(), text.len());
        if luaL_loadbufferx(l, text.0, text.1, name.as_ptr(), c"t".as_ptr()) != 0 {
            lua_error(l);
        }
    }
}

/// Checks the syntax of a text, and returns LuaJIT's message.
pub fn check_syntax(text: &str) -> Result<(), String> {
    check_chunk(text, text)
}

/// Checks the syntax of a text with the name of a chunk.
pub(crate) fn check_chunk(text: &str, name_text: &str) -> Result<(), String> {
    let mut name = Vec::with_capacity(name_text.len() + 1);
    // The name of a chunk ends at its first NUL.
    name.extend(name_text.bytes().take_while(|byte| *byte != 0));
    name.push(0);
    // SAFETY: a new VM that runs no code; `luaL_loadbufferx` does not raise.
    unsafe {
        let l = luaL_newstate();
        assert!(!l.is_null(), "there is memory for a VM");
        let at = text.as_ptr().cast::<c_char>();
        let loaded = luaL_loadbufferx(l, at, text.len(), name.as_ptr().cast(), c"t".as_ptr());
        let result = match loaded {
            0 => Ok(()),
            _ => Err(text_at(l, -1)),
        };
        lua_close(l);
        result
    }
}
