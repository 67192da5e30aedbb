//! Runs a scripted request through the phases, in the order of `proxy::plugins::Chain` and of the sessions around it.

use super::call::Call;
use super::case::Running;
use super::outcome::{Failure, Headers, Logged, Outcome, Received, Sent};
use crate::body::RequestBody;
use crate::configured::{Configured, ConfiguredNames};
use crate::def::{Flow, Phases, PluginError, Step, Wait};
use crate::handler::OwnStates;
use crate::log::LogCx;
use crate::request::{Client, EntityRef, Request, RequestCx, RequestState, RoutedUri};
use crate::response::{Chunk, Origin, Response, ResponseBody};
use bytes::Bytes;
use model::entities::ConsumerId;
use net::http1::{Framing, RequestHead};
use std::future::poll_fn;
use std::task::Poll;

pub(super) const REQUEST_ID: &str = "0123456789abcdef0123456789abcdef";
/// The status in the log of a request whose client has left before there was a response.
const CLIENT_GONE: u16 = 499;

/// The plugins of one request: the instances chosen so far, and what they have found out.
pub(super) struct Walk<'c> {
    pub(super) running: &'c Running,
    pub(super) state: RequestState,
    pub(super) own: OwnStates,
    picked: Vec<Picked>,
    client_left: bool,
    /// What happens while the body of the request arrives.
    meanwhile: Option<Box<dyn FnOnce() + Send + 'c>>,
    failures: Vec<Failure>,
    pub(super) answered_by: Option<String>,
}

/// An instance that was chosen, by its position.
#[derive(Clone, Copy)]
pub(super) struct Picked {
    pub(super) at: usize,
    consumer: Option<ConsumerId>,
}

/// How the phases before the upstream have ended.
enum Ending {
    Forward,
    Responds(Response, Origin),
    ClientGone,
}

/// What a handler has decided, or that it was given up.
pub(super) enum Ran {
    Decided(Flow),
    ClientGone,
}

/// A body cannot be sent to its end, because a filter phase has failed or because it is not whole.
pub(super) struct FilterFailed;

pub(super) async fn run(mut call: Call<'_>) -> Outcome {
    let mut walk = Walk {
        running: call.case.running(),
        state: std::mem::take(&mut call.state),
        own: OwnStates::default(),
        picked: Vec::new(),
        client_left: call.client_left,
        meanwhile: call.meanwhile.take(),
        failures: Vec::new(),
        answered_by: None,
    };
    let head = call.head();
    let mut request = received(&call, &head);
    let body = readable_body(&request, &call);
    let mut ending = walk.rewrite(&mut request, &body).await;
    if let Ending::Forward = ending {
        route(&mut request, &call);
        ending = walk.access(&mut request, body).await;
    }
    let mut upstream = None;
    let mut log = Logged {
        status: CLIENT_GONE,
        origin: Origin::Gateway,
        upstream_status: None,
        started_at: call.started_at,
        latencies: call.latencies,
        tries: Vec::new(),
        request_size: 0,
        response_size: 0,
        response_head: Vec::new(),
        upstream_path: Vec::new(),
        upstream_body: None,
        reason: None,
    };
    let client = match ending {
        Ending::ClientGone => Received::default(),
        Ending::Responds(response, origin) => walk.produce(&request, response, origin, &mut log),
        Ending::Forward => match walk.send_body(&request, &call.body) {
            Err(FilterFailed) => {
                let response = Response::unexpected_error();
                walk.produce(&request, response, Origin::Plugin, &mut log)
            }
            Ok(body) => {
                upstream = Some(sent(&request, body));
                walk.answer(&request, &call.script, &mut log).await
            }
        },
    };
    log.request_size =
        (head.target_bytes().len() + request.body_bytes().map_or(0, Bytes::len)) as u64;
    log.response_size = (log.response_head.len() + client.body.len()) as u64;
    log.upstream_path = request.upstream_path().to_vec();
    walk.log(&request, &log);
    Outcome {
        upstream,
        client,
        state: walk.state,
        log,
        failures: walk.failures,
        answered_by: walk.answered_by,
    }
}

/// The request before its route is known.
fn received<'r>(call: &'r Call<'_>, head: &'r RequestHead) -> Request<'r> {
    let mut request = Request::bare(head);
    request.client = Client {
        ip: call.client.ip(),
        port: call.client.port(),
    };
    (request.peer, request.scheme) = (call.client, call.scheme);
    (request.http2, request.port) = (call.http2, call.port);
    request.is_grpc = call.http2 && Request::has_grpc_type(head);
    request.host = head.host_name().map_or("a.test", |(name, _)| name);
    request.request_id = REQUEST_ID;
    request.sni = call.sni.as_deref();
    request
}

/// Adds what routing has found.
fn route<'r>(request: &mut Request<'r>, call: &'r Call<'_>) {
    request.route = Some(reference(&call.route));
    request.service = call.service.as_ref().map(reference);
    request.slot = Some(&call.slot);
    request.captures = call.captures.clone();
    let path = call.routed_path.as_deref();
    let path = path.unwrap_or_else(|| request.head.path());
    request.routed = RoutedUri {
        path_length: path.len(),
        bytes: path.as_bytes().to_vec(),
        strips: false,
    };
}

/// The body as plugins get it when they ask for it.
fn readable_body(request: &Request<'_>, call: &Call<'_>) -> RequestBody {
    match (request.is_grpc, call.body_is_too_large) {
        (true, _) => RequestBody::Streamed,
        (_, true) => RequestBody::TooLarge,
        _ => RequestBody::Whole(call.body.concat().into()),
    }
}

fn reference((id, name): &(uuid::Uuid, Option<String>)) -> EntityRef<'_> {
    EntityRef {
        id: *id,
        name: name.as_deref(),
    }
}

fn sent(request: &Request<'_>, body: Bytes) -> Sent {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Sent {
        method: request.method().to_owned(),
        path: text(request.upstream_path()),
        query: request.upstream_query().map(text),
        headers: Headers::collect(request.header_pairs()).without_framing(),
        body,
        target: request.upstream.target.as_deref().cloned(),
    }
}

impl Walk<'_> {
    /// Runs the global instances before routing. What ends the request here ends it at once.
    async fn rewrite(&mut self, request: &mut Request<'_>, body: &RequestBody) -> Ending {
        let running = self.running;
        for at in running.globals() {
            let instance = &running.instances[at];
            if !instance.phases.intersects(Phases::REWRITE) {
                continue;
            }
            let picked = Picked { at, consumer: None };
            let cx = RequestCx {
                request,
                state: &mut self.state,
                configured: configured(running, picked),
                node: &running.node,
            };
            let step = instance.handler.rewrite(cx, self.own.slot(instance.order));
            let mut ran = finish(step, false).await;
            if let Ok(Ran::Decided(Flow::ReadBody)) = ran
                && matches!(request.body, RequestBody::Unread)
            {
                request.body = body.clone();
                let cx = RequestCx {
                    request,
                    state: &mut self.state,
                    configured: configured(running, picked),
                    node: &running.node,
                };
                let step = instance.handler.rewrite(cx, self.own.slot(instance.order));
                ran = finish(step, false).await;
            }
            let response = match ran {
                Ok(Ran::Decided(Flow::Continue) | Ran::ClientGone) => continue,
                Ok(Ran::Decided(Flow::Respond(response) | Flow::Exit(response))) => response,
                Ok(Ran::Decided(Flow::InternalRedirect(_))) => {
                    self.fail(at, "rewrite", &redirected())
                }
                Ok(Ran::Decided(Flow::ReadBody)) => self.fail(at, "rewrite", &asked_too_often()),
                Err(error) => self.fail(at, "rewrite", &error),
            };
            self.answered_by = Some(instance.def.name.to_string());
            self.picked.clear();
            for at in running.globals() {
                self.push(Picked { at, consumer: None });
            }
            return Ending::Responds(response, Origin::Gateway);
        }
        Ending::Forward
    }

    /// Chooses the instance of each plugin when its turn comes, and runs it until a plugin has ended the request.
    async fn access(&mut self, request: &mut Request<'_>, body: RequestBody) -> Ending {
        let running = self.running;
        self.begin_trace(request);
        let mut response = None;
        // A plugin that fails has not answered: the response counts as the gateway's.
        let mut origin = Origin::Plugin;
        for order in 0..running.plugins() {
            let consumer = self.state.consumer.clone();
            let Some(at) = running.pick(order, request, consumer.as_deref()) else {
                continue;
            };
            let instance = &running.instances[at];
            let picked = Picked {
                at,
                consumer: instance.scope.consumer,
            };
            self.push(picked);
            if response.is_some() || !instance.phases.intersects(Phases::ACCESS) {
                continue;
            }
            let mut ran = self.call_access(picked, request).await;
            if let Ok(Ran::Decided(Flow::ReadBody)) = ran
                && matches!(request.body, RequestBody::Unread)
            {
                if let Some(happen) = self.meanwhile.take() {
                    happen();
                }
                request.body = body.clone();
                ran = self.call_access(picked, request).await;
            }
            match ran {
                Ok(Ran::Decided(Flow::Continue)) => continue,
                Ok(Ran::Decided(Flow::Respond(given))) => {
                    if matches!(given.body, ResponseBody::Stored(_)) {
                        self.picked.retain(|other| other.at != at);
                    }
                    response = Some(given);
                }
                Ok(Ran::Decided(Flow::Exit(given))) => {
                    self.answered_by = Some(instance.def.name.to_string());
                    return Ending::Responds(given, Origin::Gateway);
                }
                Ok(Ran::Decided(Flow::InternalRedirect(_))) => {
                    origin = Origin::Gateway;
                    response = Some(self.fail(at, "access", &redirected()));
                }
                Ok(Ran::Decided(Flow::ReadBody)) => {
                    origin = Origin::Gateway;
                    response = Some(self.fail(at, "access", &asked_too_often()));
                }
                Ok(Ran::ClientGone) => return Ending::ClientGone,
                Err(error) => {
                    origin = Origin::Gateway;
                    response = Some(self.fail(at, "access", &error));
                }
            }
            self.answered_by = Some(instance.def.name.to_string());
        }
        match response {
            Some(response) => Ending::Responds(response, origin),
            None => match (&self.state.body_limit, &body) {
                (Some(limit), RequestBody::Whole(body)) if body.len() as u64 > limit.most => {
                    Ending::Responds(limit.refusal.clone(), Origin::Plugin)
                }
                _ => Ending::Forward,
            },
        }
    }

    /// Lets the first plugin that traces decide about the spans of the request, by its instance without a consumer.
    fn begin_trace(&mut self, request: &Request<'_>) {
        let running = self.running;
        for order in 0..running.plugins() {
            let Some(at) = running.pick(order, request, None) else {
                continue;
            };
            let instance = &running.instances[at];
            if instance.handler.traces() {
                let trace = &mut self.state.trace;
                instance.handler.begin_trace(request, trace, &running.node);
                break;
            }
        }
    }

    async fn call_access(
        &mut self,
        picked: Picked,
        request: &mut Request<'_>,
    ) -> Result<Ran, PluginError> {
        let running = self.running;
        let instance = &running.instances[picked.at];
        let cx = RequestCx {
            request,
            state: &mut self.state,
            configured: configured(running, picked),
            node: &running.node,
        };
        let step = instance.handler.access(cx, self.own.slot(instance.order));
        if let Ok(Step::Leave) = step {
            self.picked.retain(|other| other.at != picked.at);
        }
        finish(step, self.client_left).await
    }

    fn push(&mut self, picked: Picked) {
        let phases = self.running.instances[picked.at].phases;
        if phases.intersects(Phases::LATER) {
            self.picked.push(picked);
        }
    }

    pub(super) fn fail(&mut self, at: usize, phase: &'static str, error: &PluginError) -> Response {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        self.failures.push(Failure {
            plugin: self.running.instances[at].def.name.to_string(),
            phase,
            error: text,
        });
        match phase {
            // Kong does not catch errors in this phase, so nginx shows its page.
            "rewrite" => Response::server_error(500),
            _ => Response::unexpected_error(),
        }
    }

    pub(super) fn has(&self, phases: Phases) -> bool {
        let mut picked = self.picked.iter();
        picked.any(|picked| (self.running.instances[picked.at].phases).intersects(phases))
    }

    /// The picked instances with a phase.
    pub(super) fn with(&self, phase: Phases) -> Vec<Picked> {
        let has = |picked: &&Picked| self.running.instances[picked.at].phases.intersects(phase);
        self.picked.iter().filter(has).copied().collect()
    }

    /// Filters the request's body on its way to the upstream. The end is a call of its own.
    fn send_body(
        &mut self,
        request: &Request<'_>,
        pieces: &[Bytes],
    ) -> Result<Bytes, FilterFailed> {
        let pieces = match request.body_bytes() {
            Some(body) => std::slice::from_ref(body),
            None => pieces,
        };
        if !self.has(Phases::REQUEST_BODY) || request.head.framing() == Framing::None {
            return Ok(pieces.concat().into());
        }
        let ends = std::iter::once((Bytes::new(), true));
        let mut out = Vec::new();
        let pieces = pieces.iter().map(|data| (data.clone(), false));
        for (data, last) in pieces.chain(ends) {
            let mut chunk = Chunk { data, last };
            for picked in self.with(Phases::REQUEST_BODY) {
                let instance = &self.running.instances[picked.at];
                let own = self.own.slot(instance.order);
                let filtered = instance.handler.request_body(request, own, &mut chunk);
                if let Err(error) = filtered {
                    self.fail(picked.at, "request_body", &error);
                    return Err(FilterFailed);
                }
            }
            out.extend_from_slice(&chunk.data);
        }
        Ok(out.into())
    }

    fn log(&mut self, request: &Request<'_>, logged: &Logged) {
        let entry = logged.entry();
        for picked in self.with(Phases::LOG) {
            let instance = &self.running.instances[picked.at];
            let mut cx = LogCx {
                request,
                state: &mut self.state,
                configured: configured(self.running, picked),
                node: &self.running.node,
                entry: &entry,
            };
            let own = self.own.slot(instance.order);
            instance.handler.log(&mut cx, own);
        }
    }
}

pub(super) fn configured(running: &Running, picked: Picked) -> Configured<'_> {
    let instance = &running.instances[picked.at];
    let names: &dyn ConfiguredNames = running;
    Configured {
        scopes: instance.scopes(),
        consumer: picked.consumer,
        plugin: instance.order,
        names,
    }
}

/// Waits for the result of a handler. A wait that ends with the client ends at once if the client has left.
pub(super) async fn finish(
    step: Result<Step<'_>, PluginError>,
    client_left: bool,
) -> Result<Ran, PluginError> {
    let Wait {
        mut future,
        ends_with_client,
    } = match step? {
        Step::Continue | Step::Leave => return Ok(Ran::Decided(Flow::Continue)),
        Step::Respond(response) => return decided(Flow::Respond(response)),
        Step::Exit(response) => return decided(Flow::Exit(response)),
        Step::InternalRedirect(redirect) => {
            return Ok(Ran::Decided(Flow::InternalRedirect(redirect)));
        }
        Step::ReadBody => return Ok(Ran::Decided(Flow::ReadBody)),
        Step::Wait(wait) => wait,
    };
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(flow) => Poll::Ready(flow.and_then(decided)),
        Poll::Pending if ends_with_client && client_left => Poll::Ready(Ok(Ran::ClientGone)),
        Poll::Pending => Poll::Pending,
    })
    .await
}

fn decided(flow: Flow) -> Result<Ran, PluginError> {
    flow.with_final_status().map(Ran::Decided)
}

/// The harness has no routing, to which such a request would go back.
pub(super) fn redirected() -> PluginError {
    PluginError::new("it redirects the request")
}

pub(super) fn asked_too_often() -> PluginError {
    PluginError::new("it asks for the request's body where that cannot be read")
}
