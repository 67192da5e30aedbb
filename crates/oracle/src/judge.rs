//! Two decisions to compare: one found by checking the candidates of a router one by one, and the router's own.

use crate::engine::Engines;
use crate::facts::Facts;
use crate::requests::Sample;
use crate::routes::Drawn;
use crate::term::{Term, Trail};
use expr::Group;
use router::{Options, RouteIndex, Router, Scratch};
use std::collections::{BTreeMap, HashMap};

/// A decision and its results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub route: RouteIndex,
    /// The stripped part of the path.
    pub prefix: Option<Vec<u8>>,
    /// Captured texts. The keys are the numbers of groups, as text, and the names of groups.
    pub captures: BTreeMap<String, Vec<u8>>,
}

/// A candidate with its expression as a term.
pub(crate) struct Judged {
    pub(crate) route: RouteIndex,
    pub(crate) term: Term,
    pub(crate) strips: bool,
}

/// The candidates of one router, in its order.
pub struct Judge {
    options: Options,
    candidates: Vec<Judged>,
}

impl Judge {
    pub fn new<'r>(
        router: &Router,
        options: Options,
        routes: impl IntoIterator<Item = (RouteIndex, &'r Drawn)>,
    ) -> Self {
        let routes = routes.into_iter();
        let strips: HashMap<_, _> = routes
            .map(|(index, drawn)| (index, drawn.route.strip_path))
            .collect();
        let candidates = router.order().map(|(route, expression)| Judged {
            route,
            term: Term::of(expression),
            strips: strips[&route],
        });
        Self {
            options,
            candidates: candidates.collect(),
        }
    }

    pub fn decide(&self, sample: &Sample, engines: &mut Engines) -> Option<Decision> {
        let facts = Facts::new(sample, self.options);
        let mut candidates = self.candidates.iter();
        candidates.find_map(|candidate| candidate.ask(&facts, engines))
    }
}

impl Judged {
    pub(crate) fn ask(&self, facts: &Facts, engines: &mut Engines) -> Option<Decision> {
        let mut trail = Trail::default();
        let holds = self.term.holds(facts, engines, &mut trail);
        // Like Kong, the router strips nothing if the located text is empty.
        let located = trail
            .located
            .filter(|range| self.strips && !range.is_empty());
        holds.then(|| Decision {
            route: self.route,
            // Lower case may change the length of a path. The range may then be outside the original path.
            prefix: located.and_then(|range| Some(facts.path.get(range)?.to_vec())),
            captures: trail.captures,
        })
    }
}

impl Decision {
    pub fn of_router(router: &Router, sample: &Sample, scratch: &mut Scratch) -> Option<Self> {
        let request = sample.request();
        let found = router.matches(&request, scratch)?;
        let prefix = router.matched_prefix(&found, scratch.path(&request));
        let prefix = prefix.map(<[u8]>::to_vec);
        let mut captures = BTreeMap::new();
        router.captures(&found, &request, scratch, &mut |group, value| {
            let name = match group {
                Group::Number(number) => number.to_string(),
                Group::Name(name) => name.to_owned(),
            };
            captures.insert(name, value.to_vec());
        });
        assert!(
            captures.is_empty() || router.has_captures(&found),
            "`has_captures` is true if there are captures"
        );
        Some(Self {
            route: found.route,
            prefix,
            captures,
        })
    }
}
