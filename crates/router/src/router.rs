//! The HTTP router, which is built from all routes and finds the route of each request.

use crate::candidate::{Candidate, Problem, Regexes, RouteError, RouteIndex};
use crate::compatible::Compatible;
use crate::expressions::Expressions;
use crate::request::{Parts, Request, View};
use crate::table::Table;
use crate::traditional::Traditional;
use crate::work::{TooCostly, Work};
use crate::{Calculation, Flavor, upstream};
use expr::{Expression, Group, NoObserver, Observer, Regex, TextField};
use model::entities::{PathHandling, Route};
use model::uri::{Slashes, normalize_into};
use std::collections::HashSet;

/// Settings for matching routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub flavor: Flavor,
    pub calculation: Calculation,
    /// Maximum number of header lines of a request that are compared (`lua_max_req_headers`).
    pub max_headers: usize,
    /// Maximum number of query arguments that are compared (`lua_max_uri_args`).
    pub max_arguments: usize,
}

/// An immutable router. Clones share all data.
#[derive(Clone)]
pub struct Router {
    options: Options,
    table: Table,
}

/// Buffers for matching, reused from request to request.
#[derive(Default)]
pub struct Scratch {
    path: Vec<u8>,
    /// Whether `path` is the normalized path. If false, the path of the request is already normalized.
    normalized: bool,
    parts: Parts,
    work: Work,
}

/// A route that was found. Valid only for the router that found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    pub route: RouteIndex,
    slot: u32,
    /// The part of the path that matched the route's path.
    located: Option<(u32, u32)>,
}

impl Match {
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }
}

impl Router {
    /// Builds a router from the routes that HTTP requests can reach. Unusable routes are left out and reported. Regexes
    /// that `previous` contains are not compiled again.
    pub fn build<'r>(
        routes: impl IntoIterator<Item = (RouteIndex, &'r Route)>,
        options: Options,
        previous: Option<&Router>,
    ) -> (Self, Vec<RouteError>) {
        let previous = previous.filter(|previous| previous.options.flavor == options.flavor);
        let router = Self {
            options,
            table: Table::new(options.flavor),
        };
        let regexes = previous.map_or_else(Regexes::default, |previous| {
            previous.table.regexes().clone()
        });
        router.with(regexes, routes)
    }

    /// Returns a copy of this router with some routes removed and others added; a replaced route is in both lists. The
    /// cost depends on the number of changed routes, not on the total. The result decides like a router built from all
    /// routes.
    pub fn replace<'r>(
        &self,
        removed: &[RouteIndex],
        routes: impl IntoIterator<Item = (RouteIndex, &'r Route)>,
    ) -> (Self, Vec<RouteError>) {
        let mut router = self.clone();
        for route in removed {
            router.table.remove(*route);
        }
        // `self` still has the regexes of removed routes, so a replaced route does not compile its regexes again.
        router.with(self.table.regexes().clone(), routes)
    }

    fn with<'r>(
        mut self,
        regexes: Regexes,
        routes: impl IntoIterator<Item = (RouteIndex, &'r Route)>,
    ) -> (Self, Vec<RouteError>) {
        let mut compiler = Compiler {
            options: self.options,
            regexes,
            candidates: Vec::new(),
            errors: Vec::new(),
        };
        for (index, route) in routes {
            compiler.add(index, route);
        }
        let Compiler {
            mut candidates,
            errors,
            ..
        } = compiler;
        candidates.sort_by(Candidate::cmp_place);
        self.table.add(candidates.into_iter());
        (self, errors)
    }

    /// Returns route and condition of every candidate, in the order they are tried.
    pub fn order(&self) -> impl Iterator<Item = (RouteIndex, &Expression)> {
        let candidates = self.table.in_order().into_iter();
        candidates.map(|(_, candidate)| (candidate.route, &*candidate.expression))
    }

    /// Returns the candidate that was found.
    pub(crate) fn candidate(&self, found: &Match) -> &Candidate {
        self.table.get(found.slot)
    }

    /// Whether a request satisfies an expression.
    pub(crate) fn satisfies(
        &self,
        request: &Request<'_>,
        expression: &Expression,
        scratch: &mut Scratch,
    ) -> bool {
        scratch.normalize(request.path);
        let path = scratch.normalized.then_some(&scratch.path[..]);
        let view = self.view(request, path.unwrap_or(request.path), &scratch.parts);
        expression.evaluate(&view, &mut scratch.work.lowered, &mut NoObserver)
    }

    /// Returns the route of a request. Afterwards [`Scratch::path`] returns its normalized path, until the next
    /// request.
    ///
    /// # Errors
    ///
    /// Fails if the match would take more than [`MAX_STEPS`](crate::MAX_STEPS), even if a route was already found: a
    /// better one may be among the candidates that were not checked.
    pub fn find(
        &self,
        request: &Request<'_>,
        scratch: &mut Scratch,
    ) -> Result<Option<Match>, TooCostly> {
        scratch.normalize(request.path);
        let path = scratch.normalized.then_some(&scratch.path[..]);
        let view = self.view(request, path.unwrap_or(request.path), &scratch.parts);
        let found = self.table.find(&view, &mut scratch.work)?;
        Ok(found.map(|found| Match {
            route: found.route(),
            slot: found.slot(),
            located: found.located,
        }))
    }

    /// Like [`Self::find`], but a request that is too costly to match has no route.
    pub fn matches(&self, request: &Request<'_>, scratch: &mut Scratch) -> Option<Match> {
        self.find(request, scratch).ok().flatten()
    }

    /// Returns the routes that the index finds for a request, in the order they are tried. No other route can match it.
    /// This is for diagnosis; [`Self::find`] returns the chosen route.
    pub fn reachable(&self, request: &Request<'_>, scratch: &mut Scratch) -> Vec<RouteIndex> {
        scratch.normalize(request.path);
        let path = scratch.normalized.then_some(&scratch.path[..]);
        let view = self.view(request, path.unwrap_or(request.path), &scratch.parts);
        let reachable = self.table.reachable(&view, &mut scratch.work);
        let mut routes: Vec<_> = reachable
            .iter()
            .map(|(_, candidate)| candidate.route)
            .collect();
        let mut seen = HashSet::new();
        routes.retain(|route| seen.insert(*route));
        routes
    }

    /// Checks every candidate without the index; must return the same as [`Self::matches`].
    #[cfg(test)]
    pub(crate) fn matches_without_index(
        &self,
        request: &Request<'_>,
        scratch: &mut Scratch,
    ) -> Option<Match> {
        scratch.normalize(request.path);
        let path = scratch.normalized.then_some(&scratch.path[..]);
        let view = self.view(request, path.unwrap_or(request.path), &scratch.parts);
        let matching = self.table.iter().filter_map(|(slot, candidate)| {
            let located = candidate.ask(&view, &mut scratch.work.lowered, &scratch.work.budget)?;
            Some((slot, candidate, located))
        });
        let best = matching.min_by(|(_, left, _), (_, right, _)| left.cmp_place(right));
        best.map(|(slot, candidate, located)| Match {
            route: candidate.route,
            slot,
            located,
        })
    }

    pub(crate) fn view<'v>(
        &self,
        request: &'v Request<'v>,
        path: &'v [u8],
        parts: &'v Parts,
    ) -> View<'v> {
        View::new(request, path, parts, &self.options)
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn options(&self) -> Options {
        self.options
    }

    /// Returns the part of a normalized path that the route matched and strips, for `X-Forwarded-Prefix`. `None` if the
    /// route strips nothing.
    pub fn matched_prefix<'p>(&self, found: &Match, path: &'p [u8]) -> Option<&'p [u8]> {
        let candidate = self.table.get(found.slot);
        let (start, end) = located(found).filter(|_| candidate.strip_path)?;
        path.get(start as usize..end as usize)
    }

    /// Whether [`Self::captures`] may return anything.
    pub fn has_captures(&self, found: &Match) -> bool {
        self.table.get(found.slot).captures
    }

    /// Calls `each` with the captures of the route's regexes. If two groups have the same name or number, `each` is
    /// called for both, and the caller must use the later value. The request must be the one that was matched. It is
    /// matched again, so call this only when captures are needed.
    pub fn captures(
        &self,
        found: &Match,
        request: &Request<'_>,
        scratch: &mut Scratch,
        each: &mut dyn FnMut(Group<'_>, &[u8]),
    ) {
        self.observe_captures(found, request, scratch, false, each);
    }

    /// Passes the captures and, as group 0, the whole match of each regex to `each`.
    pub fn captures_and_match(
        &self,
        found: &Match,
        request: &Request<'_>,
        scratch: &mut Scratch,
        each: &mut dyn FnMut(Group<'_>, &[u8]),
    ) {
        self.observe_captures(found, request, scratch, true, each);
    }

    fn observe_captures(
        &self,
        found: &Match,
        request: &Request<'_>,
        scratch: &mut Scratch,
        with_match: bool,
        each: &mut dyn FnMut(Group<'_>, &[u8]),
    ) {
        if !self.has_captures(found) {
            return;
        }
        scratch.normalize(request.path);
        let path = scratch.normalized.then_some(&scratch.path[..]);
        let view = self.view(request, path.unwrap_or(request.path), &scratch.parts);
        let candidate = self.table.get(found.slot);
        let mut captures = Captures {
            of_path_only: self.options.flavor == Flavor::Traditional,
            with_match,
            each,
        };
        candidate
            .expression
            .evaluate(&view, &mut scratch.work.lowered, &mut captures);
    }

    /// Appends the request target for the service. It consists of the service's path and the normalized path of the
    /// request, joined as the route configures and escaped, and of the query as it was sent.
    pub fn write_upstream_uri(
        &self,
        found: &Match,
        service_path: Option<&str>,
        path: &[u8],
        query: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        let candidate = self.table.get(found.slot);
        let located = located(found).filter(|_| candidate.strip_path);
        let handling = match self.options.flavor {
            Flavor::Traditional => candidate.handling,
            Flavor::TraditionalCompatible | Flavor::Expressions => PathHandling::V0,
        };
        // Kong strips by length from the start, even if the match is elsewhere in the path.
        let stripped = located.map(|(start, end)| (end - start) as usize);
        let base = service_path.unwrap_or("/").as_bytes();
        upstream::write_path(base, path, stripped, handling, out);
        if let Some(query) = query {
            out.push(b'?');
            out.extend_from_slice(query);
        }
    }
}

/// Returns the part of the path that the route matched. An empty part counts as none, as in Kong.
fn located(found: &Match) -> Option<(u32, u32)> {
    found.located.filter(|(start, end)| start < end)
}

/// Creates the candidates of routes.
struct Compiler {
    options: Options,
    /// The regexes that are already compiled.
    regexes: Regexes,
    candidates: Vec<Candidate>,
    errors: Vec<RouteError>,
}

impl Compiler {
    /// Adds the candidates of a route. Routes that HTTP requests cannot reach are left out.
    fn add(&mut self, index: RouteIndex, route: &Route) {
        if !route.protocols.iter().any(|protocol| protocol.is_http()) {
            return;
        }
        let Self {
            options,
            regexes,
            candidates,
            errors,
        } = self;
        let known = candidates.len();
        let mut each = |compiled: Result<Candidate, Problem>| match compiled {
            Ok(candidate) => candidates.push(candidate),
            Err(problem) => errors.push(RouteError {
                route: index,
                id: route.id,
                problem,
            }),
        };
        match options.flavor {
            Flavor::Traditional => Traditional { regexes }.compile(index, route, &mut each),
            Flavor::TraditionalCompatible => Compatible {
                calculation: options.calculation,
                protocols: None,
                regexes,
            }
            .compile(index, route, &mut each),
            Flavor::Expressions => Expressions {
                calculation: options.calculation,
                regexes,
            }
            .compile(index, route, &mut each),
        }
        // The next route with the same pattern reuses the regex.
        for candidate in &candidates[known..] {
            regexes.keep(&candidate.expression);
        }
    }
}

impl Scratch {
    /// Returns the normalized path of the last matched request.
    pub fn path<'s>(&'s self, request: &Request<'s>) -> &'s [u8] {
        if self.normalized {
            &self.path
        } else {
            request.path
        }
    }

    /// Returns the number of steps of the last match.
    pub fn steps(&self) -> usize {
        self.work.budget.spent()
    }

    /// Returns the buffer for [`Expression::evaluate`].
    pub(crate) fn lowered(&mut self) -> &mut Vec<u8> {
        &mut self.work.lowered
    }

    fn normalize(&mut self, path: &[u8]) {
        self.parts.forget();
        self.work.begin();
        self.normalized = normalize_into(path, Slashes::Merge, &mut self.path);
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            flavor: Flavor::TraditionalCompatible,
            calculation: Calculation::Original,
            max_headers: 100,
            max_arguments: 100,
        }
    }
}

struct Captures<'c> {
    of_path_only: bool,
    with_match: bool,
    each: &'c mut dyn FnMut(Group<'_>, &[u8]),
}

impl Observer for Captures<'_> {
    fn regex(&mut self, field: &TextField, regex: &Regex, value: &[u8]) {
        if !self.of_path_only || *field == TextField::Path {
            if self.with_match
                && *field == TextField::Path
                && let Some(range) = regex.find(value)
            {
                (self.each)(Group::Number(0), &value[range]);
            }
            regex.captures(value, &mut |group, value| (self.each)(group, value));
        }
    }
}
