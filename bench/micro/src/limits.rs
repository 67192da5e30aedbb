//! The access phase of rate-limiting, with the plan that runs it, for requests that pass and for those that do not.

use crate::fixtures::{build_settings, plugin, ready};
use crate::operation::Operation;
use crate::plans::head;
use model::entities::Config;
use plugin::{NoNames, Node, Request};
use proxy::plugins::{Chain, ChainMemory};
use proxy::snapshot::Snapshot;
use serde_json::{Value, json};
use std::hint::black_box;
use std::task::{Context, Poll};

const COUNT: u32 = 1000;

/// More requests than any measurement makes.
const UNREACHED: u64 = 1 << 40;

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        access(
            "plugin/rate-limiting/one-limit",
            json!({"minute": UNREACHED}),
        ),
        access(
            "plugin/rate-limiting/three-limits",
            json!({"second": UNREACHED, "minute": UNREACHED, "day": UNREACHED}),
        ),
        access("plugin/rate-limiting/refused", json!({"year": 1})),
    ]
}

fn access(name: &str, limits: Value) -> Operation {
    Operation::repeat(name, COUNT, move || {
        let config = Config {
            plugins: vec![plugin("rate-limiting", 0, completed(limits.clone()))],
            ..Config::default()
        };
        let built = Snapshot::build(config, 1, None, &build_settings()).expect("it can be built");
        let (head, node) = (head(), Node::bare().expect("a thread can be started"));
        let mut memory = Some(Box::new(ChainMemory::default()));
        move || {
            let mut request = Request::bare(&head);
            let mut chain = Chain::new(built.instances(), &NoNames, &node);
            chain.use_memory(memory.take().unwrap_or_default());
            let mut stays = |_: &mut Context<'_>| Poll::Pending;
            let access = chain.access(&built.globals, &mut request, &mut stays);
            black_box(ready(access));
            memory = chain.take_memory();
        }
    })
}

/// Adds the defaults of the schema.
fn completed(mut limits: Value) -> Value {
    let defaults = json!({
        "limit_by": "ip", "policy": "local", "fault_tolerant": true, "redis": {}, "hide_client_headers": false,
        "error_code": 429, "error_message": "API rate limit exceeded", "sync_rate": -1,
    });
    for (name, value) in defaults.as_object().expect("it is an object") {
        limits[name] = value.clone();
    }
    limits
}
