//! Checks of the syntax of texts, when a configuration is loaded.

#![expect(unsafe_code, reason = "LuaJIT's interface is C's")]

use crate::sys::*;
use crate::vm::text_at;
use libc::c_char;

/// Memory of a checker in KiB after which another one is made.
const MAX_KIB: i32 = 16 << 10;

/// A VM that compiles texts, but runs none. It has no libraries.
struct Checker(*mut lua_State);

thread_local! {
    static CHECKER: std::cell::RefCell<Option<Checker>> = const { std::cell::RefCell::new(None) };
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
    CHECKER.with_borrow_mut(|checker| {
        let (result, kib) = checker.get_or_insert_with(Checker::new).check(text, &name);
        if kib > MAX_KIB {
            *checker = None;
        }
        result
    })
}

impl Checker {
    fn new() -> Self {
        // SAFETY: it has no preconditions.
        let l = unsafe { luaL_newstate() };
        assert!(!l.is_null(), "there is memory for a VM");
        Self(l)
    }

    /// Compiles a text. `name` ends with NUL. Returns also the memory of the VM in KiB.
    fn check(&mut self, text: &str, name: &[u8]) -> (Result<(), String>, i32) {
        // SAFETY: the VM runs no code. None of these calls raises: nothing in the VM has a finalizer.
        unsafe {
            let (at, name) = (text.as_ptr().cast::<c_char>(), name.as_ptr().cast());
            let loaded = luaL_loadbufferx(self.0, at, text.len(), name, c"t".as_ptr());
            let result = match loaded {
                0 => Ok(()),
                _ => Err(text_at(self.0, -1)),
            };
            lua_settop(self.0, 0);
            (result, lua_gc(self.0, GC_COUNT, 0))
        }
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        // SAFETY: nothing runs in the VM.
        unsafe { lua_close(self.0) };
    }
}
