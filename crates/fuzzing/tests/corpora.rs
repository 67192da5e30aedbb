//! Runs the fuzz targets on the stable toolchain: on the committed corpora, and on mutations of them for a short time.

use std::path::Path;
use std::time::{Duration, Instant};
use testkit::random::Random;

/// Time for the mutations of one corpus. The environment variable `FUZZ_SECONDS` overrides it.
const MOMENT: Duration = Duration::from_secs(2);

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
                target(&changed(&mut random, &inputs));
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

/// Returns a mutated input. In one case of four, its end is replaced by the end of another input. Then up to four bytes
/// are replaced, removed or inserted.
fn changed(random: &mut Random, inputs: &[Vec<u8>]) -> Vec<u8> {
    const TELLING: &[u8] = b"\r\n\0 \t:;,=/\\%#?\"0fFxX+-@[]\x7f\x80\xff";
    let mut input = inputs[random.index(inputs.len())].clone();
    if random.index(4) == 0 {
        let other = &inputs[random.index(inputs.len())];
        input.truncate(random.index(input.len() + 1));
        input.extend_from_slice(&other[random.index(other.len() + 1)..]);
    }
    for _ in 0..random.index(5) {
        let at = random.index(input.len() + 1);
        let byte = match random.index(2) {
            0 => TELLING[random.index(TELLING.len())],
            _ => random.index(256) as u8,
        };
        match random.index(3) {
            0 => input.insert(at, byte),
            1 if at < input.len() => input[at] = byte,
            _ if at < input.len() => {
                input.remove(at);
            }
            _ => {}
        }
    }
    input
}
