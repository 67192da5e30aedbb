//! The memory allocator, and a function that returns free memory to the system.
//!
//! The gateway uses mimalloc. The system's allocator returns memory late and has separate memory for each thread. Both
//! cost memory in a gateway that loads large configurations while it serves traffic.

#![expect(unsafe_code, reason = "the allocator's interface is C")]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns free memory of the calling thread to the system. Call it on the thread that has just loaded a configuration.
/// Otherwise mimalloc keeps tens of megabytes until that thread allocates again, which may never happen.
pub(crate) fn give_back() {
    // SAFETY: takes no pointers; any thread may call it at any time, even one that has not used the allocator.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
