//! The candidates that have one host and one beginning of a path in common, best first; when these are many, split by
//! another field that most of them ask for: a header, a server name, an address, a port.
//!
//! A split keeps its field for as long as it has candidates. Those that do not ask for the field are a bucket beside it,
//! which is split in turn, so a poor choice costs one more lookup and is never mended.

use crate::candidate::Catalog;
use crate::keys::{Demand, Range, RangeDimension, Text, TextDimension, Width};
use crate::tree::Value;
use std::cmp::Ordering;
use std::sync::Arc;
use tables::Map;

/// As many are asked one by one.
const FEW: usize = 8;

/// A candidate in one of its places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) rank: Rank,
    pub(crate) slot: u32,
    /// The set of methods that it may accept.
    pub(crate) methods: u32,
    /// The set of protocols that it may accept.
    pub(crate) protocols: u8,
    /// Which of the covers of the candidate led here.
    pub(crate) cover: u8,
    /// The path must end with the key.
    pub(crate) at_end: bool,
    pub(crate) verdict: Verdict,
}

/// What is left to do with a candidate that a request led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its expression must be evaluated.
    Open,
    /// It matches, and locates nothing.
    Matches,
    /// It matches, and locates what the key of the path took.
    MatchesPath,
    /// The same for paths of ASCII; others must be evaluated.
    MatchesAsciiPath,
}

/// The beginning of a candidate's place in the order of all: whoever has the smaller one is better, and with equal ones
/// the places themselves are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(pub(crate) u64);

#[derive(Clone, Default)]
pub(crate) enum Bucket {
    #[default]
    Empty,
    /// The usual case, without another look at memory.
    One(Entry),
    List(Arc<List>),
    Split(Arc<Split>),
}

#[derive(Clone)]
pub(crate) struct List {
    /// Best first.
    pub(crate) entries: Vec<Entry>,
    /// With how many entries a split is tried again.
    split_at: usize,
}

#[derive(Clone)]
pub(crate) struct Split {
    pub(crate) keyed: Keyed,
    /// Those that do not ask for the field.
    pub(crate) rest: Bucket,
    /// Of all.
    best: Rank,
    /// How many places its entries have.
    length: usize,
}

#[derive(Clone)]
pub(crate) enum Keyed {
    Texts {
        of: TextDimension,
        buckets: Map<Text, Bucket>,
    },
    Ranges {
        of: RangeDimension,
        lengths: Lengths,
        buckets: Map<Range, Bucket>,
    },
}

/// The lengths of the ranges in a map, which is asked for each, and how many ranges have it.
#[derive(Clone, Default)]
pub(crate) struct Lengths(Vec<(Width, u8, u32)>);

impl Value for Bucket {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl Bucket {
    /// The rank of the best candidate.
    pub(crate) fn best(&self) -> Option<Rank> {
        match self {
            Self::Empty => None,
            Self::One(entry) => Some(entry.rank),
            Self::List(list) => list.entries.first().map(|entry| entry.rank),
            Self::Split(split) => Some(split.best),
        }
    }

    pub(crate) fn add(&mut self, entry: Entry, catalog: &Catalog<'_>) {
        match self {
            Self::Empty => *self = Self::One(entry),
            Self::One(known) => *self = Self::of(vec![*known, entry], catalog),
            Self::List(list) => {
                let list = Arc::make_mut(list);
                if !list.add(entry, catalog) || list.entries.len() < list.split_at {
                    return;
                }
                match Split::of(&list.entries, catalog) {
                    Some(split) => *self = Self::Split(Arc::new(split)),
                    None => list.split_at = 2 * list.entries.len(),
                }
            }
            Self::Split(split) => Arc::make_mut(split).add(entry, catalog),
        }
    }

    /// Takes out an entry that was added.
    pub(crate) fn remove(&mut self, entry: &Entry, catalog: &Catalog<'_>) {
        match self {
            Self::Empty => {}
            Self::One(known) => {
                if known.is_same(entry) {
                    *self = Self::Empty;
                }
            }
            Self::List(list) => {
                let list = Arc::make_mut(list);
                list.entries.retain(|known| !known.is_same(entry));
                match list.entries[..] {
                    [] => *self = Self::Empty,
                    [only] => *self = Self::One(only),
                    _ => {}
                }
            }
            Self::Split(split) => {
                let split = Arc::make_mut(split);
                split.remove(entry, catalog);
                if split.length <= FEW / 2 {
                    let mut entries = Vec::new();
                    self.each(&mut |entry| entries.push(*entry));
                    *self = Self::of(entries, catalog);
                }
            }
        }
    }

    /// Every entry, some more than once.
    pub(crate) fn each<'b>(&'b self, visit: &mut dyn FnMut(&'b Entry)) {
        match self {
            Self::Empty => {}
            Self::One(entry) => visit(entry),
            Self::List(list) => list.entries.iter().for_each(visit),
            Self::Split(split) => {
                match &split.keyed {
                    Keyed::Texts { buckets, .. } => {
                        buckets.iter().for_each(|(_, bucket)| bucket.each(visit));
                    }
                    Keyed::Ranges { buckets, .. } => {
                        buckets.iter().for_each(|(_, bucket)| bucket.each(visit));
                    }
                }
                split.rest.each(visit);
            }
        }
    }

    /// Of few.
    fn of(mut entries: Vec<Entry>, catalog: &Catalog<'_>) -> Self {
        entries.sort_by(|left, right| catalog.order(left, right).then_with(|| left.cmp_way(right)));
        entries.dedup_by(|one, two| one.is_same(two));
        match entries[..] {
            [] => Self::Empty,
            [only] => Self::One(only),
            _ => Self::List(Arc::new(List {
                entries,
                split_at: FEW + 1,
            })),
        }
    }
}

impl List {
    /// Says whether it was not there yet.
    fn add(&mut self, entry: Entry, catalog: &Catalog<'_>) -> bool {
        let order = |known: &Entry| catalog.order(known, &entry);
        // Most are added in their order.
        let at = match self.entries.last() {
            Some(last) if order(last).is_lt() => self.entries.len(),
            _ => self.entries.partition_point(|known| order(known).is_lt()),
        };
        let behind = self.entries[at..].iter();
        let mut same = behind.take_while(|known| order(known).is_eq());
        if same.any(|known| known.is_same(&entry)) {
            return false;
        }
        self.entries.insert(at, entry);
        true
    }
}

impl Entry {
    fn is_same(&self, other: &Self) -> bool {
        self.slot == other.slot && self.cmp_way(other).is_eq()
    }

    /// The order of two entries of one candidate.
    fn cmp_way(&self, other: &Self) -> Ordering {
        let way = |entry: &Self| (entry.cover, entry.at_end, entry.verdict as u8);
        way(self).cmp(&way(other))
    }
}

impl Split {
    /// Splits by the field that leaves the fewest to be asked one by one. None if that is not worth a lookup.
    fn of(entries: &[Entry], catalog: &Catalog<'_>) -> Option<Self> {
        let demands: Vec<_> = entries.iter().map(|entry| catalog.demands(entry)).collect();
        let mut best: Option<(usize, Keyed)> = None;
        let mut seen: Vec<Keyed> = Vec::new();
        for demand in demands.iter().flatten() {
            if seen.iter().any(|known| known.is_of(demand)) {
                continue;
            }
            let keyed = Keyed::new(demand);
            let left = left_by(&keyed, &demands);
            if best.as_ref().is_none_or(|(least, _)| left < *least) {
                best = Some((left, keyed.clone()));
            }
            seen.push(keyed);
        }
        let (left, keyed) = best?;
        if left > entries.len() * 3 / 4 {
            return None;
        }
        let mut split = Self {
            keyed,
            rest: Bucket::Empty,
            best: entries[0].rank,
            length: 0,
        };
        for entry in entries {
            split.add(*entry, catalog);
        }
        Some(split)
    }

    fn add(&mut self, entry: Entry, catalog: &Catalog<'_>) {
        self.best = self.best.min(entry.rank);
        let demands = catalog.demands(&entry);
        match demands.iter().find(|demand| self.keyed.is_of(demand)) {
            Some(demand) => {
                let add = &mut |bucket: &mut Bucket| bucket.add(entry, catalog);
                self.length += self.keyed.change(demand, add);
            }
            None => {
                self.rest.add(entry, catalog);
                self.length += 1;
            }
        }
    }

    fn remove(&mut self, entry: &Entry, catalog: &Catalog<'_>) {
        let demands = catalog.demands(entry);
        let gone = match demands.iter().find(|demand| self.keyed.is_of(demand)) {
            Some(demand) => {
                let remove = &mut |bucket: &mut Bucket| bucket.remove(entry, catalog);
                self.keyed.change(demand, remove)
            }
            None => {
                self.rest.remove(entry, catalog);
                1
            }
        };
        self.length = self.length.saturating_sub(gone);
    }
}

/// How many entries a request may have to ask when they are split so: the largest of those with one value, and those that
/// do not ask for the field.
fn left_by(keyed: &Keyed, demands: &[Vec<Demand>]) -> usize {
    let mut texts = std::collections::HashMap::new();
    let mut ranges = std::collections::HashMap::new();
    let mut rest = 0;
    for demands in demands {
        match demands.iter().find(|demand| keyed.is_of(demand)) {
            Some(Demand::Texts { texts: own, .. }) => {
                own.iter()
                    .for_each(|text| *texts.entry(text).or_insert(0) += 1);
            }
            Some(Demand::Ranges { ranges: own, .. }) => {
                own.iter()
                    .for_each(|range| *ranges.entry(range).or_insert(0) += 1);
            }
            None => rest += 1,
        }
    }
    let largest = texts.into_values().chain(ranges.into_values()).max();
    rest + largest.unwrap_or(0)
}

impl Keyed {
    fn new(demand: &Demand) -> Self {
        match demand {
            Demand::Texts { of, .. } => Self::Texts {
                of: of.clone(),
                buckets: Map::default(),
            },
            Demand::Ranges { of, .. } => Self::Ranges {
                of: *of,
                lengths: Lengths::default(),
                buckets: Map::default(),
            },
        }
    }

    fn is_of(&self, demand: &Demand) -> bool {
        match (self, demand) {
            (Self::Texts { of, .. }, Demand::Texts { of: other, .. }) => of == other,
            (Self::Ranges { of, .. }, Demand::Ranges { of: other, .. }) => of == other,
            _ => false,
        }
    }

    /// Changes the bucket of every value. Says how many these are.
    fn change(&mut self, demand: &Demand, change: &mut dyn FnMut(&mut Bucket)) -> usize {
        match (self, demand) {
            (Self::Texts { buckets, .. }, Demand::Texts { texts, .. }) => {
                for text in texts {
                    change_one(buckets, text.clone(), change);
                }
                texts.len()
            }
            (
                Self::Ranges {
                    buckets, lengths, ..
                },
                Demand::Ranges { ranges, .. },
            ) => {
                for range in ranges {
                    let before = buckets.len();
                    change_one(buckets, *range, change);
                    lengths.count(*range, before, buckets.len());
                }
                ranges.len()
            }
            _ => 0,
        }
    }
}

fn change_one<K: std::hash::Hash + Eq + Clone>(
    buckets: &mut Map<K, Bucket>,
    key: K,
    change: &mut dyn FnMut(&mut Bucket),
) {
    match buckets.get_mut(&key) {
        Some(bucket) => {
            change(bucket);
            if bucket.is_empty() {
                buckets.remove(&key);
            }
        }
        None => {
            let mut bucket = Bucket::Empty;
            change(&mut bucket);
            if !bucket.is_empty() {
                buckets.insert(key, bucket);
            }
        }
    }
}

impl Lengths {
    /// A map that had so many ranges has one more or one less with this one.
    fn count(&mut self, range: Range, before: usize, after: usize) {
        let of_same = |(width, length, _): &(Width, u8, u32)| {
            (*width, *length) == (range.width, range.length)
        };
        let known = self.0.iter().position(of_same);
        match (after.cmp(&before), known) {
            (Ordering::Greater, Some(known)) => self.0[known].2 += 1,
            (Ordering::Greater, None) => self.0.push((range.width, range.length, 1)),
            (Ordering::Less, Some(known)) if self.0[known].2 == 1 => {
                self.0.remove(known);
            }
            (Ordering::Less, Some(known)) => self.0[known].2 -= 1,
            _ => {}
        }
    }

    /// The ranges that may have a value.
    pub(crate) fn around(&self, value: Range) -> impl Iterator<Item = Range> {
        let lengths = self
            .0
            .iter()
            .filter(move |(width, ..)| *width == value.width);
        lengths.map(move |(_, length, _)| value.cut(*length))
    }
}
