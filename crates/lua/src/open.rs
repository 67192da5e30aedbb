//! Fills a new VM: libraries, the functions of Rust, and the Lua code of this crate.

#![expect(unsafe_code, reason = "LuaJIT's interface is C's")]

use crate::abi::{self, Cx, FUNCTIONS};
use crate::files::FILES;
use crate::sys::*;
use crate::vm::STOPPED_FOR_MEMORY;
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::ptr::null_mut;

/// What [`open`] needs and returns.
pub(crate) struct Opened {
    pub(crate) cx: *mut Cx,
    pub(crate) compile: c_int,
    pub(crate) forget: c_int,
    pub(crate) take_timer: c_int,
    /// The errors of a stop: for its time and for its memory.
    pub(crate) stopped: [c_int; 2],
}

/// Opens LPeg for `require`.
unsafe extern "C-unwind" fn open_lpeg(l: *mut lua_State) -> c_int {
    // SAFETY: Lua calls it as a function of C, and this frame has no destructors.
    unsafe { luaopen_lpeg(l) }
}

/// Loads the libraries and the Lua code of this crate.
pub(crate) unsafe extern "C-unwind" fn open(l: *mut lua_State) -> c_int {
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
        push(l, STOPPED_FOR_MEMORY);
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
