//! Compares the router with slow references. `cargo xtask soak router` runs more cases: it sets `ENDURE_REQUESTS`, the
//! total number of requests, and `ENDURE_SEED`.

mod alike;
mod changes;
mod expressions;
mod hostile;
mod streams;
mod vectors;

/// Returns a parameter that `cargo xtask soak` sets in the environment.
fn asked_for(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Returns the number of requests for one set of options in one test. `once` is that number in a normal test run.
fn share(once: u64) -> u64 {
    asked_for("ENDURE_REQUESTS").map_or(once, |all| all / 10)
}

/// Returns a random generator. Each number gives a different sequence.
fn random(number: u64) -> oracle::Random {
    let seed = asked_for("ENDURE_SEED").unwrap_or(7);
    oracle::Random::new(seed.wrapping_mul(1_000_000_007).wrapping_add(number))
}
