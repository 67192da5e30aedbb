//! The candidates that share a host and a path prefix, best first. A large bucket is split by one more field, such as a
//! header, a server name, an address or a port. The field is chosen so that few candidates remain to be checked.
//!
//! A split never changes its field. It is undone only when few candidates are left. Until then, a poor choice of field
//! costs one more lookup. Candidates without a condition on the field are in a separate bucket, which can be split by
//! another field.

use crate::RouteIndex;
use crate::candidate::{Catalog, Demands};
use crate::keys::{Demand, Gram, Protocols, Range, RangeDimension, Text, TextDimension, Width};
use crate::tree::Value;
use std::cmp::Ordering;
use std::hash::Hash;
use std::sync::Arc;
use tables::Map;

/// Maximum number of entries for which no split is tried. The entries of an unsplit bucket are checked one by one.
const FEW: usize = 8;

/// A candidate at one of its positions in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) rank: Rank,
    pub(crate) slot: u32,
    /// The route of the candidate. It is here so that the processor can fetch the route and the candidate at once: with
    /// many routes, both have left its caches.
    pub(crate) route: RouteIndex,
    /// The set of methods that it may accept.
    pub(crate) methods: u32,
    /// The set of protocols that it may accept.
    pub(crate) protocols: Protocols,
    /// The number of the candidate's cover that this entry belongs to.
    pub(crate) cover: u8,
    /// Whether the path must end where the key ends.
    pub(crate) at_end: bool,
    pub(crate) verdict: Verdict,
}

/// The remaining work for a candidate that the index found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The expression must be evaluated.
    Open,
    /// The candidate matches, and no part of the path is recorded as matched.
    Matches,
    /// The candidate matches. The part of the path that the path key matched is recorded.
    MatchesPath,
    /// Like `MatchesPath` if the path is ASCII; otherwise the expression must be evaluated.
    MatchesAsciiPath,
}

/// The most significant part of a candidate's position in the order; smaller is better. If two ranks are equal, the
/// positions themselves are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(pub(crate) u64);

#[derive(Clone, Default)]
pub(crate) enum Bucket {
    #[default]
    Empty,
    /// The most common case, stored inline to save a memory access.
    One(Entry),
    List(Arc<List>),
    Split(Arc<Split>),
}

#[derive(Clone)]
pub(crate) struct List {
    /// The entries, best first.
    pub(crate) entries: Vec<Entry>,
    /// The union of the protocols of all entries, and possibly of removed ones. Requests with other protocols skip the
    /// list. This matters for routes with SNIs: each has a separate entry for requests without TLS, and no field can
    /// split a list of such entries. Requests with TLS skip it.
    pub(crate) protocols: Protocols,
    /// Number of entries at which a split is tried again.
    split_at: usize,
}

#[derive(Clone)]
pub(crate) struct Split {
    pub(crate) keyed: Keyed,
    /// The entries without a condition on the field.
    pub(crate) rest: Bucket,
    /// The best rank of all entries, and possibly of removed ones.
    best: Rank,
    /// Number of positions of all entries.
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
    /// For each alternative, an entry is stored under one gram only: the one that the fewest other entries had when it
    /// was added.
    Grams {
        of: TextDimension,
        buckets: Map<Gram, Bucket>,
    },
}

/// The lengths of the ranges in a map, each with the number of ranges that have it. A lookup tries each length.
#[derive(Clone, Default)]
pub(crate) struct Lengths(Vec<(Width, u8, u32)>);

impl Value for Bucket {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl Bucket {
    /// The rank of the best candidate, or a better one if that candidate was removed.
    pub(crate) fn best(&self) -> Option<Rank> {
        match self {
            Self::Empty => None,
            Self::One(entry) => Some(entry.rank),
            Self::List(list) => list.entries.first().map(|entry| entry.rank),
            Self::Split(split) => Some(split.best),
        }
    }

    /// Adds an entry; returns the change of [`Self::len`]. If this splits the bucket, its other entries may get more
    /// positions too.
    pub(crate) fn add(&mut self, entry: Entry, catalog: &Catalog<'_>) -> isize {
        let before = self.len();
        match self {
            Self::Empty => *self = Self::One(entry),
            Self::One(known) if known.is_same(&entry) => {}
            Self::One(known) => *self = Self::of(vec![*known, entry], catalog),
            Self::List(list) => {
                let list = Arc::make_mut(list);
                if list.add(entry, catalog) && list.entries.len() >= list.split_at {
                    match Split::of(&list.entries, catalog) {
                        Some(split) => *self = Self::Split(Arc::new(split)),
                        None => list.split_at = 2 * list.entries.len(),
                    }
                }
            }
            Self::Split(split) => Arc::make_mut(split).add(entry, catalog),
        }
        self.grown(before)
    }

    /// Removes an entry that was added; returns the change of [`Self::len`].
    pub(crate) fn remove(&mut self, entry: &Entry, catalog: &Catalog<'_>) -> isize {
        let before = self.len();
        match self {
            Self::One(known) if known.is_same(entry) => *self = Self::Empty,
            Self::Empty | Self::One(_) => {}
            Self::List(list) => {
                let known = list.entries.iter().position(|known| known.is_same(entry));
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
                split.remove(entry, catalog);
                if split.length <= FEW / 2 {
                    let mut entries = Vec::new();
                    self.each(&mut |entry| entries.push(*entry));
                    *self = Self::of(entries, catalog);
                }
            }
        }
        self.grown(before)
    }

    fn grown(&self, before: usize) -> isize {
        // Numbers of positions in memory fit into an `isize`.
        self.len() as isize - before as isize
    }

    /// Number of positions of all entries. An entry has several positions in a split whose field may have several of
    /// its values.
    fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(_) => 1,
            Self::List(list) => list.entries.len(),
            Self::Split(split) => split.length,
        }
    }

    /// Visits every entry, some more than once.
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

    /// Creates an unsplit bucket from a few entries.
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
    /// Adds an entry; returns whether it is new.
    fn add(&mut self, entry: Entry, catalog: &Catalog<'_>) -> bool {
        let order = |known: &Entry| catalog.order(known, &entry);
        // Entries are mostly added in order, so the end of the list is tried first.
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

    /// Compares two entries of one candidate.
    fn cmp_way(&self, other: &Self) -> Ordering {
        let way = |entry: &Self| (entry.cover, entry.at_end, entry.verdict as u8);
        way(self).cmp(&way(other))
    }
}

impl Split {
    /// Splits by the field that leaves the fewest entries to check one by one. Returns `None` if the split would save
    /// too few checks to be worth a lookup.
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

    fn add(&mut self, entry: Entry, catalog: &Catalog<'_>) {
        self.best = self.best.min(entry.rank);
        let demands = catalog.demands(&entry);
        let change = match demands.iter().find(|demand| self.keyed.is_of(demand)) {
            Some(demand) => self.keyed.add(demand, entry, catalog),
            None => self.rest.add(entry, catalog),
        };
        self.length = self.length.strict_add_signed(change);
    }

    fn remove(&mut self, entry: &Entry, catalog: &Catalog<'_>) {
        let demands = catalog.demands(entry);
        let change = match demands.iter().find(|demand| self.keyed.is_of(demand)) {
            Some(demand) => self.keyed.remove(demand, entry, catalog),
            None => self.rest.remove(entry, catalog),
        };
        self.length = self.length.strict_add_signed(change);
    }
}

/// Estimates how many entries the router has to check for one request after such a split: those in the largest bucket,
/// and those without a condition on the field.
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

    /// Adds an entry; returns the change in the number of positions.
    fn add(&mut self, demand: &Demand, entry: Entry, catalog: &Catalog<'_>) -> isize {
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
                let mut change = 0;
                for range in ranges {
                    if buckets.get(range).is_none() {
                        lengths.add(*range);
                    }
                    change += bucket_of(buckets, *range).add(entry, catalog);
                }
                change
            }
            (Self::Grams { buckets, .. }, Demand::Grams { alternatives, .. }) => {
                let mut change = 0;
                for grams in alternatives {
                    let others = |gram: &Gram| buckets.get(gram).map_or(0, Bucket::len);
                    if let Some(rarest) = grams.iter().copied().min_by_key(others) {
                        change += bucket_of(buckets, rarest).add(entry, catalog);
                    }
                }
                change
            }
            _ => 0,
        }
    }

    /// Removes an entry; returns the change in the number of positions.
    fn remove(&mut self, demand: &Demand, entry: &Entry, catalog: &Catalog<'_>) -> isize {
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
                let mut change = 0;
                for range in ranges {
                    let before = buckets.len();
                    change += remove_from(buckets, range, entry, catalog);
                    if buckets.len() < before {
                        lengths.remove(*range);
                    }
                }
                change
            }
            (Self::Grams { buckets, .. }, Demand::Grams { alternatives, .. }) => {
                // The gram that was the rarest when the entry was added may no longer be, so all grams are tried.
                let grams = alternatives.iter().flatten();
                grams
                    .map(|gram| remove_from(buckets, gram, entry, catalog))
                    .sum()
            }
            _ => 0,
        }
    }
}

/// Returns the bucket of a value; creates it if it does not exist.
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
) -> isize {
    let Some(bucket) = buckets.get_mut(key) else {
        return 0;
    };
    let change = bucket.remove(entry, catalog);
    if bucket.is_empty() {
        buckets.remove(key);
    }
    change
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

    /// Returns the ranges that contain a value, one for each length in the map.
    pub(crate) fn around(&self, value: Range) -> impl Iterator<Item = Range> {
        let lengths = self
            .0
            .iter()
            .filter(move |(width, ..)| *width == value.width);
        lengths.map(move |(_, length, _)| value.cut(*length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::{Candidate, Memo};
    use crate::index;
    use crate::{Flavor, Options, RouteIndex, Router};
    use model::entities::{Endpoint, Route, RouteId};
    use tables::Slots;
    use testkit::random::Random;
    use uuid::Uuid;

    const FLAVOR: Flavor = Flavor::Expressions;

    /// Returns some of the values `0` to `9`, mostly none or one.
    fn some(random: &mut Random) -> Vec<usize> {
        let count = *random.pick(&[0, 0, 1, 1, 1, 3]);
        (0..count).map(|_| random.index(10)).collect()
    }

    /// Returns the candidates of routes with conditions on several fields, with one or more values each.
    fn candidates(random: &mut Random, count: u32) -> Slots<Candidate> {
        let routes = (0..count).map(|number| {
            let mut route = Route::blank(RouteId(Uuid::from_u128(number.into())));
            route.paths = vec!["/".into()];
            for name in ["x-a", "x-b"] {
                let values = some(random).into_iter();
                let values: Vec<_> = values.map(|value| format!("{value}").into()).collect();
                if !values.is_empty() {
                    route.headers.push((name.into(), values));
                }
            }
            let pattern = format!("~*^text{}(more|other{})", random.index(3), random.index(3));
            if random.one_in(3) {
                route.headers.push(("x-c".into(), vec![pattern.into()]));
            }
            let snis = some(random).into_iter();
            route.snis = snis.map(|sni| format!("{sni}.test").into()).collect();
            let sources = some(random).into_iter();
            route.sources = sources
                .map(|number| Endpoint {
                    ip: Some(format!("10.{number}.0.0/{}", 15 + number % 2).into()),
                    port: None,
                })
                .collect();
            route
        });
        let routes: Vec<_> = routes.collect();
        let options = Options {
            flavor: FLAVOR,
            ..Options::default()
        };
        let (router, errors) = Router::build((0..).map(RouteIndex).zip(&routes), options, None);
        assert!(errors.is_empty(), "{errors:?}");
        let mut slots = Slots::default();
        for (_, candidate) in router.table().iter() {
            slots.insert(candidate.clone());
        }
        slots
    }

    /// Returns an entry for each cover of each candidate.
    fn entries(slots: &Slots<Candidate>) -> Vec<Entry> {
        let of_candidate = |(slot, candidate): (u32, &Candidate)| {
            let (rank, route) = (candidate.place.rank(), candidate.route);
            let covers = index::demands(&candidate.expression, FLAVOR).len();
            (0..covers).map(move |cover| Entry {
                rank,
                slot,
                route,
                methods: u32::MAX,
                protocols: Protocols::ALL,
                cover: cover.try_into().unwrap(),
                at_end: false,
                verdict: Verdict::Open,
            })
        };
        slots.iter().flat_map(of_candidate).collect()
    }

    /// Checks the lengths of the bucket and of all buckets below it. Returns the number of splits.
    #[track_caller]
    fn check_lengths(bucket: &Bucket) -> usize {
        let mut count = 0;
        bucket.each(&mut |_| count += 1);
        assert_eq!(bucket.len(), count);
        let Bucket::Split(split) = bucket else {
            return 0;
        };
        let of_keyed: usize = match &split.keyed {
            Keyed::Texts { buckets, .. } => buckets.iter().map(|(_, one)| check_lengths(one)).sum(),
            Keyed::Ranges { buckets, .. } => {
                buckets.iter().map(|(_, one)| check_lengths(one)).sum()
            }
            Keyed::Grams { buckets, .. } => buckets.iter().map(|(_, one)| check_lengths(one)).sum(),
        };
        1 + of_keyed + check_lengths(&split.rest)
    }

    #[test]
    fn a_bucket_counts_its_positions_exactly_after_random_changes() {
        let mut most_splits = 0;
        for seed in 0..10 {
            let mut random = Random::new(seed);
            let slots = candidates(&mut random, 150);
            let catalog = Catalog {
                slots: &slots,
                flavor: FLAVOR,
                memo: &Memo::default(),
            };
            let mut out = entries(&slots);
            let mut inside = Vec::new();
            let mut bucket = Bucket::default();
            // First more entries are added than removed, then the reverse.
            for adds_of_ten in [8, 5, 2, 8, 1] {
                for _ in 0..150 {
                    let adds = random.index(10) < adds_of_ten;
                    let (from, to) = match adds {
                        true => (&mut out, &mut inside),
                        false => (&mut inside, &mut out),
                    };
                    if from.is_empty() {
                        continue;
                    }
                    let entry = from.swap_remove(random.index(from.len()));
                    to.push(entry);
                    let before = bucket.len();
                    let change = match adds {
                        true => bucket.add(entry, &catalog),
                        false => bucket.remove(&entry, &catalog),
                    };
                    assert_eq!(bucket.len(), before.strict_add_signed(change));
                    most_splits = most_splits.max(check_lengths(&bucket));
                }
            }
            for entry in inside {
                bucket.remove(&entry, &catalog);
                check_lengths(&bucket);
            }
            assert!(bucket.is_empty());
        }
        assert!(most_splits > 5, "{most_splits} splits say little");
    }
}
