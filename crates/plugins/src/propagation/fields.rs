//! The headers of all formats, collected from a request in one pass.

use plugin::{HeaderEdits, Request};

/// A header of a trace context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    B3,
    TraceState,
    TraceParent,
    B3Flags,
    B3SpanId,
    B3TraceId,
    B3Sampled,
    B3ParentSpanId,
    UberTraceId,
    AmznTraceId,
    OtSpanId,
    OtTraceId,
    OtSampled,
    DatadogTraceId,
    DatadogParentId,
    DatadogPriority,
    CloudTraceContext,
}

const COUNT: usize = Name::CloudTraceContext as usize + 1;

impl Name {
    /// Classifies a header by its length first, so that most names cost only one comparison.
    #[inline]
    fn of(name: &[u8]) -> Option<Self> {
        let (one, other): (_, Option<(&[u8], Self)>) = match name.len() {
            2 => ((&b"b3"[..], Self::B3), None),
            10 => (
                (&b"tracestate"[..], Self::TraceState),
                Some((b"x-b3-flags", Self::B3Flags)),
            ),
            11 => (
                (&b"traceparent"[..], Self::TraceParent),
                Some((b"x-b3-spanid", Self::B3SpanId)),
            ),
            12 => (
                (&b"x-b3-traceid"[..], Self::B3TraceId),
                Some((b"x-b3-sampled", Self::B3Sampled)),
            ),
            13 => ((&b"uber-trace-id"[..], Self::UberTraceId), None),
            15 => ((&b"x-amzn-trace-id"[..], Self::AmznTraceId), None),
            16 => ((&b"ot-tracer-spanid"[..], Self::OtSpanId), None),
            17 => return Self::of_17(name),
            18 => ((&b"x-datadog-trace-id"[..], Self::DatadogTraceId), None),
            19 => ((&b"x-datadog-parent-id"[..], Self::DatadogParentId), None),
            21 => (
                (&b"x-cloud-trace-context"[..], Self::CloudTraceContext),
                None,
            ),
            27 => (
                (&b"x-datadog-sampling-priority"[..], Self::DatadogPriority),
                None,
            ),
            _ => return None,
        };
        let is = |(known, found): (&[u8], Self)| name.eq_ignore_ascii_case(known).then_some(found);
        is(one).or_else(|| is(other?))
    }

    fn of_17(name: &[u8]) -> Option<Self> {
        [
            (&b"ot-tracer-traceid"[..], Self::OtTraceId),
            (b"ot-tracer-sampled", Self::OtSampled),
            (b"x-b3-parentspanid", Self::B3ParentSpanId),
        ]
        .into_iter()
        .find(|(known, _)| name.eq_ignore_ascii_case(known))
        .map(|(_, found)| found)
    }
}

/// The trace headers of a request. A header that occurs several times has no value: which one counts is not defined, and
/// two readers could choose differently.
#[derive(Debug, Default)]
pub struct Fields<'r> {
    values: [Option<&'r [u8]>; COUNT],
    /// A set of the headers that are present.
    present: u32,
}

impl<'r> Fields<'r> {
    /// Collects the headers as the upstream would get them. Like all plugins of Kong's, it sees the first hundred lines.
    pub fn of(request: &'r Request<'_>) -> Self {
        Self::collect(request.first_other_pairs())
    }

    pub fn collect<N: AsRef<[u8]>>(pairs: impl Iterator<Item = (N, &'r [u8])>) -> Self {
        let mut fields = Self::default();
        pairs.for_each(|(name, value)| {
            if let Some(name) = Name::of(name.as_ref()) {
                fields.add(name, value);
            }
        });
        fields
    }

    fn add(&mut self, name: Name, value: &'r [u8]) {
        let is_first = !self.has(name);
        self.present |= 1 << name as u32;
        if let Some(place) = self.values.get_mut(name as usize) {
            *place = is_first.then_some(value);
        }
    }

    /// Whether the request has no trace header at all.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.present == 0
    }

    pub fn has(&self, name: Name) -> bool {
        self.present >> name as u32 & 1 == 1
    }

    pub fn get(&self, name: Name) -> Option<&'r [u8]> {
        self.values.get(name as usize).copied().flatten()
    }
}

/// Whether the changes concern a header of a trace context.
pub fn are_changed(edits: &HeaderEdits) -> bool {
    edits
        .names()
        .any(|name| Name::of(name.as_bytes()).is_some())
}

/// Reads hex digits, at most 32 of them.
pub fn hex(digits: &[u8]) -> Option<u128> {
    if digits.is_empty() || digits.len() > 32 {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| {
        let value = char::from(*digit).to_digit(16)?;
        Some(number << 4 | u128::from(value))
    })
}

/// Reads an id of up to 8 bytes that is not zero.
pub fn span(digits: &[u8]) -> Option<u64> {
    let number = hex(digits).and_then(|number| u64::try_from(number).ok());
    number.filter(|number| *number != 0)
}

/// Reads a decimal number of 64 bits that is not zero.
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(digits).ok()?.parse().ok();
    number.filter(|number| *number != 0)
}
