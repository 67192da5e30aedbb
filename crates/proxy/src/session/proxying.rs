//! From a routed request to its answer: protocol checks, the body where a plugin wants it, the access phase, and the
//! upstream, with as many tries as the service allows.

use super::answer::{Produced, ServerError, Tried};
use super::connect::{ConnectError, Freshness, obtain};
use super::exchange::{Exchange, Exchanged, Failed, Source, Terms, UpstreamFailure};
use super::opening::Opening;
use super::request_body::{BodyError, BodyShare};
use super::routing::Routed;
use super::worker::{self, Worker};
use super::{After, Connection, Outcome};
use crate::forward::{BodyLength, Outbound, write_request};
use crate::plan::Picked;
use crate::snapshot::{RouteInfo, ServiceInfo, Snapshot};
use crate::upstream::Target;
use net::http1::{Body, Framing};
use net::pool;
use net::resolve::ResolveError;
use plugin::{HeaderEdits, Origin, RequestBody, RequestCx, Response};
use tokio::time::Instant;

/// Everything about a request on its way to an upstream.
struct Call<'a> {
    about: Produced<'a>,
    route: &'a RouteInfo,
    service: &'a ServiceInfo,
    routed: &'a Routed,
    debug_headers: Option<HeaderEdits>,
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
            snapshot.globals.pick_defaults(&snapshot.instances, picked);
            let response = Response::error(404, "no Route matched with those values");
            return self.produce(
                response,
                Origin::Gateway,
                &about(snapshot, opening, cx, picked),
            );
        };
        if let Some(response) = self.check_protocol(route, opening, cx) {
            snapshot.globals.pick_defaults(&snapshot.instances, picked);
            return self.produce(
                response,
                Origin::Gateway,
                &about(snapshot, opening, cx, picked),
            );
        }
        let _share = match self.read_body(route, cx).await {
            Ok(share) => share,
            Err(error) => return self.refuse_body(error, &about(snapshot, opening, cx, picked)),
        };
        if !route.plan.is_empty() {
            let answer = route.plan.access(&snapshot.instances, cx, picked).await;
            self.now = Instant::now();
            if let Some(response) = answer {
                return self.produce(
                    response,
                    Origin::Plugin,
                    &about(snapshot, opening, cx, picked),
                );
            }
        } else {
            picked.clear();
        }
        let about = about(snapshot, opening, cx, picked);
        let Some(service) = snapshot.service(route) else {
            let response = Response::error(503, "no Service found with those values");
            return self.produce(response, Origin::Gateway, &about);
        };
        let call = Call {
            debug_headers: self.debug_headers(route, Some(service), about.cx),
            about,
            route,
            service,
            routed,
        };
        self.proxy(&call).await
    }

    /// Reads the body when a plugin looks at it. Also when it comes in chunks and the route buffers requests: upstreams
    /// that do not know chunks then get a length, as from Kong. Everything else streams: that an upstream never sees a
    /// slow client is what buffering was for, and connections are cheap here.
    async fn read_body(
        &mut self,
        route: &RouteInfo,
        cx: &mut RequestCx<'_>,
    ) -> Result<Option<BodyShare>, BodyError> {
        let framing = cx.head.framing();
        let most = self.plane.settings.max_body;
        if let Framing::Length(length) = framing
            && most != 0
            && length > most
        {
            return Err(BodyError::TooLarge);
        }
        let buffers = framing == Framing::Chunked && route.request_buffering;
        if !buffers && !route.plan.reads_body() {
            return Ok(None);
        }
        let (body, share) = Box::pin(self.buffer_body(cx.head)).await?;
        cx.body = body;
        Ok(Some(share))
    }

    fn refuse_body(&mut self, error: BodyError, about: &Produced<'_>) -> Outcome {
        let status = match error {
            BodyError::Malformed => 400,
            BodyError::TooLarge => 413,
            BodyError::Timeout => 408,
            BodyError::Gone => return gone(),
        };
        let mut outcome = self.produce_error(ServerError::from(status), None, about);
        outcome.after = After::Linger;
        outcome
    }

    /// `Kong-Debug` asks which route and service it was.
    fn debug_headers(
        &self,
        route: &RouteInfo,
        service: Option<&ServiceInfo>,
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

    /// Tries the service's targets until one answers, or what went wrong cannot be tried again.
    async fn proxy(&mut self, call: &Call<'_>) -> Outcome {
        let mut source = self.choose_source(call.about.cx);
        let mut tries = Tries::new(self.now);
        loop {
            let Some(target) = call.service.target() else {
                let response = Response::error(503, "failure to get a peer from the ring-balancer");
                return self.produce(response, Origin::Gateway, &call.about);
            };
            let tried = self.try_target(call, target, &mut source, &mut tries).await;
            let outcome = match tried {
                Ok(exchanged) => return self.end_exchange(exchanged, &source, &tries),
                Err(failure) if tries.again(&failure, target, call, &source) => continue,
                Err(failure) => self.fail(failure, &tries, call).await,
            };
            return outcome;
        }
    }

    /// A body that is all here stays until the answer is: then it can be sent again.
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
        tries: &mut Tries,
    ) -> Result<Exchanged, TryFailure> {
        let cx = call.about.cx;
        let host = host_for(call, target);
        tries.begin();
        let obtained = obtain(target, host, tries.freshness, &mut self.now).await;
        let (mut upstream, reused) = obtained.map_err(TryFailure::Connect)?;
        if matches!(source, Source::Client) && self.send_continue(cx.head).await.is_err() {
            return Err(TryFailure::of(Failed::ClientGone, false, true));
        }
        let tells_id = self.plane.settings.request_id_upstream;
        let terms = Terms {
            head: cx.head,
            source: *source,
            read_timeout: target.read_timeout,
            write_timeout: target.write_timeout,
            cx,
            instances: &call.about.snapshot.instances,
            picked: call.about.picked,
            debug_headers: call.debug_headers.as_ref(),
            started: call.about.opening.started,
        };
        let write_head = |worker: &mut Worker| {
            let outbound = Outbound {
                head: cx.head,
                edits: &cx.upstream.headers,
                path: path_for(call.routed, cx),
                query: query_for(cx),
                host,
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
        let untouched = exchange.untouched();
        drop(exchange);
        let exchanged = result.map_err(|failed| TryFailure::of(failed, reused, untouched))?;
        if exchanged.reusable {
            give_back(target, upstream, self.now);
        }
        Ok(exchanged)
    }

    fn end_exchange(
        &mut self,
        exchanged: Exchanged,
        source: &Source<'_>,
        tries: &Tries,
    ) -> Outcome {
        if let Source::Carried(length) = *source
            && length > 0
        {
            worker::with(|worker| self.take_carried(worker, length));
        }
        let after = match exchanged {
            Exchanged {
                keep_alive: true, ..
            } => After::Next,
            Exchanged { whole: false, .. } => After::Linger,
            _ if self.carry.is_empty() => After::Close,
            _ => After::Linger,
        };
        Outcome {
            status: exchanged.status,
            after,
            upstream: Some((tries.started, self.now)),
        }
    }

    /// The answer when all tries are used up. The only place that turns failures into statuses.
    async fn fail(&mut self, failure: TryFailure, tries: &Tries, call: &Call<'_>) -> Outcome {
        let upstream = Tried {
            upstream: Instant::now() - tries.started,
        };
        let error = match failure {
            TryFailure::Connect(ConnectError::Resolve(ResolveError::NotFound)) => {
                let response = Response::error(503, "name resolution failed");
                return self.produce(response, Origin::Gateway, &call.about);
            }
            TryFailure::Connect(ConnectError::Resolve(ResolveError::Failed)) => {
                let response = Response::error(500, "name server failed");
                return self.produce(response, Origin::Gateway, &call.about);
            }
            TryFailure::Connect(ConnectError::Refused(cause)) => {
                tracing::warn!(%cause, host = call.service_host(), "cannot connect to upstream");
                ServerError::from(502)
            }
            TryFailure::Connect(ConnectError::Timeout) => ServerError::from(504),
            TryFailure::Exchange { failed, .. } => match failed {
                Failed::Upstream(UpstreamFailure::Timeout) => ServerError::from(504),
                Failed::Upstream(_) => ServerError::from(502),
                Failed::ClientTimeout => ServerError::from(408),
                Failed::ClientBody => ServerError::from(400),
                Failed::TooLarge => ServerError::from(413),
                Failed::ClientGone => return gone(),
                Failed::Broken => return gone(),
                Failed::BrokenUnnoticed => {
                    self.reset_on_close();
                    return gone();
                }
            },
        };
        self.produce_error(error, Some(upstream), &call.about)
    }
}

impl Call<'_> {
    fn service_host(&self) -> Option<&str> {
        self.service.name.as_deref()
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

/// The web server's status for a client that did not wait; for the log only.
const CLIENT_GONE: u16 = 499;

fn gone() -> Outcome {
    Outcome {
        status: CLIENT_GONE,
        after: After::Abort,
        upstream: None,
    }
}

fn host_for<'c>(call: &'c Call<'_>, target: &'c Target) -> &'c [u8] {
    let preserved = match call.route.preserve_host {
        true => call.about.cx.head.host_bytes(),
        false => None,
    };
    preserved.unwrap_or(target.authority.as_bytes())
}

fn give_back(target: &Target, mut upstream: Box<pool::Connection>, now: Instant) {
    upstream.requests = upstream.requests.saturating_add(1);
    worker::with(|worker| worker.pool.give(&target.slot, upstream, now));
}

/// As routing made it, or as plugins changed it.
fn path_for<'c>(routed: &'c Routed, cx: &'c RequestCx<'_>) -> &'c [u8] {
    match &cx.upstream.path {
        Some(path) => path.as_bytes(),
        None => routed.path(),
    }
}

/// As it came, or as plugins changed it. A lone `?` stays.
fn query_for<'c>(cx: &'c RequestCx<'_>) -> Option<&'c [u8]> {
    match &cx.upstream.query {
        Some(query) => Some(query.as_bytes()).filter(|query| !query.is_empty()),
        None => cx.head.query_bytes(),
    }
}

/// Why a try came to nothing.
enum TryFailure {
    Connect(ConnectError),
    Exchange {
        failed: Failed,
        /// The connection had served before.
        reused: bool,
        /// Nothing was taken from the client that could not be sent again.
        untouched: bool,
    },
}

impl TryFailure {
    fn of(failed: Failed, reused: bool, untouched: bool) -> Self {
        Self::Exchange {
            failed,
            reused,
            untouched,
        }
    }
}

/// Counts tries, and decides about another.
struct Tries {
    started: Instant,
    failed: u32,
    freshness: Freshness,
}

impl Tries {
    fn new(now: Instant) -> Self {
        Self {
            started: now,
            failed: 0,
            freshness: Freshness::Any,
        }
    }

    fn begin(&mut self) {}

    /// Whether to try again: after failing to connect always, after sending only what may be sent twice, and only if it
    /// still can be. A dead idle connection costs no try, since it says nothing about the upstream.
    fn again(
        &mut self,
        failure: &TryFailure,
        target: &Target,
        call: &Call<'_>,
        source: &Source<'_>,
    ) -> bool {
        let repeatable = matches!(source, Source::Memory(_) | Source::Carried(_));
        match failure {
            TryFailure::Connect(ConnectError::Resolve(_)) => false,
            TryFailure::Connect(_) => self.count(target),
            TryFailure::Exchange {
                failed: Failed::Upstream(failure),
                reused,
                untouched,
            } => {
                let again =
                    (repeatable || *untouched) && is_idempotent(call.about.cx.head.method());
                match failure {
                    UpstreamFailure::Silent if again && *reused => {
                        self.freshness = Freshness::New;
                        true
                    }
                    UpstreamFailure::Silent | UpstreamFailure::Timeout => {
                        again && self.count(target)
                    }
                    UpstreamFailure::Nonsense => false,
                }
            }
            TryFailure::Exchange { .. } => false,
        }
    }

    fn count(&mut self, target: &Target) -> bool {
        self.failed += 1;
        self.failed <= u32::from(target.retries)
    }
}

/// As the web server under Kong sees it.
fn is_idempotent(method: &str) -> bool {
    !matches!(method, "POST" | "PATCH" | "LOCK")
}
