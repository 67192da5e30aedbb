//! Explains to people how a router handles a request: lists the candidates in the order they are tried and says for
//! each why it was chosen or not. It checks every candidate, so it is meant for diagnosis and not for serving requests.

use crate::candidate::Candidate;
use crate::request::Parts;
use crate::request::Request;
use crate::router::{Match, Router, Scratch};
use crate::stream::{StreamRequest, StreamRouter};
use crate::table::Table;
use crate::work::Work;
use crate::{RouteIndex, rank};
use expr::{Distance, Expression, Fields, Reason, TextField};
use std::collections::HashSet;

/// The extent of an explanation.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Maximum number of candidates to list.
    pub limit: usize,
    /// Maximum number of other routes to list, the closest first.
    pub closest: usize,
    /// A route whose candidates are always listed.
    pub route: Option<RouteIndex>,
}

/// The result for a request, with the candidates that led to it.
#[derive(Debug)]
pub struct Explanation {
    pub found: Option<Match>,
    /// Whether there is no result because matching would take too many steps.
    pub is_too_costly: bool,
    /// The host without its port.
    pub host: Option<Vec<u8>>,
    /// The normalized path.
    pub path: Vec<u8>,
    pub tried: Tried,
}

/// The result for a stream, with the candidates that led to it.
#[derive(Debug)]
pub struct StreamExplanation {
    pub found: Option<RouteIndex>,
    pub tried: Tried,
}

/// The candidates that an explanation lists.
#[derive(Debug)]
pub struct Tried {
    /// The candidates that the index finds for the request, in the order they are tried.
    pub candidates: Vec<Explained>,
    /// Number of such candidates beyond the limit.
    pub omitted: usize,
    /// Other routes, each with its closest candidate; the closest route comes first.
    pub closest: Vec<Explained>,
    /// All candidates of [`Wanted::route`].
    pub route: Vec<Explained>,
}

/// A candidate and its result for the request.
#[derive(Debug)]
pub struct Explained {
    pub route: RouteIndex,
    /// Position in the order of all candidates, from 0.
    pub place: usize,
    /// The criteria that decide its position, the most important first.
    pub rank: Vec<String>,
    /// Its condition in the expression language.
    pub expression: String,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Matches,
    /// The candidate matches too, but was not chosen. A candidate that is tried earlier was chosen, or none because
    /// matching would take too many steps ([`Explanation::is_too_costly`]).
    ComesLater,
    /// The candidate does not match; these parts of its expression are false.
    Fails(Vec<Reason>),
}

impl Router {
    /// Finds the route of a request and explains why it was chosen and not another.
    pub fn explain(
        &self,
        request: &Request<'_>,
        scratch: &mut Scratch,
        wanted: Wanted,
    ) -> Explanation {
        let found = self.find(request, scratch);
        let is_too_costly = found.is_err();
        let found = found.ok().flatten();
        let slot = found.map(|found| found.slot());
        let path = scratch.path(request).to_vec();
        let parts = Parts::default();
        let view = self.view(request, &path, &parts);
        let ranked = self.table().in_order();
        let tried = with_reach(self.table(), &ranked, &view, slot);
        let rank = |place: usize| rank::of(&ranked[place].1.place, self.options());
        Explanation {
            found,
            is_too_costly,
            host: view.text(&TextField::Host).map(<[u8]>::to_vec),
            tried: Tried::of(&tried, &rank, &view, wanted),
            path: path.clone(),
        }
    }
}

impl StreamRouter {
    /// Finds the route of a connection and explains why it was chosen and not another.
    pub fn explain(&self, request: &StreamRequest<'_>, wanted: Wanted) -> StreamExplanation {
        let request = request.canonical();
        let found = self.table().find(&request, &mut Work::default());
        let found = found.ok().flatten();
        let slot = found.map(|found| found.slot());
        let ranked = self.table().in_order();
        let tried = with_reach(self.table(), &ranked, &request, slot);
        let rank = |place: usize| rank::of_stream(&ranked[place].1.place);
        StreamExplanation {
            found: slot.map(|slot| self.table().get(slot).route),
            tried: Tried::of(&tried, &rank, &request, wanted),
        }
    }
}

/// Returns all candidates in order and marks those that the index finds for the request.
fn with_reach<'c>(
    table: &Table,
    ranked: &[(u32, &'c Candidate)],
    fields: &impl Fields,
    found: Option<u32>,
) -> Vec<Ranked<'c>> {
    let reachable = table.reachable(fields, &mut Work::default());
    let reachable: HashSet<u32> = reachable.into_iter().map(|(slot, _)| slot).collect();
    let all = ranked.iter().map(|&(slot, candidate)| Ranked {
        route: candidate.route,
        expression: &candidate.expression,
        is_reachable: reachable.contains(&slot),
        is_found: found == Some(slot),
    });
    all.collect()
}

/// A candidate in the order of all candidates.
pub(crate) struct Ranked<'c> {
    pub(crate) route: RouteIndex,
    pub(crate) expression: &'c Expression,
    /// Whether the index finds it for the request.
    pub(crate) is_reachable: bool,
    /// Whether it is the chosen candidate.
    pub(crate) is_found: bool,
}

impl Tried {
    /// `rank` returns the criteria that decide the position of a candidate.
    pub(crate) fn of(
        ranked: &[Ranked<'_>],
        rank: &dyn Fn(usize) -> Vec<String>,
        fields: &impl Fields,
        wanted: Wanted,
    ) -> Self {
        let explained = |(place, candidate): (usize, &Ranked<'_>)| Explained {
            route: candidate.route,
            place,
            rank: rank(place),
            expression: candidate.expression.to_string(),
            verdict: candidate.verdict(fields),
        };
        let all = || ranked.iter().enumerate();
        let reachable = || all().filter(|(_, candidate)| candidate.is_reachable);
        let candidates: Vec<Explained> = reachable().take(wanted.limit).map(explained).collect();
        let asked = all().filter(|(_, candidate)| Some(candidate.route) == wanted.route);
        let closest = closest(ranked, fields, wanted.closest).into_iter();
        Self {
            omitted: reachable().count() - candidates.len(),
            candidates,
            closest: closest
                .map(|place| explained((place, &ranked[place])))
                .collect(),
            route: asked.map(explained).collect(),
        }
    }
}

impl Ranked<'_> {
    fn verdict(&self, fields: &impl Fields) -> Verdict {
        let reasons = self.expression.reasons(fields);
        match (reasons.is_empty(), self.is_found) {
            (true, true) => Verdict::Matches,
            (true, false) => Verdict::ComesLater,
            (false, _) => Verdict::Fails(reasons),
        }
    }
}

/// Returns the positions of the closest candidates of routes that have no reachable candidate.
fn closest(ranked: &[Ranked<'_>], fields: &impl Fields, count: usize) -> Vec<usize> {
    if count == 0 {
        return Vec::new();
    }
    let tried = ranked.iter().filter(|candidate| candidate.is_reachable);
    let mut known: HashSet<RouteIndex> = tried.map(|candidate| candidate.route).collect();
    let mut buffer = Vec::new();
    let others = ranked.iter().enumerate();
    let others = others.filter(|(_, candidate)| !known.contains(&candidate.route));
    let mut others: Vec<(Distance, usize)> = others
        .map(|(place, candidate)| (candidate.expression.distance(fields, &mut buffer), place))
        .collect();
    others.sort_unstable();
    let places = others.into_iter().map(|(_, place)| place);
    let places = places.filter(|place| known.insert(ranked[*place].route));
    places.take(count).collect()
}
