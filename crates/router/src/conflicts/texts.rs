//! Decides whether one test of a text implies another, and finds texts that pass several tests. The results are sound
//! but not complete: a reported implication is true, but not every true implication is found.

use super::automata::Automata;
use super::sample;
use expr::{Regex, Step, TextPredicate, TextTest, Transform};

/// A comparison that one value must pass, or must fail if `passes` is false.
#[derive(Debug, Clone, Copy)]
pub(super) struct Test<'e> {
    transform: Transform,
    kind: Kind<'e>,
    passes: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind<'e> {
    Equals(&'e str),
    StartsWith(&'e str),
    EndsWith(&'e str),
    Contains(&'e str),
    Matches(&'e Regex),
}

/// The result of a search for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Solution<T> {
    Nothing,
    One(T),
    Unknown,
}

impl<T> Solution<T> {
    pub(super) fn map<U>(self, with: impl FnOnce(T) -> U) -> Solution<U> {
        match self {
            Self::Nothing => Solution::Nothing,
            Self::One(value) => Solution::One(with(value)),
            Self::Unknown => Solution::Unknown,
        }
    }
}

impl<'e> Test<'e> {
    /// Returns the test of the predicate. A value must pass it if `passes` is true, and must fail it otherwise.
    pub(super) fn of(predicate: &'e TextPredicate, passes: bool) -> Self {
        let (kind, equal) = match &predicate.test {
            TextTest::Equals(text) => (Kind::Equals(text), true),
            TextTest::Differs(text) => (Kind::Equals(text), false),
            TextTest::StartsWith(text) => (Kind::StartsWith(text), true),
            TextTest::EndsWith(text) => (Kind::EndsWith(text), true),
            TextTest::Contains(text) => (Kind::Contains(text), true),
            TextTest::Matches(regex) => (Kind::Matches(regex), true),
        };
        Self {
            transform: predicate.transform,
            kind,
            passes: passes == equal,
        }
    }

    pub(super) const fn starts_with(text: &'e str) -> Self {
        Self {
            transform: Transform::None,
            kind: Kind::StartsWith(text),
            passes: true,
        }
    }

    pub(super) const fn lacks(text: &'e str) -> Self {
        Self {
            transform: Transform::None,
            kind: Kind::Contains(text),
            passes: false,
        }
    }

    /// Returns the test that a value is not empty, with the same transformation.
    pub(super) fn not_empty(self) -> Self {
        Self {
            transform: self.transform,
            kind: Kind::Equals(""),
            passes: false,
        }
    }

    pub(super) fn kind(self) -> Kind<'e> {
        self.kind
    }

    /// Whether the value must pass the test; otherwise it must fail.
    pub(super) fn passes(self) -> bool {
        self.passes
    }

    pub(super) fn negated(self) -> Self {
        Self {
            passes: !self.passes,
            ..self
        }
    }

    /// Whether it is proven that every value that passes this test passes the other.
    pub(super) fn implies(self, other: Self) -> bool {
        if self.passes && self.cannot_pass() || !other.passes && other.cannot_pass() {
            return true;
        }
        if other.passes && other.kind.passes_any() {
            return true;
        }
        if let Some(only) = self.only() {
            return other.accepts(only);
        }
        if let Some(only) = other.negated().only() {
            return !self.accepts(only);
        }
        if self.transform != other.transform {
            return false;
        }
        match (self.passes, other.passes) {
            (true, true) => self.kind.implies(other.kind),
            (true, false) => self.kind.excludes(other.kind),
            (false, false) => other.kind.implies(self.kind),
            // Excluding some values does not imply that the rest pass another test.
            (false, true) => false,
        }
    }

    pub(super) fn accepts(self, value: &str) -> bool {
        let accepts = |value: &str| self.kind.accepts(value) == self.passes;
        match self.transform {
            Transform::None => accepts(value),
            Transform::Lower => accepts(&value.to_lowercase()),
            Transform::LowerAscii => accepts(&value.to_ascii_lowercase()),
        }
    }

    /// Whether the test can never pass because it expects upper case in a text that is compared in lower case.
    fn cannot_pass(self) -> bool {
        let upper = |text: &str| text.bytes().any(|byte| byte.is_ascii_uppercase());
        self.transform != Transform::None && self.kind.literal().is_some_and(upper)
    }

    /// Returns the longest known start of all passing values. It may be empty.
    pub(super) fn start(self) -> &'e [u8] {
        match (self.kind, self.passes && self.transform == Transform::None) {
            (Kind::Equals(text) | Kind::StartsWith(text), true) => text.as_bytes(),
            (Kind::Matches(regex), true) => start_of(regex),
            _ => b"",
        }
    }

    /// Returns the longest known end of all passing values. It may be empty.
    pub(super) fn end(self) -> &'e [u8] {
        match (self.kind, self.passes && self.transform == Transform::None) {
            (Kind::Equals(text) | Kind::EndsWith(text), true) => text.as_bytes(),
            _ => b"",
        }
    }

    /// Returns the regex that all passing values match.
    pub(super) fn regex(self) -> Option<&'e Regex> {
        match self.kind {
            Kind::Matches(regex) if self.passes && self.transform == Transform::None => Some(regex),
            _ => None,
        }
    }

    /// Returns the value that passes, if there is only one.
    pub(super) fn only(self) -> Option<&'e str> {
        match self.kind {
            Kind::Equals(text) if self.passes && self.transform == Transform::None => Some(text),
            _ => None,
        }
    }
}

impl<'e> Kind<'e> {
    pub(super) fn literal(self) -> Option<&'e str> {
        match self {
            Self::Equals(text)
            | Self::StartsWith(text)
            | Self::EndsWith(text)
            | Self::Contains(text) => Some(text),
            Self::Matches(_) => None,
        }
    }

    fn passes_any(self) -> bool {
        match self {
            Self::StartsWith(text) | Self::EndsWith(text) | Self::Contains(text) => text.is_empty(),
            Self::Matches(regex) => regex.pattern().is_empty(),
            Self::Equals(_) => false,
        }
    }

    fn accepts(self, value: &str) -> bool {
        match self {
            Self::Equals(text) => value == text,
            Self::StartsWith(text) => value.starts_with(text),
            Self::EndsWith(text) => value.ends_with(text),
            Self::Contains(text) => value.contains(text),
            Self::Matches(regex) => regex.is_match(value.as_bytes()),
        }
    }

    fn implies(self, other: Self) -> bool {
        match (self, other) {
            (Self::Equals(text), _) => other.accepts(text),
            (Self::StartsWith(own), Self::StartsWith(wanted)) => own.starts_with(wanted),
            (Self::EndsWith(own), Self::EndsWith(wanted)) => own.ends_with(wanted),
            (
                Self::StartsWith(own) | Self::EndsWith(own) | Self::Contains(own),
                Self::Contains(wanted),
            ) => own.contains(wanted),
            (Self::Matches(own), Self::Matches(wanted)) => {
                own.pattern() == wanted.pattern()
                    || sample::holds_with_more_behind(wanted) && wanted.is_match(start_of(own))
            }
            (Self::Matches(own), Self::StartsWith(wanted)) => {
                start_of(own).starts_with(wanted.as_bytes())
            }
            (Self::Matches(own), Self::Contains(wanted)) => {
                memchr::memmem::find(start_of(own), wanted.as_bytes()).is_some()
            }
            (Self::StartsWith(own), Self::Matches(wanted)) => {
                wanted.is_match(own.as_bytes()) && sample::holds_with_more_behind(wanted)
            }
            (Self::EndsWith(own), Self::Matches(wanted)) => {
                wanted.is_match(own.as_bytes()) && sample::holds_with_more_before(wanted)
            }
            (Self::Contains(own), Self::Matches(wanted)) => {
                wanted.is_match(own.as_bytes())
                    && sample::holds_with_more_behind(wanted)
                    && sample::holds_with_more_before(wanted)
            }
            _ => false,
        }
    }

    /// Whether it is proven that no value passes both tests.
    fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Equals(text), other) | (other, Self::Equals(text)) => !other.accepts(text),
            (Self::EndsWith(left), Self::EndsWith(right)) => {
                !left.ends_with(right) && !right.ends_with(left)
            }
            _ => {
                let (left, right) = (self.start(), other.start());
                !left.starts_with(right) && !right.starts_with(left)
            }
        }
    }

    fn start(self) -> &'e [u8] {
        match self {
            Self::Equals(text) | Self::StartsWith(text) => text.as_bytes(),
            Self::Matches(regex) => start_of(regex),
            Self::EndsWith(_) | Self::Contains(_) => b"",
        }
    }
}

/// Returns the bytes with which every text that the regex matches begins.
pub(super) fn start_of(regex: &Regex) -> &[u8] {
    let mut starts = regex
        .starts()
        .iter()
        .map(|steps| match steps.steps().first() {
            Some(Step::Literal(literal)) => &literal[..],
            _ => b"",
        });
    let first = starts.next().unwrap_or_default();
    starts.fold(first, |common, other| {
        let pairs = common.iter().zip(other);
        &common[..pairs.take_while(|(own, other)| own == other).count()]
    })
}

/// The settings for finding a text.
#[derive(Clone, Copy)]
pub(super) struct Solver<'a> {
    /// Texts to insert where the tests allow any text. They are tried in this order.
    pub(super) fillers: &'a [&'a str],
    /// Tests that the text should also pass, if possible.
    pub(super) wishes: &'a [Test<'a>],
    /// `None` if the regexes are of another dialect.
    pub(super) automata: Option<&'a Automata>,
}

impl Solver<'_> {
    /// Returns a text that passes all tests.
    pub(super) fn solve(&self, tests: &[Test<'_>]) -> Solution<String> {
        for (number, test) in tests.iter().enumerate() {
            let mut others = tests[number..].iter();
            if others.any(|other| test.implies(other.negated())) {
                return Solution::Nothing;
            }
        }
        let passes = |text: &String| tests.iter().all(|test| test.accepts(text));
        if let Some(only) = tests.iter().find_map(|test| test.only()) {
            // No other text can pass.
            let only = only.to_owned();
            return if passes(&only) {
                Solution::One(only)
            } else {
                Solution::Nothing
            };
        }
        let mut parts = Parts::default();
        tests.iter().for_each(|test| parts.add(*test));
        let liked = |text: &String| self.wishes.iter().all(|wish| wish.accepts(text));
        let mut found = None;
        for text in parts.texts(self.fillers).filter(passes) {
            if liked(&text) {
                return Solution::One(text);
            }
            found.get_or_insert(text);
        }
        match self.walk(tests) {
            Solution::One(text) if passes(&text) => Solution::One(text),
            Solution::Nothing => Solution::Nothing,
            Solution::One(_) | Solution::Unknown => found.map_or(Solution::Unknown, Solution::One),
        }
    }

    fn walk(&self, tests: &[Test<'_>]) -> Solution<String> {
        let one_transform = tests
            .windows(2)
            .all(|pair| pair[0].transform == pair[1].transform);
        let Some(automata) = self.automata.filter(|_| one_transform) else {
            return Solution::Unknown;
        };
        if !self.wishes.is_empty() {
            let liked = automata.solve(&[tests, self.wishes].concat());
            if let Solution::One(_) = liked {
                return liked;
            }
        }
        automata.solve(tests)
    }
}

/// The parts that a text must contain.
#[derive(Default)]
struct Parts<'e> {
    /// Whether a test compares the text in lower case.
    lowered: bool,
    whole: Option<&'e str>,
    start: &'e str,
    end: &'e str,
    within: Vec<&'e str>,
    regexes: Vec<&'e Regex>,
}

impl<'e> Parts<'e> {
    fn add(&mut self, test: Test<'e>) {
        self.lowered |= test.transform != Transform::None;
        match test.kind {
            _ if !test.passes => {}
            Kind::Equals(text) => self.whole = Some(text),
            Kind::StartsWith(text) if text.len() > self.start.len() => self.start = text,
            Kind::EndsWith(text) if text.len() > self.end.len() => self.end = text,
            Kind::Contains(text) => self.within.push(text),
            Kind::Matches(regex) => self.regexes.push(regex),
            Kind::StartsWith(_) | Kind::EndsWith(_) => {}
        }
    }

    /// Returns texts that may pass. They consist of the required parts in order, overlapping where possible, with
    /// samples of the regexes between them.
    fn texts(&self, fillers: &[&str]) -> impl Iterator<Item = String> {
        let mut texts: Vec<String> = self.whole.map(str::to_owned).into_iter().collect();
        for found in self.samples() {
            texts.push(found.clone());
            texts.push(self.around(&found, ""));
        }
        for filler in fillers {
            texts.push(self.around("", filler));
        }
        // To save time, only the first sample is combined with the fillers.
        if let Some(found) = self.samples().next() {
            for filler in fillers {
                texts.push(format!("{found}{filler}"));
                texts.push(format!("{filler}{found}"));
            }
        }
        if self.lowered {
            let upper: Vec<_> = texts.iter().map(|text| text.to_ascii_uppercase()).collect();
            texts.extend(upper);
        }
        texts.into_iter()
    }

    fn samples(&self) -> impl Iterator<Item = String> {
        self.regexes.iter().flat_map(|regex| sample::texts(regex))
    }

    fn around(&self, found: &str, filler: &str) -> String {
        let mut text = self.start.to_owned();
        let rest = found.strip_prefix(self.start).unwrap_or(found);
        text.push_str(rest);
        text.push_str(filler);
        for within in &self.within {
            if !text.contains(within) {
                text.push_str(within);
            }
        }
        join(&mut text, self.end);
        text
    }
}

/// Appends `end`, except for the part of it that the text already ends with.
fn join(text: &mut String, end: &str) {
    let fits = |at: &usize| end.is_char_boundary(*at) && text.ends_with(&end[..*at]);
    let shared = (0..=end.len()).rev().find(fits).unwrap_or(0);
    text.push_str(&end[shared..]);
}
