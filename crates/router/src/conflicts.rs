//! Finds routing conflicts from the routes alone, without traffic: routes that can never be chosen, and pairs of routes
//! that are ordered only by a tie-break. HTTP and stream routers are searched in the same way.
//!
//! Every reported conflict is proven. A route is reported as unreachable only if that follows from its expression and
//! from the expressions that are tried before it. A pair is reported as tied only with a request that satisfies both
//! routes. Candidates and pairs that cannot be decided are counted.

mod automata;
mod cases;
mod near;
mod ranges;
mod reach;
mod sample;
mod steps;
mod stream;
mod texts;
mod witness;

use self::automata::Automata;
use self::cases::{Case, TooMany};
use self::near::Keys;
use self::reach::Fate;
use self::steps::{STEPS_OF_AUTOMATA, STEPS_OF_TEXTS, Steps};
pub use self::stream::StreamWitness;
use self::texts::Solution;
pub use self::witness::Witness;
use crate::candidate::Candidate;
use crate::table::Table;
use crate::{RouteIndex, Router, Scratch, StreamRouter};
use expr::{Expression, Subsystem};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Maximum number of pairs that are checked in one router: a constant, and a number of pairs per candidate.
const GLANCES: usize = 100_000;
const GLANCES_PER_CANDIDATE: usize = 200;

/// Maximum number of undecided pairs. After that many, the search for ties stops, because such pairs take the longest.
const UNKNOWN_PAIRS: usize = 200;

/// Maximum number of pairs that are checked around the chosen routes.
const NEIGHBOURS: usize = 1000;

/// The conflicts between the routes of a router.
#[derive(Debug)]
pub struct Conflicts<W> {
    /// Unreachable routes and parts, in the order that candidates are tried.
    pub never: Vec<Never>,
    /// Pairs of equal priority, in the order that the first candidate of each pair is tried.
    pub ties: Vec<Tie<W>>,
    /// Number of candidates and pairs that could not be decided.
    pub undecided: usize,
    /// Whether a conflict was left out, or a pair was not checked, because of a limit other than that on steps.
    pub truncated: bool,
    /// False if the search ran out of steps or was cancelled. There may then be more conflicts.
    pub complete: bool,
}

/// The limits of a search for conflicts. Routers that are searched one after the other share them.
pub struct Search<'e> {
    steps: Steps<'e>,
    /// Number of conflicts that may still be reported, by type.
    never: Cell<usize>,
    ties: Cell<usize>,
}

impl<'e> Search<'e> {
    /// Creates a search that reports at most `limit` conflicts of each type. It calls `is_cancelled` from time to time.
    pub fn new(limit: usize, is_cancelled: &'e dyn Fn() -> bool) -> Self {
        Self {
            steps: Steps::new(is_cancelled),
            never: Cell::new(limit),
            ties: Cell::new(limit),
        }
    }
}

/// Decrements the counter; returns false if it is zero.
fn take_one(left: &Cell<usize>) -> bool {
    let less = left.get().checked_sub(1);
    less.map(|less| left.set(less)).is_some()
}

/// A route, or a part of it, that no request reaches.
#[derive(Debug)]
pub struct Never {
    pub route: RouteIndex,
    /// The condition of the part.
    pub part: Arc<Expression>,
    /// Whether this search has found all parts of the route to be unreachable.
    pub whole: bool,
    pub reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// No request satisfies the expression.
    Contradiction,
    /// Every request that satisfies the expression also satisfies one of these routes, which are tried earlier. They
    /// are listed in the order they are tried. The list contains the route itself if another part of it is tried
    /// earlier and shadows this part.
    Shadowed { by: Vec<RouteIndex> },
}

/// Two routes of equal priority that one request satisfies. The tie-break, an id or an age, decides which one is
/// chosen.
#[derive(Debug)]
pub struct Tie<W> {
    /// The route that is tried first.
    pub first: RouteIndex,
    pub second: RouteIndex,
    /// A request that satisfies both.
    pub witness: W,
}

/// The interface that the search needs from a router. In this module "request" also means a stream.
trait Decider {
    type Witness;

    const SUBSYSTEM: Subsystem;

    fn table(&self) -> &Table;

    /// Returns a request that satisfies the case, provided that its fields do not depend on each other.
    fn example(&self, case: &Case<'_>, automata: &Automata) -> Solution<Self::Witness>;

    /// Whether a request really satisfies an expression.
    fn accepts(
        &self,
        witness: &Self::Witness,
        expression: &Expression,
        scratch: &mut Scratch,
    ) -> bool;

    /// Returns the candidate that the router chooses for a request.
    fn winner(&self, witness: &Self::Witness, scratch: &mut Scratch) -> Option<&Candidate>;
}

impl Router {
    /// Returns the conflicts among all routes.
    pub fn conflicts(&self, search: &Search<'_>) -> Conflicts<Witness> {
        among_all(self, search)
    }

    /// Returns the conflicts of these routes with each other and with all other routes. To be fast, it checks only
    /// candidates that may overlap with these routes.
    pub fn conflicts_of(&self, routes: &[RouteIndex], search: &Search<'_>) -> Conflicts<Witness> {
        among_some(self, routes, search)
    }
}

impl StreamRouter {
    /// Like [`Router::conflicts`].
    pub fn conflicts(&self, search: &Search<'_>) -> Conflicts<StreamWitness> {
        among_all(self, search)
    }

    /// Like [`Router::conflicts_of`].
    pub fn conflicts_of(
        &self,
        routes: &[RouteIndex],
        search: &Search<'_>,
    ) -> Conflicts<StreamWitness> {
        among_some(self, routes, search)
    }
}

fn among_all<D: Decider>(router: &D, search: &Search<'_>) -> Conflicts<D::Witness> {
    let in_order = router.table().in_order().into_iter();
    let candidates: Vec<_> = in_order.map(|(_, candidate)| candidate).collect();
    search.steps.add(candidates.len());
    let mut analysis = Analysis::new(router, candidates, search);
    for number in 0..analysis.ranked.len() {
        analysis.judge(number);
    }
    analysis.tie_all();
    analysis.finish()
}

fn among_some<D: Decider>(
    router: &D,
    routes: &[RouteIndex],
    search: &Search<'_>,
) -> Conflicts<D::Witness> {
    let (table, steps) = (router.table(), &search.steps);
    steps.add(table.len());
    let is_one = |candidate: &&Candidate| routes.contains(&candidate.route);
    let own = routes.iter().flat_map(|route| table.of_route(*route));
    let cases: Vec<_> = own
        .filter_map(|candidate| cases::cases(&candidate.expression, D::SUBSYSTEM).ok())
        .flatten()
        .collect();
    let is_near = |candidate: &&Candidate| {
        is_one(candidate)
            || cases.iter().any(|case| {
                let work = case.size() * cases::size(&candidate.expression);
                steps.spend(work) && case.may_meet(&candidate.expression, D::SUBSYSTEM)
            })
    };
    let all = table.iter().map(|(_, candidate)| candidate);
    let mut near: Vec<_> = all.filter(is_near).collect();
    near.sort_by(|left, right| left.cmp_place(right));
    let chosen: Vec<usize> = (0..near.len()).filter(|at| is_one(&near[*at])).collect();
    let mut analysis = Analysis::new(router, near, search);
    chosen.iter().for_each(|number| analysis.judge(*number));
    analysis.look_around(&chosen);
    analysis.finish()
}

/// Tests requests against the router.
struct Prober<'r, 'e, D> {
    router: &'r D,
    scratch: Scratch,
    automata: Automata,
    search: &'e Search<'e>,
}

impl<'r, D: Decider> Prober<'r, '_, D> {
    fn example(&self, case: &Case<'_>) -> Solution<D::Witness> {
        let solving = if case.has_regex() {
            STEPS_OF_AUTOMATA
        } else {
            STEPS_OF_TEXTS
        };
        if !self.search.steps.spend(solving + case.size()) {
            return Solution::Unknown;
        }
        self.router.example(case, &self.automata)
    }

    fn accepts(&mut self, expression: &Expression, witness: &D::Witness) -> bool {
        self.router.accepts(witness, expression, &mut self.scratch)
    }

    fn winner(&mut self, witness: &D::Witness) -> Option<&'r Candidate> {
        self.router.winner(witness, &mut self.scratch)
    }
}

/// The state of the search.
struct Analysis<'r, 'e, D: Decider> {
    prober: Prober<'r, 'e, D>,
    /// The candidates in the order they are tried.
    ranked: Vec<&'r Candidate>,
    /// Number of pairs that may still be checked.
    glances: usize,
    never: BTreeMap<usize, Reason>,
    /// The candidates that could not be decided.
    unknown: HashSet<usize>,
    /// The ties that were found, by the numbers of the two candidates.
    ties: BTreeMap<(usize, usize), D::Witness>,
    tied_routes: HashSet<(RouteIndex, RouteIndex)>,
    undecided_pairs: usize,
    truncated: bool,
}

impl<'r, 'e, D: Decider> Analysis<'r, 'e, D> {
    fn new(router: &'r D, ranked: Vec<&'r Candidate>, search: &'e Search<'e>) -> Self {
        Self {
            prober: Prober {
                router,
                scratch: Scratch::default(),
                automata: Automata::default(),
                search,
            },
            glances: GLANCES + GLANCES_PER_CANDIDATE * ranked.len(),
            ranked,
            never: BTreeMap::new(),
            unknown: HashSet::new(),
            ties: BTreeMap::new(),
            tied_routes: HashSet::new(),
            undecided_pairs: 0,
            truncated: false,
        }
    }

    /// Records the candidate if it can never be chosen.
    fn judge(&mut self, number: usize) {
        if self.prober.search.steps.are_used_up() {
            return;
        }
        let reason = match reach::fate(&mut self.prober, self.ranked[number]) {
            Fate::Reached => return,
            Fate::Unknown => {
                self.unknown.insert(number);
                return;
            }
            Fate::Contradicts => Reason::Contradiction,
            Fate::Shadowed(by) => Reason::Shadowed {
                by: Self::in_order(by),
            },
        };
        self.note_never(number, reason);
    }

    fn note_never(&mut self, number: usize, reason: Reason) {
        if take_one(&self.prober.search.never) {
            self.never.insert(number, reason);
        } else {
            self.truncated = true;
        }
    }

    /// Returns the routes of the candidates, in the order they are tried.
    fn in_order(mut candidates: Vec<&Candidate>) -> Vec<RouteIndex> {
        candidates.sort_by(|left, right| left.cmp_place(right));
        let mut routes = Vec::new();
        for candidate in candidates {
            if !routes.contains(&candidate.route) {
                routes.push(candidate.route);
            }
        }
        routes
    }

    /// Records all ties.
    fn tie_all(&mut self) {
        let ranked = self.ranked.clone();
        let mut first = 0;
        for group in ranked.chunk_by(|left, right| left.place.ranks_as(&right.place)) {
            let cases: Vec<_> = group
                .iter()
                .map(|candidate| cases::cases(&candidate.expression, D::SUBSYSTEM))
                .collect();
            let known: Vec<_> = (first..)
                .zip(&cases)
                .filter_map(|(number, cases)| Some((number, cases.as_ref().ok()?)))
                .collect();
            let keys: Vec<_> = known
                .iter()
                .map(|(_, cases)| Keys::of(cases, D::SUBSYSTEM))
                .collect();
            let stopped = near::pairs(&keys, &mut |left, right| {
                let (left, right) = (known[left], known[right]);
                self.tie(left, right)
            });
            if stopped.is_break() {
                return;
            }
            first += group.len();
        }
    }

    /// Records a tie if one request satisfies both candidates. The router tries `first` before `second`.
    fn tie(
        &mut self,
        (first, left): (usize, &Vec<Case<'r>>),
        (second, right): (usize, &Vec<Case<'r>>),
    ) -> ControlFlow<()> {
        self.glance()?;
        let candidates = [first, second].map(|number| self.ranked[number]);
        let routes = (candidates[0].route, candidates[1].route);
        if routes.0 == routes.1 || self.tied_routes.contains(&routes) {
            return ControlFlow::Continue(());
        }
        if self.undecided_pairs == UNKNOWN_PAIRS {
            return self.stop();
        }
        match self.common_request(candidates, left, right) {
            Solution::Nothing => {}
            Solution::Unknown => self.undecided_pairs += 1,
            Solution::One(witness) => {
                if !take_one(&self.prober.search.ties) {
                    return self.stop();
                }
                self.ties.insert((first, second), witness);
                self.tied_routes.insert(routes);
            }
        }
        ControlFlow::Continue(())
    }

    /// Counts a pair. Breaks if no more pairs may be checked.
    fn glance(&mut self) -> ControlFlow<()> {
        if self.glances == 0 {
            return self.stop();
        }
        self.glances -= 1;
        if self.prober.search.steps.spend(1) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }

    /// Stops the search for pairs before a pair that it does not check or does not report.
    fn stop(&mut self) -> ControlFlow<()> {
        self.truncated = true;
        ControlFlow::Break(())
    }

    /// Returns a request that satisfies both candidates.
    fn common_request(
        &mut self,
        candidates: [&Candidate; 2],
        left: &[Case<'r>],
        right: &[Case<'r>],
    ) -> Solution<D::Witness> {
        let mut unknown = false;
        for (left, right) in left
            .iter()
            .flat_map(|left| right.iter().map(move |right| (left, right)))
        {
            if !self.prober.search.steps.spend(left.meeting(right)) {
                return Solution::Unknown;
            }
            if left.excludes(right) {
                continue;
            }
            let answer = match left.and(right) {
                Ok(None) => continue,
                Ok(Some(both)) => self.prober.example(&both),
                Err(TooMany) => Solution::Unknown,
            };
            match answer {
                Solution::Nothing => {}
                Solution::One(witness)
                    if candidates
                        .iter()
                        .all(|one| self.prober.accepts(&one.expression, &witness)) =>
                {
                    return Solution::One(witness);
                }
                Solution::One(_) | Solution::Unknown => unknown = true,
            }
        }
        if unknown {
            Solution::Unknown
        } else {
            Solution::Nothing
        }
    }

    /// Checks the effect of the chosen candidates on others: candidates that they shadow, and ties with them.
    fn look_around(&mut self, chosen: &[usize]) {
        let ranked = self.ranked.clone();
        // A chosen candidate may shadow those after it, and may be tied with those of its rank.
        let may_conflict = |number: usize| {
            let place = &ranked[number].place;
            let mut chosen = chosen.iter();
            chosen.any(|own| *own < number || ranked[*own].place.ranks_as(place))
        };
        let mut all = Vec::with_capacity(ranked.len());
        for (number, candidate) in ranked.iter().enumerate() {
            let cases = cases::cases(&candidate.expression, D::SUBSYSTEM);
            if cases.is_err() && may_conflict(number) {
                self.unknown.insert(number);
            }
            all.push(cases.unwrap_or_default());
        }
        let keys: Vec<_> = all
            .iter()
            .map(|cases| Keys::of(cases, D::SUBSYSTEM))
            .collect();
        let mut left = NEIGHBOURS;
        let mut meet = |first: usize, second: usize| {
            // The chosen candidates have already been judged.
            let may_shadow = chosen.contains(&first) && !chosen.contains(&second);
            let may_tie = ranked[first].place.ranks_as(&ranked[second].place);
            if !may_shadow && !may_tie {
                return self.glance();
            }
            if left == 0 {
                return self.stop();
            }
            left -= 1;
            if may_shadow {
                self.judge_as_shadowed(second, ranked[first].route);
            }
            if may_tie {
                self.tie((first, &all[first]), (second, &all[second]))
            } else {
                ControlFlow::Continue(())
            }
        };
        let is_chosen = |number| chosen.contains(&number);
        let stopped = near::pairs_with(&keys, &is_chosen, &mut meet);
        if stopped.is_break() {
            return;
        }
        let own: Vec<_> = chosen
            .iter()
            .map(|number| Keys::of(&all[*number], D::SUBSYSTEM))
            .collect();
        let mut meet_own = |first: usize, second: usize| meet(chosen[first], chosen[second]);
        let _ = near::pairs(&own, &mut meet_own);
    }

    /// Records the candidate if it is shadowed and `route` is one of the routes that shadow it.
    fn judge_as_shadowed(&mut self, number: usize, route: RouteIndex) {
        let is_judged = self.never.contains_key(&number) || self.unknown.contains(&number);
        if is_judged || self.ranked[number].route == route {
            return;
        }
        if self.prober.search.steps.are_used_up() {
            return;
        }
        match reach::fate(&mut self.prober, self.ranked[number]) {
            Fate::Shadowed(by) if by.iter().any(|candidate| candidate.route == route) => {
                let by = Self::in_order(by);
                self.note_never(number, Reason::Shadowed { by });
            }
            Fate::Unknown => {
                self.unknown.insert(number);
            }
            Fate::Shadowed(_) | Fate::Reached | Fate::Contradicts => {}
        }
    }

    fn finish(self) -> Conflicts<D::Witness> {
        let route = |number: usize| self.ranked[number].route;
        let mut parts: HashMap<RouteIndex, usize> = HashMap::new();
        for number in self.never.keys() {
            *parts.entry(route(*number)).or_default() += 1;
        }
        let is_whole = |route| {
            let all = self.prober.router.table().of_route(route).count();
            parts.get(&route) == Some(&all)
        };
        let never = self.never.into_iter().map(|(number, reason)| Never {
            route: route(number),
            part: Arc::clone(&self.ranked[number].expression),
            whole: is_whole(route(number)),
            reason,
        });
        let ties = self.ties.into_iter().map(|((first, second), witness)| Tie {
            first: route(first),
            second: route(second),
            witness,
        });
        Conflicts {
            never: never.collect(),
            ties: ties.collect(),
            undecided: self.unknown.len() + self.undecided_pairs,
            truncated: self.truncated,
            complete: !self.prober.search.steps.are_used_up(),
        }
    }
}
