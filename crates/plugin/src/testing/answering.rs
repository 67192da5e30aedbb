//! The phases after the upstream has answered or failed, and those of responses that plugins and the gateway produce.

use super::call::{Script, Upstream};
use super::case::Running;
use super::outcome::{Headers, Logged, Received};
use super::run::{
    FilterFailed, Picked, REQUEST_ID, Ran, Walk, asked_too_often, configured, finish, redirected,
};
use crate::def::{Filtered, Flow, Phases, PluginError};
use crate::edits::HeaderEdits;
use crate::log::{Try, TryEnd};
use crate::request::{Request, RequestState};
use crate::response::{Answer, Chunk, Origin, Response, ResponseBody, ResponseCx};
use bytes::Bytes;
use net::http1::{Framing, ResponseHead};
use std::net::SocketAddr;
use std::time::Duration;

/// The response while the filters run over it.
struct Passing<'p> {
    upstream: Option<&'p ResponseHead>,
    /// The upstream's whole body, if it was read into memory.
    whole: Option<&'p Bytes>,
    answer: Answer,
    received: Received,
}

impl Walk<'_> {
    /// Runs the phases after the upstream's response, or failure.
    pub(super) async fn answer(
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
        if is_collected && upstream.breaks_off {
            let response = Response::status_error(502);
            return self.produce(request, response, Origin::Gateway, log);
        }
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
                Ok(Ran::Decided(Flow::InternalRedirect(_))) => {
                    self.fail(picked.at, "response", &redirected())
                }
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
    pub(super) fn produce(
        &mut self,
        request: &Request<'_>,
        response: Response,
        origin: Origin,
        log: &mut Logged,
    ) -> Received {
        let (status, counts_as_proxied) = (response.status, response.counts_as_proxied);
        let mut headers = HeaderEdits::new();
        let pieces = finished(response, &mut headers);
        let mut passing = Passing {
            upstream: None,
            whole: None,
            answer: Answer::new(origin, status, headers),
            received: Received {
                counts_as_proxied,
                ..Received::default()
            },
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
            early = early.into_before(head.header("content-type").is_some());
        }
        early.apply(std::mem::take(&mut passing.answer.headers));
        passing.answer.headers = early;
        let running = self.running;
        let mut replaced = None;
        for picked in self.with(Phases::HEADER_FILTER) {
            let instance = &running.instances[picked.at];
            let mut cx = passing.cx(request, &mut self.state, running, picked);
            let own = self.own.slot(instance.order);
            let before = cx.answer.status;
            let filtered = instance.handler.header_filter(&mut cx, own);
            let after = match &filtered {
                Ok(Filtered::Replace(response)) => response.status,
                _ => passing.answer.status,
            };
            let is_final = after == before || (200..=599).contains(&after);
            let filtered = filtered.and_then(|filtered| match is_final {
                true => Ok(filtered),
                false => Err(PluginError::not_final(after)),
            });
            match filtered {
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
        let breaks_off = upstream.is_some_and(|upstream| upstream.breaks_off);
        let end = (!breaks_off).then(|| (Bytes::new(), true));
        let running = self.running;
        for (data, last) in pieces.into_iter().map(|data| (data, false)).chain(end) {
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
        if breaks_off {
            Err(FilterFailed)
        } else {
            Ok(())
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

/// Returns the pieces of a response's body, and adds its headers to `headers`. Errors are JSON.
fn finished(response: Response, headers: &mut HeaderEdits) -> Vec<Bytes> {
    const JSON: &str = "application/json; charset=utf-8";
    let response = response.open();
    headers.apply(response.headers);
    match response.body {
        ResponseBody::Stored(stored) => stored.pieces(),
        ResponseBody::Bytes(body) | ResponseBody::Written(body) => vec![body],
        ResponseBody::Pieces(pieces) => pieces,
        ResponseBody::Json(body) => {
            if headers.value("content-type").is_none() {
                headers.set("Content-Type", JSON);
            }
            vec![body]
        }
        ResponseBody::Error(message) => {
            headers.set("Content-Type", JSON);
            let message = message.unwrap_or_else(|| message_of(response.status).into());
            let body =
                format!("{{\n  \"message\":\"{message}\",\n  \"request_id\":\"{REQUEST_ID}\"\n}}");
            vec![body.into()]
        }
        // Tests of plugins do not compare nginx's pages.
        ResponseBody::Page => vec![],
        ResponseBody::ServerError => {
            headers.set("Content-Type", "text/plain; charset=utf-8");
            let message = message_of(response.status);
            let body = format!("{message}\nrequest_id: {REQUEST_ID}\n");
            vec![body.into()]
        }
    }
}

/// Returns the message of an error. Only the one for plugins that fail is the real one.
fn message_of(status: u16) -> String {
    match status {
        500 => "An unexpected error occurred".to_owned(),
        _ => format!("status {status}"),
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
