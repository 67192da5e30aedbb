//! Checks that configurations with new Lua code, one after the other, leave no memory behind on a worker: neither in its
//! Lua VM nor outside of it.

use model::EntityKind;
use plugin::{NoNames, Node, Request};
use proxy::plugins::{Access, Chain, ChainMemory};
use proxy::session::{DataPlane, SessionSettings};
use proxy::snapshot::{BuildSettings, Live};
use serde_json::{Value, json};
use std::alloc::System;
use std::sync::Arc;
use std::task::Poll;
use testkit::memory::{Counting, Counts};
use world::World;

#[path = "it/fixture.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod fixture;
#[path = "it/world.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod world;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Number of configurations.
const CHANGES: usize = 10_000;
/// Number of configurations until tables and pools have their size.
const WARM_UP: usize = 2_000;
/// Bytes of each snippet. If the snippets alone stayed, this would be tens of megabytes.
const LENGTH: usize = 4_000;
/// Bytes that may be added after the warm-up. Garbage of LuaJIT comes and goes.
const TOLERANCE: f64 = 6e6;

/// Memory in bytes: of the VM, of this thread outside of it, and of the process.
struct Memory {
    vm: f64,
    thread: f64,
    resident: f64,
}

impl Memory {
    fn now(node: &Node) -> Self {
        let page = node.metrics.render();
        let sample = page.lines().find_map(|line| {
            let value = line.strip_prefix("silverback_lua_memory_bytes{worker=\"none\"} ")?;
            value.parse().ok()
        });
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
        let resident = status.lines().find_map(|line| {
            let kilobytes = line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?;
            kilobytes.trim().parse::<f64>().ok()
        });
        Self {
            vm: sample.expect("Lua has run"),
            thread: Counts::of_this_thread().held as f64,
            resident: resident.expect("it is shown") * 1024.0,
        }
    }
}

/// Returns a plugin whose snippets no other configuration has. They make a function, use a library and keep an upvalue.
fn plugin(number: usize) -> Value {
    let filler: String = (0..LENGTH / 20)
        .map(|at| format!("local v{} = {}\n", at % 100, number * 1000 + at))
        .collect();
    // At most 200 locals fit in a function.
    let filler = format!("do {filler} end");
    let access = format!(
        "{filler} local count = 0
         return function()
           count = count + 1
           kong.ctx.shared['key-{number}'] = count
           kong.response.set_header('X-Number', 'n{number}-' .. count)
         end"
    );
    let fields = "certificate rewrite header_filter body_filter log";
    let mut config: serde_json::Map<String, Value> = fields
        .split(' ')
        .map(|name| (name.into(), json!([])))
        .collect();
    config.insert("access".into(), json!([access]));
    let mut plugin = fixture::plugin("post-function", Value::Object(config));
    plugin["id"] = json!(world::id(7));
    plugin
}

#[test]
fn ten_thousand_configurations_with_new_snippets_leave_nothing_behind() {
    let settings: BuildSettings = fixture::settings();
    let node = Node::bare().expect("a thread can be started");
    let mut world = World::default();
    let empty = world.build(&settings).expect("it can be built");
    let plane = DataPlane::new(
        Live::new(empty),
        SessionSettings::default(),
        node.clone(),
        settings.plugins.clone(),
        1,
    );
    let head = fixture::head(&["GET / HTTP/1.1"]);
    let mut early = None;
    for number in 0..CHANGES {
        world.put(EntityKind::Plugins, plugin(number));
        let current = plane.snapshot.load();
        let next = world.update(&current, &settings).expect("it can be built");
        drop(current);
        plane.publish(Arc::new(next));
        plugin::free_ended_parts();
        let snapshot = plane.snapshot.load();
        for count in 1..=2 {
            let mut request = Request::bare(&head);
            let mut chain = Chain::new(snapshot.instances(), &NoNames, &node);
            chain.use_memory(Box::new(ChainMemory::default()));
            let mut stays = |_: &mut std::task::Context<'_>| Poll::Pending;
            let access = chain.access(&snapshot.globals, &mut request, &mut stays);
            let access = fixture::ready(access);
            assert!(matches!(access, Access::Done(None)), "{access:?}");
            let memory = chain.memory_mut().expect("it was given");
            let value = memory.state.headers.value("x-number");
            let expected = format!("n{number}-{count}");
            assert_eq!(value, Some(expected.as_bytes()));
        }
        if number == WARM_UP {
            early = Some(Memory::now(&node));
        }
    }
    let (early, late) = (early.expect("it was reached"), Memory::now(&node));
    for (what, early, late) in [
        ("of the VM", early.vm, late.vm),
        ("of the thread", early.thread, late.thread),
        ("of the process", early.resident, late.resident),
    ] {
        assert!(
            late - early < TOLERANCE,
            "memory {what}: {early}, then {late}"
        );
    }
}
