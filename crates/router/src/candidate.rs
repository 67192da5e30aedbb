//! Candidates: what routes are split into, each with an expression of its own and a place in the order of all.

use expr::{BadBlock, Dialect, Expression, Regex, RegexError, TextTest};
use model::entities::{PathHandling, Route, RouteId};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// The position of a route among those that the router was built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteIndex(pub u32);

/// Why a route, or a part of it, is not in the router. The others are.
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
    #[error("it has nothing to match requests by")]
    NoAttributes,
}

/// One way to reach a route.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) route: RouteIndex,
    /// Shared with the routers before and after that have the same route.
    pub(crate) expression: Arc<Expression>,
    pub(crate) strip_path: bool,
    pub(crate) handling: PathHandling,
    /// Whether a regex in the expression has groups.
    pub(crate) captures: bool,
}

/// Where a candidate stands: smaller ones are tried first. Only places of one flavour are compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Compatible(Reverse<u64>, Reverse<Uuid>),
    /// Behind a pointer: large, and the rarer flavour.
    Traditional(Arc<crate::priority::Traditional>, RouteId),
}

/// Regexes by their text, so that equal ones are compiled and kept once.
#[derive(Default)]
pub(crate) struct Regexes {
    used: HashMap<Box<str>, Regex>,
}

impl Regexes {
    /// Those that candidates use.
    pub(crate) fn of<'c>(candidates: impl Iterator<Item = &'c Candidate>) -> Self {
        let mut used = HashMap::new();
        for candidate in candidates {
            candidate.expression.each_text(&mut |predicate| {
                if let TextTest::Matches(regex) = &predicate.test
                    && !used.contains_key(regex.pattern())
                {
                    used.insert(regex.pattern().into(), regex.clone());
                }
            });
        }
        Self { used }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// The regex, taken from those of an earlier router if it is there.
    pub(crate) fn test(
        &mut self,
        pattern: &str,
        dialect: Dialect,
        previous: Option<&Regexes>,
    ) -> Result<TextTest, Problem> {
        if let Some(known) = self.used.get(pattern) {
            return Ok(TextTest::Matches(known.clone()));
        }
        let known = previous.and_then(|previous| previous.used.get(pattern));
        let regex = match known {
            Some(known) => known.clone(),
            None => Regex::new(pattern, dialect).map_err(|source| Problem::Regex {
                pattern: pattern.to_owned(),
                source,
            })?,
        };
        self.used.insert(pattern.into(), regex.clone());
        Ok(TextTest::Matches(regex))
    }
}

impl Candidate {
    pub(crate) fn new(route: RouteIndex, settings: &Route, expression: Expression) -> Self {
        let mut captures = false;
        expression.each_text(&mut |predicate| {
            captures |= matches!(&predicate.test, TextTest::Matches(regex) if regex.has_groups());
        });
        Self {
            route,
            expression: Arc::new(expression),
            strip_path: settings.strip_path,
            handling: settings.path_handling.unwrap_or(PathHandling::V0),
            captures,
        }
    }
}

/// A configured SNI as handshakes carry it: without the dot of the root.
pub(crate) fn sni_name(sni: &str) -> &str {
    match sni.strip_suffix('.') {
        Some(name) if !name.is_empty() => name,
        _ => sni,
    }
}
