//! A changed router must behave like a newly built one.

use crate::{asked_for, random};
use oracle::{Changes, Course, Tally, all_options};

#[test]
fn a_router_changed_at_random_equals_a_newly_built_one() {
    let soaks = asked_for("ENDURE_REQUESTS").is_some();
    let (sizes, most): (&[_], _) = if soaks {
        (&[20, 200, 2_000, 2_000], 8)
    } else {
        (&[8, 12, 16, 40], 4)
    };
    for (number, options) in (0..).zip(all_options()) {
        let mut random = random(number);
        let (mut tally, mut steps) = (Tally::default(), 0);
        for size in sizes {
            let mut changes = Changes::new(&mut random, options);
            let mut pace = |changes: &mut Changes, course| {
                changes.step(&mut random, course, most);
                steps += 1;
                // Building a router takes longer the larger it is, so large ones are checked less often.
                if steps % (1 + changes.len() / 20) == 0 {
                    tally.add(changes.check(&mut random, 20));
                }
            };
            while changes.len() < *size {
                pace(&mut changes, Course::Grow);
            }
            (0..*size).for_each(|_| pace(&mut changes, Course::Stay));
            while !changes.is_empty() {
                pace(&mut changes, Course::Shrink);
            }
            assert_eq!(changes.router().order().count(), 0);
        }
        println!("{options:?}: {steps} replacements, {tally:?}");
        assert!(tally.hits > 0, "no request matched: {tally:?}");
    }
}

#[test]
fn a_kept_router_is_not_affected_by_later_changes() {
    let options = all_options()[1];
    let mut random = random(99);
    let mut changes = Changes::new(&mut random, options);
    while changes.len() < 100 {
        changes.step(&mut random, Course::Grow, 4);
    }
    let kept = changes.keep(&mut random, 200);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..10).for_each(|_| kept.check()));
        }
        for _ in 0..200 {
            changes.step(&mut random, Course::Stay, 4);
        }
    });
    kept.check();
}
