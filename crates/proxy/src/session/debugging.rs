//! What clients and traces are told about a request on its way: its timings (kong/timing/init.lua), the headers of
//! `Kong-Debug`, and the tries.

use super::Connection;
use super::connect::ConnectError;
use super::handling::Handling;
use super::plane::DataPlane;
use super::tries::Tries;
use crate::plugins::debugging::log_ended;
use crate::snapshot::{RouteInfo, ServiceRef};
use crate::upstream::Target;
use net::http1::RequestHead;
use plugin::trace::{DebugRequest, FailedLookup, Moment};
use plugin::{HeaderEdits, Instrumentations, Trace};
use std::hint::black_box;
use tokio::time::Instant;

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

impl Connection {
    /// Response headers that name the route and the service, if the request has `Kong-Debug`.
    pub(super) fn debug_headers(
        &self,
        route: &RouteInfo,
        service: Option<ServiceRef<'_>>,
        head: &RequestHead,
    ) -> Option<HeaderEdits> {
        if !self.plane.settings.debug_header {
            return None;
        }
        head.header("kong-debug")?;
        let mut edits = HeaderEdits::new();
        edits.set("Kong-Route-Id", route.id.0);
        if let Some(name) = &route.name {
            edits.set("Kong-Route-Name", &**name);
        }
        if let Some(service) = service {
            edits.set("Kong-Service-Id", service.id.0);
            if let Some(name) = &service.name {
                edits.set("Kong-Service-Name", &**name);
            }
        }
        Some(edits)
    }
}

/// Notes the name of the server of a try, or that it could not be resolved.
#[inline(never)]
pub(super) fn note_try(
    trace: &mut Trace,
    target: &Target,
    tries: &Tries,
    failed: Option<&ConnectError>,
    now: Instant,
) {
    let name = target.host.name();
    match failed {
        Some(ConnectError::Resolve(error)) => trace.set_failed_lookup(FailedLookup {
            name: name.into(),
            port: target.host.port(),
            start: Moment::of(tries.began().into_std()),
            end: Moment::of(now.into_std()),
            error: error.to_string().into(),
        }),
        _ => trace.add_try(name),
    }
    if let Some(debug) = &mut trace.debug {
        let contacted = tries.contacted();
        debug.contact = Some((contacted - tries.began(), contacted.into_std()));
    }
}
