//! The memory allocator, and returning free memory to the system.
//!
//! The system's allocator returns memory late and divides it between threads. Both cost memory in a gateway that loads
//! large configurations while it serves traffic.

#![expect(unsafe_code, reason = "the allocator's interface is C")]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns free memory to the system. Call it on the thread that has just loaded a configuration: the allocator would
/// keep those tens of megabytes until that thread allocates again, which may never happen.
pub(crate) fn give_back() {
    // SAFETY: takes no pointers; any thread may call it at any time, even one that has not used the allocator.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
