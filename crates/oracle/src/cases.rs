//! Creates test cases. A case builds a router of random routes, and compares its decisions on random requests with
//! those of two slow references.

use crate::engine::Engines;
use crate::judge::{Decision, Judge};
use crate::naive::Naive;
use crate::random::Random;
use crate::requests::Sample;
use crate::routes::Drawn;
use crate::traditional::Traditional;
use crate::world::World;
use router::{Calculation, Flavor, Options, RouteIndex, Router, Scratch};
use std::fmt::Write as _;

/// All combinations of flavor and calculation that differ. The flavor `traditional` does not use the calculation.
pub fn all_options() -> [Options; 5] {
    let options = |flavor, calculation| Options {
        flavor,
        calculation,
        ..Options::default()
    };
    [
        options(Flavor::Traditional, Calculation::Original),
        options(Flavor::TraditionalCompatible, Calculation::Original),
        options(Flavor::TraditionalCompatible, Calculation::Strict),
        options(Flavor::Expressions, Calculation::Original),
        options(Flavor::Expressions, Calculation::Strict),
    ]
}

/// Number of compared requests, and how many of them matched a route.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub requests: u64,
    pub hits: u64,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.hits += other.hits;
    }
}

/// Maximum size of a case.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub routes: usize,
    pub requests: usize,
}

/// Checks that a router of random routes decides random requests like the references. If it does not, panics and
/// reports only the routes that are needed to show the difference.
pub fn decide_alike(random: &mut Random, options: Options, size: Size) -> Tally {
    let world = World::random(random);
    let count = random.between(1, size.routes);
    let routes: Vec<_> = (0..count)
        .map(|_| Drawn::random(random, &world, options.flavor))
        .collect();
    let mut bench = Bench::new(&routes, options);
    let mut tally = Tally::default();
    for _ in 0..size.requests {
        if random.is_spent() {
            break;
        }
        let sample = Sample::random(random, &world);
        tally.requests += 1;
        match bench.difference(&sample) {
            Ok(hit) => tally.hits += u64::from(hit),
            Err(_) => panic!("{}", report(routes, options, &sample)),
        }
    }
    tally
}

/// Numbers the routes.
pub fn numbered(routes: &[Drawn]) -> impl Iterator<Item = (RouteIndex, &Drawn)> {
    (0..).map(RouteIndex).zip(routes)
}

/// Builds a router; panics if a route is unusable.
pub fn router(routes: &[Drawn], options: Options) -> Router {
    let settings = numbered(routes).map(|(index, drawn)| (index, &drawn.route));
    let (router, errors) = Router::build(settings, options, None);
    assert!(errors.is_empty(), "{errors:?}");
    router
}

/// A router and the references that check it.
struct Bench {
    router: Router,
    judge: Judge,
    reference: Reference,
    engines: Engines,
    scratch: Scratch,
}

/// The reference that decides from the routes alone.
enum Reference {
    Naive(Naive),
    Traditional(Traditional),
}

impl Reference {
    fn new(routes: &[Drawn], options: Options) -> Self {
        let routes = numbered(routes);
        match options.flavor {
            Flavor::Traditional => Self::Traditional(Traditional::new(routes, options)),
            Flavor::TraditionalCompatible | Flavor::Expressions => {
                Self::Naive(Naive::new(routes, options))
            }
        }
    }

    fn decide(&self, sample: &Sample, engines: &mut Engines) -> Option<Decision> {
        match self {
            Self::Naive(naive) => naive.decide(sample, engines),
            Self::Traditional(traditional) => traditional.decide(sample, engines),
        }
    }
}

impl Bench {
    fn new(routes: &[Drawn], options: Options) -> Self {
        let router = router(routes, options);
        let reference = Reference::new(routes, options);
        if let Reference::Naive(naive) = &reference {
            let order = router.order().map(|(route, _)| route);
            assert!(order.eq(naive.order()), "the orders differ: {routes:#?}");
        }
        Self {
            judge: Judge::new(&router, options, numbered(routes)),
            router,
            reference,
            engines: Engines::new(options.flavor),
            scratch: Scratch::default(),
        }
    }

    /// Returns whether a route was found. If the router and the references disagree, returns a description as the
    /// error.
    fn difference(&mut self, sample: &Sample) -> Result<bool, String> {
        let found = Decision::of_router(&self.router, sample, &mut self.scratch);
        let judged = self.judge.decide(sample, &mut self.engines);
        let wanted = self.reference.decide(sample, &mut self.engines);
        if found == judged && judged == wanted {
            return Ok(found.is_some());
        }
        let mut text = format!("the router:     {found:?}\n");
        let _ = writeln!(text, "its candidates: {judged:?}");
        let _ = write!(text, "the reference:  {wanted:?}");
        Err(text)
    }
}

/// Describes a difference, after removing all routes that are not needed to show it.
fn report(mut routes: Vec<Drawn>, options: Options, sample: &Sample) -> String {
    let mut at = 0;
    while at < routes.len() {
        let left_out = routes.remove(at);
        if Bench::new(&routes, options).difference(sample).is_ok() {
            routes.insert(at, left_out);
            at += 1;
        }
    }
    let difference = Bench::new(&routes, options).difference(sample);
    let difference = difference.err().unwrap_or_default();
    let routes: Vec<_> = routes.iter().map(|drawn| &drawn.route).collect();
    format!("{options:?}\n{sample:#?}\n{routes:#?}\n{difference}")
}
