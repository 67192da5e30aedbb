//! Measures the time of the operations. `cargo bench -p micro -- router` runs those with `router` in their
//! name.

use criterion::{Criterion, criterion_group, criterion_main};
use micro::Work;
use std::time::{Duration, Instant};

/// The gateway's allocator. Allocating and freeing memory takes a tenth of the time of many operations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

criterion_group!(benches, all);
criterion_main!(benches);

fn all(criterion: &mut Criterion) {
    let operations = micro::operations().into_iter();
    for operation in operations.chain(micro::scaling_operations()) {
        // The set-up is delayed to the first use, because Criterion calls this closure only for selected names.
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

/// Times one run without its preparation.
fn time(work: &mut dyn Work) -> Duration {
    work.prepare();
    let started = Instant::now();
    work.run();
    started.elapsed()
}
