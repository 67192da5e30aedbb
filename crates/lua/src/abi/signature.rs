//! The kinds of functions that Lua calls, by their arguments: as types of Rust, as declarations for C, and as functions
//! for C that call one of Rust.

/// The type of a function by the kinds of its arguments: `i` is an `int32_t`, `d` a `double`, `s` a text.
macro_rules! signature {
    (_) => { unsafe extern "C" fn(*mut Cx) -> i32 };
    (i) => { unsafe extern "C" fn(*mut Cx, i32) -> i32 };
    (d) => { unsafe extern "C" fn(*mut Cx, f64) -> i32 };
    (s) => { unsafe extern "C" fn(*mut Cx, *const u8, usize) -> i32 };
    (is) => { unsafe extern "C" fn(*mut Cx, i32, *const u8, usize) -> i32 };
    (ii) => { unsafe extern "C" fn(*mut Cx, i32, i32) -> i32 };
    (id) => { unsafe extern "C" fn(*mut Cx, i32, f64) -> i32 };
    (ss) => { unsafe extern "C" fn(*mut Cx, *const u8, usize, *const u8, usize) -> i32 };
    (iss) => { unsafe extern "C" fn(*mut Cx, i32, *const u8, usize, *const u8, usize) -> i32 };
    (iis) => { unsafe extern "C" fn(*mut Cx, i32, i32, *const u8, usize) -> i32 };
    (iiss) => {
        unsafe extern "C" fn(*mut Cx, i32, i32, *const u8, usize, *const u8, usize) -> i32
    };
    (ssii) => {
        unsafe extern "C" fn(*mut Cx, *const u8, usize, *const u8, usize, i32, i32) -> i32
    };
}

/// The arguments of a function in C.
macro_rules! declared {
    (_) => {
        ""
    };
    (i) => {
        ",int32_t"
    };
    (d) => {
        ",double"
    };
    (s) => {
        ",const char*,size_t"
    };
    (is) => {
        ",int32_t,const char*,size_t"
    };
    (ii) => {
        ",int32_t,int32_t"
    };
    (id) => {
        ",int32_t,double"
    };
    (ss) => {
        ",const char*,size_t,const char*,size_t"
    };
    (iss) => {
        ",int32_t,const char*,size_t,const char*,size_t"
    };
    (iis) => {
        ",int32_t,int32_t,const char*,size_t"
    };
    (iiss) => {
        ",int32_t,int32_t,const char*,size_t,const char*,size_t"
    };
    (ssii) => {
        ",const char*,size_t,const char*,size_t,int32_t,int32_t"
    };
}

/// The function for C that calls a function of this crate.
macro_rules! exported {
    (_, $call:path) => {{
        unsafe extern "C" fn exported(cx: *mut Cx) -> i32 {
            guard(cx, $call)
        }
        exported
    }};
    (i, $call:path) => {{
        unsafe extern "C" fn exported(cx: *mut Cx, one: i32) -> i32 {
            guard(cx, |cx| $call(cx, one))
        }
        exported
    }};
    (d, $call:path) => {{
        unsafe extern "C" fn exported(cx: *mut Cx, one: f64) -> i32 {
            guard(cx, |cx| $call(cx, one))
        }
        exported
    }};
    (s, $call:path) => {{
        unsafe extern "C" fn exported(cx: *mut Cx, at: *const u8, length: usize) -> i32 {
            // SAFETY: Lua passes a string and its length.
            guard(cx, |cx| $call(cx, unsafe { bytes(at, length) }))
        }
        exported
    }};
    (is, $call:path) => {{
        unsafe extern "C" fn exported(cx: *mut Cx, one: i32, at: *const u8, length: usize) -> i32 {
            // SAFETY: Lua passes a string and its length.
            guard(cx, |cx| $call(cx, one, unsafe { bytes(at, length) }))
        }
        exported
    }};
    (ii, $call:path) => {{
        unsafe extern "C" fn exported(cx: *mut Cx, one: i32, two: i32) -> i32 {
            guard(cx, |cx| $call(cx, one, two))
        }
        exported
    }};
    (id, $call:path) => {{
        unsafe extern "C" fn exported(cx: *mut Cx, one: i32, two: f64) -> i32 {
            guard(cx, |cx| $call(cx, one, two))
        }
        exported
    }};
    (ss, $call:path) => {{
        unsafe extern "C" fn exported(
            cx: *mut Cx,
            at: *const u8,
            length: usize,
            at2: *const u8,
            length2: usize,
        ) -> i32 {
            // SAFETY: Lua passes strings and their lengths.
            guard(cx, |cx| unsafe {
                $call(cx, bytes(at, length), bytes(at2, length2))
            })
        }
        exported
    }};
    (iis, $call:path) => {{
        unsafe extern "C" fn exported(
            cx: *mut Cx,
            one: i32,
            two: i32,
            at: *const u8,
            length: usize,
        ) -> i32 {
            // SAFETY: Lua passes a string and its length.
            guard(cx, |cx| $call(cx, one, two, unsafe { bytes(at, length) }))
        }
        exported
    }};
    (iss, $call:path) => {{
        unsafe extern "C" fn exported(
            cx: *mut Cx,
            one: i32,
            at: *const u8,
            length: usize,
            at2: *const u8,
            length2: usize,
        ) -> i32 {
            // SAFETY: Lua passes strings and their lengths.
            guard(cx, |cx| unsafe {
                $call(cx, one, bytes(at, length), bytes(at2, length2))
            })
        }
        exported
    }};
    (iiss, $call:path) => {{
        unsafe extern "C" fn exported(
            cx: *mut Cx,
            one: i32,
            two: i32,
            at: *const u8,
            length: usize,
            at2: *const u8,
            length2: usize,
        ) -> i32 {
            // SAFETY: Lua passes strings and their lengths.
            guard(cx, |cx| unsafe {
                $call(cx, one, two, bytes(at, length), bytes(at2, length2))
            })
        }
        exported
    }};
    (ssii, $call:path) => {{
        unsafe extern "C" fn exported(
            cx: *mut Cx,
            at: *const u8,
            length: usize,
            at2: *const u8,
            length2: usize,
            one: i32,
            two: i32,
        ) -> i32 {
            // SAFETY: Lua passes strings and their lengths.
            guard(cx, |cx| unsafe {
                $call(cx, bytes(at, length), bytes(at2, length2), one, two)
            })
        }
        exported
    }};
}
