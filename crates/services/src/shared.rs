//! State that plugins share and that must survive changes of the configuration, such as counters of a rate limit.
//!
//! A value is found by plugin, key and type. The registry holds it weakly, like Envoy's singleton manager: the value
//! lives while anybody holds its `Arc`. A new configuration is built and takes the value before the old configuration
//! releases it, so a value that both use survives, and a value that nobody uses any more is freed.
//!
//! Every access takes a lock, so plugins get the value once, when they start, and keep the `Arc`. Memory is bounded by
//! the number of live values: entries of dead values are removed once they could outnumber the live ones.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Number of entries below which dead ones are not looked for.
const FIRST_SWEEP: usize = 64;

/// Registry of shared values. Clones share their values.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Registry>>);

#[derive(Default)]
struct Registry {
    values: HashMap<Key, Weak<dyn Any + Send + Sync>>,
    /// Number of entries at which dead entries are removed.
    sweep_at: usize,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    plugin: Box<str>,
    key: Box<str>,
    /// The type is a part of the key, so that values of different types cannot be confused.
    of: TypeId,
}

impl Shared {
    /// Returns the value of this plugin, key and type. If nobody holds one, makes it.
    ///
    /// `make` runs without a lock, so it may use the registry itself. If two threads make a value at the same time, both
    /// get the same one, and the other is dropped.
    pub fn get_or_insert<T: Any + Send + Sync>(
        &self,
        plugin: &str,
        key: &str,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let made = self.get_or_try_insert(plugin, key, || Ok::<T, Infallible>(make()));
        match made {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// Like [`Shared::get_or_insert`], for values whose making can fail. A failure leaves no entry.
    pub fn get_or_try_insert<T: Any + Send + Sync, E>(
        &self,
        plugin: &str,
        key: &str,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let key = Key {
            plugin: plugin.into(),
            key: key.into(),
            of: TypeId::of::<T>(),
        };
        if let Some(value) = self.registry().find(&key) {
            return Ok(value);
        }
        let made = Arc::new(make()?);
        let mut registry = self.registry();
        if let Some(value) = registry.find(&key) {
            // The value that lost is dropped without the lock, because its `Drop` may use the registry.
            drop(registry);
            return Ok(value);
        }
        registry.insert(key, &made);
        Ok(made)
    }

    /// Returns the number of entries, dead ones included.
    pub fn entries(&self) -> usize {
        self.registry().values.len()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    fn find<T: Any + Send + Sync>(&self, key: &Key) -> Option<Arc<T>> {
        let value = self.values.get(key)?.upgrade()?;
        value.downcast().ok()
    }

    fn insert<T: Any + Send + Sync>(&mut self, key: Key, value: &Arc<T>) {
        if self.values.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.values.retain(|_, value| value.strong_count() > 0);
            self.sweep_at = 2 * self.values.len();
        }
        let weak = Arc::downgrade(value);
        self.values.insert(key, weak);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries();
        formatter
            .debug_struct("Shared")
            .field("entries", &entries)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn a_value_lives_while_somebody_holds_it() {
        let shared = Shared::default();
        let first = shared.get_or_insert("rate-limiting", "a", || AtomicUsize::new(1));
        first.fetch_add(1, Ordering::Relaxed);
        let second = shared.get_or_insert("rate-limiting", "a", || AtomicUsize::new(0));
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        assert_eq!(second.load(Ordering::Relaxed), 2);
        drop(second);
        let third = shared.get_or_insert("rate-limiting", "a", || AtomicUsize::new(0));
        assert_eq!(third.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn plugins_keys_and_types_have_values_of_their_own() {
        let shared = Shared::default();
        let one = shared.get_or_insert("a", "k", || 1_u32);
        let values = [
            shared.get_or_insert("b", "k", || 2_u32),
            shared.get_or_insert("a", "l", || 3_u32),
        ];
        let typed = shared.get_or_insert("a", "k", || 4_u64);
        assert_eq!((*one, *values[0], *values[1], *typed), (1, 2, 3, 4));
    }

    #[test]
    fn a_failure_leaves_no_entry_and_the_next_try_can_succeed() {
        let shared = Shared::default();
        let failed = shared.get_or_try_insert("a", "k", || Err::<u32, _>("no"));
        assert_eq!(failed, Err("no"));
        assert_eq!(shared.entries(), 0);
        let made = shared.get_or_try_insert("a", "k", || Ok::<_, &str>(7_u32));
        assert_eq!(made.as_deref(), Ok(&7));
    }

    #[test]
    fn dead_entries_do_not_accumulate() {
        let shared = Shared::default();
        let live: Vec<_> = (0..50)
            .map(|number| shared.get_or_insert("live", &number.to_string(), || number))
            .collect();
        for number in 0..10_000 {
            shared.get_or_insert("dead", &number.to_string(), || number);
        }
        assert!(shared.entries() <= 2 * FIRST_SWEEP, "{}", shared.entries());
        let again = shared.get_or_insert("live", "7", || 0);
        assert!(Arc::ptr_eq(&again, &live[7]));
    }

    #[test]
    fn making_a_value_may_use_the_registry() {
        let shared = Shared::default();
        let outer = shared.get_or_insert("a", "outer", || {
            *shared.get_or_insert("a", "inner", || 1_u32) + 1
        });
        assert_eq!(*outer, 2);
    }

    #[test]
    fn threads_that_make_a_value_at_once_get_the_same_one() {
        let (shared, barrier) = (Shared::default(), Barrier::new(4));
        let values: Vec<Arc<usize>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|number| {
                    let (shared, barrier) = (&shared, &barrier);
                    scope.spawn(move || {
                        shared.get_or_insert("a", "k", || {
                            barrier.wait();
                            number
                        })
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(values.iter().all(|value| Arc::ptr_eq(value, &values[0])));
    }
}
