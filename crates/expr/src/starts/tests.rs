use crate::engine::{Engine, Limits};
use crate::pattern::{Dialect, Regex};
use crate::steps::{Class, Step, Steps};
use crate::testing::{parsed, pattern, text};
use std::fmt::Write as _;
use testkit::random::{Random, setting};

fn shown(steps: &Steps) -> String {
    let mut shown = String::new();
    for step in steps.steps() {
        match step {
            Step::Literal(literal) => shown.push_str(&String::from_utf8_lossy(literal)),
            Step::Class(class) => shown.push_str(&shown_class(class)),
        }
    }
    if steps.ends_text() {
        shown.push('$');
    }
    if !steps.is_whole() {
        shown.push('…');
    }
    shown
}

fn shown_class(class: &Class) -> String {
    let of = |wanted: bool| -> String {
        let bytes = (b' '..=b'~').filter(|byte| class.bytes().contains(*byte) == wanted);
        bytes.map(char::from).collect()
    };
    let (members, others) = (of(true), of(false));
    let mut shown = if others.len() < members.len() {
        format!("[^{others}]")
    } else {
        format!("[{members}]")
    };
    if (class.min(), class.max()) != (1, 1) {
        let _ = write!(shown, "{{{},", class.min());
        if class.max() != u32::MAX {
            let _ = write!(shown, "{}", class.max());
        }
        shown.push('}');
    }
    shown
}

fn starts(pattern: &str, dialect: Dialect) -> String {
    let regex = Regex::new(pattern, dialect).expect("a valid pattern");
    let alternatives: Vec<_> = regex.starts().iter().map(shown).collect();
    alternatives.join(" or ")
}

#[test]
fn patterns_of_api_paths_are_steps() {
    for (pattern, expected) in [
        ("^/repos/(?<owner>[^/]+)/x$", "/repos/[^/]{1,}/x$"),
        (r"\A(?:/archive/\d{4})\z", "/archive/[0123456789]{4,4}$"),
        ("^/a/?$", "/a[/]{0,1}$"),
        ("^/a(/.*)?$", "/a/[^]{0,}$ or /a$"),
        ("^/(a|bc)/(x|yz)", "/a/x or /a/yz or /bc/x or /bc/yz"),
        ("^/a/[^/]+.*", "/a/[^/]{1,}[^]{0,}"),
        ("^/a/[^/]+?/b", "/a/[^/]{1,}/b"),
        ("(^/a)b|^/c", "/ab or /c"),
        ("^/ab+c", "/ab[b]{0,}c"),
        ("^/[a-z][a-z]*/", "/[abcdefghijklmnopqrstuvwxyz]{1,}/"),
        ("^", ""),
        ("^$", "$"),
    ] {
        for dialect in [Dialect::Rust, Dialect::Pcre] {
            assert_eq!(starts(pattern, dialect), expected, "{pattern} {dialect:?}");
        }
    }
}

#[test]
fn steps_end_where_greed_could_be_wrong() {
    for (pattern, expected) in [
        // The longest run may include bytes that the next part needs.
        ("^/[^/]+x$", "/[^/]{1,}…"),
        ("^/[a-c]*[0-9]?b", "/[abc]{0,}…"),
        ("^/.*/x", "/[^]{0,}…"),
        ("^/a[^/]+?", "/a[^/]{1,}…"),
        // No step can express repeated groups and these other parts.
        ("^/a(?:/[^/]+)*$", "/a…"),
        ("^/a(?:bc){2}", "/a…"),
        (r"^/a\b/b", "/a…"),
        ("^/a$/b", "/a…"),
        ("^/a^", "/a…"),
        ("^/(a|b1|c1|d1|e1|f1|g1|h1|i1)/", "/…"),
        // These patterns are not anchored at the start.
        ("/a", "…"),
        ("^/a|/b", "…"),
        ("(?m)^/a", "…"),
        ("a*^/b", "…"),
        ("", "…"),
    ] {
        assert_eq!(starts(pattern, Dialect::Rust), expected, "{pattern}");
    }
    // One unknown alternative makes all alternatives unknown.
    assert_eq!(starts("^(?:(?:ab)+|x)", Dialect::Rust), "…");
    assert_eq!(starts("^(?-u:[^/])/", Dialect::Rust), "…");
}

#[test]
fn only_plain_pcre_patterns_become_steps() {
    for (pattern, expected) in [
        ("^/a(?=b)c", "/ac…"),
        ("^/a++b", "/a…"),
        ("^/(a)\\1", "/a…"),
        ("^/a(?i)b", "/a…"),
        ("^/a{,3}b", "/…"),
        ("^/[[:alpha:]]x", "/…"),
        ("^/é[^/]", "/…"),
    ] {
        assert_eq!(starts(pattern, Dialect::Pcre), expected, "{pattern}");
    }
}

#[test]
fn nested_branches_are_expanded_up_to_a_limit() {
    let nested = (0..40).fold(String::from("a"), |inner, _| format!("(?:{inner}x|b|c)"));
    let twice = (0..7).fold(String::from("a"), |inner, _| {
        format!("(?:{inner}x|b{inner}|c)")
    });
    let long = vec!["ab(?:c|dd)"; 200].join("|");
    for branches in [nested, twice, long] {
        let pattern = format!("^/(?:{branches})");
        let regex = Regex::new(&pattern, Dialect::Rust).unwrap();
        assert!(regex.starts().len() <= 8);
    }
}

#[test]
fn characters_of_several_bytes_count_once() {
    let regex = Regex::new("^/[^/]{2}/", Dialect::Rust).unwrap();
    for (text, expected) in [
        ("/éé/", Some(6)),
        ("/é/", None),
        ("/ééé/", None),
        ("/ab/c", Some(4)),
    ] {
        assert_eq!(regex.starts()[0].walk(text.as_bytes()), expected, "{text}");
    }
    let bytes = Regex::new("^/[^/]{2}/", Dialect::Pcre).unwrap();
    assert_eq!(bytes.starts()[0].walk("/é/".as_bytes()), Some(4));
    assert_eq!(bytes.starts()[0].walk("/éé/".as_bytes()), None);
}

/// Checks the contract of [`Regex::starts`] with random patterns and texts. `STEPS_ROUNDS` sets the number of rounds,
/// `STEPS_SEED` the seed.
#[test]
fn every_match_can_be_walked_and_every_whole_walk_is_a_match() {
    let rounds = setting("STEPS_ROUNDS").unwrap_or(200);
    let seed = setting("STEPS_SEED").unwrap_or(7);
    let mut random = Random::new(seed);
    let mut seen = Seen::default();
    for _ in 0..rounds {
        let dialect = if random.one_in(3) {
            Dialect::Pcre
        } else {
            Dialect::Rust
        };
        let pattern = pattern(&mut random);
        let (Ok(regex), Some(parsed)) = (Regex::new(&pattern, dialect), parsed(&pattern)) else {
            continue;
        };
        let engine = Engine::new(&pattern, dialect, Limits::USUAL).expect("it was accepted");
        for _ in 0..12 {
            check(&regex, &engine, &text(&mut random, &parsed), &mut seen);
        }
    }
    assert!(
        seen.found * 4 > seen.pairs && seen.whole * 6 > seen.pairs,
        "{seen:?}"
    );
    assert!(
        seen.known * 2 > seen.pairs && seen.failed * 10 > seen.whole,
        "{seen:?}"
    );
    if rounds > 10_000 {
        eprintln!("{seen:?}");
    }
}

#[derive(Debug, Default)]
struct Seen {
    pairs: usize,
    found: usize,
    known: usize,
    whole: usize,
    failed: usize,
}

fn check(regex: &Regex, engine: &Engine, text: &[u8], seen: &mut Seen) {
    let found = engine.find(text);
    let starts = regex.starts();
    let walked = starts.iter().find_map(|steps| steps.walk(text));
    let whole = starts.iter().all(Steps::is_whole);
    let context = || {
        let starts: Vec<_> = starts.iter().map(shown).collect();
        format!("{regex:?} {:?} {starts:?}", text.escape_ascii().to_string())
    };
    assert!(found.is_none() || walked.is_some(), "{}", context());
    if whole && text.is_ascii() {
        assert_eq!(found, walked.map(|end| 0..end), "{}", context());
    }
    seen.pairs += 1;
    seen.found += usize::from(found.is_some());
    seen.known += usize::from(!starts[0].steps().is_empty());
    seen.whole += usize::from(whole);
    seen.failed += usize::from(whole && walked.is_none());
}
