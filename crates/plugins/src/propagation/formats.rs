//! The formats other than Zipkin's: how a context is read from their headers.

use super::fields::{Fields, Name, decimal, hex, span};
use super::{Format, Incoming, b3};
use plugin::trace::TraceId;

/// Reads the context in a format. `None` if there is none, or if it is malformed.
pub(super) fn extract(format: Format, fields: &Fields<'_>) -> Option<Incoming> {
    match format {
        Format::B3 | Format::B3Single => b3::extract(fields),
        Format::W3c => w3c(fields.get(Name::TraceParent)?),
        Format::Jaeger => jaeger(fields.get(Name::UberTraceId)?),
        Format::Ot => ot(fields),
        Format::Datadog => datadog(fields),
        Format::Aws => aws(fields.get(Name::AmznTraceId)?),
        Format::Gcp => gcp(fields.get(Name::CloudTraceContext)?),
    }
}

fn long(number: u128) -> Option<TraceId> {
    (number != 0).then_some(TraceId {
        number,
        is_short: false,
    })
}

/// `00-<32 hex>-<16 hex>-<2 hex>`.
fn w3c(value: &[u8]) -> Option<Incoming> {
    let rest = value.strip_prefix(b"00-")?;
    let (trace, rest) = rest.split_at_checked(32)?;
    let (span_id, rest) = rest.strip_prefix(b"-")?.split_at_checked(16)?;
    let flags = rest.strip_prefix(b"-").filter(|flags| flags.len() == 2)?;
    let flags = hex(flags)?;
    Some(Incoming {
        trace: Some(long(hex(trace)?)?),
        span: Some(span(span_id)?),
        sampled: Some(flags & 1 == 1),
        ..Incoming::new(Format::W3c)
    })
}

/// `<trace>:<span>:<parent>:<flags>`, in hex without leading zeros.
fn jaeger(value: &[u8]) -> Option<Incoming> {
    let mut parts = value.split(|byte| *byte == b':');
    let mut next = || parts.next();
    let (trace, span_id, parent, flags) = (next()?, next()?, next()?, next()?);
    if next().is_some() || flags.len() > 2 || parent.len() > 16 {
        return None;
    }
    let flags = hex(flags)?;
    let number = hex(trace).filter(|number| *number != 0)?;
    Some(Incoming {
        trace: Some(TraceId {
            number,
            is_short: trace.len() <= 16,
        }),
        span: Some(span(span_id)?),
        parent: match hex(parent)? {
            0 => None,
            _ => span(parent),
        },
        sampled: Some(flags & 1 == 1),
        ..Incoming::new(Format::Jaeger)
    })
}

fn ot(fields: &Fields<'_>) -> Option<Incoming> {
    let names = [Name::OtTraceId, Name::OtSpanId, Name::OtSampled];
    if !names.into_iter().any(|name| fields.has(name)) {
        return None;
    }
    let trace = fields.get(Name::OtTraceId).and_then(b3::trace);
    let span_id = fields.get(Name::OtSpanId);
    let span_id = span_id.filter(|digits| digits.len() == 16).and_then(span);
    let sampled = fields.get(Name::OtSampled);
    Some(Incoming {
        trace: trace.filter(|_| span_id.is_some()),
        span: span_id.filter(|_| trace.is_some()),
        sampled: sampled.and_then(b3::decision),
        ..Incoming::new(Format::Ot)
    })
}

fn datadog(fields: &Fields<'_>) -> Option<Incoming> {
    let names = [
        Name::DatadogTraceId,
        Name::DatadogParentId,
        Name::DatadogPriority,
    ];
    if !names.into_iter().any(|name| fields.has(name)) {
        return None;
    }
    let sampled = match fields.get(Name::DatadogPriority) {
        None if fields.has(Name::DatadogPriority) => return None,
        None => None,
        Some(b"1" | b"2") => Some(true),
        Some(b"0" | b"-1") => Some(false),
        Some(_) => return None,
    };
    let trace = fields.get(Name::DatadogTraceId).and_then(decimal);
    Some(Incoming {
        trace: trace.map(|number| TraceId {
            number: number.into(),
            is_short: true,
        }),
        span: trace.and(fields.get(Name::DatadogParentId).and_then(decimal)),
        sampled,
        ..Incoming::new(Format::Datadog)
    })
}

/// `Root=1-<8 hex>-<24 hex>;Parent=<16 hex>;Sampled=<0|1>`, in any order and perhaps with other fields.
fn aws(value: &[u8]) -> Option<Incoming> {
    let mut incoming = Incoming::new(Format::Aws);
    for part in value.split(|byte| *byte == b';') {
        let part = part.trim_ascii();
        if let Some(root) = part.strip_prefix(b"Root=1-") {
            let (time, rest) = root.split_at_checked(8)?;
            let random = rest.strip_prefix(b"-").filter(|rest| rest.len() == 24)?;
            incoming.trace = Some(long(hex(time)? << 96 | hex(random)?)?);
        } else if let Some(parent) = part.strip_prefix(b"Parent=") {
            incoming.span = Some(span(parent).filter(|_| parent.len() == 16)?);
        } else if let Some(sampled) = part.strip_prefix(b"Sampled=") {
            incoming.sampled = match sampled {
                b"1" => Some(true),
                b"0" => Some(false),
                _ => None,
            };
        }
    }
    incoming.trace.is_some().then_some(incoming)
}

/// `<32 hex>/<decimal>[;o=<digit>]`.
fn gcp(value: &[u8]) -> Option<Incoming> {
    let (trace, rest) = value.split_at_checked(32)?;
    let rest = rest.strip_prefix(b"/")?;
    let (span_id, options) = match memchr::memchr(b';', rest) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let is_option = |option: &[u8]| {
        let digits = option.strip_prefix(b"o=");
        digits.is_some_and(|digits| digits.len() == 1 && digits[0].is_ascii_digit())
    };
    if !options.is_none_or(is_option) {
        return None;
    }
    Some(Incoming {
        trace: Some(long(hex(trace)?)?),
        span: Some(decimal(span_id)?),
        sampled: Some(options == Some(b"o=1")),
        ..Incoming::new(Format::Gcp)
    })
}
