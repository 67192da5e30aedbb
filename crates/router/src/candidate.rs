//! Candidates: the parts of a route, each with its own expression and a position in the order of all candidates.

use crate::Flavor;
use crate::bucket::{Entry, Rank};
use crate::index;
use crate::keys::Demand;
use crate::work::Budget;
use expr::{BadBlock, Dialect, Expression, Fields, Observer, Regex, RegexError, TextTest};
use model::entities::{PathHandling, Route, RouteId};
use std::borrow::Borrow;
use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::rc::Rc;
use std::sync::Arc;
use tables::{Map, Slots};
use uuid::Uuid;

/// The number that the caller has given to a route. It identifies the route in changes and in results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteIndex(pub u32);

/// The reason why a route, or a part of it, is not in the router. Other routes are not affected.
#[derive(Debug, thiserror::Error)]
#[error("route {id}: {problem}")]
pub struct RouteError {
    pub route: RouteIndex,
    pub id: RouteId,
    #[source]
    pub problem: Problem,
}

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("regex {pattern:?} cannot be used: {source}")]
    Regex { pattern: String, source: RegexError },
    #[error(transparent)]
    Address(#[from] BadBlock),
    #[error(transparent)]
    Expression(#[from] expr::Error),
    #[error("it has nothing to match requests by")]
    NoAttributes,
}

/// A part of a route, with its own condition and its own position in the order.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) route: RouteIndex,
    pub(crate) place: Precedence,
    /// The number of this candidate in its route. If positions are equal, candidates with smaller numbers are tried
    /// first.
    part: u32,
    /// Shared with other versions of the router that contain the same route.
    pub(crate) expression: Arc<Expression>,
    pub(crate) strip_path: bool,
    pub(crate) handling: PathHandling,
    /// Whether a regex in the expression has groups.
    pub(crate) captures: bool,
}

/// A candidate's position in the order; smaller positions are tried first. Only positions of the same flavor are
/// compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precedence {
    Compatible(Reverse<u64>, Reverse<Uuid>),
    /// The priority is behind a pointer because it is large and this flavor is rare.
    Traditional(Arc<crate::priority::Traditional>, RouteId),
    /// The position of a stream candidate in the `traditional` flavor.
    TraditionalStream {
        kinds: Reverse<u32>,
        category: Reverse<u8>,
        /// Source and destination class. Kong searches candidates with the exact address first, then those with the
        /// port, then all.
        ends: (u8, u8),
        created_at: i64,
        /// Our own tie-break; in Kong the order of routes of the same age is random.
        route: RouteIndex,
    },
}

impl Precedence {
    /// Whether the two positions are equal or differ only in the tie-break.
    pub(crate) fn ranks_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Compatible(own, _), Self::Compatible(other, _)) => own == other,
            (Self::Traditional(own, _), Self::Traditional(other, _)) => own.ranks_as(other),
            // The category determines the number of attribute types. The other fields are the tie-break.
            (
                Self::TraditionalStream { category, ends, .. },
                Self::TraditionalStream {
                    category: other_category,
                    ends: other_ends,
                    ..
                },
            ) => category == other_category && ends == other_ends,
            _ => false,
        }
    }
}

/// The data for changing an index: the candidates by slot number, and a cache of their conditions.
pub(crate) struct Catalog<'c> {
    pub(crate) slots: &'c Slots<Candidate>,
    pub(crate) flavor: Flavor,
    pub(crate) memo: &'c Memo,
}

/// A cache of the conditions of a few candidates, by slot number. A candidate with many positions in the index needs
/// its conditions at each of them. Drop the cache when a candidate is removed, because its slot may be reused.
#[derive(Default)]
pub(crate) struct Memo(RefCell<HashMap<u32, Rc<[Vec<Demand>]>>>);

/// The conditions of one cover of a candidate, except those on host and path.
pub(crate) struct Demands {
    of_covers: Rc<[Vec<Demand>]>,
    cover: usize,
}

impl Deref for Demands {
    type Target = [Demand];

    fn deref(&self) -> &[Demand] {
        self.of_covers.get(self.cover).map_or(&[], Vec::as_slice)
    }
}

impl Memo {
    const MOST: usize = 64;

    fn get(&self, slot: u32, read: impl FnOnce() -> Vec<Vec<Demand>>) -> Rc<[Vec<Demand>]> {
        let mut known = self.0.borrow_mut();
        if let Some(demands) = known.get(&slot) {
            return demands.clone();
        }
        if known.len() == Self::MOST {
            known.clear();
        }
        let demands: Rc<[_]> = read().into();
        known.insert(slot, demands.clone());
        demands
    }
}

/// Compiled regexes by pattern, each with the number of predicates that use it, so that equal patterns are compiled and
/// stored once.
#[derive(Clone, Default)]
pub(crate) struct Regexes(Map<Pattern, u32>);

/// A regex that is compared by its pattern.
#[derive(Clone)]
struct Pattern(Regex);

impl Regexes {
    /// Returns the regex for a pattern; compiles it if it is not yet stored.
    pub(crate) fn get(&self, pattern: &str, dialect: Dialect) -> Result<Regex, RegexError> {
        match self.0.key(pattern) {
            Some(known) => Ok(known.0.clone()),
            None => Regex::new(pattern, dialect),
        }
    }

    /// Like [`Self::get`], but returns the predicate of a route without an expression.
    pub(crate) fn test(&self, pattern: &str, dialect: Dialect) -> Result<TextTest, Problem> {
        let regex = self.get(pattern, dialect);
        let regex = regex.map_err(|source| Problem::Regex {
            pattern: pattern.to_owned(),
            source,
        })?;
        Ok(TextTest::Matches(regex))
    }

    pub(crate) fn keep(&mut self, expression: &Expression) {
        each_regex(
            expression,
            &mut |regex| match self.0.get_mut(regex.pattern()) {
                Some(uses) => *uses += 1,
                None => {
                    self.0.insert(Pattern(regex.clone()), 1);
                }
            },
        );
    }

    pub(crate) fn release(&mut self, expression: &Expression) {
        each_regex(
            expression,
            &mut |regex| match self.0.get_mut(regex.pattern()) {
                Some(uses) if *uses > 1 => *uses -= 1,
                _ => {
                    self.0.remove(regex.pattern());
                }
            },
        );
    }
}

fn each_regex(expression: &Expression, visit: &mut dyn FnMut(&Regex)) {
    expression.each_text(&mut |predicate| {
        if let TextTest::Matches(regex) = &predicate.test {
            visit(regex);
        }
    });
}

impl Borrow<str> for Pattern {
    fn borrow(&self) -> &str {
        self.0.pattern()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.pattern() == other.0.pattern()
    }
}

impl Eq for Pattern {}

/// Hashes only the pattern, because `Borrow<str>` requires equal hashes.
impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.pattern().hash(state);
    }
}

impl Precedence {
    /// Returns the most significant part of the position in 64 bits.
    pub(crate) fn rank(&self) -> Rank {
        match self {
            Self::Compatible(Reverse(word), _) => Rank(!word),
            Self::Traditional(priority, _) => priority.rank(),
            Self::TraditionalStream {
                kinds: Reverse(kinds),
                category: Reverse(category),
                ends: (source, destination),
                ..
            } => {
                let ends = u64::from(*source) << 8 | u64::from(*destination);
                Rank(u64::from(!kinds) << 24 | u64::from(!category) << 16 | ends)
            }
        }
    }
}

impl Catalog<'_> {
    /// Compares the positions of two candidates.
    pub(crate) fn order(&self, left: &Entry, right: &Entry) -> Ordering {
        let place = |entry: &Entry| self.slots.get(entry.slot);
        let order = left.rank.cmp(&right.rank);
        order.then_with(|| place(left).cmp_place(place(right)))
    }

    /// Returns the conditions of the entry's cover, except those on host and path.
    pub(crate) fn demands(&self, entry: &Entry) -> Demands {
        let expression = &self.slots.get(entry.slot).expression;
        let read = || index::demands(expression, self.flavor);
        Demands {
            of_covers: self.memo.get(entry.slot, read),
            cover: entry.cover.into(),
        }
    }
}

impl Candidate {
    pub(crate) fn new(
        (route, settings): (RouteIndex, &Route),
        (place, part): (Precedence, u32),
        expression: Expression,
    ) -> Self {
        let mut captures = false;
        each_regex(&expression, &mut |regex| captures |= regex.has_groups());
        Self {
            route,
            place,
            part,
            expression: Arc::new(expression),
            strip_path: settings.strip_path,
            handling: settings.path_handling.unwrap_or(PathHandling::V0),
            captures,
        }
    }

    pub(crate) fn cmp_place(&self, other: &Self) -> Ordering {
        let place = self.place.cmp(&other.place);
        place.then(self.part.cmp(&other.part))
    }

    /// Evaluates the expression. Returns `Some` if the request matches. The inner value is the part of the path that
    /// the last successful predicate on it matched.
    pub(crate) fn ask<F: Fields>(
        &self,
        fields: &F,
        lowered: &mut Vec<u8>,
        budget: &Budget,
    ) -> Option<Option<(u32, u32)>> {
        let mut asking = Asking {
            located: None,
            budget,
        };
        let matches = self.expression.evaluate(fields, lowered, &mut asking);
        let matches = matches && !budget.is_exhausted();
        matches.then_some(asking.located)
    }
}

/// Records the part of the path that was matched last, and enforces the budget.
struct Asking<'b> {
    located: Option<(u32, u32)>,
    budget: &'b Budget,
}

impl Observer for Asking<'_> {
    fn path(&mut self, located: Range<usize>) {
        // Request heads are much smaller than 4 GiB, so this conversion cannot fail.
        let end = |end| u32::try_from(end).unwrap_or(u32::MAX);
        self.located = Some((end(located.start), end(located.end)));
    }

    fn allows(&mut self, steps: usize) -> bool {
        self.budget.spend(steps)
    }
}

/// Returns a configured SNI without a trailing dot, because clients send none.
pub(crate) fn sni_name(sni: &str) -> &str {
    match sni.strip_suffix('.') {
        Some(name) if !name.is_empty() => name,
        _ => sni,
    }
}
