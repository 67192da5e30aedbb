//! What a request tells about where its time goes: the spans that the data plane records, and the id of its trace.
//!
//! The data plane records spans only if a tracing plugin ([`crate::Plugin::begin_trace`]) or the client of a request
//! debug asks for them. Otherwise it neither reads the clock nor writes anything here. Spans of tries and of name
//! resolution are not recorded at all: [`crate::LogEntry`] has their times.

pub mod custom;
mod decision;
mod moment;
pub mod queries;

use compact_str::CompactString;
use custom::{Additions, Counted, Custom, CustomSpan};
pub use decision::{Decision, Format};
pub use moment::{Moment, nanoseconds};
pub use net::id::short_hex;
use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A set of instrumentations: the kinds of spans that are recorded (`tracing_instrumentations`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Instrumentations(u16);

impl Instrumentations {
    pub const NONE: Self = Self(0);
    /// The root span. Each other one includes it.
    pub const REQUEST: Self = Self(1);
    pub const ROUTER: Self = Self(1 << 1);
    pub const BALANCER: Self = Self(1 << 2);
    pub const PLUGIN_REWRITE: Self = Self(1 << 3);
    pub const PLUGIN_ACCESS: Self = Self(1 << 4);
    pub const PLUGIN_HEADER_FILTER: Self = Self(1 << 5);
    pub const DNS_QUERY: Self = Self(1 << 6);
    pub const DB_QUERY: Self = Self(1 << 7);
    pub const HTTP_CLIENT: Self = Self(1 << 8);
    pub const ALL: Self = Self((1 << 9) - 1);
    /// Not a setting: the ids of the configured plugins are recorded too, for a request debug.
    pub const IDS: Self = Self(1 << 9);

    const NAMES: [(&str, Self); 10] = [
        ("off", Self::NONE),
        ("request", Self::REQUEST),
        ("router", Self::ROUTER),
        ("balancer", Self::BALANCER),
        ("plugin_rewrite", Self::PLUGIN_REWRITE),
        ("plugin_access", Self::PLUGIN_ACCESS),
        ("plugin_header_filter", Self::PLUGIN_HEADER_FILTER),
        ("dns_query", Self::DNS_QUERY),
        ("db_query", Self::DB_QUERY),
        ("http_client", Self::HTTP_CLIENT),
    ];

    /// Returns the instrumentations with the name that they have in `tracing_instrumentations`.
    pub fn parse(name: &str) -> Option<Self> {
        if name == "all" {
            return Some(Self::ALL);
        }
        let mut names = Self::NAMES.into_iter();
        names.find(|(known, _)| *known == name).map(|(_, set)| set)
    }

    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The settings of tracing: what is recorded, and for which share of requests a plugin without a share of its own
/// records it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tracing {
    /// `tracing_instrumentations`.
    pub instrumentations: Instrumentations,
    /// `tracing_sampling_rate`.
    pub sampling_rate: f64,
}

/// The trace of a request.
#[derive(Debug, Default)]
pub struct Trace {
    /// The id of the trace that the request belongs to, once a tracing plugin has determined it. Logs and exemplars show
    /// it.
    pub id: Option<TraceId>,
    /// What the plugin that traces has decided. Boxes would cost more than the room.
    pub decision: Option<Decision>,
    /// The forms of the id in the log record, by [`IdForm`].
    forms: u8,
    records: Instrumentations,
    /// What the client of a request debug gets.
    pub debug: Option<DebugRequest>,
    /// Whether anything of the following is set.
    has_more: bool,
    /// When the span began that an interruption has ended.
    open: Option<Moment>,
    spans: Vec<Span>,
    tried: Vec<CompactString>,
    lookup: Option<FailedLookup>,
    custom: Option<Box<Custom>>,
}

/// A client that asks for the timings of its request (`X-Kong-Request-Debug`).
#[derive(Debug, Clone, Copy)]
pub struct DebugRequest {
    /// Whether the client is on this machine.
    pub is_local: bool,
    /// Whether the timings are logged too.
    pub logs: bool,
    /// How long the choice of the last upstream server took, and when it was contacted.
    pub contact: Option<(Duration, Instant)>,
    /// When the head of the response was known.
    pub headed: Option<Instant>,
}

/// A trace id of 16 or 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId {
    pub number: u128,
    /// Whether the id has 8 bytes. `number` then has only its lower half.
    pub is_short: bool,
}

impl TraceId {
    /// The id as it is written in W3C's headers and in OTLP: 32 hex digits.
    #[inline]
    pub fn hex(self) -> [u8; 32] {
        net::id::hex(self.number)
    }
}

/// The form of a trace id in log records: one for each format of headers in which the id was passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdForm {
    W3c,
    B3,
    Jaeger,
    Ot,
    Datadog,
    Aws,
    Gcp,
}

impl IdForm {
    const ALL: [(Self, &'static str); 7] = [
        (Self::W3c, "w3c"),
        (Self::B3, "b3"),
        (Self::Jaeger, "jaeger"),
        (Self::Ot, "ot"),
        (Self::Datadog, "datadog"),
        (Self::Aws, "aws"),
        (Self::Gcp, "gcp"),
    ];
}

/// A part of a request's time.
#[derive(Debug, Clone)]
pub struct Span {
    pub kind: SpanKind,
    pub start: Moment,
    pub end: Moment,
    /// Boxed because few spans have it.
    pub details: Option<Box<SpanDetails>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanKind {
    /// From the head of the request to its route.
    Router,
    /// A read of the store.
    Query,
    /// A phase of a plugin.
    Plugin {
        phase: PluginPhase,
        name: Cow<'static, str>,
    },
}

/// What only some spans have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpanDetails {
    /// What a read of the store reads.
    pub statement: Option<Box<str>>,
    /// The configured plugin, if a request debug shows it.
    pub id: Option<Uuid>,
    /// Why the plugin has failed.
    pub error: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginPhase {
    Rewrite,
    Access,
    HeaderFilter,
}

impl PluginPhase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Rewrite => "rewrite",
            Self::Access => "access",
            Self::HeaderFilter => "header_filter",
        }
    }

    pub fn instrumentation(self) -> Instrumentations {
        match self {
            Self::Rewrite => Instrumentations::PLUGIN_REWRITE,
            Self::Access => Instrumentations::PLUGIN_ACCESS,
            Self::HeaderFilter => Instrumentations::PLUGIN_HEADER_FILTER,
        }
    }
}

/// The name of an upstream server that could not be resolved.
#[derive(Debug, Clone)]
pub struct FailedLookup {
    pub name: CompactString,
    pub port: u16,
    pub start: Moment,
    pub end: Moment,
    pub error: Box<str>,
}

/// Maximum number of spans of a request. Internal redirects could make more.
const MAX_SPANS: usize = 512;

impl Trace {
    /// Whether spans of one of these kinds are recorded.
    #[inline]
    pub fn records(&self, kinds: Instrumentations) -> bool {
        self.records.intersects(kinds)
    }

    /// Whether any spans are recorded.
    #[inline]
    pub fn is_recording(&self) -> bool {
        !self.records.is_empty()
    }

    /// Whether spans of these kinds are to be recorded, in addition to others.
    #[inline]
    pub fn record(&mut self, kinds: Instrumentations) {
        self.records = self.records.with(kinds);
    }

    #[inline]
    pub fn add(&mut self, span: Span) {
        self.has_more = true;
        if self.spans.len() < MAX_SPANS {
            self.spans.push(span);
        }
    }

    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Remembers when a span has begun, because the phase of its plugin is interrupted.
    pub fn interrupt(&mut self, start: Moment) {
        self.has_more = true;
        self.open = Some(start);
    }

    /// Returns when the interrupted span began.
    pub fn resume(&mut self) -> Option<Moment> {
        self.open.take()
    }

    /// Adds the name of the server of a try. Tries are in the order of [`crate::LogEntry::tries`].
    pub fn add_try(&mut self, name: &str) {
        self.has_more = true;
        self.tried.push(name.into());
    }

    /// Forgets the last try, which does not count.
    pub fn forget_try(&mut self) {
        self.tried.pop();
    }

    /// Returns the name of the server of a try, if it has one. An address is no name.
    pub fn server_of_try(&self, at: usize) -> Option<&str> {
        self.tried.get(at).map(CompactString::as_str)
    }

    pub fn set_failed_lookup(&mut self, lookup: FailedLookup) {
        self.has_more = true;
        self.lookup = Some(lookup);
    }

    pub fn failed_lookup(&self) -> Option<&FailedLookup> {
        self.lookup.as_ref()
    }

    /// Counts what Lua code adds, before it is read. What is beyond the limit must not be added.
    pub fn count_custom(&mut self, bytes: usize) -> Counted {
        self.has_more = true;
        self.custom.get_or_insert_default().count(bytes)
    }

    /// Adds a span that Lua code has made.
    pub fn add_custom(&mut self, span: CustomSpan) {
        self.has_more = true;
        self.custom.get_or_insert_default().add(span);
    }

    /// Adds something to the root span.
    pub fn add_to_root(&mut self, more: Additions) {
        self.has_more = true;
        self.custom.get_or_insert_default().add_to_root(more);
    }

    /// Returns what Lua code has added.
    pub fn custom(&self) -> Option<&Custom> {
        self.custom.as_deref()
    }

    /// Sets the id, which log records show.
    #[inline]
    pub fn identify(&mut self, id: TraceId) {
        self.id = Some(id);
    }

    /// Adds a form in which log records show the id.
    #[inline]
    pub fn show(&mut self, form: IdForm) {
        self.forms |= 1 << form as u8;
    }

    /// Whether the log record shows the id.
    #[inline]
    pub(crate) fn is_shown(&self) -> bool {
        self.forms != 0
    }

    /// Returns the forms of the id in the log record.
    pub(crate) fn forms(&self) -> impl Iterator<Item = (&'static str, String)> {
        let forms = IdForm::ALL.into_iter();
        let forms = forms.filter(|(form, _)| self.forms >> *form as u8 & 1 == 1);
        forms.filter_map(|(form, name)| Some((name, self.id?.in_form(form))))
    }

    /// Forgets the request but keeps the memory of the lists.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.id, self.decision, self.forms, self.debug) = (None, None, 0, None);
        self.records = Instrumentations::NONE;
        if self.has_more {
            self.clear_more();
        }
    }

    #[inline(never)]
    fn clear_more(&mut self) {
        let Self {
            id: _,
            decision: _,
            forms: _,
            records: _,
            debug: _,
            has_more,
            open,
            spans,
            tried,
            lookup,
            custom,
        } = self;
        spans.clear();
        tried.clear();
        (*open, *lookup, *custom) = (None, None, None);
        *has_more = false;
    }
}

impl TraceId {
    fn in_form(self, form: IdForm) -> String {
        let short = (self.number & u128::from(u64::MAX)) as u64;
        match form {
            IdForm::Datadog => short.to_string(),
            IdForm::Aws => {
                let digits = format!("{:032x}", self.number);
                format!("1-{}-{}", &digits[..8], &digits[8..])
            }
            IdForm::B3 | IdForm::Jaeger | IdForm::Ot if self.is_short => format!("{short:016x}"),
            _ => format!("{:032x}", self.number),
        }
    }
}

/// Whether the server of a try has a name. Spans show names that were resolved.
pub fn is_name(server: &str) -> bool {
    let bare = server
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    bare.unwrap_or(server).parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instrumentations_have_kongs_names() {
        let parse = Instrumentations::parse;
        assert_eq!(parse("off"), Some(Instrumentations::NONE));
        assert_eq!(parse("router"), Some(Instrumentations::ROUTER));
        let all = parse("all").unwrap();
        assert!(all.intersects(Instrumentations::HTTP_CLIENT));
        assert!(!all.intersects(Instrumentations::IDS));
        assert_eq!(parse("requests"), None);
    }

    #[test]
    fn a_cleared_trace_keeps_nothing_but_its_memory() {
        let mut trace = Trace::default();
        let now = Moment::now();
        trace.record(Instrumentations::ALL);
        trace.add(Span {
            kind: SpanKind::Router,
            start: now,
            end: now,
            details: None,
        });
        trace.add_try("a.test");
        trace.identify(TraceId {
            number: 7,
            is_short: false,
        });
        trace.show(IdForm::W3c);
        let memory = trace.spans.capacity();
        trace.clear();
        assert!(trace.spans().is_empty() && trace.id.is_none() && !trace.is_shown());
        assert!(!trace.records(Instrumentations::ALL) && trace.server_of_try(0).is_none());
        assert_eq!(trace.spans.capacity(), memory);
    }

    #[test]
    fn ids_are_shown_in_the_form_of_their_format() {
        let mut trace = Trace::default();
        trace.identify(TraceId {
            number: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            is_short: false,
        });
        for (form, _) in IdForm::ALL {
            trace.show(form);
        }
        let forms: Vec<_> = trace.forms().collect();
        let find = |name| &forms.iter().find(|(form, _)| *form == name).unwrap().1;
        assert_eq!(find("w3c"), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(find("datadog"), "9532127138774266268");
        assert_eq!(find("aws"), "1-0af76519-16cd43dd8448eb211c80319c");
        assert_eq!(forms.len(), 7);
    }

    #[test]
    fn spans_of_a_request_are_bounded() {
        let (mut trace, now) = (Trace::default(), Moment::now());
        for _ in 0..2 * MAX_SPANS {
            trace.add(Span {
                kind: SpanKind::Router,
                start: now,
                end: now,
                details: None,
            });
        }
        assert_eq!(trace.spans().len(), MAX_SPANS);
    }

    #[test]
    fn addresses_are_no_names() {
        assert!(is_name("a.test") && is_name("localhost"));
        assert!(!is_name("127.0.0.1") && !is_name("[::1]") && !is_name("::1"));
    }
}
