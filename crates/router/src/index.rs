//! The index finds the candidates that a request could match, and the best one that does match.
//!
//! Each host that candidates accept has a tree of path prefixes. Candidates that accept any host share one tree. The
//! [`Bucket`] of a path prefix holds the candidates with this host and prefix.
//!
//! A request looks up its host, the wildcards that match it, and the tree for any host. In each tree it collects the
//! buckets along its path. The search checks the bucket with the best candidate first. It stops when no other bucket
//! can have a better candidate than the one found.

use crate::bucket::{Bucket, Entry, Keyed, Rank, Split, Verdict};
use crate::candidate::{Candidate, Catalog};
use crate::keys::{
    self, Cover, Demand, Gram, HostKey, PathAnswer, PathKey, Protocols, Range, RangeDimension,
    Rest, Text, TextDimension,
};
use crate::tree::{Tree, Value};
use crate::work::{Budget, Marks, TooCostly, Work};
use crate::{Flavor, RouteIndex};
use expr::{Expression, Fields, Step, TextField};
use smallvec::SmallVec;
use std::ops::ControlFlow;
use std::sync::Arc;
use tables::{Map, Slots};

/// Maximum number of index positions for a cover. If there would be more, the common prefix of its paths replaces them.
const MAX_PLACES: usize = 64;

/// Maximum number of buckets that wait to be checked. Further buckets are checked as soon as they are found.
const MAX_PENDING: usize = 16;

/// The bit for all methods that have no bit of their own.
const OTHER_METHODS: u32 = 1 << 31;
const ALL_METHODS: u32 = u32::MAX;

/// Cloning is cheap, because clones share all data.
#[derive(Clone, Default)]
pub(crate) struct Index {
    exact: Map<Text, Paths>,
    prefixes: Tree<Paths>,
    /// Wildcards such as `*.test`. The keys are their ends, reversed.
    suffixes: Tree<Paths>,
    any_host: Paths,
    methods: Arc<Methods>,
}

type Paths = Tree<Bucket>;

/// The methods that routes name, one bit each.
#[derive(Debug, Clone, Default)]
struct Methods(Vec<(Box<str>, u32)>);

/// An index position and the entry to store there.
struct Filing {
    host: Option<HostKey>,
    path: Vec<Step>,
    entry: Entry,
}

/// The best candidate found so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    entry: Entry,
    pub(crate) located: Option<(u32, u32)>,
}

impl Found {
    pub(crate) fn slot(&self) -> u32 {
        self.entry.slot
    }

    pub(crate) fn route(&self) -> RouteIndex {
        self.entry.route
    }
}

impl Index {
    pub(crate) fn add(&mut self, candidate: (u32, Rank, &Expression), catalog: &Catalog<'_>) {
        let methods = Arc::make_mut(&mut self.methods);
        for filing in filings(candidate, catalog, methods) {
            let entry = filing.entry;
            self.change(&filing, &mut |bucket| {
                bucket.add(entry, catalog);
            });
        }
    }

    /// Removes a candidate, which must be unchanged since it was added.
    pub(crate) fn remove(&mut self, candidate: (u32, Rank, &Expression), catalog: &Catalog<'_>) {
        let mut methods = Methods::clone(&self.methods);
        for filing in filings(candidate, catalog, &mut methods) {
            let entry = filing.entry;
            self.change(&filing, &mut |bucket| {
                bucket.remove(&entry, catalog);
            });
        }
    }

    fn change(&mut self, filing: &Filing, change: &mut dyn FnMut(&mut Bucket)) {
        let mut at_path = |paths: &mut Paths| paths.change(&filing.path, &mut *change);
        match &filing.host {
            None => at_path(&mut self.any_host),
            Some(HostKey::Exact(host)) => {
                let host = host.as_bytes();
                if self.exact.get(host).is_none() {
                    self.exact.insert(host.into(), Paths::default());
                }
                if let Some(paths) = self.exact.get_mut(host) {
                    at_path(paths);
                    if paths.is_empty() {
                        self.exact.remove(host);
                    }
                }
            }
            Some(HostKey::Prefix(start)) => {
                let key = [Step::Literal(start.as_bytes().into())];
                self.prefixes.change(&key, at_path);
            }
            Some(HostKey::Suffix(end)) => {
                let reversed: Vec<u8> = end.bytes().rev().collect();
                let key = [Step::Literal(reversed.into())];
                self.suffixes.change(&key, at_path);
            }
        }
    }

    /// Returns the best candidate that matches.
    pub(crate) fn find<F: Fields>(
        &self,
        fields: &F,
        candidates: &Slots<Candidate>,
        work: &mut Work,
    ) -> Result<Option<Found>, TooCostly> {
        let mut search = Search::new(self, fields, candidates, work);
        let path = search.path;
        let budget = search.budget;
        self.each_paths(fields, budget, &mut |paths| {
            paths.walk(path, budget, &mut |bucket, at| search.add(bucket, at));
        });
        search.ask_pending();
        if budget.is_exhausted() {
            Err(TooCostly)
        } else {
            Ok(search.best)
        }
    }

    /// Visits every candidate that the index finds for the request, in no particular order and some more than once.
    pub(crate) fn reach<F: Fields>(&self, fields: &F, work: &mut Work, visit: &mut dyn FnMut(u32)) {
        let path = fields.text(&TextField::Path).unwrap_or_default();
        let budget = Budget::default();
        self.each_paths(fields, &budget, &mut |paths| {
            paths.walk(path, &budget, &mut |bucket, _| {
                reach(bucket, fields, work, visit);
            });
        });
    }

    fn each_paths<'i, F: Fields>(
        &'i self,
        fields: &F,
        budget: &Budget,
        visit: &mut impl FnMut(&'i Paths),
    ) {
        visit(&self.any_host);
        let Some(host) = fields.text(&TextField::Host) else {
            return;
        };
        if let Some(paths) = self.exact.get(host) {
            visit(paths);
        }
        self.prefixes
            .walk(host, budget, &mut |paths, _| visit(paths));
        self.suffixes.walk_back(host, visit);
    }
}

fn reach<F: Fields>(bucket: &Bucket, fields: &F, work: &mut Work, visit: &mut dyn FnMut(u32)) {
    match bucket {
        Bucket::Empty => {}
        Bucket::One(entry) => visit(entry.slot),
        Bucket::List(list) => list.entries.iter().for_each(|entry| visit(entry.slot)),
        Bucket::Split(split) => {
            let mut below: Vec<&Bucket> = vec![&split.rest];
            let Work {
                lowered,
                grams,
                budget,
                ..
            } = &mut *work;
            budget.refill();
            split.each_bucket(fields, (lowered, grams, budget), &mut |bucket| {
                below.push(bucket);
            });
            for bucket in below {
                reach(bucket, fields, work, visit);
            }
        }
    }
}

impl Split {
    /// Calls `visit` with the buckets for the request's values of the field.
    fn each_bucket<'s, F: Fields>(
        &'s self,
        fields: &F,
        (lowered, grams, budget): (&mut Vec<u8>, &mut Vec<Gram>, &Budget),
        visit: &mut impl FnMut(&'s Bucket),
    ) {
        match &self.keyed {
            Keyed::Texts { of, buckets } => of.each_value(fields, lowered, &mut |value| {
                if budget.spend(1 + value.len())
                    && let Some(bucket) = buckets.get(value)
                {
                    visit(bucket);
                }
            }),
            Keyed::Grams { of, buckets } => {
                grams.clear();
                of.each_value(fields, lowered, &mut |value| {
                    if budget.spend(1 + value.len()) {
                        let own = value.windows(3).filter_map(|gram| gram.try_into().ok());
                        grams.extend(own.filter(|gram: &Gram| buckets.get(gram).is_some()));
                    }
                });
                // Values may contain the same gram several times.
                grams.sort_unstable();
                grams.dedup();
                let found = grams.iter().filter_map(|gram| buckets.get(gram));
                found.for_each(visit);
            }
            Keyed::Ranges {
                of,
                lengths,
                buckets,
            } => {
                let value = match of {
                    RangeDimension::Address(field) => fields.address(*field).map(Range::of_address),
                    RangeDimension::Number(field) => fields.number(*field).map(Range::of_number),
                };
                let around = value.into_iter().flat_map(|value| lengths.around(value));
                for bucket in around.filter_map(|range| buckets.get(&range)) {
                    visit(bucket);
                }
            }
        }
    }
}

impl TextDimension {
    /// Calls `visit` with the request's values of the field, transformed for comparison.
    fn each_value<F: Fields>(
        &self,
        fields: &F,
        lowered: &mut Vec<u8>,
        visit: &mut impl FnMut(&[u8]),
    ) {
        if self.field.has_several_values() {
            fields.texts(&self.field, &mut |value| {
                visit(self.transform.apply(value, lowered));
                ControlFlow::Continue(())
            });
        } else if let Some(value) = fields.text(&self.field) {
            visit(self.transform.apply(value, lowered));
        }
    }
}

/// The search for one request.
struct Search<'s, 'i, F> {
    fields: &'s F,
    candidates: &'s Slots<Candidate>,
    lowered: &'s mut Vec<u8>,
    grams: &'s mut Vec<Gram>,
    /// The candidates whose expressions were already evaluated.
    asked: &'s mut Marks,
    budget: &'s Budget,
    path: &'s [u8],
    is_ascii: bool,
    methods: u32,
    protocols: Protocols,
    best: Option<Found>,
    /// Buckets that wait to be checked, each with the number of path bytes that its key matched. On the stack, so that
    /// matching does not allocate.
    pending: SmallVec<[(&'i Bucket, u32); MAX_PENDING]>,
}

impl<'s, 'i, F: Fields> Search<'s, 'i, F> {
    fn new(
        index: &Index,
        fields: &'s F,
        candidates: &'s Slots<Candidate>,
        work: &'s mut Work,
    ) -> Self {
        let path = fields.text(&TextField::Path).unwrap_or_default();
        Self {
            methods: fields
                .text(&TextField::Method)
                .map_or(ALL_METHODS, |method| index.methods.bit(method)),
            protocols: fields
                .text(&TextField::Protocol)
                .map_or(Protocols::ALL, Protocols::of),
            fields,
            candidates,
            lowered: &mut work.lowered,
            grams: &mut work.grams,
            asked: &mut work.asked,
            budget: &work.budget,
            path,
            is_ascii: path.is_ascii(),
            best: None,
            pending: SmallVec::new(),
        }
    }

    fn add(&mut self, bucket: &'i Bucket, at: usize) {
        // Paths are shorter than 4 GiB, because they must fit into a request head.
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        if self.pending.len() == MAX_PENDING {
            self.ask(bucket, at);
        } else if !bucket.is_empty() {
            self.pending.push((bucket, at));
        }
    }

    /// Checks the waiting buckets, always the one with the best candidate first, so that most of the others can be
    /// skipped.
    fn ask_pending(&mut self) {
        while !self.pending.is_empty() {
            let ranks = self.pending.iter().map(|(bucket, _)| bucket.best());
            let best = ranks.enumerate().min_by_key(|(_, rank)| *rank);
            let Some((place, _)) = best else {
                return;
            };
            let (bucket, at) = self.pending.swap_remove(place);
            self.ask(bucket, at);
        }
    }

    fn ask(&mut self, bucket: &'i Bucket, at: u32) {
        if let (Some(found), Some(best)) = (&self.best, bucket.best())
            && found.entry.rank < best
        {
            return;
        }
        if !self.budget.spend(1) {
            return;
        }
        match bucket {
            Bucket::Empty => {}
            Bucket::One(entry) => {
                let _ = self.ask_entry(entry, at);
            }
            Bucket::List(list) => {
                if !list.protocols.intersects(self.protocols) {
                    return;
                }
                let _ = list
                    .entries
                    .iter()
                    .try_for_each(|entry| self.ask_entry(entry, at));
            }
            Bucket::Split(split) => self.ask_split(split, at),
        }
    }

    fn ask_split(&mut self, split: &'i Split, at: u32) {
        let Self {
            fields,
            lowered,
            grams,
            budget,
            pending,
            ..
        } = self;
        let mut crowded: SmallVec<[&'i Bucket; MAX_PENDING]> = SmallVec::new();
        let mut add = |bucket: &'i Bucket| {
            if pending.len() < MAX_PENDING {
                pending.push((bucket, at));
            } else {
                crowded.push(bucket);
            }
        };
        split.each_bucket(*fields, (lowered, grams, budget), &mut add);
        if !split.rest.is_empty() {
            add(&split.rest);
        }
        for bucket in crowded {
            self.ask(bucket, at);
        }
    }

    /// Checks an entry; breaks when no later entry of the list can be better.
    fn ask_entry(&mut self, entry: &Entry, at: u32) -> ControlFlow<()> {
        if self
            .best
            .as_ref()
            .is_some_and(|found| !self.is_better(entry, found))
        {
            return ControlFlow::Break(());
        }
        if !self.budget.spend(1) {
            return ControlFlow::Break(());
        }
        if entry.methods & self.methods == 0
            || !entry.protocols.intersects(self.protocols)
            || entry.at_end && at as usize != self.path.len()
        {
            return ControlFlow::Continue(());
        }
        let located = match entry.verdict {
            Verdict::Matches => Some(None),
            Verdict::MatchesPath => Some(Some((0, at))),
            Verdict::MatchesAsciiPath if self.is_ascii => Some(Some((0, at))),
            Verdict::Open | Verdict::MatchesAsciiPath => {
                // A request may reach the same candidate at several index positions.
                if !self.asked.insert(entry.slot) {
                    return ControlFlow::Continue(());
                }
                let candidate = self.candidates.get(entry.slot);
                candidate.ask(self.fields, self.lowered, self.budget)
            }
        };
        match located {
            Some(located) => {
                self.best = Some(Found {
                    entry: *entry,
                    located,
                });
                ControlFlow::Break(())
            }
            None => ControlFlow::Continue(()),
        }
    }

    fn is_better(&self, entry: &Entry, found: &Found) -> bool {
        let order = entry.rank.cmp(&found.entry.rank);
        let place = |slot| self.candidates.get(slot);
        order
            .then_with(|| place(entry.slot).cmp_place(place(found.entry.slot)))
            .is_lt()
    }
}

/// Returns all index positions of a candidate.
fn filings(
    (slot, rank, expression): (u32, Rank, &Expression),
    catalog: &Catalog<'_>,
    methods: &mut Methods,
) -> Vec<Filing> {
    let route = catalog.slots.get(slot).route;
    let covers = keys::covers(expression, catalog.flavor);
    let rest = match covers.len() {
        1 => keys::rest(expression),
        _ => Rest::Open,
    };
    let mut filings = Vec::new();
    for (number, cover) in (0..).zip(covers) {
        let entry = Entry {
            rank,
            slot,
            route,
            methods: methods.set(cover.methods.as_deref()),
            protocols: cover.protocols,
            cover: number,
            at_end: false,
            verdict: Verdict::Open,
        };
        file(cover, entry, rest, &mut filings);
    }
    filings
}

fn file(cover: Cover, entry: Entry, rest: Rest, filings: &mut Vec<Filing>) {
    let hosts = match cover.hosts {
        Some(hosts) => hosts.into_iter().map(Some).collect(),
        None => vec![None],
    };
    let mut paths = cover.paths.unwrap_or_else(|| vec![PathKey::anything()]);
    if hosts.len() * paths.len() > MAX_PLACES && paths.len() > 1 {
        paths = vec![PathKey::common(&paths)];
    }
    // Methods without a bit of their own share one, so an entry with this bit may have another method than the request.
    let is_exact = entry.methods == ALL_METHODS || entry.methods & OTHER_METHODS == 0;
    for path in &paths {
        let verdict = match (rest, path.answer) {
            _ if !is_exact => Verdict::Open,
            (Rest::Open, _) | (Rest::AsPath, PathAnswer::Open) => Verdict::Open,
            (Rest::Decided, _) => Verdict::Matches,
            (Rest::AsPath, PathAnswer::Decided) => Verdict::MatchesPath,
            (Rest::AsPath, PathAnswer::DecidedInAscii) => Verdict::MatchesAsciiPath,
        };
        filings.extend(hosts.iter().map(|host| Filing {
            host: host.clone(),
            path: path.steps.clone(),
            entry: Entry {
                at_end: path.at_end,
                verdict,
                ..entry
            },
        }));
    }
}

/// Returns the conditions of each cover of a candidate, beyond its index position.
pub(crate) fn demands(expression: &Expression, flavor: Flavor) -> Vec<Vec<Demand>> {
    let covers = keys::covers(expression, flavor).into_iter();
    covers.map(|cover| cover.demands).collect()
}

impl Methods {
    fn set(&mut self, methods: Option<&[Box<str>]>) -> u32 {
        let Some(methods) = methods else {
            return ALL_METHODS;
        };
        let bits = methods.iter().map(|method| self.bit_or_new(method));
        bits.fold(0, |set, bit| set | bit)
    }

    fn bit_or_new(&mut self, method: &str) -> u32 {
        let known = self.bit(method.as_bytes());
        let bit = 1 << self.0.len().min(31);
        if known != OTHER_METHODS || bit == OTHER_METHODS {
            return known;
        }
        self.0.push((method.into(), bit));
        bit
    }

    fn bit(&self, method: &[u8]) -> u32 {
        let known = self.0.iter().find(|(known, _)| known.as_bytes() == method);
        known.map_or(OTHER_METHODS, |&(_, bit)| bit)
    }
}
