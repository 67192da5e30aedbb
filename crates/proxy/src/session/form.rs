//! The form in which a response goes to the client: its framing and length. It is decided after the header filters. A
//! body filter that changes the length of the body must have removed `Content-Length`; otherwise the length stays.

use crate::forward_response::ClientFraming;
use crate::plugins::{Chain, FilterFailed};
use crate::respond::GatewayResponse;
use bytes::Bytes;
use net::http1::{Framing, ResponseHead, Version};
use plugin::{Answer, Phases, Request};

pub(super) struct Form {
    pub(super) framing: ClientFraming,
    /// Length of the body for [`ClientFraming::Sized`].
    pub(super) length: Option<u64>,
    /// Whether plugins filter the body.
    pub(super) filters: bool,
    /// Whether the upstream's body is not for the client.
    pub(super) discards: bool,
}

impl Form {
    /// Chooses the form of an upstream's response after the header filters. With `streams`, pieces are forwarded as they
    /// arrive.
    pub(super) fn choose(
        head: &ResponseHead,
        answer: &Answer,
        request: &Request<'_>,
        chain: &Chain<'_>,
        streams: bool,
    ) -> Self {
        let version = request.head.version();
        let is_bodiless = is_bodiless(request, answer.status);
        let mut form = Self {
            framing: ClientFraming::AsReceived,
            length: None,
            filters: !is_bodiless && chain.has(Phases::BODY_FILTER),
            discards: is_bodiless && head.framing() != Framing::None,
        };
        if is_bodiless {
            return form;
        }
        let loses_length = !answer.headers.is_empty() && answer.headers.drops("content-length");
        let declared = match head.framing() {
            Framing::Length(length) if !loses_length => Some(length),
            Framing::None if !loses_length => Some(0),
            _ => None,
        };
        if head.framing() == Framing::None && !form.filters {
            // The upstream's response cannot have a body, but the client's may: a plugin has changed the status, or has
            // made a HEAD request of the client's.
            form.length = Some(0);
            form.framing = ClientFraming::Sized;
        } else if form.filters {
            form.length = stated_length(answer).or(declared);
            form.framing = match form.length {
                Some(_) => ClientFraming::Sized,
                None => ClientFraming::choose_filtered(version),
            };
        } else if loses_length && matches!(head.framing(), Framing::Length(_)) {
            form.filters = true;
            form.framing = ClientFraming::choose_filtered(version);
        } else {
            form.framing = ClientFraming::choose(head.framing(), version, streams);
        }
        form
    }

    /// The form of a response that is not forwarded yet.
    pub(super) fn unfiltered(head: &ResponseHead) -> Self {
        Self {
            framing: ClientFraming::choose(head.framing(), Version::Http11, false),
            length: None,
            filters: false,
            discards: false,
        }
    }

    /// Changes the form to that of a body which a header filter has put in place of the upstream's. Returns the body
    /// after the body filters.
    pub(super) fn replace(
        &mut self,
        made: GatewayResponse,
        head: &ResponseHead,
        answer: &mut Answer,
        request: &Request<'_>,
        chain: &mut Chain<'_>,
    ) -> Result<Vec<u8>, FilterFailed> {
        let pieces = std::iter::once(made.body).chain(made.more);
        let pieces: Vec<Bytes> = if self.filters {
            chain.filter_whole(request, Some(head), None, answer, pieces)?
        } else {
            pieces.collect()
        };
        let mut body = pieces.concat();
        let is_head = request.head.method_bytes() == b"HEAD";
        if matches!(answer.status, 101 | 204 | 304) {
            body.clear();
        } else {
            self.framing = ClientFraming::Sized;
            self.length = Some(body.len() as u64);
        }
        if is_head {
            body.clear();
        }
        self.filters = false;
        self.discards = true;
        Ok(body)
    }
}

/// Whether the client gets no body. Its own request and the status that it gets decide this.
pub(super) fn is_bodiless(request: &Request<'_>, status: u16) -> bool {
    request.head.method_bytes() == b"HEAD" || matches!(status, 101 | 204 | 304)
}

/// Returns the length that a filter has set for the body.
fn stated_length(answer: &Answer) -> Option<u64> {
    let stated = answer.headers.value("content-length")?;
    std::str::from_utf8(stated).ok()?.parse().ok()
}
