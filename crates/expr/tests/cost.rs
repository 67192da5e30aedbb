//! Checks that the cost of adversarial input grows about linearly with its size. The cost of a regex is the memory
//! allocated to compile it. The cost of an expression's text is the number of instructions.

use expr::syntax::MAX_DEPTH;
use expr::{Dialect, Regex, Subsystem, check_pcre, modernized, parse};
use std::alloc::System;
use std::hint::black_box;
use testkit::memory::{Counting, Counts};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Maximum number of bytes that compiling any pattern may allocate.
const MOST: u64 = 256 << 20;

/// Number of bytes that `work` allocates in total.
fn cost(work: impl FnOnce()) -> u64 {
    let before = Counts::of_this_thread();
    work();
    Counts::since(before).taken
}

/// Cost of compiling the pattern by each of the entry points.
fn costs(pattern: &str) -> [u64; 3] {
    [
        cost(|| drop(Regex::new(pattern, Dialect::Rust))),
        cost(|| drop(Regex::new(pattern, Dialect::Pcre))),
        cost(|| drop(check_pcre(pattern))),
    ]
}

type Shape = (&'static str, fn(usize) -> String);

/// Generators of patterns with about this many parts.
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
    ("repeated empty groups", |size| {
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
    ("look-behind of large repetitions", |size| {
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
    ("absent operators", |size| "(?~ab)".repeat(size)),
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
            // The cost of some patterns is quadratic in their nesting depth, but that depth is limited.
            assert!(
                twice <= 3 * once + (1 << 20),
                "{name}: {once} bytes, and {twice} for twice as much"
            );
        }
    }
}

/// Returns a text of about `size` bytes: a beginning, a repeated piece, and an end.
fn repeated((begin, again, end): &(&str, &str, &str), size: usize) -> String {
    let again = again.repeat(size / again.len());
    [begin, again.as_str(), end].concat()
}

/// Performs every step that the Admin API and the command line perform with a text, up to the compiled expression or
/// the printed error.
fn read_check_and_print(text: &str) {
    black_box(modernized(text));
    let parsed = match parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return drop(black_box(error.to_string())),
    };
    black_box((parsed.to_string(), parsed.format(80), parsed.format(0)));
    black_box(parsed.names());
    for subsystem in [Subsystem::Http, Subsystem::Stream] {
        match parsed.check(subsystem) {
            Ok(typed) => {
                let mut no_regex = |_: &str| Regex::new("a", Dialect::Rust);
                let compiled = typed.compile(&mut no_regex);
                black_box((typed.fields().count(), compiled.map(|it| it.to_string())))
                    .1
                    .ok();
            }
            Err(error) => drop(black_box(error.to_string())),
        }
    }
}

#[test]
fn an_expression_costs_as_much_as_it_is_long() {
    let shapes = [
        (r#"net.dst.port == 1"#, r#" || http.host == "a""#, ""),
        (r#"net.dst.port == 1"#, r#" && http.path ^= "/a""#, ""),
        (
            "net.dst.port == 1",
            " || net.dst.port == 1 && net.dst.port == 2",
            "",
        ),
        ("net.dst.port == 1", " && (net.dst.port == 1)", ""),
        ("net.dst.port == 1", " && !(!(net.dst.port == 1))", ""),
        (
            "net.src.ip in 10.0.0.0/8",
            " || net.src.ip not in fe80::/10",
            "",
        ),
        (r#"http.path ~ "a""#, r##" || http.path ~ r#"\d"#"##, ""),
        (r#"http.path == ""#, r#"\n\"\\"#, r#"""#),
        (r##"http.path == r#""##, "\"\\", "#\"#"),
        ("http.path == \"", "\u{6f22}\u{308}\n", "\""),
        ("", "any(", "http.path == \"\""),
        ("lower(http.headers.", "a_b.", "a) == \"\""),
        ("http.headers.a == \"\"", " || http.headers.a_b == \"\"", ""),
        ("http.path.segments.", "9", "_99 == \"\""),
        ("net.dst.port == ", "7", ""),
        ("net.dst.port == 0x", "f", ""),
        ("net.src.ip == ", "0:", ""),
        ("net.dst.port ==", " \t\r\n", "1"),
    ];
    testkit::cost::assert_linear(
        8 * 1024,
        |size| shapes.iter().map(|shape| repeated(shape, size)).collect(),
        |texts: Vec<String>| texts.iter().for_each(|text| read_check_and_print(text)),
    );
}

/// Tests the deepest allowed groups. The number of groups and the length of their contents grow.
#[test]
fn deep_groups_cost_as_much_as_they_are_long() {
    let deep = |inner: &str| {
        // Conjunctions and disjunctions alternate, so that no group is merged with the one around it.
        let pairs = MAX_DEPTH / 2 - 2;
        let open = "(net.dst.port == 1 || (net.dst.port == 2 && ".repeat(pairs);
        format!("{open}{inner}{}", "))".repeat(pairs))
    };
    let negated = |inner: &str| {
        let depth = MAX_DEPTH - 2;
        format!("{}{inner}{}", "!(".repeat(depth), ")".repeat(depth))
    };
    testkit::cost::assert_linear(
        16 * 1024,
        |size| {
            let wide = repeated(&("net.dst.port == 3", " || net.dst.port == 3", ""), size);
            let long = repeated(&("http.path == \"", "\\n", "\""), size);
            let raw = repeated(&("http.path == r#\"", "\\", "\"#"), size);
            let groups = (0..size / 4096).map(|_| negated("net.dst.port == 1"));
            let groups = groups.collect::<Vec<_>>().join(" && ");
            [deep(&wide), deep(&long), negated(&raw), groups]
        },
        |texts: [String; 4]| texts.iter().for_each(|text| read_check_and_print(text)),
    );
}

#[test]
fn a_refused_expression_costs_as_much_as_it_is_long() {
    let shapes = [
        ("http.path == \"", "a\\n", ""),
        ("http.path == \"", "\u{6f22}\n", "\\x\""),
        ("http.path == r#\"", "\"a#", ""),
        ("http.path == \"", "\u{6f22}\u{308}", "\" ||"),
        ("", "\n", "http.path = \"\""),
        ("", "(", ""),
        ("net.dst.port == 1", " || (net.dst.port == 1)", ")"),
        ("net.dst.port == 1", " || net.dst.port == 1", " || a"),
        ("", "net.port ", ""),
        ("", "net.port ", "=="),
        ("a", ".b", " == 1"),
        ("a", "b", "(net.dst.port) == 1"),
        ("http.path ~ \"", "(", "\""),
        ("http.path == '", "a", "'"),
        ("net.dst.port == ", "9", ""),
        ("net.src.ip == ", "1.", ""),
    ];
    testkit::cost::assert_linear(
        8 * 1024,
        |size| shapes.iter().map(|shape| repeated(shape, size)).collect(),
        |texts: Vec<String>| texts.iter().for_each(|text| read_check_and_print(text)),
    );
}
