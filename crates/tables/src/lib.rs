//! Persistent tables: a changed copy owns the changed parts and shares the rest. A change costs in proportion to its
//! size, not to the size of the table, and readers of the previous version are not affected.

#![forbid(unsafe_code)]

mod map;
mod slots;
mod sorted;

pub use map::Map;
pub use slots::Slots;
pub use sorted::Sorted;
