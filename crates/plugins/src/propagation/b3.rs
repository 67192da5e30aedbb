//! Zipkin's formats: several headers `x-b3-…`, or one header `b3`, which can also be a member of `tracestate`.

use super::fields::{Fields, Name, hex, span};
use super::{Format, Incoming};
use plugin::trace::TraceId;

/// What the headers say, before their ids are checked together.
#[derive(Default)]
struct Read<'r> {
    trace: Option<&'r [u8]>,
    span: Option<&'r [u8]>,
    parent: Option<&'r [u8]>,
    sampled: Option<bool>,
    debug: bool,
}

/// Reads the context. The single header goes before the others, and one invalid id makes all of them useless. A decision
/// about sampling counts without ids.
pub fn extract(fields: &Fields<'_>) -> Option<Incoming> {
    let single = fields.get(Name::B3).and_then(single);
    let single = single.or_else(|| member(fields.get(Name::TraceState)?).and_then(self::single));
    let is_single = single.is_some();
    let has_ids = [Name::B3TraceId, Name::B3SpanId, Name::B3ParentSpanId]
        .into_iter()
        .any(|name| fields.has(name));
    let mut read = single.unwrap_or_default();
    read.trace = read.trace.or_else(|| fields.get(Name::B3TraceId));
    read.span = read.span.or_else(|| fields.get(Name::B3SpanId));
    read.parent = read.parent.or_else(|| fields.get(Name::B3ParentSpanId));
    read.sampled = read
        .sampled
        .or_else(|| fields.get(Name::B3Sampled).and_then(decision));
    read.debug |= fields.get(Name::B3Flags) == Some(b"1");
    let (trace, span_id, parent) = match ids(&read) {
        Some((trace, span, parent)) => (Some(trace), Some(span), parent),
        None => (None, None, None),
    };
    let sampled = if read.debug { Some(true) } else { read.sampled };
    if !is_single && !has_ids && sampled.is_none() {
        return None;
    }
    let format = if is_single {
        Format::B3Single
    } else {
        Format::B3
    };
    Some(Incoming {
        trace,
        span: span_id,
        parent,
        sampled,
        debug: read.debug,
        ..Incoming::new(format)
    })
}

/// Reads `1`, `true`, `0` and `false`.
pub(super) fn decision(value: &[u8]) -> Option<bool> {
    match value {
        b"1" => Some(true),
        b"0" => Some(false),
        _ if value.eq_ignore_ascii_case(b"true") => Some(true),
        _ if value.eq_ignore_ascii_case(b"false") => Some(false),
        _ => None,
    }
}

/// Reads `<trace>-<span>[-<sampled>[-<parent>]]`, or a lone decision.
fn single(value: &[u8]) -> Option<Read<'_>> {
    const LONGEST: usize = 32 + 1 + 16 + 1 + 1 + 1 + 16;
    if value.len() > LONGEST {
        return None;
    }
    let mut parts = value.split(|byte| *byte == b'-');
    let first = parts.next()?;
    let Some(span) = parts.next() else {
        let (sampled, debug) = flag(first)?;
        return Some(Read {
            sampled: Some(sampled),
            debug,
            ..Read::default()
        });
    };
    let mut read = Read {
        trace: Some(first),
        span: Some(span),
        ..Read::default()
    };
    let third = parts.next();
    match third.map(flag) {
        // Kong writes the parent at the place of a decision that nobody has made.
        Some(None) => read.parent = third,
        decided => {
            if let Some((sampled, debug)) = decided.flatten() {
                (read.sampled, read.debug) = (Some(sampled), debug);
            }
            read.parent = parts.next();
        }
    }
    let is_over = parts.next().is_none();
    (is_over && ids(&read).is_some()).then_some(read)
}

fn flag(value: &[u8]) -> Option<(bool, bool)> {
    match value {
        b"0" => Some((false, false)),
        b"1" => Some((true, false)),
        b"d" => Some((true, true)),
        _ => None,
    }
}

/// Returns the value of the member `b3` of a `tracestate`.
fn member(tracestate: &[u8]) -> Option<&[u8]> {
    let mut members = tracestate.split(|byte| *byte == b',');
    members.find_map(|member| member.trim_ascii().strip_prefix(b"b3="))
}

fn ids(read: &Read<'_>) -> Option<(TraceId, u64, Option<u64>)> {
    let trace = trace(read.trace?)?;
    let span = read.span.filter(|digits| digits.len() == 16)?;
    let parent = read.parent.map(|digits| match digits.len() {
        16 => self::span(digits),
        _ => None,
    });
    // An invalid parent makes all ids useless.
    let parent = match parent {
        Some(parent) => Some(parent?),
        None => None,
    };
    Some((trace, self::span(span)?, parent))
}

/// Reads a trace id of 8 or 16 bytes that is not zero.
pub(super) fn trace(digits: &[u8]) -> Option<TraceId> {
    let is_short = digits.len() == 16;
    if !is_short && digits.len() != 32 {
        return None;
    }
    let number = hex(digits).filter(|number| *number != 0)?;
    Some(TraceId { number, is_short })
}
