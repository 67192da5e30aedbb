//! Look-ups aside: those that may wait for the disk run on threads of their own.
//!
//! LMDB reads a mapped file, so a look-up in a page that is not in memory waits for the disk. No call tells in advance
//! whether it will. But where many have waited, memory is short for this file, and others will wait soon. So do others
//! where one has waited long, because the disk is slow or busy. Then the look-ups of the next seconds run aside. As long
//! as they wait there in this way, the seconds begin anew.
//!
//! A single short wait, for a token that nobody has used for long, sends nothing aside: to hand a look-up to another thread
//! costs more than ten microseconds of CPU time.

use super::Shared;
use crate::store::StoreError;
use crate::writer::{Answer, answer};
use nix::sys::resource::{UsageWho, getrusage};
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads, each of which may wait for the disk.
const THREADS: usize = 4;
/// Look-ups that may wait for a thread.
const MAX_WAITING: usize = 8192;
/// Time in which all look-ups run aside.
const CAUTION: Duration = Duration::from_secs(10);
/// Only a look-up that takes longer can have waited for a disk.
const FAST: Duration = Duration::from_micros(20);
/// One wait of this length is enough to run aside.
const LONG: Duration = Duration::from_micros(400);
/// This number of waits within [`SPAN`] is enough, too.
const MANY: u64 = 16;
const SPAN: Duration = Duration::from_millis(100);

type Job = Box<dyn FnOnce(&Shared) + Send>;

/// The threads. They end when this is dropped, after all look-ups that wait.
pub(super) struct Aside {
    jobs: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Aside {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, StoreError> {
        let (jobs, waiting) = sync_channel(MAX_WAITING);
        let waiting = Arc::new(Mutex::new(waiting));
        let start = |number| {
            let (shared, waiting) = (Arc::clone(shared), Arc::clone(&waiting));
            std::thread::Builder::new()
                .name(format!("token-look-up-{number}"))
                .spawn(move || serve(&shared, &waiting))
        };
        let threads: io::Result<_> = (0..THREADS).map(start).collect();
        Ok(Self {
            jobs: Some(jobs),
            threads: threads.map_err(|error| {
                StoreError::Storage(format!("its threads cannot start: {error}"))
            })?,
        })
    }

    /// Queues a look-up.
    pub(super) fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Answer<T, StoreError>, StoreError> {
        let (answer, finish) = answer();
        let job: Job = Box::new(move |shared| finish(shared.pace.watch(|| look(shared))));
        let jobs = self.jobs.as_ref().ok_or(StoreError::Closed)?;
        match jobs.try_send(job) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err(StoreError::Busy),
            Err(TrySendError::Disconnected(_)) => Err(StoreError::Closed),
        }
    }
}

fn serve(shared: &Shared, waiting: &Mutex<Receiver<Job>>) {
    loop {
        let next = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        match next {
            Ok(job) => job(shared),
            Err(_) => return,
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that looks for tokens has panicked");
            }
        }
    }
}

/// Decides where look-ups run.
pub(super) struct Pace {
    started: Instant,
    /// Microseconds after `started` until which look-ups run aside.
    aside_until: AtomicU64,
    /// The number of the span of time of the last wait, and below it the waits in this span.
    waits: AtomicU64,
}

/// The bits of the number of waits in [`Pace::waits`].
const COUNT_BITS: u32 = 16;

thread_local! {
    /// Times that this thread had waited for a page before its first look-up, or at its last slow one.
    static WAITS: Cell<i64> = Cell::new(waits_of_thread());
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            aside_until: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }

    pub(super) fn is_aside(&self) -> bool {
        match self.aside_until.load(Relaxed) {
            0 => false,
            until => self.now() < until,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Runs a look-up, and sees whether it waits for the disk.
    pub(super) fn watch<T>(&self, look: impl FnOnce() -> T) -> T {
        WAITS.with(|known| {
            let begun = Instant::now();
            let found = look();
            let took = begun.elapsed();
            if took > FAST {
                let waits = waits_of_thread();
                if waits > known.replace(waits) {
                    self.has_waited(took);
                }
            }
            found
        })
    }

    fn has_waited(&self, took: Duration) {
        let now = self.now();
        let span = now / SPAN.as_micros() as u64;
        let count = |waits: u64| match waits >> COUNT_BITS == span {
            true => waits & ((1 << COUNT_BITS) - 1),
            false => 0,
        };
        let another = |waits| Some(span << COUNT_BITS | (count(waits) + 1).min(MANY));
        let before = self.waits.fetch_update(Relaxed, Relaxed, another);
        let before = before.map_or(0, count);
        if took >= LONG || before + 1 >= MANY {
            let until = now + CAUTION.as_micros() as u64;
            self.aside_until.fetch_max(until, Relaxed);
        }
    }
}

/// Returns how often this thread has waited for a page of a file.
fn waits_of_thread() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD);
    usage.map_or(0, |usage| usage.major_page_faults())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::Embedded;
    use crate::store::{Code, NewCode, NewToken, Owner, Reply, Token, TokenStore};
    use crate::{Keys, Storage};
    use uuid::Uuid;

    const NOW: i64 = 1_767_225_600;

    #[test]
    fn look_ups_run_aside_for_some_time_after_one_that_has_waited_long() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let keys = Keys::new(&[7; 64], 1);
        let store = Embedded::open(&path, 1 << 28, keys, Storage::Sealed).unwrap();
        let credential = Owner {
            id: Uuid::from_u128(1),
            created: 7,
        };
        let new = NewToken {
            credential,
            service: None,
            expires_in: 7200,
            with_refresh_token: true,
            ttl: Some(10_000),
            scope: None,
            authenticated_userid: None,
        };
        let issued = store.issue(new, NOW).wait().unwrap();
        let code = NewCode {
            credential,
            service: None,
            plugin: None,
            redirect_uri: None,
            scope: None,
            authenticated_userid: None,
            challenge: None,
            challenge_method: None,
            ttl: 300,
        };
        let code = store.issue_code(code, NOW).wait().unwrap();
        let access = &issued.access_token.0;
        let refresh = &issued.refresh_token.as_ref().unwrap().0;
        let look = || {
            let is_it = |found: Option<Token>| assert_eq!(found.unwrap().id, issued.id);
            fn run<T>(reply: Reply<'_, T>) -> (bool, T) {
                let waits = matches!(reply, Reply::Wait(_));
                (waits, reply.wait().unwrap())
            }
            let mut aside = Vec::new();
            for reply in [
                store.find_by_access_token(access, NOW),
                store.find_by_refresh_token(refresh, NOW),
                store.find_by_id(issued.id, NOW),
            ] {
                let (waits, found) = run(reply);
                is_it(found);
                aside.push(waits);
            }
            let (waits, found): (bool, Option<Code>) = run(store.find_code(&code.0, NOW));
            assert!(found.is_some());
            aside.push(waits);
            aside
        };
        let pace = &store.shared.pace;
        pace.aside_until.store(0, Relaxed);
        pace.has_waited(FAST);
        assert!(!pace.is_aside());
        pace.has_waited(LONG);
        assert_eq!(look(), [true; 4]);
        // The time is over.
        pace.aside_until.store(1, Relaxed);
        assert!(!pace.is_aside());
        let found = store.find_by_access_token(access, NOW);
        assert!(matches!(found, Reply::Ready(Ok(Some(_)))));
    }

    #[test]
    fn many_short_waits_send_look_ups_aside_and_a_few_do_not() {
        let pace = Pace::new();
        for _ in 0..MANY - 1 {
            pace.has_waited(FAST);
        }
        assert!(!pace.is_aside());
        // Twice as many, since they may be in two spans of time.
        for _ in 0..2 * MANY {
            pace.has_waited(FAST);
        }
        assert!(pace.is_aside());
    }
}
