//! Checks that expressions are parsed with the intended meaning, and printed so that they can be parsed again.

use crate::cases::Tally;
use crate::engine::Engines;
use crate::facts::Facts;
use crate::print::print;
use crate::random::Random;
use crate::requests::Sample;
use crate::routes::shape;
use crate::term::{Term, Trail};
use crate::world::World;
use expr::{Dialect, Regex, Subsystem, parse, read};
use router::{Flavor, Options};

/// Prints a random term as an expression, parses it, and checks that it has the same result as the term for random
/// requests.
pub fn read_alike(random: &mut Random, engines: &mut Engines, requests: usize) -> Tally {
    let world = World::random(random);
    let term = shape(random, &world);
    let text = print(&term, random);
    keeps_its_meaning(&text);
    let mut regex = |pattern: &str| Regex::new(pattern, Dialect::Rust);
    let expression = match read(&text, Subsystem::Http, &mut regex) {
        Ok(expression) => expression,
        Err(error) => panic!("{error}"),
    };
    let compiled = Term::of(&expression);
    let options = Options {
        flavor: Flavor::Expressions,
        ..Options::default()
    };
    let mut tally = Tally::default();
    for _ in 0..requests {
        let sample = Sample::random(random, &world);
        let facts = Facts::new(&sample, options);
        let mut ask = |term: &Term| {
            let mut trail = Trail::default();
            (term.holds(&facts, engines, &mut trail), trail)
        };
        let (meant, said) = (ask(&term), ask(&compiled));
        assert_eq!(said, meant, "{text}\n{sample:#?}");
        tally.requests += 1;
        tally.hits += u64::from(meant.0);
    }
    tally
}

/// Checks that the library prints the same expression again, on one line and on several.
fn keeps_its_meaning(text: &str) {
    let printed = |text: &str| match parse(text) {
        Ok(parsed) => parsed.to_string(),
        Err(error) => panic!("{error}"),
    };
    let canonical = printed(text);
    assert_eq!(printed(&canonical), canonical);
    for width in [1, 40, 100] {
        let laid_out = parse(text).map(|parsed| parsed.format(width));
        let laid_out = laid_out.unwrap_or_default();
        assert_eq!(printed(&laid_out), canonical, "{laid_out}");
    }
}
