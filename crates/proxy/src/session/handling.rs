//! A request between its head and its log line, with its plugins.

use super::plane::DataPlane;
use super::proxying::CLIENT_GONE;
use super::worker;
use crate::plugins::{Chain, ChainMemory, Plan};
use crate::snapshot::Snapshot;
use plugin::{Latencies, LogEntry, Origin, Phases, Request};
use std::time::SystemTime;
use tokio::time::Instant;

/// A request whose head has arrived. The log phase runs once for every request: if this is dropped before, because the
/// task of the connection was aborted, it runs then.
pub(super) struct Handling<'r> {
    pub(super) request: Request<'r>,
    pub(super) chain: Chain<'r>,
    /// The response head as it was sent, kept only for plugins that log.
    pub(super) sent_head: Vec<u8>,
    started: Instant,
    pub(super) is_logged: bool,
    has_memory: bool,
}

impl<'r> Handling<'r> {
    pub(super) fn new(
        request: Request<'r>,
        snapshot: &'r Snapshot,
        plane: &'r DataPlane,
        started: Instant,
    ) -> Self {
        let names = snapshot.configured_names();
        let chain = Chain::new(
            snapshot.instances(),
            names,
            &plane.node,
            ChainMemory::default(),
        );
        Self {
            request,
            chain,
            sent_head: Vec::new(),
            started,
            is_logged: false,
            has_memory: false,
        }
    }

    /// Takes the lists that plugins fill from the worker. Requests without plugins do without them.
    #[inline]
    pub(super) fn use_memory(&mut self) {
        if !self.has_memory {
            self.has_memory = true;
            let mut memory = worker::with(|worker| worker.chain_memory());
            self.request.upstream = std::mem::take(&mut memory.edits);
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

    /// Returns the lists to the worker.
    #[inline]
    pub(super) fn give_memory(&mut self) {
        let buffer = std::mem::take(&mut self.request.routed.bytes);
        if !self.has_memory {
            return worker::with(|worker| worker.give_buffer(buffer));
        }
        self.has_memory = false;
        let mut memory = self.chain.take_memory();
        memory.edits = std::mem::take(&mut self.request.upstream);
        memory.edits.clear();
        worker::with(|worker| {
            worker.give_buffer(buffer);
            worker.give_chain_memory(memory);
        });
    }

    /// Keeps the head of a response for the log phase, if a plugin has that phase.
    #[inline]
    pub(super) fn keep_head(chain: &Chain<'_>, kept: &mut Vec<u8>, written: &[u8]) {
        if chain.has(Phases::LOG) {
            kept.clear();
            kept.extend_from_slice(written);
        }
    }
}

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        if self.is_logged || !self.chain.has(Phases::LOG) || std::thread::panicking() {
            return;
        }
        let took = self.started.elapsed();
        let entry = LogEntry {
            status: CLIENT_GONE,
            origin: Origin::Gateway,
            upstream_status: None,
            started_at: SystemTime::now() - took,
            latencies: Latencies {
                request: took,
                gateway: took,
                ..Latencies::default()
            },
            tries: &[],
            request_size: 0,
            response_size: 0,
            response_head: &self.sent_head,
            upstream_path: self.request.upstream_path(),
            upstream_body: None,
        };
        self.chain.log(&self.request, &entry);
    }
}
