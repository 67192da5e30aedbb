//! Sends responses that the gateway or a plugin produces. They pass the filters of the selected plugins first.

use super::log_entries::version_of;
use super::opening::Opening;
use super::receive::NoRequest;
use super::worker;
use super::{After, Connection, Outcome, RequestBodyAt};
use crate::plan::Picked;
use crate::respond::{Facts, GatewayResponse, Latency, inject, page};
use crate::snapshot::Snapshot;
use net::http1::{BadRequest, Body, RequestHead};
use net::tls::PLAIN_HTTP_PAGE;
use plugin::{Chunk, HeaderEdits, Origin, RequestCx, Response, ResponseCx};
use std::time::Duration;
use tokio::time::Instant;

/// An error that Kong handles in nginx's `error_page`, in contrast to an error of a plugin.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerError {
    pub(super) status: u16,
    /// Message of the error; `None` for the status's usual message.
    pub(super) message: Option<&'static str>,
}

impl From<u16> for ServerError {
    fn from(status: u16) -> Self {
        Self {
            status,
            message: None,
        }
    }
}

/// Data about a request that its later phases need.
pub(super) struct Produced<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) opening: &'a Opening<'a>,
    pub(super) cx: &'a RequestCx<'a>,
    pub(super) picked: &'a Picked,
}

impl Connection {
    /// Sends a response of a plugin or of the gateway.
    pub(super) fn produce(
        &mut self,
        response: Response,
        origin: Origin,
        about: &Produced<'_>,
    ) -> Outcome {
        let settings = &self.plane.settings.respond;
        let id = about.opening.request_id();
        let answer = if about.cx.is_grpc() {
            GatewayResponse::to_grpc(response, Some(about.cx.head), id, settings)
        } else {
            GatewayResponse::new(response, Some(about.cx.head), id, settings)
        };
        self.send_produced(answer, origin, None, about)
    }

    /// Responds to a request that failed before or at the upstream. `contacted` is when the last upstream was
    /// contacted, if one was.
    pub(super) fn produce_error(
        &mut self,
        error: ServerError,
        contacted: Option<Instant>,
        about: &Produced<'_>,
    ) -> Outcome {
        let settings = &self.plane.settings.respond;
        let id = about.opening.request_id();
        let ServerError { status, message } = error;
        let answer =
            GatewayResponse::server_error(status, message, Some(about.cx.head), id, settings);
        self.send_produced(answer, Origin::Gateway, contacted, about)
    }

    fn send_produced(
        &mut self,
        mut answer: GatewayResponse,
        origin: Origin,
        contacted: Option<Instant>,
        about: &Produced<'_>,
    ) -> Outcome {
        if !about.picked.is_empty() {
            filter(&mut answer, origin, about);
        }
        self.now = Instant::now();
        let total = self.now - about.opening.started;
        let after = match answer.status {
            // A 1xx status is not final: the client would treat the next response as the final one of this request.
            100..=199 => After::Linger,
            _ => self.after_answer(about.cx.head),
        };
        let facts = FactsOf {
            request_id: about.opening.request_id(),
            latency: match contacted {
                None => Latency::Produced {
                    total: milliseconds(total),
                },
                Some(contacted) => Latency::Tried {
                    upstream: milliseconds(self.now - contacted),
                    proxy: milliseconds(contacted - about.opening.started),
                },
            },
            keep_alive: after == After::Next,
            head_only: about.cx.head.method_bytes() == b"HEAD",
        };
        self.write_answer(&answer, &facts);
        Outcome {
            status: answer.status,
            upstream_status: None,
            after,
            upstream: contacted.map(|contacted| (contacted, self.now)),
        }
    }

    /// Queues a response, and sends at once as much as the client accepts.
    fn write_answer(&mut self, answer: &GatewayResponse, facts: &FactsOf<'_>) {
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
            answer.write(&facts, &settings.headers, &mut worker.out);
            inject(&settings.injections, answer.status, &mut worker.out);
            if self.plane.settings.access_log.is_some() {
                let end = memchr::memmem::find(&worker.out, b"\r\n\r\n");
                self.head_size += end.map_or(0, |at| at as u64 + 4);
            }
            self.out.push(&worker.out);
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
            GatewayResponse::server_error(error.status, error.message, None, id, settings)
        };
        let mut head_only = false;
        let mut answer = match reason {
            NoRequest::Gone => return After::Abort,
            NoRequest::Timeout => error(ServerError::from(408)),
            NoRequest::Refused(bad) => {
                let refusal = refusal(bad);
                let status = refusal.status;
                tracing::debug!(request_id = id, "a request gets {status}: {bad}");
                error(refusal)
            }
            NoRequest::PlainHttp { head_only: asked } => {
                head_only = asked;
                plain_http()
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
        self.write_answer(&answer, &facts);
        worker::with(|worker| worker.counters(&self.plane).requests.add());
        let line = std::mem::take(&mut self.carry);
        let after = self.finish(After::Linger).await;
        self.log_refused(&line, answer.status, id);
        after
    }

    /// Refuses the first plaintext request on a TLS listener with nginx's error page, and closes the connection.
    pub(super) async fn refuse_plain_http(mut self) {
        let reason = match self.receive_head().await {
            Ok(head) => {
                let version = version_of(&head);
                self.carry = format!("{} {} {version}\r\n", head.method(), head.target()).into();
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

/// Value of `Allow` in 405 responses and in the response to `OPTIONS *`. The gateway also forwards other methods, but
/// not CONNECT and TRACE.
pub(super) const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

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
    }
}

fn refusal(bad: BadRequest) -> ServerError {
    ServerError::from(match bad {
        BadRequest::TargetTooLong => 414,
        BadRequest::HeadTooLarge => 494,
        BadRequest::Expectation => 417,
        BadRequest::Method => 405,
        BadRequest::Coding => 501,
        BadRequest::Malformed
        | BadRequest::Version
        | BadRequest::Length
        | BadRequest::Repeated
        | BadRequest::Host
        | BadRequest::Target => 400,
    })
}

fn filter(answer: &mut GatewayResponse, origin: Origin, about: &Produced<'_>) {
    let instances = about.snapshot.instances();
    let mut cx = ResponseCx {
        request: about.cx,
        origin,
        status: answer.status,
        upstream: None,
        headers: std::mem::take(&mut answer.headers),
    };
    about.picked.header_filter(instances, &mut cx);
    if about.picked.filters_body(instances) {
        let mut chunk = Chunk {
            data: std::mem::take(&mut answer.body),
            last: true,
        };
        about.picked.body_filter(instances, &mut cx, &mut chunk);
        answer.body = chunk.data;
    }
    answer.status = cx.status;
    answer.headers = cx.headers;
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    duration.as_secs() * 1000 + u64::from(duration.subsec_millis())
}
