//! The stream router must make the same decisions as the reference.

use crate::{random, share};
use oracle::{Tally, all_options, streams_alike};

#[test]
fn streams_reach_the_route_that_the_reference_chooses() {
    for options in all_options() {
        let (mut tally, mut case) = (Tally::default(), 0);
        while tally.requests < share(2_000) {
            let most = if case % 10 == 0 { 300 } else { 30 };
            tally.add(streams_alike(&mut random(case), options, most, 100));
            case += 1;
        }
        println!("{options:?}: {case} routers of streams, {tally:?}");
        let share = tally.hits * 100 / tally.requests;
        assert!((10..95).contains(&share), "{share} % of the requests match");
    }
}
