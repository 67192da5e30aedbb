//! Sends responses that the gateway or a plugin produces. They pass the filters of the selected plugins first.

use super::form;
use super::handling::Handling;
use super::log_entries::version_of;
use super::opening::Opening;
use super::receive::NoRequest;
use super::worker;
use super::{After, Connection, Outcome, RequestBodyAt};
use crate::plugins::{Ended, FilterFailed};
use crate::respond::status::is_bodiless;
use crate::respond::{Facts, GatewayResponse, Latency, ResponseSettings, inject, page};
use net::http1::{BadRequest, Body, RequestHead, Version};
use net::tls::PLAIN_HTTP_PAGE;
use plugin::{Answer, HeaderEdits, InternalRedirect, Origin, Phases, Reason, Response};
use std::ops::Range;
use std::time::Duration;
use tokio::time::Instant;

/// An error that Kong handles in nginx's `error_page`, in contrast to an error of a plugin.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerError {
    pub(super) status: u16,
    /// Message of the error; `None` for the status's usual message.
    pub(super) message: Option<&'static str>,
    pub(super) reason: Reason,
}

impl ServerError {
    pub(super) fn new(status: u16, reason: Reason) -> Self {
        Self {
            status,
            message: None,
            reason,
        }
    }
}

/// Whether a plugin's response with this status closes the connection without a response, as in nginx.
fn closes(status: u16) -> bool {
    matches!(status, 100..=199 | 408 | 444 | 499)
}

/// How long the upstream took for a response that the gateway sends itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum Took {
    /// No upstream was contacted.
    Nothing,
    /// The response counts as one of the upstream's, for instance that of a cache.
    Proxied,
    /// The last upstream was contacted at this time.
    Tried(Instant),
}

impl Connection {
    /// Sends the response of a plugin that has ended the request.
    pub(super) fn answer_plugin(
        &mut self,
        ended: Ended,
        opening: &Opening<'_>,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        let (response, at_once) = match ended {
            Ended::Answered { response, at_once } => (response, at_once),
            Ended::Redirected(redirect) => return self.redirect(redirect, opening, handling),
        };
        tracing::debug!(
            plugin = handling.chain.answered_by(),
            status = response.status,
            request_id = opening.request_id(),
            "a plugin answers the request"
        );
        let reason = handling.chain.reason();
        if closes(response.status) {
            return Outcome {
                status: response.status,
                reason: Some(reason),
                ..self.broken_by_filter()
            };
        }
        let origin = if at_once {
            Origin::Gateway
        } else {
            Origin::Plugin
        };
        self.produce(response, origin, reason, opening, handling)
    }

    /// Makes the request begin anew.
    #[cold]
    fn redirect(
        &mut self,
        redirect: InternalRedirect,
        opening: &Opening<'_>,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        if handling.restart(redirect) {
            return self.gone(None, Reason::Internal);
        }
        let request_id = opening.request_id();
        tracing::error!(
            request_id,
            "plugins redirect the request within the gateway too often"
        );
        let error = ServerError::new(500, Reason::PluginFailed);
        self.produce_error(error, None, opening, handling)
    }

    /// Sends a response of a plugin or of the gateway.
    pub(super) fn produce(
        &mut self,
        response: Response,
        origin: Origin,
        reason: Reason,
        opening: &Opening<'_>,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        let request = &handling.request;
        let settings = &self.plane.settings.respond;
        let id = opening.request_id();
        let proxied = response.counts_as_proxied;
        let answer = if request.is_grpc {
            GatewayResponse::to_grpc(response, Some(request.head), id, settings)
        } else {
            GatewayResponse::new(response, Some(request.head), id, settings)
        };
        let took = if proxied {
            Took::Proxied
        } else {
            Took::Nothing
        };
        self.send_produced(answer, (origin, reason), took, opening, handling)
    }

    /// Responds to a request for which a plugin has failed.
    pub(super) fn produce_unexpected(
        &mut self,
        opening: &Opening<'_>,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        let (response, reason) = (Response::unexpected_error(), Reason::PluginFailed);
        self.produce(response, Origin::Plugin, reason, opening, handling)
    }

    /// Sends the response of a plugin that replaces an upstream's.
    pub(super) fn produce_after(
        &mut self,
        response: Response,
        took: Took,
        opening: &Opening<'_>,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        let settings = &self.plane.settings.respond;
        let head = Some(handling.request.head);
        let answer = GatewayResponse::new(response, head, opening.request_id(), settings);
        let from = (Origin::Plugin, handling.chain.reason());
        self.send_produced(answer, from, took, opening, handling)
    }

    /// Responds to a request that failed before or at the upstream. `contacted` is when the last upstream was
    /// contacted, if one was.
    pub(super) fn produce_error(
        &mut self,
        error: ServerError,
        contacted: Option<Instant>,
        opening: &Opening<'_>,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        let settings = &self.plane.settings.respond;
        let id = opening.request_id();
        let ServerError {
            status,
            message,
            reason,
        } = error;
        let head = handling.request.head;
        let answer = GatewayResponse::server_error(status, message, Some(head), id, settings);
        let took = contacted.map_or(Took::Nothing, Took::Tried);
        self.send_produced(answer, (Origin::Gateway, reason), took, opening, handling)
    }

    pub(super) fn send_produced(
        &mut self,
        mut answer: GatewayResponse,
        (origin, reason): (Origin, Reason),
        took: Took,
        opening: &Opening<'_>,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        if !handling.chain.leaves_responses()
            && filter(&mut answer, origin, handling, &self.plane.settings.respond).is_err()
        {
            return self.broken_by_filter();
        }
        let head = handling.request.head;
        if answer.chunked {
            answer.chunked = head.version() == Version::Http11
                && !form::is_bodiless(&handling.request, answer.status);
            if answer.chunked {
                answer.frame();
            }
        }
        self.now = Instant::now();
        let total = self.now - opening.started;
        let after = match answer.status {
            // A 1xx status is not final: the client would treat the next response as the final one of this request.
            100..=199 => After::Linger,
            _ => self.after_answer(head),
        };
        let facts = FactsOf {
            request_id: opening.request_id(),
            latency: match took {
                Took::Nothing => Latency::Produced {
                    total: milliseconds(total),
                },
                Took::Proxied => Latency::Tried {
                    upstream: 0,
                    proxy: milliseconds(total),
                },
                Took::Tried(contacted) => Latency::Tried {
                    upstream: milliseconds(self.now - contacted),
                    proxy: milliseconds(contacted - opening.started),
                },
            },
            keep_alive: after == After::Next,
            head_only: head.method_bytes() == b"HEAD",
        };
        self.write_answer(&answer, &facts, |written, date| {
            handling.chain.keep_head(written, date);
        });
        let sends_body = !facts.head_only && !is_bodiless(answer.status);
        Outcome {
            status: answer.status,
            origin,
            upstream_status: None,
            reason: Some(reason),
            after,
            upstream: match took {
                Took::Tried(contacted) => Some((contacted, self.now)),
                // A cached response waits for no upstream, and logs show that as zero milliseconds.
                Took::Proxied => Some((self.now, self.now)),
                Took::Nothing => None,
            },
            pieces: if sends_body { answer.more } else { Vec::new() },
            whole: None,
        }
    }

    /// The outcome after a filter phase that failed. The client gets nothing more, as in Kong.
    pub(super) fn broken_by_filter(&self) -> Outcome {
        self.reset_on_close();
        Outcome {
            status: 500,
            origin: Origin::Gateway,
            upstream_status: None,
            reason: Some(Reason::PluginFailed),
            after: After::Abort,
            upstream: None,
            pieces: Vec::new(),
            whole: None,
        }
    }

    /// Queues a response, and sends at once as much as the client accepts.
    fn write_answer(
        &mut self,
        answer: &GatewayResponse,
        facts: &FactsOf<'_>,
        keep_head: impl FnOnce(&[u8], Range<usize>),
    ) {
        let settings = &self.plane.settings.respond;
        worker::with(|worker| {
            worker.out.clear();
            let facts = Facts {
                request_id: facts.request_id,
                date: worker.date.at(self.now),
                latency: facts.latency,
                keep_alive: facts.keep_alive,
                head_only: facts.head_only,
            };
            let date = answer.write_head(&facts, &settings.headers, &mut worker.out);
            inject(&settings.injections, answer.status, &mut worker.out);
            keep_head(&worker.out, date);
            if self.plane.settings.access_log.is_some() {
                self.head_size += worker.out.len() as u64;
            }
            self.out.push(&worker.out);
            self.out.push(answer.start_of_body(facts.head_only));
        });
    }

    /// Decides about the connection after a response that did not use the request's body. If the whole body has already
    /// arrived, it is skipped. Otherwise the connection closes, because the gateway does not wait for the rest.
    fn after_answer(&mut self, head: &RequestHead) -> After {
        let mut body = match self.request_body {
            RequestBodyAt::Carry => Body::new(head.framing()),
            RequestBodyAt::Memory => Body::Length(0),
            RequestBodyAt::Streaming => return After::Linger,
        };
        let skipped = body.consume(&self.carry);
        let draining = worker::with(|worker| worker.draining);
        match skipped {
            Ok(skipped) if body.is_done() && head.keep_alive() && self.may_go_on() && !draining => {
                self.received += skipped as u64;
                worker::with(|worker| self.take_carried(worker, skipped));
                After::Next
            }
            Ok(_) if body.is_done() && self.carry.is_empty() => After::Close,
            _ => After::Linger,
        }
    }

    /// Closes a connection that has no valid request, with an error response if the client may still be listening.
    pub(super) async fn refuse(&mut self, reason: NoRequest) -> After {
        let id = worker::with(|worker| worker.ids.next_id());
        let id = std::str::from_utf8(&id).expect("hex digits");
        let settings = &self.plane.settings.respond;
        let error = |error: ServerError| {
            let ServerError {
                status,
                message,
                reason,
            } = error;
            let answer = GatewayResponse::server_error(status, message, None, id, settings);
            (answer, reason)
        };
        let mut head_only = false;
        let (mut answer, reason) = match reason {
            NoRequest::Gone => return After::Abort,
            NoRequest::Timeout => error(ServerError::new(408, Reason::ClientTimeout)),
            NoRequest::Refused(bad) => {
                let refusal = refusal(bad);
                let status = refusal.status;
                tracing::debug!(request_id = id, "a request gets {status}: {bad}");
                error(refusal)
            }
            NoRequest::PlainHttp { head_only: asked } => {
                head_only = asked;
                (plain_http(), Reason::BadRequest)
            }
        };
        if answer.status == 405 {
            answer.headers.set("Allow", ALLOWED_METHODS);
        }
        self.now = Instant::now();
        let facts = FactsOf {
            request_id: id,
            latency: Latency::Produced { total: 0 },
            keep_alive: false,
            head_only,
        };
        self.write_answer(&answer, &facts, |_, _| {});
        let counters = worker::with(|worker| worker.counters(&self.plane));
        counters.count_request(answer.status, Duration::ZERO, Some(reason));
        let line = std::mem::take(&mut self.carry);
        let after = self.finish(After::Linger).await;
        self.log_refused(&line, answer.status, reason, id);
        after
    }

    /// Refuses the first plaintext request on a TLS listener with nginx's error page, and closes the connection.
    pub(super) async fn refuse_plain_http(mut self) {
        let reason = match self.receive_head().await {
            Ok(head) => {
                let version = version_of(&head);
                let (method, target) = (head.method_bytes(), head.target_bytes());
                let words = [method, target, version.as_bytes()];
                self.carry = [&words.join(&b' ')[..], b"\r\n"].concat();
                let head_only = head.method_bytes() == b"HEAD";
                NoRequest::PlainHttp { head_only }
            }
            Err(reason) => reason,
        };
        let after = self.refuse(reason).await;
        if after != After::Abort {
            self.close(after).await;
        }
    }

    /// Makes the close reset the connection. After a response that broke off, a normal close would look like its
    /// regular end.
    pub(super) fn reset_on_close(&self) {
        // An HTTP/2 stream is reset when it is dropped before its response is complete.
        let Some(socket) = self.stream.tcp() else {
            return;
        };
        let socket = socket2::SockRef::from(socket);
        if let Err(error) = socket.set_linger(Some(Duration::ZERO)) {
            tracing::debug!(%error, "cannot reset a connection");
        }
    }
}

/// Value of `Allow` in 405 responses. The gateway also forwards other methods, but
/// not CONNECT and TRACE.
const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// [`Facts`] without the date, which the worker adds.
struct FactsOf<'a> {
    request_id: &'a str,
    latency: Latency,
    keep_alive: bool,
    head_only: bool,
}

fn plain_http() -> GatewayResponse {
    let mut headers = HeaderEdits::new();
    headers.set("Content-Type", page::TYPE);
    GatewayResponse {
        status: 400,
        headers,
        body: PLAIN_HTTP_PAGE.into(),
        more: Vec::new(),
        chunked: false,
        stored: None,
    }
}

fn refusal(bad: BadRequest) -> ServerError {
    let (status, reason) = match bad {
        BadRequest::TargetTooLong => (414, Reason::TooLarge),
        BadRequest::HeadTooLarge => (494, Reason::TooLarge),
        BadRequest::Expectation => (417, Reason::BadRequest),
        BadRequest::Method => (405, Reason::BadRequest),
        BadRequest::Coding => (501, Reason::BadRequest),
        BadRequest::Malformed
        | BadRequest::Version
        | BadRequest::Length
        | BadRequest::Repeated
        | BadRequest::Host
        | BadRequest::Target => (400, Reason::BadRequest),
    };
    ServerError::new(status, reason)
}

/// Runs the filter phases over a response that a plugin or the gateway has produced.
fn filter(
    answer: &mut GatewayResponse,
    origin: Origin,
    handling: &mut Handling<'_>,
    settings: &ResponseSettings,
) -> Result<(), FilterFailed> {
    let Handling { request, chain, .. } = handling;
    answer.open();
    let headers = std::mem::take(&mut answer.headers);
    let mut filtered = Answer::new(origin, answer.status, headers);
    let replaced = chain.header_filter(request, None, None, &mut filtered, settings)?;
    answer.status = filtered.status;
    if let Some(made) = replaced {
        (answer.body, answer.more) = (made.body, made.more);
    }
    if chain.has(Phases::BODY_FILTER) && !form::is_bodiless(request, answer.status) {
        let first = std::mem::take(&mut answer.body);
        let pieces = [first].into_iter().chain(std::mem::take(&mut answer.more));
        let pieces = chain.filter_whole(request, None, None, &mut filtered, pieces)?;
        let mut pieces = pieces.into_iter();
        answer.body = pieces.next().unwrap_or_default();
        answer.more = pieces.collect();
    }
    answer.headers = filtered.headers;
    Ok(())
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    duration.as_secs() * 1000 + u64::from(duration.subsec_millis())
}
