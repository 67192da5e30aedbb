//! Runs the fuzz targets on the stable toolchain: on the committed corpora, and on mutations of them for a short time.

use std::path::Path;
use std::time::{Duration, Instant};
use testkit::random::{Random, mutated};

/// Time for the mutations of one corpus. The environment variable `FUZZ_SECONDS` overrides it.
const MOMENT: Duration = Duration::from_secs(2);
/// Maximum number of bytes that a mutation changes.
const MAX_CHANGES: usize = 4;

#[test]
fn committed_corpora_hold_the_invariants() {
    for (name, target) in fuzzing::TARGETS {
        for input in corpus(name) {
            target(&input);
        }
    }
}

#[test]
fn changes_of_the_corpora_hold_the_invariants() {
    let seconds = std::env::var("FUZZ_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok());
    let moment = seconds.map_or(MOMENT, Duration::from_secs);
    for (name, target) in fuzzing::TARGETS {
        let inputs = corpus(name);
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        let (started, mut runs) = (Instant::now(), 0_u64);
        while started.elapsed() < moment {
            for _ in 0..100 {
                target(&mutated(&mut random, &inputs, MAX_CHANGES));
                runs += 1;
            }
        }
        println!("{name}: {runs} runs");
    }
}

/// Returns the inputs of a target, sorted by file name so that every run uses the same order.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let folder = folder.join(name);
    let entries = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("a readable directory").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    let read = |path| std::fs::read(path).expect("a readable file");
    paths.iter().map(read).collect()
}
