//! Turns a routed request into a response: checks the protocol, reads the body if a plugin wants it, runs the access
//! phase, and contacts the upstream with as many attempts as the service allows.

use super::answer::ServerError;
use super::collected::{Collected, collects};
use super::connect::{ConnectError, Name, obtain};
use super::debugging::note_try;
use super::exchange::{Exchange, Exchanged, Source, Terms};
use super::failure::{Failed, Owner, ReportedStatus, TryFailure, UpstreamFailure};
use super::handling::Handling;
use super::hashing::Hashed;
use super::opening::Opening;
use super::request_body::{BodyError, most_payload};
use super::routing::Routed;
use super::tries::{Rules, Verdict, is_idempotent};
use super::tunnel::Tunnel;
use super::worker::{self, Worker};
use super::{After, Connection, Outcome, RequestBodyAt};
use crate::balance::{self, Hashing, NoPeer, PickInput, Tried};
use crate::forward::{BodyLength, Outbound, write_request};
use crate::health;
use crate::plugins::{Access, Chain, Ended, FilterFailed, Plan};
use crate::redirect::Redirect;
use crate::snapshot::{Chosen, RouteInfo, ServiceRef, Snapshot};
use crate::upstream::{Http2, Target};
use bytes::Bytes;
use model::entities::Protocol;
use net::dns::ResolveError;
use net::http1::{Body, Framing, RequestHead};
use net::pool;
use plugin::{
    Chunk, HeaderEdits, Instrumentations, Origin, Phases, Reason, Request, RequestBody, Response,
};
use std::num::NonZeroU16;
use std::task::{Context, Poll};
use tokio::time::Instant;

/// A request on its way to an upstream.
struct Call<'a> {
    opening: &'a Opening<'a>,
    route: &'a RouteInfo,
    service: ServiceRef<'a>,
    /// Set if a plugin leads the request elsewhere. Boxed because it is rare.
    redirect: Option<Box<Redirect<'a>>>,
    /// Extra response headers: debug headers and the cookie for consistent hashing. Boxed because they are rare and
    /// would enlarge the task of every connection.
    debug_headers: Option<Box<HeaderEdits>>,
    /// Whether the whole response is read into memory before it is sent.
    collects: bool,
}

impl Connection {
    pub(super) async fn dispatch(
        &mut self,
        snapshot: &Snapshot,
        opening: &Opening<'_>,
        routed: &Routed,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        let Some(route) = routed.route(snapshot) else {
            handling.use_globals(&snapshot.globals);
            let (status, text, reason) = match routed.is_too_costly {
                true => (400, router::TOO_COSTLY, Reason::BadRequest),
                false => (404, "no Route matched with those values", Reason::NoRoute),
            };
            let response = Response::error(status, text);
            return self.produce(response, Origin::Gateway, reason, opening, handling);
        };
        if let Some(response) = self.check_protocol(route, opening, &handling.request) {
            handling.use_globals(&snapshot.globals);
            let reason = Reason::WrongProtocol;
            return self.produce(response, Origin::Gateway, reason, opening, handling);
        }
        if self.is_too_large(handling.request.head) {
            handling.use_globals(&snapshot.globals);
            return self.refuse_body(BodyError::TooLarge, opening, handling);
        }
        let asks = handling.request.head.asks_for_timings();
        let is_timed = (route.plan.is_traced() || asks) && {
            handling.use_memory();
            let Handling { request, chain, .. } = &mut *handling;
            chain.begin_trace(&route.plan, request, self.now)
        };
        if route.plan.has(Phases::ACCESS) || snapshot.globals.has(Phases::REWRITE) {
            match self.run_access(&route.plan, is_timed, handling).await {
                Ok(None) => {}
                Ok(Some(ended)) => {
                    if handling.chain.goes_on() {
                        handling.goes_on = Some(*routed);
                    }
                    return self.answer_plugin(*ended, opening, handling);
                }
                Err(error) => return self.refuse_body(error, opening, handling),
            }
        } else if !route.plan.is_empty() {
            // No plugin changes the request here, and none waits.
            handling.use_memory();
            handling.request.local = self.arrival.local(&self.stream);
            handling.chain.pick_all(&route.plan);
        }
        let Some(service) = snapshot.service(route) else {
            let response = Response::error(503, "no Service found with those values");
            let reason = Reason::NoService;
            return self.produce(response, Origin::Gateway, reason, opening, handling);
        };
        if self.has_too_much(handling) {
            return self.refuse_body(BodyError::TooLarge, opening, handling);
        }
        let awaited = self.await_body(route, service, handling).await;
        if let Err(error) = awaited {
            return self.refuse_body(error, opening, handling);
        }
        let edits = handling.request.upstream.target.as_deref();
        let now = self.now;
        let redirect = edits.map(|edits| {
            worker::with(|worker| Redirect::new(service, edits, &mut worker.places, now))
        });
        let redirect = match redirect.transpose() {
            Ok(redirect) => redirect.map(Box::new),
            Err(error) => {
                let (service, route) = (service.as_ref(), route.as_ref());
                let request_id = opening.request_id();
                tracing::error!(%service, %route, request_id, "{error}");
                let error = ServerError::new(500, Reason::Internal);
                return self.produce_error(error, None, opening, handling);
            }
        };
        let call = Call {
            opening,
            redirect,
            debug_headers: self
                .debug_headers(route, Some(service), handling.request.head)
                .map(Box::new),
            route,
            service,
            collects: collects(service, handling),
        };
        self.proxy(call, handling).await
    }

    /// Whether the client announces a longer body than requests may have.
    fn is_too_large(&self, head: &RequestHead) -> bool {
        let most = self.plane.settings.max_body;
        matches!(head.framing(), Framing::Length(length) if most != 0 && length > most)
    }

    /// Whether the part of a chunked body that has arrived is longer than the body may be.
    fn has_too_much(&self, handling: &Handling<'_>) -> bool {
        let Handling { request, chain, .. } = handling;
        let most = most_payload(&self.plane, chain);
        if most == u64::MAX || request.head.framing() != Framing::Chunked {
            return false;
        }
        match &request.body {
            RequestBody::Whole(body) => body.len() as u64 > most,
            // A body that is malformed is refused when it is read.
            _ => (Body::new(Framing::Chunked).measure(&self.carry))
                .is_ok_and(|(_, payload)| payload as u64 > most),
        }
    }

    /// Returns the response of the plugin that has limited the body, if its limit is the one that a body exceeds.
    fn refusal(&self, chain: &Chain<'_>) -> Option<Response> {
        let limit = chain.state()?.body_limit.as_deref()?;
        let is_less = most_payload(&self.plane, chain) == limit.most;
        is_less.then(|| limit.refusal.clone())
    }

    /// Runs the rewrite phase. Returns the outcome of a request that ends in it.
    pub(super) async fn rewrite(
        &mut self,
        globals: &Plan,
        opening: &Opening<'_>,
        handling: &mut Handling<'_>,
    ) -> Option<Outcome> {
        match self.run_rewrite(globals, handling).await {
            Ok(None) => None,
            Ok(Some(ended)) => Some(self.answer_plugin(*ended, opening, handling)),
            Err(error) => {
                handling.use_globals(globals);
                Some(self.refuse_body(error, opening, handling))
            }
        }
    }

    /// Runs the rewrite phase. Returns the response of a plugin that has ended the request.
    async fn run_rewrite(
        &mut self,
        globals: &Plan,
        handling: &mut Handling<'_>,
    ) -> Result<Option<Box<Ended>>, BodyError> {
        handling.use_memory();
        handling.request.local = self.arrival.local(&self.stream);
        loop {
            let Handling { request, chain, .. } = &mut *handling;
            let rewrite = chain
                .rewrite(globals, request, &mut |cx| self.poll_gone(cx))
                .await;
            // A plugin may have waited.
            self.now = Instant::now();
            match rewrite {
                Access::Done(ended) => return Ok(ended),
                Access::ClientGone => return Err(BodyError::Gone),
                Access::NeedsBody => self.read_for_plugins(handling).await?,
            }
        }
    }

    /// Reads the body for a plugin.
    async fn read_for_plugins(&mut self, handling: &mut Handling<'_>) -> Result<(), BodyError> {
        let request = &mut handling.request;
        // gRPC messages are forwarded as they arrive: the response may have to begin before they end. Clients of
        // gRPC-Web end their requests first.
        if request.is_grpc && !Request::has_grpc_web_type(request.head) {
            request.body = RequestBody::Streamed;
            return Ok(());
        }
        if self.is_too_large(request.head) {
            return Err(BodyError::TooLarge);
        }
        let allowed = most_payload(&self.plane, &handling.chain);
        let (body, share) = Box::pin(self.buffer_body(request.head, allowed)).await?;
        request.body = body;
        handling.body_share = Some(share);
        Ok(())
    }

    /// Runs the access phase. The body is read when the first plugin asks for it. If an earlier plugin refuses the
    /// client, the body is not read. Returns the response of a plugin that has ended the request.
    async fn run_access(
        &mut self,
        plan: &Plan,
        is_timed: bool,
        handling: &mut Handling<'_>,
    ) -> Result<Option<Box<Ended>>, BodyError> {
        handling.use_memory();
        handling.request.local = self.arrival.local(&self.stream);
        let ended = loop {
            let Handling { request, chain, .. } = &mut *handling;
            let mut gone = |cx: &mut Context<'_>| self.poll_gone(cx);
            let access = match is_timed {
                false => chain.access(plan, request, &mut gone).await,
                true => chain.access_timed(plan, request, &mut gone).await,
            };
            // A plugin may have waited.
            self.now = Instant::now();
            match access {
                Access::Done(ended) => break ended,
                Access::ClientGone => return Err(BodyError::Gone),
                Access::NeedsBody => self.read_for_plugins(handling).await?,
            }
        };
        handling.request.upstream.escape_request_line();
        Ok(ended)
    }

    /// Ready when the client has left, for plugins that wait only as long as the client does. What the client sends in
    /// the meantime is kept, up to a limit.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        const MAX_KEPT: usize = 16 * 1024;
        if self.stream.poll_given_up(cx).is_ready() {
            return Poll::Ready(());
        }
        if self.stream.is_http2() {
            return Poll::Pending;
        }
        worker::with(|worker| {
            while self.carry.len() < MAX_KEPT {
                match self.stream.poll_read(cx, &mut worker.read[..MAX_KEPT]) {
                    Poll::Ready(Ok(read)) if read > 0 => {
                        self.carry.extend_from_slice(&worker.read[..read]);
                    }
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
            }
            Poll::Pending
        })
    }

    /// Reads the rest of the body if the route buffers requests, so that no upstream waits for a slow client. Usually
    /// nothing is left to read, because a small body arrives together with its head.
    async fn await_body(
        &mut self,
        route: &RouteInfo,
        service: ServiceRef<'_>,
        handling: &mut Handling<'_>,
    ) -> Result<(), BodyError> {
        let request = &mut handling.request;
        let here = match request.head.framing() {
            Framing::None => true,
            Framing::Length(length) => self.carry.len() as u64 >= length,
            Framing::Chunked | Framing::Close => false,
        };
        let whole =
            matches!(request.body, RequestBody::Whole(_)) || request.upstream.body.is_some();
        if here || whole || !route.request_buffering || streams_by_nature(service, request.head) {
            return Ok(());
        }
        let share = handling.body_share.take();
        let allowed = most_payload(&self.plane, &handling.chain);
        let (body, share) = Box::pin(self.hold_body(request.head, allowed, share)).await?;
        if let Some(body) = body {
            request.body = RequestBody::Whole(body);
        }
        handling.body_share = Some(share);
        Ok(())
    }

    pub(super) fn refuse_body(
        &mut self,
        error: BodyError,
        opening: &Opening<'_>,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        let (status, reason) = match error {
            BodyError::Malformed => {
                let request_id = opening.request_id();
                tracing::debug!(request_id, "a request gets 400: malformed request body");
                (400, Reason::BadRequest)
            }
            BodyError::TooLarge => {
                if let Some(refusal) = self.refusal(&handling.chain) {
                    let from = (Origin::Plugin, Reason::TooLarge);
                    let mut outcome = self.produce(refusal, from.0, from.1, opening, handling);
                    outcome.after = After::Linger;
                    return outcome;
                }
                (413, Reason::TooLarge)
            }
            BodyError::Timeout => (408, Reason::ClientTimeout),
            BodyError::Gone => return self.gone(None, Reason::ClientGone),
        };
        let error = ServerError::new(status, reason);
        let mut outcome = self.produce_error(error, None, opening, handling);
        outcome.after = After::Linger;
        outcome
    }

    /// Tries the service's targets until one responds or the failure does not allow a retry.
    async fn proxy(&mut self, mut call: Call<'_>, handling: &mut Handling<'_>) -> Outcome {
        let input = call.pick_input(handling);
        let call = &call;
        let body = match self.body_in_memory(handling) {
            Ok(body) => body,
            Err(FilterFailed) => {
                return self.produce_unexpected(call.opening, handling);
            }
        };
        let mut source = self.choose_source(body.as_ref(), &handling.request);
        let (mut kept, mut failed_at) = (None, balance::Tried::default());
        let mut last_failure = None;
        loop {
            let chosen = match kept.take() {
                Some(same) => Ok(same),
                None => call.pick(input, &failed_at, self.now),
            };
            let chosen = match chosen {
                Err(NoPeer::Unresolved) => {
                    Box::pin(call.resolve()).await;
                    self.now = Instant::now();
                    call.pick(input, &failed_at, self.now)
                }
                chosen => chosen,
            };
            let Ok(target) = chosen else {
                if let Some(failure) = &last_failure {
                    self.report(failure, call);
                }
                let reason = last_failure.as_ref().map(TryFailure::reason);
                return self.refuse_without_peer(reason, call, handling);
            };
            self.tries.begin(self.now);
            let tried = self.try_target(call, handling, &target, &mut source).await;
            let failure = match tried {
                Ok((exchanged, collected)) => {
                    target.report(health::Outcome::Status(exchanged.upstream_status));
                    if let Some(tunnel) = &mut self.tunnel {
                        tunnel.stay(target.into_stay());
                    }
                    let outcome = self.end_exchange(exchanged, &source);
                    return match collected {
                        None => outcome,
                        Some(collected) => {
                            let debug = call.debug_headers.as_deref();
                            let answered = self.answer_collected(
                                *collected,
                                outcome,
                                call.opening,
                                debug,
                                handling,
                            );
                            Box::pin(answered).await
                        }
                    };
                }
                Err(failure) => failure,
            };
            let request = &handling.request;
            let rules = Rules {
                retries: target.retries,
                idempotent: is_idempotent(request.method_bytes()),
                streams: !call.route.request_buffering && request.head.framing() != Framing::None,
            };
            self.now = Instant::now();
            let verdict = self.tries.judge(&failure, rules, self.now);
            if verdict == Verdict::Same {
                // The server had closed a kept connection. That is no try of its own.
                if let Some(memory) = handling.chain.memory_mut() {
                    memory.state.tried.pop();
                    memory.state.trace.forget_try();
                }
                kept = Some(target);
                continue;
            }
            if let Some(outcome) = failure.outcome() {
                target.report(outcome);
            }
            if verdict == Verdict::Final {
                return self.fail(failure, call, handling);
            }
            worker::with(|worker| worker.counters(&self.plane))
                .retries
                .add();
            target.avoid(&mut failed_at);
            last_failure = Some(failure);
        }
    }

    /// Returns the request's body, if it is in memory. If plugins filter it and it has arrived completely, it is filtered
    /// here, once for all tries.
    fn body_in_memory(
        &mut self,
        handling: &mut Handling<'_>,
    ) -> Result<Option<Bytes>, FilterFailed> {
        let Handling { request, chain, .. } = handling;
        let head = request.head;
        let mut whole = request.body_bytes().cloned();
        if !chain.has(Phases::REQUEST_BODY) || head.framing() == Framing::None {
            return Ok(whole);
        }
        if whole.is_none() {
            let mut body = Body::new(head.framing());
            if let Ok(length) = body.consume(&self.carry)
                && body.is_done()
            {
                whole = Some(self.take_gathered(head, length));
            }
        }
        let Some(body) = whole else {
            return Ok(None);
        };
        let mut filtered = Vec::new();
        for (data, last) in [(body, false), (Bytes::new(), true)] {
            let mut chunk = Chunk { data, last };
            chain.request_body(request, &mut chunk)?;
            filtered.extend_from_slice(&chunk.data);
        }
        Ok(Some(filtered.into()))
    }

    /// Chooses where the body is sent from. A body that has arrived completely is kept until the response, so that it
    /// can be sent again.
    fn choose_source<'c>(&self, body: Option<&'c Bytes>, request: &Request<'_>) -> Source<'c> {
        match body {
            Some(body) => Source::Memory(body),
            None => {
                let mut body = Body::new(request.head.framing());
                match body.consume(&self.carry) {
                    Ok(length) if body.is_done() => Source::Carried(length),
                    _ => Source::Client,
                }
            }
        }
    }

    async fn try_target(
        &mut self,
        call: &Call<'_>,
        handling: &mut Handling<'_>,
        target: &Target,
        source: &mut Source<'_>,
    ) -> Result<(Exchanged, Option<Box<Collected>>), TryFailure> {
        let Handling { request, chain, .. } = handling;
        let request = &*request;
        let head = request.head;
        let host = host_for(call, head, target);
        let place = self.enter_gate(target).await;
        let place = place.map_err(TryFailure::Connect)?;
        let protocol = match target.http2 {
            // Over HTTP/2, a WebSocket would need an upstream that supports RFC 8441.
            Http2::Preferred if head.asks_for_websocket() => Http2::Never,
            protocol => protocol,
        };
        let settings = &self.plane.settings;
        let (tries, now) = (&mut self.tries, &mut self.now);
        let obtained = obtain(target, host, protocol, tries, settings, now).await;
        if let Some(memory) = chain.memory_mut() {
            let state = &mut memory.state;
            state.tried.extend(tries.address());
            if state.trace.records(Instrumentations::REQUEST) {
                let failed = obtained.as_ref().err();
                note_try(&mut state.trace, target, tries, failed, *now);
            }
        }
        let (mut upstream, reused) = obtained.map_err(TryFailure::Connect)?;
        if matches!(source, Source::Client) && self.send_continue(head).await.is_err() {
            return Err(TryFailure::of_client());
        }
        let tells_id = self.plane.settings.request_id_upstream;
        let filters_request = chain.has(Phases::REQUEST_BODY) && head.framing() != Framing::None;
        let terms = Terms {
            head,
            source: *source,
            read_timeout: target.read_timeout,
            write_timeout: target.write_timeout,
            read_ahead: if call.route.response_buffering {
                self.plane.settings.read_ahead
            } else {
                0
            },
            streams: !call.route.response_buffering || streams_by_nature(call.service, head),
            counts_upload: !call.route.request_buffering,
            request,
            filters_request,
            collects: call.collects,
            debug_headers: call.debug_headers.as_deref(),
            is_head: request.method_bytes() == b"HEAD",
            started: call.opening.started,
            contacted: self.tries.contacted(),
        };
        let write_head = |worker: &mut Worker| {
            let outbound = Outbound {
                head,
                method: request.method_bytes(),
                edits: &request.upstream.headers,
                path: request.upstream_path(),
                query: request.upstream_query(),
                host: host.text,
                body: match terms.source {
                    Source::Client if filters_request => BodyLength::Chunked,
                    Source::Memory(body) if request.upstream.body.is_some() => {
                        BodyLength::Set(body.len() as u64)
                    }
                    Source::Memory(body) => BodyLength::Read(body.len() as u64),
                    Source::Client | Source::Carried(_) => BodyLength::AsReceived,
                },
                hop: call.opening.hop(request.routed.stripped()),
                request_id: tells_id.then_some(request.request_id.as_bytes()),
            };
            worker.out.clear();
            write_request(&outbound, &mut worker.out);
        };
        let mut exchange = Exchange::new(self, &mut upstream, &terms, chain);
        let result = exchange.run(write_head).await;
        let (repeatable, told, passed) = (exchange.repeatable(), exchange.told(), exchange.passed);
        let (unsent, collected) = (exchange.unsent(), exchange.take_collected());
        drop(exchange);
        let exchanged = result.map_err(|failed| TryFailure::Exchange {
            failed,
            reused,
            repeatable,
            told,
            passed,
        })?;
        if exchanged.reusable && !upstream.stream.is_http2() {
            give_back(target, upstream, self.now);
        } else if exchanged.switched {
            let tunnel = Tunnel::new(upstream, unsent, target, place);
            self.tunnel = Some(Box::new(tunnel));
        }
        Ok((exchanged, collected))
    }

    fn end_exchange(&mut self, exchanged: Exchanged, source: &Source<'_>) -> Outcome {
        if let Source::Carried(length) = *source
            && length > 0
        {
            self.received += length as u64;
            worker::with(|worker| self.take_carried(worker, length));
        }
        if exchanged.whole {
            // What follows in `carry` is the next request.
            self.request_body = RequestBodyAt::Memory;
        }
        let after = match exchanged {
            Exchanged {
                keep_alive: true, ..
            } => After::Next,
            Exchanged { switched: true, .. } => After::Abort,
            Exchanged { whole: false, .. } => After::Linger,
            _ if self.carry.is_empty() => After::Close,
            _ => After::Linger,
        };
        self.tries.answered(exchanged.upstream_status, self.now);
        Outcome {
            status: exchanged.status,
            origin: Origin::Upstream,
            upstream_status: NonZeroU16::new(exchanged.upstream_status),
            reason: None,
            after,
            upstream: Some((exchanged.sent, exchanged.headed)),
            pieces: Vec::new(),
            whole: None,
        }
    }

    /// Responds to a request for which no usable target is left. `failed` is the reason of the last attempt's failure.
    fn refuse_without_peer(
        &mut self,
        failed: Option<Reason>,
        call: &Call<'_>,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        let reason = failed.unwrap_or(Reason::NoHealthyTarget);
        if !self.tries.made().is_empty() {
            let contacted = Some(self.tries.contacted());
            let error = ServerError::new(503, reason);
            return self.produce_error(error, contacted, call.opening, handling);
        }
        let response = Response::error(503, "failure to get a peer from the ring-balancer");
        self.produce(response, Origin::Gateway, reason, call.opening, handling)
    }

    /// Responds after the last failed attempt. This is the only place that turns failures into statuses.
    fn fail(
        &mut self,
        failure: TryFailure,
        call: &Call<'_>,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        self.report(&failure, call);
        let reason = failure.reason();
        let first = self.tries.made().is_empty();
        let error = match failure {
            TryFailure::Connect(ConnectError::Resolve(error)) => {
                let (status, message) = match error {
                    ResolveError::NotFound => (503, error.to_string()),
                    _ => (500, error.to_string()),
                };
                if first {
                    let response = Response::error(status, message);
                    return self.produce(response, Origin::Gateway, reason, call.opening, handling);
                }
                ServerError::new(status, reason)
            }
            TryFailure::Connect(ConnectError::Refused(_) | ConnectError::Handshake { .. }) => {
                ServerError::new(502, reason)
            }
            TryFailure::Connect(ConnectError::Timeout) => ServerError::new(504, reason),
            TryFailure::Connect(ConnectError::Busy) => ServerError::new(503, reason),
            TryFailure::Exchange { failed, told, .. } => match failed {
                Failed::Upstream(UpstreamFailure::Timeout) => ServerError::new(504, reason),
                Failed::Upstream(_) => ServerError::new(502, reason),
                Failed::ClientTimeout => ServerError::new(408, reason),
                Failed::ClientBody | Failed::ClientRequest => ServerError::new(400, reason),
                Failed::TooLarge => match self.refusal(&handling.chain) {
                    Some(refusal) => {
                        let origin = Origin::Plugin;
                        return self.produce(refusal, origin, reason, call.opening, handling);
                    }
                    None => ServerError::new(413, reason),
                },
                Failed::TooLargeToHold | Failed::Incomplete => ServerError::new(502, reason),
                Failed::RequestFilter if told.is_none() => {
                    return self.produce_unexpected(call.opening, handling);
                }
                Failed::Filter | Failed::RequestFilter => return self.broken_by_filter(),
                Failed::ClientGone | Failed::Broken => return self.gone(told, reason),
                Failed::BrokenUnnoticed => {
                    self.reset_on_close();
                    return self.gone(told, reason);
                }
            },
        };
        let contacted = Some(self.tries.contacted());
        self.produce_error(error, contacted, call.opening, handling)
    }

    /// Logs why the last try failed.
    fn report(&self, failure: &TryFailure, call: &Call<'_>) {
        let Some((text, cause)) = failure.text() else {
            return;
        };
        let cause = cause.map(tracing::field::display);
        let (service, route) = (call.service.as_ref(), call.route.as_ref());
        let upstream = self.tries.address().map(tracing::field::display);
        let request_id = call.opening.request_id();
        match failure.owner() {
            // Any client can cause this, so it is not worth a warning.
            Owner::Client => {
                tracing::debug!(cause, %service, %route, upstream, request_id, "{text}");
            }
            _ => tracing::warn!(cause, %service, %route, upstream, request_id, "{text}"),
        }
    }

    /// The outcome when nothing more can be sent to the client, which may have received a response head.
    pub(super) fn gone(&mut self, told: Option<ReportedStatus>, reason: Reason) -> Outcome {
        let tried = !self.tries.made().is_empty();
        Outcome {
            status: told.map_or(CLIENT_GONE, |told| told.status),
            origin: told.map_or(Origin::Gateway, |_| Origin::Upstream),
            upstream_status: told.and_then(|told| NonZeroU16::new(told.upstream)),
            reason: Some(reason),
            after: After::Abort,
            upstream: tried.then(|| (self.tries.contacted(), Instant::now())),
            pieces: Vec::new(),
            whole: None,
        }
    }
}

impl Call<'_> {
    /// The hash key of the request, if the load balancer uses one. If the key is in a new cookie, the response sets it.
    #[inline]
    fn pick_input(&mut self, handling: &Handling<'_>) -> PickInput {
        let hashing = match &self.redirect {
            None => self.service.hashing(),
            Some(redirect) if redirect.stays() => self.service.hashing(),
            Some(redirect) => redirect.upstream().and_then(|one| one.hashing.as_ref()),
        };
        match hashing {
            None => PickInput::default(),
            Some(hashing) => self.hash(hashing, handling),
        }
    }

    /// Picks the target for the next try.
    #[inline]
    fn pick(&self, input: PickInput, tried: &Tried, now: Instant) -> Result<Chosen<'_>, NoPeer> {
        let Some(redirect) = &self.redirect else {
            return self.service.pick(input, tried);
        };
        let edited = worker::with(|worker| redirect.pick(input, tried, &mut worker.places, now));
        edited.map(|edited| Chosen::Edited(Box::new(edited)))
    }

    /// Waits until the names of targets are resolved.
    #[cold]
    async fn resolve(&self) {
        match self.redirect.as_deref().and_then(Redirect::upstream) {
            Some(upstream) => upstream.resolve(self.service.connect_timeout()).await,
            None => self.service.resolve().await,
        }
    }

    #[cold]
    fn hash(&mut self, hashing: &Hashing, handling: &Handling<'_>) -> PickInput {
        let key = hashing.key(&Hashed(&handling.request, handling.chain.state()));
        if let Some(cookie) = key.set_cookie {
            let edits = self.debug_headers.get_or_insert_default();
            edits.add("Set-Cookie", cookie);
        }
        PickInput { key: key.hash }
    }
}

/// Whether bytes must be forwarded as they arrive: for WebSockets, for gRPC calls, and for all requests to a gRPC
/// service, including calls of the Connect protocol.
/// Source: kong/templates/nginx_kong.lua location @grpc.
pub(super) fn streams_by_nature(service: ServiceRef<'_>, head: &RequestHead) -> bool {
    head.asks_for_websocket()
        || Request::has_grpc_type(head)
        || matches!(service.protocol, Protocol::Grpc | Protocol::Grpcs)
}

/// nginx's status for a client that disconnected before its response. It appears only in logs.
pub(super) const CLIENT_GONE: u16 = 499;

fn host_for<'c>(call: &Call<'_>, head: &'c RequestHead, target: &'c Target) -> Name<'c> {
    let sets_host = call.redirect.as_deref().is_some_and(Redirect::sets_host);
    let preserved = if call.route.preserve_host && !sets_host {
        head.host_bytes()
    } else {
        None
    };
    Name {
        text: preserved.unwrap_or(target.authority.as_bytes()),
        is_of_client: preserved.is_some(),
    }
}

fn give_back(target: &Target, mut upstream: Box<pool::Connection>, now: Instant) {
    upstream.requests = upstream.requests.saturating_add(1);
    worker::with(|worker| worker.pool.give(&target.slot, upstream, now));
}
