//! Derives [`Steps`] from a pattern. The steps describe how every text that the pattern matches begins. A few
//! alternatives are expanded. The steps stop at the first part that cannot be expressed as a step. They may therefore
//! match more texts than the pattern, but never fewer.
//!
//! A class may be walked greedily and without backtracking if the length of its match does not depend on the parts
//! behind it. This is so in three cases: the class has a fixed length, the next part cannot begin with a byte of the
//! class, or the rest cannot fail.

use crate::steps::{Beyond, ByteSet, Class, Step, Steps};
use regex_syntax::hir::{self, Hir, HirKind, Look};

/// Maximum number of alternatives that are expanded.
const MAX_ALTERNATIVES: usize = 8;

/// Maximum number of steps of one alternative. Further parts of the pattern are ignored.
pub(crate) const MAX_STEPS: usize = 64;

/// Maximum number of visited parts in all alternatives together. The limit is necessary because nested branches are
/// visited once per alternative.
const MAX_WORK: usize = 2_000;

/// Maximum number of repetitions of a byte that are written out as a literal.
const MAX_WRITTEN_OUT: u32 = 16;

/// The result of the analysis of a pattern.
#[derive(Debug)]
pub(crate) struct Starts {
    /// Alternatives in the order in which the regex prefers them.
    pub(crate) alternatives: Box<[Steps]>,
    /// Positions of the groups if all alternatives are whole, ordered by alternative and group number.
    pub(crate) groups: Box<[Span]>,
    /// Whether every class contains exactly the characters that the regex says. If false, a class may contain more.
    pub(crate) exact: bool,
}

/// The position of a group in the steps of an alternative.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) alternative: u8,
    pub(crate) group: u16,
    pub(crate) start: Position,
    pub(crate) end: Position,
}

/// A position in a walked text, as an offset in bytes from the beginning of a step. The step after the last one begins
/// where the walk ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) step: u8,
    pub(crate) offset: u16,
}

impl Starts {
    pub(crate) fn unknown() -> Self {
        Self {
            alternatives: Box::new([Steps::unknown()]),
            groups: Box::default(),
            exact: false,
        }
    }

    /// The result for a regex of which only a literal prefix is known.
    pub(crate) fn literal(literal: Vec<u8>) -> Self {
        if literal.is_empty() {
            return Self::unknown();
        }
        let steps = Steps {
            steps: Box::new([Step::Literal(literal.into())]),
            ..Steps::unknown()
        };
        Self {
            alternatives: Box::new([steps]),
            ..Self::unknown()
        }
    }

    /// Analyses a pattern. `unicode` is true if its classes contain characters, and false if they contain bytes.
    pub(crate) fn of(pattern: &Hir, unicode: bool) -> Self {
        // Unicode classes and literals consist of whole characters. If the pattern also matched single bytes, a walk
        // could stop inside a character.
        if unicode && !pattern.properties().is_utf8() {
            return Self::unknown();
        }
        let mut reader = Reader {
            work: MAX_WORK,
            exact: true,
        };
        let paths = reader.follow(vec![Path::default()], pattern);
        if paths.iter().any(|path| !path.anchored) {
            return Self::unknown();
        }
        let mut groups = Vec::new();
        let mut alternatives = Vec::new();
        for (index, path) in paths.into_iter().enumerate() {
            let spans = path.spans.iter().map(|span| Span {
                alternative: index as u8,
                ..*span
            });
            groups.extend(spans);
            alternatives.push(path.finish());
        }
        let empty = |steps: &Steps| !steps.whole && steps.steps.is_empty();
        if alternatives.iter().any(empty) {
            return Self::unknown();
        }
        if !alternatives.iter().all(|steps| steps.whole) {
            groups.clear();
        }
        Self {
            alternatives: alternatives.into(),
            groups: groups.into(),
            exact: reader.exact,
        }
    }

    /// Whether the steps describe the whole regex for ASCII texts. If `exact` is true too, they describe it for all
    /// texts.
    pub(crate) fn is_whole(&self) -> bool {
        self.alternatives.iter().all(|steps| steps.whole)
    }
}

struct Reader {
    work: usize,
    exact: bool,
}

/// An alternative while it is being read.
#[derive(Debug, Clone, Default)]
struct Path {
    anchored: bool,
    /// Whether all further parts are ignored.
    stopped: bool,
    /// Whether the text must end at the current position.
    ended: bool,
    parts: Vec<Part>,
    spans: Vec<Span>,
}

#[derive(Debug, Clone)]
enum Part {
    Literal(Vec<u8>),
    Class { class: Class, greedy: bool },
}

impl Reader {
    /// Appends the part to each path in every possible way, in the order in which a search tries them.
    fn follow(&mut self, mut paths: Vec<Path>, part: &Hir) -> Vec<Path> {
        let needed = paths.len();
        let Some(left) = self.work.checked_sub(needed) else {
            return stopped(paths);
        };
        self.work = left;
        match part.kind() {
            HirKind::Empty => {}
            HirKind::Literal(literal) => {
                each_open(&mut paths, |path| path.push_literal(&literal.0))
            }
            HirKind::Class(class) => {
                let class = self.class(class, 1, 1);
                each_open(&mut paths, |path| path.push_class(class, true));
            }
            HirKind::Look(Look::Start) => each_open(&mut paths, Path::start),
            HirKind::Look(Look::End) => each_open(&mut paths, |path| path.ended = true),
            HirKind::Look(_) => return stopped(paths),
            HirKind::Capture(group) => {
                let Ok(number) = u16::try_from(group.index) else {
                    return stopped(paths);
                };
                each_open(&mut paths, |path| path.open(number));
                paths = self.follow(paths, &group.sub);
                each_open(&mut paths, |path| path.close(number));
            }
            HirKind::Concat(parts) => {
                for part in parts {
                    paths = self.follow(paths, part);
                }
            }
            HirKind::Alternation(branches) => {
                let branches: Vec<_> = branches.iter().map(Some).collect();
                return self.branch(paths, &branches);
            }
            HirKind::Repetition(repetition) => return self.repeat(paths, repetition),
        }
        paths
    }

    /// Appends each branch to each path. `None` is the empty branch.
    fn branch(&mut self, paths: Vec<Path>, branches: &[Option<&Hir>]) -> Vec<Path> {
        let mut followed = Vec::new();
        for path in &paths {
            if path.stopped {
                followed.push(path.clone());
                continue;
            }
            for branch in branches {
                let path = vec![path.clone()];
                match branch {
                    Some(part) => followed.extend(self.follow(path, part)),
                    None => followed.extend(path),
                }
                if followed.len() > MAX_ALTERNATIVES {
                    return stopped(paths);
                }
            }
        }
        followed
    }

    fn repeat(&mut self, mut paths: Vec<Path>, repetition: &hir::Repetition) -> Vec<Path> {
        let (min, max) = (repetition.min, repetition.max.unwrap_or(u32::MAX));
        let greedy = repetition.greedy;
        match repetition.sub.kind() {
            _ if max == 0 => return stopped(paths),
            HirKind::Literal(literal) if literal.0.len() == 1 && literal.0.is_ascii() => {
                each_open(&mut paths, |path| {
                    path.push_repeated(literal.0[0], min, max, greedy);
                });
            }
            HirKind::Class(class) => {
                let class = self.class(class, min, max);
                each_open(&mut paths, |path| path.push_class(class, greedy));
            }
            _ if (min, max) == (0, 1) => {
                let mut branches = [Some(&*repetition.sub), None];
                if !greedy {
                    branches.reverse();
                }
                return self.branch(paths, &branches);
            }
            _ => return stopped(paths),
        }
        paths
    }

    /// Converts a class. Returns `None` if its repetition counts are too large.
    fn class(&mut self, class: &hir::Class, min: u32, max: u32) -> Option<Class> {
        let mut bytes = ByteSet::default();
        let mut insert = |start: u32, end: u32| {
            for byte in start..=end.min(0x7F) {
                bytes.insert(byte as u8);
            }
        };
        let beyond = match class {
            hir::Class::Unicode(class) => {
                let ranges = class.ranges().iter();
                let ranges = ranges.map(|range| (range.start(), range.end()));
                ranges
                    .clone()
                    .for_each(|(start, end)| insert(start.into(), end.into()));
                let beyond = ranges.map(|(start, end)| (start.max('\u{80}'), end));
                let beyond: Vec<_> = beyond.filter(|(start, end)| start <= end).collect();
                let known = Beyond::of(&beyond);
                self.exact &= known.is_some();
                known.unwrap_or(Beyond::Characters)
            }
            hir::Class::Bytes(class) => {
                let ranges = class.ranges().iter();
                let ranges = ranges.map(|range| (range.start(), range.end()));
                ranges
                    .clone()
                    .for_each(|(start, end)| insert(start.into(), end.into()));
                let all = ranges
                    .clone()
                    .any(|(start, end)| start <= 0x80 && end == u8::MAX);
                if ranges.clone().all(|(_, end)| end.is_ascii()) {
                    Beyond::Nothing
                } else {
                    self.exact &= all;
                    Beyond::Bytes
                }
            }
        };
        bytes.set_beyond(beyond);
        Class::new(bytes, min, max)
    }
}

fn stopped(mut paths: Vec<Path>) -> Vec<Path> {
    paths.iter_mut().for_each(|path| path.stopped = true);
    paths
}

fn each_open(paths: &mut [Path], change: impl FnMut(&mut Path)) {
    paths
        .iter_mut()
        .filter(|path| !path.stopped)
        .for_each(change);
}

impl Path {
    fn start(&mut self) {
        if self.parts.is_empty() {
            self.anchored = true;
        } else {
            // The anchor can still match, because the parts before it may be empty.
            self.stopped = true;
        }
    }

    /// Returns whether another part may be appended. If not, the path is stopped. This is so without a start anchor,
    /// after an end anchor, and after `MAX_STEPS` parts.
    fn may_go_on(&mut self) -> bool {
        self.stopped |= !self.anchored || self.ended || self.parts.len() == MAX_STEPS;
        !self.stopped
    }

    fn push_literal(&mut self, literal: &[u8]) {
        if !self.may_go_on() {
            return;
        }
        if let Some(Part::Literal(last)) = self.parts.last_mut() {
            last.extend_from_slice(literal);
        } else {
            self.parts.push(Part::Literal(literal.to_vec()));
        }
    }

    fn push_repeated(&mut self, byte: u8, min: u32, max: u32, greedy: bool) {
        let written = min.min(MAX_WRITTEN_OUT);
        if written > 0 {
            self.push_literal(&vec![byte; written as usize]);
        }
        let max = if max == u32::MAX { max } else { max - written };
        if max > 0 {
            self.push_class(Class::new(ByteSet::of(byte), min - written, max), greedy);
        }
    }

    fn push_class(&mut self, class: Option<Class>, greedy: bool) {
        self.stopped |= class.is_none();
        let (true, Some(class)) = (self.may_go_on(), class) else {
            return;
        };
        let joined = match self.parts.last() {
            Some(Part::Class {
                class: last,
                greedy: true,
            }) if greedy && !self.is_parted() => joined(last, &class),
            _ => None,
        };
        if let Some(class) = joined {
            self.parts.pop();
            self.parts.push(Part::Class { class, greedy });
        } else {
            self.parts.push(Part::Class { class, greedy });
        }
    }

    /// Whether a group begins or ends at the current position. Assumed if the position is too large.
    fn is_parted(&self) -> bool {
        let here = self.place();
        let mut spans = self.spans.iter();
        spans.any(|span| here.is_none_or(|here| span.start == here || span.end == here))
    }

    /// The current position. Returns `None` if it is too large for [`Position`].
    fn place(&self) -> Option<Position> {
        let (step, offset) = match self.parts.last() {
            Some(Part::Literal(literal)) => (self.parts.len() - 1, literal.len()),
            _ => (self.parts.len(), 0),
        };
        Some(Position {
            step: step.try_into().ok()?,
            offset: offset.try_into().ok()?,
        })
    }

    fn open(&mut self, group: u16) {
        let Some(start) = self.place() else {
            self.stopped = true;
            return;
        };
        let end = start;
        self.spans.push(Span {
            alternative: 0,
            group,
            start,
            end,
        });
    }

    fn close(&mut self, group: u16) {
        let end = self.place();
        let mut spans = self.spans.iter_mut().rev();
        match (spans.find(|span| span.group == group), end) {
            (Some(span), Some(end)) => span.end = end,
            _ => self.stopped = true,
        }
    }

    fn finish(mut self) -> Steps {
        let whole = self.cut();
        let steps = self.parts.into_iter().map(|part| match part {
            Part::Literal(literal) => Step::Literal(literal.into()),
            Part::Class { class, .. } => Step::Class(class),
        });
        Steps {
            steps: steps.collect(),
            whole,
            ends_text: whole && self.ended,
        }
    }

    /// Removes the parts behind the first class that cannot be walked without backtracking. Returns whether the
    /// remaining parts describe the whole regex.
    fn cut(&mut self) -> bool {
        let mut whole = !self.stopped;
        let mut kept = self.parts.len();
        let mut rest = Rest {
            first: ByteSet::default(),
            unknown: self.stopped,
            may_be_empty: !self.ended,
            cannot_fail: !self.ended && !self.stopped,
        };
        for (index, part) in self.parts.iter().enumerate().rev() {
            rest = match part {
                Part::Literal(literal) => Rest::starting(ByteSet::of(literal[0])),
                Part::Class { class, greedy } => {
                    if !rest.leaves(class, *greedy) {
                        kept = index + 1;
                        whole = false;
                    }
                    let fixed = class.min() == class.max();
                    whole &= *greedy || fixed || !rest.may_be_empty;
                    rest.behind(class)
                }
            };
        }
        self.parts.truncate(kept);
        whole
    }
}

/// Joins two consecutive classes of the same bytes into one.
fn joined(first: &Class, second: &Class) -> Option<Class> {
    let max = first.max().saturating_add(second.max());
    let same = first.bytes() == second.bytes();
    same.then(|| Class::new(first.bytes(), first.min() + second.min(), max))?
}

/// The possible continuations at a position in a path.
#[derive(Clone, Copy)]
struct Rest {
    /// The bytes with which the rest can begin.
    first: ByteSet,
    /// Whether the rest is unknown.
    unknown: bool,
    /// Whether the rest may match nothing at any position in the text.
    may_be_empty: bool,
    /// Whether the rest matches every text.
    cannot_fail: bool,
}

impl Rest {
    fn starting(first: ByteSet) -> Self {
        Self {
            first,
            unknown: false,
            may_be_empty: false,
            cannot_fail: false,
        }
    }

    /// Whether the class takes as many bytes as possible in every match of the regex.
    fn leaves(&self, class: &Class, greedy: bool) -> bool {
        let apart = !self.unknown && self.first.is_disjoint(&class.bytes());
        class.min() == class.max() || apart || (greedy && self.cannot_fail)
    }

    /// Returns the possible continuations at the position before the class.
    fn behind(self, class: &Class) -> Self {
        if class.min() > 0 {
            return Self::starting(class.bytes());
        }
        Self {
            first: self.first.union(class.bytes()),
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
