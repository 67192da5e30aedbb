//! Fuzz target for the router, which must decide like the reference implementations in the crate `oracle`. The fuzzer
//! chooses the routes and requests: each choice of the random generator uses bytes of the input.

use oracle::{Changes, Course, Random, Size, all_options, decide_alike};

/// Number of routes and requests. They are small, so that checking one input is fast.
const SIZE: Size = Size {
    routes: 12,
    requests: 20,
};

/// Maximum number of times a router is replaced.
const REPLACEMENTS: usize = 10;

/// Checks a router. The first byte of the input chooses the flavor, the second whether to test one router or a
/// sequence of changed routers.
pub fn router(data: &[u8]) {
    let mut random = Random::of_bytes(data);
    let options = *random.one(&all_options());
    if random.below(2) == 0 {
        decide_alike(&mut random, options, SIZE);
        return;
    }
    let mut changes = Changes::new(&mut random, options);
    for _ in 0..REPLACEMENTS {
        let course = *random.one(&[Course::Grow, Course::Stay, Course::Shrink]);
        changes.step(&mut random, course, 3);
        changes.check(&mut random, 3);
        if random.is_spent() {
            break;
        }
    }
}
