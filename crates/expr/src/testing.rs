//! Generates random patterns, and random texts that they often match.

use regex_syntax::hir::{Class, Hir, HirKind};
use testkit::random::Random;

/// Parses a pattern into the tree from which [`text`] generates texts.
pub(crate) fn parsed(pattern: &str) -> Option<Hir> {
    let mut parser = regex_syntax::ParserBuilder::new();
    parser.utf8(false).build().parse(pattern).ok()
}

// Entries that occur several times in a list are chosen more often.

const LITERALS: &[&str] = &[
    "/", "/", "/", "/a", "/b", "/ab", "/v1", "a", "b", "ab", "ba", "1", "-", r"\.", "k", "s", "é",
    "_", r"\/",
];

const CLASSES: &[&str] = &[
    "[^/]",
    "[^/]",
    "[^/]",
    r"\d",
    r"\d",
    r"\w",
    "[a-z]",
    "[a-z0-9_-]",
    "[ab]",
    ".",
    r"\D",
    r"\W",
    r"\s",
    r"\S",
    "[A-Za-z]",
    "[0-9a-f]",
    "[aé]",
    "[^a]",
    r"\pL",
    "[^/1]",
    "[[:alpha:]]",
    "a",
    "b",
    "/",
    "é",
    r"[^\s\S]",
    "(?s:.)",
];

const REPETITIONS: &[&str] = &[
    "", "", "", "+", "+", "+", "*", "*", "?", "{2}", "{1,3}", "{2,}", "{0,2}", "+?", "*?", "??",
    "{1,2}?", "{3}?", "{0}", "{20}",
];

const RARE: &[&str] = &[
    "^",
    "$",
    r"\z",
    r"\A",
    r"\b",
    r"\B",
    "(?-u:.)",
    r"(?-u:\xC3)",
    r"(?-u:[^/])",
    r"(?-u:\b)",
    "(?m:^)",
    "(?m:$)",
    "(?i:ks)",
    "(?i:K)+",
    "(?i)",
    "(?m)",
    "(?s)",
    "(?U)",
    "(?x) ",
    "(?R)",
    "(?-u:\\w)",
    "(?u:\\w)",
    r"\x41",
    "()",
    "(?:)",
    r"\<",
    "a++",
    "(?=a)",
    "(?!a)",
    "(?>a+)",
    r"\1",
    r"\Z",
    "[a&&b]",
    "[a-]",
    "[]a]",
    r"[\]-]",
    r"[\w.-]+",
];

/// Returns a random pattern. Most have the shape of API paths, some contain arbitrary syntax.
pub(crate) fn pattern(random: &mut Random) -> String {
    let mut pattern = String::new();
    if !random.one_in(12) {
        pattern.push_str(random.text(&["^", "^", "^", r"\A", "^/", "^/"]));
    }
    let enclosed = random.one_in(8);
    if enclosed {
        pattern.push_str(random.text(&["(?:", "(", "(?i:", "(?s:", "(?<whole>"]));
    }
    branches(random, &mut pattern, 3, &mut 0);
    if enclosed {
        pattern.push(')');
    }
    if random.one_in(2) {
        pattern.push_str(random.text(&["$", "$", r"\z", "/?$", "(?:/.*)?$", ".*", ".*$"]));
    }
    pattern
}

fn branches(random: &mut Random, pattern: &mut String, depth: usize, names: &mut usize) {
    let count = if random.one_in(6) {
        1 + random.index(4)
    } else {
        1
    };
    for branch in 0..count {
        if branch > 0 {
            pattern.push('|');
        }
        for _ in 0..random.index(2 + 2 * depth) {
            piece(random, pattern, depth, names);
        }
    }
}

fn piece(random: &mut Random, pattern: &mut String, depth: usize, names: &mut usize) {
    match random.index(24) {
        0..10 => pattern.push_str(random.text(LITERALS)),
        10..19 => {
            pattern.push_str(random.text(CLASSES));
            pattern.push_str(random.text(REPETITIONS));
        }
        19..23 if depth > 0 => {
            match random.index(4) {
                0 => {
                    *names += 1;
                    let kind = random.text(&["(?<", "(?P<"]);
                    pattern.push_str(&format!("{kind}n{names}>"));
                }
                1 => pattern.push('('),
                _ => pattern.push_str("(?:"),
            }
            branches(random, pattern, depth - 1, names);
            pattern.push(')');
            if random.one_in(3) {
                pattern.push_str(random.text(REPETITIONS));
            }
        }
        _ if random.one_in(3) => pattern.push_str(random.text(RARE)),
        _ => pattern.push('/'),
    }
}

/// Returns a text that the pattern matches or nearly matches.
pub(crate) fn text(random: &mut Random, pattern: &Hir) -> Vec<u8> {
    let mut text = Vec::new();
    write(random, pattern, &mut text);
    for _ in 0..[0, 0, 0, 1, 1, 2, 4][random.index(7)] {
        change(random, &mut text);
    }
    text
}

fn change(random: &mut Random, text: &mut Vec<u8>) {
    let inserted: &[&[u8]] = &[
        b"/",
        b"a",
        b"b",
        b"1",
        b"-",
        b"\n",
        b"K",
        b".",
        b"/a",
        b"/v1",
        b"ab",
        "é".as_bytes(),
        "ſ".as_bytes(),
        "\u{212A}".as_bytes(),
        "٣".as_bytes(),
        b"\x80",
        b"\xC3",
        b"\xFF",
        b"\xA9",
        b" ",
        b"\r\n",
    ];
    let inserted = inserted[random.index(inserted.len())];
    let at = random.index(text.len() + 1);
    match random.index(5) {
        0 => text.truncate(at),
        1 if at < text.len() => drop(text.remove(at)),
        2 => text.extend_from_slice(inserted),
        3 if at < text.len() => drop(text.splice(at..=at, inserted.iter().copied())),
        _ => drop(text.splice(at..at, inserted.iter().copied())),
    }
}

fn write(random: &mut Random, part: &Hir, text: &mut Vec<u8>) {
    match part.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.extend_from_slice(&literal.0),
        HirKind::Class(class) => write_class(random, class, text),
        HirKind::Capture(group) => write(random, &group.sub, text),
        HirKind::Concat(parts) => parts.iter().for_each(|part| write(random, part, text)),
        HirKind::Alternation(branches) => {
            let branch = &branches[random.index(branches.len())];
            write(random, branch, text);
        }
        HirKind::Repetition(repetition) => {
            let most = repetition.max.unwrap_or(u32::MAX).min(repetition.min + 3);
            let times =
                repetition.min as usize + random.index((most - repetition.min + 1) as usize);
            for _ in 0..times.min(30) {
                write(random, &repetition.sub, text);
            }
        }
    }
}

fn write_class(random: &mut Random, class: &Class, text: &mut Vec<u8>) {
    let wanted = ["a", "b", "1", "k", "/", "-", "é", "s", "\n", "Z", "ſ"];
    let preferred = random.text(&wanted).chars().next().unwrap_or_default();
    match class {
        Class::Unicode(class) => {
            let ranges = class.ranges();
            let holds = |range: &regex_syntax::hir::ClassUnicodeRange| {
                (range.start()..=range.end()).contains(&preferred)
            };
            if ranges.iter().any(holds) {
                text.extend_from_slice(preferred.to_string().as_bytes());
            } else if !ranges.is_empty() {
                let range = ranges[random.index(ranges.len().min(4))];
                text.extend_from_slice(range.start().to_string().as_bytes());
            }
        }
        Class::Bytes(class) => {
            let ranges = class.ranges();
            if !ranges.is_empty() {
                let range = ranges[random.index(ranges.len())];
                let width = usize::from(range.end() - range.start()) + 1;
                text.push(range.start() + random.index(width) as u8);
            }
        }
    }
}
