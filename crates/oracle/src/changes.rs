//! Compares a router that is changed many times with a new router that is built from the current routes.

use crate::cases::Tally;
use crate::engine::Engines;
use crate::judge::{Decision, Judge};
use crate::random::Random;
use crate::requests::Sample;
use crate::routes::Drawn;
use crate::world::World;
use router::{Options, RouteIndex, Router, Scratch};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Routes that are added, changed and removed, and the router that is updated accordingly.
pub struct Changes {
    options: Options,
    world: World,
    routes: BTreeMap<RouteIndex, Drawn>,
    /// Indexes of removed routes, which new routes reuse.
    free: Vec<RouteIndex>,
    router: Arc<Router>,
    scratch: Scratch,
    engines: Engines,
}

/// A version of the router, with its decisions for some requests.
pub struct Kept {
    router: Arc<Router>,
    answers: Vec<(Sample, Option<Decision>)>,
}

/// The trend in the number of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    Grow,
    Stay,
    Shrink,
}

impl Changes {
    pub fn new(random: &mut Random, options: Options) -> Self {
        Self {
            options,
            world: World::random(random),
            routes: BTreeMap::new(),
            free: Vec::new(),
            router: Arc::new(Router::build([], options, None).0),
            scratch: Scratch::default(),
            engines: Engines::new(options.flavor),
        }
    }

    pub fn len(&self) -> usize {
        self.routes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    pub fn router(&self) -> &Router {
        &self.router
    }

    /// Replaces up to `most` routes at once: adds, changes or removes each of them. With [`Course::Stay`], the same
    /// number of routes is added and removed.
    pub fn step(&mut self, random: &mut Random, course: Course, most: usize) {
        let mut removed = Vec::new();
        let mut put = Vec::new();
        for _ in 0..random.between(1, most) {
            let kind = random.below(10);
            let adds = match course {
                Course::Grow => kind < 7,
                Course::Stay => kind < 4,
                Course::Shrink => kind < 1,
            };
            let changes = !adds && kind >= 8;
            if adds || self.routes.is_empty() {
                put.push(self.add(random));
            } else if let Some(index) = self.one(random, &removed, &put) {
                removed.push(index);
                if changes {
                    self.change(random, index);
                    put.push(index);
                } else {
                    self.routes.remove(&index);
                    self.free.push(index);
                }
            }
            if course == Course::Stay && !changes {
                self.balance(random, &mut removed, &mut put, adds);
            }
        }
        self.replace(&removed, &put);
    }

    /// Keeps the number of routes constant: removes a route if the step has added one, and adds one otherwise.
    fn balance(
        &mut self,
        random: &mut Random,
        removed: &mut Vec<RouteIndex>,
        put: &mut Vec<RouteIndex>,
        added: bool,
    ) {
        if !added {
            put.push(self.add(random));
        } else if let Some(index) = self.one(random, removed, put) {
            removed.push(index);
            self.routes.remove(&index);
            self.free.push(index);
        }
    }

    fn add(&mut self, random: &mut Random) -> RouteIndex {
        let next = self.routes.len() + self.free.len();
        let next = RouteIndex(u32::try_from(next).unwrap_or(u32::MAX));
        let index = self.free.pop().unwrap_or(next);
        let drawn = Drawn::random(random, &self.world, self.options.flavor);
        self.routes.insert(index, drawn);
        index
    }

    fn change(&mut self, random: &mut Random, index: RouteIndex) {
        let other = Drawn::random(random, &self.world, self.options.flavor);
        let Some(drawn) = self.routes.get_mut(&index) else {
            return;
        };
        let route = &mut drawn.route;
        match random.below(5) {
            // The route is replaced by an equal one, or by one that differs in a single setting.
            0 => {}
            1 => route.strip_path = !route.strip_path,
            2 if route.expression.is_some() => route.priority = other.route.priority.or(Some(7)),
            2 => route.regex_priority = other.route.regex_priority,
            _ => {
                let id = route.id;
                *drawn = other;
                drawn.route.id = id;
            }
        }
    }

    /// Returns a random route that this step has neither removed nor put.
    fn one(
        &self,
        random: &mut Random,
        removed: &[RouteIndex],
        put: &[RouteIndex],
    ) -> Option<RouteIndex> {
        let start = RouteIndex(u32::try_from(random.below(self.routes.len() + 1)).unwrap_or(0));
        let from_there = self.routes.range(start..).chain(self.routes.range(..start));
        let mut indexes = from_there.map(|(index, _)| *index);
        indexes.find(|index| !removed.contains(index) && !put.contains(index))
    }

    fn replace(&mut self, removed: &[RouteIndex], put: &[RouteIndex]) {
        let put = put.iter().map(|index| (*index, &self.routes[index].route));
        let (router, errors) = self.router.replace(removed, put);
        assert!(errors.is_empty(), "{errors:?}");
        self.router = Arc::new(router);
    }

    /// Returns the current router and its decisions for `requests` random requests.
    pub fn keep(&self, random: &mut Random, requests: usize) -> Kept {
        let samples = (0..requests).map(|_| Sample::random(random, &self.world));
        let mut scratch = Scratch::default();
        let answers = samples.map(|sample| {
            let answer = Decision::of_router(&self.router, &sample, &mut scratch);
            (sample, answer)
        });
        Kept {
            answers: answers.collect(),
            router: self.router.clone(),
        }
    }

    /// Checks that the router equals a newly built one with the same routes: both have the same order and make the same
    /// decisions for random requests, including the upstream paths.
    pub fn check(&mut self, random: &mut Random, requests: usize) -> Tally {
        let routes = || self.routes.iter().map(|(index, drawn)| (*index, drawn));
        let settings = routes().map(|(index, drawn)| (index, &drawn.route));
        let (fresh, errors) = Router::build(settings, self.options, None);
        assert!(errors.is_empty(), "{errors:?}");
        let order = |router: &Router| -> Vec<_> {
            let order = router.order();
            order
                .map(|(route, expression)| (route, format!("{expression:?}")))
                .collect()
        };
        assert_eq!(order(&self.router), order(&fresh), "{:?}", self.options);
        let judge = Judge::new(&fresh, self.options, routes());
        let mut tally = Tally::default();
        for number in 0..requests {
            let sample = Sample::random(random, &self.world);
            let mut all = |router| decision(router, &sample, &mut self.scratch);
            let (own, other) = (all(&self.router), all(&fresh));
            assert_eq!(own, other, "{:?}\n{sample:#?}", self.options);
            let answer = own.map(|(answer, _)| answer);
            if number % 8 == 0 {
                assert_eq!(
                    answer,
                    judge.decide(&sample, &mut self.engines),
                    "{sample:#?}"
                );
            }
            tally.requests += 1;
            tally.hits += u64::from(answer.is_some());
        }
        tally
    }
}

impl Kept {
    /// Checks that the router still makes the same decisions.
    pub fn check(&self) {
        let mut scratch = Scratch::default();
        for (sample, answer) in &self.answers {
            assert_eq!(
                Decision::of_router(&self.router, sample, &mut scratch),
                *answer
            );
        }
    }
}

/// Returns the decision, and the upstream path for each of several service paths.
fn decision(
    router: &Router,
    sample: &Sample,
    scratch: &mut Scratch,
) -> Option<(Decision, Vec<Vec<u8>>)> {
    let answer = Decision::of_router(router, sample, scratch)?;
    let request = sample.request();
    let found = router.matches(&request, scratch)?;
    let path = scratch.path(&request);
    let write = |base| {
        let mut out = Vec::new();
        router.write_upstream_uri(&found, base, path, sample.query.as_deref(), &mut out);
        out
    };
    Some((
        answer,
        [None, Some("/base"), Some("/base/")].map(write).to_vec(),
    ))
}
