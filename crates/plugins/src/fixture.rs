//! For tests of single plugins: configurations completed by their schemas, and requests without connections.

use model::schema::Context;
use net::http1::{Limits, RequestHead, ResponseHead};
use plugin::{
    Answer, BuildCx, BuildError, Chunk, Configured, HeaderEdits, NoNames, Node, NodeIdentity,
    Origin, Plugin, Request, RequestCx, RequestState, Response, ResponseCx, ScopeSet, Step,
};
use serde_json::json;
use services::Clock;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Returns a node whose clock stands still at this time, in seconds since 1970.
pub(crate) fn node(now: u64) -> Arc<Node> {
    let mut node = Node::bare().unwrap();
    let alone = Arc::get_mut(&mut node).expect("nobody else has it yet");
    alone.clock = Clock::fixed(SystemTime::UNIX_EPOCH + Duration::from_secs(now));
    node
}

/// Completes a configuration by the schema of its plugin.
pub(crate) fn completed(plugin: &str, config: &serde_json::Value) -> model::Value {
    let registry = crate::install();
    let entity = json!({ "name": plugin, "config": config });
    let input: model::Value = serde_json::from_value(entity).unwrap();
    let model::Value::Object(input) = input else {
        unreachable!("it is an object");
    };
    let schema = registry.entity(model::EntityKind::Plugins);
    let mut complete = schema
        .complete(input, &Context::at(Duration::from_secs(1)))
        .expect("the configuration is valid");
    complete.remove("config").unwrap()
}

/// Builds a plugin from a configuration that its schema completes.
pub(crate) fn build<P: Plugin>(plugin: &str, config: &serde_json::Value) -> Result<P, BuildError> {
    let config = BuildError::read_config(&completed(plugin, config))?;
    let (identity, life) = (NodeIdentity::default(), Arc::default());
    let cx = BuildCx {
        untrusted_lua: plugin::UntrustedLua::default(),
        identity: &identity,
        life: &life,
    };
    P::build(config, &cx)
}

/// Returns a request head from its lines, beginning with the request line.
pub(crate) fn head(lines: &[&str]) -> RequestHead {
    let fields = lines[1..].iter().map(|line| format!("{line}\r\n"));
    let text = format!(
        "{}\r\nHost: a\r\n{}\r\n",
        lines[0],
        fields.collect::<String>()
    );
    let parsed = RequestHead::parse(text.as_bytes(), &Limits::default());
    parsed.unwrap().expect("the head is complete").0
}

/// Returns a response head from its lines, beginning with the status line.
pub(crate) fn response_head(lines: &[&str]) -> ResponseHead {
    let fields = lines[1..].iter().map(|line| format!("{line}\r\n"));
    let text = format!("{}\r\n{}\r\n", lines[0], fields.collect::<String>());
    let parsed = ResponseHead::parse(text.as_bytes(), false, &Limits::default());
    parsed.unwrap().expect("the head is complete").0
}

/// A request under way, with what its plugins have found out.
pub(crate) struct Exchange<'r, P: Plugin> {
    pub(crate) request: Request<'r>,
    pub(crate) state: RequestState,
    pub(crate) own: P::Own,
    pub(crate) scopes: ScopeSet,
    node: Arc<Node>,
}

impl<'r, P: Plugin> Exchange<'r, P> {
    pub(crate) fn new(head: &'r RequestHead, node: &Arc<Node>) -> Self {
        Self {
            request: Request::bare(head),
            state: RequestState::default(),
            own: P::Own::default(),
            scopes: ScopeSet::GLOBAL,
            node: Arc::clone(node),
        }
    }

    fn configured(&self) -> Configured<'static> {
        Configured {
            scopes: self.scopes,
            consumer: None,
            plugin: 0,
            names: &NoNames,
        }
    }

    /// Runs `access` and returns the plugin's response, if it ends the request.
    pub(crate) fn access(&mut self, plugin: &P) -> Option<Response> {
        let cx = RequestCx {
            configured: self.configured(),
            request: &mut self.request,
            state: &mut self.state,
            node: &self.node,
        };
        match plugin.access(cx, &mut self.own) {
            Ok(Step::Continue) => None,
            Ok(Step::Respond(response)) => Some(response),
            Ok(_) => panic!("the plugin waits"),
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs the filter phases for a response of the upstream, and returns the headers that plugins have set.
    pub(crate) fn respond(
        &mut self,
        plugin: &P,
        upstream: &ResponseHead,
        body: &[&'static str],
    ) -> HeaderEdits {
        let early = std::mem::take(&mut self.state.headers).into_before(|_| false);
        let mut answer = Answer::new(Origin::Upstream, upstream.status(), early);
        let mut cx = ResponseCx {
            configured: self.configured(),
            request: &self.request,
            state: &mut self.state,
            node: &self.node,
            upstream: Some(upstream),
            upstream_body: None,
            answer: &mut answer,
        };
        plugin.header_filter(&mut cx, &mut self.own).unwrap();
        for (at, piece) in body.iter().enumerate() {
            let mut chunk = Chunk {
                data: piece.as_bytes().into(),
                last: at + 1 == body.len(),
            };
            plugin
                .body_filter(&mut cx, &mut self.own, &mut chunk)
                .unwrap();
        }
        answer.headers
    }
}
