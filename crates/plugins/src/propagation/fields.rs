//! The headers of all formats, collected from a request in one pass.

use net::http1::is_same_name;
use plugin::HeaderEdits;

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

/// The lengths of the names, as a set of bits.
pub(super) const LENGTHS: u64 = {
    let lengths = [2, 10, 11, 12, 13, 15, 16, 17, 18, 19, 21, 27];
    let (mut set, mut at) = (0, 0);
    while at < lengths.len() {
        set |= 1 << lengths[at];
        at += 1;
    }
    set
};

impl Name {
    /// Classifies a header by its length first, so that most names cost only one comparison.
    #[inline]
    pub(super) fn of(name: &[u8]) -> Option<Self> {
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
        let is = |(known, found): (&[u8], Self)| is_same_name(name, known).then_some(found);
        is(one).or_else(|| is(other?))
    }

    fn of_17(name: &[u8]) -> Option<Self> {
        [
            (&b"ot-tracer-traceid"[..], Self::OtTraceId),
            (b"ot-tracer-sampled", Self::OtSampled),
            (b"x-b3-parentspanid", Self::B3ParentSpanId),
        ]
        .into_iter()
        .find(|(known, _)| is_same_name(name, known))
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
    /// Collects the headers. Returns `None` if there are none, as in most requests.
    #[inline]
    pub fn collect<N: AsRef<[u8]>>(pairs: impl Iterator<Item = (N, &'r [u8])>) -> Option<Self> {
        let named = |(name, value): (N, _)| Some((Name::of(name.as_ref())?, value));
        let mut found = pairs.filter_map(named);
        let first = found.next()?;
        Some(Self::of(first, found))
    }

    #[inline(never)]
    fn of(first: (Name, &'r [u8]), rest: impl Iterator<Item = (Name, &'r [u8])>) -> Self {
        let mut fields = Self::default();
        fields.add(first);
        rest.for_each(|found| fields.add(found));
        fields
    }

    fn add(&mut self, (name, value): (Name, &'r [u8])) {
        let is_first = !self.has(name);
        self.present |= 1 << name as u32;
        if let Some(place) = self.values.get_mut(name as usize) {
            *place = is_first.then_some(value);
        }
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
