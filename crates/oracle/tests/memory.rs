//! Measures the memory of a router with a counting allocator. This is a separate test program, because a program has
//! only one global allocator.

#![allow(unsafe_code)]

use oracle::{Changes, Course, Decision, Drawn, Random, Sample, World, all_options, router};
use router::Scratch;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn count(allocations: u64, bytes: i64) {
    // While a thread ends, its counters no longer exist.
    let _ = ALLOCATIONS.try_with(|counter| counter.set(counter.get() + allocations));
    let _ = HELD.try_with(|counter| counter.set(counter.get() + bytes));
}

fn size(layout: Layout) -> i64 {
    i64::try_from(layout.size()).unwrap_or(i64::MAX)
}

// SAFETY: all calls are forwarded to the system's allocator, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, size(layout));
        // SAFETY: the caller guarantees what `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -size(layout));
        // SAFETY: the caller guarantees what `System` requires.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

fn held() -> i64 {
    HELD.with(Cell::get)
}

#[test]
fn matching_allocates_nothing() {
    // The first options are skipped: their flavor is `traditional`, whose backtracking regex engine allocates.
    for options in &all_options()[1..] {
        let mut random = Random::new(3);
        for _ in 0..20 {
            let world = World::random(&mut random);
            let draw = |_| Drawn::random(&mut random, &world, options.flavor);
            let routes: Vec<_> = (0..50).map(draw).collect();
            let router = router(&routes, *options);
            let mut samples: Vec<_> = (0..50)
                .map(|_| Sample::random(&mut random, &world))
                .collect();
            // Lower-casing non-ASCII text allocates. Percent-encoded bytes may be non-ASCII too.
            samples.retain(|sample| {
                let plain = |text: &[u8]| text.is_ascii() && !text.contains(&b'%');
                plain(&sample.path)
                    && sample.host.as_deref().is_none_or(plain)
                    && sample.query.as_deref().is_none_or(plain)
                    && sample.sni.as_deref().is_none_or(str::is_ascii)
                    && sample.headers.iter().all(|(_, value)| plain(value))
            });
            let mut scratch = Scratch::default();
            let mut pass = || {
                let before = allocations();
                for sample in &samples {
                    router.matches(&sample.request(), &mut scratch);
                }
                allocations() - before
            };
            // The caches of regexes grow in the first passes.
            for _ in 0..3 {
                pass();
            }
            assert_eq!(pass(), 0, "{options:?}");
        }
    }
}

#[test]
fn repeated_replacements_do_not_increase_memory() {
    let all = std::env::var("ENDURE_REQUESTS").is_ok();
    let replacements = if all { 100_000 } else { 400 };
    for options in all_options() {
        let mut random = Random::new(5);
        let mut changes = Changes::new(&mut random, options);
        while changes.len() < 50 {
            changes.step(&mut random, Course::Grow, 4);
        }
        // The memory depends on the routes of the moment, so the maximum over many replacements is compared.
        let mut most = |replacements: usize| {
            let held = (0..replacements).map(|_| {
                changes.step(&mut random, Course::Stay, 2);
                held()
            });
            held.max().unwrap_or(0)
        };
        let (early, late) = (most(replacements / 2), most(replacements / 2));
        println!("{options:?}: {early} bytes, then {late}");
        assert!(late < early + early / 2, "{early} bytes, then {late}");
    }
}

#[test]
fn an_empty_router_takes_little_memory() {
    let options = all_options()[1];
    let before = held();
    let router = router(&[], options);
    assert!(held() - before < 10_000, "{}", held() - before);
    let answer = Decision::of_router(&router, &Sample::get(b"/"), &mut Scratch::default());
    assert_eq!(answer, None);
}
