//! Finds pairs of candidates that one request may satisfy, without checking all pairs. HTTP candidates are compared by
//! the start of the path, the end of the host, the method and the server name. Stream candidates are compared by the
//! destination port, the server name and both addresses.

use super::cases::{Case, Demand, Field, Values};
use super::texts::{Test, start_of};
use expr::{AddressField, Class, NumberField, Step, Steps, Subsystem, TextField};
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

const DIMENSIONS: usize = 4;

/// The dimensions of requests, in the order they are compared.
const OF_REQUESTS: [Dimension; DIMENSIONS] = [
    Dimension::Path,
    Dimension::Host,
    Dimension::Method,
    Dimension::Sni,
];

/// The dimensions of streams, in the order they are compared.
const OF_STREAMS: [Dimension; DIMENSIONS] = [
    Dimension::DestinationPort,
    Dimension::Sni,
    Dimension::Destination,
    Dimension::Source,
];

/// Maximum number of keys in a dimension. A candidate with more keys is treated as if any request matched it in this
/// dimension.
const MAX_KEYS: usize = 64;

/// Maximum number of pairs that are visited without comparing them in another dimension first.
const FEW_PAIRS: usize = 32;

#[derive(Debug, Clone, Copy)]
enum Dimension {
    Path,
    Host,
    Method,
    Sni,
    DestinationPort,
    Destination,
    Source,
}

/// The start of a text; for hosts, the end in reverse. Anything may follow the last token.
type Key = Box<[Token]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// A run of bytes of the class, as long as possible. The next token does not begin with a byte of the class.
    Class(Class),
    /// The end of the text.
    End,
}

/// The keys of a candidate in each dimension. A request that satisfies the candidate matches one of the keys in every
/// dimension.
pub(super) struct Keys([Vec<Key>; DIMENSIONS]);

impl Keys {
    pub(super) fn of(cases: &[Case<'_>], subsystem: Subsystem) -> Self {
        let dimensions = match subsystem {
            Subsystem::Http => OF_REQUESTS,
            Subsystem::Stream => OF_STREAMS,
        };
        Self(dimensions.map(|dimension| {
            let mut keys: Vec<Key> = Vec::new();
            for case in cases {
                add_keys(case, dimension, &mut keys);
            }
            let any = keys.iter().any(|key| key.is_empty());
            if any || keys.len() > MAX_KEYS {
                keys = vec![Key::default()];
            }
            keys
        }))
    }
}

fn add_keys(case: &Case<'_>, dimension: Dimension, keys: &mut Vec<Key>) {
    let text = |field: &TextField| case.values(Field::Text(field));
    let values = match dimension {
        Dimension::Path => text(&TextField::Path),
        Dimension::Host => text(&TextField::Host).or_else(|| text(&TextField::WildcardHost)),
        Dimension::Method => text(&TextField::Method),
        Dimension::Sni => text(&TextField::Sni),
        Dimension::DestinationPort => case.values(Field::Number(NumberField::DestinationPort)),
        Dimension::Destination => case.values(Field::Address(AddressField::Destination)),
        Dimension::Source => case.values(Field::Address(AddressField::Source)),
    };
    match values {
        Some(Values::Texts(demands)) => {
            let of_demands = demands.iter();
            keys.extend(of_demands.flat_map(|demand| keys_of(demand, dimension)));
        }
        Some(Values::Ranges(ranges)) => match ranges.prefixes() {
            Some(prefixes) => keys.extend(prefixes.iter().map(|prefix| key(prefix.iter(), false))),
            None => keys.push(Key::default()),
        },
        None => keys.push(Key::default()),
    }
}

fn keys_of(demand: &Demand<'_>, dimension: Dimension) -> Vec<Key> {
    let tests = || {
        let claims = demand.literals().iter().map(|literal| literal.claim());
        claims.filter_map(|claim| claim.all)
    };
    if !demand.has_value() {
        return vec![Key::default()];
    }
    let only = tests().find_map(Test::only).map(str::as_bytes);
    if let Dimension::Host = dimension {
        let end = tests().map(Test::end).max_by_key(|end| end.len());
        let end = only.or(end).unwrap_or_default();
        return vec![key(end.iter().rev(), only.is_some())];
    }
    if let Some(only) = only {
        return vec![key(only.iter(), true)];
    }
    let start = tests().map(Test::start).max_by_key(|start| start.len());
    let start = start.unwrap_or_default();
    let mut regexes = tests().filter_map(Test::regex);
    // The steps of a regex say at least as much as its literal start.
    let by_steps = regexes.find(|regex| start_of(regex) == start);
    match by_steps {
        Some(regex) => regex.starts().iter().map(key_of_steps).collect(),
        None => vec![key(start.iter(), false)],
    }
}

fn key<'b>(bytes: impl Iterator<Item = &'b u8>, whole: bool) -> Key {
    let bytes = bytes.map(|byte| Token::Byte(*byte));
    bytes.chain(whole.then_some(Token::End)).collect()
}

fn key_of_steps(steps: &Steps) -> Key {
    let mut tokens = Vec::new();
    for step in steps.steps() {
        match step {
            Step::Literal(bytes) => tokens.extend(bytes.iter().map(|byte| Token::Byte(*byte))),
            // If the class has a maximum length, more bytes of the class may follow the run.
            Step::Class(class) if class.max() != u32::MAX => return tokens.into(),
            Step::Class(class) => tokens.push(Token::Class(*class)),
        }
    }
    if steps.ends_text() {
        tokens.push(Token::End);
    }
    tokens.into()
}

/// Calls `visit` once with each pair of candidates that one request may satisfy, until `visit` breaks.
pub(super) fn pairs(
    keys: &[Keys],
    visit: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> ControlFlow<()> {
    sweep(keys, &|_| 0, Which::All, visit)
}

/// Like [`pairs`], but only for pairs of a chosen candidate and one that is not chosen.
pub(super) fn pairs_with(
    keys: &[Keys],
    is_chosen: &dyn Fn(usize) -> bool,
    visit: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> ControlFlow<()> {
    sweep(
        keys,
        &|number| is_chosen(number).into(),
        Which::Across,
        visit,
    )
}

fn sweep(
    keys: &[Keys],
    side: &dyn Fn(usize) -> u8,
    which: Which,
    visit: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut sweep = Sweep {
        keys,
        seen: HashSet::new(),
        open: Vec::new(),
        visit,
    };
    let members = (0..keys.len()).map(|number| Member {
        number,
        side: side(number),
    });
    sweep.within(&members.collect::<Vec<_>>(), which, 0)?;
    while let Some(group) = sweep.open.pop() {
        sweep.split(group)?;
    }
    ControlFlow::Continue(())
}

/// A candidate, assigned to one of two sides.
#[derive(Debug, Clone, Copy)]
struct Member {
    number: usize,
    side: u8,
}

/// The pairs of a group that are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    /// Pairs of members on different sides.
    Across,
}

/// A member and the rest of one of its keys.
#[derive(Debug, Clone, Copy)]
struct Cursor<'k> {
    member: Member,
    rest: &'k [Token],
}

/// Members whose keys in one dimension may have matched the same text so far.
struct Group<'k> {
    cursors: Vec<Cursor<'k>>,
    which: Which,
    dimension: usize,
}

struct Sweep<'k, 'v> {
    keys: &'k [Keys],
    seen: HashSet<(usize, usize)>,
    /// The groups that are still to be split.
    open: Vec<Group<'k>>,
    visit: &'v mut dyn FnMut(usize, usize) -> ControlFlow<()>,
}

/// The cursors of a group by their next token.
#[derive(Default)]
struct Split<'k> {
    ended: Vec<Cursor<'k>>,
    bytes: BTreeMap<u8, Vec<Cursor<'k>>>,
    classes: Vec<(Class, Vec<Cursor<'k>>)>,
    ends: Vec<Cursor<'k>>,
}

impl<'k> Sweep<'k, '_> {
    fn split(&mut self, group: Group<'k>) -> ControlFlow<()> {
        let Group {
            cursors,
            which,
            dimension,
        } = group;
        let has = |side| cursors.iter().any(|cursor| cursor.member.side == side);
        if which == Which::Across && !(has(0) && has(1)) {
            return ControlFlow::Continue(());
        }
        let cursors = after_common_bytes(cursors);
        let all: Vec<Member> = cursors.iter().map(|cursor| cursor.member).collect();
        let split = Split::of(cursors);
        if !split.ended.is_empty() {
            let ended = members(&split.ended);
            if ended.len() == all.len() {
                return self.within(&ended, which, dimension + 1);
            }
            // This includes the pairs of two members of `ended`.
            self.between(&ended, &all, which, dimension + 1)?;
        }
        self.within(&members(&split.ends), which, dimension + 1)?;
        for (number, (class, cursors)) in split.classes.iter().enumerate() {
            self.meet_literals(*class, cursors, &split, (which, dimension));
            for (other, others) in &split.classes[number + 1..] {
                self.meet((class, cursors), (other, others), which, dimension)?;
            }
        }
        let by_class = split.classes.into_iter().map(|(_, cursors)| cursors);
        for cursors in by_class.chain(split.bytes.into_values()) {
            if cursors.len() > 1 {
                let cursors = cursors.into_iter().map(Cursor::advanced).collect();
                self.open.push(Group {
                    cursors,
                    which,
                    dimension,
                });
            }
        }
        ControlFlow::Continue(())
    }

    /// Compares cursors whose next token is a class with those whose next token is a byte or the end of the text.
    fn meet_literals(
        &mut self,
        class: Class,
        cursors: &[Cursor<'k>],
        split: &Split<'k>,
        (which, dimension): (Which, usize),
    ) {
        let may_be_none = class.min() == 0;
        let bytes = split.bytes.iter();
        let bytes = bytes.filter(|(byte, _)| may_be_none || class.bytes().contains(**byte));
        let ends = split.ends.iter().filter(|_| may_be_none);
        let literals = bytes.flat_map(|(_, cursors)| cursors).chain(ends);
        let literals: Vec<_> = literals.map(|cursor| cursor.behind(class)).collect();
        let cursors: Vec<_> = cursors.iter().map(|cursor| cursor.advanced()).collect();
        self.push_across(&cursors, &literals, which, dimension);
    }

    /// Compares cursors whose next tokens are two different classes.
    fn meet(
        &mut self,
        (class, cursors): (&Class, &[Cursor<'k>]),
        (other, others): (&Class, &[Cursor<'k>]),
        which: Which,
        dimension: usize,
    ) -> ControlFlow<()> {
        let disjoint = class.bytes().is_disjoint(&other.bytes());
        if disjoint && class.min() > 0 && other.min() > 0 {
            return ControlFlow::Continue(());
        }
        // If the byte after each run is not in the other class, both runs end at the same position.
        let stops = |other: &Class, cursor: &Cursor<'k>| match cursor.rest.get(1) {
            Some(Token::Byte(byte)) => !other.bytes().contains(*byte),
            Some(Token::End) => true,
            Some(Token::Class(_)) | None => false,
        };
        let aligned = cursors.iter().all(|cursor| stops(other, cursor))
            && others.iter().all(|cursor| stops(class, cursor));
        if !aligned {
            return self.between(&members(cursors), &members(others), which, dimension + 1);
        }
        let advanced = |cursors: &[Cursor<'k>]| -> Vec<Cursor<'k>> {
            cursors.iter().map(|cursor| cursor.advanced()).collect()
        };
        self.push_across(&advanced(cursors), &advanced(others), which, dimension);
        ControlFlow::Continue(())
    }

    /// Continues with pairs of one cursor of the first list and one of the second.
    fn push_across(
        &mut self,
        first: &[Cursor<'k>],
        second: &[Cursor<'k>],
        which: Which,
        dimension: usize,
    ) {
        for (own, other) in which.turns() {
            let first = first.iter().filter_map(|cursor| cursor.turned(*own, 0));
            let second = second.iter().filter_map(|cursor| cursor.turned(*other, 1));
            let cursors: Vec<_> = first.chain(second).collect();
            if cursors.len() > 1 {
                self.open.push(Group {
                    cursors,
                    which: Which::Across,
                    dimension,
                });
            }
        }
    }

    /// Handles the pairs of these members. The dimensions before this one did not tell the members apart.
    fn within(&mut self, members: &[Member], which: Which, dimension: usize) -> ControlFlow<()> {
        let pairs = members.len() * members.len().saturating_sub(1) / 2;
        if pairs > FEW_PAIRS && dimension < DIMENSIONS {
            self.push(members.iter().copied(), which, dimension);
            return ControlFlow::Continue(());
        }
        for (number, left) in members.iter().enumerate() {
            for right in &members[number + 1..] {
                if which == Which::All || left.side != right.side {
                    self.visit(*left, *right)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Handles the pairs of one member of the first list and one of the second, as [`Self::within`] does.
    fn between(
        &mut self,
        first: &[Member],
        second: &[Member],
        which: Which,
        dimension: usize,
    ) -> ControlFlow<()> {
        for (own, other) in which.turns() {
            let first: Vec<_> = first.iter().filter_map(|one| one.turned(*own, 0)).collect();
            let second: Vec<_> = second
                .iter()
                .filter_map(|one| one.turned(*other, 1))
                .collect();
            if first.len() * second.len() > FEW_PAIRS && dimension < DIMENSIONS {
                self.push(first.into_iter().chain(second), Which::Across, dimension);
                continue;
            }
            for left in &first {
                for right in &second {
                    self.visit(*left, *right)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn push(&mut self, members: impl Iterator<Item = Member>, which: Which, dimension: usize) {
        let keys = self.keys;
        let cursors = members.flat_map(|member| {
            let keys = keys[member.number].0[dimension].iter();
            keys.map(move |rest| Cursor { member, rest })
        });
        self.open.push(Group {
            cursors: cursors.collect(),
            which,
            dimension,
        });
    }

    fn visit(&mut self, left: Member, right: Member) -> ControlFlow<()> {
        let pair = (left.number.min(right.number), left.number.max(right.number));
        if pair.0 == pair.1 || !self.seen.insert(pair) {
            return ControlFlow::Continue(());
        }
        (self.visit)(pair.0, pair.1)
    }
}

impl Which {
    /// Returns the sides from which to take the two members of a pair.
    fn turns(self) -> &'static [(Option<u8>, Option<u8>)] {
        match self {
            Self::All => &[(None, None)],
            Self::Across => &[(Some(0), Some(1)), (Some(1), Some(0))],
        }
    }
}

impl Member {
    /// Returns the member moved to `side`, if it is on the wanted side.
    fn turned(self, wanted: Option<u8>, side: u8) -> Option<Self> {
        let fits = wanted.is_none_or(|wanted| self.side == wanted);
        fits.then_some(Self { side, ..self })
    }
}

impl<'k> Cursor<'k> {
    fn advanced(self) -> Self {
        let rest = self.rest.get(1..).unwrap_or_default();
        Self { rest, ..self }
    }

    fn turned(self, wanted: Option<u8>, side: u8) -> Option<Self> {
        let member = self.member.turned(wanted, side)?;
        Some(Self { member, ..self })
    }

    /// Returns the cursor behind the next bytes that the class matches. If the end of the run cannot be determined, the
    /// cursor is at the end of the key.
    fn behind(self, class: Class) -> Self {
        let in_class = |token: &Token| match token {
            Token::Byte(byte) => class.bytes().contains(*byte),
            _ => false,
        };
        let run = self.rest.iter().take_while(|token| in_class(token)).count();
        let rest = match self.rest.get(run) {
            Some(Token::Byte(_) | Token::End) => &self.rest[run..],
            Some(Token::Class(_)) | None => &[],
        };
        Self { rest, ..self }
    }
}

impl<'k> Split<'k> {
    fn of(cursors: Vec<Cursor<'k>>) -> Self {
        let mut split = Self::default();
        for cursor in cursors {
            match cursor.rest.first() {
                None => split.ended.push(cursor),
                Some(Token::End) => split.ends.push(cursor),
                Some(Token::Byte(byte)) => split.bytes.entry(*byte).or_default().push(cursor),
                Some(Token::Class(class)) => split.add_class(*class, cursor),
            }
        }
        split
    }

    fn add_class(&mut self, class: Class, cursor: Cursor<'k>) {
        let known = self.classes.iter_mut().find(|(known, _)| *known == class);
        match known {
            Some((_, cursors)) => cursors.push(cursor),
            None => self.classes.push((class, vec![cursor])),
        }
    }
}

/// Moves the cursors past the bytes that all keys have in common.
fn after_common_bytes(mut cursors: Vec<Cursor<'_>>) -> Vec<Cursor<'_>> {
    let Some(first) = cursors.first() else {
        return cursors;
    };
    let bytes = first
        .rest
        .iter()
        .take_while(|token| matches!(token, Token::Byte(_)));
    let mut common = bytes.count();
    for cursor in &cursors {
        let pairs = cursor.rest.iter().zip(&first.rest[..common]);
        common = pairs.take_while(|(own, first)| own == first).count();
    }
    for cursor in &mut cursors {
        cursor.rest = &cursor.rest[common..];
    }
    cursors
}

fn members(cursors: &[Cursor<'_>]) -> Vec<Member> {
    cursors.iter().map(|cursor| cursor.member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expr::{Dialect, Regex};

    fn literal(text: &str) -> Key {
        match text.strip_suffix('$') {
            Some(text) => key(text.as_bytes().iter(), true),
            None => key(text.as_bytes().iter(), false),
        }
    }

    fn found(keys: &[Keys]) -> HashSet<(usize, usize)> {
        let mut found = HashSet::new();
        let _ = pairs(keys, &mut |left, right| {
            assert!(found.insert((left, right)), "{left} {right} twice");
            ControlFlow::Continue(())
        });
        found
    }

    #[test]
    fn candidates_whose_keys_overlap_in_all_dimensions_are_paired() {
        let words = ["", "a", "ab", "abc", "ac", "b", "a$", "ab$"];
        let meet = |left: &str, right: &str| {
            let begins = |text: &str, with: &str| match with.strip_suffix('$') {
                Some(with) => text == with || text.strip_suffix('$') == Some(with),
                None => text.starts_with(with),
            };
            begins(left, right) || begins(right, left)
        };
        let mut texts = Vec::new();
        for path in words {
            for host in words {
                for method in ["", "a", "b"] {
                    let sni: &[&str] = if texts.len() % 3 == 0 {
                        &["a", "b"]
                    } else {
                        &["ab"]
                    };
                    texts.push([vec![path], vec![host], vec![method], sni.to_vec()]);
                }
            }
        }
        let keys = texts.iter().map(|texts| {
            Keys([0, 1, 2, 3].map(|at| texts[at].iter().map(|text| literal(text)).collect()))
        });
        let found = found(&keys.collect::<Vec<_>>());
        for (left, own) in texts.iter().enumerate() {
            for (right, other) in texts.iter().enumerate().skip(left + 1) {
                let everywhere = own.iter().zip(other).all(|(own, other)| {
                    own.iter()
                        .any(|own| other.iter().any(|other| meet(own, other)))
                });
                assert!(
                    !everywhere || found.contains(&(left, right)),
                    "{own:?} {other:?}"
                );
            }
        }
        assert!(
            found.len() < texts.len() * texts.len() / 4,
            "too few pairs were skipped"
        );
    }

    #[test]
    fn regexes_that_match_a_common_text_are_paired() {
        let parts = [
            "[^/]+",
            "[0-9]+",
            "a",
            "7",
            "ab",
            ".*",
            "[a-c]*",
            "[^/]{1,3}",
        ];
        let mut patterns = Vec::new();
        for first in parts {
            for second in parts {
                patterns.push(format!("^/{first}/{second}"));
                patterns.push(format!("^/{first}/x/{second}$"));
            }
        }
        let regexes = patterns
            .iter()
            .map(|pattern| Regex::new(pattern, Dialect::Rust).unwrap());
        let regexes: Vec<_> = regexes.collect();
        let any = || vec![Key::default()];
        let keys = regexes.iter().map(|regex| {
            let own = regex.starts().iter().map(key_of_steps).collect();
            Keys([own, any(), any(), any()])
        });
        let found = found(&keys.collect::<Vec<_>>());
        for first in ["a", "7", "ab", "abc", "b7", "-"] {
            for second in ["a", "7", "", "ab", "x/a", "x/7", "x/", "x/ab/c"] {
                let text = format!("/{first}/{second}");
                let matching =
                    (0..regexes.len()).filter(|at| regexes[*at].is_match(text.as_bytes()));
                let matching: Vec<_> = matching.collect();
                for (at, left) in matching.iter().enumerate() {
                    for right in &matching[at + 1..] {
                        let (left, right) = (*left, *right);
                        assert!(
                            found.contains(&(left, right)),
                            "{text} {} {}",
                            patterns[left],
                            patterns[right]
                        );
                    }
                }
            }
        }
    }
}
