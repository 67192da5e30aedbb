//! Responses that are read into memory before they are sent, because a plugin asks for the whole response.
//! Source: kong/init.lua Kong.response(), kong/pdk/service/request.lua enable_buffering().

use super::answer::{Took, milliseconds};
use super::failure::Failed;
use super::filtering::parse_trailers;
use super::form::{Form, is_bodiless};
use super::handling::Handling;
use super::opening::Opening;
use super::plane::DataPlane;
use super::request_body::BodyShare;
use super::worker;
use super::{After, Connection, Outcome};
use crate::forward::{write_header, write_line};
use crate::forward_response::{ClientFraming, Inbound, write_response};
use crate::plugins::{Chain, FilterFailed};
use crate::respond::inject;
use crate::session::filtering::{write_chunk_size, write_end_of_chunks};
use bytes::Bytes;
use net::http1::{Framing, ResponseHead};
use plugin::{Answer, Chunk, HeaderEdits, Origin, Request};
use std::sync::Arc;

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
        if let Some(response) = chain.response(request, &head, &body, &mut answer).await {
            let after = exchanged.after;
            let took = Took::Tried(contacted);
            let mut outcome = self.produce_after(response, took, opening, handling);
            outcome.after = least(outcome.after, after);
            outcome.upstream_status = exchanged.upstream_status;
            outcome.upstream_body = Some(body);
            return outcome;
        }
        let filtered = filter(request, chain, &head, &body, &mut answer, self);
        let Ok((form, payload)) = filtered else {
            return self.broken_by_filter();
        };
        let closes = form.framing.ends_by_closing(head.framing());
        let after = match exchanged.after {
            After::Next if closes => After::Close,
            after => after,
        };
        let settings = &self.plane.settings.respond;
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
        worker::with(|worker| {
            worker.out.clear();
            let (date, now) = (&mut worker.date, self.now);
            write_response(&inbound, &mut worker.out, |out| {
                write_line(out, b"Date: ", date.at(now).as_bytes());
            });
            inject(&settings.injections, answer.status, &mut worker.out);
            chain.keep_head(&worker.out);
            self.head_size += worker.out.len() as u64;
            write_body(&payload, &form, &answer, &mut worker.out);
            self.out.push(&worker.out);
        });
        drop(share);
        Outcome {
            status: answer.status,
            after,
            upstream_body: Some(body),
            ..exchanged
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
    connection: &Connection,
) -> Result<(Form, Vec<u8>), FilterFailed> {
    let replaced = chain.header_filter(request, Some(head), Some(body), answer)?;
    let mut form = Form::choose(head, answer, request, chain, false);
    if let Some(response) = replaced {
        let settings = &connection.plane.settings.respond;
        let body = form.replace(response, head, answer, request, chain, settings)?;
        return Ok((form, body));
    }
    if is_bodiless(request, answer.status) {
        return Ok((form, Vec::new()));
    }
    let mut filtered = Vec::with_capacity(body.len());
    // As in Kong, the filters see the whole body and then the end.
    for (data, last) in [(body.clone(), false), (Bytes::new(), true)] {
        let mut chunk = Chunk { data, last };
        chain.body_filter(request, Some(head), Some(body), answer, &mut chunk)?;
        filtered.extend_from_slice(&chunk.data);
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

fn write_body(payload: &[u8], form: &Form, answer: &Answer, out: &mut Vec<u8>) {
    let chunked = matches!(
        form.framing,
        ClientFraming::Chunked | ClientFraming::Rechunked
    );
    if !chunked {
        return out.extend_from_slice(payload);
    }
    if !payload.is_empty() {
        write_chunk_size(out, payload.len(), false);
        out.extend_from_slice(payload);
    }
    write_end_of_chunks(out, !payload.is_empty());
    for (name, value) in &answer.trailers {
        write_header(out, name.as_bytes(), value.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
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
