//! The Admin API: Kong's, over HTTP. The only crate that knows its URLs.
//!
//! It validates and answers; what changes the configuration goes through [`Control`], which the program implements.

#![forbid(unsafe_code)]

pub mod control;

pub use control::Control;
