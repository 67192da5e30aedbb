//! Read transactions that threads keep open between look-ups. To begin one takes longer than a look-up, because the
//! environment has hundreds of tables.
//!
//! An open transaction keeps the pages of its state in use. So every commit ends those of idle threads, and a busy thread
//! ends its own after the look-up, if there is a newer state by then.

use super::tables::storage;
use crate::store::StoreError;
use heed::{Env, RoTxn, WithoutTls};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

/// The transaction of a thread.
type Slot = Mutex<Option<RoTxn<'static, WithoutTls>>>;

/// The readers of one store.
pub(super) struct Readers {
    env: Env<WithoutTls>,
    /// Distinguishes the stores of a process.
    number: u64,
    slots: Mutex<Vec<Weak<Slot>>>,
}

thread_local! {
    /// The slots of this thread, by the number of the store. There is more than one in tests only.
    static OWN: RefCell<Vec<(u64, Arc<Slot>)>> = const { RefCell::new(Vec::new()) };
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Readers {
    pub(super) fn new(env: Env<WithoutTls>) -> Self {
        Self {
            env,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            slots: Mutex::default(),
        }
    }

    /// Calls `look` with the newest state, whichever process has written it.
    pub(super) fn read<R>(
        &self,
        look: impl FnOnce(&RoTxn<'_>) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let slot = self.own();
        let mut pinned = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let txn = match pinned.take().filter(|txn| txn.id() == self.newest()) {
            Some(txn) => txn,
            None => self.env.clone().static_read_txn().map_err(storage)?,
        };
        let result = look(&txn);
        *pinned = Some(txn).filter(|txn| txn.id() == self.newest());
        result
    }

    fn newest(&self) -> usize {
        self.env.info().last_txn_id
    }

    fn own(&self) -> Arc<Slot> {
        OWN.with_borrow_mut(|own| {
            if let Some((_, slot)) = own.iter().find(|(number, _)| *number == self.number) {
                return Arc::clone(slot);
            }
            let slot = Arc::new(Slot::default());
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.retain(|slot| slot.strong_count() > 0);
            slots.push(Arc::downgrade(&slot));
            own.push((self.number, Arc::clone(&slot)));
            slot
        })
    }

    /// Ends the transactions of idle threads. Those of busy threads end after their look-up.
    pub(super) fn release_idle(&self) {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in slots.iter().filter_map(Weak::upgrade) {
            let pinned = match slot.try_lock() {
                Ok(pinned) => Some(pinned),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut pinned) = pinned {
                *pinned = None;
            }
        }
    }
}

impl Drop for Readers {
    /// Ends all transactions, so that the environment can be closed.
    fn drop(&mut self) {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in slots.iter().filter_map(Weak::upgrade) {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}
