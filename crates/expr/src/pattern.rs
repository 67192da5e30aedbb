//! Regexes of both dialects behind one type. What a regex demands of the start of a text is known of it as steps; where
//! nothing else is, which is so of most regexes on paths, the steps answer and no engine is built.

use crate::engine::{self, Engine, Located};
use crate::plain;
use crate::starts::{MAX_STEPS, Place, Starts};
use crate::steps::{Step, Steps};
use crate::{literals, prefix};
use regex_syntax::hir::{Hir, HirKind};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

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
    dialect: Dialect,
    starts: Starts,
    /// Where the steps say less than all.
    literals: Box<[Box<[u8]>]>,
    /// Whether the steps answer as far as they can, and there is no engine until they cannot.
    by_steps: bool,
    /// Of the first group on, where in the pattern its name stands. Empty where the engine names them.
    names: Box<[Name]>,
    /// None inside: it did not compile, which cannot be of one that is built late.
    engine: OnceLock<Option<Box<Engine>>>,
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
}

/// What the steps have to say of a text.
enum Walked {
    /// The regex is found from the start of the text to here, by this alternative.
    Found {
        alternative: usize,
        end: usize,
    },
    Nowhere,
    /// Only the engine knows.
    Unknown,
}

impl Regex {
    pub fn new(pattern: &str, dialect: Dialect) -> Result<Self, RegexError> {
        let mut inner = Inner {
            pattern: pattern.into(),
            dialect,
            starts: Starts::unknown(),
            literals: Box::default(),
            by_steps: false,
            names: Box::default(),
            engine: OnceLock::new(),
        };
        let parsed = parsed(pattern, dialect);
        match &parsed {
            Some(parsed) => inner.starts = Starts::of(parsed, dialect == Dialect::Rust),
            None => inner.starts = Starts::literal(prefix::of_pcre(pattern)),
        }
        if !inner.starts.is_whole() {
            inner.literals = parsed.as_ref().map(literals::required).unwrap_or_default();
        }
        let lazy = parsed.filter(|parsed| inner.starts.is_whole() && engine::compiles(parsed));
        match lazy.and_then(|parsed| names(pattern, &parsed)) {
            Some(names) => (inner.by_steps, inner.names) = (true, names),
            None => inner.engine = Some(Box::new(Engine::new(pattern, dialect)?)).into(),
        }
        Ok(Self(Arc::new(inner)))
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

    pub fn is_match(&self, text: &[u8]) -> bool {
        match self.walk(text) {
            Walked::Found { .. } => true,
            Walked::Nowhere => false,
            Walked::Unknown => self.engine().is_some_and(|engine| engine.is_match(text)),
        }
    }

    /// Where the regex is found first.
    pub fn find(&self, text: &[u8]) -> Option<Range<usize>> {
        match self.walk(text) {
            Walked::Found { end, .. } => Some(0..end),
            Walked::Nowhere => None,
            Walked::Unknown => self.engine()?.find(text),
        }
    }

    /// Whether it has groups besides the whole match.
    pub fn has_groups(&self) -> bool {
        match self.0.engine.get() {
            Some(Some(engine)) if !self.0.by_steps => engine.has_groups(),
            _ => !self.0.names.is_empty(),
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
        match self.walk(text) {
            Walked::Found { alternative, .. } => self.walked_groups(alternative, text, &mut each),
            Walked::Nowhere => {}
            Walked::Unknown => {
                if let Some(engine) = self.engine() {
                    engine.captures(text, &mut each);
                }
            }
        }
    }

    fn walk(&self, text: &[u8]) -> Walked {
        if !self.0.by_steps {
            return Walked::Unknown;
        }
        let alternatives = self.0.starts.alternatives.iter().enumerate();
        let mut walked = alternatives.filter_map(|(alternative, steps)| {
            let end = steps.walk(text)?;
            Some(Walked::Found { alternative, end })
        });
        match walked.next() {
            None => Walked::Nowhere,
            Some(found) if self.is_exact(text) => found,
            Some(_) => Walked::Unknown,
        }
    }

    /// Whether the steps say as much of the text as the regex.
    fn is_exact(&self, text: &[u8]) -> bool {
        let exact_beyond_ascii = self.0.starts.exact_beyond_ascii;
        match self.0.dialect {
            Dialect::Pcre if exact_beyond_ascii => true,
            Dialect::Rust if exact_beyond_ascii => std::str::from_utf8(text).is_ok(),
            _ => text.is_ascii(),
        }
    }

    fn walked_groups(&self, alternative: usize, text: &[u8], each: &mut dyn FnMut(Located<'_>)) {
        let Inner { starts, names, .. } = &*self.0;
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

    fn engine(&self) -> Option<&Engine> {
        let build = || {
            Engine::new(self.pattern(), self.0.dialect)
                .ok()
                .map(Box::new)
        };
        self.0.engine.get_or_init(build).as_deref()
    }
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
