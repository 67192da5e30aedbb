//! Expressions must be parsed with the intended meaning, and printed so that they can be parsed again.

use crate::{random, share};
use oracle::{Engines, Tally, read_alike};
use router::Flavor;

#[test]
fn expressions_are_parsed_with_the_intended_meaning() {
    let mut tally = Tally::default();
    let mut case = 0;
    while tally.requests < share(4_000) {
        // The engines keep every regex that they compile. New engines for every 20 cases limit the memory.
        let mut engines = Engines::new(Flavor::Expressions);
        let cases = (case..case + 20).map(random);
        for mut random in cases {
            tally.add(read_alike(&mut random, &mut engines, 10));
        }
        case += 20;
    }
    println!("{case} expressions, {tally:?}");
    let share = tally.hits * 100 / tally.requests;
    assert!((5..95).contains(&share), "{share} % of the requests match");
}
