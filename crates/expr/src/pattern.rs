//! Regexes of both dialects behind one type: the `regex` crate's, which runs in linear time, and PCRE's as far as
//! `fancy-regex` knows it, with a limit on backtracking. Both search bytes.

use crate::plain;
use crate::prefix;
use crate::starts::Starts;
use crate::steps::{Step, Steps};
use regex_syntax::hir::Hir;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// What one compiled regex may take: the `regex` crate's own default, which Kong's router runs with, so that a pattern
/// is accepted here exactly if it is there. Repeated repetitions of large classes run into it.
const COMPILED_SIZE_LIMIT: usize = 10 << 20;

/// What searching with one regex may keep in memory per thread. An eighth of the default: there may be thousands.
const CACHE_SIZE_LIMIT: usize = 256 << 10;

/// Kong's `LIMIT_MATCH`.
const BACKTRACK_LIMIT: usize = 10_000;

/// How many instructions a backtracking regex may become, since its subroutine calls are written out in place.
const PROGRAM_SIZE_LIMIT: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The `regex` crate's: classes are Unicode's; no look-around, no back-references.
    Rust,
    /// As PCRE without its UTF mode: `.` is a byte and classes are ASCII's.
    Pcre,
}

/// A compiled regex, cheap to clone.
#[derive(Clone)]
pub struct Regex(Arc<Inner>);

struct Inner {
    pattern: Box<str>,
    engine: Engine,
    starts: Starts,
}

enum Engine {
    Linear(regex::bytes::Regex),
    Backtracking(fancy_regex::Regex),
}

/// A group that took part in a match. Named ones have a number too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group<'r> {
    Number(usize),
    Name(&'r str),
}

#[derive(Debug, thiserror::Error)]
pub enum RegexError {
    #[error(transparent)]
    Rust(#[from] regex::Error),
    #[error(transparent)]
    Pcre(#[from] Box<fancy_regex::Error>),
}

impl Regex {
    pub fn new(pattern: &str, dialect: Dialect) -> Result<Self, RegexError> {
        let engine = match dialect {
            Dialect::Rust => Engine::Linear(linear(pattern)?),
            Dialect::Pcre => Engine::Backtracking(backtracking(pattern).map_err(Box::new)?),
        };
        let starts = match parsed(pattern, dialect) {
            Some(parsed) => Starts::of(&parsed, dialect == Dialect::Rust),
            None => Starts::literal(prefix::of_pcre(pattern)),
        };
        Ok(Self(Arc::new(Inner {
            pattern: pattern.into(),
            engine,
            starts,
        })))
    }

    pub fn pattern(&self) -> &str {
        &self.0.pattern
    }

    /// With which steps a text begins that the regex is found in: at least one of these can be walked then, in texts of
    /// any bytes. At least one and at most eight, in the order in which a search prefers them; a single one without
    /// steps when nothing is known. Where all are whole and the text is ASCII, the regex is found if one can be walked,
    /// and what is found is what the first of those walks.
    pub fn starts(&self) -> &[Steps] {
        &self.0.starts.alternatives
    }

    /// Bytes with which every text begins that the regex can be found in; empty when none are known.
    pub fn prefix(&self) -> &[u8] {
        let mut literals = self.starts().iter().map(|steps| match steps.steps() {
            [Step::Literal(literal), ..] => &**literal,
            _ => &[],
        });
        let first = literals.next().unwrap_or_default();
        literals.fold(first, |common, literal| {
            let pairs = common.iter().zip(literal);
            &common[..pairs.take_while(|(own, other)| own == other).count()]
        })
    }

    pub fn is_match(&self, text: &[u8]) -> bool {
        match &self.0.engine {
            Engine::Linear(regex) => regex.is_match(text),
            // A search that was given up found nothing, as in Kong.
            Engine::Backtracking(regex) => regex.is_match(text).unwrap_or(false),
        }
    }

    /// Where the regex is found first.
    pub fn find(&self, text: &[u8]) -> Option<Range<usize>> {
        match &self.0.engine {
            Engine::Linear(regex) => regex.find(text).map(|found| found.range()),
            Engine::Backtracking(regex) => {
                let found = regex.find(text).ok().flatten();
                found.map(|found| found.start()..found.end())
            }
        }
    }

    /// Whether it has groups besides the whole match.
    pub fn has_groups(&self) -> bool {
        let count = match &self.0.engine {
            Engine::Linear(regex) => regex.captures_len(),
            Engine::Backtracking(regex) => regex.captures_len(),
        };
        count > 1
    }

    /// Calls `each` with the groups that took part in the first match, by number and again by name if they have one. The
    /// whole match is left out.
    pub fn captures<'t>(&self, text: &'t [u8], each: &mut dyn FnMut(Group<'_>, &'t [u8])) {
        match &self.0.engine {
            Engine::Linear(regex) => {
                let Some(found) = regex.captures(text) else {
                    return;
                };
                let group = |number| found.get(number).map(|group| group.range());
                groups(text, regex.capture_names(), group, each);
            }
            Engine::Backtracking(regex) => {
                let Some(found) = regex.captures(text).ok().flatten() else {
                    return;
                };
                let group = |number| found.get(number).map(|group| group.start()..group.end());
                groups(text, regex.capture_names(), group, each);
            }
        }
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "~ {:?}", self.pattern())
    }
}

fn groups<'t, 'r>(
    text: &'t [u8],
    names: impl Iterator<Item = Option<&'r str>>,
    group: impl Fn(usize) -> Option<Range<usize>>,
    each: &mut dyn FnMut(Group<'_>, &'t [u8]),
) {
    for (number, name) in names.enumerate().skip(1) {
        let Some(range) = group(number) else {
            continue;
        };
        each(Group::Number(number), &text[range.clone()]);
        if let Some(name) = name {
            each(Group::Name(name), &text[range]);
        }
    }
}

fn linear(pattern: &str) -> Result<regex::bytes::Regex, regex::Error> {
    regex::bytes::RegexBuilder::new(pattern)
        .size_limit(COMPILED_SIZE_LIMIT)
        .dfa_size_limit(CACHE_SIZE_LIMIT)
        .build()
}

fn backtracking(pattern: &str) -> Result<fancy_regex::Regex, fancy_regex::Error> {
    fancy_regex::RegexBuilder::new(pattern)
        .bytes_mode(fancy_regex::BytesMode::Ascii)
        .backtrack_limit(BACKTRACK_LIMIT)
        .delegate_size_limit(COMPILED_SIZE_LIMIT)
        .delegate_dfa_size_limit(CACHE_SIZE_LIMIT)
        .max_prog_size(PROGRAM_SIZE_LIMIT)
        .build()
}

/// What the pattern means in terms of `regex-syntax`; None if that is not known.
fn parsed(pattern: &str, dialect: Dialect) -> Option<Hir> {
    let unicode = match dialect {
        Dialect::Rust => true,
        Dialect::Pcre if plain::is_plain(pattern) => false,
        Dialect::Pcre => return None,
    };
    let mut parser = regex_syntax::ParserBuilder::new();
    parser.utf8(false).unicode(unicode);
    parser.build().parse(pattern).ok()
}
