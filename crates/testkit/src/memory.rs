//! An allocator that counts the allocations of each thread. Tests use it to check that code allocates nothing, or how
//! much memory it holds.
//!
//! To use it in a binary: `#[global_allocator] static ALLOCATOR: Counting<System> = Counting(System);`

#![expect(unsafe_code, reason = "the interface of allocators is unsafe")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

/// An allocator that counts every call and passes it to another allocator.
pub struct Counting<A>(pub A);

/// Allocation counts of the current thread since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of allocations and reallocations.
    pub allocations: u64,
    /// Bytes allocated, including bytes that were freed later.
    pub taken: u64,
    /// Bytes that this thread allocated minus bytes that it freed. It is negative if the thread freed more memory of
    /// other threads than it holds itself.
    pub held: i64,
}

thread_local! {
    // The cell needs no lazy initialization and no destructor, so that counting itself allocates nothing.
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { allocations: 0, taken: 0, held: 0 }) };
}

impl Counts {
    pub fn of_this_thread() -> Self {
        COUNTS.get()
    }

    /// Returns the difference between the current counts and `before`.
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

// SAFETY: every call is passed to the other allocator unchanged.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: the caller keeps the contract of this function, which is the contract of the called function.
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
