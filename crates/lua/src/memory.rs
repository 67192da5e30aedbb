//! The memory of a VM: LuaJIT's own allocator, with a count and a limit.
//!
//! LuaJIT's allocator is kept because it returns addresses of 47 bits on every platform, which LuaJIT needs, and because
//! it frees the memory of a VM as a whole.

#![expect(unsafe_code, reason = "LuaJIT's allocators are C functions")]

use crate::sys::{GC_COUNT, lua_Alloc, lua_State, lua_gc, lua_getallocf, lua_setallocf};
use libc::c_void;
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

/// The memory of one VM. The VM's allocator has a pointer to it, so it must outlive the VM.
pub(crate) struct Memory {
    inner: lua_Alloc,
    inner_state: *mut c_void,
    used: Cell<usize>,
    /// Maximum of the VM.
    limit: usize,
    /// Maximum of the running slice: the memory before it and what it may add.
    ceiling: Cell<usize>,
    /// Called when an allocation is refused, in the middle of whatever the VM does.
    refused: fn(),
}

impl Memory {
    /// Counts the memory of a VM from now on, and limits it.
    ///
    /// # Safety
    ///
    /// `l` must be a VM that nothing runs in. The result must be freed after the VM.
    pub(crate) unsafe fn watch(l: *mut lua_State, limit: usize, refused: fn()) -> NonNull<Memory> {
        let mut inner_state = null_mut();
        // SAFETY: none of these calls runs code of Lua or raises an error.
        let (inner, used) = unsafe {
            let inner = lua_getallocf(l, &mut inner_state);
            let kib = usize::try_from(lua_gc(l, GC_COUNT, 0)).unwrap_or(0);
            (inner, (kib + 1) << 10)
        };
        let memory = Box::leak(Box::new(Self {
            inner,
            inner_state,
            used: Cell::new(used),
            limit,
            ceiling: Cell::new(limit),
            refused,
        }));
        let memory = NonNull::from(memory);
        // SAFETY: the memory lives longer than the VM, and `allocate` expects it.
        unsafe { lua_setallocf(l, allocate, memory.as_ptr().cast()) };
        memory
    }

    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// Begins a slice, which may add this number of bytes.
    #[inline]
    pub(crate) fn begin_slice(&self, growth: usize) {
        self.ceiling.set(self.limit.min(self.used.get() + growth));
    }

    /// Ends a slice. What its worker itself does in the VM, such as making a coroutine, has no limit but that of the VM.
    pub(crate) fn end_slice(&self) {
        self.ceiling.set(self.limit);
    }

    /// Returns the number of bytes up to the limit of the VM.
    pub(crate) fn free(&self) -> usize {
        self.limit.saturating_sub(self.used.get())
    }
}

/// LuaJIT's allocation function (`lua_Alloc`). It allocates, resizes and frees.
unsafe extern "C" fn allocate(
    memory: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: `Memory::watch` has passed this pointer, and the memory outlives the VM.
    let memory = unsafe { &*memory.cast::<Memory>() };
    let used = (memory.used.get() + new).saturating_sub(old);
    if new > old && used > memory.ceiling.get() {
        (memory.refused)();
        return null_mut();
    }
    // SAFETY: the arguments are LuaJIT's, for its own allocator.
    let result = unsafe { (memory.inner)(memory.inner_state, block, old, new) };
    if !result.is_null() || new == 0 {
        memory.used.set(used);
    }
    result
}
