//! The thread for background work: sending queued entries, requests of the HTTP client, timers of plugins.
//!
//! It has a current-thread runtime of its own, so its tasks never delay a worker of the data plane. Tasks must not block
//! the thread, because all plugins share it.
//!
//! There are two kinds of tasks. A task of [`Background::spawn`] does a piece of work that has an end; a shutdown waits
//! for it. A task of [`Background::spawn_service`] serves until its last user is gone; a shutdown does not wait for it.
//!
//! [`Background::shut_down`] waits until the deadline and then cancels what is left. The thread also ends when the last
//! handle is dropped: then it cancels all its tasks at once.

use futures_util::FutureExt;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum time that the end of the background waits for threads that are blocked, such as by a file system.
const BLOCKED: Duration = Duration::from_secs(1);

/// Handle of the background runtime. Clones share it.
#[derive(Clone)]
pub struct Background(Arc<Inner>);

struct Inner {
    handle: Handle,
    /// Tasks that a shutdown waits for.
    work: TaskTracker,
    /// Cancelled at the beginning of a shutdown.
    closing: CancellationToken,
    /// Cancelled at the end of a shutdown. It ends the tasks of a runtime that is not ours.
    cancelled: CancellationToken,
    thread: Mutex<Option<Thread>>,
}

/// The means to end the thread. Dropping the sender ends it as well.
struct Thread {
    end: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Background {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (end, order) = oneshot::channel::<()>();
        let (report, ended) = oneshot::channel();
        let run = move || {
            // An error means that the last handle was dropped.
            let _ = runtime.block_on(order);
            // This cancels the tasks, also those that were spawned during the shutdown. A thread that a file system or a
            // pipe blocks is left behind: it would keep the process from ending.
            runtime.shutdown_timeout(BLOCKED);
            let _ = report.send(());
        };
        thread::Builder::new()
            .name("background".to_owned())
            .spawn(run)?;
        Ok(Self::new(handle, Some(Thread { end, ended })))
    }

    /// Uses the runtime that the caller runs on, so that tests with a paused clock work.
    ///
    /// # Panics
    ///
    /// If the caller does not run on a tokio runtime.
    pub fn here() -> Self {
        Self::new(Handle::current(), None)
    }

    fn new(handle: Handle, thread: Option<Thread>) -> Self {
        Self(Arc::new(Inner {
            handle,
            work: TaskTracker::new(),
            closing: CancellationToken::new(),
            cancelled: CancellationToken::new(),
            thread: Mutex::new(thread),
        }))
    }

    /// Returns the number of pieces of work that are not done.
    pub fn running(&self) -> usize {
        self.0.work.len()
    }

    /// Runs a piece of work. A shutdown waits for it until its deadline. After a shutdown the future is dropped without
    /// being polled.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let work = self.0.work.track_future(self.guarded(work));
        self.0.handle.spawn(work);
    }

    /// Runs a task that ends when its users are gone. A shutdown cancels it without waiting for it.
    pub fn spawn_service(&self, service: impl Future<Output = ()> + Send + 'static) {
        self.0.handle.spawn(self.guarded(service));
    }

    /// Returns a future that ends when a shutdown begins, for work that goes on until then.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        self.0.closing.clone().cancelled_owned()
    }

    /// Returns a future that ends when the background is shut down, and that logs panics.
    fn guarded(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let cancelled = self.0.cancelled.clone();
        let work = AssertUnwindSafe(work).catch_unwind();
        async move {
            if let Some(Err(_)) = cancelled.run_until_cancelled_owned(work).await {
                tracing::error!("a background task panicked, which is a defect of the gateway");
            }
        }
    }

    /// Waits until all pieces of work have ended, at most until the deadline, and then cancels all tasks. Returns whether
    /// all work had ended.
    pub async fn shut_down(&self, deadline: Instant) -> bool {
        let background = self.0.clone();
        background.closing.cancel();
        let (report, finished) = oneshot::channel();
        // The wait runs on the background runtime, because only there a timer is certain to be driven.
        self.0.handle.spawn(async move {
            background.work.close();
            let finished = timeout_at(deadline, background.work.wait()).await.is_ok();
            let _ = report.send(finished);
        });
        let finished = finished.await.unwrap_or(false);
        self.0.cancelled.cancel();
        let thread = self
            .0
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(Thread { end, ended }) = thread {
            let _ = end.send(());
            let _ = ended.await;
        }
        finished
    }

    /// Runs a future to its end on the calling thread, for threads without a runtime such as the main thread. The future
    /// may use timers and I/O until the background is shut down.
    ///
    /// # Panics
    ///
    /// If the caller runs on a tokio runtime.
    pub fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.handle.block_on(future)
    }

    /// Number of pieces of work that have not ended.
    pub fn working(&self) -> usize {
        self.0.work.len()
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let working = self.working();
        formatter
            .debug_struct("Background")
            .field("working", &working)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::mpsc;

    fn in_seconds(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    /// Sends a message when it is dropped.
    struct Dropped(mpsc::Sender<()>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    #[test]
    fn tasks_run_on_a_thread_of_their_own() {
        let background = Background::start().unwrap();
        let (sender, receiver) = mpsc::channel();
        background.spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let _ = sender.send(thread::current().name().map(str::to_owned));
        });
        assert_eq!(receiver.recv().unwrap().as_deref(), Some("background"));
        assert!(background.wait_for(background.shut_down(in_seconds(10))));
    }

    #[test]
    fn a_shutdown_leaves_a_blocked_thread_behind() {
        let background = Background::start().unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (unblock, blocked) = mpsc::channel::<()>();
        background.spawn(async move {
            let work = move || {
                let _ = begun.send(());
                let _ = blocked.recv();
            };
            let _ = tokio::task::spawn_blocking(work).await;
        });
        has_begun.recv().unwrap();
        assert!(!background.wait_for(background.shut_down(Instant::now())));
        // Until here nothing has ended the blocked thread.
        unblock.send(()).unwrap();
    }

    #[test]
    fn a_shutdown_waits_for_work_and_cancels_services() {
        let background = Background::start().unwrap();
        let (go, proceed) = oneshot::channel::<()>();
        let (work_done, done) = mpsc::channel();
        let (dropped, service_dropped) = mpsc::channel();
        let dropped = Dropped(dropped);
        background.spawn_service(async move {
            let _dropped = dropped;
            pending::<()>().await;
        });
        background.spawn(async move {
            let _ = proceed.await;
            let _ = work_done.send(());
        });
        let shut_down = background.shut_down(in_seconds(60));
        let finished = background.wait_for(async {
            let _ = go.send(());
            shut_down.await
        });
        assert!(finished);
        done.recv().unwrap();
        service_dropped.recv().unwrap();
    }

    #[tokio::test]
    async fn work_can_go_on_until_a_shutdown_begins() {
        let background = Background::here();
        let (sender, receiver) = mpsc::channel();
        let closing = background.closing();
        background.spawn(async move {
            closing.await;
            let _ = sender.send(());
        });
        tokio::task::yield_now().await;
        assert!(receiver.try_recv().is_err());
        assert!(background.shut_down(in_seconds(60)).await);
        receiver.try_recv().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_does_not_end_is_cancelled_at_the_deadline() {
        let background = Background::here();
        let (dropped, cancelled) = mpsc::channel();
        let dropped = Dropped(dropped);
        background.spawn(async move {
            let _dropped = dropped;
            pending::<()>().await;
        });
        let start = Instant::now();
        assert!(!background.shut_down(in_seconds(5)).await);
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        // The cancelled task ends with the next turn of the runtime.
        while cancelled.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(background.working(), 0);
    }

    #[tokio::test]
    async fn nothing_runs_after_a_shutdown() {
        let background = Background::here();
        assert!(background.shut_down(in_seconds(5)).await);
        assert!(background.shut_down(in_seconds(5)).await);
        let (sender, receiver) = oneshot::channel();
        background.spawn(async move {
            let _ = sender.send(());
        });
        assert!(receiver.await.is_err());
    }

    #[test]
    fn the_thread_ends_when_the_last_handle_is_dropped() {
        let background = Background::start().unwrap();
        let (dropped, cancelled) = mpsc::channel();
        let dropped = Dropped(dropped);
        background.spawn(async move {
            let _dropped = dropped;
            pending::<()>().await;
        });
        drop(background.clone());
        assert_eq!(background.working(), 1);
        drop(background);
        cancelled.recv().unwrap();
    }

    #[test]
    fn a_panic_ends_only_its_task() {
        let background = Background::start().unwrap();
        background.spawn(async { panic!("on purpose") });
        let (sender, receiver) = mpsc::channel();
        background.spawn(async move {
            let _ = sender.send(());
        });
        receiver.recv().unwrap();
        assert!(background.wait_for(background.shut_down(in_seconds(10))));
    }
}
