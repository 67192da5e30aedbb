//! The timings of a request for a client that asks for them with `X-Kong-Request-Debug`: a tree of what took how long, as
//! JSON in a response header and in the log. Source: kong/timing/.

use plugin::trace::{PluginPhase, Span, SpanKind, Trace};
use plugin::{Answer, HeaderValue, Node, Request, RequestState};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Size from which on a client on another machine gets no tree in its response.
const LONGEST_HEADER: usize = 2048;
/// Size of the parts of a long log line.
const LONGEST_LINE: usize = 3072;

const HEADER: &str = "X-Kong-Request-Debug-Output";

/// Adds the header to a response whose head is known.
#[cold]
pub(super) fn show(
    request: &Request<'_>,
    state: &mut RequestState,
    node: &Node,
    answer: &mut Answer,
) {
    let Some(debug) = &mut state.trace.debug else {
        return;
    };
    let now = Instant::now();
    debug.headed = Some(now);
    let (is_local, logs) = (debug.is_local, debug.logs);
    let mut text = tree(request, &state.trace, node, now, None);
    if text.len() >= LONGEST_HEADER && !is_local {
        if !logs {
            log(&text);
        }
        text = json!({
            "truncated": true,
            "request_id": request.request_id,
            "message": "Output is truncated, please check the error_log for full output by filtering with the request_id.",
        })
        .to_string();
    }
    answer.headers.set(HEADER, HeaderValue::from_text(&text));
}

/// Logs the tree of a request that has ended.
#[cold]
pub(crate) fn log_ended(request: &Request<'_>, state: &RequestState, node: &Node) {
    if let Some(debug) = state.trace.debug.filter(|debug| debug.logs) {
        let now = Instant::now();
        let headed = debug.headed.unwrap_or(now);
        log(&tree(request, &state.trace, node, headed, Some(now)));
    }
}

/// Logs a text, in parts if it is long.
fn log(text: &str) {
    if text.len() < LONGEST_LINE {
        tracing::info!("[request-debug] output: {text}");
        return;
    }
    // All texts are ASCII but for the names of plugins, and a part ends before a character.
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.floor_char_boundary(LONGEST_LINE));
        parts.push(part);
        rest = after;
    }
    for (at, part) in parts.iter().enumerate() {
        tracing::info!(
            "[request-debug] parts: {}/{} output: {part}",
            at + 1,
            parts.len()
        );
    }
}

/// Writes the tree. `headed` is when the head of the response was known, and `ended` when the response has ended.
fn tree(
    request: &Request<'_>,
    trace: &Trace,
    node: &Node,
    headed: Instant,
    ended: Option<Instant>,
) -> String {
    let spans = trace.spans();
    let (rewrite, _) = plugins(spans, PluginPhase::Rewrite);
    let (access, access_plugins) = plugins(spans, PluginPhase::Access);
    let (filter, filter_plugins) = plugins(spans, PluginPhase::HeaderFilter);
    let router = spans.iter().filter(|span| span.kind == SpanKind::Router);
    let router: Duration = router.map(took).sum();
    let mut child = Map::new();
    child.insert("rewrite".into(), timed(rewrite));
    let mut within = Map::new();
    within.insert("router".into(), timed(router));
    add_plugins(&mut within, access, access_plugins);
    let access = router + access;
    child.insert("access".into(), parent(access, within));
    let mut own = rewrite + access + filter;
    if let Some((choosing, contacted)) = trace.debug.and_then(|debug| debug.contact) {
        own += choosing;
        child.insert("balancer".into(), timed(choosing));
        let first_byte = headed.saturating_duration_since(contacted);
        let mut within = Map::new();
        within.insert("time_to_first_byte".into(), timed(first_byte));
        let mut total = first_byte;
        if let Some(ended) = ended {
            let streaming = ended.saturating_duration_since(headed);
            within.insert("streaming".into(), timed(streaming));
            total += streaming;
        }
        child.insert("upstream".into(), parent(total, within));
    }
    let mut within = Map::new();
    add_plugins(&mut within, filter, filter_plugins);
    child.insert("header_filter".into(), parent(filter, within));
    json!({
        "request_id": request.request_id,
        "workspace_id": node.entities.workspace().to_string(),
        "total_time_without_upstream": milliseconds(own),
        "child": child,
    })
    .to_string()
}

/// Returns the times of the plugins in a phase: all together, and by name and id.
fn plugins(spans: &[Span], wanted: PluginPhase) -> (Duration, Map<String, Value>) {
    let (mut total, mut tree) = (Duration::ZERO, Map::new());
    for span in spans {
        let SpanKind::Plugin { phase, name } = &span.kind else {
            continue;
        };
        if *phase != wanted {
            continue;
        }
        total += took(span);
        let mut within = Map::new();
        let details = span.details.as_deref();
        if let Some(id) = details.and_then(|details| details.id) {
            within.insert(id.to_string(), timed(took(span)));
        }
        tree.insert(name.to_string(), parent(took(span), within));
    }
    (total, tree)
}

fn add_plugins(tree: &mut Map<String, Value>, total: Duration, plugins: Map<String, Value>) {
    if !plugins.is_empty() {
        tree.insert("plugins".into(), parent(total, plugins));
    }
}

fn took(span: &Span) -> Duration {
    span.end.since(span.start)
}

fn timed(time: Duration) -> Value {
    json!({"total_time": milliseconds(time)})
}

fn parent(time: Duration, child: Map<String, Value>) -> Value {
    match child.is_empty() {
        true => timed(time),
        false => json!({"total_time": milliseconds(time), "child": child}),
    }
}

/// Milliseconds with two decimals.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100_000.0).round() / 100.0
}
