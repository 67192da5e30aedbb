//! What the benchmark can measure, by name.
