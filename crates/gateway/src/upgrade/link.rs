//! The link between a process and its successor, while both run. Each process announces the revisions that it commits,
//! and the other process confirms each revision when it is live there. So a change is acknowledged when it is live in
//! both processes, whichever of them accepted it, or after `ANSWER_TIMEOUT`. A process that cannot serve a revision does
//! not confirm it. When a process ends, its link is closed.

use crate::control::Gateway;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

/// Maximum time that a change waits for the other process, which may be busy shutting down.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Events that a link reports to the main thread.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The new process accepts connections.
    Serving,
    /// The new process cannot start.
    Failed(String),
    /// The other process is gone.
    Closed,
}

/// Makes the newest revision of the store live in this process. Returns whether it is live.
type Follow = Box<dyn Fn(&Link) -> bool + Send + Sync>;

/// One end of the link.
pub(crate) struct Link {
    stream: Mutex<UnixStream>,
    /// The newest revision that is live in the other process.
    live: watch::Sender<u64>,
    closed: AtomicBool,
    /// Set once this process serves the stored configuration. Until then it need not follow the other process, because
    /// it has yet to read the newest revision from the store.
    follow: OnceLock<Follow>,
}

impl Link {
    /// Starts a thread that listens to the other process.
    pub(crate) fn start(
        stream: UnixStream,
        events: UnboundedSender<Event>,
    ) -> io::Result<Arc<Self>> {
        let reader = stream.try_clone()?;
        // If the other process does not read, it must not block this one.
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let link = Arc::new(Self {
            stream: Mutex::new(stream),
            live: watch::Sender::new(0),
            closed: AtomicBool::new(false),
            follow: OnceLock::new(),
        });
        let own = Arc::clone(&link);
        thread::Builder::new()
            .name("upgrade".to_owned())
            .spawn(move || {
                own.listen(reader, &events);
                own.closed.store(true, Ordering::Relaxed);
                // Waiting callers check again and find the link closed.
                own.live.send_modify(|_| {});
                // At the end of this process, the receiver may be gone.
                let _ = events.send(Event::Closed);
            })?;
        Ok(link)
    }

    /// Follows the changes of the other process from now on.
    pub(crate) fn follow_with(&self, gateway: &Arc<Gateway>) {
        let gateway = Arc::clone(gateway);
        self.follow_by(Box::new(move |link| {
            let is_live = gateway.follow();
            gateway.pass_on(link);
            is_live
        }));
    }

    fn follow_by(&self, follow: Follow) {
        // It is set only once per link, so this cannot fail.
        let _ = self.follow.set(follow);
    }

    fn listen(&self, stream: UnixStream, events: &UnboundedSender<Event>) {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "committed" => {
                    // Without this confirmation, the other process logs a warning after `ANSWER_TIMEOUT`.
                    if self.follow.get().is_none_or(|follow| follow(self)) {
                        self.say(&format!("live {rest}"));
                    }
                }
                "live" => {
                    let revision = rest.parse().unwrap_or(0);
                    self.live.send_modify(|live| *live = revision.max(*live));
                }
                "serving" => drop(events.send(Event::Serving)),
                "failed" => {
                    let reason = serde_json::from_str(rest).unwrap_or_else(|_| rest.to_owned());
                    let _ = events.send(Event::Failed(reason));
                }
                other => tracing::debug!(word = other, "not understood from the other process"),
            }
        }
    }

    /// Announces a revision to the other process without waiting for it.
    pub(crate) fn tell(&self, revision: u64) {
        self.say(&format!("committed {revision}"));
    }

    /// Announces a revision to the other process, and waits until it is live there or that process is gone, but no
    /// longer than `ANSWER_TIMEOUT`. The announcement can block, so another thread makes it.
    pub(crate) async fn announce(self: &Arc<Self>, revision: u64) {
        let link = Arc::clone(self);
        // An error means that the task has panicked, which is logged.
        let _ = tokio::task::spawn_blocking(move || link.tell(revision)).await;
        let mut live = self.live.subscribe();
        let there = live.wait_for(|live| *live >= revision || self.is_closed());
        if tokio::time::timeout(ANSWER_TIMEOUT, there).await.is_err() {
            tracing::warn!(
                revision,
                "the other process has not taken over a change in time"
            );
        }
    }

    pub(crate) fn say_serving(&self) {
        self.say("serving");
    }

    pub(crate) fn say_failed(&self, reason: &str) {
        let reason = serde_json::Value::from(reason);
        self.say(&format!("failed {reason}"));
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes the link. To the other process it looks as if this one had ended.
    pub(crate) fn close(&self) {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.shutdown(Shutdown::Both);
    }

    fn say(&self, line: &str) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if stream.write_all(format!("{line}\n").as_bytes()).is_err() {
            // The other process is gone, or it has not read for a long time. Part of the line may be sent, so nothing can
            // follow it. The listening thread notices the shutdown.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::current_thread_runtime;
    use tokio::sync::mpsc::unbounded_channel;

    #[test]
    fn a_revision_is_confirmed_when_the_other_side_has_it() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (events, mut seen) = unbounded_channel();
        let one = Link::start(here, events).expect("a link");
        let (others, _kept) = unbounded_channel();
        let other = Link::start(there, others).expect("a link");
        let runtime = current_thread_runtime().expect("a runtime");
        runtime.block_on(async {
            // The other side serves nothing yet, so it confirms at once.
            one.announce(7).await;
            assert_eq!(*one.live.borrow(), 7);
            other.say_serving();
            other.say_failed("two\nlines");
            assert_eq!(seen.recv().await, Some(Event::Serving));
            assert_eq!(
                seen.recv().await,
                Some(Event::Failed("two\nlines".to_owned()))
            );
            other.close();
            assert_eq!(seen.recv().await, Some(Event::Closed));
            // An announcement does not wait for a closed link.
            one.announce(8).await;
            assert!(one.is_closed());
        });
    }

    #[test]
    fn a_revision_that_cannot_be_served_is_not_confirmed() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (events, _seen) = unbounded_channel();
        let link = Link::start(there, events).expect("a link");
        let fails = AtomicBool::new(true);
        link.follow_by(Box::new(move |_| !fails.swap(false, Ordering::Relaxed)));
        (&here)
            .write_all(b"committed 7\ncommitted 8\n")
            .expect("sent");
        let first = BufReader::new(here).lines().next();
        assert_eq!(first.expect("a line").expect("readable"), "live 8");
    }

    #[test]
    fn a_link_is_closed_if_the_other_side_does_not_read() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (events, mut seen) = unbounded_channel();
        let link = Link::start(here, events).expect("a link");
        link.say(&"x".repeat(1 << 24));
        assert_eq!(seen.blocking_recv(), Some(Event::Closed));
        assert!(link.is_closed());
        drop(there);
    }
}
