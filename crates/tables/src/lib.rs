//! Persistent tables. A changed copy owns the changed parts and shares the rest with the previous version. The cost of
//! a change therefore depends on the size of the change and hardly on the size of the table. Readers of the previous
//! version are not affected.

#![forbid(unsafe_code)]

mod map;
mod slots;
mod sorted;

pub use map::Map;
pub use slots::Slots;
pub use sorted::Sorted;
