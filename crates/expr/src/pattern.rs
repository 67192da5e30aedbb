//! Regexes of both dialects behind one type. What a regex demands of the start of a text is known of it as steps; if
//! there is nothing else, which is so of most regexes on paths, the steps answer and no engine is built.

use crate::bounds::{self, TooComplex};
use crate::engine::{self, Engine, Located};
use crate::plain;
use crate::starts::{MAX_STEPS, Place, Starts};
use crate::steps::{Step, Steps};
use crate::{literals, prefix};
use regex_syntax::hir::{Hir, HirKind};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

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
    starts: Starts,
    /// Where the steps say less than all.
    literals: Box<[Box<[u8]>]>,
    matcher: Matcher,
}

/// What answers. It is made with the regex, so that a search neither compiles nor waits for who does.
enum Matcher {
    /// The steps, which are all there is to the regex.
    Steps {
        /// Of the first group on, where in the pattern its name stands.
        names: Box<[Name]>,
    },
    Engine(Box<Engine>),
}

/// Empty for a group without a name.
#[derive(Clone, Copy, Default)]
struct Name {
    start: u16,
    length: u16,
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
    #[error(transparent)]
    TooComplex(#[from] TooComplex),
}

impl Regex {
    /// Compiles the pattern, unless that could take more work or memory than any pattern may.
    pub fn new(pattern: &str, dialect: Dialect) -> Result<Self, RegexError> {
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
            None => Matcher::Engine(Box::new(Engine::new(pattern, dialect)?)),
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

    /// With which steps a text begins that the regex is found in: at least one of these can be walked then, in texts of
    /// any bytes. At least one and at most eight, in the order in which a search prefers them; a single one without
    /// steps when nothing is known. Where all are whole and the text is ASCII, the regex is found if one can be walked,
    /// and what is found is what the first of those walks.
    pub fn starts(&self) -> &[Steps] {
        &self.0.starts.alternatives
    }

    /// Texts that occur in every text that the regex is found in, if [`Self::starts`] does not say all of it.
    pub fn literals(&self) -> &[Box<[u8]>] {
        &self.0.literals
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

    /// How many steps a search in so many bytes takes at most: about as many as bytes are looked at, and many more if the
    /// regex needs backtracking.
    pub fn steps(&self, bytes: usize) -> usize {
        match &self.0.matcher {
            Matcher::Steps { .. } => self.starts().len() + bytes,
            Matcher::Engine(engine) => engine.steps(bytes),
        }
    }

    pub fn is_match(&self, text: &[u8]) -> bool {
        match &self.0.matcher {
            Matcher::Steps { .. } => self.walk(text).is_some(),
            Matcher::Engine(engine) => engine.is_match(text),
        }
    }

    /// Where the regex is found first.
    pub fn find(&self, text: &[u8]) -> Option<Range<usize>> {
        match &self.0.matcher {
            Matcher::Steps { .. } => self.walk(text).map(|(_, end)| 0..end),
            Matcher::Engine(engine) => engine.find(text),
        }
    }

    /// Whether it has groups besides the whole match.
    pub fn has_groups(&self) -> bool {
        match &self.0.matcher {
            Matcher::Steps { names } => !names.is_empty(),
            Matcher::Engine(engine) => engine.has_groups(),
        }
    }

    /// Calls `each` with the groups that took part in the first match, by number and again by name if they have one. The
    /// whole match is left out.
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

    /// The alternative whose steps the text allows, and where they end.
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
        let at = |place: Place| begins[usize::from(place.step)] + usize::from(place.offset);
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

/// Whether PCRE takes the pattern, in texts of bytes or of characters. The check has the bounds of [`Regex::new`].
pub fn check_pcre(pattern: &str) -> Result<(), RegexError> {
    engine::check_pcre(pattern)
}

impl fmt::Debug for Regex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "~ {:?}", self.pattern())
    }
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

/// Where the names of the groups stand; None if the pattern is too long to say.
fn names(pattern: &str, parsed: &Hir) -> Option<Box<[Name]>> {
    let mut names = vec![Name::default(); parsed.properties().explicit_captures_len()];
    let mut unread = vec![parsed];
    while let Some(part) = unread.pop() {
        match part.kind() {
            HirKind::Capture(group) => {
                let index = group.index as usize - 1;
                if let Some(name) = &group.name {
                    // Wherever else these letters stand, they are the same.
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
