//! The index: from host, path and method of a request to the candidates it could reach, best first.
//!
//! Candidates are filed under each host that they accept (or under none), there under each path prefix, and carry the
//! set of their methods. A request looks into the places of its host, of the wildcards over it and of no host, walks the
//! tree of each along its path, and merges what it finds there by rank.

use crate::Flavor;
use crate::candidate::Candidate;
use crate::keys::{self, HostKey, Rest};
use crate::request::View;
use crate::tree::{Root, Trees};
use compact_str::CompactString;
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};

/// How many places one candidate may take. Beyond it all its paths share one, under what they have in common.
const MAX_PLACES: usize = 64;

/// The bit that stands for every method without one of its own.
const OTHER_METHODS: u32 = 1 << 31;

const ALL_METHODS: u32 = u32::MAX;

/// The number of the place for candidates without hosts.
const ANY_HOST: usize = 0;

pub(crate) struct Index {
    exact: HashMap<CompactString, Root>,
    prefixes: Wildcards,
    suffixes: Wildcards,
    any_host: Option<Root>,
    trees: Trees,
    entries: Vec<Entry>,
    methods: Methods,
}

/// A candidate in one of its places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) rank: u32,
    methods: u32,
    /// A length, or one of the constants.
    decided: u32,
}

/// What is to be done with an entry that a request led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The expression of the candidate must be asked.
    Open,
    /// The candidate matches, and located so many bytes at the start of the path if it has paths.
    Matches(Option<u32>),
}

const OPEN: u32 = u32::MAX;
const WITHOUT_PATH: u32 = u32::MAX - 1;

/// Beginnings or ends of hosts.
#[derive(Default)]
struct Wildcards {
    roots: HashMap<CompactString, Root>,
    /// The length of the longest: longer ones are not looked for, however many dots a host has.
    longest: usize,
}

/// The methods that routes name, one bit each.
#[derive(Default)]
struct Methods {
    bits: Vec<(Box<str>, u32)>,
}

/// Where a request has got to in the lists of candidates it found; reused from request to request.
#[derive(Default)]
pub(crate) struct Cursors(BinaryHeap<Reverse<Cursor>>);

/// The order is by rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    rank: u32,
    at: u32,
    end: u32,
}

/// An entry and where it is to be filed.
struct Filing<'c> {
    /// Of the hosts, numbered as they appeared.
    host: usize,
    path: &'c [u8],
    entry: Entry,
}

impl Index {
    /// Of candidates in the order of their ranks.
    pub(crate) fn build(candidates: &[Candidate], flavor: Flavor) -> Self {
        let mut methods = Methods::default();
        let mut hosts = vec![None];
        let mut filings = file(candidates, flavor, &mut hosts, &mut methods);
        filings.sort_unstable_by(|left, right| left.key().cmp(&right.key()));
        filings.dedup_by(|left, right| left.key() == right.key());

        let mut index = Self {
            exact: HashMap::new(),
            prefixes: Wildcards::default(),
            suffixes: Wildcards::default(),
            any_host: None,
            trees: Trees::default(),
            entries: filings.iter().map(|filing| filing.entry).collect(),
            methods,
        };
        let mut first = 0;
        for group in filings.chunk_by(|left, right| left.host == right.host) {
            let paths: Vec<_> = group.iter().map(|filing| filing.path).collect();
            let root = index.trees.insert(&paths, first);
            index.add_host(hosts[group[0].host].as_ref(), root);
            first += group.len();
        }
        index
    }

    fn add_host(&mut self, host: Option<&HostKey<'_>>, root: Root) {
        match host {
            Some(HostKey::Exact(host)) => {
                self.exact.insert((*host).into(), root);
            }
            Some(HostKey::Prefix(start)) => self.prefixes.insert(start, root),
            Some(HostKey::Suffix(end)) => self.suffixes.insert(end, root),
            None => self.any_host = Some(root),
        }
    }

    /// Sets the cursors to the candidates that the request could reach.
    pub(crate) fn find(&self, view: &View<'_>, cursors: &mut Cursors) -> Search {
        cursors.0.clear();
        let search = Search {
            methods: self.methods.bit(view.method()),
        };
        let mut look_into = |root: Root| {
            self.trees.prefixes_of(root, view.path(), |list| {
                if let Some(cursor) = self.next_of(list.start, list.end, search) {
                    cursors.0.push(Reverse(cursor));
                }
            });
        };
        if let Some(root) = self.any_host {
            look_into(root);
        }
        if let Some(host) = view.host() {
            if let Some(root) = lookup(&self.exact, host) {
                look_into(root);
            }
            self.prefixes.each_of(host, Side::Start, &mut look_into);
            self.suffixes.each_of(host, Side::End, &mut look_into);
        }
        search
    }

    /// The next candidate, best first. One that is filed in several places may come more than once.
    pub(crate) fn next(&self, search: Search, cursors: &mut Cursors) -> Option<Entry> {
        let mut best = cursors.0.peek_mut()?;
        let Cursor { at, end, .. } = best.0;
        match self.next_of(at + 1, end, search) {
            Some(cursor) => best.0 = cursor,
            None => {
                PeekMut::pop(best);
            }
        }
        Some(self.entries[at as usize])
    }

    fn next_of(&self, start: u32, end: u32, search: Search) -> Option<Cursor> {
        let list = &self.entries[start as usize..end as usize];
        let skipped = list
            .iter()
            .position(|entry| entry.methods & search.methods != 0)?;
        Some(Cursor {
            rank: list[skipped].rank,
            at: start + skipped as u32,
            end,
        })
    }
}

/// What of a request is asked of every entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Search {
    methods: u32,
}

fn file<'c>(
    candidates: &'c [Candidate],
    flavor: Flavor,
    hosts: &mut Vec<Option<HostKey<'c>>>,
    methods: &mut Methods,
) -> Vec<Filing<'c>> {
    let mut numbers: HashMap<HostKey<'c>, usize> = HashMap::new();
    let mut number = |key: HostKey<'c>| {
        *numbers.entry(key).or_insert_with_key(|key| {
            hosts.push(Some(*key));
            hosts.len() - 1
        })
    };
    let mut filings = Vec::with_capacity(candidates.len());
    for (rank, candidate) in (0..).zip(candidates) {
        let hosts: Vec<_> = match keys::hosts(&candidate.expression, flavor) {
            Some(keys) => keys.into_iter().map(&mut number).collect(),
            None => vec![ANY_HOST],
        };
        let mut paths = keys::paths(&candidate.expression).unwrap_or_else(|| vec![b""]);
        let methods = methods.set(keys::methods(&candidate.expression));
        let mut rest = keys::rest(&candidate.expression);
        if hosts.len() * paths.len() > MAX_PLACES {
            paths = vec![common_start(&paths)];
            rest = Rest::Open;
        }
        if methods != ALL_METHODS && methods & OTHER_METHODS != 0 {
            rest = Rest::Open;
        }
        for &host in &hosts {
            filings.extend(paths.iter().map(|&path| Filing {
                host,
                path,
                entry: Entry::new(rank, methods, rest, path),
            }));
        }
    }
    filings
}

fn lookup(roots: &HashMap<CompactString, Root>, host: &[u8]) -> Option<Root> {
    if roots.is_empty() {
        return None;
    }
    // Configured hosts are texts, so what is none cannot be among them.
    let host = std::str::from_utf8(host).ok()?;
    roots.get(host).copied()
}

impl Filing<'_> {
    fn key(&self) -> (usize, &[u8], u32) {
        (self.host, self.path, self.entry.rank)
    }
}

impl Entry {
    fn new(rank: u32, methods: u32, rest: Rest, path: &[u8]) -> Self {
        let decided = match rest {
            Rest::Open => OPEN,
            Rest::Decided { by_path: false } => WITHOUT_PATH,
            Rest::Decided { by_path: true } => u32::try_from(path.len()).unwrap_or(OPEN),
        };
        Self {
            rank,
            methods,
            decided,
        }
    }

    pub(crate) fn verdict(self) -> Verdict {
        match self.decided {
            OPEN => Verdict::Open,
            WITHOUT_PATH => Verdict::Matches(None),
            length => Verdict::Matches(Some(length)),
        }
    }
}

fn common_start<'c>(paths: &[&'c [u8]]) -> &'c [u8] {
    let Some(&first) = paths.first() else {
        return b"";
    };
    let shared = |path: &&[u8]| {
        let pairs = first.iter().zip(*path);
        pairs.take_while(|(left, right)| left == right).count()
    };
    let length = paths.iter().map(shared).min().unwrap_or(0);
    &first[..length]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Start,
    End,
}

impl Wildcards {
    fn insert(&mut self, part: &str, root: Root) {
        self.longest = self.longest.max(part.len());
        self.roots.insert(part.into(), root);
    }

    /// Wildcards begin or end at a dot, so only such parts of the host are looked up.
    fn each_of(&self, host: &[u8], side: Side, found: &mut impl FnMut(Root)) {
        if self.roots.is_empty() {
            return;
        }
        for dot in memchr::memchr_iter(b'.', host) {
            let part = match side {
                Side::Start => &host[..=dot],
                Side::End => &host[dot..],
            };
            if part.len() <= self.longest
                && let Some(root) = lookup(&self.roots, part)
            {
                found(root);
            }
        }
    }
}

impl Methods {
    fn set(&mut self, methods: Option<Vec<&str>>) -> u32 {
        let Some(methods) = methods else {
            return ALL_METHODS;
        };
        let bits = methods.iter().map(|method| self.bit_or_new(method));
        bits.fold(0, |set, bit| set | bit)
    }

    fn bit_or_new(&mut self, method: &str) -> u32 {
        let known = self.bit(method);
        let bit = 1 << self.bits.len().min(31);
        if known != OTHER_METHODS || bit == OTHER_METHODS {
            return known;
        }
        self.bits.push((method.into(), bit));
        bit
    }

    fn bit(&self, method: &str) -> u32 {
        let known = self.bits.iter().find(|(known, _)| **known == *method);
        known.map_or(OTHER_METHODS, |&(_, bit)| bit)
    }
}
