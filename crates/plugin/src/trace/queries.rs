//! The reads of the store during a call of a plugin. What reads the store does not know the request, so the thread keeps
//! them until the data plane takes them.

use std::cell::RefCell;
use std::fmt;
use std::time::Instant;

/// A read of the store.
#[derive(Debug, Clone)]
pub struct Query {
    pub statement: Box<str>,
    pub start: Instant,
    pub end: Instant,
}

thread_local! {
    /// `None` if nobody wants them.
    static QUERIES: RefCell<Option<Vec<Query>>> = const { RefCell::new(None) };
}

/// Begins to keep the reads of this thread.
pub fn start() {
    QUERIES.set(Some(Vec::new()));
}

/// Returns the reads since [`start`], and keeps no more.
pub fn take() -> Vec<Query> {
    QUERIES.take().unwrap_or_default()
}

/// Reads the store. The statement is written only if somebody wants it, and has no values, which can be secrets.
pub fn measure<T>(statement: fmt::Arguments<'_>, read: impl FnOnce() -> T) -> T {
    if QUERIES.with_borrow(Option::is_none) {
        return read();
    }
    let start = Instant::now();
    let found = read();
    let query = Query {
        statement: statement.to_string().into(),
        start,
        end: Instant::now(),
    };
    QUERIES.with_borrow_mut(|queries| {
        if let Some(queries) = queries {
            queries.push(query);
        }
    });
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
        let queries = take();
        assert_eq!(queries.len(), 1);
        assert_eq!(&*queries[0].statement, "keys by key");
        assert!(queries[0].start <= queries[0].end);
        measure(format_args!("late"), || ());
        assert!(take().is_empty());
    }
}
