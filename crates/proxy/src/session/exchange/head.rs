//! The head of a response on its way to the client: runs the header filters over it and writes it.

use super::{Exchange, Failed, ResponseInProgress};
use crate::forward::write_line;
use crate::forward_response::{Inbound, write_response};
use crate::respond::inject;
use crate::session::answer::milliseconds;
use crate::session::collected::Collected;
use crate::session::filtering::Filtering;
use crate::session::form::Form;
use crate::session::worker::Worker;
use net::http1::{Body, ResponseHead};
use plugin::{Answer, HeaderEdits, Origin};

impl Exchange<'_, '_> {
    /// Runs the filters over the head and writes it to `worker.out`. If a filter has replaced the body, writes that too.
    pub(super) fn pass_head(
        &mut self,
        worker: &mut Worker,
        head: ResponseHead,
    ) -> Result<(), Failed> {
        let terms = self.terms;
        let settings = &self.client.plane.settings.respond;
        let mut answer = Answer::new(Origin::Upstream, head.status(), HeaderEdits::new());
        let mut replaced = None;
        if !self.chain.leaves_responses() {
            let filtered =
                (self.chain).header_filter(terms.request, Some(&head), None, &mut answer, settings);
            replaced = filtered.map_err(|_| Failed::Filter)?;
        }
        let streams = terms.streams || super::passing::wants_to_stream(&head);
        let mut form = Form::choose(&head, &answer, terms.request, self.chain, streams);
        let body = match replaced {
            None => None,
            Some(made) => {
                let body = form.replace(made, &head, &mut answer, terms.request, self.chain);
                Some(body.map_err(|_| Failed::Filter)?)
            }
        };
        let keep_alive = self.may_keep_client(worker)
            && !form.framing.ends_by_closing(head.framing())
            // A status below 200 is not final: the client would take the next response for that of this request.
            && answer.status >= 200
            && !head.switches();
        let inbound = Inbound {
            head: &head,
            request: terms.head,
            http2: self.upstream.stream.is_http2(),
            edits: &answer.headers,
            debug: terms.debug_headers,
            status: answer.status,
            framing: form.framing,
            length: form.length,
            keep_alive,
            upstream_latency: milliseconds(self.client.now - self.sent_at),
            proxy_latency: if self.sent_at == terms.started {
                0
            } else {
                milliseconds(self.sent_at - terms.started)
            },
            request_id: terms.request.request_id.as_bytes(),
            headers: settings.headers,
        };
        worker.out.clear();
        let (date, now) = (&mut worker.date, self.client.now);
        let mut own_date = 0..0;
        write_response(&inbound, &mut worker.out, |out| {
            let start = out.len();
            write_line(out, b"Date: ", date.at(now).as_bytes());
            own_date = start..out.len();
        });
        inject(&settings.injections, answer.status, &mut worker.out);
        self.chain.keep_head(&worker.out, own_date);
        self.client.head_size += worker.out.len() as u64;
        worker
            .out
            .extend_from_slice(body.as_deref().unwrap_or_default());
        let status = answer.status;
        let upstream_status = head.status();
        let body = Body::new(head.framing());
        let upstream_keeps = head.keep_alive();
        let filtering = match form.filters {
            true => Some(Box::new(Filtering::new(head, answer, form.length))),
            false => {
                self.chain.give_headers(answer.headers);
                None
            }
        };
        self.answer = Some(ResponseInProgress {
            status,
            upstream_status,
            headed: self.client.now,
            body,
            framing: form.framing,
            upstream_keeps,
            keep_alive,
            streams,
            held: None,
            switched: false,
            discards: form.discards,
            filtering,
            collected: None,
        });
        Ok(())
    }

    /// Begins to read a response into memory.
    pub(super) fn collect(&mut self, worker: &Worker, head: ResponseHead) {
        let form = Form::unfiltered(&head);
        self.answer = Some(ResponseInProgress {
            status: head.status(),
            upstream_status: head.status(),
            headed: self.client.now,
            body: Body::new(head.framing()),
            framing: form.framing,
            upstream_keeps: head.keep_alive(),
            keep_alive: self.may_keep_client(worker),
            streams: false,
            held: None,
            switched: false,
            discards: false,
            filtering: None,
            collected: Some(Box::new(Collected::new(
                head,
                self.upstream.stream.is_http2(),
                &self.client.plane,
            ))),
        });
    }

    /// Whether the client connection can carry another request after a response whose end the client recognizes.
    fn may_keep_client(&self, worker: &Worker) -> bool {
        self.terms.head.keep_alive()
            && !worker.draining
            // Otherwise, the rest of the request's body would be read as the next request.
            && self.request_body.is_done()
            && !self.unread
            && self.client.may_go_on()
    }
}
