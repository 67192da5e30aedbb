//! The thread that writes to an LMDB environment. It does all operations that wait in one transaction, so that they
//! share a sync.
//!
//! An operation that fails before it has changed anything does not concern the others. If one fails later or panics, or
//! if the transaction cannot be committed, nothing of the transaction is kept, and the two halves of its operations run
//! again, each in a transaction of its own, and so on. So only operations fail that fail alone. They may run several
//! times; the result is that of the last time. If this takes long, for instance because each sync to a broken disk takes
//! seconds to fail, the operations of a part fail together.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Operations that may wait.
const MAX_WAITING: usize = 8192;
/// Operations in a transaction.
pub(crate) const MAX_BATCH: usize = 1024;
/// Time after the begin of a batch from which no part of it is divided any more.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a writer writes to.
pub(crate) trait Environment: Send + 'static {
    /// The name of its thread.
    const NAME: &'static str;
    /// Time without an operation after which [`tidy`](Self::tidy) is called.
    const IDLE: Duration = Duration::MAX;

    type Write<'w>
    where
        Self: 'w;
    type Error: From<Unwritten> + Clone + Display + Send + 'static;

    fn begin(&mut self) -> Result<Self::Write<'_>, Self::Error>;

    /// Returns the number of changes that were begun so far.
    fn changes(write: &Self::Write<'_>) -> u64;

    /// Makes what was changed durable.
    fn commit(write: Self::Write<'_>) -> Result<(), Self::Error>;

    /// Does what can wait, and returns the time after which it goes on if no operation comes.
    fn tidy(&mut self) -> Duration {
        Self::IDLE
    }
}

/// Why an operation was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unwritten {
    Busy,
    Closed,
    Panicked,
}

pub(crate) struct Writer<E: Environment> {
    jobs: Option<SyncSender<Box<dyn Job<E>>>>,
    thread: Option<JoinHandle<()>>,
}

/// An operation that was not queued.
pub(crate) struct Unsent<E: Environment> {
    pub(crate) error: E::Error,
    /// It owns what the operation owns, which the caller may have to drop at a certain point.
    pub(crate) job: Box<dyn Job<E>>,
}

pub(crate) trait Job<E: Environment>: Send {
    /// Runs the operation. An error means that nothing of the transaction may be kept.
    fn run(&mut self, write: &mut E::Write<'_>) -> Result<(), E::Error>;

    /// Reports the result, once the transaction is durable or has failed.
    fn end(self: Box<Self>, committed: Result<(), E::Error>);
}

struct Operation<O, F, R> {
    operation: O,
    finish: F,
    result: Option<R>,
}

impl<E, T, O, F> Job<E> for Operation<O, F, Result<T, E::Error>>
where
    E: Environment,
    T: Send,
    O: Fn(&mut E::Write<'_>) -> Result<T, E::Error> + Send,
    F: FnOnce(Result<T, E::Error>) + Send,
{
    fn run(&mut self, write: &mut E::Write<'_>) -> Result<(), E::Error> {
        let before = E::changes(write);
        let done = catch_unwind(AssertUnwindSafe(|| (self.operation)(write)));
        // Nobody knows what an operation that panics has left behind.
        let result = done.map_err(|_| Unwritten::Panicked)?;
        let failure = result.as_ref().err().cloned();
        self.result = Some(result);
        match failure {
            Some(error) if E::changes(write) != before => Err(error),
            _ => Ok(()),
        }
    }

    fn end(self: Box<Self>, committed: Result<(), E::Error>) {
        let Self { finish, result, .. } = *self;
        let result = result.unwrap_or_else(|| Err(Unwritten::Closed.into()));
        finish(committed.and(result));
    }
}

impl<E: Environment> Writer<E> {
    pub(crate) fn start(environment: E) -> std::io::Result<Self> {
        let (jobs, waiting) = sync_channel(MAX_WAITING);
        let thread = std::thread::Builder::new()
            .name(E::NAME.to_owned())
            .spawn(move || serve(environment, &waiting))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Queues an operation. `finish` gets the result when it is durable.
    pub(crate) fn send<T: Send + 'static>(
        &self,
        operation: impl Fn(&mut E::Write<'_>) -> Result<T, E::Error> + Send + 'static,
        finish: impl FnOnce(Result<T, E::Error>) + Send + 'static,
    ) -> Result<(), Unsent<E>> {
        let job: Box<dyn Job<E>> = Box::new(Operation {
            operation,
            finish,
            result: None,
        });
        let (error, job) = match &self.jobs {
            None => (Unwritten::Closed, job),
            Some(jobs) => match jobs.try_send(job) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(job)) => (Unwritten::Busy, job),
                Err(TrySendError::Disconnected(job)) => (Unwritten::Closed, job),
            },
        };
        let error = error.into();
        Err(Unsent { error, job })
    }

    /// Queues an operation, and returns its result.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        operation: impl Fn(&mut E::Write<'_>) -> Result<T, E::Error> + Send + 'static,
    ) -> Result<Answer<T, E::Error>, E::Error> {
        let (answer, finish) = answer();
        let sent = self.send(operation, finish);
        sent.map(|()| answer).map_err(|unsent| unsent.error)
    }
}

/// The result of an operation, which comes when it is durable.
pub(crate) struct Answer<T, R>(oneshot::Receiver<Result<T, R>>);

impl<T, R: From<Unwritten>> Answer<T, R> {
    pub(crate) async fn get(self) -> Result<T, R> {
        let received = self.0.await;
        received.unwrap_or_else(|_| Err(Unwritten::Closed.into()))
    }
}

/// Returns an answer, and what sends it.
pub(crate) fn answer<T, R>() -> (Answer<T, R>, impl FnOnce(Result<T, R>)) {
    let (sender, receiver) = oneshot::channel();
    let finish = move |result| {
        // The caller may have left.
        let _ = sender.send(result);
    };
    (Answer(receiver), finish)
}

impl<E: Environment> Drop for Writer<E> {
    /// Ends the thread, after all operations that wait.
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes {} has panicked", E::NAME);
        }
    }
}

fn serve<E: Environment>(mut environment: E, waiting: &Receiver<Box<dyn Job<E>>>) {
    let mut pause = E::IDLE;
    loop {
        match waiting.recv_timeout(pause) {
            Ok(first) => {
                let divide_until = Instant::now() + PATIENCE;
                let jobs = vec![first];
                let outcome = carry_out(&mut environment, jobs, Some(waiting), divide_until);
                if let Err(error) = outcome {
                    tracing::error!(%error, "the store of {} could not write", E::NAME);
                }
            }
            Err(RecvTimeoutError::Timeout) => pause = environment.tidy(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Carries out operations, and those that come meanwhile. Returns an error of those that have failed, if there is one.
fn carry_out<E: Environment>(
    environment: &mut E,
    mut jobs: Vec<Box<dyn Job<E>>>,
    more: Option<&Receiver<Box<dyn Job<E>>>>,
    divide_until: Instant,
) -> Result<(), E::Error> {
    let committed = attempt(environment, &mut jobs, more);
    if committed.is_err() && jobs.len() > 1 && Instant::now() < divide_until {
        let second = jobs.split_off(jobs.len() / 2);
        let first = carry_out(environment, jobs, None, divide_until);
        return carry_out(environment, second, None, divide_until).and(first);
    }
    for job in jobs {
        job.end(committed.clone());
    }
    committed
}

/// Does operations in one transaction, and adds those that come meanwhile.
fn attempt<E: Environment>(
    environment: &mut E,
    jobs: &mut Vec<Box<dyn Job<E>>>,
    more: Option<&Receiver<Box<dyn Job<E>>>>,
) -> Result<(), E::Error> {
    let mut write = environment.begin()?;
    let mut done = 0;
    while let Some(job) = jobs.get_mut(done) {
        job.run(&mut write)?;
        done += 1;
        if done == jobs.len() && done < MAX_BATCH {
            jobs.extend(more.and_then(|more| more.try_recv().ok()));
        }
    }
    match E::changes(&write) {
        0 => Ok(()),
        _ => E::commit(write),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc::channel;

    /// It cannot be written to, and takes long to say so.
    struct Broken(Arc<AtomicUsize>);

    #[derive(Debug, Clone, thiserror::Error)]
    #[error("it is broken")]
    struct Fault;

    impl From<Unwritten> for Fault {
        fn from(_: Unwritten) -> Self {
            Self
        }
    }

    impl Environment for Broken {
        const NAME: &'static str = "broken";

        type Write<'w> = Arc<AtomicUsize>;
        type Error = Fault;

        fn begin(&mut self) -> Result<Self::Write<'_>, Fault> {
            Ok(self.0.clone())
        }

        fn changes(_: &Self::Write<'_>) -> u64 {
            1
        }

        fn commit(commits: Self::Write<'_>) -> Result<(), Fault> {
            commits.fetch_add(1, Relaxed);
            std::thread::sleep(PATIENCE / 4);
            Err(Fault)
        }
    }

    #[test]
    fn a_disk_that_takes_long_to_fail_keeps_nobody_for_long() {
        let commits = Arc::new(AtomicUsize::new(0));
        let writer = Writer::start(Broken(commits.clone())).expect("it starts");
        let (ended, results) = channel();
        // The first batch has those that come before its end, and the second one all others.
        for _ in 0..200 {
            let ended = ended.clone();
            let finish = move |result: Result<(), Fault>| ended.send(result).expect("it is read");
            let sent = writer.send(|_: &mut Arc<AtomicUsize>| Ok(()), finish);
            assert!(sent.is_ok());
        }
        for _ in 0..200 {
            assert!(results.recv().expect("each one ends").is_err());
        }
        let commits = commits.load(Relaxed);
        assert!(commits < 30, "{commits}");
    }
}
