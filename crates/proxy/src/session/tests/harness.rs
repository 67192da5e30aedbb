//! Whether the harness for tests of plugins (`plugin::testing`) runs plugins as sessions do. Both run the same plugins
//! with the same requests and upstreams.

use super::*;
use bytes::Bytes;
use plugin::testing::Case;
use plugin::{
    Chunk, Filtered, Flow, LogCx, PluginError, Request, RequestCx, Response, ResponseCx, Step,
};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The calls of the plugins, in order, by the header `X-Case` of the request.
static CALLS: Mutex<BTreeMap<String, Vec<String>>> = Mutex::new(BTreeMap::new());

/// A plugin that does what the header `X-Does` of the request says: the number of a plugin, a phase, and an action.
struct Probe<const N: usize>;

/// The calls for a request.
#[derive(Default)]
struct Calls(Vec<String>);

impl Calls {
    /// Adds a call with a piece of a body. The pieces of a body depend on how it arrives, so they are joined.
    fn add_piece(&mut self, phase: &str, chunk: &Chunk) {
        let text = String::from_utf8_lossy(&chunk.data);
        match self.0.last_mut() {
            Some(last) if !chunk.last && last.starts_with(phase) => last.push_str(&text),
            _ if chunk.last => self.0.push(format!("end of {phase} {text}")),
            _ => self.0.push(format!("{phase} {text}")),
        }
    }
}

impl<const N: usize> Probe<N> {
    fn action<'r>(request: &'r Request<'_>, phase: &str) -> &'r str {
        let does = request.head.header("x-does").unwrap_or_default();
        let does = std::str::from_utf8(does).unwrap();
        let does = does.strip_prefix(&format!("{N} {phase} "));
        does.unwrap_or_default()
    }

    fn step(action: &str) -> Result<Step<'static>, PluginError> {
        let response = || Response::new(418, "made").with_header("X-Made", "1");
        Ok(match action {
            "respond" => Step::Respond(response()),
            "exit" => Step::Exit(response()),
            "interim" => Step::Exit(Response::new(103, "")),
            "read" => Step::ReadBody,
            "wait" => Step::wait(async {
                tokio::task::yield_now().await;
                Ok(Flow::Continue)
            }),
            "fail" => return Err(PluginError::new("it failed")),
            _ => Step::Continue,
        })
    }
}

impl<const N: usize> plugin::Plugin for Probe<N> {
    type Own = Calls;

    without_config!();

    fn rewrite<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Calls,
    ) -> Result<Step<'a>, PluginError> {
        own.0.push("rewrite".to_owned());
        Self::step(Self::action(cx.request, "rewrite"))
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Calls,
    ) -> Result<Step<'a>, PluginError> {
        own.0.push(format!("access {:?}", cx.request.body_bytes()));
        let action = Self::action(cx.request, "access");
        match action {
            "early header" => cx.state.headers.set("X-Up", "early"),
            "whole" => cx.request.upstream.buffer_response = true,
            "read" if cx.request.body_bytes().is_some() => {}
            "change" => {
                cx.request.upstream.method = Some("PUT".into());
                cx.request.set_upstream_body("changed");
            }
            _ => return Self::step(action),
        }
        Ok(Step::Continue)
    }

    fn request_body(
        &self,
        request: &Request<'_>,
        own: &mut Calls,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        own.add_piece("request_body", chunk);
        Self::step(Self::action(request, "request_body")).map(|_| ())
    }

    fn response<'a>(
        &'a self,
        cx: ResponseCx<'a, '_>,
        own: &'a mut Calls,
    ) -> Result<Step<'a>, PluginError> {
        own.0.push(format!("response {:?}", cx.upstream_body));
        Self::step(Self::action(cx.request, "response"))
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Calls,
    ) -> Result<Filtered, PluginError> {
        let upstream = cx.upstream.map(net::http1::ResponseHead::status);
        let found = (cx.answer.status, cx.answer.origin, upstream);
        own.0.push(format!("header_filter {found:?}"));
        match Self::action(cx.request, "header_filter") {
            "replace" => return Ok(Filtered::Replace(Response::message(203, "other"))),
            "no length" => cx.answer.headers.remove("Content-Length"),
            "fail" => return Err(PluginError::new("it failed")),
            _ => {}
        }
        Ok(Filtered::Continue)
    }

    fn body_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Calls,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        own.add_piece("body_filter", chunk);
        if Self::action(cx.request, "header_filter") == "no length" && chunk.last {
            chunk.data = Bytes::from_static(b"!");
        }
        Self::step(Self::action(cx.request, "body_filter")).map(|_| ())
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, own: &mut Calls) {
        let entry = cx.entry;
        let found = (entry.status, entry.origin, entry.upstream_status);
        own.0.push(format!("log {found:?}"));
        let case = cx.request.head.header("x-case").unwrap_or_default();
        let case = String::from_utf8_lossy(case).into_owned();
        let mut all = CALLS.lock().unwrap();
        let calls = own.0.drain(..).map(|call| format!("{N} {call}"));
        all.entry(case).or_default().extend(calls);
    }
}

fn probes(phases: Phases) -> Vec<Arc<PluginDef>> {
    vec![
        define::<Probe<1>>("first", 10, phases),
        define::<Probe<2>>("second", 5, phases),
    ]
}

/// What a client has got, and the calls of the plugins.
#[derive(Debug, PartialEq)]
struct Seen {
    status: String,
    made: bool,
    up: Vec<String>,
    body: String,
    calls: Vec<String>,
}

/// A request with an upstream's response.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    line: &'static str,
    body: &'static str,
    upstream: &'static str,
    does: &'static str,
}

async fn through_a_session(exchange: Exchange, phases: Phases, case: &str) -> Seen {
    let Exchange {
        line,
        body,
        upstream: text,
        does,
    } = exchange;
    let mut setup = Setup::new(upstream(vec![answers(text)]).await);
    setup.plugins = probes(phases);
    let gateway = keep(setup.start());
    let length = match body {
        "" => String::new(),
        body => format!("Content-Length: {}\r\n", body.len()),
    };
    let text = format!(
        "{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Does: {does}\r\nX-Case: {case}\r\n{length}\r\n{body}"
    );
    let answer = gateway.exchange(&text).await;
    let logged = || CALLS.lock().unwrap().contains_key(case);
    while !logged() {
        tokio::task::yield_now().await;
    }
    let id = header(&answer, "x-kong-request-id").unwrap_or("no id");
    let plain = |text: &str| text.replace(id, "the id");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let chunked = header(head, "transfer-encoding").is_some();
    let up = head.lines().filter_map(|line| line.strip_prefix("X-Up: "));
    Seen {
        status: head.get(9..12).unwrap_or_default().to_owned(),
        made: header(head, "x-made").is_some(),
        up: up.map(str::to_owned).collect(),
        body: if chunked {
            without_chunks(body)
        } else {
            plain(body)
        },
        calls: calls(case, plain),
    }
}

fn calls(case: &str, plain: impl Fn(&str) -> String) -> Vec<String> {
    let calls = CALLS.lock().unwrap().remove(case).unwrap();
    calls.iter().map(|call| plain(call)).collect()
}

fn without_chunks(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        out.push_str(&rest[..size]);
        body = &rest[size..];
        body = body.strip_prefix("\r\n").unwrap_or(body);
        if size == 0 {
            break;
        }
    }
    out
}

async fn through_the_harness(exchange: Exchange, phases: Phases, name: &str) -> Seen {
    let mut case = Case::empty();
    for def in probes(phases) {
        case = case.and_complete(def, json!({}));
    }
    let call = case.request(exchange.line);
    let call = call.header("X-Does", exchange.does).header("X-Case", name);
    let call = match exchange.body {
        "" => call,
        body => call.body(body),
    };
    let (head, body) = exchange.upstream.split_once("\r\n\r\n").unwrap();
    let status = head[9..12].parse().unwrap();
    let up = header(head, "x-up").unwrap();
    let upstream = plugin::testing::Upstream::new(status).header("X-Up", up);
    let upstream = match body {
        "" => upstream,
        body => upstream.body(body),
    };
    let outcome = call.answered(upstream).run().await;
    let client = &outcome.client;
    let plain = |text: &str| text.replace("0123456789abcdef0123456789abcdef", "the id");
    let up = client.headers.all("x-up");
    Seen {
        status: match client.status {
            0 => String::new(),
            status => status.to_string(),
        },
        made: client.header("x-made").is_some(),
        up: up.map(str::to_owned).collect(),
        body: plain(&String::from_utf8_lossy(&client.body)),
        calls: calls(name, plain),
    }
}

/// The requests: each with one thing that one of two plugins does.
fn exchanges() -> Vec<Exchange> {
    const ACTIONS: [&str; 24] = [
        "1 none at all",
        "1 rewrite respond",
        "2 rewrite exit",
        "2 rewrite fail",
        "1 rewrite read",
        "1 access respond",
        "1 access exit",
        "2 access respond",
        "2 access fail",
        "2 access interim",
        "1 access read",
        "2 access wait",
        "1 access early header",
        "1 access whole",
        "1 access change",
        "1 request_body fail",
        "1 response respond",
        "2 response exit",
        "1 response fail",
        "1 response interim",
        "1 header_filter replace",
        "2 header_filter no length",
        "1 header_filter fail",
        "1 body_filter fail",
    ];
    const OF_BODIES: &str = "HTTP/1.1 201 Created\r\nX-Up: 1\r\nContent-Length: 6\r\n\r\nanswer";
    const EMPTY: &str = "HTTP/1.1 204 No Content\r\nX-Up: 1\r\n\r\n";
    // A response to HEAD, whose length is that of the body that GET would get.
    const HEAD: &str = "HTTP/1.1 200 OK\r\nX-Up: 1\r\nContent-Length: 6\r\n\r\n";
    let requests = [
        ("GET /", "", OF_BODIES),
        ("POST /", "a body", OF_BODIES),
        ("GET /", "", EMPTY),
        ("HEAD /", "", HEAD),
    ];
    let all = requests.iter().flat_map(|(line, body, upstream)| {
        ACTIONS.map(|does| Exchange {
            line,
            body,
            upstream,
            does,
        })
    });
    // The upstream would have to answer the changed method.
    let is_answered = |one: &Exchange| one.line != "HEAD /" || one.does != "1 access change";
    all.filter(is_answered).collect()
}

#[test]
fn the_harness_runs_plugins_as_a_session_does() {
    let all = Phases::REWRITE
        .with(Phases::ACCESS)
        .with(Phases::REQUEST_BODY)
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER)
        .with(Phases::LOG);
    run(async move {
        let mut different = Vec::new();
        for (phases, kind) in [(all, "in pieces"), (all.with(Phases::RESPONSE), "whole")] {
            for (at, exchange) in exchanges().into_iter().enumerate() {
                let name = |by: &str| format!("{by} {kind} {at}");
                let wanted = through_a_session(exchange, phases, &name("session")).await;
                let found = through_the_harness(exchange, phases, &name("harness")).await;
                if wanted != found {
                    different.push(format!(
                        "{} {}, {kind}:\n  session {wanted:?}\n  harness {found:?}",
                        exchange.line, exchange.does
                    ));
                }
            }
        }
        assert!(different.is_empty(), "{}", different.join("\n"));
    });
}
