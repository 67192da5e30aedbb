//! Schemas as data, and the engine that validates and completes entities by them.
