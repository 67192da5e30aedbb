//! Lua: the access phase with post-function, and single functions of the PDK. Each function is called in a loop of the
//! snippet, so that the cost of a call is that of the operation divided by [`CALLS`].

use crate::fixtures::{build_settings, plugin};
use crate::operation::Operation;
use crate::plans::{head, run_access};
use model::entities::Config;
use plugin::{NoNames, Node, Request};
use proxy::plugins::{Chain, ChainMemory};
use proxy::snapshot::Snapshot;
use serde_json::json;
use std::hint::black_box;

const COUNT: u32 = 2000;

/// Number of calls in the snippets of single functions.
const CALLS: u32 = 1000;

/// The functions that are counted, as they are written in a snippet.
const FUNCTIONS: [(&str, &str); 8] = [
    ("nothing", "local _ = i"),
    ("get_header", "kong.request.get_header('user-agent')"),
    ("get_header-absent", "kong.request.get_header('x-absent')"),
    ("get_method", "kong.request.get_method()"),
    ("get_path", "kong.request.get_path()"),
    ("get_query_arg", "kong.request.get_query_arg('a')"),
    ("set_header", "kong.response.set_header('X-A', 'b')"),
    ("ctx-shared", "kong.ctx.shared.a = i"),
];

pub(crate) fn operations() -> Vec<Operation> {
    let mut operations = vec![
        snippet("lua/post-function/empty", "return".to_owned(), COUNT),
        snippet(
            "lua/post-function/two-calls",
            "local agent = kong.request.get_header('user-agent') \
             if agent then kong.response.set_header('X-Agent', agent) end"
                .to_owned(),
            COUNT,
        ),
    ];
    operations.extend(FUNCTIONS.map(|(name, call)| {
        let text = format!("for i = 1, {CALLS} do {call} end");
        snippet(&format!("lua/call/{name}"), text, 50)
    }));
    operations
}

fn snippet(name: &str, text: String, count: u32) -> Operation {
    Operation::repeat(name, count, move || {
        let config = Config {
            plugins: vec![plugin(
                "post-function",
                0,
                json!({
                    "certificate": [], "rewrite": [], "access": [text], "header_filter": [], "body_filter": [], "log": [],
                }),
            )],
            ..Config::default()
        };
        let built = Snapshot::build(config, 1, None, &build_settings()).expect("it can be built");
        let (head, node) = (head(), Node::bare().expect("a thread can be started"));
        let mut memory = Some(Box::new(ChainMemory::default()));
        move || {
            let mut request = Request::bare(&head);
            let mut chain = Chain::new(built.instances(), &NoNames, &node);
            chain.use_memory(memory.take().unwrap_or_default());
            run_access(&mut chain, &built, &mut request);
            black_box(&request);
            memory = chain.take_memory();
        }
    })
}
