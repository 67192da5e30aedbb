//! The program `routers`: the cost of matching, building and changing routers, and the memory per route, by kind and
//! number of routes. A single run produces all figures, so that they come from the same machine at the same time. To
//! count instructions, use the program `micro`.

#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use clap::Parser;
use micro::rules;
use mimalloc::MiMalloc;
use model::entities::Route;
use router::{Flavor, Router, Scratch};
use serde::Serialize;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testkit::memory::{Counting, Counts};
use testkit::rules::{Hostile, Kind, RuleSet, Sample, hostile};

/// The gateway's allocator, with counts. A router's memory is the sum of its allocations.
#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

const COUNTS: [usize; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
/// Maximum number of different requests: enough to keep the routes of large sets out of the processor's nearest caches.
const MAX_REQUESTS: usize = 10_000;
const FEWEST_REQUESTS: usize = 1_000;
/// Number of requests timed together: enough to hide the cost of reading the clock, and few enough to stay in the
/// nearest cache after [`touch`].
const BATCH: usize = 16;
/// Minimum number of measurements of a figure. The figure is the median of as many as fit into the time.
const FEWEST_TIMES: usize = 5;

/// Measures the cost of matches, builds, changes and routes, by kind and number of routes
#[derive(Parser)]
struct Cli {
    /// Kinds whose names begin with these texts; default: all kinds
    kinds: Vec<String>,
    /// Largest number of routes to measure
    #[arg(long, default_value_t = 100_000)]
    largest: usize,
    /// Milliseconds for each figure
    #[arg(long, default_value_t = 300)]
    time: u64,
    /// Use the `traditional` flavor for the kinds that it supports
    #[arg(long)]
    traditional: bool,
    /// Write every figure to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    sets: Vec<Line>,
    hostile: Vec<HostileLine>,
}

#[derive(Serialize)]
struct Line {
    kind: &'static str,
    routes: usize,
    hit_ns: f64,
    miss_ns: f64,
    /// Allocations in 1,000 requests that match and 1,000 that do not. The goal is zero.
    allocations: f64,
    build_ms: f64,
    /// Time for changing one route of an existing router.
    replace_us: f64,
    bytes_per_route: f64,
}

#[derive(Serialize)]
struct HostileLine {
    name: &'static str,
    about: &'static str,
    routes: usize,
    match_us: f64,
    allocations: u64,
    build_ms: f64,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let wanted = |name: &str| {
        let mut kinds = cli.kinds.iter();
        cli.kinds.is_empty() || kinds.any(|start| name.starts_with(start.as_str()))
    };
    let mut report = Report {
        sets: Vec::new(),
        hostile: Vec::new(),
    };
    println!(
        "{:16} {:>7} {:>9} {:>9} {:>7} {:>10} {:>11} {:>8}",
        "kind", "routes", "hit ns", "miss ns", "allocs", "build ms", "replace µs", "B/route"
    );
    for kind in Kind::ALL.into_iter().filter(|kind| wanted(kind.name())) {
        if cli.traditional && kind.is_of_expressions() {
            continue;
        }
        for count in COUNTS.into_iter().filter(|&count| count <= cli.largest) {
            report.sets.extend(measure(kind, count, &cli));
        }
    }
    if wanted("hostile") {
        println!(
            "\n{:22} {:>7} {:>10} {:>7} {:>10}",
            "hostile", "routes", "match µs", "allocs", "build ms"
        );
        let sets = hostile();
        report.hostile = sets.iter().map(|set| measure_hostile(set, &cli)).collect();
    }
    if let Some(path) = &cli.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

impl Cli {
    fn flavor(&self, kind: Kind) -> Flavor {
        match (self.traditional, kind.is_of_expressions()) {
            (true, _) => Flavor::Traditional,
            (false, true) => Flavor::Expressions,
            (false, false) => Flavor::TraditionalCompatible,
        }
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.time)
    }
}

/// Measures one kind with one number of routes. If this version cannot use the routes, prints that and returns `None`.
fn measure(kind: Kind, count: usize, cli: &Cli) -> Option<Line> {
    let set = kind.set(count, count.clamp(FEWEST_REQUESTS, MAX_REQUESTS));
    let routes = rules::routes(&set.rules);
    let flavor = cli.flavor(kind);
    let before = Counts::of_this_thread();
    let router = match rules::build(&routes, flavor, None) {
        Ok(router) => router,
        Err(error) => {
            println!("{:16} {count:>7} skipped: {error}", kind.name());
            return None;
        }
    };
    let held = Counts::since(before).held;
    check(kind, &set, &router);
    let hits: Vec<_> = set.hits.iter().map(|(sample, _)| sample).collect();
    let misses: Vec<_> = set.misses.iter().collect();
    let (hit_ns, allocated_by_hits) = time_matches(&router, &hits, cli.time());
    let (miss_ns, allocated_by_misses) = time_matches(&router, &misses, cli.time());
    let line = Line {
        kind: kind.name(),
        routes: count,
        hit_ns,
        miss_ns,
        allocations: allocated_by_hits + allocated_by_misses,
        build_ms: time_builds(&routes, flavor, cli.time()),
        replace_us: time_changes(&router, &routes, cli.time()),
        bytes_per_route: held as f64 / count as f64,
    };
    println!(
        "{:16} {:>7} {:>9.1} {:>9.1} {:>7.1} {:>10.2} {:>11.1} {:>8.0}",
        line.kind,
        line.routes,
        line.hit_ns,
        line.miss_ns,
        line.allocations,
        line.build_ms,
        line.replace_us,
        line.bytes_per_route
    );
    Some(line)
}

/// Checks that every hit finds its route or one of higher priority, and that every miss finds none. Otherwise the
/// figures would mean nothing.
fn check(kind: Kind, set: &RuleSet, router: &Router) {
    let mut scratch = Scratch::default();
    for (sample, number) in &set.hits {
        let found = router.matches(&rules::request(sample), &mut scratch);
        let found = found.map(|found| set.rules[found.route.0 as usize].priority);
        let expected = Some(set.rules[*number].priority);
        assert!(found >= expected, "{}: {sample:?}: {found:?}", kind.name());
    }
    for sample in &set.misses {
        let found = router.matches(&rules::request(sample), &mut scratch);
        assert_eq!(found, None, "{}: {sample:?}", kind.name());
    }
}

/// Returns the nanoseconds of one match, and the number of allocations in 1,000 matches.
fn time_matches(router: &Router, samples: &[&Sample], time: Duration) -> (f64, f64) {
    let requests: Vec<_> = samples
        .iter()
        .map(|sample| rules::request(sample))
        .collect();
    let mut scratch = Scratch::default();
    let mut all = || {
        for request in &requests {
            black_box(router.matches(black_box(request), &mut scratch));
        }
    };
    // The first use of a regex allocates its search caches.
    all();
    let before = Counts::of_this_thread();
    all();
    let allocations = Counts::since(before).allocations;
    let each = 1.0 / requests.len() as f64;
    let mut passes = Vec::new();
    let started = Instant::now();
    while passes.len() < FEWEST_TIMES || started.elapsed() < time {
        let batches = requests.chunks(BATCH).zip(samples.chunks(BATCH));
        let seconds = batches.map(|(requests, samples)| {
            samples.iter().for_each(|sample| touch(sample));
            let begun = Instant::now();
            for request in requests {
                black_box(router.matches(black_box(request), &mut scratch));
            }
            begun.elapsed().as_secs_f64()
        });
        passes.push(seconds.sum::<f64>() * 1e9 * each);
    }
    (middle(passes), allocations as f64 * 1000.0 * each)
}

/// Reads a request once, to load it into the nearest cache. A gateway has just received the request that it routes, but
/// the router may be in a slower cache.
fn touch(sample: &Sample) {
    let headers = sample.headers.iter();
    let lengths = headers.map(|(name, value)| sum(name) + sum(value));
    black_box(sum(&sample.path) + sum(&sample.host) + lengths.sum::<u64>());
}

fn sum(text: &str) -> u64 {
    text.bytes().map(u64::from).sum()
}

fn time_builds(routes: &[Route], flavor: Flavor, time: Duration) -> f64 {
    median(time, || (), |()| rules::build(routes, flavor, None)) * 1e3
}

/// Times changes of single routes, a different one each time. Each change starts from the router that the change before
/// produced, as in a gateway.
fn time_changes(router: &Router, routes: &[Route], time: Duration) -> f64 {
    let mut at = 0;
    let mut last: Option<Router> = None;
    let make = || {
        at = (at + 7919) % routes.len();
        let mut route = routes[at].clone();
        route.strip_path = !route.strip_path;
        (u32::try_from(at).expect("there are fewer routes"), route)
    };
    let change = |(at, route): (u32, Route)| {
        let next = rules::replace(last.as_ref().unwrap_or(router), at, &route);
        last.replace(next)
    };
    median(time, make, change) * 1e6
}

fn measure_hostile(set: &Hostile, cli: &Cli) -> HostileLine {
    let routes = rules::routes(&set.rules);
    let flavor = if cli.traditional {
        Flavor::Traditional
    } else {
        Flavor::TraditionalCompatible
    };
    let started = Instant::now();
    let router = rules::build(&routes, flavor, None).expect("every flavor has these");
    let build_ms = started.elapsed().as_secs_f64() * 1e3;
    let request = rules::request(&set.sample);
    let mut scratch = Scratch::default();
    let mut ask = || router.matches(black_box(&request), &mut scratch);
    assert_eq!(ask(), None, "{}", set.name);
    let before = Counts::of_this_thread();
    ask();
    let allocations = Counts::since(before).allocations;
    let line = HostileLine {
        name: set.name,
        about: set.about,
        routes: routes.len(),
        match_us: median(cli.time(), || (), |()| black_box(ask())) * 1e6,
        allocations,
        build_ms,
    };
    println!(
        "{:22} {:>7} {:>10.2} {:>7} {:>10.2}",
        line.name, line.routes, line.match_us, line.allocations, line.build_ms
    );
    line
}

/// Returns the median time of `run` in seconds. The time for `make` and for dropping results is not counted.
fn median<I, O>(time: Duration, mut make: impl FnMut() -> I, mut run: impl FnMut(I) -> O) -> f64 {
    let mut seconds = Vec::new();
    let started = Instant::now();
    while seconds.len() < FEWEST_TIMES || started.elapsed() < time {
        let input = make();
        let begun = Instant::now();
        let output = black_box(run(input));
        seconds.push(begun.elapsed().as_secs_f64());
        drop(output);
    }
    middle(seconds)
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
