//! The router must make the same decisions as a check of every candidate, and as the reference.

use crate::{random, share};
use oracle::{Size, Tally, all_options, decide_alike};
use router::Flavor;

#[test]
fn every_flavor_decides_like_a_check_of_every_candidate() {
    for options in all_options() {
        // `traditional` needs more requests, because its ordering criteria rarely occur together: hosts with ports, and
        // headers with several values.
        let once = match options.flavor {
            Flavor::Traditional => 8_000,
            Flavor::TraditionalCompatible | Flavor::Expressions => 1_500,
        };
        let (mut tally, mut case) = (Tally::default(), 0);
        while tally.requests < share(once) {
            // Small routers are included, because with many routes nearly every request matches.
            for routes in [6, 40, 3, 12, 100] {
                let size = Size {
                    routes,
                    requests: 100,
                };
                tally.add(decide_alike(&mut random(case), options, size));
                case += 1;
            }
        }
        println!("{options:?}: {case} routers, {tally:?}");
        let share = tally.hits * 100 / tally.requests;
        assert!((20..99).contains(&share), "{share} % of the requests match");
    }
}
