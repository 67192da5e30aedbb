//! Runs the user's Lua code in LuaJIT, with Kong's `kong.*` (the PDK) and nginx's `ngx.*`.
//!
//! Each worker has one VM, made when it is first needed. A handler runs in a coroutine of it. A coroutine that waits
//! suspends itself, and its worker goes on with other requests. The PDK is written in Lua over functions of this crate that
//! Lua calls by FFI (`abi`), because LuaJIT compiles such calls. Code that runs for too long is stopped (`watchdog`), and
//! memory is limited (`memory`).
//!
//! This crate has all `unsafe` code that this needs. Its invariants are written down in `abi`, `target` and `vm`.

#![deny(unsafe_op_in_unsafe_fn)]

mod abi;
mod fields;
mod files;
mod globals;
mod groups;
mod handles;
mod memory;
mod metrics;
mod open;
mod pattern;
mod script;
mod syntax;
mod sys;
mod target;
mod template;
#[cfg(test)]
mod tests;
mod vm;
mod watchdog;

pub use abi::{Ending, Pending};
pub use fields::{FieldError, FieldTexts, Fields};
pub use globals::{Forbidden, Globals};
pub use groups::{Group, Groups};
pub use script::{Outcome, Progress, Scripts, Snippets};
pub use syntax::check_syntax;
pub use target::{Parts, Phase, Target};
pub use template::{Template, check_template, expression_spans};
pub use watchdog::MAX_SLICE;
