//! Waits: they pass through the user's coroutines, and what is abandoned is not used again.

use super::on_worker;
use crate::abi::Code;
use crate::vm::{self, Ran};
use crate::{Globals, Outcome, Scripts, Snippets, Target};
use plugin::Node;

/// Runs a text to its end. Returns the number of its waits. Its sleeps take no time here.
fn run_with_waits(text: &str) -> Result<usize, String> {
    let node = Node::bare().expect("a thread can be started");
    let target = Target::node(&node);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = runtime.expect("a runtime can be made");
    runtime.block_on(async {
        let scripts = Scripts::new(Snippets {
            texts: [text.to_owned()].into(),
            globals: Globals::all(),
        });
        let mut waits = 0;
        let mut outcome = scripts.run(&target);
        loop {
            match outcome {
                Outcome::Done => return Ok(waits),
                Outcome::Failed(error) => return Err(error),
                Outcome::Waits(progress, pending) => {
                    waits += 1;
                    pending.await;
                    outcome = scripts.resume(progress, &target);
                }
                Outcome::Ended(_) | Outcome::WaitsForBody(_) => return Err("it ended".to_owned()),
            }
        }
    })
}

#[test]
fn a_wait_passes_through_the_users_coroutines() {
    let waits = on_worker(|| {
        run_with_waits(
            "local co = coroutine.wrap(function(a)
               local b = coroutine.yield(a + 1)
               ngx.sleep(1)
               coroutine.yield(b * 2)
               local inner = coroutine.create(function() ngx.sleep(1) coroutine.yield(8) error('bad', 0) end)
               local ok, v = coroutine.resume(inner)
               local ok2, e = coroutine.resume(inner)
               return tostring(ok) .. v .. tostring(ok2) .. e .. coroutine.status(inner)
             end)
             local r = {co(1), co(5), co()}
             -- A function of `wrap` that has ended returns this, as in OpenResty.
             local ok, dead, e = pcall(co)
             r[#r + 1] = tostring(ok) .. tostring(dead) .. ':' .. e
             r = table.concat(r, ' ')
             assert(r == '2 10 true8falsebaddead truefalse:cannot resume dead coroutine', r)",
        )
    });
    assert_eq!(waits, Ok(2));
}

#[test]
fn a_wait_passes_through_protected_calls_metamethods_and_iterators() {
    let waits = on_worker(|| {
        run_with_waits(
            "local ok, v = pcall(function() ngx.sleep(1) return 1 end)
             for x in function(_, i) if not i then ngx.sleep(1) return 10 end end do v = v + x end
             local t = setmetatable({}, {__index = function() ngx.sleep(1) return 100 end})
             assert(v + t.x == 111)
             -- Nothing can wait within a function in C.
             assert(not pcall(table.sort, {1, 2}, function() ngx.sleep(1) end))",
        )
    });
    assert_eq!(waits, Ok(3));
}

#[test]
fn a_yield_at_the_outermost_level_goes_on_at_once() {
    let waits = on_worker(|| run_with_waits("coroutine.yield(1) coroutine.yield()"));
    assert_eq!(waits, Ok(0));
}

#[test]
fn an_abandoned_wait_is_not_used_again() {
    let result = on_worker(|| {
        let node = Node::bare().expect("a thread can be started");
        let target = Target::node(&node);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let _entered = runtime.as_ref().expect("a runtime can be made").enter();
        let function = vm::with(|vm| {
            vm.compile(
                Code::Snippet,
                "ngx.sleep(1) reached = true",
                &Globals::all(),
                &target,
            )
        })?;
        for _ in 0..100 {
            match vm::with(|vm| vm.start(&function, &target)) {
                Ran::Waits(suspended, pending) => drop((suspended, pending)),
                _ => return Err("it does not wait".to_owned()),
            }
        }
        super::run("assert(not reached)")
    });
    assert_eq!(result, Ok(()));
}

#[test]
fn a_coroutine_that_waits_is_not_resumed_by_others() {
    let waits = on_worker(|| {
        run_with_waits(
            "local main = coroutine.running()
             local other
             other = coroutine.wrap(function()
               ngx.sleep(1)
               return coroutine.status(main)
             end)
             assert(other() == 'normal')
             ngx.timer.at(0, function()
               seen = {coroutine.status(main), coroutine.resume(main)}
             end)
             ngx.sleep(1)
             assert(seen[1] == 'normal' and seen[2] == false, tostring(seen[1]))
             assert(seen[3] == 'cannot resume non-suspended coroutine')
             assert(coroutine.status(main) == 'running')",
        )
    });
    assert_eq!(waits, Ok(2));
}
