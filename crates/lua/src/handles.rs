//! What Rust keeps of a VM: functions, tables of requests and coroutines. What is dropped is released when the VM runs
//! next, because other threads and running slices drop it, too.

#![expect(unsafe_code, reason = "a coroutine has a raw pointer")]

use crate::abi::Said;
use crate::sys::lua_State;
use libc::c_int;
use std::cell::{Cell, RefCell};

thread_local! {
    static RELEASED: RefCell<Released> = RefCell::default();
    /// Identifies the VM of this thread.
    static GENERATION: Cell<u32> = const { Cell::new(0) };
    /// Number of requests that have tables in the VM of this thread.
    static CONTEXTS: Cell<usize> = const { Cell::new(0) };
}

/// A coroutine with its reference in the registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thread {
    pub(crate) l: *mut lua_State,
    pub(crate) reference: c_int,
}

// SAFETY: the pointer is only used on the thread of its VM (`Suspended` checks the generation).
unsafe impl Send for Thread {}

/// What is to be released in the VM of this thread when it runs next.
#[derive(Default)]
pub(crate) struct Released {
    pub(crate) functions: Vec<c_int>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) contexts: Vec<u32>,
}

/// Notes what is to be released. When the thread ends, the list can be gone before what is in it: then the VM is freed as
/// a whole.
fn release(note: impl FnOnce(&mut Released)) {
    let _ = RELEASED.try_with(|released| note(&mut released.borrow_mut()));
}

/// Takes what is to be released. Returns `None` if it is nothing.
pub(crate) fn take_released() -> Option<Released> {
    RELEASED.with_borrow_mut(|released| {
        let is_empty = released.functions.is_empty()
            && released.threads.is_empty()
            && released.contexts.is_empty();
        (!is_empty).then(|| std::mem::take(released))
    })
}

/// Returns the number of the VM of this thread among those that the thread had.
pub(crate) fn generation() -> u32 {
    GENERATION.get()
}

/// Makes what is kept of the former VM of this thread invalid. Returns the number of the next one.
pub(crate) fn begin_generation() -> u32 {
    // The list can be gone at the end of the thread.
    let _ = RELEASED.try_with(RefCell::take);
    GENERATION.set(GENERATION.get() + 1);
    CONTEXTS.set(0);
    GENERATION.get()
}

/// Returns the number of requests that have tables in the VM of this thread.
pub(crate) fn contexts() -> usize {
    CONTEXTS.get()
}

/// A function of the VM of this thread. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) reference: c_int,
    pub(crate) generation: u32,
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
    pub(crate) generation: u32,
    thread: std::thread::ThreadId,
}

impl Context {
    pub(crate) fn new(number: u32) -> Self {
        CONTEXTS.set(CONTEXTS.get() + 1);
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
            CONTEXTS.set(CONTEXTS.get() - 1);
            release(|released| released.contexts.push(self.number));
        }
    }
}

/// A coroutine that waits. Dropping it abandons the coroutine.
pub(crate) struct Suspended {
    pub(crate) thread: Option<Thread>,
    pub(crate) generation: u32,
    pub(crate) owner: std::thread::ThreadId,
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
