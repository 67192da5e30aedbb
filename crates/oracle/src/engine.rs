//! Regexes run directly by their engines, without the router's optimizations.

use router::Flavor;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// The regexes of one dialect, compiled on first use.
pub struct Engines {
    /// Whether the regexes are in PCRE's dialect, as in the `traditional` flavor. That flavor captures groups in paths
    /// only.
    pcre: bool,
    known: HashMap<String, Engine>,
}

enum Engine {
    Linear(regex::bytes::Regex),
    Backtracking(Box<fancy_regex::Regex>),
    /// The pattern is not a valid regex.
    None,
}

pub(crate) struct Found {
    pub(crate) range: Range<usize>,
    pub(crate) groups: BTreeMap<String, Vec<u8>>,
}

impl Engines {
    pub fn new(flavor: Flavor) -> Self {
        Self {
            pcre: flavor == Flavor::Traditional,
            known: HashMap::new(),
        }
    }

    pub(crate) fn are_of_paths_only(&self) -> bool {
        self.pcre
    }

    /// Returns the first match of the pattern.
    pub(crate) fn search(&mut self, pattern: &str, text: &[u8]) -> Option<Found> {
        if !self.known.contains_key(pattern) {
            let engine = Engine::new(pattern, self.pcre);
            self.known.insert(pattern.to_owned(), engine);
        }
        self.known.get(pattern)?.search(text)
    }
}

impl Engine {
    #[expect(
        clippy::disallowed_methods,
        reason = "the oracle must not share the bounded builder that it checks, and its patterns are short"
    )]
    fn new(pattern: &str, pcre: bool) -> Self {
        if !pcre {
            let regex = regex::bytes::Regex::new(pattern);
            return regex.map_or(Self::None, Self::Linear);
        }
        let regex = fancy_regex::RegexBuilder::new(pattern)
            .bytes_mode(fancy_regex::BytesMode::Ascii)
            .backtrack_limit(10_000)
            .build();
        regex.map_or(Self::None, |regex| Self::Backtracking(Box::new(regex)))
    }

    fn search(&self, text: &[u8]) -> Option<Found> {
        match self {
            Self::Linear(regex) => {
                let found = regex.captures(text)?;
                let range = |at: usize| found.get(at).map(|group| group.range());
                Some(Found::of(text, regex.capture_names(), range))
            }
            Self::Backtracking(regex) => {
                let found = regex.captures(text).ok()??;
                let range = |at: usize| found.get(at).map(|group| group.start()..group.end());
                Some(Found::of(text, regex.capture_names(), range))
            }
            Self::None => None,
        }
    }
}

impl Found {
    fn of<'n>(
        text: &[u8],
        names: impl Iterator<Item = Option<&'n str>>,
        range: impl Fn(usize) -> Option<Range<usize>>,
    ) -> Self {
        let mut groups = BTreeMap::new();
        for (number, name) in names.enumerate().skip(1) {
            let Some(range) = range(number) else {
                continue;
            };
            groups.insert(number.to_string(), text[range.clone()].to_vec());
            if let Some(name) = name {
                groups.insert(name.to_owned(), text[range].to_vec());
            }
        }
        Self {
            range: range(0).unwrap_or(0..0),
            groups,
        }
    }
}
