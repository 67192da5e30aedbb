//! The operations by time. `cargo bench -p micro -- router` runs those whose name has the word.

use criterion::{Criterion, criterion_group, criterion_main};
use micro::Work;
use std::time::{Duration, Instant};

/// As the program has it: a tenth of many operations is memory that is taken and given back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

criterion_group!(benches, all);
criterion_main!(benches);

fn all(criterion: &mut Criterion) {
    let operations = micro::operations().into_iter();
    for operation in operations.chain(micro::scaling_operations()) {
        // Set up at the first use, which only comes when the name is asked for.
        let mut work: Option<Box<dyn Work>> = None;
        criterion.bench_function(&operation.name, |bencher| {
            let work = work.get_or_insert_with(|| operation.set_up());
            if operation.prepares {
                bencher.iter_custom(|runs| (0..runs).map(|_| time(&mut **work)).sum());
            } else {
                bencher.iter(|| work.run());
            }
        });
    }
}

/// Without what is prepared.
fn time(work: &mut dyn Work) -> Duration {
    work.prepare();
    let started = Instant::now();
    work.run();
    started.elapsed()
}
