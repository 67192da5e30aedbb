//! A request between its head and its log line, with its plugins.

use super::counts::Counters;
use super::plane::DataPlane;
use super::proxying::CLIENT_GONE;
use super::request_body::BodyShare;
use super::routing::Routed;
use super::worker;
use crate::plugins::{Chain, ChainMemory, Plan};
use crate::snapshot::Snapshot;
use net::http1::RequestHead;
use plugin::{
    Capture, InternalRedirect, Latencies, LogEntry, Origin, Phases, Reason, Request, RequestBody,
    RoutedUri, UpstreamEdits,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

/// A request whose head has arrived. The log phase runs once for every request: if this is dropped before, because the
/// task of the connection was aborted, it runs then.
pub(super) struct Handling<'r> {
    pub(super) request: Request<'r>,
    pub(super) chain: Chain<'r>,
    /// Memory of the request's body.
    pub(super) body_share: Option<BodyShare>,
    /// The global instances, which log a request that ends before its access phase.
    globals: &'r Plan,
    pub(super) counters: &'r Counters,
    pub(super) is_logged: bool,
    /// The route of a request that goes on without its client.
    pub(super) goes_on: Option<Routed>,
    /// Whether the request begins anew. Its outcome so far then means nothing.
    pub(super) restarts: bool,
}

/// What is left of a request that goes on without its client.
pub(super) struct Rest {
    routed: Routed,
    memory: Box<ChainMemory>,
    upstream: UpstreamEdits,
    uri: RoutedUri,
    captures: Vec<Capture>,
}

impl<'r> Handling<'r> {
    /// Inlined, because the request is large and would be moved.
    #[inline(always)]
    pub(super) fn new(
        request: Request<'r>,
        snapshot: &'r Snapshot,
        plane: &'r DataPlane,
        counters: &'r Counters,
    ) -> Self {
        let names = snapshot.configured_names();
        let mut chain = Chain::new(snapshot.instances(), names, &plane.node);
        chain.note_in(&counters.doing);
        Self {
            request,
            chain,
            body_share: None,
            globals: &snapshot.globals,
            counters,
            is_logged: false,
            goes_on: None,
            restarts: false,
        }
    }

    /// Takes the lists that plugins fill from the worker. Requests without plugins do without them.
    #[inline]
    pub(super) fn use_memory(&mut self) {
        if !self.chain.has_memory() {
            let mut memory = worker::with(|worker| worker.chain_memory());
            self.request.upstream.headers = std::mem::take(&mut memory.upstream_headers);
            self.chain.use_memory(memory);
        }
    }

    /// Chooses the global instances, for a request that ends before its access phase.
    pub(super) fn use_globals(&mut self, globals: &Plan) {
        if !globals.is_empty() {
            self.use_memory();
            self.chain.pick_defaults(globals);
        }
    }

    /// Prepares the request to begin anew. Returns `false` after too many restarts.
    #[cold]
    pub(super) fn restart(&mut self, redirect: InternalRedirect) -> bool {
        let request = &mut self.request;
        (request.route, request.service) = (None, None);
        request.captures.clear();
        let buffer = std::mem::take(&mut request.routed).bytes;
        worker::with(|worker| worker.give_buffer(buffer));
        let UpstreamEdits {
            headers: _,
            method: _,
            body: _,
            query,
            path,
            target,
            buffer_response,
        } = &mut request.upstream;
        *query = Some(redirect.query);
        (*path, *target, *buffer_response) = (None, None, false);
        // Otherwise the end of an access phase does this. The next route may have none.
        request.upstream.escape_request_line();
        self.restarts = self.chain.restart(redirect.path);
        if !self.restarts {
            self.chain.pick_defaults(self.globals);
        }
        self.restarts
    }

    /// Takes what a request needs in order to go on without its client, if it does.
    #[inline]
    pub(super) fn take_rest(&mut self) -> Option<Rest> {
        let routed = self.goes_on?;
        let memory = self.chain.lend_memory()?;
        Some(Rest {
            routed,
            memory,
            upstream: std::mem::take(&mut self.request.upstream),
            uri: std::mem::take(&mut self.request.routed),
            captures: std::mem::take(&mut self.request.captures),
        })
    }

    /// Makes this request go on where the plugin had responded. Returns its route.
    pub(super) fn use_rest(&mut self, rest: Rest, snapshot: &'r Snapshot) -> Routed {
        let Rest {
            routed,
            memory,
            upstream,
            uri,
            captures,
        } = rest;
        let request = &mut self.request;
        (request.upstream, request.routed, request.captures) = (upstream, uri, captures);
        request.route = routed.route(snapshot).map(|route| route.as_ref());
        request.service = routed.service(snapshot).map(|service| service.as_ref());
        self.chain.go_on(memory);
        self.chain.set_route(routed.index());
        routed
    }

    /// Returns the lists to the worker.
    #[inline]
    pub(super) fn give_memory(&mut self) {
        let buffer = std::mem::take(&mut self.request.routed.bytes);
        let headers = std::mem::take(&mut self.request.upstream.headers);
        if let Some(memory) = self.chain.memory_mut() {
            memory.upstream_headers = headers;
        }
        let memory = self.chain.take_memory();
        worker::with(|worker| {
            worker.give_buffer(buffer);
            if let Some(memory) = memory {
                worker.give_chain_memory(memory);
            }
        });
    }
}

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        if self.is_logged {
            return;
        }
        let reason = self.reason_of_end();
        if self.chain.is_before_access() {
            self.chain.pick_defaults(self.globals);
        }
        let took = self.request.started.elapsed();
        if !self.chain.has(Phases::LOG) {
            return self.counters.count_request(CLIENT_GONE, took, Some(reason));
        }
        // After a panic of a plugin, a second one would end the process.
        let logged = catch_unwind(AssertUnwindSafe(|| self.log_broken_off(took, reason)));
        if logged.is_err() {
            let request_id = self.request.request_id;
            tracing::error!(
                request_id,
                "the log phase of a request that broke off has panicked"
            );
        }
    }
}

impl Handling<'_> {
    /// Why the task of the request has ended.
    fn reason_of_end(&self) -> Reason {
        if std::thread::panicking() {
            Reason::Internal
        } else if worker::with(|worker| worker.is_ending) {
            Reason::Draining
        } else {
            Reason::ClientGone
        }
    }

    /// Runs the log phase of a request whose task ended before it was done. The connection is out of reach here. So the
    /// sizes are those of the heads, and of a request's body in memory: what was forwarded of bodies is not known.
    fn log_broken_off(&mut self, took: Duration, reason: Reason) {
        let sent_head = self.chain.take_sent_head();
        let body = match &self.request.body {
            RequestBody::Whole(body) => body.len(),
            RequestBody::Unread | RequestBody::TooLarge | RequestBody::Streamed => 0,
        };
        let status = status_of(&sent_head.bytes).unwrap_or(CLIENT_GONE);
        self.counters.count_request(status, took, Some(reason));
        let entry = LogEntry {
            status,
            origin: Origin::Gateway,
            reason: Some(reason),
            upstream_status: None,
            started_at: SystemTime::now() - took,
            latencies: Latencies {
                request: took,
                gateway: took,
                ..Latencies::default()
            },
            tries: &[],
            request_size: (head_size(self.request.head) + body) as u64,
            response_size: sent_head.size,
            response_head: &sent_head.bytes,
            response_head_size: sent_head.size,
            upstream_path: self.request.upstream_path(),
            upstream_body: None,
        };
        self.chain.log(&self.request, &entry);
    }
}

/// Returns the size of a request's head: the request line, the header lines and the empty line.
fn head_size(head: &RequestHead) -> usize {
    let lines = head.lines().map(|(_, _, line)| line.len());
    let request_line =
        head.method_bytes().len() + head.target_bytes().len() + "  HTTP/1.1\r\n".len();
    request_line + lines.sum::<usize>() + "\r\n".len()
}

/// Returns the status in the head of a response.
fn status_of(head: &[u8]) -> Option<u16> {
    let digits = head.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
