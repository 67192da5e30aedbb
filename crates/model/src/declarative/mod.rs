//! Declarative configuration: text to validated entities, and back.
