//! Lua: the access phase with post-function, and single functions of the PDK. Each function is called in a loop of the
//! snippet, so that the cost of a call is that of the operation divided by [`CALLS`].

use crate::fixtures::{build_settings, plugin};
use crate::operation::Operation;
use crate::plans::{head, run_access};
use model::entities::Config;
use plugin::{NoNames, Node, Request, UntrustedLua};
use proxy::plugins::{Chain, ChainMemory};
use proxy::snapshot::Snapshot;
use serde_json::json;
use std::hint::black_box;

const COUNT: u32 = 2000;

/// Number of calls in the snippets of single functions.
const CALLS: u32 = 200;

/// The functions that are counted, as they are written in a snippet. What precedes the loop is in the second text.
const FUNCTIONS: [(&str, &str, &str); 34] = [
    ("nothing", "", "local _ = i"),
    (
        "request.get_header",
        "",
        "kong.request.get_header('user-agent')",
    ),
    (
        "request.get_header/absent",
        "",
        "kong.request.get_header('x-absent')",
    ),
    ("request.get_headers", "", "kong.request.get_headers()"),
    ("request.get_method", "", "kong.request.get_method()"),
    ("request.get_path", "", "kong.request.get_path()"),
    ("request.get_raw_path", "", "kong.request.get_raw_path()"),
    (
        "request.get_query_arg",
        "",
        "kong.request.get_query_arg('a')",
    ),
    ("request.get_query", "", "kong.request.get_query()"),
    ("client.get_ip", "", "kong.client.get_ip()"),
    ("client.get_consumer", "", "kong.client.get_consumer()"),
    ("router.get_route", "", "kong.router.get_route()"),
    (
        "service.request.set_header",
        "",
        "kong.service.request.set_header('X-A', 'b')",
    ),
    (
        "service.request.set_path",
        "",
        "kong.service.request.set_path('/other')",
    ),
    (
        "service.request.set_raw_query",
        "",
        "kong.service.request.set_raw_query('a=b')",
    ),
    (
        "service.set_target",
        "",
        "kong.service.set_target('127.0.0.1', 8080)",
    ),
    (
        "response.set_header",
        "",
        "kong.response.set_header('X-A', 'b')",
    ),
    ("ctx.shared", "", "kong.ctx.shared.a = i"),
    ("ctx.plugin", "", "kong.ctx.plugin.a = i"),
    ("log.debug", "", "kong.log.debug('not written')"),
    ("ngx.var.remote_addr", "", "local _ = ngx.var.remote_addr"),
    (
        "ngx.var.http_user_agent",
        "",
        "local _ = ngx.var.http_user_agent",
    ),
    ("ngx.now", "", "ngx.now()"),
    (
        "ngx.re.match",
        "",
        "ngx.re.match('route-1207', '[0-9]+', 'jo')",
    ),
    (
        "ngx.re.gsub",
        "",
        "ngx.re.gsub('route-1207', '[0-9]', 'x', 'jo')",
    ),
    ("ngx.md5", "", "ngx.md5('a text of usual length')"),
    (
        "ngx.encode_base64",
        "",
        "ngx.encode_base64('a text of usual length')",
    ),
    (
        "ngx.escape_uri",
        "",
        "ngx.escape_uri('a text of usual length')",
    ),
    (
        "ngx.shared.get",
        "local d = ngx.shared.kong d:set('k', 1)",
        "d:get('k')",
    ),
    (
        "ngx.shared.incr",
        "local d = ngx.shared.kong d:set('k', 1)",
        "d:incr('k', 1)",
    ),
    (
        "cjson.encode",
        "local json = require 'cjson.safe' local t = {a = 1, b = 'two', c = {1, 2}}",
        "json.encode(t)",
    ),
    (
        "cjson.decode",
        "local json = require 'cjson.safe'",
        "json.decode('{\"a\":1,\"b\":\"two\",\"c\":[1,2]}')",
    ),
    ("string.match", "", "string.match('route-1207', '(%d+)')"),
    ("string.gsub", "", "string.gsub('a_b_c', '_', '-')"),
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
    operations.extend(FUNCTIONS.map(|(name, before, call)| {
        let text = format!("{before} for i = 1, {CALLS} do {call} end");
        snippet(&format!("lua/call/{name}"), text, 250)
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
        let mut settings = build_settings();
        // The sandbox has no `require`, unless settings name modules.
        settings.lua.untrusted = UntrustedLua::On;
        let built = Snapshot::build(config, 1, None, &settings).expect("it can be built");
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
