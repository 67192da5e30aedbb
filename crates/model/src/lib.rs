//! Entities: their types, their validation and completion, and loading them from a declarative configuration.
//!
//! This crate reads no files or sockets and needs no async runtime. Except for random ids and keys, all results depend
//! only on the input.

#![forbid(unsafe_code)]

pub mod address;
pub mod codec;
pub mod declarative;
pub mod entities;
pub mod error;
pub mod hashing;
pub mod kind;
pub mod plugins;
pub mod schema;
pub mod uri;
pub mod value;

pub use error::{Error, ErrorCode};
pub use expr::nearest;
pub use kind::EntityKind;
pub use value::{Object, Value};
