//! The router against everything that answers slowly. `cargo xtask soak router` runs more of it: `ENDURE_REQUESTS` in all
//! from `ENDURE_SEED`.

mod alike;
mod changes;
mod expressions;
mod hostile;
mod streams;
mod vectors;

/// What `cargo xtask soak` asks for.
fn asked_for(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// How often to do what a test run does once.
fn share(once: u64) -> u64 {
    asked_for("ENDURE_REQUESTS").map_or(once, |all| all / 10)
}

/// Another sequence for each number.
fn random(number: u64) -> oracle::Random {
    let seed = asked_for("ENDURE_SEED").unwrap_or(7);
    oracle::Random::new(seed.wrapping_mul(1_000_000_007).wrapping_add(number))
}
