//! The candidates that have one host and one beginning of a path in common, best first; when these are many, split by
//! another field that most of them ask for: a header, a server name, an address, a port.
//!
//! A split keeps its field for as long as it has candidates. Those that do not ask for the field are a bucket beside it,
//! which is split in turn, so a poor choice costs one more lookup and is never mended.

use crate::candidate::{Catalog, Demands};
use crate::keys::{Demand, Gram, Protocols, Range, RangeDimension, Text, TextDimension, Width};
use crate::tree::Value;
use std::cmp::Ordering;
use std::hash::Hash;
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
    pub(crate) protocols: Protocols,
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
    /// Of all, and maybe of some that were taken out: routes with SNIs serve requests without TLS apart, all alike.
    pub(crate) protocols: Protocols,
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
    /// Every entry under one gram of each alternative: of those that others have the least.
    Grams {
        of: TextDimension,
        buckets: Map<Gram, Bucket>,
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

    /// Says in how many places it was not before.
    pub(crate) fn add(&mut self, entry: Entry, catalog: &Catalog<'_>) -> usize {
        match self {
            Self::Empty => *self = Self::One(entry),
            Self::One(known) if known.is_same(&entry) => return 0,
            Self::One(known) => *self = Self::of(vec![*known, entry], catalog),
            Self::List(list) => {
                let list = Arc::make_mut(list);
                if !list.add(entry, catalog) {
                    return 0;
                }
                if list.entries.len() >= list.split_at {
                    match Split::of(&list.entries, catalog) {
                        Some(split) => *self = Self::Split(Arc::new(split)),
                        None => list.split_at = 2 * list.entries.len(),
                    }
                }
            }
            Self::Split(split) => return Arc::make_mut(split).add(entry, catalog),
        }
        1
    }

    /// Takes out an entry that was added.
    /// Says in how many places it was.
    pub(crate) fn remove(&mut self, entry: &Entry, catalog: &Catalog<'_>) -> usize {
        let removed;
        match self {
            Self::Empty => removed = 0,
            Self::One(known) => {
                removed = usize::from(known.is_same(entry));
                if removed == 1 {
                    *self = Self::Empty;
                }
            }
            Self::List(list) => {
                let known = list.entries.iter().position(|known| known.is_same(entry));
                removed = usize::from(known.is_some());
                if let Some(known) = known {
                    let list = Arc::make_mut(list);
                    list.entries.remove(known);
                    if let [only] = list.entries[..] {
                        *self = Self::One(only);
                    }
                }
            }
            Self::Split(split) => {
                let split = Arc::make_mut(split);
                removed = split.remove(entry, catalog);
                if split.length <= FEW / 2 {
                    let mut entries = Vec::new();
                    self.each(&mut |entry| entries.push(*entry));
                    *self = Self::of(entries, catalog);
                }
            }
        }
        removed
    }

    /// How many places its entries have.
    fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(_) => 1,
            Self::List(list) => list.entries.len(),
            Self::Split(split) => split.length,
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
                    Keyed::Grams { buckets, .. } => {
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
                protocols: entries
                    .iter()
                    .fold(entries[0].protocols, |all, entry| all.or(entry.protocols)),
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
        self.protocols = self.protocols.or(entry.protocols);
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
        for demand in demands.iter().flat_map(|demands| demands.iter()) {
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

    fn add(&mut self, entry: Entry, catalog: &Catalog<'_>) -> usize {
        self.best = self.best.min(entry.rank);
        let demands = catalog.demands(&entry);
        let added = match demands.iter().find(|demand| self.keyed.is_of(demand)) {
            Some(demand) => self.keyed.add(demand, entry, catalog),
            None => self.rest.add(entry, catalog),
        };
        self.length += added;
        added
    }

    fn remove(&mut self, entry: &Entry, catalog: &Catalog<'_>) -> usize {
        let demands = catalog.demands(entry);
        let removed = match demands.iter().find(|demand| self.keyed.is_of(demand)) {
            Some(demand) => self.keyed.remove(demand, entry, catalog),
            None => self.rest.remove(entry, catalog),
        };
        self.length = self.length.saturating_sub(removed);
        removed
    }
}

/// How many entries a request may have to ask when they are split so: the largest of those with one value, and those that
/// do not ask for the field.
fn left_by(keyed: &Keyed, demands: &[Demands]) -> usize {
    let mut texts = std::collections::HashMap::new();
    let mut ranges = std::collections::HashMap::new();
    let mut grams: std::collections::HashMap<Gram, usize> = std::collections::HashMap::new();
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
            Some(Demand::Grams { alternatives, .. }) => {
                for own in alternatives {
                    let count = |gram: &Gram| grams.get(gram).copied().unwrap_or(0);
                    if let Some(rarest) = own.iter().copied().min_by_key(count) {
                        *grams.entry(rarest).or_insert(0) += 1;
                    }
                }
            }
            None => rest += 1,
        }
    }
    let largest = texts.into_values().chain(ranges.into_values());
    let largest = largest.chain(grams.into_values()).max();
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
            Demand::Grams { of, .. } => Self::Grams {
                of: of.clone(),
                buckets: Map::default(),
            },
        }
    }

    fn is_of(&self, demand: &Demand) -> bool {
        match (self, demand) {
            (Self::Texts { of, .. }, Demand::Texts { of: other, .. }) => of == other,
            (Self::Ranges { of, .. }, Demand::Ranges { of: other, .. }) => of == other,
            (Self::Grams { of, .. }, Demand::Grams { of: other, .. }) => of == other,
            _ => false,
        }
    }

    /// Says in how many places the entry was not before.
    fn add(&mut self, demand: &Demand, entry: Entry, catalog: &Catalog<'_>) -> usize {
        match (self, demand) {
            (Self::Texts { buckets, .. }, Demand::Texts { texts, .. }) => {
                let texts = texts.iter();
                texts
                    .map(|text| bucket_of(buckets, text.clone()).add(entry, catalog))
                    .sum()
            }
            (
                Self::Ranges {
                    buckets, lengths, ..
                },
                Demand::Ranges { ranges, .. },
            ) => {
                let mut added = 0;
                for range in ranges {
                    if buckets.get(range).is_none() {
                        lengths.add(*range);
                    }
                    added += bucket_of(buckets, *range).add(entry, catalog);
                }
                added
            }
            (Self::Grams { buckets, .. }, Demand::Grams { alternatives, .. }) => {
                let mut added = 0;
                for grams in alternatives {
                    let others = |gram: &Gram| buckets.get(gram).map_or(0, Bucket::len);
                    if let Some(rarest) = grams.iter().copied().min_by_key(others) {
                        added += bucket_of(buckets, rarest).add(entry, catalog);
                    }
                }
                added
            }
            _ => 0,
        }
    }

    /// Says from how many places the entry was taken.
    fn remove(&mut self, demand: &Demand, entry: &Entry, catalog: &Catalog<'_>) -> usize {
        match (self, demand) {
            (Self::Texts { buckets, .. }, Demand::Texts { texts, .. }) => {
                let texts = texts.iter();
                texts
                    .map(|text| remove_from(buckets, text, entry, catalog))
                    .sum()
            }
            (
                Self::Ranges {
                    buckets, lengths, ..
                },
                Demand::Ranges { ranges, .. },
            ) => {
                let mut removed = 0;
                for range in ranges {
                    let before = buckets.len();
                    removed += remove_from(buckets, range, entry, catalog);
                    if buckets.len() < before {
                        lengths.remove(*range);
                    }
                }
                removed
            }
            (Self::Grams { buckets, .. }, Demand::Grams { alternatives, .. }) => {
                // Which it was that others had the least is not known any more.
                let grams = alternatives.iter().flatten();
                grams
                    .map(|gram| remove_from(buckets, gram, entry, catalog))
                    .sum()
            }
            _ => 0,
        }
    }
}

/// The bucket of a value, which is made if need be.
fn bucket_of<K: Hash + Eq + Clone>(buckets: &mut Map<K, Bucket>, key: K) -> &mut Bucket {
    if buckets.get(&key).is_none() {
        buckets.insert(key.clone(), Bucket::Empty);
    }
    buckets.get_mut(&key).expect("it was inserted")
}

fn remove_from<K: Hash + Eq + Clone>(
    buckets: &mut Map<K, Bucket>,
    key: &K,
    entry: &Entry,
    catalog: &Catalog<'_>,
) -> usize {
    let Some(bucket) = buckets.get_mut(key) else {
        return 0;
    };
    let removed = bucket.remove(entry, catalog);
    if bucket.is_empty() {
        buckets.remove(key);
    }
    removed
}

impl Lengths {
    fn add(&mut self, range: Range) {
        match self.place(range) {
            Some(known) => self.0[known].2 += 1,
            None => self.0.push((range.width, range.length, 1)),
        }
    }

    fn remove(&mut self, range: Range) {
        if let Some(known) = self.place(range) {
            self.0[known].2 -= 1;
            if self.0[known].2 == 0 {
                self.0.remove(known);
            }
        }
    }

    fn place(&self, range: Range) -> Option<usize> {
        let same = (range.width, range.length);
        let mut lengths = self.0.iter();
        lengths.position(|(width, length, _)| (*width, *length) == same)
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
