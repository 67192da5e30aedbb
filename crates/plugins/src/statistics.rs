//! What statsd and datadog share: the values of a request or session, and the text of a statistic.
//!
//! Names come from clients and from configurations. Characters that have a meaning in the protocol are replaced in them,
//! so that a name can neither end a line nor add a tag.

use plugin::{Consumer, EndedStreamCx, EntityRef, LogCx, Node};
use serde::Deserialize;
use std::cell::RefCell;
use std::fmt::Write;
use std::time::{Duration, SystemTime};

thread_local! {
    /// The lines that are being written. Their memory is reused.
    static LINES: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Capacity above which the buffer of a worker is freed.
const KEPT_CAPACITY: usize = 64 * 1024;

/// What is told about a request or session.
pub(crate) struct Facts<'a> {
    pub(crate) node: &'a Node,
    pub(crate) started_at: SystemTime,
    pub(crate) status: u16,
    pub(crate) request_size: u64,
    pub(crate) response_size: u64,
    /// Latencies in milliseconds, as in log records.
    pub(crate) latency: u64,
    pub(crate) kong_latency: u64,
    /// `None` if no upstream was contacted.
    pub(crate) upstream_latency: Option<u64>,
    pub(crate) route: Option<EntityRef<'a>>,
    pub(crate) service: Option<EntityRef<'a>>,
    pub(crate) consumer: Option<&'a Consumer>,
}

impl<'a> Facts<'a> {
    pub(crate) fn of_request(cx: &'a LogCx<'_, '_>) -> Self {
        let (entry, latencies) = (cx.entry, &cx.entry.latencies);
        Self {
            node: cx.node,
            started_at: entry.started_at,
            status: entry.status,
            request_size: entry.request_size,
            response_size: entry.response_size,
            latency: milliseconds(latencies.request),
            kong_latency: milliseconds(latencies.gateway),
            upstream_latency: latencies.upstream.map(milliseconds),
            route: cx.request.route,
            service: cx.request.service,
            consumer: cx.state.consumer.as_deref(),
        }
    }

    /// Sizes are the bytes that the client has sent and received.
    pub(crate) fn of_stream(cx: &'a EndedStreamCx<'_>) -> Self {
        let (entry, latencies) = (cx.entry, &cx.entry.latencies);
        Self {
            node: cx.node,
            started_at: entry.started_at,
            status: entry.status,
            request_size: entry.received,
            response_size: entry.sent,
            latency: milliseconds(latencies.request),
            kong_latency: milliseconds(latencies.gateway),
            upstream_latency: None,
            route: cx.session.route,
            service: cx.session.service,
            consumer: None,
        }
    }

    /// Returns the host of the service. It is read from the store, because few configurations need it.
    pub(crate) fn service_host(&self) -> Option<String> {
        let service = self.service?;
        let kind = model::EntityKind::Services;
        let object = self.node.entities.object(kind, service.id).ok().flatten()?;
        object.str("host").map(str::to_owned)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The identifier of a consumer in names and tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConsumerIdentifier {
    ConsumerId,
    CustomId,
    Username,
}

impl ConsumerIdentifier {
    /// Returns the identifier, or `None` if there is no consumer or it has none.
    pub(crate) fn of(self, consumer: Option<&Consumer>) -> Option<String> {
        let consumer = consumer?;
        match self {
            Self::ConsumerId => Some(consumer.id.0.to_string()),
            Self::CustomId => consumer.custom_id.as_deref().map(str::to_owned),
            Self::Username => consumer.username.as_deref().map(str::to_owned),
        }
    }
}

/// The type of a statistic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StatType {
    Counter,
    Gauge,
    Histogram,
    Meter,
    Set,
    Timer,
    Distribution,
}

impl StatType {
    pub(crate) fn letter(self) -> &'static str {
        match self {
            Self::Counter => "c",
            Self::Gauge => "g",
            Self::Histogram => "h",
            Self::Meter => "m",
            Self::Set => "s",
            Self::Timer => "ms",
            Self::Distribution => "d",
        }
    }
}

/// Returns what follows the type if not all requests are counted, and nothing for a rate of 1. As in Kong, the rate is
/// only told: each request is sent.
pub(crate) fn rate(sample_rate: Option<f64>) -> String {
    match sample_rate {
        Some(rate) if rate != 1.0 => format!("|@{rate}"),
        _ => String::new(),
    }
}

/// Appends a name that a client or a configuration has chosen.
pub(crate) fn push_name(name: &str, out: &mut String) {
    out.extend(name.chars().map(|letter| match letter {
        '|' | ':' | '#' | '@' | ',' | '=' | '[' | ']' => '_',
        _ if letter.is_control() || letter.is_whitespace() => '_',
        _ => letter,
    }));
}

/// Returns a text of the configuration whose separators are meant, such as a tag with its value, within one line.
pub(crate) fn within_line(text: &str) -> String {
    text.replace(
        |letter: char| letter == '|' || letter == '#' || letter.is_control(),
        "_",
    )
}

/// Lets `write` write lines that end with `\n`, and passes them to `take` without the last line end, if there are any.
pub(crate) fn with_lines(write: impl FnOnce(&mut String), take: impl FnOnce(&str)) {
    let mut lines = LINES.take();
    lines.clear();
    write(&mut lines);
    if let Some(lines) = lines.strip_suffix('\n') {
        take(lines);
    }
    if lines.capacity() <= KEPT_CAPACITY {
        LINES.set(lines);
    }
}

/// Appends a number.
pub(crate) fn push_number(number: impl itoa::Integer, out: &mut String) {
    out.push_str(itoa::Buffer::new().format(number));
}

/// Appends an id in lower case.
pub(crate) fn push_id(id: uuid::Uuid, out: &mut String) {
    // Writing to a text cannot fail.
    let _ = write!(out, "{id}");
}
