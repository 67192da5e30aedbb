//! Random regexes, each with examples of texts that it probably matches.

use crate::random::Random;

/// A regex that is valid in the dialects of the `regex` crate and of PCRE.
#[derive(Debug, Clone)]
pub struct Pattern {
    pub text: String,
    pub examples: Vec<String>,
}

enum Node {
    Text(&'static str),
    /// A character class, and some of its characters.
    Class(&'static str, &'static str),
    Repeat(Box<Node>, &'static str, usize),
    Group(&'static str, Box<Node>),
    Named(usize, Box<Node>),
    Either(Vec<Node>),
    Sequence(Vec<Node>),
    /// An anchor or an assertion, which matches no text.
    Look(&'static str),
}

const TEXTS: &[&str] = &[
    "/", "/a", "a", "ab", "/b/", "users", "/api/v1", "-", "_", "7", "é", "/日本", "AB", "test",
];
const ESCAPED: &[(&str, &str)] = &[(r"\.", "."), (r"\+", "+"), (r"\$", "$"), (r"\x41", "A")];
const CLASSES: &[(&str, &str)] = &[
    ("[a-z]", "abz"),
    ("[^/]", "ab1-é"),
    ("[0-9]", "057"),
    (r"\d", "19"),
    (r"\w", "aZ_0"),
    (".", "a/é."),
    ("[A-Za-z0-9_-]", "aZ0-"),
    ("[^a]", "b/c"),
    (r"\S", "x/"),
    (r"[\w.]", "a."),
    ("[/a]", "/a"),
    ("[^/.]", "ab"),
    (r"\D", "ab/"),
];
const REPEATS: &[(&str, usize)] = &[
    ("*", 4),
    ("+", 3),
    ("?", 1),
    ("{2}", 2),
    ("{1,3}", 3),
    ("{2,}", 3),
    ("*?", 3),
    ("+?", 2),
    ("??", 1),
    ("{0,2}", 2),
    ("{36}", 36),
];
const LOOKS: &[&str] = &["^", "$", r"\b", r"\B", "^", "$", r"\A", r"\z"];
/// Patterns that people write, and patterns that regex engines have handled incorrectly.
const KNOWN: &[(&str, &str)] = &[
    ("/users/[0-9]+$", "/users/17"),
    (
        "/users/(?<id>[^/]+)/orders/(?<order>[^/]+)$",
        "/users/a/orders/b",
    ),
    ("/a|/b", "/x/b"),
    ("(/a|/b)/c", "/b/c"),
    ("(?i)/API/", "/api/"),
    ("/(?i:a)b", "/Ab"),
    (".*", ""),
    (".*/end$", "/x/y/end"),
    ("$", "/"),
    ("", "/"),
    ("/(a|ab)(c|bcd)(d*)", "/abcd"),
    ("(a*)*b", "/aaaa"),
    ("/(?:x|)y", "/y"),
    ("(?s)/a.b", "/a\nb"),
    ("/[^/]+/[^/]+/?$", "/a/b/"),
    (r"/v\d+/", "/v2/"),
    ("/é+", "/éé"),
    ("(?i)/É", "/é"),
    ("(?i)k", "/\u{212a}"),
    (r"/\w+\.(?:png|jpe?g)$", "/a.jpg"),
    ("/a{3}/", "/aaa/"),
    ("()/a", "/a"),
    ("/[[:alpha:]]+$", "/abc"),
    ("(?:^|/)a", "/a"),
    ("(?m)^/b", "/a\n/b"),
    ("/(.)(.)?", "/x"),
];

impl Pattern {
    pub(crate) fn random(random: &mut Random) -> Self {
        if random.below(3) == 0 {
            let (text, example) = *random.one(KNOWN);
            return Self {
                text: text.to_owned(),
                examples: vec![example.to_owned()],
            };
        }
        let mut names = 0;
        let node = Node::random(random, 3, &mut names);
        let mut text = String::new();
        if random.once_in(4) {
            text.push_str("(?i)");
        }
        node.write(&mut text);
        let examples = (0..3).map(|_| {
            let mut example = String::new();
            node.example(random, &mut example);
            example
        });
        Self {
            examples: examples.collect(),
            text,
        }
    }
}

impl Node {
    fn random(random: &mut Random, depth: usize, names: &mut usize) -> Self {
        match random.below(if depth == 0 { 5 } else { 10 }) {
            0 | 1 => Self::Text(random.word(TEXTS)),
            2 => {
                let (text, example) = *random.one(ESCAPED);
                Self::Class(text, example)
            }
            3 | 4 => {
                let (text, examples) = *random.one(CLASSES);
                Self::Class(text, examples)
            }
            5 => {
                let (sign, most) = *random.one(REPEATS);
                // A large part repeated many times exceeds the size limit of the engine.
                let depth = if most > 4 { 0 } else { depth - 1 };
                let inner = Self::random(random, depth, names);
                Self::Repeat(Box::new(inner), sign, most)
            }
            6 => Self::group(random, depth, names),
            7 => Self::Either(Self::several(random, depth, names)),
            8 if random.once_in(3) => Self::Look(random.word(LOOKS)),
            _ => Self::Sequence(Self::several(random, depth, names)),
        }
    }

    fn group(random: &mut Random, depth: usize, names: &mut usize) -> Self {
        let kind = random.below(5);
        if kind == 0 {
            let name = *names;
            *names += 1;
            return Self::Named(name, Box::new(Self::random(random, depth - 1, names)));
        }
        let opening = ["", "(", "(?:", "(?i:", "("][kind];
        Self::Group(opening, Box::new(Self::random(random, depth - 1, names)))
    }

    fn several(random: &mut Random, depth: usize, names: &mut usize) -> Vec<Self> {
        let count = random.between(2, 4);
        (0..count)
            .map(|_| Self::random(random, depth - 1, names))
            .collect()
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) | Self::Class(text, _) | Self::Look(text) => out.push_str(text),
            Self::Repeat(inner, sign, _) => {
                out.push_str("(?:");
                inner.write(out);
                out.push(')');
                out.push_str(sign);
            }
            Self::Group(opening, inner) => {
                out.push_str(opening);
                inner.write(out);
                out.push(')');
            }
            Self::Named(name, inner) => {
                out.push_str(&format!("(?<n{name}>"));
                inner.write(out);
                out.push(')');
            }
            // The alternatives are not put in a group, because people often forget it.
            Self::Either(parts) => {
                for (number, part) in parts.iter().enumerate() {
                    if number > 0 {
                        out.push('|');
                    }
                    part.write(out);
                }
            }
            Self::Sequence(parts) => parts.iter().for_each(|part| part.write(out)),
        }
    }

    fn example(&self, random: &mut Random, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(text),
            Self::Class(_, examples) => {
                let count = examples.chars().count();
                out.extend(examples.chars().nth(random.below(count)));
            }
            Self::Repeat(inner, _, most) => {
                let count = if *most > 4 {
                    *most
                } else {
                    random.below(most + 1)
                };
                (0..count).for_each(|_| inner.example(random, out));
            }
            Self::Group(_, inner) | Self::Named(_, inner) => inner.example(random, out),
            Self::Either(parts) => random.one(parts).example(random, out),
            Self::Sequence(parts) => parts.iter().for_each(|part| part.example(random, out)),
            Self::Look(_) => {}
        }
    }
}
