//! Turns a routed request into a response: checks the protocol, reads the body if a plugin wants it, runs the access
//! phase, and contacts the upstream with as many attempts as the service allows.

use super::answer::{ALLOWED_METHODS, Produced, ServerError};
use super::connect::{ConnectError, Name, obtain};
use super::exchange::{Exchange, Exchanged, Source, Terms};
use super::failure::{Failed, Owner, ReportedStatus, TryFailure, UpstreamFailure};
use super::hashing::Hashed;
use super::opening::Opening;
use super::request_body::{BodyError, BodyShare};
use super::routing::Routed;
use super::tries::{Rules, Verdict, is_idempotent};
use super::tunnel::Tunnel;
use super::worker::{self, Worker};
use super::{After, Connection, Outcome};
use crate::balance::{self, Hashing, NoPeer, PickInput};
use crate::forward::{BodyLength, Outbound, write_request};
use crate::health;
use crate::plan::{Access, Instances, Picked, Plan, Walk};
use crate::snapshot::{RouteInfo, ServiceRef, Snapshot};
use crate::upstream::{Http2, Target};
use model::entities::Protocol;
use net::dns::ResolveError;
use net::http1::{Body, Framing, RequestHead};
use net::pool;
use plugin::{HeaderEdits, Origin, RequestBody, RequestCx, Response};
use tokio::time::Instant;

/// A request on its way to an upstream.
struct Call<'a> {
    about: Produced<'a>,
    route: &'a RouteInfo,
    service: ServiceRef<'a>,
    routed: &'a Routed,
    /// Extra response headers: debug headers and the cookie for consistent hashing. Boxed because they are rare and
    /// would enlarge the task of every connection.
    debug_headers: Option<Box<HeaderEdits>>,
}

impl Connection {
    pub(super) async fn dispatch(
        &mut self,
        snapshot: &Snapshot,
        opening: &Opening<'_>,
        routed: &Routed,
        cx: &mut RequestCx<'_>,
        picked: &mut Picked,
    ) -> Outcome {
        let Some(route) = routed.route(snapshot) else {
            snapshot.globals.pick_defaults(snapshot.instances(), picked);
            let response = match cx.head.target() {
                // The target `*` means the server as a whole (RFC 9110 section 9.3.7), which is the gateway.
                "*" => Response::new(204, "").with_header("Allow", ALLOWED_METHODS),
                _ if routed.is_too_costly => Response::error(400, router::TOO_COSTLY),
                _ => Response::error(404, "no Route matched with those values"),
            };
            return self.produce(
                response,
                Origin::Gateway,
                &about(snapshot, opening, cx, picked),
            );
        };
        if let Some(response) = self.check_protocol(route, opening, cx) {
            snapshot.globals.pick_defaults(snapshot.instances(), picked);
            return self.produce(
                response,
                Origin::Gateway,
                &about(snapshot, opening, cx, picked),
            );
        }
        if self.is_too_large(cx.head) {
            snapshot.globals.pick_defaults(snapshot.instances(), picked);
            let about = about(snapshot, opening, cx, picked);
            return self.refuse_body(BodyError::TooLarge, &about);
        }
        let ran = if route.plan.is_empty() {
            Ok((None, None))
        } else {
            let instances = snapshot.instances();
            self.run_access(&route.plan, instances, cx, picked).await
        };
        let (answer, share) = match ran {
            Ok(ran) => ran,
            Err(error) => return self.refuse_body(error, &about(snapshot, opening, cx, picked)),
        };
        if let Some(response) = answer {
            tracing::debug!(
                plugin = picked.answered_by(snapshot.instances()),
                status = response.status,
                request_id = cx.request_id,
                "a plugin answers the request"
            );
            let about = about(snapshot, opening, cx, picked);
            return self.produce(response, Origin::Plugin, &about);
        }
        let Some(service) = snapshot.service(route) else {
            let response = Response::error(503, "no Service found with those values");
            let about = about(snapshot, opening, cx, picked);
            return self.produce(response, Origin::Gateway, &about);
        };
        let _share = match self.await_body(route, service, cx, share).await {
            Ok(share) => share,
            Err(error) => return self.refuse_body(error, &about(snapshot, opening, cx, picked)),
        };
        let about = about(snapshot, opening, cx, picked);
        let call = Call {
            debug_headers: self
                .debug_headers(route, Some(service), about.cx)
                .map(Box::new),
            about,
            route,
            service,
            routed,
        };
        self.proxy(call).await
    }

    /// Whether the client announces a longer body than requests may have.
    fn is_too_large(&self, head: &RequestHead) -> bool {
        let most = self.plane.settings.max_body;
        matches!(head.framing(), Framing::Length(length) if most != 0 && length > most)
    }

    /// Runs the access phase. The body is read just before the first plugin that uses it. If an earlier plugin refuses
    /// the client, the body is not read.
    async fn run_access(
        &mut self,
        plan: &Plan,
        instances: &Instances,
        cx: &mut RequestCx<'_>,
        picked: &mut Picked,
    ) -> Result<(Option<Response>, Option<BodyShare>), BodyError> {
        let mut walk = Walk::new(picked);
        let mut share = None;
        while plan.access(instances, cx, &mut walk).await == Access::NeedsBody {
            // gRPC messages are forwarded as they arrive: the response may have to begin before they end.
            if !cx.is_grpc() {
                let (body, taken) = Box::pin(self.buffer_body(cx.head)).await?;
                cx.body = body;
                share = Some(taken);
            }
        }
        self.now = Instant::now();
        Ok((walk.into_answer(), share))
    }

    /// Reads the rest of the body if the route buffers requests, so that no upstream waits for a slow client. Usually
    /// nothing is left to read, because a small body arrives together with its head.
    async fn await_body(
        &mut self,
        route: &RouteInfo,
        service: ServiceRef<'_>,
        cx: &mut RequestCx<'_>,
        share: Option<BodyShare>,
    ) -> Result<Option<BodyShare>, BodyError> {
        let here = match cx.head.framing() {
            Framing::None => true,
            Framing::Length(length) => self.carry.len() as u64 >= length,
            Framing::Chunked | Framing::Close => false,
        };
        let whole = matches!(cx.body, RequestBody::Whole(_)) || cx.upstream.body.is_some();
        if here || whole || !route.request_buffering || streams_by_nature(service, cx) {
            return Ok(share);
        }
        let (body, share) = Box::pin(self.hold_body(cx.head, share)).await?;
        if let Some(body) = body {
            cx.body = RequestBody::Whole(body);
        }
        Ok(Some(share))
    }

    fn refuse_body(&mut self, error: BodyError, about: &Produced<'_>) -> Outcome {
        let status = match error {
            BodyError::Malformed => {
                let request_id = about.opening.request_id();
                tracing::debug!(request_id, "a request gets 400: malformed request body");
                400
            }
            BodyError::TooLarge => 413,
            BodyError::Timeout => 408,
            BodyError::Gone => return self.gone(None),
        };
        let mut outcome = self.produce_error(ServerError::from(status), None, about);
        outcome.after = After::Linger;
        outcome
    }

    /// Response headers that name the route and the service, if the request has `Kong-Debug`.
    fn debug_headers(
        &self,
        route: &RouteInfo,
        service: Option<ServiceRef<'_>>,
        cx: &RequestCx<'_>,
    ) -> Option<HeaderEdits> {
        if !self.plane.settings.debug_header {
            return None;
        }
        cx.head.header("kong-debug")?;
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

    /// Tries the service's targets until one responds or the failure does not allow a retry.
    async fn proxy(&mut self, mut call: Call<'_>) -> Outcome {
        let input = call.pick_input();
        let call = &call;
        let head = call.about.cx.head;
        let mut source = self.choose_source(call.about.cx);
        let (mut kept, mut failed_at) = (None, balance::Tried::default());
        let mut last_failure = None;
        loop {
            let chosen = match kept.take() {
                Some(same) => Ok(same),
                None => call.service.pick(input, &failed_at),
            };
            let chosen = match chosen {
                Err(NoPeer::Unresolved) => {
                    Box::pin(call.service.resolve()).await;
                    call.service.pick(input, &failed_at)
                }
                chosen => chosen,
            };
            let Ok(target) = chosen else {
                if let Some(failure) = &last_failure {
                    self.report(failure, call);
                }
                return self.refuse_without_peer(call);
            };
            self.tries.begin(self.now);
            let tried = self.try_target(call, &target, &mut source).await;
            let failure = match tried {
                Ok(exchanged) => {
                    target.report(health::Outcome::Status(exchanged.upstream_status));
                    if let Some(tunnel) = &mut self.tunnel {
                        tunnel.stay(target.into_stay());
                    }
                    return self.end_exchange(exchanged, &source);
                }
                Err(failure) => failure,
            };
            let rules = Rules {
                retries: target.retries,
                idempotent: is_idempotent(head.method_bytes()),
                streams: !call.route.request_buffering && head.framing() != Framing::None,
            };
            self.now = Instant::now();
            let verdict = self.tries.judge(&failure, rules, self.now);
            if verdict == Verdict::Same {
                kept = Some(target);
                continue;
            }
            if let Some(outcome) = failure.outcome() {
                target.report(outcome);
            }
            if verdict == Verdict::Final {
                return self.fail(failure, call);
            }
            target.avoid(&mut failed_at);
            last_failure = Some(failure);
        }
    }

    /// Chooses where the body is sent from. A body that has arrived completely is kept until the response, so that it
    /// can be sent again.
    fn choose_source<'c>(&self, cx: &'c RequestCx<'_>) -> Source<'c> {
        match (&cx.upstream.body, &cx.body) {
            (Some(body), _) | (None, RequestBody::Whole(body)) => Source::Memory(body),
            _ => {
                let mut body = Body::new(cx.head.framing());
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
        target: &Target,
        source: &mut Source<'_>,
    ) -> Result<Exchanged, TryFailure> {
        let cx = call.about.cx;
        let host = host_for(call, target);
        let place = self.enter_gate(target).await;
        let place = place.map_err(TryFailure::Connect)?;
        let protocol = match target.http2 {
            // Over HTTP/2, a WebSocket would need an upstream that supports RFC 8441.
            Http2::Preferred if cx.head.asks_for_websocket() => Http2::Never,
            protocol => protocol,
        };
        let settings = &self.plane.settings;
        let (tries, now) = (&mut self.tries, &mut self.now);
        let obtained = obtain(target, host, protocol, tries, settings, now).await;
        let (mut upstream, reused) = obtained.map_err(TryFailure::Connect)?;
        if matches!(source, Source::Client) && self.send_continue(cx.head).await.is_err() {
            return Err(TryFailure::of_client());
        }
        let tells_id = self.plane.settings.request_id_upstream;
        let terms = Terms {
            head: cx.head,
            source: *source,
            read_timeout: target.read_timeout,
            write_timeout: target.write_timeout,
            read_ahead: if call.route.response_buffering {
                self.plane.settings.read_ahead
            } else {
                0
            },
            streams: !call.route.response_buffering || streams_by_nature(call.service, cx),
            counts_upload: !call.route.request_buffering,
            cx,
            instances: call.about.snapshot.instances(),
            picked: call.about.picked,
            debug_headers: call.debug_headers.as_deref(),
            started: call.about.opening.started,
            contacted: self.tries.contacted(),
        };
        let write_head = |worker: &mut Worker| {
            let outbound = Outbound {
                head: cx.head,
                edits: &cx.upstream.headers,
                path: path_for(call.routed, cx),
                query: query_for(cx),
                host: host.text,
                body: match terms.source {
                    Source::Memory(body) => BodyLength::Known(body.len() as u64),
                    Source::Client | Source::Carried(_) => BodyLength::AsReceived,
                },
                hop: call.about.opening.hop(call.routed.stripped()),
                request_id: tells_id.then_some(cx.request_id.as_bytes()),
            };
            worker.out.clear();
            write_request(&outbound, &mut worker.out);
        };
        let mut exchange = Exchange::new(self, &mut upstream, &terms);
        let result = exchange.run(write_head).await;
        let (repeatable, told) = (exchange.repeatable(), exchange.told());
        let unsent = exchange.unsent();
        drop(exchange);
        let exchanged = result.map_err(|failed| TryFailure::Exchange {
            failed,
            reused,
            repeatable,
            told,
        })?;
        if exchanged.reusable && !upstream.stream.is_http2() {
            give_back(target, upstream, self.now);
        } else if exchanged.switched {
            let tunnel = Tunnel::new(upstream, unsent, target, place);
            self.tunnel = Some(Box::new(tunnel));
        }
        Ok(exchanged)
    }

    fn end_exchange(&mut self, exchanged: Exchanged, source: &Source<'_>) -> Outcome {
        if let Source::Carried(length) = *source
            && length > 0
        {
            self.received += length as u64;
            worker::with(|worker| self.take_carried(worker, length));
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
            upstream_status: Some(exchanged.upstream_status),
            after,
            upstream: Some((exchanged.sent, exchanged.headed)),
        }
    }

    /// Responds to a request for which no usable target is left.
    fn refuse_without_peer(&mut self, call: &Call<'_>) -> Outcome {
        if !self.tries.made().is_empty() {
            let contacted = Some(self.tries.contacted());
            return self.produce_error(ServerError::from(503), contacted, &call.about);
        }
        let response = Response::error(503, "failure to get a peer from the ring-balancer");
        self.produce(response, Origin::Gateway, &call.about)
    }

    /// Responds after the last failed attempt. This is the only place that turns failures into statuses.
    fn fail(&mut self, failure: TryFailure, call: &Call<'_>) -> Outcome {
        self.report(&failure, call);
        let first = self.tries.made().is_empty();
        let error = match failure {
            TryFailure::Connect(ConnectError::Resolve(error)) => {
                let (status, message) = match error {
                    ResolveError::NotFound => (503, error.to_string()),
                    _ => (500, error.to_string()),
                };
                if first {
                    let response = Response::error(status, message);
                    return self.produce(response, Origin::Gateway, &call.about);
                }
                ServerError::from(status)
            }
            TryFailure::Connect(ConnectError::Refused(_) | ConnectError::Handshake { .. }) => {
                ServerError::from(502)
            }
            TryFailure::Connect(ConnectError::Timeout) => ServerError::from(504),
            TryFailure::Connect(ConnectError::Busy) => ServerError::from(503),
            TryFailure::Exchange { failed, told, .. } => match failed {
                Failed::Upstream(UpstreamFailure::Timeout) => ServerError::from(504),
                Failed::Upstream(_) => ServerError::from(502),
                Failed::ClientTimeout => ServerError::from(408),
                Failed::ClientBody | Failed::ClientRequest => ServerError::from(400),
                Failed::TooLarge => ServerError::from(413),
                Failed::ClientGone | Failed::Broken => return self.gone(told),
                Failed::BrokenUnnoticed => {
                    self.reset_on_close();
                    return self.gone(told);
                }
            },
        };
        self.produce_error(error, Some(self.tries.contacted()), &call.about)
    }

    /// Logs why the last try failed.
    fn report(&self, failure: &TryFailure, call: &Call<'_>) {
        let Some((text, cause)) = failure.text() else {
            return;
        };
        let cause = cause.map(tracing::field::display);
        let (service, route) = (call.service.as_ref(), call.route.as_ref());
        let upstream = self.tries.address().map(tracing::field::display);
        let request_id = call.about.opening.request_id();
        match failure.owner() {
            // Any client can cause this, so it is not worth a warning.
            Owner::Client => {
                tracing::debug!(cause, %service, %route, upstream, request_id, "{text}");
            }
            _ => tracing::warn!(cause, %service, %route, upstream, request_id, "{text}"),
        }
    }

    /// The outcome when nothing more can be sent to the client, which may have received a response head.
    fn gone(&mut self, told: Option<ReportedStatus>) -> Outcome {
        let tried = !self.tries.made().is_empty();
        Outcome {
            status: told.map_or(CLIENT_GONE, |told| told.status),
            upstream_status: told.map(|told| told.upstream),
            after: After::Abort,
            upstream: tried.then(|| (self.tries.contacted(), Instant::now())),
        }
    }
}

impl Call<'_> {
    /// The hash key of the request, if the load balancer uses one. If the key is in a new cookie, the response sets it.
    #[inline]
    fn pick_input(&mut self) -> PickInput {
        match self.service.hashing() {
            None => PickInput::default(),
            Some(hashing) => self.hash(hashing),
        }
    }

    #[cold]
    fn hash(&mut self, hashing: &Hashing) -> PickInput {
        let key = hashing.key(&Hashed(self.about.cx));
        if let Some(cookie) = key.set_cookie {
            let edits = self.debug_headers.get_or_insert_default();
            edits.add("Set-Cookie", cookie);
        }
        PickInput { key: key.hash }
    }
}

fn about<'a>(
    snapshot: &'a Snapshot,
    opening: &'a Opening<'a>,
    cx: &'a RequestCx<'a>,
    picked: &'a Picked,
) -> Produced<'a> {
    Produced {
        snapshot,
        opening,
        cx,
        picked,
    }
}

/// Whether bytes must be forwarded as they arrive: for WebSockets, for gRPC calls, and for all requests to a gRPC
/// service, including calls of the Connect protocol.
/// Source: kong/templates/nginx_kong.lua location @grpc.
fn streams_by_nature(service: ServiceRef<'_>, cx: &RequestCx<'_>) -> bool {
    cx.head.asks_for_websocket()
        || cx.has_grpc_type()
        || matches!(service.protocol, Protocol::Grpc | Protocol::Grpcs)
}

/// nginx's status for a client that disconnected before its response. It appears only in logs.
const CLIENT_GONE: u16 = 499;

fn host_for<'c>(call: &'c Call<'_>, target: &'c Target) -> Name<'c> {
    let preserved = if call.route.preserve_host {
        call.about.cx.head.host_bytes()
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

/// The upstream path: a plugin's if one changed it, otherwise the route's.
fn path_for<'c>(routed: &'c Routed, cx: &'c RequestCx<'_>) -> &'c [u8] {
    match &cx.upstream.path {
        Some(path) => path.as_bytes(),
        None => routed.path(),
    }
}

/// The upstream query: a plugin's if one changed it, otherwise the client's. A lone `?` is kept.
fn query_for<'c>(cx: &'c RequestCx<'_>) -> Option<&'c [u8]> {
    match &cx.upstream.query {
        Some(query) => Some(query.as_bytes()).filter(|query| !query.is_empty()),
        None => cx.head.query_bytes(),
    }
}
