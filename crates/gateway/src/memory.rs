//! The allocator, and giving memory back to the system.
//!
//! The system's own allocator gives memory back late and splits it between threads; a gateway that loads large
//! configurations next to its traffic shows both.

#![expect(unsafe_code, reason = "the allocator's interface is C")]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Gives back what is free. For the thread that has just loaded a configuration: the allocator would keep those tens of
/// megabytes until that thread allocates again, which may be never.
pub(crate) fn give_back() {
    // SAFETY: takes no pointers and may be called at any time from any thread that has used the allocator or not.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
