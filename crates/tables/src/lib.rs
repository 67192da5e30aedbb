//! Tables that the next version changes in a few places: a changed copy has what differs for itself and shares the rest, so
//! that a change costs what it touches and not what there is. Readers of the version before never notice.

#![forbid(unsafe_code)]

mod map;
mod slots;
mod sorted;

pub use map::Map;
pub use slots::Slots;
pub use sorted::Sorted;
