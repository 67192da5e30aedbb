//! Regexes of both dialects behind one type. The [`Steps`] of a regex describe how every matching text begins. For most
//! regexes on paths, the steps describe the whole regex. No engine is built for those.

use crate::bounds::{self, TooComplex};
use crate::engine::{self, Engine, Limits, Located};
use crate::plain;
use crate::starts::{MAX_STEPS, Position, Starts};
use crate::steps::{Step, Steps};
use crate::{literals, prefix};
use regex_syntax::hir::{Hir, HirKind};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The dialect of the `regex` crate: classes are Unicode, look-around and back-references are not supported.
    Rust,
    /// PCRE without its UTF mode: `.` matches a byte and classes are ASCII.
    Pcre,
}

/// A compiled regex, cheap to clone.
#[derive(Clone)]
pub struct Regex(Arc<Inner>);

struct Inner {
    pattern: Box<str>,
    starts: Starts,
    /// Literals that every match contains. Empty if the steps describe the whole regex.
    literals: Box<[Box<[u8]>]>,
    matcher: Matcher,
}

/// Runs the searches. The matcher is created together with the regex, so that no search has to compile an engine or
/// wait until another thread has compiled it.
enum Matcher {
    /// The steps, if they describe the whole regex.
    Steps {
        /// Positions of the group names in the pattern, beginning with group 1.
        names: Box<[Name]>,
    },
    Engine(Box<Engine>),
}

/// Position of a group name in the pattern. The length is 0 for a group without a name.
#[derive(Clone, Copy, Default)]
struct Name {
    start: u16,
    length: u16,
}

/// A group that took part in a match. A named group is reported by number and by name.
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
    #[error(transparent)]
    TooComplex(#[from] TooComplex),
}

/// A search was stopped because it needs more backtracking than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the regex needs too many steps for this text")]
pub struct TooManySteps;

impl Regex {
    /// Compiles the pattern. Fails if that could exceed the limits on work and memory.
    pub fn new(pattern: &str, dialect: Dialect) -> Result<Self, RegexError> {
        Self::with_limits(pattern, dialect, Limits::USUAL)
    }

    /// Compiles a pattern of PCRE's dialect for texts that clients choose. If it needs backtracking, [`Self::search`] fails
    /// for texts of more than 2 KiB and after 1,000 steps, so that it takes a few milliseconds at most.
    pub fn strict(pattern: &str) -> Result<Self, RegexError> {
        Self::with_limits(pattern, Dialect::Pcre, Limits::STRICT)
    }

    fn with_limits(pattern: &str, dialect: Dialect, limits: Limits) -> Result<Self, RegexError> {
        match dialect {
            Dialect::Rust => bounds::check_linear(pattern)?,
            Dialect::Pcre => bounds::check_length(pattern)?,
        }
        let parsed = parsed(pattern, dialect);
        let starts = match &parsed {
            Some(parsed) => Starts::of(parsed, dialect == Dialect::Rust),
            None => Starts::literal(prefix::of_pcre(pattern)),
        };
        let literals = match &parsed {
            Some(parsed) if !starts.is_whole() => literals::required(parsed),
            _ => Box::default(),
        };
        let is_known = |parsed: &Hir| starts.is_whole() && starts.exact && engine::compiles(parsed);
        let known = parsed.filter(is_known);
        let matcher = match known.and_then(|parsed| names(pattern, &parsed)) {
            Some(names) => Matcher::Steps { names },
            None => Matcher::Engine(Box::new(Engine::new(pattern, dialect, limits)?)),
        };
        Ok(Self(Arc::new(Inner {
            pattern: pattern.into(),
            starts,
            literals,
            matcher,
        })))
    }

    pub fn pattern(&self) -> &str {
        &self.0.pattern
    }

    /// Between one and eight alternatives, ordered as a search prefers them. If the regex matches a text,
    /// [`Steps::walk`] succeeds for at least one of them, even if the text is not ASCII. If nothing is known about the
    /// regex, there is one alternative without steps.
    ///
    /// If all alternatives are whole and the text is ASCII, the reverse is true too: the regex matches if the walk of
    /// any alternative succeeds. The match is then the range of the first successful walk.
    pub fn starts(&self) -> &[Steps] {
        &self.0.starts.alternatives
    }

    /// Literals that every match contains; empty if [`Self::starts`] describes the whole regex.
    pub fn literals(&self) -> &[Box<[u8]>] {
        &self.0.literals
    }

    /// The longest known prefix of all texts that the regex matches. It may be empty.
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

    /// Approximate upper bound of the cost in steps of searching this many bytes. A byte costs about one step, or many
    /// more if the regex needs backtracking.
    pub fn steps(&self, bytes: usize) -> usize {
        match &self.0.matcher {
            Matcher::Steps { .. } => self.starts().len() + bytes,
            Matcher::Engine(engine) => engine.steps(bytes),
        }
    }

    /// Whether the regex matches. A search that exceeds the backtracking limit counts as no match, as in Kong's router.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.search(text).unwrap_or(false)
    }

    /// Whether the regex matches. Fails if the search exceeds the backtracking limit, for callers that must not take that
    /// for "no match".
    pub fn search(&self, text: &[u8]) -> Result<bool, TooManySteps> {
        match &self.0.matcher {
            Matcher::Steps { .. } => Ok(self.walk(text).is_some()),
            Matcher::Engine(engine) => engine.search(text),
        }
    }

    /// The range of the first match.
    pub fn find(&self, text: &[u8]) -> Option<Range<usize>> {
        match &self.0.matcher {
            Matcher::Steps { .. } => self.walk(text).map(|(_, end)| 0..end),
            Matcher::Engine(engine) => engine.find(text),
        }
    }

    /// Whether the regex has groups in addition to the whole match.
    pub fn has_groups(&self) -> bool {
        match &self.0.matcher {
            Matcher::Steps { names } => !names.is_empty(),
            Matcher::Engine(engine) => engine.has_groups(),
        }
    }

    /// Calls `each` with the groups that took part in the first match. A named group is reported by number and again by
    /// name. The whole match is left out.
    pub fn captures<'t>(&self, text: &'t [u8], each: &mut dyn FnMut(Group<'_>, &'t [u8])) {
        let mut each = |located: Located<'_>| {
            let value = &text[located.range];
            each(Group::Number(located.number), value);
            if let Some(name) = located.name {
                each(Group::Name(name), value);
            }
        };
        match &self.0.matcher {
            Matcher::Steps { names } => {
                if let Some((alternative, _)) = self.walk(text) {
                    self.walked_groups(alternative, names, text, &mut each);
                }
            }
            Matcher::Engine(engine) => engine.captures(text, &mut each),
        }
    }

    /// The first alternative whose walk succeeds, and the end of that walk.
    fn walk(&self, text: &[u8]) -> Option<(usize, usize)> {
        let alternatives = self.0.starts.alternatives.iter().enumerate();
        let mut walked = alternatives.filter_map(|(alternative, steps)| {
            let end = steps.walk(text)?;
            Some((alternative, end))
        });
        walked.next()
    }

    fn walked_groups(
        &self,
        alternative: usize,
        names: &[Name],
        text: &[u8],
        each: &mut dyn FnMut(Located<'_>),
    ) {
        let starts = &self.0.starts;
        let mut begins = [0; MAX_STEPS + 1];
        let mut steps = 0;
        let end = starts.alternatives[alternative].walk_through(text, &mut |begin| {
            begins[steps] = begin;
            steps += 1;
        });
        begins[steps] = end.unwrap_or_default();
        let at = |place: Position| begins[usize::from(place.step)] + usize::from(place.offset);
        for span in &starts.groups {
            if usize::from(span.alternative) == alternative {
                let number = usize::from(span.group);
                let name = names.get(number - 1).and_then(|name| self.name(*name));
                let range = at(span.start)..at(span.end);
                each(Located {
                    number,
                    name,
                    range,
                });
            }
        }
    }

    fn name(&self, Name { start, length }: Name) -> Option<&str> {
        let start = usize::from(start);
        let name = self.0.pattern.get(start..start + usize::from(length));
        name.filter(|name| !name.is_empty())
    }
}

/// Checks whether PCRE accepts the pattern, for texts of bytes or of characters. The limits of [`Regex::new`] apply.
pub fn check_pcre(pattern: &str) -> Result<(), RegexError> {
    engine::check_pcre(pattern)
}

impl fmt::Debug for Regex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "~ {:?}", self.pattern())
    }
}

/// Parses the pattern with `regex-syntax`. Returns `None` if the pattern may have another meaning in its dialect.
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

/// Finds the positions of the group names. Returns `None` if the pattern is too long for [`Name`].
fn names(pattern: &str, parsed: &Hir) -> Option<Box<[Name]>> {
    let mut names = vec![Name::default(); parsed.properties().explicit_captures_len()];
    let mut unread = vec![parsed];
    while let Some(part) = unread.pop() {
        match part.kind() {
            HirKind::Capture(group) => {
                let index = group.index as usize - 1;
                if let Some(name) = &group.name {
                    // This may find an earlier occurrence of the name. It has the same letters, so it serves as well.
                    *names.get_mut(index)? = Name {
                        start: pattern.find(&**name)?.try_into().ok()?,
                        length: name.len().try_into().ok()?,
                    };
                }
                unread.push(&group.sub);
            }
            HirKind::Concat(parts) | HirKind::Alternation(parts) => unread.extend(parts),
            HirKind::Repetition(repetition) => unread.push(&repetition.sub),
            HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => {}
        }
    }
    Some(names.into())
}

#[cfg(test)]
mod tests;
