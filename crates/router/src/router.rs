//! The router: built from all routes, asked by every request.

use crate::candidate::{Candidate, Place, Problem, Regexes, RouteError, RouteIndex};
use crate::compatible::Compatible;
use crate::index::{Cursors, Index, Verdict};
use crate::request::{Parts, Request, View};
use crate::traditional::Traditional;
use crate::{Calculation, Flavor, upstream};
use expr::{Expression, Group, Observer, Regex, TextField};
use model::entities::{PathHandling, Route};
use model::uri::{Slashes, normalize_into};
use std::ops::Range;

/// How routes are matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub flavor: Flavor,
    pub calculation: Calculation,
    /// How many header lines of a request are looked at: `lua_max_req_headers`.
    pub max_headers: usize,
    /// How many arguments of a query are looked at: `lua_max_uri_args`.
    pub max_arguments: usize,
}

/// An immutable router.
pub struct Router {
    options: Options,
    /// In the order they are tried.
    candidates: Vec<Candidate>,
    /// Of each candidate.
    places: Vec<Place>,
    index: Index,
    regexes: Regexes,
}

/// Memory for matching, to be kept from request to request.
#[derive(Default)]
pub struct Scratch {
    path: Vec<u8>,
    normalized: bool,
    parts: Parts,
    lowered: Vec<u8>,
    cursors: Cursors,
}

/// A route that was found. Means something only to the router that found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    pub route: RouteIndex,
    rank: u32,
    /// The part of the path that the route asked for.
    located: Option<(u32, u32)>,
}

impl Router {
    /// A router of those routes that HTTP requests can reach. Routes that cannot be used are left out and reported.
    /// Regexes that `previous` has are not compiled again.
    pub fn build<'r>(
        routes: impl IntoIterator<Item = (RouteIndex, &'r Route)>,
        options: Options,
        previous: Option<&Router>,
    ) -> (Self, Vec<RouteError>) {
        let previous = previous.filter(|previous| previous.options.flavor == options.flavor);
        let mut compiler = Compiler {
            options,
            regexes: Regexes::default(),
            previous: previous.map(|previous| &previous.regexes),
            placed: Vec::new(),
            errors: Vec::new(),
        };
        routes
            .into_iter()
            .for_each(|(index, route)| compiler.add(index, route));
        compiler.finish()
    }

    /// The router of which some routes were replaced, added or left out: those that stay are not compiled again. The same
    /// as one of all routes that is built anew.
    pub fn replace<'r>(
        &self,
        is_removed: &dyn Fn(RouteIndex) -> bool,
        routes: impl IntoIterator<Item = (RouteIndex, &'r Route)>,
    ) -> (Self, Vec<RouteError>) {
        let kept = || {
            let all = self.places.iter().zip(&self.candidates);
            all.filter(|(_, candidate)| !is_removed(candidate.route))
        };
        let regexes = match self.regexes.is_empty() {
            true => Regexes::default(),
            false => Regexes::of(kept().map(|(_, candidate)| candidate)),
        };
        let mut compiler = Compiler {
            options: self.options,
            regexes,
            previous: Some(&self.regexes),
            placed: Vec::with_capacity(self.candidates.len() + 1),
            errors: Vec::new(),
        };
        compiler
            .placed
            .extend(kept().map(|(place, candidate)| (place.clone(), candidate.clone())));
        routes
            .into_iter()
            .for_each(|(index, route)| compiler.add(index, route));
        compiler.finish()
    }

    /// Every candidate's route and what it demands of requests, in the order they are tried.
    pub fn order(&self) -> impl Iterator<Item = (RouteIndex, &Expression)> {
        let candidates = self.candidates.iter();
        candidates.map(|candidate| (candidate.route, &*candidate.expression))
    }

    /// The route of a request. Afterwards [`Scratch::path`] has its normalised path, until the next request.
    pub fn matches(&self, request: &Request<'_>, scratch: &mut Scratch) -> Option<Match> {
        scratch.normalize(request.path);
        let path = scratch.normalized.then_some(&scratch.path[..]);
        let view = self.view(request, path.unwrap_or(request.path), &scratch.parts);
        let search = self.index.find(&view, &mut scratch.cursors);
        while let Some(entry) = self.index.next(search, &mut scratch.cursors) {
            let found = match entry.verdict() {
                Verdict::Open => self.try_candidate(entry.rank, &view, &mut scratch.lowered),
                Verdict::Matches(located) => Some(Match {
                    route: self.candidates[entry.rank as usize].route,
                    rank: entry.rank,
                    located: located.map(|end| (0, end)),
                }),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// What [`Self::matches`] must answer: every candidate is asked in order.
    #[cfg(test)]
    pub(crate) fn matches_without_index(
        &self,
        request: &Request<'_>,
        scratch: &mut Scratch,
    ) -> Option<Match> {
        scratch.normalize(request.path);
        let path = scratch.normalized.then_some(&scratch.path[..]);
        let view = self.view(request, path.unwrap_or(request.path), &scratch.parts);
        let mut ranks = 0..self.candidates.len() as u32;
        ranks.find_map(|rank| self.try_candidate(rank, &view, &mut scratch.lowered))
    }

    fn view<'v>(&self, request: &'v Request<'v>, path: &'v [u8], parts: &'v Parts) -> View<'v> {
        View::new(request, path, parts, &self.options)
    }

    fn try_candidate(&self, rank: u32, view: &View<'_>, lowered: &mut Vec<u8>) -> Option<Match> {
        let candidate = &self.candidates[rank as usize];
        let mut located = Located(None);
        let matched = candidate.expression.evaluate(view, lowered, &mut located);
        matched.then_some(Match {
            route: candidate.route,
            rank,
            located: located.0,
        })
    }

    /// The part of a normalised path that the route asked for and that does not go upstream: `X-Forwarded-Prefix`.
    /// `None` for a route that strips nothing.
    pub fn matched_prefix<'p>(&self, found: &Match, path: &'p [u8]) -> Option<&'p [u8]> {
        let candidate = &self.candidates[found.rank as usize];
        let (start, end) = found.located.filter(|_| candidate.strip_path)?;
        path.get(start as usize..end as usize)
    }

    /// Whether [`Self::captures`] may have something to show.
    pub fn has_captures(&self, found: &Match) -> bool {
        self.candidates[found.rank as usize].captures
    }

    /// Calls `each` with what the groups of the route's regexes captured; of two with one name or number the later
    /// counts. The request must be the one that was matched; it is looked at again, so ask only when someone wants to
    /// know.
    pub fn captures(
        &self,
        found: &Match,
        request: &Request<'_>,
        scratch: &mut Scratch,
        each: &mut dyn FnMut(Group<'_>, &[u8]),
    ) {
        if !self.has_captures(found) {
            return;
        }
        scratch.normalize(request.path);
        let path = scratch.normalized.then_some(&scratch.path[..]);
        let view = self.view(request, path.unwrap_or(request.path), &scratch.parts);
        let candidate = &self.candidates[found.rank as usize];
        let mut captures = Captures {
            of_path_only: self.options.flavor == Flavor::Traditional,
            each,
        };
        candidate
            .expression
            .evaluate(&view, &mut scratch.lowered, &mut captures);
    }

    /// Appends what the service is asked for: its own path joined with the normalised path of the request as the route
    /// says, escaped, and the query as it was sent.
    pub fn write_upstream_uri(
        &self,
        found: &Match,
        service_path: Option<&str>,
        path: &[u8],
        query: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        let candidate = &self.candidates[found.rank as usize];
        let located = found.located.filter(|_| candidate.strip_path);
        let handling = match self.options.flavor {
            Flavor::Traditional => candidate.handling,
            Flavor::TraditionalCompatible | Flavor::Expressions => PathHandling::V0,
        };
        // By length from the start, wherever the text was found: so does Kong.
        let stripped = located.map(|(start, end)| (end - start) as usize);
        let base = service_path.unwrap_or("/").as_bytes();
        upstream::write_path(base, path, stripped, handling, out);
        if let Some(query) = query {
            out.push(b'?');
            out.extend_from_slice(query);
        }
    }
}

/// Collects the candidates of a router.
struct Compiler<'p> {
    options: Options,
    regexes: Regexes,
    previous: Option<&'p Regexes>,
    placed: Vec<(Place, Candidate)>,
    errors: Vec<RouteError>,
}

impl Compiler<'_> {
    /// Routes that HTTP requests cannot reach are left out.
    fn add(&mut self, index: RouteIndex, route: &Route) {
        if !route.protocols.iter().any(|protocol| protocol.is_http()) {
            return;
        }
        let Self {
            options,
            regexes,
            previous,
            placed,
            errors,
        } = self;
        let previous = *previous;
        let mut each = |compiled: Result<(Place, Candidate), Problem>| match compiled {
            Ok(candidate) => placed.push(candidate),
            Err(problem) => errors.push(RouteError {
                route: index,
                id: route.id,
                problem,
            }),
        };
        match options.flavor {
            Flavor::Traditional => {
                Traditional { regexes, previous }.compile(index, route, &mut each)
            }
            Flavor::TraditionalCompatible | Flavor::Expressions => Compatible {
                calculation: options.calculation,
                regexes,
                previous,
            }
            .compile(index, route, &mut each),
        }
    }

    fn finish(self) -> (Router, Vec<RouteError>) {
        let mut placed = self.placed;
        // Stable, and hardly any work when most are in order.
        placed.sort_by(|(left, _), (right, _)| left.cmp(right));
        let (places, candidates): (Vec<_>, Vec<_>) = placed.into_iter().unzip();
        let router = Router {
            index: Index::build(&candidates, self.options.flavor),
            options: self.options,
            candidates,
            places,
            regexes: self.regexes,
        };
        (router, self.errors)
    }
}

impl Scratch {
    /// The normalised path of the request that was matched last.
    pub fn path<'s>(&'s self, request: &Request<'s>) -> &'s [u8] {
        if self.normalized {
            &self.path
        } else {
            request.path
        }
    }

    fn normalize(&mut self, path: &[u8]) {
        self.parts.forget();
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

/// Remembers where the path was located last.
struct Located(Option<(u32, u32)>);

impl Observer for Located {
    fn path(&mut self, located: Range<usize>) {
        // A path longer than this does not fit into a request head.
        let end = |end| u32::try_from(end).unwrap_or(u32::MAX);
        self.0 = Some((end(located.start), end(located.end)));
    }
}

struct Captures<'c> {
    of_path_only: bool,
    each: &'c mut dyn FnMut(Group<'_>, &[u8]),
}

impl Observer for Captures<'_> {
    fn regex(&mut self, field: &TextField, regex: &Regex, value: &[u8]) {
        if !self.of_path_only || *field == TextField::Path {
            regex.captures(value, &mut |group, value| (self.each)(group, value));
        }
    }
}
