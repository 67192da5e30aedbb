//! Tables of a snapshot that the next one changes in a few places: a changed copy has the segments that differ for itself and
//! shares the others, so that a change costs what it touches and not what there is.

mod slots;
mod sorted;

pub(crate) use slots::Slots;
pub(crate) use sorted::Sorted;
