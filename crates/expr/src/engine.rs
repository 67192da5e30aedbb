//! The two regex engines behind one type: that of the `regex` crate, which runs in linear time, and PCRE's as far as
//! `fancy-regex` knows it, with a limit on backtracking. Both search bytes.

use crate::bounds;
use crate::pattern::{Dialect, RegexError};
use fancy_regex::BytesMode;
use regex_automata::meta;
use regex_automata::util::primitives::PatternID;
use regex_automata::util::syntax;
use regex_syntax::hir::{Class, Hir, HirKind};
use std::ops::Range;

/// What one compiled regex may take: the `regex` crate's own default, which Kong's router runs with, so that a pattern
/// is accepted here exactly if it is there. Repeated repetitions of large classes run into it.
const COMPILED_SIZE_LIMIT: usize = 10 << 20;

/// What searching with one regex may keep in memory per thread. An eighth of the default: there may be thousands.
const CACHE_SIZE_LIMIT: usize = 256 << 10;

/// Kong's `LIMIT_MATCH`.
const BACKTRACK_LIMIT: usize = 10_000;

/// How many instructions a backtracking regex may become, since its subroutine calls are written out in place.
const PROGRAM_SIZE_LIMIT: usize = 100_000;

/// What [`size_bound`] of a pattern must stay below for it to be certain that it compiles. Well below the limit, since
/// the bound is of the automaton, and not of what is made of it.
const CERTAIN_SIZE: usize = COMPILED_SIZE_LIMIT / 2;

/// The steps that beginning a search takes.
const SEARCH: usize = 16;

#[derive(Debug)]
pub(crate) enum Engine {
    Linear(meta::Regex),
    Backtracking {
        regex: fancy_regex::Regex,
        /// Whether it needs backtracking at all.
        hard: bool,
    },
}

/// A group and where it was found.
pub(crate) struct Located<'r> {
    pub(crate) number: usize,
    pub(crate) name: Option<&'r str>,
    pub(crate) range: Range<usize>,
}

impl Engine {
    /// Compiles the pattern within [`bounds`].
    pub(crate) fn new(pattern: &str, dialect: Dialect) -> Result<Self, RegexError> {
        match dialect {
            Dialect::Rust => {
                bounds::check_linear(pattern)?;
                Ok(Self::Linear(linear(pattern)?))
            }
            Dialect::Pcre => {
                let (regex, hard) = backtracking(pattern, BytesMode::Ascii)?;
                Ok(Self::Backtracking { regex, hard })
            }
        }
    }

    /// How many steps a search in so many bytes takes at most, about.
    pub(crate) fn steps(&self, bytes: usize) -> usize {
        match self {
            Self::Backtracking { hard: true, .. } => BACKTRACK_LIMIT + bytes,
            Self::Linear(_) | Self::Backtracking { .. } => SEARCH + bytes,
        }
    }

    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        match self {
            Self::Linear(regex) => regex.is_match(text),
            // A search that was given up found nothing, as in Kong.
            Self::Backtracking { regex, .. } => regex.is_match(text).unwrap_or(false),
        }
    }

    pub(crate) fn find(&self, text: &[u8]) -> Option<Range<usize>> {
        match self {
            Self::Linear(regex) => regex.find(text).map(|found| found.range()),
            Self::Backtracking { regex, .. } => {
                let found = regex.find(text).ok().flatten();
                found.map(|found| found.start()..found.end())
            }
        }
    }

    pub(crate) fn has_groups(&self) -> bool {
        let count = match self {
            Self::Linear(regex) => regex.captures_len(),
            Self::Backtracking { regex, .. } => regex.captures_len(),
        };
        count > 1
    }

    /// Calls `each` with every group that took part in the first match, in the order of their numbers and without the
    /// whole match.
    pub(crate) fn captures(&self, text: &[u8], each: &mut dyn FnMut(Located<'_>)) {
        match self {
            Self::Linear(regex) => {
                let mut found = regex.create_captures();
                regex.captures(text, &mut found);
                let names = found.group_info().pattern_names(PatternID::ZERO);
                for (number, name) in names.enumerate().skip(1) {
                    if let Some(group) = found.get_group(number) {
                        let range = group.range();
                        each(Located {
                            number,
                            name,
                            range,
                        });
                    }
                }
            }
            Self::Backtracking { regex, .. } => {
                let Some(found) = regex.captures(text).ok().flatten() else {
                    return;
                };
                for (number, name) in regex.capture_names().enumerate().skip(1) {
                    if let Some(group) = found.get(number) {
                        let range = group.start()..group.end();
                        each(Located {
                            number,
                            name,
                            range,
                        });
                    }
                }
            }
        }
    }
}

/// Whether it is certain, without trying, that the parsed pattern can be compiled.
pub(crate) fn compiles(pattern: &Hir) -> bool {
    size_bound(pattern) < CERTAIN_SIZE
}

/// More bytes than an automaton for the pattern takes.
fn size_bound(pattern: &Hir) -> usize {
    // A state with what it may own, and the sequences of bytes that a range of characters becomes at most.
    const STATE: usize = 128;
    const SEQUENCES: usize = 4;
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => STATE,
        HirKind::Literal(literal) => literal.0.len() * STATE,
        HirKind::Class(Class::Unicode(class)) => (1 + class.ranges().len()) * SEQUENCES * STATE,
        HirKind::Class(Class::Bytes(class)) => (1 + class.ranges().len()) * STATE,
        HirKind::Capture(group) => size_bound(&group.sub) + 2 * STATE,
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            let parts = parts.iter().map(size_bound);
            parts.fold(STATE, usize::saturating_add)
        }
        HirKind::Repetition(repetition) => {
            let copies = repetition.max.unwrap_or(repetition.min.saturating_add(1));
            let one = size_bound(&repetition.sub).saturating_add(STATE);
            one.saturating_mul(copies as usize).saturating_add(STATE)
        }
    }
}

/// As the `regex` crate's own, but for two of its engines: they take up to a megabyte of memory each and most of the
/// time to compile, and were not faster here.
fn linear(pattern: &str) -> Result<meta::Regex, regex::Error> {
    let settings = meta::Config::new()
        .utf8_empty(false)
        .nfa_size_limit(Some(COMPILED_SIZE_LIMIT))
        .hybrid_cache_capacity(CACHE_SIZE_LIMIT)
        .onepass(false)
        .dfa(false);
    let built = meta::Builder::new()
        .syntax(syntax::Config::new().utf8(false))
        .configure(settings)
        .build(pattern);
    built.map_err(|_| refusal(pattern))
}

/// The words in which the `regex` crate refuses the pattern.
fn refusal(pattern: &str) -> regex::Error {
    let refused = regex::bytes::RegexBuilder::new(pattern)
        .size_limit(COMPILED_SIZE_LIMIT)
        .build();
    let too_big = regex::Error::CompiledTooBig(COMPILED_SIZE_LIMIT);
    refused.err().unwrap_or(too_big)
}

/// Whether PCRE takes the pattern, as far as that is known: as one of bytes or as one of characters, since PCRE takes
/// characters and Unicode's properties in its patterns of bytes too, which `fancy-regex` does not.
pub(crate) fn check_pcre(pattern: &str) -> Result<(), RegexError> {
    let of_bytes = backtracking(pattern, BytesMode::Ascii);
    if of_bytes.is_ok() {
        return Ok(());
    }
    backtracking(pattern, BytesMode::Unicode).map(drop)
}

/// The only place where PCRE's dialect is compiled. Says whether the regex needs backtracking.
#[expect(clippy::disallowed_methods, reason = "this is the bounded builder")]
fn backtracking(pattern: &str, mode: BytesMode) -> Result<(fancy_regex::Regex, bool), RegexError> {
    bounds::check_length(pattern)?;
    let parsed = fancy_regex::Expr::parse_tree(pattern).map_err(Box::new)?;
    let hard = bounds::check_backtracking(&parsed.expr, mode == BytesMode::Unicode)?;
    let regex = fancy_regex::RegexBuilder::new(pattern)
        .bytes_mode(mode)
        .backtrack_limit(BACKTRACK_LIMIT)
        .delegate_size_limit(COMPILED_SIZE_LIMIT)
        .delegate_dfa_size_limit(CACHE_SIZE_LIMIT)
        .max_prog_size(PROGRAM_SIZE_LIMIT)
        .build();
    Ok((regex.map_err(Box::new)?, hard))
}
