//! The reads of the store during a call of a plugin. What reads the store does not know the request, so the thread keeps
//! them until the data plane takes them.

use super::Moment;
use std::cell::{Cell, RefCell};
use std::fmt;

/// A read of the store.
#[derive(Debug, Clone)]
pub struct Query {
    pub statement: Box<str>,
    pub start: Moment,
    pub end: Moment,
}

/// What the thread keeps. Most calls of plugins read nothing, so this alone is looked at for them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Nobody wants reads.
    Nothing,
    /// There was no read yet.
    NoneYet,
    Some,
}

thread_local! {
    static KEPT: Cell<Kept> = const { Cell::new(Kept::Nothing) };
    static QUERIES: RefCell<Vec<Query>> = const { RefCell::new(Vec::new()) };
}

/// Begins to keep the reads of this thread.
#[inline]
pub fn start() {
    if KEPT.replace(Kept::NoneYet) == Kept::Some {
        QUERIES.take();
    }
}

/// Returns the reads since [`start`] if there are any, and keeps no more.
#[inline]
pub fn take() -> Option<Vec<Query>> {
    (KEPT.replace(Kept::Nothing) == Kept::Some).then(|| QUERIES.take())
}

/// Reads the store. The statement is written only if somebody wants it, and has no values, which can be secrets.
pub fn measure<T>(statement: fmt::Arguments<'_>, read: impl FnOnce() -> T) -> T {
    if KEPT.get() == Kept::Nothing {
        return read();
    }
    let start = Moment::now();
    let found = read();
    let query = Query {
        statement: statement.to_string().into(),
        start,
        end: Moment::now(),
    };
    // The read may itself have ended what was begun.
    if KEPT.get() != Kept::Nothing {
        KEPT.set(Kept::Some);
        QUERIES.with_borrow_mut(|queries| queries.push(query));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_kept_while_somebody_wants_them() {
        assert_eq!(measure(format_args!("unseen"), || 1), 1);
        start();
        assert_eq!(measure(format_args!("keys by {}", "key"), || 2), 2);
        let queries = take().unwrap();
        assert_eq!(queries.len(), 1);
        assert_eq!(&*queries[0].statement, "keys by key");
        assert!(queries[0].start <= queries[0].end);
        measure(format_args!("late"), || ());
        assert!(take().is_none());
    }
}
