//! Writes the trace context for the upstream.

use super::Format;
use plugin::trace::{TraceId, short_hex};
use plugin::{HeaderEdits, HeaderLine, HeaderValue};

/// The trace context that the upstream gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    pub trace: TraceId,
    /// Whether `trace` has the length in which it came. Otherwise each format has a usual one.
    pub keeps_length: bool,
    /// The gateway's span, which is the parent of the upstream's.
    pub span: u64,
    /// The parent of the gateway's span.
    pub parent: Option<u64>,
    /// `None` if the upstream decides.
    pub sampled: Option<bool>,
    pub debug: bool,
}

/// Digits of an id on the stack, since most values are short.
struct Digits<const N: usize>([u8; N]);

impl<const N: usize> Digits<N> {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

fn digits(span: u64) -> Digits<16> {
    Digits(short_hex(span))
}

/// The header `traceparent`, whose value has always the same length. It is the one of nearly all requests.
#[derive(Debug)]
pub(super) struct TraceParent(HeaderLine);

/// `00-<trace>-<span>-<flags>`.
const TRACE_PARENT: &str = "00-00000000000000000000000000000000-0000000000000000-00";

impl TraceParent {
    pub(super) fn new() -> Self {
        let value = HeaderValue::from_static(TRACE_PARENT);
        Self(HeaderLine::new("traceparent", &value))
    }

    #[inline]
    fn write(&self, outgoing: &Outgoing, headers: &mut HeaderEdits) {
        headers.set_filled_line(&self.0, |value| {
            let Ok(value) = <&mut [u8; TRACE_PARENT.len()]>::try_from(value) else {
                return;
            };
            value[3..35].copy_from_slice(&outgoing.trace.hex());
            value[36..52].copy_from_slice(&short_hex(outgoing.span));
            value[54] = b'0' + u8::from(outgoing.sampled == Some(true));
        });
    }
}

impl Outgoing {
    #[inline]
    pub(super) fn write(
        &self,
        format: Format,
        trace_parent: &TraceParent,
        headers: &mut HeaderEdits,
    ) {
        match format {
            Format::W3c => trace_parent.write(self, headers),
            other => self.write_other(other, trace_parent, headers),
        }
    }

    #[inline(never)]
    fn write_other(&self, format: Format, trace_parent: &TraceParent, headers: &mut HeaderEdits) {
        match format {
            Format::W3c => trace_parent.write(self, headers),
            Format::B3 => self.write_b3(headers),
            Format::B3Single => headers.set("b3", &*self.b3()),
            Format::Jaeger => headers.set("uber-trace-id", &*self.jaeger()),
            Format::Ot => self.write_ot(headers),
            Format::Datadog => self.write_datadog(headers),
            Format::Aws => headers.set("x-amzn-trace-id", &*self.aws()),
            Format::Gcp => headers.set("x-cloud-trace-context", &*self.gcp()),
        }
    }

    fn flag(&self) -> char {
        if self.sampled == Some(true) { '1' } else { '0' }
    }

    fn short(&self) -> u64 {
        (self.trace.number & u128::from(u64::MAX)) as u64
    }

    /// The trace id in a format that allows both lengths and usually has the longer one.
    fn usually_long(&self) -> String {
        match self.trace.is_short && self.keeps_length {
            true => digits(self.short()).as_str().to_owned(),
            false => self.long().as_str().to_owned(),
        }
    }

    fn long(&self) -> Digits<32> {
        Digits(self.trace.hex())
    }

    fn write_b3(&self, headers: &mut HeaderEdits) {
        headers.set("x-b3-traceid", &*self.usually_long());
        headers.set("x-b3-spanid", digits(self.span).as_str());
        if let Some(parent) = self.parent {
            headers.set("x-b3-parentspanid", digits(parent).as_str());
        }
        match self.debug {
            true => headers.set("x-b3-flags", HeaderValue::from_static("1")),
            false => headers.set("x-b3-sampled", self.flag().encode_utf8(&mut [0; 4]) as &str),
        }
    }

    fn b3(&self) -> String {
        let (trace, span) = (self.usually_long(), digits(self.span));
        let mut value = format!("{trace}-{}", span.as_str());
        match self.sampled {
            _ if self.debug => value.push_str("-d"),
            Some(true) => value.push_str("-1"),
            Some(false) => value.push_str("-0"),
            None => {}
        }
        // Without a decision the parent is at its place, as in Kong.
        if let Some(parent) = self.parent {
            value.push('-');
            value.push_str(digits(parent).as_str());
        }
        value
    }

    fn jaeger(&self) -> String {
        let (trace, span) = (self.usually_long(), digits(self.span));
        let parent = self.parent.map(digits);
        let parent = parent.as_ref().map_or("0", Digits::as_str);
        format!("{trace}:{}:{parent}:0{}", span.as_str(), self.flag())
    }

    fn write_ot(&self, headers: &mut HeaderEdits) {
        let trace = match self.keeps_length && !self.trace.is_short {
            true => self.long().as_str().to_owned(),
            false => digits(self.short()).as_str().to_owned(),
        };
        headers.set("ot-tracer-traceid", trace);
        headers.set("ot-tracer-spanid", digits(self.span).as_str());
        headers.set(
            "ot-tracer-sampled",
            self.flag().encode_utf8(&mut [0; 4]) as &str,
        );
    }

    fn write_datadog(&self, headers: &mut HeaderEdits) {
        let mut text = itoa::Buffer::new();
        headers.set("x-datadog-trace-id", text.format(self.short()) as &str);
        headers.set("x-datadog-parent-id", text.format(self.span) as &str);
        headers.set(
            "x-datadog-sampling-priority",
            self.flag().encode_utf8(&mut [0; 4]) as &str,
        );
    }

    fn aws(&self) -> String {
        let (trace, span, flag) = (self.long(), digits(self.span), self.flag());
        let (time, random) = trace.as_str().split_at_checked(8).unwrap_or_default();
        format!(
            "Root=1-{time}-{random};Parent={};Sampled={flag}",
            span.as_str()
        )
    }

    fn gcp(&self) -> String {
        format!("{}/{};o={}", self.long().as_str(), self.span, self.flag())
    }
}
