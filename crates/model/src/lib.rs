//! Entities: what they are, how they are validated and completed, and how a declarative configuration becomes them.
//! Pure functions of their input: no I/O, no runtime.

#![forbid(unsafe_code)]

pub mod address;
pub mod codec;
pub mod declarative;
pub mod entities;
pub mod error;
pub mod hashing;
pub mod kind;
mod nearest;
pub mod plugins;
pub mod schema;
pub mod uri;
pub mod value;

pub use error::{Error, ErrorCode};
pub use kind::EntityKind;
pub use nearest::nearest;
pub use value::{Object, Value};
