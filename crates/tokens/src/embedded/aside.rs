//! Look-ups aside: those that may wait for the disk run on threads of their own.
//!
//! LMDB reads a mapped file, so a look-up in a page that is not in memory waits for the disk. No call tells in advance
//! whether it will. But where many have waited, memory is short for this file, and others will wait soon. So do others
//! where one has waited long, because the disk is slow or busy. Then look-ups run aside until none has waited there for
//! some milliseconds. If one waits again within a second after this, the milliseconds were too few: their number doubles,
//! up to some seconds.
//!
//! They are few at first because to hand a look-up to another thread costs ten microseconds of CPU time, half as much as a
//! request. Some waits in a row, for tokens that nobody has used for long, say nothing about the next seconds.

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
/// Time in which all look-ups run aside after the last wait: at first, and at most.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(10);
/// After this time without a reason to run aside, the next one is the first again.
const CALM: Duration = Duration::from_secs(1);
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
        let job: Job = Box::new(move |shared| {
            shared.pace.aside.fetch_add(1, Relaxed);
            finish(shared.pace.watch(|| look(shared)));
        });
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
    waits: Mutex<Waits>,
    /// Look-ups that have waited for the disk, and those that ran aside.
    waited: AtomicU64,
    aside: AtomicU64,
}

/// What is known of waits, in microseconds after [`Pace::started`].
#[derive(Default)]
struct Waits {
    /// The begin of a span of time, and the waits in it.
    span: u64,
    count: u64,
    /// The time for which look-ups run aside after a wait, and the end of the last one.
    length: u64,
    until: u64,
}

thread_local! {
    /// Times that this thread had waited for a page before its first look-up, or at its last slow one.
    static WAITS: Cell<i64> = Cell::new(waits_of_thread());
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            aside_until: AtomicU64::new(0),
            waits: Mutex::default(),
            waited: AtomicU64::new(0),
            aside: AtomicU64::new(0),
        }
    }

    pub(super) fn is_aside(&self) -> bool {
        match self.aside_until.load(Relaxed) {
            0 => false,
            until => self.now() < until,
        }
    }

    fn now(&self) -> u64 {
        micros(self.started.elapsed())
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
        self.waited.fetch_add(1, Relaxed);
        let until = {
            let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
            waits.add(self.now(), took)
        };
        self.aside_until.fetch_max(until, Relaxed);
    }

    /// Returns how many look-ups have waited for the disk, and how many ran aside.
    pub(super) fn counts(&self) -> [u64; 2] {
        [&self.waited, &self.aside].map(|count| count.load(Relaxed))
    }
}

impl Waits {
    /// Counts a wait, and returns until when look-ups run aside.
    fn add(&mut self, now: u64, took: Duration) -> u64 {
        if now.saturating_sub(self.span) >= micros(SPAN) {
            (self.span, self.count) = (now, 0);
        }
        self.count += 1;
        if took >= LONG || self.count >= MANY {
            if now >= self.until {
                self.length = match now - self.until < micros(CALM) {
                    true => (2 * self.length).clamp(micros(SHORTEST), micros(LONGEST)),
                    false => micros(SHORTEST),
                };
            }
            self.until = self.until.max(now + self.length);
            (self.span, self.count) = (now, 0);
        }
        self.until
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
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

    /// The time aside after waits at these times, in milliseconds.
    fn aside_after(waits: impl IntoIterator<Item = u64>, took: Duration) -> u64 {
        let mut state = Waits::default();
        let mut last = 0;
        for now in waits {
            last = 1000 * (now + 5000);
            state.add(last, took);
        }
        state.until.saturating_sub(last) / 1000
    }

    #[test]
    fn many_short_waits_send_look_ups_aside_and_a_few_do_not() {
        assert_eq!(aside_after(0..MANY - 1, FAST), 0);
        assert_eq!(aside_after(0..MANY, FAST), 10);
        // One in twenty milliseconds, for a minute.
        assert_eq!(aside_after((0..3000).map(|n| 20 * n), FAST), 0);
    }

    #[test]
    fn look_ups_run_aside_for_longer_the_more_often_one_waits_where_it_is_asked_for() {
        assert_eq!(aside_after([0], LONG), 10);
        // The second one has waited aside.
        assert_eq!(aside_after([0, 5], LONG), 10);
        assert_eq!(aside_after(0..1000, LONG), 10);
        assert_eq!(aside_after([0, 11], LONG), 20);
        assert_eq!(aside_after([0, 11, 32], LONG), 40);
        // Once in half a second, for a long time: soon all of them wait aside.
        assert_eq!(aside_after((0..8).map(|n| 500 * n), LONG), 640);
        assert_eq!(aside_after((0..100).map(|n| 500 * n), LONG), 640);
        // More rarely, each is the first one.
        assert_eq!(aside_after((0..20).map(|n| 2000 * n), LONG), 10);
    }
}
