//! Two regex engines behind one type. The `regex` crate runs in linear time. `fancy-regex` implements most of PCRE with
//! a limit on backtracking. Both search bytes.

use crate::bounds;
use crate::pattern::{Dialect, RegexError, TooManySteps};
use fancy_regex::BytesMode;
use regex_automata::meta;
use regex_automata::util::primitives::PatternID;
use regex_automata::util::syntax;
use regex_syntax::hir::{Class, Hir, HirKind};
use std::ops::Range;

/// Maximum size of one compiled regex in bytes. This is the default of the `regex` crate. Kong's router uses that
/// default, so both accept the same patterns. Nested repetitions of large classes exceed it.
const COMPILED_SIZE_LIMIT: usize = 10 << 20;

/// Maximum size in bytes of the search cache per regex and thread. It is an eighth of the engine's default, because
/// there may be thousands of regexes.
const CACHE_SIZE_LIMIT: usize = 256 << 10;

/// Maximum number of backtracking steps of a search. Kong's traditional router sets the same number with
/// `(*LIMIT_MATCH=10000)`.
const BACKTRACK_LIMIT: usize = 10_000;

/// Limits on searches that need backtracking.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of backtracking steps. Each may look at the whole text.
    steps: usize,
    /// Maximum length of the text.
    bytes: usize,
}

impl Limits {
    /// The limits of Kong's router.
    pub(crate) const USUAL: Self = Self {
        steps: BACKTRACK_LIMIT,
        bytes: usize::MAX,
    };

    /// Limits for texts that clients choose. A step may look at the whole text: the worst pattern that is known,
    /// `(?:(?=a*b*)a)*$`, takes 3.5 ms for a text of this length, and 14 for twice the length.
    pub(crate) const STRICT: Self = Self {
        steps: 1000,
        bytes: 2048,
    };
}

/// Maximum number of instructions of a compiled backtracking regex, including the expanded subroutine calls.
const PROGRAM_SIZE_LIMIT: usize = 100_000;

/// A pattern whose [`size_bound`] is below this number certainly compiles. The number is half the size limit, because
/// the bound covers only the automaton and not the structures derived from it.
const CERTAIN_SIZE: usize = COMPILED_SIZE_LIMIT / 2;

/// Cost in steps of starting a search.
const SEARCH: usize = 16;

#[derive(Debug)]
pub(crate) enum Engine {
    Linear(meta::Regex),
    Backtracking {
        regex: fancy_regex::Regex,
        /// Whether the regex needs backtracking at all.
        hard: bool,
        limits: Limits,
    },
}

/// A group and the range that it matched.
pub(crate) struct Located<'r> {
    pub(crate) number: usize,
    pub(crate) name: Option<&'r str>,
    pub(crate) range: Range<usize>,
}

impl Engine {
    /// Compiles the pattern if it is within [`bounds`].
    pub(crate) fn new(pattern: &str, dialect: Dialect, limits: Limits) -> Result<Self, RegexError> {
        match dialect {
            Dialect::Rust => {
                bounds::check_linear(pattern)?;
                Ok(Self::Linear(linear(pattern)?))
            }
            Dialect::Pcre => {
                // PCRE has Unicode properties in byte patterns too, `fancy-regex` only in patterns of characters.
                let compile = |mode| backtracking(pattern, mode, limits.steps);
                let (regex, hard) = compile(BytesMode::Ascii)
                    .or_else(|error| compile(BytesMode::Unicode).map_err(|_| error))?;
                Ok(Self::Backtracking {
                    regex,
                    hard,
                    limits,
                })
            }
        }
    }

    /// Approximate upper bound of the cost in steps of searching this many bytes.
    pub(crate) fn steps(&self, bytes: usize) -> usize {
        match self {
            Self::Backtracking {
                hard: true, limits, ..
            } => limits.steps + bytes,
            Self::Linear(_) | Self::Backtracking { .. } => SEARCH + bytes,
        }
    }

    /// Whether the regex matches. Fails if the search exceeds the limits on backtracking.
    pub(crate) fn search(&self, text: &[u8]) -> Result<bool, TooManySteps> {
        match self {
            Self::Linear(regex) => Ok(regex.is_match(text)),
            Self::Backtracking {
                hard: true, limits, ..
            } if text.len() > limits.bytes => Err(TooManySteps),
            Self::Backtracking { regex, .. } => regex.is_match(text).map_err(|_| TooManySteps),
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

    /// Calls `each` with every group that took part in the first match, ordered by number. The whole match is left out.
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

/// Whether the parsed pattern certainly compiles, determined without compiling it.
pub(crate) fn compiles(pattern: &Hir) -> bool {
    size_bound(pattern) < CERTAIN_SIZE
}

/// Upper bound in bytes of the size of the pattern's automaton.
fn size_bound(pattern: &Hir) -> usize {
    // Assumed size in bytes of a state with the data that it owns, and assumed number of states per character range.
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

/// Compiles like the `regex` crate, but without its one-pass DFA and its full DFA. Each of these two takes up to a
/// megabyte of memory. Together they take most of the compile time, and they were not faster in our measurements.
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

/// The error that the `regex` crate reports for the pattern. Its message shows the pattern and the position.
fn refusal(pattern: &str) -> regex::Error {
    let refused = regex::bytes::RegexBuilder::new(pattern)
        .size_limit(COMPILED_SIZE_LIMIT)
        .build();
    let too_big = regex::Error::CompiledTooBig(COMPILED_SIZE_LIMIT);
    refused.err().unwrap_or(too_big)
}

/// Checks whether PCRE accepts the pattern, as far as `fancy-regex` can tell. The pattern is tried with bytes and then
/// with characters, because PCRE allows characters and Unicode properties in byte patterns, and `fancy-regex` does not.
pub(crate) fn check_pcre(pattern: &str) -> Result<(), RegexError> {
    let compile = |mode| backtracking(pattern, mode, BACKTRACK_LIMIT);
    let of_bytes = compile(BytesMode::Ascii);
    if of_bytes.is_ok() {
        return Ok(());
    }
    compile(BytesMode::Unicode).map(drop)
}

/// Compiles a pattern of PCRE's dialect. No other function may do that, because this one checks the limits first. Also
/// returns whether the regex needs backtracking.
#[expect(clippy::disallowed_methods, reason = "this is the bounded builder")]
fn backtracking(
    pattern: &str,
    mode: BytesMode,
    steps: usize,
) -> Result<(fancy_regex::Regex, bool), RegexError> {
    bounds::check_length(pattern)?;
    let parsed = fancy_regex::Expr::parse_tree(pattern).map_err(Box::new)?;
    let hard = bounds::check_backtracking(&parsed.expr, mode == BytesMode::Unicode)?;
    let regex = fancy_regex::RegexBuilder::new(pattern)
        .bytes_mode(mode)
        .backtrack_limit(steps)
        .delegate_size_limit(COMPILED_SIZE_LIMIT)
        .delegate_dfa_size_limit(CACHE_SIZE_LIMIT)
        .max_prog_size(PROGRAM_SIZE_LIMIT)
        .build();
    Ok((regex.map_err(Box::new)?, hard))
}
