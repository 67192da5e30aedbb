//! An allocator that counts what each thread asks of it: for tests that something allocates nothing, or how much it holds.
//!
//! A binary makes it its own: `#[global_allocator] static ALLOCATOR: Counting<System> = Counting(System);`

#![expect(unsafe_code, reason = "the interface of allocators is unsafe")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

/// Another allocator, counted.
pub struct Counting<A>(pub A);

/// What this thread has asked for since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often memory was taken or grown.
    pub allocations: u64,
    /// Bytes taken, whether or not they were given back.
    pub taken: u64,
    /// Bytes taken less bytes given back, whoever took them.
    pub held: i64,
}

thread_local! {
    // Neither is made at the first use nor dropped at the end, so that counting allocates nothing itself.
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { allocations: 0, taken: 0, held: 0 }) };
}

impl Counts {
    pub fn of_this_thread() -> Self {
        COUNTS.get()
    }

    /// What was asked for since then.
    pub fn since(before: Self) -> Self {
        let now = Self::of_this_thread();
        Self {
            allocations: now.allocations - before.allocations,
            taken: now.taken - before.taken,
            held: now.held - before.held,
        }
    }
}

fn count(allocations: u64, taken: usize, given: usize) {
    let mut counts = COUNTS.get();
    counts.allocations += allocations;
    counts.taken += taken as u64;
    counts.held += taken as i64 - given as i64;
    COUNTS.set(counts);
}

// SAFETY: every call goes to the other allocator as it is.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, 0, layout.size());
        // SAFETY: as above.
        unsafe { self.0.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size, layout.size());
        // SAFETY: as above.
        unsafe { self.0.realloc(memory, layout, size) }
    }
}
