//! Lua code of many kinds under load, while configurations with new code are posted: code that works, and code that
//! would harm others. The former must always answer right, the latter must fail alone, and memory must not grow.
//!
//! The environment variable `ENDURE_SECONDS` sets the duration; `cargo xtask soak lua` sets a longer one.
//! `ENDURE_REPORT` names a file for the result.

use crate::{SetOnDrop, launch};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};
use testkit::random::{Random, setting};
use testkit::{Client, Gateway};

/// Default duration. Every kind of code still runs.
const SECONDS: u64 = 6;
/// Duration from which on memory must not grow.
const LONG: u64 = 60;
const WORKERS: u64 = 2;
/// Number of clients of routes that work, and of routes that do harm. A loop without an end takes 0.2 seconds of its
/// worker, so few of the latter keep the workers busy.
const GOOD_CLIENTS: u64 = 3;
const BAD_CLIENTS: u64 = 1;
/// Body of a request that code reads.
const BODY: usize = 200_000;
/// Time between two configurations, and between two readings of memory.
const CHANGE: Duration = Duration::from_millis(250);
const READING: Duration = Duration::from_millis(500);

/// What a client expects of a route.
#[derive(Clone, Copy)]
enum Expected {
    /// Status 200, and the header `X-N` with the number that the client has sent.
    Number,
    Status(u16),
    /// A complete response, or a closed connection.
    Anything,
}

/// A route with its snippets. `$N` in them stands for the number of the configuration.
struct Kind {
    name: &'static str,
    /// Phases and snippets of post-function.
    snippets: &'static [(&'static str, &'static str)],
    expected: Expected,
}

const fn good(name: &'static str, access: &'static [(&'static str, &'static str)]) -> Kind {
    Kind {
        name,
        snippets: access,
        expected: Expected::Number,
    }
}

const fn bad(name: &'static str, snippets: &'static [(&'static str, &'static str)]) -> Kind {
    Kind {
        name,
        snippets,
        expected: Expected::Status(500),
    }
}

const fn odd(name: &'static str, snippets: &'static [(&'static str, &'static str)]) -> Kind {
    Kind {
        name,
        snippets,
        expected: Expected::Anything,
    }
}

const GOOD: [Kind; 8] = [
    good(
        "header",
        &[(
            "access",
            "local number = $N kong.response.set_header('X-N', kong.request.get_header('x-n'))",
        )],
    ),
    // Each configuration makes new upvalues, which grow.
    good(
        "upvalue",
        &[(
            "access",
            "local number, kept = $N, {} return function()
               kept[#kept + 1] = ('x'):rep(20000 + #kept)
               kong.response.set_header('X-N', kong.request.get_header('x-n'))
             end",
        )],
    ),
    good(
        "sleep",
        &[(
            "access",
            "local n = kong.request.get_header('x-n') ngx.sleep(0.005)
             coroutine.wrap(function() ngx.sleep(0.001) end)()
             kong.response.set_header('X-N', n)",
        )],
    ),
    good(
        "timer",
        &[(
            "access",
            "ngx.timer.at(0.01, function() ngx.sleep(0.001) ngx.shared.kong:incr('soak', 1, 0) end)
             kong.response.set_header('X-N', kong.request.get_header('x-n'))",
        )],
    ),
    good(
        "dictionary",
        &[(
            "access",
            "local d, n = ngx.shared.kong, kong.request.get_header('x-n')
             d:set('soak-' .. n, n, 1)
             kong.response.set_header('X-N', d:get('soak-' .. n))",
        )],
    ),
    good(
        "body",
        &[(
            "access",
            "local body = kong.request.get_raw_body()
             assert(#body == 200000)
             kong.response.exit(200, {count = #body}, {['X-N'] = kong.request.get_header('x-n')})",
        )],
    ),
    good(
        "phases",
        &[
            (
                "access",
                "kong.ctx.plugin.n = kong.request.get_header('x-n')",
            ),
            (
                "header_filter",
                "kong.response.set_header('X-N', kong.ctx.plugin.n)",
            ),
            (
                "body_filter",
                "local body = kong.response.get_raw_body() if body then kong.response.set_raw_body(body:upper()) end",
            ),
            ("log", "kong.log.serialize()"),
        ],
    ),
    // request-transformer, whose template runs as Lua, has set the header.
    good(
        "template",
        &[(
            "access",
            "kong.response.set_header('X-N', kong.request.get_header('x-template'))",
        )],
    ),
];

const BAD: [Kind; 24] = [
    bad("loop", &[("access", "local n = $N while true do end")]),
    bad(
        "trace",
        &[("access", "local x = $N for i = 1, 1e18 do x = x + i end")],
    ),
    bad(
        "caught-loop",
        &[(
            "access",
            "while true do pcall(function() while true do end end) end",
        )],
    ),
    bad(
        "repeat",
        &[("access", "while true do pcall(string.rep, 'x', 1e9) end")],
    ),
    bad(
        "pattern",
        &[(
            "access",
            "return ('a'):rep(30000):find(('a*'):rep(30) .. 'b')",
        )],
    ),
    bad(
        "table",
        &[("access", "local t = {} for i = 1, 1e12 do t[i] = {i} end")],
    ),
    bad(
        "string",
        &[("access", "local s = 'x$N' while true do s = s .. s end")],
    ),
    bad(
        "recursion",
        &[("access", "local function f() return 1 + f() end return f()")],
    ),
    bad(
        "tail-calls",
        &[("access", "local function f(n) return f(n + 1) end f($N)")],
    ),
    bad(
        "coroutines",
        &[(
            "access",
            "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
        )],
    ),
    bad(
        "ping-pong",
        &[(
            "access",
            "local c = coroutine.wrap(function() while true do coroutine.yield() end end) while true do c() end",
        )],
    ),
    bad(
        "nested",
        &[(
            "access",
            "local function f() return coroutine.wrap(f)() end return f()",
        )],
    ),
    bad(
        "sort",
        &[(
            "access",
            "local t = {} for i = 1, 1e6 do t[i] = i % 1000 end while true do table.sort(t, function(a, b) return a < b end) end",
        )],
    ),
    bad("error", &[("access", "error('x $N')")]),
    bad("error-table", &[("access", "error({})")]),
    bad(
        "sleep-then-error",
        &[("access", "ngx.sleep(0.002) error('late')")],
    ),
    bad(
        "sleep-then-loop",
        &[("access", "ngx.sleep(0.002) while true do end")],
    ),
    odd(
        "regex",
        &[(
            "access",
            "return ngx.re.match(('a'):rep(5000), '(a+)+(a+)+(a+)+b')",
        )],
    ),
    odd("error-header-filter", &[("header_filter", "error('x')")]),
    odd("error-body-filter", &[("body_filter", "error('x')")]),
    odd("error-log", &[("log", "error('x $N')")]),
    odd("sleep-header-filter", &[("header_filter", "ngx.sleep(1)")]),
    odd(
        "sleep-log",
        &[("log", "pcall(ngx.sleep, 1) coroutine.yield()")],
    ),
    odd("loop-log", &[("log", "while true do end")]),
];

/// Returns the configuration with this number.
fn configuration(url: &str, number: u64) -> String {
    let routes: Vec<Value> = GOOD
        .iter()
        .chain(&BAD)
        .map(|kind| {
            let mut config = json!({});
            for (phase, text) in kind.snippets {
                config[phase] = json!([text.replace("$N", &number.to_string())]);
            }
            let mut plugins = vec![json!({"name": "post-function", "config": config})];
            if kind.name == "template" {
                plugins.push(json!({"name": "request-transformer", "config": {
                    "add": {"headers": [format!("x-template:$((headers['x-n'] .. '{number}'):match('^(%d+){number}$'))")]},
                }}));
            }
            json!({"name": kind.name, "paths": [format!("/{}", kind.name)], "plugins": plugins})
        })
        .collect();
    json!({
        "_format_version": "3.0",
        "services": [{"name": "soak", "url": url, "routes": routes}],
    })
    .to_string()
}

/// A client with one connection, which it opens again when the gateway has closed it.
struct Caller<'g> {
    gateway: &'g Gateway,
    connection: Option<Client>,
    random: Random,
}

impl<'g> Caller<'g> {
    fn new(gateway: &'g Gateway, seed: u64) -> Self {
        Self {
            gateway,
            connection: None,
            random: Random::new(seed),
        }
    }

    /// Sends a request to a route of this kind and checks the response. Returns the time until it was complete.
    fn call(&mut self, kind: &Kind) -> Duration {
        let number = self.random.below(1_000_000_000).to_string();
        let body = match kind.name {
            "body" => vec![b'x'; BODY],
            _ => Vec::new(),
        };
        let method = if body.is_empty() { "GET" } else { "POST" };
        let path = format!("/{}", kind.name);
        let request = testkit::http::encode(method, &path, &[("X-N", &number)], &body);
        let started = Instant::now();
        let mut client = self
            .connection
            .take()
            .unwrap_or_else(|| Client::connect(self.gateway.listening("proxy")[0]));
        let response = client.send(&request).and_then(|()| client.receive(method));
        let name = kind.name;
        let response = match (response, kind.expected) {
            (Ok(response), _) => response,
            (Err(_), Expected::Anything) => return started.elapsed(),
            (Err(error), _) => panic!("{name}: no response: {error}"),
        };
        match kind.expected {
            Expected::Number => {
                assert_eq!(response.status, 200, "{name}: {}", response.text());
                assert_eq!(response.header("x-n"), Some(&*number), "{name}");
            }
            Expected::Status(status) => {
                assert_eq!(response.status, status, "{name}: {}", response.text());
            }
            Expected::Anything => {}
        }
        let closes = response.header("connection") == Some("close");
        self.connection = (!closes).then_some(client);
        started.elapsed()
    }
}

/// Memory at a time, in bytes.
#[derive(Debug, Clone, Copy)]
struct Reading {
    resident: f64,
    /// Memory of the Lua VMs.
    lua: f64,
}

impl Reading {
    fn now(gateway: &Gateway) -> Self {
        let page = gateway.admin_get("/metrics").text();
        Self {
            resident: sum(&page, "process_resident_memory_bytes"),
            lua: sum(&page, "silverback_lua_memory_bytes"),
        }
    }
}

/// Returns the sum of the samples of a metric.
fn sum(page: &str, name: &str) -> f64 {
    let samples = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (_, value) = rest.rsplit_once(' ')?;
        (rest.starts_with(['{', ' '])).then(|| value.parse::<f64>().expect("a number"))
    });
    samples.sum()
}

fn median(readings: &[Reading], of: impl Fn(&Reading) -> f64) -> f64 {
    let mut values: Vec<f64> = readings.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn hostile_lua_harms_nobody_else() {
    let seconds = setting("ENDURE_SECONDS").unwrap_or(SECONDS);
    let seed = setting("ENDURE_SEED").unwrap_or(1);
    let backend = testkit::Backend::start("soak");
    let url = format!("http://{}", backend.address);
    let gateway = launch()
        .set("nginx_worker_processes", WORKERS.to_string())
        .set("nginx_http_client_body_buffer_size", "1m")
        .set("proxy_access_log", "off")
        .set("admin_access_log", "off")
        .configuration(&configuration(&url, 1))
        .start();
    let stop = AtomicBool::new(false);
    let (good, bad, changes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(1));
    let slowest = AtomicU64::new(0);
    let readings = thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        let (gateway, stop, url) = (&gateway, &stop, &*url);
        let (good, bad, changes, slowest) = (&good, &bad, &changes, &slowest);
        for client in 0..GOOD_CLIENTS + BAD_CLIENTS {
            scope.spawn(move || {
                let _stop = SetOnDrop(stop);
                let (kinds, count): (&[Kind], _) = match client < GOOD_CLIENTS {
                    true => (&GOOD, good),
                    false => (&BAD, bad),
                };
                let mut caller = Caller::new(gateway, seed + client);
                for kind in kinds.iter().cycle() {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let took = caller.call(kind);
                    count.fetch_add(1, Ordering::SeqCst);
                    if client < GOOD_CLIENTS {
                        slowest.fetch_max(took.as_millis() as u64, Ordering::SeqCst);
                    }
                }
            });
        }
        scope.spawn(move || {
            let _stop = SetOnDrop(stop);
            while !stop.load(Ordering::SeqCst) {
                let number = changes.fetch_add(1, Ordering::SeqCst) + 1;
                let posted = gateway.post_config(&configuration(url, number));
                assert_eq!(posted.status, 201, "{}", posted.text());
                thread::sleep(CHANGE);
            }
        });
        let mut readings = Vec::new();
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end && !stop.load(Ordering::SeqCst) {
            readings.push(Reading::now(gateway));
            thread::sleep(READING);
        }
        readings
    });
    let page = gateway.admin_get("/metrics").text();
    let log = gateway.log();
    assert_eq!(sum(&page, "silverback_panics_total"), 0.0, "{log}");
    assert!(sum(&page, "silverback_lua_stopped_total") > 0.0, "{page}");
    assert!(
        bad.load(Ordering::SeqCst) >= BAD.len() as u64,
        "each has run"
    );
    let quarters: Vec<&[Reading]> = readings.chunks(readings.len().div_ceil(4)).collect();
    let (early, late) = (quarters[1], quarters[quarters.len() - 1]);
    let result = json!({
        "seconds": seconds,
        "seed": seed,
        "workers": WORKERS,
        "requests": good.load(Ordering::SeqCst),
        "slowest_request_ms": slowest.load(Ordering::SeqCst),
        "hostile_requests": bad.load(Ordering::SeqCst),
        "configurations": changes.load(Ordering::SeqCst),
        "calls": sum(&page, "silverback_lua_calls_total"),
        "errors": sum(&page, "silverback_lua_errors_total"),
        "stopped": sum(&page, "silverback_lua_stopped_total"),
        "vms_replaced": sum(&page, "silverback_lua_vms_replaced_total"),
        "resident_bytes": [median(early, |one| one.resident), median(late, |one| one.resident)],
        "lua_bytes": [median(early, |one| one.lua), median(late, |one| one.lua)],
    });
    println!("{result}");
    if let Ok(path) = std::env::var("ENDURE_REPORT") {
        let text = serde_json::to_string_pretty(&result).expect("it is JSON") + "\n";
        fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {path}: {error}"));
    }
    // A short run is too short to tell growth from the memory bombs, each of which takes up to 64 MiB for a moment.
    if seconds < LONG {
        return;
    }
    let tolerance = |value: f64| value * 1.2 + 64e6;
    for figure in ["resident_bytes", "lua_bytes"] {
        let [early, late] = [0, 1].map(|at| result[figure][at].as_f64().expect("a number"));
        assert!(late < tolerance(early), "{figure}: {early}, then {late}");
    }
}
