//! Lookups for the threads that serve requests.

use crate::change::Revision;
use crate::env::Environment;
use crate::error::StoreError;
use crate::store::{Inner, lock};
use crate::view::View;
use heed::{RoTxn, WithoutTls};
use std::sync::{Arc, Mutex, TryLockError, Weak};

/// Lookups at the newest revision, for one worker. The reader keeps its read transaction open between lookups, so that
/// a lookup takes no lock that another worker uses.
///
/// An open transaction keeps the pages of its revision in use. So every commit, even one that only removes history,
/// ends the transactions of all idle readers, and a busy reader ends its own after the lookup. Old pages are then free
/// for the next commit, even if a worker makes no more lookups.
#[derive(Debug)]
pub struct Reader {
    // Dropped first, because a transaction must end before the file is closed.
    slot: Arc<Slot>,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
pub(crate) struct Slot {
    pinned: Mutex<Option<Pinned>>,
}

struct Pinned {
    txn: RoTxn<'static, WithoutTls>,
    revision: Revision,
    /// The store's transaction counter before the read transaction began.
    transactions: u64,
}

impl Pinned {
    fn is_older_than(&self, transactions: u64) -> bool {
        self.transactions < transactions
    }
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.revision.fmt(formatter)
    }
}

impl Reader {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        let slot = Arc::default();
        Self { slot, inner }
    }

    /// Returns the slot, with which the store ends an outdated transaction of this reader.
    pub(crate) fn slot(&self) -> Weak<Slot> {
        Arc::downgrade(&self.slot)
    }

    /// Calls `look` with a view of the newest revision. Two calls may see different revisions.
    ///
    /// `look` must not read through the same reader again.
    pub fn read<T>(&self, look: impl FnOnce(&View<'_>) -> T) -> Result<T, StoreError> {
        let environment = &self.inner.environment;
        let mut pinned = lock(&self.slot.pinned);
        let newest = self.inner.transactions();
        if pinned
            .as_ref()
            .is_none_or(|pinned| pinned.is_older_than(newest))
        {
            // End the old transaction first; it may be the last one that uses its pages.
            *pinned = None;
            *pinned = Some(pin(environment, newest)?);
        }
        let current = pinned.as_ref().expect("it was set when it was none");
        let view = View::borrowed(&current.txn, &environment.tables, current.revision);
        let result = look(&view);
        drop(view);
        if current.is_older_than(self.inner.transactions()) {
            *pinned = None;
        }
        Ok(result)
    }
}

fn pin(environment: &Environment, transactions: u64) -> Result<Pinned, StoreError> {
    let txn = environment.env.clone().static_read_txn()?;
    let revision = View::newest_revision(&txn, &environment.tables)?;
    Ok(Pinned {
        txn,
        revision,
        transactions,
    })
}

impl Slot {
    pub(crate) fn release_if_idle(&self, transactions: u64) {
        let pinned = match self.pinned.try_lock() {
            Ok(pinned) => Some(pinned),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut pinned) = pinned
            && pinned
                .as_ref()
                .is_some_and(|pinned| pinned.is_older_than(transactions))
        {
            *pinned = None;
        }
    }
}
