//! Routes and requests of the fuzzer's choice: every choice of the random generator is one of the input's bytes.

use oracle::{Changes, Course, Random, Size, all_options, decide_alike};

/// A case must end within a moment.
const SIZE: Size = Size {
    routes: 12,
    requests: 20,
};

/// How often a router is replaced at most.
const REPLACEMENTS: usize = 10;

/// The first byte tells the flavour, the second whether one router is asked or several that follow each other.
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
