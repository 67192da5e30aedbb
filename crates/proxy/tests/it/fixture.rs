//! Requests, plugin contexts and snapshots for tests, without connections.

use net::http1::{Limits, RequestHead};
use plugin::{NoNames, Node, Request, RequestBody, RequestState, Response};
use proxy::plugins::{Access, Chain, ChainMemory, Ended, Instances, Plan};
use proxy::snapshot::BuildSettings;
use serde_json::json;
use std::sync::Arc;
use std::task::Poll;
use uuid::Uuid;

pub(crate) const REQUEST_ID: &str = "0123456789abcdef0123456789abcdef";

/// Returns a request head from its lines, beginning with the request line.
pub(crate) fn head(lines: &[&str]) -> RequestHead {
    let text = format!("{}\r\nHost: a.test\r\n", lines[0]);
    let fields = lines[1..].iter().map(|line| format!("{line}\r\n"));
    let text = text + &fields.collect::<String>() + "\r\n";
    let (head, _) = RequestHead::parse(text.as_bytes(), &Limits::default())
        .expect("the head is well formed")
        .expect("the head is complete");
    head
}

/// A request with what its plugins have found out.
pub(crate) struct Context<'r> {
    pub(crate) request: Request<'r>,
    pub(crate) state: RequestState,
    node: Arc<Node>,
}

/// Returns a request whose body is in memory.
pub(crate) fn context<'r>(head: &'r RequestHead, body: &'static str) -> Context<'r> {
    let mut request = Request::bare(head);
    request.host = "a.test";
    request.port = 8000;
    request.request_id = REQUEST_ID;
    request.body = RequestBody::Whole(body.into());
    Context {
        request,
        state: RequestState::default(),
        node: Node::bare().expect("a thread can be started"),
    }
}

/// Runs what `run` does with the plugins of a request.
pub(crate) fn with_chain<T>(
    instances: &Instances,
    cx: &mut Context<'_>,
    run: impl FnOnce(&mut Chain<'_>, &mut Request<'_>) -> T,
) -> T {
    let mut chain = Chain::new(instances, &NoNames, &cx.node);
    let mut memory = Box::new(ChainMemory::default());
    memory.state = std::mem::take(&mut cx.state);
    chain.use_memory(memory);
    let result = run(&mut chain, &mut cx.request);
    let memory = chain.memory_mut().expect("it was given");
    cx.state = std::mem::take(&mut memory.state);
    result
}

/// Runs a future that must be ready at its first poll.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the future waits"),
    }
}

/// Runs the access phase of a request whose body is in memory.
pub(crate) fn run_access(
    plan: &Plan,
    instances: &Instances,
    cx: &mut Context<'_>,
) -> Option<Response> {
    with_chain(instances, cx, |chain, request| {
        access_of(chain, plan, request)
    })
}

pub(crate) fn access_of(
    chain: &mut Chain<'_>,
    plan: &Plan,
    request: &mut Request<'_>,
) -> Option<Response> {
    match ready(chain.access(plan, request, &mut |_| Poll::Pending)) {
        Access::Done(None) => None,
        Access::Done(Some(ended)) => match *ended {
            Ended::Answered { response, .. } => Some(response),
            ended => panic!("the access phase does not end: {ended:?}"),
        },
        other => panic!("the access phase does not end: {other:?}"),
    }
}

/// Reads an entity from JSON.
pub(crate) fn entity<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("the entity is complete")
}

/// Returns a global plugin. `config` must be complete, because no schema adds default values here.
pub(crate) fn plugin(name: &str, config: serde_json::Value) -> serde_json::Value {
    let id = Uuid::new_v5(&Uuid::nil(), format!("{name}{config}").as_bytes());
    json!({
        "id": id, "name": name, "enabled": true, "config": config,
        "protocols": ["grpc", "grpcs", "http", "https"],
    })
}

pub(crate) fn settings() -> BuildSettings {
    BuildSettings {
        plugins: plugins::bundled().to_vec(),
        ..BuildSettings::default()
    }
}
