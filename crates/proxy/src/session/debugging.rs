//! Requests whose client asks for their timings. Source: kong/timing/init.lua.

use super::handling::Handling;
use super::plane::DataPlane;
use crate::plugins::debugging::log_ended;
use plugin::Instrumentations;
use plugin::trace::DebugRequest;
use std::hint::black_box;

const WANTED: &str = "x-kong-request-debug";
const TOKEN: &str = "x-kong-request-debug-token";
const LOG: &str = "x-kong-request-debug-log";

/// The times that the tree shows.
const KINDS: Instrumentations = Instrumentations::REQUEST
    .with(Instrumentations::ROUTER)
    .with(Instrumentations::PLUGIN_REWRITE)
    .with(Instrumentations::PLUGIN_ACCESS)
    .with(Instrumentations::PLUGIN_HEADER_FILTER)
    .with(Instrumentations::IDS);

impl Handling<'_> {
    /// Takes the headers of a request debug out of the request, which must not pass on the token, and lets the client have
    /// its timings if it may.
    #[cold]
    pub(super) fn begin_debug(&mut self, plane: &DataPlane) {
        let Some(token) = plane.settings.debug_token.as_deref() else {
            return;
        };
        self.use_memory();
        let request = &mut self.request;
        let first = |name| request.head.header_values(name).next();
        let is_local = request.client.ip.to_canonical().is_loopback();
        let knows_token = || first(TOKEN).is_some_and(|told| is_same(told, token.as_bytes()));
        let is_wanted = first(WANTED) == Some(b"*") && (is_local || knows_token());
        let logs = first(LOG).is_some_and(|value| value.eq_ignore_ascii_case(b"true"));
        for name in [WANTED, TOKEN, LOG] {
            request.upstream.headers.remove(name);
        }
        if !is_wanted {
            return;
        }
        self.chain.ask_for_header_filter();
        if let Some(memory) = self.chain.memory_mut() {
            let trace = &mut memory.state.trace;
            trace.record(KINDS);
            trace.debug = Some(DebugRequest {
                is_local,
                logs,
                contact: None,
                headed: None,
            });
        }
    }

    /// Logs the timings, if the client wants it.
    #[cold]
    pub(super) fn end_debug(&mut self) {
        if let Some(state) = self.chain.state() {
            log_ended(&self.request, state, self.chain.node());
        }
    }
}

/// Compares a secret in a time that does not depend on where it differs.
fn is_same(told: &[u8], secret: &[u8]) -> bool {
    let differs = told
        .iter()
        .zip(secret)
        .fold(0, |all, (one, other)| black_box(all | (one ^ other)));
    told.len() == secret.len() && differs == 0 && !secret.is_empty()
}
