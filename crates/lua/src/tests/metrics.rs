//! What is counted of the Lua code, and what happens to a VM that is nearly full.

use super::on_worker;
use crate::{Globals, Outcome, Scripts, Snippets, Target};
use plugin::{Node, RequestState};
use std::sync::Arc;

const PLUGIN: &str = "post-function";

fn scripts(text: &str) -> Scripts {
    Scripts::new(Snippets {
        texts: [text.to_owned()].into(),
        globals: Globals::all(),
    })
}

/// Runs a text as code of a plugin.
fn run(node: &Arc<Node>, text: &str) -> Outcome {
    let mut state = RequestState::default();
    scripts(text).run(&Target::timer(node, &mut state).of(PLUGIN))
}

/// Returns the value of a sample. `name` includes the labels.
fn sample(node: &Node, name: &str) -> f64 {
    let page = node.metrics.render();
    let found = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = found.unwrap_or_else(|| panic!("no {name} in\n{page}"));
    value.parse().expect("a number")
}

fn of_plugin(node: &Node, name: &str) -> f64 {
    sample(
        node,
        &format!("silverback_lua_{name}{{plugin=\"{PLUGIN}\"}}"),
    )
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_time()
        .build()
        .expect("a runtime can be made")
}

/// Keeps more and more memory, while a condition holds.
fn fill(node: &Arc<Node>, goes_on: impl Fn() -> bool) {
    for _ in 0..60 {
        let text = "kept = kept or {} kept[#kept + 1] = ('x'):rep(4 * 1024 * 1024 + #kept)";
        assert!(matches!(run(node, text), Outcome::Done));
        if !goes_on() {
            return;
        }
    }
    panic!("it was not full in the end");
}

fn replaced(node: &Node) -> f64 {
    sample(node, "silverback_lua_vms_replaced_total")
}

#[test]
fn calls_errors_and_times_of_a_plugin_are_counted() {
    on_worker(|| {
        let node = Node::bare().unwrap();
        for _ in 0..5 {
            assert!(matches!(run(&node, "return 1"), Outcome::Done));
        }
        assert!(matches!(run(&node, "error('x')"), Outcome::Failed(_)));
        assert!(matches!(run(&node, "syntax error"), Outcome::Failed(_)));
        // The text that cannot be compiled is an error, but never a call.
        assert_eq!(of_plugin(&node, "calls_total"), 6.0);
        assert_eq!(of_plugin(&node, "errors_total"), 2.0);
        assert_eq!(of_plugin(&node, "slice_seconds_count"), 6.0);
        assert!(of_plugin(&node, "slice_seconds_sum") > 0.0);
        let other = Target::node(&node).of("pre-function");
        assert!(matches!(scripts("return 1").run(&other), Outcome::Done));
        let calls = "silverback_lua_calls_total{plugin=\"pre-function\"}";
        assert_eq!(sample(&node, calls), 1.0);
        assert_eq!(of_plugin(&node, "calls_total"), 6.0);
    });
}

#[test]
fn a_call_that_waits_is_one_call_of_several_slices() {
    on_worker(|| {
        let node = Node::bare().unwrap();
        runtime().block_on(async {
            let scripts = scripts("ngx.sleep(0.02) ngx.sleep(0.02)");
            let mut state = RequestState::default();
            let mut outcome = scripts.run(&Target::timer(&node, &mut state).of(PLUGIN));
            while let Outcome::Waits(progress, pending) = outcome {
                pending.await;
                let target = Target::timer(&node, &mut state).of(PLUGIN);
                outcome = scripts.resume(progress, &target);
            }
        });
        assert_eq!(of_plugin(&node, "calls_total"), 1.0);
        assert_eq!(of_plugin(&node, "slice_seconds_count"), 3.0);
        // The 40 ms of the waits are not counted.
        let at_most = "silverback_lua_slice_seconds_bucket{plugin=\"post-function\",le=\"0.01\"}";
        assert_eq!(sample(&node, at_most), 3.0);
    });
}

#[test]
fn calls_that_exceed_a_limit_are_counted_by_limit() {
    on_worker(|| {
        let node = Node::bare().unwrap();
        run(&node, "while true do end");
        run(&node, "local s = 'x' while true do s = s .. s end");
        let stopped = |limit| {
            let labels = format!("{{plugin=\"{PLUGIN}\",limit=\"{limit}\"}}");
            sample(&node, &format!("silverback_lua_stopped_total{labels}"))
        };
        assert_eq!(stopped("time"), 1.0);
        assert_eq!(stopped("memory"), 1.0);
        assert_eq!(of_plugin(&node, "errors_total"), 2.0);
    });
}

#[test]
fn the_memory_of_the_vm_is_shown_while_it_exists() {
    let node = Node::bare().unwrap();
    let memory = "silverback_lua_memory_bytes{worker=\"none\"}";
    let kept = {
        let node = node.clone();
        // Its end is waited for.
        let worker = std::thread::spawn(move || {
            let mut before = 0.0;
            for text in ["return 1", "kept = ('x'):rep(8 * 1024 * 1024)"] {
                before = sample_or_zero(&node, memory);
                assert!(matches!(run(&node, text), Outcome::Done));
            }
            sample(&node, memory) - before
        });
        worker.join().expect("it does not panic")
    };
    assert!(kept > 8e6, "{kept}");
    assert_eq!(sample(&node, memory), 0.0, "the thread has ended");
}

fn sample_or_zero(node: &Node, name: &str) -> f64 {
    match node.metrics.render().contains(name) {
        true => sample(node, name),
        false => 0.0,
    }
}

#[test]
fn the_timers_of_a_replaced_vm_are_called_at_once() {
    on_worker(|| {
        let node = Node::bare().unwrap();
        let entered = runtime();
        let _entered = entered.enter();
        let text = "ngx.timer.at(3600, function(premature)
              ngx.shared.kong:incr('once:' .. tostring(premature), 1, 0)
              ngx.timer.at(0, function() end)
            end)
            ngx.timer.every(3600, function(premature)
              ngx.shared.kong:incr('every:' .. tostring(premature), 1, 0)
            end)";
        assert!(matches!(run(&node, text), Outcome::Done));
        fill(&node, || replaced(&node) == 0.0);
        let check = "local d = ngx.shared.kong
            assert(d:get('once:true') == 1 and d:get('every:true') == 1)
            assert(not d:get('once:false') and not d:get('every:false'))
            assert(ngx.timer.pending_count() == 0)";
        let outcome = run(&node, check);
        assert!(matches!(outcome, Outcome::Done), "{}", text_of(&outcome));
        // A timer of the new VM can have the number of one of the old VM.
        let again = run(&node, "assert(ngx.timer.at(3600, function() end))");
        assert!(matches!(again, Outcome::Done), "{}", text_of(&again));
    });
}

fn text_of(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed(error) => error,
        _ => "",
    }
}

#[test]
fn coroutines_that_wait_delay_the_replacement_until_there_is_hardly_any_memory() {
    on_worker(|| {
        let node = Node::bare().unwrap();
        let entered = runtime();
        let _entered = entered.enter();
        let scripts = scripts("ngx.sleep(3600)");
        let mut state = RequestState::default();
        let waits = scripts.run(&Target::timer(&node, &mut state).of(PLUGIN));
        let Outcome::Waits(progress, _) = waits else {
            panic!("it waits: {}", text_of(&waits));
        };
        let memory = || sample(&node, "silverback_lua_memory_bytes{worker=\"none\"}");
        fill(&node, || memory() < f64::from(200 << 20));
        assert_eq!(replaced(&node), 0.0);
        fill(&node, || replaced(&node) == 0.0);
        // Other code goes on, and what waited fails.
        assert!(matches!(run(&node, "return 1"), Outcome::Done));
        let resumed = scripts.resume(progress, &Target::timer(&node, &mut state).of(PLUGIN));
        assert_eq!(text_of(&resumed), "the VM of the worker was replaced");
    });
}

#[test]
fn requests_with_tables_delay_the_replacement_so_that_they_keep_them() {
    on_worker(|| {
        let node = Node::bare().unwrap();
        let (set, get) = (
            scripts("ngx.ctx.a = 'kept'"),
            scripts("assert(ngx.ctx.a == 'kept')"),
        );
        let mut state = RequestState::default();
        let outcome = set.run(&Target::timer(&node, &mut state).of(PLUGIN));
        assert!(matches!(outcome, Outcome::Done), "{}", text_of(&outcome));
        let memory = || sample(&node, "silverback_lua_memory_bytes{worker=\"none\"}");
        fill(&node, || memory() < f64::from(200 << 20));
        let outcome = get.run(&Target::timer(&node, &mut state).of(PLUGIN));
        assert!(matches!(outcome, Outcome::Done), "{}", text_of(&outcome));
        assert_eq!(replaced(&node), 0.0);
        drop(state);
        assert!(matches!(run(&node, "return 1"), Outcome::Done));
        assert_eq!(replaced(&node), 1.0);
    });
}

#[test]
fn code_after_a_stop_for_memory_has_the_memory_of_the_vm() {
    on_worker(|| {
        let node = Node::bare().unwrap();
        let good = scripts("return");
        let run_good = || {
            let mut state = RequestState::default();
            good.run(&Target::timer(&node, &mut state).of(PLUGIN))
        };
        assert!(matches!(run_good(), Outcome::Done));
        // It is stopped when a few bytes are left, and its coroutine is not used again.
        let bomb = "local kept, list = {}
            for i = 1, 60 do kept[i] = ('x'):rep(1e6 + i) end
            while true do list = {list} end";
        let stopped = run(&node, bomb);
        assert!(matches!(stopped, Outcome::Failed(_)));
        let outcome = run_good();
        assert!(matches!(outcome, Outcome::Done), "{}", text_of(&outcome));
    });
}

#[test]
fn garbage_is_collected_before_a_vm_is_replaced() {
    on_worker(|| {
        let node = Node::bare().unwrap();
        let entered = runtime();
        let _entered = entered.enter();
        let waiting = scripts("ngx.sleep(3600)");
        let mut state = RequestState::default();
        let waits = waiting.run(&Target::timer(&node, &mut state).of(PLUGIN));
        let Outcome::Waits(progress, _) = waits else {
            panic!("it waits: {}", text_of(&waits));
        };
        for _ in 0..8 {
            let bomb = "local kept = {} for i = 1, 1e9 do kept[i] = ('x'):rep(4e6 + i) end";
            let stopped = run(&node, bomb);
            assert!(matches!(stopped, Outcome::Failed(_)));
            let memory = sample(&node, "silverback_lua_memory_bytes{worker=\"none\"}");
            assert!(memory < 16e6, "{memory}");
        }
        // Garbage of many calls that are not stopped.
        for _ in 0..20 {
            assert!(matches!(run(&node, "return ('x'):rep(3e7)"), Outcome::Done));
        }
        assert_eq!(replaced(&node), 0.0);
        let resumed = waiting.resume(progress, &Target::timer(&node, &mut state).of(PLUGIN));
        assert!(matches!(resumed, Outcome::Done), "{}", text_of(&resumed));
    });
}
