//! Responses that are read into memory before they are sent, because a plugin asks for the whole response.
//! Source: kong/init.lua Kong.response(), kong/pdk/service/request.lua enable_buffering().

use super::answer::{Took, milliseconds};
use super::failure::Failed;
use super::filtering::parse_trailers;
use super::form::{Form, is_bodiless};
use super::handling::Handling;
use super::opening::Opening;
use super::plane::DataPlane;
use super::proxying::{CLIENT_GONE, streams_by_nature};
use super::request_body::BodyShare;
use super::worker;
use super::{After, Connection, Outcome, WholeBody};
use crate::forward::{write_header, write_line};
use crate::forward_response::{ClientFraming, Inbound, write_response};
use crate::plugins::{Chain, ClientLeft, FilterFailed};
use crate::respond::{ResponseSettings, inject};
use crate::session::filtering::{CHUNK_END, write_chunk_size};
use crate::snapshot::ServiceRef;
use bytes::Bytes;
use net::http1::{Framing, ResponseHead};
use plugin::{Answer, HeaderEdits, Origin, Phases, Reason, Request};
use std::sync::Arc;
use std::task::Context;
use tokio::time::Instant;

/// Size of the pieces in which a response is queued for the client.
const PIECE: usize = 16 * 1024;

/// A response of an upstream in memory.
pub(super) struct Collected {
    head: ResponseHead,
    /// Whether the upstream spoke HTTP/2.
    http2: bool,
    body: Vec<u8>,
    /// The bytes after the last chunk.
    pub(super) trailers: Vec<u8>,
    share: BodyShare,
}

/// Whether the whole response is read into memory, because a plugin asks for it. It is not for WebSockets, nor for gRPC,
/// whose messages must be forwarded as they arrive.
pub(super) fn collects(service: ServiceRef<'_>, handling: &Handling<'_>) -> bool {
    let Handling { request, chain, .. } = handling;
    if !chain.has(Phases::RESPONSE) && !request.upstream.buffer_response {
        return false;
    }
    let streams = streams_by_nature(service, request.head);
    if streams {
        tracing::info!(
            request_id = request.request_id,
            "a plugin asks for the whole response, which is not possible for WebSockets and gRPC"
        );
    }
    !streams
}

impl Collected {
    pub(super) fn new(head: ResponseHead, http2: bool, plane: &Arc<DataPlane>) -> Self {
        Self {
            head,
            http2,
            body: Vec::new(),
            trailers: Vec::new(),
            share: BodyShare::none(plane),
        }
    }

    /// Adds a piece of the body, if there is memory for it.
    pub(super) fn add(&mut self, piece: &[u8]) -> Result<(), Failed> {
        if !self.share.fits(self.body.len() + piece.len()) {
            return Err(Failed::TooLargeToHold);
        }
        self.body.extend_from_slice(piece);
        Ok(())
    }
}

impl Connection {
    /// Runs the plugins over a response in memory, and sends it. `exchanged` is the outcome of the exchange.
    pub(super) async fn answer_collected(
        &mut self,
        collected: Collected,
        exchanged: Outcome,
        opening: &Opening<'_>,
        debug: Option<&HeaderEdits>,
        handling: &mut Handling<'_>,
    ) -> Outcome {
        let Collected {
            head,
            http2,
            body,
            trailers,
            share,
        } = collected;
        let body = Bytes::from(body);
        let (contacted, headed) = exchanged.upstream.unwrap_or((opening.started, self.now));
        let mut answer = Answer::new(Origin::Upstream, head.status(), HeaderEdits::new());
        answer.trailers = parse_trailers(&trailers);
        let Handling { request, chain, .. } = &mut *handling;
        let mut poll_gone = |cx: &mut Context<'_>| self.poll_gone(cx);
        let ran = chain.response(request, &head, &body, &mut answer, &mut poll_gone);
        let ran = ran.await;
        // A plugin may have waited.
        self.now = Instant::now();
        let kept = Outcome {
            whole: Some(Box::new(WholeBody {
                bytes: body.clone(),
                _share: share,
            })),
            ..exchanged
        };
        let replaced = match ran {
            Ok(replaced) => replaced,
            Err(ClientLeft) => {
                return Outcome {
                    status: CLIENT_GONE,
                    origin: Origin::Gateway,
                    reason: Some(Reason::ClientGone),
                    after: After::Abort,
                    ..kept
                };
            }
        };
        if let Some(response) = replaced {
            let took = Took::Tried(contacted);
            let produced = self.produce_after(response, took, opening, handling);
            return Outcome {
                status: produced.status,
                origin: produced.origin,
                reason: produced.reason,
                after: least(produced.after, kept.after),
                pieces: produced.pieces,
                ..kept
            };
        }
        let settings = &self.plane.settings.respond;
        let filtered = filter(request, chain, &head, &body, &mut answer, settings);
        let Ok((form, payload)) = filtered else {
            return self.broken_by_filter();
        };
        let closes = form.framing.ends_by_closing(head.framing());
        let after = match kept.after {
            _ if answer.status < 200 => After::Linger,
            After::Next if closes => After::Close,
            after => after,
        };
        let inbound = Inbound {
            head: &head,
            request: request.head,
            http2,
            edits: &answer.headers,
            debug,
            status: answer.status,
            framing: form.framing,
            length: form.length,
            keep_alive: after == After::Next,
            upstream_latency: milliseconds(headed - contacted),
            proxy_latency: milliseconds(contacted - opening.started),
            request_id: request.request_id.as_bytes(),
            headers: settings.headers,
        };
        let pieces = worker::with(|worker| {
            worker.out.clear();
            let (date, now) = (&mut worker.date, self.now);
            let mut own_date = 0..0;
            write_response(&inbound, &mut worker.out, |out| {
                let start = out.len();
                write_line(out, b"Date: ", date.at(now).as_bytes());
                own_date = start..out.len();
            });
            inject(&settings.injections, answer.status, &mut worker.out);
            chain.keep_head(&worker.out, own_date);
            self.head_size += worker.out.len() as u64;
            let pieces = write_body(payload, &form, &answer, &mut worker.out);
            self.out.push(&worker.out);
            pieces
        });
        Outcome {
            status: answer.status,
            after,
            pieces,
            ..kept
        }
    }
}

/// Runs the filter phases. Returns the form of the response and its body.
fn filter(
    request: &Request<'_>,
    chain: &mut Chain<'_>,
    head: &ResponseHead,
    body: &Bytes,
    answer: &mut Answer,
    settings: &ResponseSettings,
) -> Result<(Form, Bytes), FilterFailed> {
    let replaced = chain.header_filter(request, Some(head), Some(body), answer, settings)?;
    let mut form = Form::choose(head, answer, request, chain, false);
    if let Some(made) = replaced {
        let body = form.replace(made, head, answer, request, chain)?;
        return Ok((form, body.into()));
    }
    if is_bodiless(request, answer.status) {
        return Ok((form, Bytes::new()));
    }
    let mut filtered = body.clone();
    if chain.has(Phases::BODY_FILTER) {
        let mut pieces = chain.filter_whole(request, Some(head), Some(body), answer, [filtered])?;
        filtered = match pieces.len() {
            1 => pieces.remove(0),
            _ => pieces.concat().into(),
        };
    }
    if form.framing == ClientFraming::AsReceived && matches!(head.framing(), Framing::Chunked) {
        form.framing = ClientFraming::Chunked;
    }
    let length = filtered.len() as u64;
    match form.length {
        Some(expected) if expected != length => {
            tracing::error!(
                request_id = request.request_id,
                "a plugin has changed the length of a response's body, but has not removed Content-Length"
            );
            Err(FilterFailed)
        }
        _ => Ok((form, filtered)),
    }
}

/// Writes the start of the body after the head in `out`, and returns the pieces that follow. Small bodies are written
/// as a whole.
fn write_body(payload: Bytes, form: &Form, answer: &Answer, out: &mut Vec<u8>) -> Vec<Bytes> {
    let in_chunks = matches!(
        form.framing,
        ClientFraming::Chunked | ClientFraming::Rechunked
    );
    let mut end = Vec::new();
    if in_chunks {
        if !payload.is_empty() {
            write_chunk_size(out, payload.len());
            end.extend_from_slice(CHUNK_END);
        }
        write_chunk_size(&mut end, 0);
        for (name, value) in &answer.trailers {
            write_header(&mut end, name.as_bytes(), value.as_bytes());
        }
        end.extend_from_slice(b"\r\n");
    }
    if payload.len() <= PIECE {
        out.extend_from_slice(&payload);
        out.extend_from_slice(&end);
        return Vec::new();
    }
    let starts = (0..payload.len()).step_by(PIECE);
    let pieces = starts.map(|start| payload.slice(start..payload.len().min(start + PIECE)));
    let end = Some(Bytes::from(end)).filter(|end| !end.is_empty());
    pieces.chain(end).collect()
}

/// The next step that both allow.
fn least(one: After, other: After) -> After {
    match (one, other) {
        (After::Next, after) | (after, After::Next) => after,
        (After::Abort, _) | (_, After::Abort) => After::Abort,
        (After::Linger, _) | (_, After::Linger) => After::Linger,
        (After::Close, After::Close) => After::Close,
    }
}
