//! Parts of a plugin that each worker has for itself, such as an interpreter or compiled code that threads cannot share.
//!
//! A part is made on a worker when the plugin first uses it there, and freed on the same worker once that worker has seen
//! a revision of the configuration without the plugin. It would not be enough to free it when the plugin is dropped:
//! another thread may drop it last.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The life of a plugin instance: from the snapshot that it is built for to the first published one without it.
#[derive(Debug, Default)]
pub struct Life {
    has_parts: AtomicBool,
    is_over: AtomicBool,
}

impl Life {
    /// Whether the instance has parts on workers.
    pub fn has_parts(&self) -> bool {
        self.has_parts.load(Ordering::Relaxed)
    }

    /// Notes that the published snapshot does not have the instance.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// A part of a plugin on each worker. Making one has no effect, so it can be made while a plugin is built.
pub struct PerWorker<T> {
    /// Identifies this value among all of the process.
    number: u64,
    life: Arc<Life>,
    part: PhantomData<fn() -> T>,
}

/// A part on this thread.
struct Part {
    value: Rc<dyn Any>,
    life: Arc<Life>,
}

thread_local! {
    static PARTS: RefCell<HashMap<u64, Part>> = RefCell::default();
}

impl<T: 'static> PerWorker<T> {
    pub(crate) fn new(life: &Arc<Life>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        life.has_parts.store(true, Ordering::Relaxed);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            life: life.clone(),
            part: PhantomData,
        }
    }

    /// Returns this worker's part, which `make` makes if there is none yet.
    pub fn get(&self, make: impl FnOnce() -> T) -> Rc<T> {
        let known = PARTS.with_borrow(|parts| {
            let part = parts.get(&self.number)?;
            Some(part.value.clone())
        });
        let value = known.unwrap_or_else(|| {
            // Not while the table is borrowed: making a part may use another one.
            let value: Rc<dyn Any> = Rc::new(make());
            PARTS.with_borrow_mut(|parts| {
                let part = parts.entry(self.number).or_insert_with(|| Part {
                    value,
                    life: self.life.clone(),
                });
                part.value.clone()
            })
        });
        value
            .downcast()
            .expect("a number belongs to one value, and so to one type")
    }
}

/// Frees the parts on this thread whose plugin is over. Called when a worker has switched to another snapshot, and
/// regularly, because a request that began before may have made a part again.
pub fn free_ended_parts() {
    let ended = PARTS.with_borrow_mut(|parts| {
        let over = parts.extract_if(|_, part| part.life.is_over.load(Ordering::Acquire));
        over.collect::<Vec<_>>()
    });
    // Dropped after the borrow, because a part's drop may use another part.
    drop(ended);
}

/// Number of parts on this thread, for tests.
pub fn parts_here() -> usize {
    PARTS.with_borrow(HashMap::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static FREED: Cell<usize> = const { Cell::new(0) };
    }

    struct Counted(u32);

    impl Drop for Counted {
        fn drop(&mut self) {
            FREED.set(FREED.get() + 1);
        }
    }

    #[test]
    fn a_part_is_made_once_per_thread_and_freed_there_after_the_end_of_the_plugin() {
        let life = Arc::new(Life::default());
        assert!(!life.has_parts());
        let parts: Arc<PerWorker<Counted>> = Arc::new(PerWorker::new(&life));
        assert!(life.has_parts());
        assert_eq!(parts.get(|| Counted(1)).0, 1);
        assert_eq!(parts.get(|| Counted(2)).0, 1);
        let there = parts.clone();
        let other = std::thread::spawn(move || there.get(|| Counted(3)).0);
        assert_eq!(other.join().expect("it does not panic"), 3);
        free_ended_parts();
        assert_eq!((parts_here(), FREED.get()), (1, 0));
        life.end();
        // The plugin may be dropped on any thread. That frees nothing here.
        std::thread::spawn(move || drop(parts))
            .join()
            .expect("it does not panic");
        assert_eq!((parts_here(), FREED.get()), (1, 0));
        free_ended_parts();
        assert_eq!((parts_here(), FREED.get()), (0, 1));
    }

    #[test]
    fn making_a_part_may_use_another_one() {
        let life = Arc::new(Life::default());
        let (outer, inner) = (PerWorker::<u32>::new(&life), PerWorker::<u32>::new(&life));
        assert_eq!(*outer.get(|| *inner.get(|| 1) + 1), 2);
        life.end();
        free_ended_parts();
    }
}
