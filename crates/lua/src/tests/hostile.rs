//! Code that would harm others: it must fail soon, and the VM must work afterwards.

use super::{on_patient_worker, on_worker, run};
use std::time::{Duration, Instant};

/// Runs texts that never end by themselves.
fn stops(texts: &'static [(&str, &str)]) {
    for (name, text) in texts {
        let (result, took, after) = on_worker(move || {
            let start = Instant::now();
            let result = run(text);
            let took = start.elapsed();
            let after = run("local n = 0 for i = 1, 1000 do n = n + i end assert(n == 500500)");
            (result, took, after)
        });
        assert!(result.is_err(), "{name}: {result:?}");
        assert_eq!(after, Ok(()), "{name}");
        // A bound that only a loop without an end exceeds, however busy the machine is.
        assert!(took < Duration::from_secs(50), "{name}: {took:?}");
    }
}

#[test]
fn loops_without_an_end_are_stopped() {
    stops(&[
        ("empty loop", "while true do end"),
        (
            "compiled for loop",
            "local x = 0 for i = 1, 1e18 do x = x + i end",
        ),
        ("interpreted", "jit.off(true) while true do end"),
        (
            "pcall of a loop",
            "while true do pcall(function() while true do end end) end",
        ),
        (
            "pcall of nothing",
            "while true do pcall(function() end) end",
        ),
        (
            "nested pcalls",
            "local function f() while true do pcall(f) end end f()",
        ),
        (
            "wrap in a loop",
            "while true do pcall(coroutine.wrap(function() while true do end end)) end",
        ),
        (
            "resume in a loop",
            "while true do coroutine.resume(coroutine.create(function() while true do pcall(function() while true do end end) end end)) end",
        ),
        (
            "ping-pong",
            "local c = coroutine.wrap(function() while true do coroutine.yield() end end) while true do pcall(c) end",
        ),
        (
            "xpcall, handler loops",
            "xpcall(function() error('x') end, function() while true do end end) while true do end",
        ),
        (
            "xpcall, handler loops on a stop for memory",
            "xpcall(function()
               pcall(function() local t = {} while true do t[#t + 1] = string.rep('x', 1000000) .. #t end end)
               local x = 1
               x = x + 1
             end, function() while true do end end)",
        ),
        (
            "xpcall, handler loops on stop",
            "while true do xpcall(function() while true do end end, function() while true do end end) end",
        ),
        (
            "native xpcall handler pcalls",
            "while true do xpcall(function() while true do end end, function() pcall(function() while true do end end) end) end",
        ),
        (
            "recursion by tail calls",
            "local function f(n) return f(n + 1) end f(1)",
        ),
        (
            "mutual recursion, caught",
            "local function f() return (pcall(f)) or true end while true do f() end",
        ),
        (
            "metamethod loops",
            "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while true do pcall(function() return t[1] end) end",
        ),
        ("iterator", "for _ in function() return 1 end do end"),
        ("goto", "::a:: goto a"),
        (
            "sort's comparator",
            "local t = {} for i = 1, 1e6 do t[i] = i % 1000 end while true do table.sort(t, function(a, b) return a < b end) end",
        ),
        (
            "gsub with a function",
            "local s = ('x'):rep(1000) while true do s:gsub('.', function() while true do end end) end",
        ),
        (
            "load in a loop",
            "while true do loadstring('return 1')() end",
        ),
        (
            "side traces",
            "local x = 0 for i = 1, 1e18 do if i % 3 == 0 then x = x + 1 elseif i % 5 == 0 then x = x - 1 end pcall(tostring, i % 7) end",
        ),
        (
            "debug.sethook",
            "while true do pcall(function() debug.sethook() while true do end end) end",
        ),
        ("table.move", "table.move({}, 1, 1e15, 1)"),
        (
            "string.format",
            "while true do string.format('%99.99f', 1e300) end",
        ),
        (
            "upvalue closures",
            "local fs = {} while true do fs[#fs % 100 + 1] = function() return fs end end",
        ),
    ]);
}

#[test]
fn functions_in_c_that_run_for_long_are_stopped() {
    stops(&[
        (
            "regex: each start sees all of a long subject",
            "return ngx.re.find(('a'):rep(4000000), 'a*[bc]')",
        ),
        (
            "a long set",
            "return ('a'):rep(400000):find('[^' .. ('b'):rep(400000) .. ']*')",
        ),
        (
            "a long set at each start",
            "return ('a'):rep(400000):find('[' .. ('b'):rep(400000) .. ']')",
        ),
        (
            "pattern bomb",
            "return ('a'):rep(30000):find(('a*'):rep(30) .. 'b')",
        ),
        (
            "match: .- chains",
            "return ('a'):rep(3000):match('(.-)(.-)(.-)(.-)(.-)(.-)b')",
        ),
        (
            "gmatch",
            "for _ in ('a'):rep(100000):gmatch(('a*'):rep(30) .. 'b') do end while true do end",
        ),
        (
            "gsub",
            "return ('a'):rep(100000):gsub(('a-'):rep(30) .. 'b', '')",
        ),
        (
            "caught pattern bomb",
            "while true do pcall(string.find, ('a'):rep(30000), ('a*'):rep(30) .. 'b') end",
        ),
        ("rep", "while true do local s = ('x'):rep(1e7) end"),
        ("rep over the limit", "return ('x'):rep(1e9)"),
        (
            "rep caught",
            "while true do pcall(string.rep, 'x', 1e9) end",
        ),
        (
            "plain find, quadratic",
            "local s, n = ('x'):rep(1e7), ('x'):rep(4e6) .. 'y' while true do s:find(n, 1, true) end",
        ),
        (
            "sort without a function",
            "local t = {} for i = 1, 2e6 do t[i] = (i * 7919) % 1000003 end while true do table.sort(t) end",
        ),
        (
            "concat",
            "local t = {} for i = 1, 1e5 do t[i] = 'xxxxxxxxxx' end while true do table.concat(t) end",
        ),
        (
            "insert at the front",
            "local t = {} while true do table.insert(t, 1, 0) end",
        ),
        (
            "next over holes",
            "local t = {} for i = 1, 1e6 do t[i] = 1 end for i = 1, 1e6 do t[i] = nil end while true do next(t) end",
        ),
        (
            "%b",
            "local s = ('('):rep(2e6) while true do s:find('%b()') end",
        ),
        (
            "tostring of long strings",
            "local s = ('1'):rep(1e6) while true do tonumber(s) end",
        ),
        (
            "table bomb",
            "local t = {} for i = 1, 1e12 do t[i] = {} end",
        ),
        ("string bomb", "local s = 'x' while true do s = s .. s end"),
        (
            "caught table bomb",
            "while true do pcall(function() local t = {} for i = 1, 1e12 do t[i] = {} end end) end",
        ),
        (
            "coroutine bomb",
            "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
        ),
    ]);
}

#[test]
fn deep_recursion_and_full_memory_end_only_the_code_itself() {
    stops(&[
        (
            "deep recursion",
            "local function f() return 1 + f() end return f()",
        ),
        (
            "deep recursion caught",
            "local function f() return 1 + f() end while true do pcall(f) end",
        ),
        (
            "C stack: nested gsub",
            "local function f(s) return (s:gsub('.', f)) end return f('x')",
        ),
        (
            "C stack: nested sort",
            "local function f(a, b) table.sort({1, 2, 3}, f) return a < b end f(1, 2)",
        ),
        (
            "C stack: nested resume",
            "local function f() return coroutine.wrap(f)() end return f()",
        ),
        (
            "C stack: nested tostring",
            "local t = setmetatable({}, {__tostring = function(s) return tostring(s) end}) while true do pcall(tostring, t) end",
        ),
        (
            "C stack: nested format",
            "local t = setmetatable({}, {__tostring = function(s) return string.format('%s', s) end}) while true do pcall(tostring, t) end",
        ),
        (
            "C stack: nested load",
            "local function f() load(f) return nil end while true do pcall(f) end",
        ),
        (
            "C stack: nested native wrap",
            "local function f() return coroutine.wrap(f)() end while true do pcall(f) end",
        ),
        (
            "C stack: resume and pcall",
            "local function f() return pcall(coroutine.resume, coroutine.create(f)) end while true do f() end",
        ),
        (
            "C stack: nested require",
            "package.preload.x = function() package.loaded.x = nil return require 'x' end while true do pcall(require, 'x') end",
        ),
        (
            "C stack: nested pcall",
            "local function f() return select(2, pcall(f)) end f() while true do end",
        ),
        ("parser depth", "return assert(loadstring(('('):rep(1e5)))"),
        (
            "closures of error handlers",
            "local function f() return xpcall(f, f) end f() while true do end",
        ),
    ]);
}

#[test]
fn short_slices_are_never_stopped() {
    let result = on_worker(|| {
        for _ in 0..20_000 {
            run("return 1")?;
        }
        run("local n = 0 for i = 1, 1e6 do n = n + 1 end assert(n == 1e6)")
    });
    assert_eq!(result, Ok(()));
}

#[test]
fn a_slice_can_be_stopped_at_any_moment() {
    let results = on_worker(|| {
        let loops = (0..20).map(|number| {
            let text = format!(
                "local k = {number} while true do pcall(function() local t = {{}} \
                 for j = 1, 50 do t[j] = tostring(j + k) end \
                 loadstring('local x = 0 for i = 1, 100 do x = x + i end return x')() end) end"
            );
            let stopped = run(&text);
            (
                stopped,
                run("local t = {} for i = 1, 100 do t[i] = i end assert(#t == 100)"),
            )
        });
        loops.collect::<Vec<_>>()
    });
    for result in results {
        assert_eq!(
            result,
            (Err("stopped: it ran for too long".to_owned()), Ok(()))
        );
    }
}

#[test]
fn a_vm_that_is_full_is_replaced() {
    let result = on_worker(|| {
        // Each slice stays below the limit of a slice, but keeps what it makes.
        for _ in 0..40 {
            run("kept = kept or {} kept[#kept + 1] = ('x'):rep(8e6 + #kept)")?;
        }
        run("assert(#(kept or {}) < 40, 'the memory was never freed')")
    });
    assert_eq!(result, Ok(()));
}

#[test]
fn memory_cannot_be_taken_bit_by_bit_within_a_slice() {
    let result = on_patient_worker(|| {
        run("local t = {} while true do pcall(function() t[#t + 1] = ('x'):rep(1e5 + #t) end) end")
    });
    assert_eq!(result, Err("stopped: it used too much memory".to_owned()));
}

/// What Rust keeps for Lua counts as the memory of the slice.
#[test]
fn memory_outside_of_the_vm_has_a_limit() {
    for text in [
        "local s = ('a'):rep(10000000) require('cjson').encode({s, s, s, s, s, s, s})",
        "require('cjson').decode('[' .. ('1,'):rep(9000000) .. '1]')",
        "ngx.decode_args(('a&'):rep(3000000), 0)",
        "local s = ('a'):rep(60000) for i = 1, 5000 do kong.worker_events.post_local('a', 'b', s) end",
    ] {
        let result = on_patient_worker(move || run(text));
        assert_eq!(
            result,
            Err("stopped: it used too much memory".to_owned()),
            "{text}"
        );
    }
}

/// PCRE2 keeps the memory of a match for backtracking with its result.
#[test]
fn many_regexes_take_little_memory() {
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        pages.unwrap_or(0_usize) * 4096
    };
    let text = "local s = ('ab'):rep(20000) for i = 1, 100 do ngx.re.find(s, '(?:a|b|' .. n .. 'x' .. i .. ')*[cd]') end";
    let grown = on_worker(move || {
        let before = resident();
        for n in 0..10 {
            // A run may be stopped for its time.
            let _ = run(&format!("n = {n} {text}"));
        }
        resident().saturating_sub(before)
    });
    assert!(grown < 200 << 20, "{grown}");
}
