//! The thread that writes. It does all operations that wait in one transaction, so that they share a sync.

use super::tables::{Tables, Write};
use super::{SessionReply, SessionStoreError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Operations that may wait.
const MAX_WAITING: usize = 8192;
/// Operations in a transaction.
const MAX_BATCH: usize = 1024;

/// Time without an operation after which rows that have ended are removed.
const IDLE: Duration = Duration::from_secs(30);
/// Pause between two transactions that remove them.
const BREAK: Duration = Duration::from_millis(50);

pub(super) struct Writer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// An operation. It returns what runs once the transaction is durable, or has failed.
type Job = Box<dyn FnOnce(&mut Write<'_>) -> Result<Finish, SessionStoreError> + Send>;
type Finish = Box<dyn FnOnce(Result<(), SessionStoreError>) + Send>;

/// An operation that was not queued.
pub(super) struct Unsent {
    pub(super) error: SessionStoreError,
    pub(super) job: Job,
}

impl Writer {
    pub(super) fn start(tables: Arc<Tables>) -> Result<Self, SessionStoreError> {
        let (jobs, waiting) = sync_channel(MAX_WAITING);
        let thread = std::thread::Builder::new()
            .name("sessions".to_owned())
            .spawn(move || serve(&tables, &waiting))
            .map_err(|error| {
                SessionStoreError::Storage(format!("its thread cannot start: {error}"))
            })?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Queues an operation. If it fails, the others of its transaction fail with it.
    pub(super) fn send<F>(
        &self,
        operation: impl FnOnce(&mut Write<'_>) -> Result<F, SessionStoreError> + Send + 'static,
    ) -> Result<(), Unsent>
    where
        F: FnOnce(Result<(), SessionStoreError>) + Send + 'static,
    {
        let job: Job = Box::new(move |write| {
            let finish = operation(write)?;
            Ok(Box::new(finish))
        });
        let Some(jobs) = &self.jobs else {
            let error = SessionStoreError::Closed;
            return Err(Unsent { error, job });
        };
        jobs.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(job) => Unsent {
                error: SessionStoreError::Busy,
                job,
            },
            TrySendError::Disconnected(job) => Unsent {
                error: SessionStoreError::Closed,
                job,
            },
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the store of sessions has panicked");
        }
    }
}

/// The reply of an operation that is queued.
pub(super) struct Waiting<T>(oneshot::Receiver<Result<T, SessionStoreError>>);

/// Returns a reply, and what sends it.
pub(super) fn reply<T: Send + 'static>() -> (
    Waiting<T>,
    impl FnOnce(Result<T, SessionStoreError>) + Send + 'static,
) {
    let (sender, receiver) = oneshot::channel();
    let answer = move |result| {
        // The caller may have left.
        let _ = sender.send(result);
    };
    (Waiting(receiver), answer)
}

impl<T: Send + 'static> Waiting<T> {
    /// Returns the reply, or the error of an operation that was not queued.
    pub(super) fn unless(self, sent: Result<(), SessionStoreError>) -> SessionReply<T> {
        Box::pin(async move {
            sent?;
            self.0.await.unwrap_or(Err(SessionStoreError::Closed))
        })
    }
}

fn serve(tables: &Tables, waiting: &Receiver<Job>) {
    let mut pause = IDLE;
    loop {
        let first = match waiting.recv_timeout(pause) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                pause = match tidy(tables, since.unwrap_or_default().as_secs()) {
                    Ok(true) => BREAK,
                    Ok(false) => IDLE,
                    Err(error) => {
                        tracing::error!(%error, "the store of sessions could not remove ended ones");
                        IDLE
                    }
                };
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let mut finishes = Vec::new();
        let committed = batch(tables, first, waiting, &mut finishes);
        if let Err(error) = &committed {
            tracing::error!(%error, "the store of sessions could not write");
        }
        for finish in finishes {
            finish(committed.clone());
        }
    }
}

/// Removes rows that have ended. Returns whether there may be more.
pub(super) fn tidy(tables: &Tables, now: u64) -> Result<bool, SessionStoreError> {
    let mut write = tables.write()?;
    let removed = write.expire_up_to(MAX_BATCH, now)?;
    if removed > 0 {
        write.commit()?;
    }
    Ok(removed == MAX_BATCH)
}

fn batch(
    tables: &Tables,
    first: Job,
    waiting: &Receiver<Job>,
    finishes: &mut Vec<Finish>,
) -> Result<(), SessionStoreError> {
    let mut write = tables.write()?;
    let mut next = Some(first);
    while let Some(job) = next {
        // Nobody knows what an operation that panics has written, so nothing of the batch is kept.
        let done = catch_unwind(AssertUnwindSafe(|| job(&mut write)));
        let panicked = "an operation has panicked".to_owned();
        finishes.push(done.unwrap_or(Err(SessionStoreError::Storage(panicked)))?);
        next = match finishes.len() < MAX_BATCH {
            true => waiting.try_recv().ok(),
            false => None,
        };
    }
    write.commit()
}
