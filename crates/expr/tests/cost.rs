//! What reading hostile input costs: the memory that is asked for stands for the work, and must grow with the size of the
//! input and not much faster.

use expr::{Dialect, Regex, check_pcre};
use std::alloc::System;
use testkit::memory::{Counting, Counts};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// No pattern may take more than this.
const MOST: u64 = 256 << 20;

/// Bytes asked for.
fn cost(work: impl FnOnce()) -> u64 {
    let before = Counts::of_this_thread();
    work();
    Counts::since(before).taken
}

/// What compiling the pattern costs, for each way in which patterns come in.
fn costs(pattern: &str) -> [u64; 3] {
    [
        cost(|| drop(Regex::new(pattern, Dialect::Rust))),
        cost(|| drop(Regex::new(pattern, Dialect::Pcre))),
        cost(|| drop(check_pcre(pattern))),
    ]
}

type Shape = (&'static str, fn(usize) -> String);

/// Ways to write a pattern of about so many parts.
const PATTERNS: &[Shape] = &[
    ("calls that double each other", |size| {
        let calls = (1..size.min(90) / 2).map(|group| format!(r"(\g<{group}>\g<{group}>)"));
        format!(r"(a\1?){}", calls.collect::<String>())
    }),
    ("calls of groups that come later", |size| {
        let calls = (2..size).map(|group| format!(r"(a|b\g<{group}>)"));
        format!("{}(a)", calls.collect::<String>())
    }),
    ("calls of the whole", |size| "a(?:b(?R)?)?".repeat(size)),
    ("a group that calls itself twice", |_| {
        r"(a\g<1>?b\g<1>?c)".to_owned()
    }),
    ("groups that are called and never used", |size| {
        let calls = (1..size).map(|group| format!(r"(a\g<{}>\g<{}>)", group + 1, group + 1));
        format!("(?(DEFINE){}(b))x", calls.collect::<String>())
    }),
    ("repeated repetitions", |size| {
        let depth = size.min(40);
        format!("{}a{}", "(?:".repeat(depth), "){10}".repeat(depth))
    }),
    ("repeated nothings", |size| {
        let depth = size.min(40);
        format!("{}{}", "(?:".repeat(depth), "){100}".repeat(depth))
    }),
    ("one repetition", |size| format!("(?:[ab][cd]){{{size}}}")),
    ("large classes", |size| r"\pL\w\W".repeat(size)),
    ("large classes in any case", |size| {
        format!(r"(?i){}", r"[\pL\d]".repeat(size))
    }),
    ("a class of many characters", |size| {
        let characters = (0..size as u32)
            .rev()
            .filter_map(|at| char::from_u32(0x4E00 + 2 * at));
        format!("[{}]", characters.collect::<String>())
    }),
    ("a class of many classes", |size| {
        format!("[{}]", r"\pL\d".repeat(size))
    }),
    ("classes in classes", |size| {
        let depth = size.min(240);
        format!("{}a{}", "[^b".repeat(depth), "]".repeat(depth))
    }),
    ("look-ahead", |size| "(?=.a)".repeat(size)),
    ("look-behind", |size| {
        let parts = (0..size).map(|number| format!("(?<=a{{{number}}}b*)"));
        parts.collect()
    }),
    ("look-behind of large things", |size| {
        "(?<=[ab]{2000}c*)x".repeat(size)
    }),
    ("look-around in look-around", |size| {
        let depth = size.min(60);
        format!("{}a{}", "(?=".repeat(depth), ")".repeat(depth))
    }),
    ("back-references", |size| {
        format!("(a*){}", r"\1?b*".repeat(size))
    }),
    ("conditions", |size| {
        format!("(a)?{}", "(?(1)b|c)".repeat(size))
    }),
    ("what must be absent", |size| "(?~ab)".repeat(size)),
    ("groups in groups", |size| {
        format!("{}a{}", "(".repeat(size), ")".repeat(size))
    }),
    ("branches in branches", |size| {
        let depth = size.min(60);
        format!("{}a{}", r"(\1?a|b".repeat(depth), ")".repeat(depth))
    }),
    ("groups", |size| "(a)".repeat(size)),
    ("names", |size| {
        let groups = (0..size).map(|number| format!("(?<n{number}>a)"));
        format!("^/{}", groups.collect::<String>())
    }),
    ("alternatives", |size| {
        let words = (0..size).map(|number| format!("w{number}"));
        words.collect::<Vec<_>>().join("|")
    }),
    ("alternatives in a row", |size| {
        format!("^/{}", "(?:a|b|cd)".repeat(size))
    }),
    ("literals", |size| format!("^/{}", "ab".repeat(size))),
    ("literals in any case", |size| {
        format!("(?i)^/{}", "ks".repeat(size))
    }),
    ("quantifiers", |size| format!("a{}", "?".repeat(size))),
    ("open brackets", |size| "[".repeat(size)),
    ("open braces", |size| "a{1".repeat(size)),
];

#[test]
fn the_pattern_that_doubles_is_refused() {
    let calls = (1..22).map(|group| format!(r"(\g<{group}>\g<{group}>)"));
    let pattern = format!(r"/(a\1?){}", calls.collect::<String>());
    assert!(check_pcre(&pattern).is_err());
    assert!(Regex::new(&pattern, Dialect::Pcre).is_err());
}

#[test]
fn every_pattern_is_compiled_or_refused_in_bounded_work() {
    for (name, pattern) in PATTERNS {
        for size in [40, 20_000] {
            for cost in costs(&pattern(size)) {
                assert!(cost < MOST, "{name}: {cost} bytes at size {size}");
            }
        }
    }
}

#[test]
fn twice_the_pattern_takes_not_much_more_than_twice_the_work() {
    for (name, pattern) in PATTERNS {
        let (once, twice) = (costs(&pattern(40)), costs(&pattern(80)));
        for (once, twice) in once.into_iter().zip(twice) {
            // Some are quadratic in how deep parts stand in each other, which has a bound.
            assert!(
                twice <= 3 * once + (1 << 20),
                "{name}: {once} bytes, and {twice} for twice as much"
            );
        }
    }
}
