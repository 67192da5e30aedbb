//! Tasks and timers on the workers of the data plane, for plugins with a part per worker.
//!
//! Each worker registers the handle of its runtime while it serves. A task spawned on a worker runs on its thread, between
//! requests, so it must be short and must not block.
//!
//! A timer belongs to a worker number, not to a run of its thread. A timer for a worker that does not serve yet starts
//! when the worker registers, and goes on when a worker starts again after a panic. Dropping its handle ends it.

use crate::metrics::NO_WORKER;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NO_WORKER) };
}

/// The worker on whose thread this value is. It cannot leave the thread, and no two threads have the same number, so cells
/// of a worker that are only found with it are written by one thread.
#[derive(Debug, Clone, Copy)]
pub struct ThisWorker {
    number: usize,
    stays: PhantomData<*const ()>,
}

impl ThisWorker {
    /// Returns the number of the worker, or [`NO_WORKER`] on a thread that is no worker.
    #[inline]
    pub fn number(self) -> usize {
        self.number
    }
}

/// Returns the worker on whose thread this is called, for [`metrics`](crate::metrics). It takes no lock.
#[inline]
pub fn this_worker() -> ThisWorker {
    ThisWorker {
        number: NUMBER.get(),
        stays: PhantomData,
    }
}

/// The workers that serve now, and the timers on all workers. Clones share both.
#[derive(Clone, Default)]
pub struct Workers(Arc<Mutex<Crew>>);

#[derive(Default)]
struct Crew {
    handles: HashMap<usize, Registered>,
    /// The threads that have a number as [`ThisWorker`], with their registration.
    numbers: HashMap<usize, (ThreadId, u64)>,
    timers: Vec<Weak<Timer>>,
    /// Number of registrations so far. It tells the runs of a worker apart.
    registrations: u64,
    /// Number of timers at which dead ones are removed.
    sweep_at: usize,
}

struct Registered {
    handle: Handle,
    registration: u64,
}

/// Keeps a worker registered until it is dropped.
#[must_use = "the worker is registered only while this guard lives"]
pub struct Registration {
    crew: Arc<Mutex<Crew>>,
    worker: usize,
    number: u64,
}

/// Dropping the handle ends the timer. A call that is running is dropped at its next point of waiting.
#[derive(Debug)]
#[must_use = "dropping the handle ends the timer"]
pub struct TimerHandle {
    _timer: Arc<Timer>,
}

/// The worker has no thread at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("worker {0} is not running")]
pub struct NotRunning(pub usize);

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Timer {
    worker: usize,
    /// Makes the task of the timer, once per run of the worker's thread.
    task: Box<dyn Fn() -> Task + Send + Sync>,
    running: Mutex<Option<AbortHandle>>,
}

impl Workers {
    /// Makes a worker known. The worker calls this on its own thread when it starts to serve, and drops the guard at its
    /// end.
    pub fn register(&self, worker: usize, handle: Handle) -> Registration {
        let mut crew = self.crew();
        crew.registrations += 1;
        let number = crew.registrations;
        // While another thread has the number, this one must not write the same cells.
        let here = thread::current().id();
        let known = crew.numbers.get(&worker);
        if known.is_some_and(|(thread, _)| *thread != here) {
            NUMBER.set(NO_WORKER);
        } else {
            NUMBER.set(worker);
            crew.numbers.insert(worker, (here, number));
        }
        let registered = Registered {
            handle: handle.clone(),
            registration: number,
        };
        crew.handles.insert(worker, registered);
        let timers: Vec<Arc<Timer>> = crew.timers.iter().filter_map(Weak::upgrade).collect();
        drop(crew);
        for timer in timers.iter().filter(|timer| timer.worker == worker) {
            timer.start(&handle);
        }
        Registration {
            crew: self.0.clone(),
            worker,
            number,
        }
    }

    /// Returns the numbers of the workers that serve, in ascending order.
    pub fn running(&self) -> Vec<usize> {
        let mut workers: Vec<usize> = self.crew().handles.keys().copied().collect();
        workers.sort_unstable();
        workers
    }

    /// Returns the number of the worker on whose thread this is called.
    pub fn here(&self) -> Option<usize> {
        let here = Handle::try_current().ok()?.id();
        let crew = self.crew();
        let mut handles = crew.handles.iter();
        handles.find_map(|(worker, registered)| (registered.handle.id() == here).then_some(*worker))
    }

    /// Returns the number of timers.
    pub fn timers(&self) -> usize {
        let crew = self.crew();
        let alive = crew.timers.iter().filter(|timer| timer.strong_count() > 0);
        alive.count()
    }

    /// Runs a future on the thread of a worker.
    pub fn spawn_on(
        &self,
        worker: usize,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), NotRunning> {
        let handle = self.handle(worker).ok_or(NotRunning(worker))?;
        handle.spawn(future);
        Ok(())
    }

    /// Runs one future on each worker that serves. Returns their number.
    pub fn spawn_on_all<F>(&self, mut make: impl FnMut(usize) -> F) -> usize
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let workers = self.running();
        let spawned = workers
            .into_iter()
            .filter(|worker| self.spawn_on(*worker, make(*worker)).is_ok());
        spawned.count()
    }

    /// Runs a future on a worker once, after this time. If the worker does not serve then, the future runs when it does.
    pub fn after(
        &self,
        worker: usize,
        delay: Duration,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> TimerHandle {
        let due = later(delay);
        let future: Arc<Mutex<Option<Task>>> = Arc::new(Mutex::new(Some(Box::pin(future))));
        self.add(worker, move || {
            let future = future.clone();
            Box::pin(async move {
                sleep_until(due).await;
                // Another run of the worker's thread may have run the future.
                let future = future.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(future) = future {
                    future.await;
                }
            })
        })
    }

    /// Calls `work` on a worker once per period and runs its future to the end; the first call is after one period. If a
    /// future takes longer than the period, the next call is delayed and no calls are made up for.
    pub fn every<F>(
        &self,
        worker: usize,
        period: Duration,
        work: impl Fn() -> F + Send + Sync + 'static,
    ) -> TimerHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let work = Arc::new(work);
        let period = period.max(SHORTEST_PERIOD);
        self.add(worker, move || {
            let work = work.clone();
            Box::pin(async move {
                let mut ticks = interval_at(later(period), period.min(LONGEST));
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    work().await;
                }
            })
        })
    }

    fn add(&self, worker: usize, task: impl Fn() -> Task + Send + Sync + 'static) -> TimerHandle {
        let timer = Arc::new(Timer {
            worker,
            task: Box::new(task),
            running: Mutex::new(None),
        });
        let mut crew = self.crew();
        if crew.timers.len() >= crew.sweep_at {
            crew.timers.retain(|timer| timer.strong_count() > 0);
            crew.sweep_at = (2 * crew.timers.len()).max(FIRST_SWEEP);
        }
        crew.timers.push(Arc::downgrade(&timer));
        // The timer starts under the lock, so that a worker that registers now does not start it again.
        if let Some(registered) = crew.handles.get(&worker) {
            timer.start(&registered.handle);
        }
        drop(crew);
        TimerHandle { _timer: timer }
    }

    fn handle(&self, worker: usize) -> Option<Handle> {
        let crew = self.crew();
        crew.handles
            .get(&worker)
            .map(|registered| registered.handle.clone())
    }

    fn crew(&self) -> MutexGuard<'_, Crew> {
        lock(&self.0)
    }
}

impl Timer {
    fn start(&self, worker: &Handle) {
        let task = worker.spawn((self.task)()).abort_handle();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(previous) = running.replace(task) {
            previous.abort();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let running = self.running.get_mut();
        let running = running.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = running {
            task.abort();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        NUMBER.set(NO_WORKER);
        let mut crew = lock(&self.crew);
        let named = crew.numbers.get(&self.worker);
        if named.is_some_and(|(_, registration)| *registration == self.number) {
            crew.numbers.remove(&self.worker);
        }
        let current = crew.handles.get(&self.worker);
        // The worker may have been registered again by its next run.
        if current.is_some_and(|registered| registered.registration == self.number) {
            crew.handles.remove(&self.worker);
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let running = self.running();
        formatter
            .debug_struct("Workers")
            .field("running", &running)
            .finish()
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Timer")
            .field("worker", &self.worker)
            .finish()
    }
}

fn lock(crew: &Mutex<Crew>) -> MutexGuard<'_, Crew> {
    crew.lock().unwrap_or_else(PoisonError::into_inner)
}

fn later(delay: Duration) -> Instant {
    Instant::now() + delay.min(LONGEST)
}

/// A timer of period zero would keep its worker busy.
const SHORTEST_PERIOD: Duration = Duration::from_millis(1);
/// Longer times are cut, because adding them to the current time could overflow.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Number of timers below which dead ones are not looked for.
const FIRST_SWEEP: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use tokio::runtime;
    use tokio::sync::oneshot;
    use tokio::time::{advance, sleep};

    const SECOND: Duration = Duration::from_secs(1);

    fn counting(count: &Arc<AtomicUsize>) -> impl Fn() -> std::future::Ready<()> + use<> {
        let count = count.clone();
        move || {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::ready(())
        }
    }

    /// Runs a registered worker on a thread until the sender is dropped.
    fn worker(
        workers: &Workers,
        number: usize,
    ) -> (oneshot::Sender<()>, thread::JoinHandle<thread::ThreadId>) {
        let (stop, stopped) = oneshot::channel();
        let (ready, wait) = mpsc::channel();
        let workers = workers.clone();
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let _registration = workers.register(number, runtime.handle().clone());
            ready.send(()).unwrap();
            let _ = runtime.block_on(stopped);
            thread::current().id()
        });
        wait.recv().unwrap();
        (stop, thread)
    }

    #[test]
    fn a_task_runs_on_the_thread_of_its_worker() {
        let workers = Workers::default();
        let threads = [worker(&workers, 0), worker(&workers, 3)];
        assert_eq!(workers.running(), [0, 3]);
        let (sender, receiver) = mpsc::channel();
        let spawned = workers.spawn_on_all(|number| {
            let sender = sender.clone();
            async move { sender.send((number, thread::current().id())).unwrap() }
        });
        assert_eq!(spawned, 2);
        let mut ran: Vec<_> = receiver.iter().take(2).collect();
        ran.sort_by_key(|(number, _)| *number);
        let ids: Vec<_> = threads
            .into_iter()
            .map(|(stop, thread)| {
                drop(stop);
                thread.join().unwrap()
            })
            .collect();
        assert_eq!(ran, [(0, ids[0]), (3, ids[1])]);
        assert_eq!(workers.running(), [0; 0]);
        assert_eq!(workers.spawn_on(0, async {}), Err(NotRunning(0)));
    }

    #[test]
    fn no_two_threads_have_the_same_number_at_once() {
        let workers = Workers::default();
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle();
        let number_of_another = |workers: &Workers| {
            let (workers, handle) = (workers.clone(), handle.clone());
            let thread = thread::spawn(move || {
                let _registration = workers.register(0, handle);
                this_worker().number()
            });
            thread.join().unwrap()
        };
        let registration = workers.register(0, handle.clone());
        assert_eq!(this_worker().number(), 0);
        assert_eq!(number_of_another(&workers), NO_WORKER);
        assert_eq!(number_of_another(&workers), NO_WORKER, "it is still taken");
        drop(registration);
        assert_eq!(this_worker().number(), NO_WORKER);
        assert_eq!(number_of_another(&workers), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_periodic_timer_runs_until_its_handle_is_dropped() {
        let workers = Workers::default();
        let _registration = workers.register(0, Handle::current());
        let count = Arc::new(AtomicUsize::new(0));
        let timer = workers.every(0, SECOND, counting(&count));
        sleep(Duration::from_millis(3500)).await;
        assert_eq!(count.load(Ordering::Relaxed), 3);
        drop(timer);
        sleep(10 * SECOND).await;
        assert_eq!(count.load(Ordering::Relaxed), 3);
        assert_eq!(Arc::strong_count(&count), 1, "the task is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_timer_runs_once() {
        let workers = Workers::default();
        let _registration = workers.register(0, Handle::current());
        let (sender, receiver) = oneshot::channel();
        let start = Instant::now();
        let _timer = workers.after(0, SECOND, async move {
            let _ = sender.send(Instant::now());
        });
        assert_eq!(receiver.await.unwrap() - start, SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_is_dropped_in_time_never_runs() {
        let workers = Workers::default();
        let _registration = workers.register(0, Handle::current());
        let (sender, receiver) = oneshot::channel::<()>();
        let timer = workers.after(0, SECOND, async move {
            let _ = sender.send(());
        });
        drop(timer);
        assert!(receiver.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn timers_wait_for_their_worker_and_outlive_its_restart() {
        let workers = Workers::default();
        let count = Arc::new(AtomicUsize::new(0));
        let _every = workers.every(1, SECOND, counting(&count));
        let (sender, receiver) = oneshot::channel();
        let _after = workers.after(1, SECOND, async move {
            let _ = sender.send(());
        });
        advance(5 * SECOND).await;
        assert_eq!(count.load(Ordering::Relaxed), 0);
        let first = workers.register(1, Handle::current());
        receiver.await.unwrap();
        sleep(Duration::from_millis(1500)).await;
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let second = workers.register(1, Handle::current());
        drop(first);
        assert_eq!(workers.running(), [1]);
        sleep(Duration::from_millis(1500)).await;
        assert_eq!(count.load(Ordering::Relaxed), 2, "one task, not two");
        drop(second);
    }

    #[tokio::test(start_paused = true)]
    async fn dead_timers_do_not_accumulate() {
        let workers = Workers::default();
        for _ in 0..10_000 {
            let _ = workers.after(0, SECOND, async {});
        }
        assert!(workers.crew().timers.len() <= 2 * FIRST_SWEEP);
    }

    #[tokio::test(start_paused = true)]
    async fn extreme_times_do_not_panic() {
        let workers = Workers::default();
        let _registration = workers.register(0, Handle::current());
        let _never = workers.after(0, Duration::MAX, async {});
        let _rarely = workers.every(0, Duration::MAX, || async {});
        let _often = workers.every(0, Duration::ZERO, || async {});
        sleep(SECOND).await;
    }
}
