//! Finds a text that passes several tests, or proves that none exists. Each test has an automaton. All automata read
//! the same texts, byte by byte. The search ends when a text passes all tests, or when no new state is found. It
//! supports regexes in the dialect of the `regex` crate, up to a moderate size.

use super::texts::{Kind, Solution, Test};
use regex_automata::Anchored;
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::{start, syntax};
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Maximum number of tests that are combined.
const MAX_TESTS: usize = 32;

/// Maximum number of combined states that are explored.
const MAX_STATES: usize = 4000;

const NFA_SIZE: usize = 1 << 20;
const CACHE_SIZE: usize = 4 << 20;

/// Maximum number of regexes whose automata are kept for later calls.
const MAX_KEPT: usize = 256;

/// The bytes that are preferred in examples, the best first.
const LIKED: &[u8] = b"ax1bc0yz-_./ABXYZ23456789defghijklmnopqrstuvw~";

/// The automata of regexes, by pattern. `None` means that the automaton cannot be built, for example because the regex
/// is too large.
#[derive(Default)]
pub(super) struct Automata {
    known: RefCell<HashMap<Box<str>, Option<Kept>>>,
}

struct Kept {
    dfa: Arc<DFA>,
    /// The states that were computed in earlier calls. A running search borrows them.
    cache: Option<Box<Cache>>,
}

/// The state of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TestState {
    /// Number of bytes of the literal that matched so far.
    Literal(usize),
    Regex(LazyStateID),
    /// The test's text or regex has been found, whatever follows.
    Found,
    /// The test's text or regex cannot be found any more, whatever follows.
    Lost,
}

enum Machine<'t> {
    Literal {
        kind: Kind<'t>,
        text: &'t [u8],
        back: Vec<usize>,
    },
    Regex {
        dfa: Arc<DFA>,
        cache: Box<Cache>,
    },
}

impl Automata {
    /// Returns a text that passes all tests. All tests must use the same transformation and the dialect of the `regex`
    /// crate.
    pub(super) fn solve(&self, tests: &[Test<'_>]) -> Solution<String> {
        if tests.len() > MAX_TESTS {
            return Solution::Unknown;
        }
        let machines = tests.iter().map(|test| self.machine(test.kind()));
        let Some(machines) = machines.collect() else {
            return Solution::Unknown;
        };
        let passes = tests.iter().map(|test| test.passes()).collect();
        let Some(mut walk) = Walk::new(machines, passes) else {
            return Solution::Unknown;
        };
        let answer = walk.run();
        self.keep(tests, walk.machines);
        answer
    }

    fn machine<'t>(&self, kind: Kind<'t>) -> Option<Machine<'t>> {
        let Kind::Matches(regex) = kind else {
            let text = kind.literal()?.as_bytes();
            let back = fallbacks(text);
            return Some(Machine::Literal { kind, text, back });
        };
        let mut known = self.known.borrow_mut();
        if known.len() >= MAX_KEPT && !known.contains_key(regex.pattern()) {
            known.clear();
        }
        let kept = match known.entry(regex.pattern().into()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(build(regex.pattern())),
        };
        let kept = kept.as_mut()?;
        let dfa = Arc::clone(&kept.dfa);
        let cache = kept.cache.take();
        let cache = cache.unwrap_or_else(|| Box::new(dfa.create_cache()));
        Some(Machine::Regex { dfa, cache })
    }

    fn keep(&self, tests: &[Test<'_>], machines: Vec<Machine<'_>>) {
        let mut known = self.known.borrow_mut();
        for (test, machine) in tests.iter().zip(machines) {
            if let (Kind::Matches(regex), Machine::Regex { cache, .. }) = (test.kind(), machine)
                && let Some(Some(kept)) = known.get_mut(regex.pattern())
            {
                let full = cache.memory_usage() > CACHE_SIZE / 2;
                kept.cache = (!full).then_some(cache);
            }
        }
    }
}

fn build(pattern: &str) -> Option<Kept> {
    // A full cache must end the search, because clearing the cache would invalidate the states found so far.
    let config = Config::new()
        .cache_capacity(CACHE_SIZE)
        .minimum_cache_clear_count(Some(0));
    let nfa = thompson::Config::new()
        .utf8(false)
        .nfa_size_limit(Some(NFA_SIZE));
    let dfa = DFA::builder()
        .configure(config)
        .syntax(syntax::Config::new().utf8(false))
        .thompson(nfa)
        .build(pattern);
    let dfa = Arc::new(dfa.ok()?);
    Some(Kept { dfa, cache: None })
}

/// Computes the failure function of Knuth, Morris and Pratt: for each prefix of the text, the length of the longest
/// shorter prefix that is also a suffix of it.
fn fallbacks(text: &[u8]) -> Vec<usize> {
    let mut back = vec![0; text.len() + 1];
    let mut length = 0;
    for end in 1..text.len() {
        while length > 0 && text[length] != text[end] {
            length = back[length];
        }
        length += usize::from(text[length] == text[end]);
        back[end + 1] = length;
    }
    back
}

impl Machine<'_> {
    fn start(&mut self) -> Option<TestState> {
        match self {
            Self::Literal { .. } => Some(TestState::Literal(0)),
            Self::Regex { dfa, cache } => {
                let start = start::Config::new().anchored(Anchored::No);
                let state = dfa.start_state(cache, &start).ok()?;
                Some(TestState::Regex(state))
            }
        }
        .map(|state| self.settled(state))
    }

    /// Returns the state after one more byte; `None` if it cannot be computed.
    fn next(&mut self, state: TestState, byte: u8) -> Option<TestState> {
        let next = match (state, &mut *self) {
            (TestState::Literal(seen), Self::Literal { kind, text, back }) => match kind {
                Kind::Equals(_) | Kind::StartsWith(_) => {
                    if text.get(seen) == Some(&byte) {
                        TestState::Literal(seen + 1)
                    } else {
                        TestState::Lost
                    }
                }
                _ => {
                    let mut seen = seen;
                    while seen > 0 && text.get(seen) != Some(&byte) {
                        seen = back[seen];
                    }
                    TestState::Literal(seen + usize::from(text.get(seen) == Some(&byte)))
                }
            },
            (TestState::Regex(state), Self::Regex { dfa, cache }) => {
                TestState::Regex(dfa.next_state(cache, state, byte).ok()?)
            }
            (state, _) => state,
        };
        if let TestState::Regex(state) = next
            && state.is_quit()
        {
            return None;
        }
        Some(self.settled(next))
    }

    /// Returns `Found` or `Lost` if no further byte can change the result, and the state itself otherwise.
    fn settled(&self, state: TestState) -> TestState {
        match (state, self) {
            (
                TestState::Literal(seen),
                Self::Literal {
                    kind: Kind::StartsWith(_) | Kind::Contains(_),
                    text,
                    ..
                },
            ) if seen == text.len() => TestState::Found,
            (TestState::Regex(state), _) if state.is_match() => TestState::Found,
            (TestState::Regex(state), _) if state.is_dead() => TestState::Lost,
            _ => state,
        }
    }

    /// Whether the literal or regex is found if the text ends here. Returns `None` if this cannot be computed.
    fn ends(&mut self, state: TestState) -> Option<bool> {
        match (state, self) {
            (TestState::Found, _) => Some(true),
            (TestState::Literal(seen), Self::Literal { text, .. }) => Some(seen == text.len()),
            (TestState::Regex(state), Self::Regex { dfa, cache }) => {
                let end = dfa.next_eoi_state(cache, state).ok()?;
                Some(end.is_match())
            }
            _ => Some(false),
        }
    }

    /// Returns the equivalence class of a byte: bytes that the machine does not distinguish have the same class.
    fn class(&self, byte: u8) -> u8 {
        match self {
            Self::Literal { text, .. } => {
                let at = text.iter().position(|own| *own == byte);
                at.map_or(u8::MAX, |at| text[at])
            }
            Self::Regex { dfa, .. } => dfa.byte_classes().get(byte),
        }
    }
}

/// The search through the combined states of all machines, the shortest texts first.
struct Walk<'t> {
    machines: Vec<Machine<'t>>,
    passes: Vec<bool>,
    /// The states that were reached, each with its predecessor and the byte between them.
    reached: Vec<(Vec<TestState>, usize, u8)>,
    numbers: HashMap<Vec<TestState>, usize>,
}

impl<'t> Walk<'t> {
    fn new(mut machines: Vec<Machine<'t>>, passes: Vec<bool>) -> Option<Self> {
        let start: Option<Vec<TestState>> = machines.iter_mut().map(Machine::start).collect();
        let start = start?;
        Some(Self {
            machines,
            passes,
            reached: vec![(start.clone(), 0, 0)],
            numbers: HashMap::from([(start, 0)]),
        })
    }

    fn run(&mut self) -> Solution<String> {
        let bytes = self.alphabet();
        let mut next = 0;
        let mut foreign = false;
        while next < self.reached.len() {
            match self.is_end(next) {
                None => return Solution::Unknown,
                Some(true) => match String::from_utf8(self.text(next)) {
                    Ok(text) => return Solution::One(text),
                    // This text is not valid UTF-8. The search goes on, because a valid one may follow.
                    Err(_) => foreign = true,
                },
                Some(false) => {}
            }
            for byte in &bytes {
                if self.step(next, *byte).is_none() {
                    return Solution::Unknown;
                }
            }
            if self.reached.len() > MAX_STATES {
                return Solution::Unknown;
            }
            next += 1;
        }
        if foreign {
            Solution::Unknown
        } else {
            Solution::Nothing
        }
    }

    /// Returns enough bytes to reach every state: one of each set of bytes that no machine distinguishes.
    fn alphabet(&self) -> Vec<u8> {
        let mut seen: HashMap<Vec<u8>, ()> = HashMap::new();
        let all = LIKED.iter().copied().chain(0..=u8::MAX);
        all.filter(|byte| {
            let classes = self.machines.iter().map(|machine| machine.class(*byte));
            seen.insert(classes.collect(), ()).is_none()
        })
        .collect()
    }

    fn step(&mut self, from: usize, byte: u8) -> Option<()> {
        let mut states = Vec::with_capacity(self.machines.len());
        for (number, machine) in self.machines.iter_mut().enumerate() {
            let state = machine.next(self.reached[from].0[number], byte)?;
            let hopeless = if self.passes[number] {
                TestState::Lost
            } else {
                TestState::Found
            };
            if state == hopeless {
                return Some(());
            }
            states.push(state);
        }
        let number = self.reached.len();
        if let Entry::Vacant(new) = self.numbers.entry(states) {
            self.reached.push((new.key().clone(), from, byte));
            new.insert(number);
        }
        Some(())
    }

    fn is_end(&mut self, number: usize) -> Option<bool> {
        for (at, machine) in self.machines.iter_mut().enumerate() {
            if machine.ends(self.reached[number].0[at])? != self.passes[at] {
                return Some(false);
            }
        }
        Some(true)
    }

    fn text(&self, mut number: usize) -> Vec<u8> {
        let mut text = Vec::new();
        while number != 0 {
            let (_, from, byte) = &self.reached[number];
            text.push(*byte);
            number = *from;
        }
        text.reverse();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expr::{Dialect, Expression, Regex, TextField, TextTest};

    /// Solves tests written as `~`, `^`, `$`, `*` or `=` and a text. A leading `!` means that the text must fail the
    /// test.
    fn solve(tests: &[&str]) -> Solution<String> {
        let predicates: Vec<_> = tests
            .iter()
            .map(|test| {
                let (test, passes) = match test.strip_prefix('!') {
                    Some(test) => (test, false),
                    None => (*test, true),
                };
                let text = &test[1..];
                let test = match &test[..1] {
                    "~" => TextTest::Matches(Regex::new(text, Dialect::Rust).unwrap()),
                    "^" => TextTest::StartsWith(text.into()),
                    "$" => TextTest::EndsWith(text.into()),
                    "*" => TextTest::Contains(text.into()),
                    _ => TextTest::Equals(text.into()),
                };
                (Expression::text(TextField::Path, test), passes)
            })
            .collect();
        let tests: Vec<_> = predicates
            .iter()
            .map(|(expression, passes)| match expression {
                Expression::Text(predicate) => Test::of(predicate, *passes),
                _ => unreachable!("it is a test of a text"),
            })
            .collect();
        let automata = Automata::default();
        let answer = automata.solve(&tests);
        assert_eq!(automata.solve(&tests), answer, "the second time");
        if let Solution::One(text) = &answer {
            assert!(tests.iter().all(|test| test.accepts(text)), "{text}");
        }
        answer
    }

    #[test]
    fn tests_that_exclude_each_other_have_no_text() {
        for tests in [
            &["~^/users/[0-9]+$", "!~^/users/[^/]+$"][..],
            &["~^/a/[^/]+/x$", "~^/a/[^/]+/y$"],
            &["~^/(a|b)/x", "!~^/a/", "!~/x"],
            &["^/a", "!^/"],
            &["*aba", "$ab", "!*abaab", "!*abab", "!*aba"],
            &["~^a*$", "*b"],
            &["=/x", "!~^/x$"],
            &["~(?i)^/ab$", "!~^/[aA][bB]$"],
            &["~^.{3}$", "^abcd"],
            &["$ab", "~a$"],
        ] {
            assert_eq!(solve(tests), Solution::Nothing, "{tests:?}");
        }
    }

    #[test]
    fn the_shortest_passing_text_is_found() {
        for (tests, expected) in [
            (&["~^/a/[^/]+/x$", "~^/a/y/[^/]+$"][..], "/a/y/x"),
            (&["~^/users/[^/]+$", "!~^/users/[0-9]+$"], "/users/a"),
            (&["*aba", "$ab"], "abab"),
            (&["^ab", "$ba"], "aba"),
            (&["!^a", "~."], "x"),
            (&["*", "!=", "!$a"], "x"),
            (&["~(?-u:^[b-c]+$)", "*cb"], "cb"),
        ] {
            assert_eq!(
                solve(tests),
                Solution::One(expected.to_owned()),
                "{tests:?}"
            );
        }
    }

    #[test]
    fn only_so_many_regexes_are_kept() {
        let automata = Automata::default();
        for number in 0..=MAX_KEPT {
            let pattern = format!("^/{number}$");
            let regex = TextTest::Matches(Regex::new(&pattern, Dialect::Rust).unwrap());
            let Expression::Text(predicate) = Expression::text(TextField::Path, regex) else {
                unreachable!("it is a test of a text")
            };
            automata.solve(&[Test::of(&predicate, true)]);
            assert!((1..=MAX_KEPT).contains(&automata.known.borrow().len()));
        }
    }

    #[test]
    fn too_large_regexes_have_an_unknown_answer() {
        let large = format!("~^({})$", ["[ab]*a[ab]{9}"; 8].join("|"));
        assert_eq!(
            solve(&[&large, "~^[ab]*b[ab]{12}$", "!^b"]),
            Solution::Unknown
        );
        assert_eq!(solve(&[r"~é\b", "!*é"]), Solution::Unknown);
    }
}
