//! What a log record is written from.
//!
//! To write a record costs several times as many instructions as to note what is in it, and the record is larger. So a
//! worker makes a [`Draft`] and puts it into a queue, and the record is written in the background, when the
//! queue sends it.

use super::record::{self, since_epoch};
use super::{Latencies, LogCx, Reason, RecordError, Try, entity};
use crate::request::{EntityRef, MAX_HEADERS, Request, Scheme};
use crate::response::Origin;
use crate::stream::TlsInfo;
use model::EntityKind;
use services::queue::{Queue, Text, Unwritten};
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// What is around a record in a queue.
#[derive(Debug, Clone, Copy)]
pub enum Frame<'p> {
    /// The record follows a separator.
    After(u8),
    /// The record is a line, after a prefix.
    Line(&'p [u8]),
}

/// About the size of what a record has besides the texts of its draft: names, numbers and addresses.
const REST: usize = 600;

/// About the size of a try in a record. [`REST`] has one.
const TRY: usize = 150;

/// A request as its record shows it. The texts are as they were received; they are escaped, and credentials are hidden,
/// when the record is written.
pub(super) struct Draft {
    /// All texts, one after the other, and where each of them ends.
    texts: Vec<u8>,
    ends: [u32; Part::COUNT],
    pub(super) has_query: bool,
    /// Whether plugins have replaced the query for the upstream.
    pub(super) has_new_query: bool,
    /// Whether plugins have changed headers of the request. Its lines then have nothing but a name, a colon and a value,
    /// because plugins can set values that begin or end with spaces.
    pub(super) has_new_headers: bool,
    pub(super) redacts: bool,
    pub(super) scheme: Scheme,
    pub(super) port: u16,
    pub(super) client_ip: IpAddr,
    pub(super) tls: Option<TlsInfo>,
    pub(super) status: u16,
    pub(super) origin: Origin,
    pub(super) reason: Option<Reason>,
    pub(super) request_size: u64,
    pub(super) response_size: u64,
    /// Time since 1970.
    pub(super) started_at: Duration,
    pub(super) latencies: Latencies,
    pub(super) has_route: bool,
    pub(super) tries: SmallVec<[Try; 1]>,
    /// The texts of these entities.
    pub(super) route: Option<Arc<[u8]>>,
    pub(super) service: Option<Arc<[u8]>>,
    pub(super) consumer: Option<Arc<[u8]>>,
    pub(super) workspace: Uuid,
}

/// A text of a draft, in their order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// What comes before the record.
    Prefix,
    RequestId,
    Path,
    Query,
    /// The query that replaces the client's.
    NewQuery,
    Host,
    Method,
    UpstreamPath,
    /// Lines of headers, after a first line that is none.
    RequestHead,
    ResponseHead,
    /// A part of the record, as it is written.
    Credential,
    /// A part of the record, as it is written.
    TraceId,
    /// What comes after the record.
    Suffix,
}

impl Part {
    const COUNT: usize = Self::Suffix as usize + 1;
}

impl LogCx<'_, '_> {
    /// Puts the log record of the request into a queue, with the fields that plugins have set. Fails if these cannot be
    /// applied.
    pub fn push_record(&self, frame: Frame<'_>, queue: &Queue<Text>) -> Result<(), RecordError> {
        // Plugins can change what others have set, and an error of that is the request's. So the record is written now.
        if !self.state.log_fields.is_empty() {
            return self.with_record(|record| match frame {
                Frame::After(separator) => queue.push_text(separator, record),
                Frame::Line(prefix) => queue.push_lines(prefix, record),
            });
        }
        let draft = Draft::new(self, frame);
        let bytes = draft.bytes();
        queue.push_unwritten(Box::new(draft), bytes);
        Ok(())
    }
}

impl Unwritten for Draft {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text(Part::Prefix));
        record::write(self, out);
        out.push(b'}');
        out.extend_from_slice(self.text(Part::Suffix));
    }
}

impl Draft {
    pub(super) fn new(cx: &LogCx<'_, '_>, frame: Frame<'_>) -> Self {
        let LogCx {
            request,
            state,
            node,
            entry,
            ..
        } = cx;
        let entities = &*node.entities;
        let query = request.head.query_bytes();
        let new_query = request.upstream.query.as_deref();
        let (prefix, suffix): (&[u8], &[u8]) = match &frame {
            Frame::After(separator) => (std::slice::from_ref(separator), b""),
            Frame::Line(prefix) => (prefix, b"\n"),
        };
        let mut texts = Texts::with_capacity(prefix.len() + likely_size(request, cx.entry));
        texts.add(Part::Prefix, prefix);
        texts.add(Part::RequestId, request.request_id.as_bytes());
        texts.add(Part::Path, request.head.path_bytes());
        texts.add(Part::Query, query.unwrap_or_default());
        texts.add(Part::NewQuery, new_query.unwrap_or_default());
        texts.add(Part::Host, request.host.as_bytes());
        texts.add(Part::Method, request.method_bytes());
        texts.add(Part::UpstreamPath, entry.upstream_path);
        texts.write(Part::RequestHead, |out| copy_headers(request, out));
        texts.add(Part::ResponseHead, entry.response_head);
        texts.write(Part::Credential, |out| {
            record::write_credential(state, out);
        });
        texts.write(Part::TraceId, |out| {
            if state.trace.is_shown() {
                record::write_trace_id(&state.trace, out);
            }
        });
        texts.add(Part::Suffix, suffix);
        let reference = |kind, entity: Option<EntityRef<'_>>| {
            entity.map(|entity| entity::reference(entities, kind, entity))
        };
        let consumer = state.consumer.as_deref();
        Self {
            texts: texts.bytes,
            ends: texts.ends,
            has_query: query.is_some(),
            has_new_query: new_query.is_some(),
            has_new_headers: !request.upstream.headers.is_empty(),
            redacts: node.redacts_records,
            scheme: request.scheme,
            port: request.port,
            client_ip: request.client.ip,
            tls: request.tls.copied(),
            status: entry.status,
            origin: entry.origin,
            reason: entry.reason.filter(|_| node.records_reason),
            request_size: entry.request_size,
            response_size: entry.response_size,
            started_at: since_epoch(entry.started_at),
            latencies: entry.latencies,
            has_route: request.route.is_some(),
            tries: SmallVec::from_slice(entry.tries),
            route: reference(EntityKind::Routes, request.route),
            service: reference(EntityKind::Services, request.service),
            consumer: consumer.map(|consumer| entity::consumer(entities, consumer)),
            workspace: entities.workspace(),
        }
    }

    #[inline]
    pub(super) fn text(&self, part: Part) -> &[u8] {
        let at = part as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        let range = start as usize..self.ends[at] as usize;
        self.texts.get(range).unwrap_or_default()
    }

    /// Returns about the size of the record.
    pub(super) fn bytes(&self) -> usize {
        let entities = [&self.route, &self.service, &self.consumer];
        let entities = entities.into_iter().flatten();
        let entities: usize = entities.map(|entity| entity.len()).sum();
        // The query of a record is in its URI, its URL, its arguments and its upstream URI.
        let again = self.text(Part::Path).len() + 3 * self.text(Part::Query).len();
        REST + self.texts.len() + again + entities + TRY * self.tries.len().saturating_sub(1)
    }
}

/// The texts of a draft that is being made.
struct Texts {
    bytes: Vec<u8>,
    ends: [u32; Part::COUNT],
}

impl Texts {
    fn with_capacity(size: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(size),
            ends: [0; Part::COUNT],
        }
    }

    #[inline]
    fn add(&mut self, part: Part, text: &[u8]) {
        self.write(part, |out| out.extend_from_slice(text));
    }

    #[inline]
    fn write(&mut self, part: Part, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        // Heads are limited to far less.
        self.ends[part as usize] = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
    }
}

/// Returns how much room the texts need, unless plugins have added much.
fn likely_size(request: &Request<'_>, entry: &super::LogEntry<'_>) -> usize {
    let (head, _) = request.head.located();
    // The request line is in the texts twice.
    const OTHERS: usize = 128;
    2 * head.len() + entry.response_head.len() + entry.upstream_path.len() + OTHERS
}

/// Copies the headers of a request with the changes of plugins.
fn copy_headers(request: &Request<'_>, out: &mut Vec<u8>) {
    let (head, mut places) = request.head.located();
    let edits = &request.upstream.headers;
    out.push(b'\n');
    if edits.is_empty() {
        if let Some((first, _)) = places.next() {
            out.extend_from_slice(&head[first.start..]);
        }
        return;
    }
    let mut add = |name: &[u8], value: &[u8]| {
        for part in [name, b":", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    };
    for (name, value) in places.take(MAX_HEADERS) {
        if !edits.drops(&head[name.clone()]) {
            add(&head[name], &head[value]);
        }
    }
    for (name, value) in edits.added() {
        add(name.as_bytes(), value);
    }
    out.extend_from_slice(b"\r\n");
}
