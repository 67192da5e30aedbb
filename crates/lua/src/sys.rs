//! The part of LuaJIT's C API that this crate uses.
//!
//! Functions that may raise a Lua error unwind. They may be called only inside of a protected call, from a frame without
//! destructors. With a memory limit, everything that allocates may raise.

#![expect(non_camel_case_types, reason = "the names are C's")]
#![expect(unsafe_code, reason = "declarations of C functions")]

use libc::{c_char, c_int, c_void, size_t};

#[repr(C)]
pub(crate) struct lua_State([u8; 0]);

pub(crate) type lua_CFunction = unsafe extern "C-unwind" fn(*mut lua_State) -> c_int;
pub(crate) type lua_Hook = unsafe extern "C-unwind" fn(*mut lua_State, *mut c_void);
pub(crate) type lua_Alloc = unsafe extern "C" fn(
    ud: *mut c_void,
    ptr: *mut c_void,
    old: size_t,
    new: size_t,
) -> *mut c_void;

pub(crate) const REGISTRY: c_int = -10000;
pub(crate) const GLOBALS: c_int = -10002;
pub(crate) const YIELD: c_int = 1;
pub(crate) const MASKCOUNT: c_int = 8;
pub(crate) const GC_COLLECT: c_int = 2;
pub(crate) const GC_COUNT: c_int = 3;
pub(crate) const TSTRING: c_int = 4;
pub(crate) const TFUNCTION: c_int = 6;
pub(crate) const TBOOLEAN: c_int = 1;
pub(crate) const TNUMBER: c_int = 3;
pub(crate) const TTHREAD: c_int = 8;
pub(crate) const TLIGHTUSERDATA: c_int = 2;
pub(crate) const TTABLE: c_int = 5;

// These never raise, or only where this crate never calls them so.
unsafe extern "C-unwind" {
    pub(crate) fn luaL_newstate() -> *mut lua_State;
    pub(crate) fn lua_close(L: *mut lua_State);
    pub(crate) fn lua_getallocf(L: *mut lua_State, ud: *mut *mut c_void) -> lua_Alloc;
    pub(crate) fn lua_setallocf(L: *mut lua_State, f: lua_Alloc, ud: *mut c_void);
    pub(crate) fn lua_gettop(L: *mut lua_State) -> c_int;
    pub(crate) fn lua_settop(L: *mut lua_State, n: c_int);
    pub(crate) fn lua_type(L: *mut lua_State, i: c_int) -> c_int;
    pub(crate) fn lua_toboolean(L: *mut lua_State, i: c_int) -> c_int;
    pub(crate) fn lua_tonumber(L: *mut lua_State, i: c_int) -> f64;
    pub(crate) fn lua_touserdata(L: *mut lua_State, i: c_int) -> *mut c_void;
    pub(crate) fn lua_pushnumber(L: *mut lua_State, n: f64);
    pub(crate) fn lua_rawgeti(L: *mut lua_State, i: c_int, n: c_int);
    pub(crate) fn lua_pcall(
        L: *mut lua_State,
        args: c_int,
        results: c_int,
        handler: c_int,
    ) -> c_int;
    pub(crate) fn lua_cpcall(L: *mut lua_State, f: lua_CFunction, ud: *mut c_void) -> c_int;
    pub(crate) fn lua_resume(L: *mut lua_State, args: c_int) -> c_int;
    pub(crate) fn lua_sethook(
        L: *mut lua_State,
        f: Option<lua_Hook>,
        mask: c_int,
        count: c_int,
    ) -> c_int;
    pub(crate) fn lua_gc(L: *mut lua_State, what: c_int, data: c_int) -> c_int;
    pub(crate) fn luaL_loadbufferx(
        L: *mut lua_State,
        s: *const c_char,
        n: size_t,
        name: *const c_char,
        mode: *const c_char,
    ) -> c_int;
    pub(crate) fn luaL_unref(L: *mut lua_State, t: c_int, r: c_int);
    /// Does not raise for a string, whose bytes it returns.
    pub(crate) fn lua_tolstring(L: *mut lua_State, i: c_int, n: *mut size_t) -> *const c_char;
}

// These may raise.
unsafe extern "C-unwind" {
    pub(crate) fn lua_pushlightuserdata(L: *mut lua_State, p: *mut c_void);
    pub(crate) fn lua_pushlstring(L: *mut lua_State, s: *const c_char, n: size_t);
    pub(crate) fn lua_newthread(L: *mut lua_State) -> *mut lua_State;
    pub(crate) fn lua_xmove(from: *mut lua_State, to: *mut lua_State, n: c_int);
    pub(crate) fn lua_pushcclosure(L: *mut lua_State, f: lua_CFunction, n: c_int);
    /// Opens the library LPeg (`vendor/lpeg`).
    pub(crate) fn luaopen_lpeg(L: *mut lua_State) -> c_int;
    pub(crate) fn lua_setfield(L: *mut lua_State, i: c_int, k: *const c_char);
    pub(crate) fn luaL_ref(L: *mut lua_State, t: c_int) -> c_int;
    pub(crate) fn luaL_openlibs(L: *mut lua_State);
    pub(crate) fn lua_call(L: *mut lua_State, args: c_int, results: c_int);
    pub(crate) fn lua_error(L: *mut lua_State) -> c_int;
}
