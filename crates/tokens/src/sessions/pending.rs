//! What waits for the writer, so that it is found before it is in the tables.

use super::writer::Sessions;
use super::{Name, SessionRow, SessionStoreError};
use crate::writer::Unsent;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The newest change of a session that is not in the tables yet.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Row(Arc<SessionRow>),
    /// A newer session has its place. It ends at this time.
    Stale(u64),
    Deleted,
}

#[derive(Default)]
pub(super) struct Pending(Mutex<Changes>);

#[derive(Default)]
struct Changes {
    by_name: HashMap<Name, (u64, Change)>,
    /// Number of the last operation.
    last: u64,
}

/// The changes of an operation. Dropping it removes them from memory, because the tables have them, or because the
/// operation has failed.
pub(super) struct Held {
    pending: Arc<Pending>,
    names: Vec<Name>,
    number: u64,
}

impl Pending {
    pub(super) fn get(&self, name: &Name) -> Option<Change> {
        let changes = self.lock();
        changes.by_name.get(name).map(|(_, change)| change.clone())
    }

    /// Notes changes while `send` queues their operation, so that operations on one session have one order.
    pub(super) fn during(
        self: &Arc<Self>,
        new: Vec<(Name, Change)>,
        send: impl FnOnce(Held) -> Result<(), Unsent<Sessions>>,
    ) -> Result<(), SessionStoreError> {
        let mut changes = self.lock();
        changes.last += 1;
        let number = changes.last;
        let held = Held {
            pending: self.clone(),
            names: new.iter().map(|(name, _)| *name).collect(),
            number,
        };
        if let Err(Unsent { error, job }) = send(held) {
            // The job has `held`, which takes the lock.
            drop(changes);
            drop(job);
            return Err(error);
        }
        for (name, change) in new {
            let change = match (change, changes.by_name.get(&name)) {
                (Change::Stale(until), Some((_, Change::Row(row)))) => {
                    Change::Row(Arc::new((**row).clone().stale(until)))
                }
                (Change::Stale(_), Some((_, Change::Deleted))) => Change::Deleted,
                (change, _) => change,
            };
            changes.by_name.insert(name, (number, change));
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().by_name.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Changes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut changes = self.pending.lock();
        for name in &self.names {
            if changes
                .by_name
                .get(name)
                .is_some_and(|(number, _)| *number == self.number)
            {
                changes.by_name.remove(name);
            }
        }
    }
}
