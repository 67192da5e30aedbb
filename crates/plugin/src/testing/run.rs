//! Runs a scripted request through the phases, in the order of `proxy::plugins::Chain` and of the sessions around it.

use super::call::{Call, Script, Upstream};
use super::case::Running;
use super::outcome::{Failure, Headers, Logged, Outcome, Received, Sent};
use crate::body::RequestBody;
use crate::configured::{Configured, ConfiguredNames};
use crate::def::{Filtered, Flow, Phases, PluginError, Step, Wait};
use crate::edits::HeaderEdits;
use crate::handler::OwnStates;
use crate::log::{LogCx, Try, TryEnd};
use crate::request::{EntityRef, Request, RequestCx, RequestState, RoutedUri};
use crate::response::{Answer, Chunk, Origin, Response, ResponseBody, ResponseCx};
use bytes::Bytes;
use model::entities::ConsumerId;
use net::http1::{Framing, ResponseHead};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

const REQUEST_ID: &str = "0123456789abcdef0123456789abcdef";
/// The status in the log of a request whose client has left before there was a response.
const CLIENT_GONE: u16 = 499;

/// The plugins of one request: the instances chosen so far, and what they have found out.
struct Walk<'c> {
    running: &'c Running,
    state: RequestState,
    own: OwnStates,
    picked: Vec<Picked>,
    client_left: bool,
    failures: Vec<Failure>,
    answered_by: Option<String>,
}

/// An instance that was chosen, by its position.
#[derive(Clone, Copy)]
struct Picked {
    at: usize,
    consumer: Option<ConsumerId>,
}

/// How the phases before the upstream have ended.
enum Ending {
    Forward,
    Responds(Response, Origin),
    ClientGone,
}

/// What a handler has decided, or that it was given up.
enum Ran {
    Decided(Flow),
    ClientGone,
}

/// A filter phase has failed.
struct FilterFailed;

/// The response while the filters run over it.
struct Passing<'p> {
    upstream: Option<&'p ResponseHead>,
    /// The upstream's whole body, if it was read into memory.
    whole: Option<&'p Bytes>,
    answer: Answer,
    received: Received,
}

pub(super) async fn run(call: Call<'_>) -> Outcome {
    let head = call.head();
    let Call {
        case,
        body,
        client,
        scheme,
        http2,
        port,
        sni,
        route,
        service,
        captures,
        routed_path,
        state,
        script,
        client_left,
        body_is_too_large,
        started_at,
        latencies,
        ..
    } = call;
    let mut request = Request::bare(&head);
    (request.client.ip, request.client.port) = (client.ip(), client.port());
    (request.peer, request.scheme) = (client, scheme);
    (request.http2, request.port) = (http2, port);
    request.is_grpc = http2 && Request::has_grpc_type(&head);
    request.host = head.host_name().map_or("a.test", |(name, _)| name);
    request.request_id = REQUEST_ID;
    request.sni = sni.as_deref();
    let mut walk = Walk {
        running: case.running(),
        state,
        own: OwnStates::default(),
        picked: Vec::new(),
        client_left,
        failures: Vec::new(),
        answered_by: None,
    };
    let mut ending = walk.rewrite(&mut request).await;
    if let Ending::Forward = ending {
        request.route = Some(reference(&route));
        request.service = service.as_ref().map(reference);
        request.captures = captures;
        let path = routed_path.unwrap_or_else(|| head.path().to_owned());
        request.routed = RoutedUri {
            path_length: path.len(),
            bytes: path.into_bytes(),
            strips: false,
        };
        let whole: Vec<u8> = body.concat();
        let read = match (request.is_grpc, body_is_too_large) {
            (true, _) => RequestBody::Streamed,
            (_, true) => RequestBody::TooLarge,
            _ => RequestBody::Whole(whole.into()),
        };
        ending = walk.access(&mut request, read).await;
    }
    let mut upstream = None;
    let mut log = Logged {
        status: CLIENT_GONE,
        origin: Origin::Gateway,
        upstream_status: None,
        started_at,
        latencies,
        tries: Vec::new(),
        request_size: 0,
        response_size: 0,
        response_head: Vec::new(),
        upstream_path: Vec::new(),
        upstream_body: None,
    };
    let received = match ending {
        Ending::ClientGone => Received::default(),
        Ending::Responds(response, origin) => walk.produce(&request, response, origin, &mut log),
        Ending::Forward => match walk.send_body(&request, body) {
            Err(FilterFailed) => {
                let response = Response::unexpected_error();
                walk.produce(&request, response, Origin::Plugin, &mut log)
            }
            Ok(body) => {
                upstream = Some(sent(&request, body));
                walk.answer(&request, &script, &mut log).await
            }
        },
    };
    log.request_size = (head.target().len() + request.body_bytes().map_or(0, Bytes::len)) as u64;
    log.response_size = (log.response_head.len() + received.body.len()) as u64;
    log.upstream_path = request.upstream_path().to_vec();
    walk.log(&request, &log);
    Outcome {
        upstream,
        client: received,
        state: walk.state,
        log,
        failures: walk.failures,
        answered_by: walk.answered_by,
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
    async fn rewrite(&mut self, request: &mut Request<'_>) -> Ending {
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
            let response = match finish(step, false).await {
                Ok(Ran::Decided(Flow::Continue) | Ran::ClientGone) => continue,
                Ok(Ran::Decided(Flow::Respond(response) | Flow::Exit(response))) => response,
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
        let mut response = None;
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
                request.body = body.clone();
                ran = self.call_access(picked, request).await;
            }
            match ran {
                Ok(Ran::Decided(Flow::Continue)) => continue,
                Ok(Ran::Decided(Flow::Respond(given))) => response = Some(given),
                Ok(Ran::Decided(Flow::Exit(given))) => {
                    self.answered_by = Some(instance.def.name.to_string());
                    return Ending::Responds(given, Origin::Gateway);
                }
                Ok(Ran::Decided(Flow::ReadBody)) => {
                    response = Some(self.fail(at, "access", &asked_too_often()));
                }
                Ok(Ran::ClientGone) => return Ending::ClientGone,
                Err(error) => response = Some(self.fail(at, "access", &error)),
            }
            self.answered_by = Some(instance.def.name.to_string());
        }
        match response {
            Some(response) => Ending::Responds(response, Origin::Plugin),
            None => Ending::Forward,
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
        finish(step, self.client_left).await
    }

    fn push(&mut self, picked: Picked) {
        let phases = self.running.instances[picked.at].phases;
        if phases.intersects(Phases::LATER) {
            self.picked.push(picked);
        }
    }

    fn fail(&mut self, at: usize, phase: &'static str, error: &PluginError) -> Response {
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
        Response::unexpected_error()
    }

    fn has(&self, phases: Phases) -> bool {
        let mut picked = self.picked.iter();
        picked.any(|picked| (self.running.instances[picked.at].phases).intersects(phases))
    }

    /// The picked instances with a phase.
    fn with(&self, phase: Phases) -> Vec<Picked> {
        let has = |picked: &&Picked| self.running.instances[picked.at].phases.intersects(phase);
        self.picked.iter().filter(has).copied().collect()
    }

    /// Filters the request's body on its way to the upstream. The end is a call of its own.
    fn send_body(
        &mut self,
        request: &Request<'_>,
        pieces: Vec<Bytes>,
    ) -> Result<Bytes, FilterFailed> {
        let pieces = match request.body_bytes() {
            Some(body) => vec![body.clone()],
            None => pieces,
        };
        if !self.has(Phases::REQUEST_BODY) || request.head.framing() == Framing::None {
            return Ok(pieces.concat().into());
        }
        let ends = std::iter::once((Bytes::new(), true));
        let mut out = Vec::new();
        for (data, last) in pieces.into_iter().map(|data| (data, false)).chain(ends) {
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

    /// Runs the phases after the upstream's response, or failure.
    async fn answer(
        &mut self,
        request: &Request<'_>,
        script: &Script,
        log: &mut Logged,
    ) -> Received {
        let upstream = match script {
            Script::Answers(upstream) => upstream,
            Script::Fails(status) => {
                log.tries.push(attempt(TryEnd::Failed(*status)));
                let response = Response::status_error(*status);
                return self.produce(request, response, Origin::Gateway, log);
            }
        };
        let head = upstream.head(request.head.method_bytes() == b"HEAD");
        log.tries.push(attempt(TryEnd::Answered(head.status())));
        log.upstream_status = Some(head.status());
        let collects = self.has(Phases::RESPONSE) || request.upstream.buffer_response;
        let is_collected = collects && !request.is_grpc && head.status() != 101;
        let whole = is_collected.then(|| Bytes::from(upstream.pieces.concat()));
        log.upstream_body = whole.clone();
        let mut passing = Passing {
            upstream: Some(&head),
            whole: whole.as_ref(),
            answer: Answer::new(Origin::Upstream, head.status(), HeaderEdits::new()),
            received: Received::default(),
        };
        if is_collected {
            passing.take_trailers(upstream);
            if let Some(response) = self.respond(request, &mut passing).await {
                return self.produce(request, response, Origin::Plugin, log);
            }
        }
        let passed = self.forward(request, upstream, &mut passing);
        passing.finish(passed, log)
    }

    /// Runs the `response` phase. Returns the response that replaces the upstream's.
    async fn respond(
        &mut self,
        request: &Request<'_>,
        passing: &mut Passing<'_>,
    ) -> Option<Response> {
        let running = self.running;
        for picked in self.with(Phases::RESPONSE) {
            let instance = &running.instances[picked.at];
            let cx = passing.cx(request, &mut self.state, running, picked);
            let step = instance.handler.response(cx, self.own.slot(instance.order));
            let response = match finish(step, false).await {
                Ok(Ran::Decided(Flow::Continue) | Ran::ClientGone) => continue,
                Ok(Ran::Decided(Flow::Respond(response) | Flow::Exit(response))) => response,
                Ok(Ran::Decided(Flow::ReadBody)) => {
                    self.fail(picked.at, "response", &asked_too_often())
                }
                Err(error) => self.fail(picked.at, "response", &error),
            };
            self.answered_by = Some(instance.def.name.to_string());
            return Some(response);
        }
        None
    }

    /// Filters the response of an upstream.
    fn forward(
        &mut self,
        request: &Request<'_>,
        upstream: &Upstream,
        passing: &mut Passing<'_>,
    ) -> Result<(), FilterFailed> {
        let replaced = self.header_filter(request, passing)?;
        let is_head = request.head.method_bytes() == b"HEAD";
        let is_bodiless = is_head || matches!(passing.answer.status, 101 | 204 | 304);
        if let Some(response) = replaced {
            let pieces = finished(response, &mut passing.answer.headers);
            if !is_bodiless {
                self.body_filter(request, passing, pieces, None)?;
            }
            passing.received.length = Some(passing.length());
            return Ok(());
        }
        let framing = passing.upstream.map(ResponseHead::framing);
        let stated = passing.answer.headers.value("content-length");
        let stated = stated.and_then(|length| std::str::from_utf8(length).ok()?.parse().ok());
        let declared = match framing {
            Some(Framing::Length(length)) if !passing.answer.headers.drops("content-length") => {
                Some(length)
            }
            _ => None,
        };
        passing.received.length = stated.or(declared);
        if is_bodiless {
            return Ok(());
        }
        let pieces = match passing.whole {
            Some(whole) => vec![whole.clone()],
            None => upstream.pieces.clone(),
        };
        self.body_filter(request, passing, pieces, Some(upstream))?;
        match passing.received.length {
            Some(length) if length != passing.length() => Err(FilterFailed),
            _ => Ok(()),
        }
    }

    /// Runs the filter phases over a response of a plugin or of the gateway.
    fn produce(
        &mut self,
        request: &Request<'_>,
        response: Response,
        origin: Origin,
        log: &mut Logged,
    ) -> Received {
        let status = response.status;
        let mut headers = HeaderEdits::new();
        let pieces = finished(response, &mut headers);
        let mut passing = Passing {
            upstream: None,
            whole: None,
            answer: Answer::new(origin, status, headers),
            received: Received::default(),
        };
        let passed = self.produce_filtered(request, pieces, &mut passing);
        passing.finish(passed, log)
    }

    fn produce_filtered(
        &mut self,
        request: &Request<'_>,
        mut pieces: Vec<Bytes>,
        passing: &mut Passing<'_>,
    ) -> Result<(), FilterFailed> {
        if let Some(response) = self.header_filter(request, passing)? {
            pieces = finished(response, &mut passing.answer.headers);
        }
        let is_head = request.head.method_bytes() == b"HEAD";
        if !is_head && !matches!(passing.answer.status, 101 | 204 | 304) {
            self.body_filter(request, passing, pieces, None)?;
        }
        passing.received.length = Some(passing.length());
        Ok(())
    }

    /// Filters a head, after adding the headers that were set before there was a response. Returns the response that a
    /// filter has put in place of this one.
    fn header_filter(
        &mut self,
        request: &Request<'_>,
        passing: &mut Passing<'_>,
    ) -> Result<Option<Response>, FilterFailed> {
        let mut early = std::mem::take(&mut self.state.headers);
        if let Some(head) = passing.upstream {
            early = early.into_before(|name| {
                name.eq_ignore_ascii_case("content-type") && head.header(name).is_some()
            });
        }
        early.apply(std::mem::take(&mut passing.answer.headers));
        passing.answer.headers = early;
        let running = self.running;
        let mut replaced = None;
        for picked in self.with(Phases::HEADER_FILTER) {
            let instance = &running.instances[picked.at];
            let mut cx = passing.cx(request, &mut self.state, running, picked);
            let own = self.own.slot(instance.order);
            match instance.handler.header_filter(&mut cx, own) {
                Ok(Filtered::Continue) => {}
                Ok(Filtered::Replace(mut response)) => {
                    passing.answer.status = response.status;
                    let headers = std::mem::take(&mut response.headers);
                    passing.answer.headers.apply(headers);
                    replaced = Some(response);
                }
                Err(error) => {
                    self.fail(picked.at, "header_filter", &error);
                    return Err(FilterFailed);
                }
            }
        }
        Ok(replaced)
    }

    /// Filters a body in pieces, and its end in a call of its own. `upstream` has the trailers, which are known then.
    fn body_filter(
        &mut self,
        request: &Request<'_>,
        passing: &mut Passing<'_>,
        pieces: Vec<Bytes>,
        upstream: Option<&Upstream>,
    ) -> Result<(), FilterFailed> {
        let ends = std::iter::once((Bytes::new(), true));
        let running = self.running;
        for (data, last) in pieces.into_iter().map(|data| (data, false)).chain(ends) {
            if let (true, Some(upstream)) = (last, upstream) {
                passing.take_trailers(upstream);
            }
            let mut chunk = Chunk { data, last };
            for picked in self.with(Phases::BODY_FILTER) {
                let instance = &running.instances[picked.at];
                let mut cx = passing.cx(request, &mut self.state, running, picked);
                let own = self.own.slot(instance.order);
                if let Err(error) = instance.handler.body_filter(&mut cx, own, &mut chunk) {
                    self.fail(picked.at, "body_filter", &error);
                    return Err(FilterFailed);
                }
            }
            if !chunk.data.is_empty() {
                passing.received.pieces.push(chunk.data);
            }
        }
        Ok(())
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

impl<'p> Passing<'p> {
    fn cx<'c, 'r>(
        &'c mut self,
        request: &'c Request<'r>,
        state: &'c mut RequestState,
        running: &'c Running,
        picked: Picked,
    ) -> ResponseCx<'c, 'r> {
        ResponseCx {
            request,
            state,
            configured: configured(running, picked),
            node: &running.node,
            upstream: self.upstream,
            upstream_body: self.whole,
            answer: &mut self.answer,
        }
    }

    fn take_trailers(&mut self, upstream: &Upstream) {
        let trailers = upstream.trailers.iter();
        let trailers = trailers.map(|(name, value)| (name.as_str().into(), value.as_str().into()));
        self.answer.trailers = trailers.collect();
    }

    /// The length of the body that was sent.
    fn length(&self) -> u64 {
        let pieces = self.received.pieces.iter();
        pieces.map(|piece| piece.len() as u64).sum()
    }

    /// Ends the response, and writes down what the log phase sees of it.
    fn finish(mut self, passed: Result<(), FilterFailed>, log: &mut Logged) -> Received {
        let Answer {
            origin,
            status,
            headers,
            trailers,
        } = self.answer;
        let received = &mut self.received;
        received.is_cut = passed.is_err();
        // The head is sent with the first piece, and a response in memory is sent after all filters.
        let is_in_memory = self.upstream.is_none() || self.whole.is_some();
        if received.is_cut && (is_in_memory || received.pieces.is_empty()) {
            (log.status, log.origin, log.upstream_status) = (500, Origin::Gateway, None);
            return Received {
                is_cut: true,
                ..Received::default()
            };
        }
        received.status = status;
        received.headers = lines(self.upstream, &headers).without_framing();
        received.body = received.pieces.concat().into();
        let trailers = trailers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        // Only a body in chunks can have trailers.
        if received.length.is_none() && passed.is_ok() {
            received.trailers = Headers::collect(trailers);
        }
        let mut head = format!("HTTP/1.1 {status} \r\n");
        for (name, value) in &received.headers.0 {
            head += &format!("{name}: {value}\r\n");
        }
        log.response_head = (head + "\r\n").into_bytes();
        (log.status, log.origin) = (status, origin);
        self.received
    }
}

/// The header lines of a response after changes: the lines before the upstream's own, those that are kept, and the added
/// ones.
fn lines(upstream: Option<&ResponseHead>, edits: &HeaderEdits) -> Headers {
    let kept = upstream.into_iter().flat_map(ResponseHead::headers);
    let kept = kept.filter(|(name, _)| !edits.drops(name));
    Headers::collect(edits.before().chain(kept).chain(edits.added()))
}

fn configured(running: &Running, picked: Picked) -> Configured<'_> {
    let instance = &running.instances[picked.at];
    let names: &dyn ConfiguredNames = running;
    Configured {
        scopes: instance.scopes(),
        consumer: picked.consumer,
        plugin: instance.order,
        names,
    }
}

/// Returns the pieces of a response's body, and adds its headers to `headers`. Errors are JSON.
fn finished(response: Response, headers: &mut HeaderEdits) -> Vec<Bytes> {
    const JSON: &str = "application/json; charset=utf-8";
    headers.apply(response.headers);
    match response.body {
        ResponseBody::Bytes(body) => vec![body],
        ResponseBody::Pieces(pieces) => pieces,
        ResponseBody::Json(body) => {
            if headers.value("content-type").is_none() {
                headers.set("Content-Type", JSON);
            }
            vec![body]
        }
        ResponseBody::Error(message) => {
            headers.set("Content-Type", JSON);
            let message = message.unwrap_or_else(|| format!("status {}", response.status).into());
            let body =
                format!("{{\n  \"message\":\"{message}\",\n  \"request_id\":\"{REQUEST_ID}\"\n}}");
            vec![body.into()]
        }
        ResponseBody::ServerError => {
            headers.set("Content-Type", "text/plain; charset=utf-8");
            let body = format!("status {}\nrequest_id: {REQUEST_ID}\n", response.status);
            vec![body.into()]
        }
    }
}

fn attempt(end: TryEnd) -> Try {
    Try {
        address: Some(SocketAddr::from(([127, 0, 0, 1], 9000))),
        after: Duration::from_millis(1),
        choosing: Duration::ZERO,
        took: Duration::from_millis(7),
        end,
    }
}

/// Waits for the result of a handler. A wait that ends with the client ends at once if the client has left.
async fn finish(
    step: Result<Step<'_>, PluginError>,
    client_left: bool,
) -> Result<Ran, PluginError> {
    let Wait {
        mut future,
        ends_with_client,
    } = match step? {
        Step::Continue => return Ok(Ran::Decided(Flow::Continue)),
        Step::Respond(response) => return Ok(Ran::Decided(Flow::Respond(response))),
        Step::Exit(response) => return Ok(Ran::Decided(Flow::Exit(response))),
        Step::ReadBody => return Ok(Ran::Decided(Flow::ReadBody)),
        Step::Wait(wait) => wait,
    };
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(flow) => Poll::Ready(flow.map(Ran::Decided)),
        Poll::Pending if ends_with_client && client_left => Poll::Ready(Ok(Ran::ClientGone)),
        Poll::Pending => Poll::Pending,
    })
    .await
}

fn asked_too_often() -> PluginError {
    PluginError::new("it asks for the request's body where that cannot be read")
}
