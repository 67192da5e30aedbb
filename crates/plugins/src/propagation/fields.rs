//! The headers of all formats, collected from a request in one pass.

use net::http1::is_same_name;
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

/// The names that [`Name::of`] knows.
pub(super) const NAMES: [&str; 17] = [
    "b3",
    "tracestate",
    "traceparent",
    "x-b3-flags",
    "x-b3-spanid",
    "x-b3-traceid",
    "x-b3-sampled",
    "x-b3-parentspanid",
    "uber-trace-id",
    "x-amzn-trace-id",
    "ot-tracer-spanid",
    "ot-tracer-traceid",
    "ot-tracer-sampled",
    "x-datadog-trace-id",
    "x-datadog-parent-id",
    "x-datadog-sampling-priority",
    "x-cloud-trace-context",
];

/// The first letters of the names by the length of the name (modulo 32), as sets of bits.
static FIRST_LETTERS: [u32; 32] = {
    let mut sets = [0; 32];
    let mut at = 0;
    while at < NAMES.len() {
        let name = NAMES[at].as_bytes();
        sets[name.len() % 32] |= 1 << (name[0] % 32);
        at += 1;
    }
    sets
};

/// The lengths of the names, as a set of bits.
const LENGTHS: u64 = {
    let (mut set, mut at) = (0, 0);
    while at < NAMES.len() {
        set |= 1 << NAMES[at].len();
        at += 1;
    }
    set
};

/// Whether a name, of one of the lengths, begins like a header of a trace context. Most others do not.
#[inline]
fn may_be_meant(name: &[u8]) -> bool {
    let letter = name.first().copied().unwrap_or_default();
    FIRST_LETTERS[name.len() % 32] >> (letter % 32) & 1 == 1
}

impl Name {
    /// Classifies a header by its length first, so that most names cost only one comparison.
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
    values: [Option<&'r [u8]>; NAMES.len()],
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

/// Whether the request has a trace header, from the client or from a plugin. The answer is usually no, and then it costs
/// little.
#[inline]
pub(super) fn are_present(request: &Request<'_>) -> bool {
    let is_meant = |name: &[u8]| may_be_meant(name) && Name::of(name).is_some();
    request.head.has_other(LENGTHS, is_meant) || are_changed(&request.upstream.headers)
}

/// Whether the changes concern a header of a trace context.
#[inline]
pub fn are_changed(edits: &HeaderEdits) -> bool {
    edits.may_have_of(LENGTHS) && is_among(edits)
}

#[inline(never)]
fn is_among(edits: &HeaderEdits) -> bool {
    edits.names().any(|name| Name::of(name).is_some())
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
