//! Sets of ordered values, such as numbers, addresses and protocols. Unions and complements are exact.

use expr::{AddressPredicate, AddressTest, Block, NumberField, NumberPredicate, Subsystem};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A value. The first part is 4 or 6 for an address, and 0 for everything else.
type Point = (u8, u128);

/// The values from `first` to `last`, both included. Both have the same family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    first: Point,
    last: Point,
}

/// The set of values that a field may have, and whether it may have no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges {
    absent: bool,
    /// Sorted spans that do not overlap.
    spans: Vec<Span>,
}

/// An element of [`Ranges`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Example {
    Absent,
    Value(Point),
}

/// Added to numbers so that they are not negative.
const NUMBER_OFFSET: i128 = 1 << 63;

impl Ranges {
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the set of a field that always has one of `count` values.
    pub(super) fn one_of(count: u8) -> Self {
        Self {
            absent: false,
            spans: vec![Span {
                first: (0, 0),
                last: (0, u128::from(count) - 1),
            }],
        }
    }

    /// Returns the set of these choices, for a field that always has a value.
    pub(super) fn choice(choices: impl Iterator<Item = u8>) -> Self {
        let spans = choices.map(|choice| Span::single((0, choice.into())));
        Self {
            absent: false,
            spans: spans.collect(),
        }
    }

    /// Returns all values of a number field. In a stream, both ports are always present. In a request they may be
    /// absent.
    pub(super) fn all_numbers(field: NumberField, subsystem: Subsystem) -> Self {
        let last = match (field, subsystem) {
            (NumberField::SourcePort, _) | (NumberField::DestinationPort, Subsystem::Stream) => {
                u16::MAX.into()
            }
            // A Host header may contain any number after the colon.
            (NumberField::DestinationPort | NumberField::SegmentCount, _) => i64::MAX,
        };
        Self {
            absent: subsystem == Subsystem::Http,
            spans: vec![Span {
                first: number(0),
                last: number(last),
            }],
        }
    }

    /// Returns the numbers that satisfy the predicate.
    pub(super) fn numbers(predicate: &NumberPredicate) -> Self {
        use expr::Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        let value = number(predicate.value);
        let (first, last) = (number(i64::MIN), number(i64::MAX));
        let below = |value: Point| Some((first, before(value)?));
        let above = |value: Point| Some((after(value, last)?, last));
        let spans = match predicate.comparison {
            Equal => [Some((value, value)), None],
            NotEqual => [below(value), above(value)],
            Less => [below(value), None],
            LessOrEqual => [Some((first, value)), None],
            Greater => [above(value), None],
            GreaterOrEqual => [Some((value, last)), None],
        };
        let spans = spans.into_iter().flatten();
        Self {
            absent: false,
            spans: spans.map(|(first, last)| Span { first, last }).collect(),
        }
    }

    /// Returns all values of an address field. In a stream, both addresses are always present. In a request they may be
    /// absent.
    pub(super) fn all_addresses(subsystem: Subsystem) -> Self {
        Self {
            absent: subsystem == Subsystem::Http,
            spans: all_address_spans().to_vec(),
        }
    }

    /// Returns the addresses that satisfy the predicate.
    pub(super) fn addresses(predicate: &AddressPredicate) -> Self {
        let (spans, inside) = match predicate.test {
            AddressTest::Equals(one) => (vec![Span::single(address(one))], true),
            AddressTest::Differs(one) => (vec![Span::single(address(one))], false),
            AddressTest::In(block) => (vec![Span::of_block(block)], true),
            AddressTest::NotIn(block) => (vec![Span::of_block(block)], false),
        };
        let spans = if inside {
            spans
        } else {
            without(&all_address_spans(), &spans)
        };
        Self {
            absent: false,
            spans,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.absent && self.spans.is_empty()
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        let mut spans = Vec::new();
        for left in &self.spans {
            for right in &other.spans {
                let (first, last) = (left.first.max(right.first), left.last.min(right.last));
                if first <= last {
                    spans.push(Span { first, last });
                }
            }
        }
        Self {
            absent: self.absent && other.absent,
            spans,
        }
    }

    pub(super) fn or(&self, other: &Self) -> Self {
        let mut spans = without(&self.spans, &other.spans);
        spans.extend(&other.spans);
        spans.sort_unstable();
        Self {
            absent: self.absent || other.absent,
            spans,
        }
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        Self {
            absent: self.absent && !other.absent,
            spans: without(&self.spans, &other.spans),
        }
    }

    pub(super) fn meets(&self, other: &Self) -> bool {
        let meet = |left: &Span, right: &Span| left.first <= right.last && right.first <= left.last;
        let spans = || self.spans.iter();
        self.absent && other.absent
            || spans().any(|left| other.spans.iter().any(|right| meet(left, right)))
    }

    /// Returns an element of the set. An absent value is preferred, because it is the simplest example. The number 0 is
    /// avoided if possible, because port 0 does not exist.
    pub(super) fn example(&self) -> Option<Example> {
        if self.absent {
            return Some(Example::Absent);
        }
        let first = self.spans.first()?;
        let value = match after(first.first, first.last) {
            Some(next) if first.first == number(0) => next,
            _ => first.first,
        };
        Some(Example::Value(value))
    }
}

impl Ranges {
    pub(super) fn has_choice(&self, choice: u8) -> bool {
        self.holds((0, choice.into()))
    }

    /// Returns `wished` if the ranges contain it, else another address of the same family if there is one.
    pub(super) fn address(&self, wished: IpAddr) -> Option<IpAddr> {
        let (family, _) = address(wished);
        let mut spans = self.spans.iter();
        if self.holds(address(wished)) {
            Some(wished)
        } else {
            let span = spans.find(|span| span.first.0 == family)?;
            Example::Value(span.first).address()
        }
    }

    /// Like [`Self::address`], for ports.
    pub(super) fn port(&self, wished: u16) -> Option<u16> {
        if self.holds(number(wished.into())) {
            Some(wished)
        } else {
            u16::try_from(self.example()?.number()?).ok()
        }
    }

    fn holds(&self, point: Point) -> bool {
        let mut spans = self.spans.iter();
        spans.any(|span| span.first <= point && point <= span.last)
    }

    /// Returns one prefix for each span: the family, then the bytes with which all values of the span begin. Numbers
    /// have the width of a port. Returns `None` if the field may have no value.
    pub(super) fn prefixes(&self) -> Option<Vec<Vec<u8>>> {
        (!self.absent).then(|| self.spans.iter().map(Span::prefix).collect())
    }
}

impl Example {
    pub(super) fn number(self) -> Option<i64> {
        let Self::Value((_, value)) = self else {
            return None;
        };
        let value = i128::try_from(value).ok()? - NUMBER_OFFSET;
        i64::try_from(value).ok()
    }

    pub(super) fn choice(self) -> Option<usize> {
        match self {
            Self::Value((_, value)) => usize::try_from(value).ok(),
            Self::Absent => None,
        }
    }

    pub(super) fn address(self) -> Option<IpAddr> {
        match self {
            Self::Value((4, bits)) => {
                let bits = u32::try_from(bits).ok()?;
                Some(Ipv4Addr::from_bits(bits).into())
            }
            Self::Value((_, bits)) => Some(Ipv6Addr::from_bits(bits).into()),
            Self::Absent => None,
        }
    }
}

impl Span {
    fn single(point: Point) -> Self {
        Self {
            first: point,
            last: point,
        }
    }

    fn prefix(&self) -> Vec<u8> {
        let (first, last) = (self.first.1.to_be_bytes(), self.last.1.to_be_bytes());
        let skipped = match self.first.0 {
            0 => size_of::<u128>() - size_of::<u16>(),
            4 => size_of::<u128>() - size_of::<u32>(),
            _ => 0,
        };
        let bytes = first[skipped..].iter().zip(&last[skipped..]);
        let common = bytes.take_while(|(first, last)| first == last);
        let family = std::iter::once(self.first.0);
        family.chain(common.map(|(byte, _)| *byte)).collect()
    }

    fn of_block(block: Block) -> Self {
        let (family, first) = address(block.aligned().address());
        let width = if family == 4 { 32 } else { 128 };
        let behind = width - u32::from(block.bits());
        let size = u128::MAX
            .checked_shl(behind)
            .map_or(u128::MAX, |kept| !kept);
        Self {
            first: (family, first),
            last: (family, first | size),
        }
    }
}

fn number(value: i64) -> Point {
    let value = i128::from(value) + NUMBER_OFFSET;
    (0, value.unsigned_abs())
}

fn address(address: IpAddr) -> Point {
    match address {
        IpAddr::V4(address) => (4, address.to_bits().into()),
        IpAddr::V6(address) => (6, address.to_bits()),
    }
}

/// Returns the spans of all addresses. They do not contain IPv4-mapped IPv6 addresses, because routers treat those as
/// IPv4.
fn all_address_spans() -> [Span; 3] {
    let mapped = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().to_bits();
    let behind_mapped = mapped + (1 << 32);
    [
        ((4, 0), (4, u32::MAX.into())),
        ((6, 0), (6, mapped - 1)),
        ((6, behind_mapped), (6, u128::MAX)),
    ]
    .map(|(first, last)| Span { first, last })
}

/// Returns the next smaller value of the family.
fn before((family, value): Point) -> Option<Point> {
    Some((family, value.checked_sub(1)?))
}

/// Returns the next greater value of the family, up to `last`.
fn after((family, value): Point, last: Point) -> Option<Point> {
    let next = (family, value.checked_add(1)?);
    (next <= last).then_some(next)
}

fn without(spans: &[Span], others: &[Span]) -> Vec<Span> {
    let mut left = spans.to_vec();
    for other in others {
        left = left
            .into_iter()
            .flat_map(|span| cut(span, *other))
            .flatten()
            .collect();
    }
    left
}

/// Returns the parts of `span` before and after `other`.
fn cut(span: Span, other: Span) -> [Option<Span>; 2] {
    if other.last < span.first || span.last < other.first {
        return [Some(span), None];
    }
    let first = (span.first < other.first)
        .then(|| before(other.first))
        .flatten();
    let last = after(other.last, span.last);
    [
        first.map(|last| Span { last, ..span }),
        last.map(|first| Span { first, ..span }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use expr::{AddressField, Comparison};

    fn numbers(comparison: Comparison, value: i64) -> Ranges {
        Ranges::numbers(&NumberPredicate {
            field: NumberField::DestinationPort,
            comparison,
            value,
        })
    }

    fn block(text: &str) -> Ranges {
        Ranges::addresses(&AddressPredicate {
            field: AddressField::Source,
            test: AddressTest::In(text.parse().expect("a valid block")),
        })
    }

    #[test]
    fn ranges_that_exclude_each_other_leave_nothing() {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        for (left, right, empty) in [
            ((Less, 10), (Greater, 10), true),
            ((LessOrEqual, 10), (GreaterOrEqual, 10), false),
            ((Less, 10), (Greater, 8), false),
            ((Less, 10), (Greater, 9), true),
            ((Equal, 1), (NotEqual, 1), true),
            ((Less, i64::MIN), (NotEqual, 1), true),
            ((Greater, i64::MAX), (NotEqual, 1), true),
        ] {
            let both = numbers(left.0, left.1).and(&numbers(right.0, right.1));
            assert_eq!(both.is_empty(), empty, "{left:?} {right:?}");
        }
    }

    #[test]
    fn two_halves_of_a_block_equal_the_block() {
        let whole = block("10.0.0.0/8");
        let halves = block("10.0.0.0/9").or(&block("10.128.0.0/9"));
        assert!(whole.without(&halves).is_empty());
        assert!(!whole.without(&block("10.0.0.0/9")).is_empty());
        assert!(!whole.meets(&block("11.0.0.0/8")));
        assert!(!block("0.0.0.0/0").meets(&block("::/0")));
    }

    #[test]
    fn an_example_is_in_the_set() {
        let set = block("10.0.0.0/8").without(&block("10.0.0.0/31"));
        let example = set.example().and_then(Example::address);
        assert_eq!(example, Some("10.0.0.2".parse().unwrap()));
        let example = numbers(Comparison::Greater, 80).and(&numbers(Comparison::NotEqual, 81));
        assert_eq!(example.example().and_then(Example::number), Some(82));
        let all = Ranges::all_numbers(NumberField::SourcePort, Subsystem::Http);
        assert_eq!(all.example(), Some(Example::Absent));
    }
}
