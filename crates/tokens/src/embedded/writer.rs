//! The thread that writes. It does all operations that wait in one transaction, so that they share a sync.

use super::Shared;
use super::operations::Numbers;
use super::reading::View;
use super::tables::{Map, Table, storage};
use crate::store::{Reply, StoreError};
use heed::{PutFlags, RwTxn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Operations that may wait.
const MAX_WAITING: usize = 8192;
/// Operations in a transaction.
const MAX_BATCH: usize = 1024;

pub(super) struct Writer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// An operation. It gets the transaction, or the reason why there is none. It returns what sends its result once the
/// transaction is durable, or has failed.
type Job = Box<dyn FnOnce(Result<&mut Write<'_>, &str>) -> Finish + Send>;
type Finish = Box<dyn FnOnce(Result<(), String>) + Send>;

/// The transaction of a batch.
pub(super) struct Write<'w> {
    pub(super) shared: &'w Shared,
    pub(super) txn: RwTxn<'w>,
    pub(super) map: Arc<Map>,
    pub(super) numbers: &'w mut Numbers,
    /// Number of changes so far.
    changes: u64,
    /// An operation failed after it had changed something, so nothing of the batch may be kept.
    failure: Option<String>,
}

impl Write<'_> {
    pub(super) fn view(&self) -> View<'_> {
        View {
            shared: self.shared,
            txn: &self.txn,
            map: &self.map,
        }
    }

    pub(super) fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.changes += 1;
        table.put(&mut self.txn, key, value).map_err(storage)
    }

    /// Puts an entry after all others of the table.
    pub(super) fn append(
        &mut self,
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        self.changes += 1;
        table
            .put_with_flags(&mut self.txn, PutFlags::APPEND, key, value)
            .map_err(storage)
    }

    pub(super) fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        self.changes += 1;
        table
            .delete(&mut self.txn, key)
            .map(|_| ())
            .map_err(storage)
    }

    /// Changes the tables themselves.
    pub(super) fn change<R>(
        &mut self,
        change: impl FnOnce(&Shared, &mut RwTxn<'_>, &mut Map) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.changes += 1;
        change(self.shared, &mut self.txn, Arc::make_mut(&mut self.map))
    }

    /// Runs an operation. One that panics fails, and with it the batch, because nobody knows what it has written.
    fn run(&mut self, job: Job) -> Option<Finish> {
        let done = catch_unwind(AssertUnwindSafe(|| job(Ok(self))));
        if done.is_err() {
            self.failure = Some("an operation of the store of tokens has panicked".to_owned());
        }
        done.ok()
    }
}

impl Writer {
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self, StoreError> {
        let (jobs, waiting) = sync_channel(MAX_WAITING);
        let thread = std::thread::Builder::new()
            .name("tokens".to_owned())
            .spawn(move || serve(&shared, &waiting))
            .map_err(|error| StoreError::Storage(format!("its thread cannot start: {error}")))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Runs an operation. The result comes when it is durable.
    pub(super) fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Write<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Reply<'static, T> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |write| {
            let result = match write {
                Ok(write) => attempt(write, operation),
                Err(cause) => Err(StoreError::Storage(cause.to_owned())),
            };
            Box::new(move |committed| {
                let result = match committed {
                    Ok(()) => result,
                    Err(error) => Err(StoreError::Storage(error)),
                };
                // The caller may have left.
                let _ = sender.send(result);
            })
        });
        let Some(jobs) = &self.jobs else {
            return Reply::Ready(Err(StoreError::Closed));
        };
        match jobs.try_send(job) {
            Ok(()) => Reply::Wait(Box::pin(async move {
                receiver.await.unwrap_or(Err(StoreError::Closed))
            })),
            Err(TrySendError::Full(_)) => Reply::Ready(Err(StoreError::Busy)),
            Err(TrySendError::Disconnected(_)) => Reply::Ready(Err(StoreError::Closed)),
        }
    }
}

fn attempt<T>(
    write: &mut Write<'_>,
    operation: impl FnOnce(&mut Write<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let before = write.changes;
    let result = operation(write);
    if let Err(error) = &result
        && write.changes != before
    {
        write.failure.get_or_insert_with(|| error.to_string());
    }
    result
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the store of tokens has panicked");
        }
    }
}

fn serve(shared: &Shared, waiting: &Receiver<Job>) {
    let mut known = Known::default();
    while let Ok(first) = waiting.recv() {
        let mut finishes = Vec::new();
        let committed = batch(shared, &mut known, first, waiting, &mut finishes);
        if let Err(error) = &committed {
            tracing::error!(error, "the store of tokens could not write");
        }
        for finish in finishes {
            finish(committed.clone());
        }
    }
}

/// What the thread knows of the file since its last transaction.
#[derive(Default)]
struct Known {
    numbers: Numbers,
    /// The last transaction that this process has committed.
    transaction: usize,
}

fn batch(
    shared: &Shared,
    known: &mut Known,
    first: Job,
    waiting: &Receiver<Job>,
    finishes: &mut Vec<Finish>,
) -> Result<(), String> {
    let begun = shared.tables.env.write_txn().map_err(storage);
    let begun = begun.and_then(|txn| known.begin(shared, txn));
    let (txn, map) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let cause = error.to_string();
            finishes.push(first(Err(&cause)));
            return Err(cause);
        }
    };
    let transaction = txn.id();
    let before = Arc::clone(&map);
    let mut write = Write {
        shared,
        txn,
        map,
        numbers: &mut known.numbers,
        changes: 0,
        failure: None,
    };
    let mut done = 0;
    let mut next = Some(first);
    while let Some(job) = next {
        finishes.extend(write.run(job));
        done += 1;
        if write.failure.is_some() || done == MAX_BATCH {
            break;
        }
        next = waiting.try_recv().ok();
    }
    let Write {
        mut txn,
        map,
        changes,
        failure,
        ..
    } = write;
    if let Some(failure) = failure {
        txn.abort();
        return Err(failure);
    }
    if changes == 0 {
        txn.abort();
        return Ok(());
    }
    let counted = shared.tables.write_counts(&mut txn, &before, &map);
    counted.map_err(|error| error.to_string())?;
    txn.commit().map_err(|error| error.to_string())?;
    known.transaction = transaction;
    shared.tables.map.store(map);
    shared.readers.release_idle();
    Ok(())
}

impl Known {
    /// Returns the transaction with the map of the tables. During an upgrade another process writes too. Then what this
    /// process knows may be out of date.
    fn begin<'t>(
        &mut self,
        shared: &Shared,
        txn: RwTxn<'t>,
    ) -> Result<(RwTxn<'t>, Arc<Map>), StoreError> {
        if txn.id() == self.transaction + 1 {
            return Ok((txn, shared.tables.map.load_full()));
        }
        self.numbers.clear();
        let map = shared.tables.read_map(&txn)?;
        Ok((txn, Arc::new(map)))
    }
}

#[cfg(test)]
mod tests {
    use crate::embedded::Embedded;
    use crate::store::{Listed, StoreError, TokenStore};
    use crate::{Keys, Storage};

    #[test]
    fn an_operation_that_panics_fails_and_the_others_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let keys = Keys::new(&[7; 64], 1);
        let path = directory.path().join("tokens");
        let store = Embedded::open(&path, 1 << 28, keys, Storage::Sealed).unwrap();
        let panics = store.writer.run::<()>(|write| {
            write.put(write.shared.tables.loose.ids, &[1; 16], &[2; 32])?;
            panic!("a mistake");
        });
        assert!(matches!(panics.wait(), Err(StoreError::Closed)));
        assert_eq!(store.writer.run(|_| Ok(7)).wait().unwrap(), 7);
        // Nothing of it was kept.
        let page = store.list(Listed::All, None, 10, 0).wait().unwrap();
        assert_eq!((page.tokens, page.next), (Vec::new(), None));
    }
}
