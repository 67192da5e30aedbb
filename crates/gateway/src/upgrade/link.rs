//! The line between a process and the one that replaces it, for as long as both live. Each tells the other which revision it
//! has committed, and answers when that is live on its side: so a change is live in both when it is answered, whichever
//! of them took it. The end of the line is the end of a process.

use crate::control::Gateway;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

/// How long a change waits for the other process, which may be busy ending.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the main thread is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The new process takes connections.
    Serving,
    /// The new process cannot start.
    Failed(String),
    /// The other process is gone.
    Closed,
}

/// One end of the line.
pub(crate) struct Link {
    stream: Mutex<UnixStream>,
    /// The newest revision that is live in the other process.
    live: watch::Sender<u64>,
    closed: AtomicBool,
    /// Once this process serves by what is stored; until then it reads the store later anyway.
    gateway: OnceLock<Arc<Gateway>>,
}

impl Link {
    /// Listens to the other process on a thread of its own.
    pub(crate) fn start(
        stream: UnixStream,
        events: UnboundedSender<Event>,
    ) -> io::Result<Arc<Self>> {
        let reader = stream.try_clone()?;
        // A process that does not read must not stop this one.
        stream.set_write_timeout(Some(PATIENCE))?;
        let link = Arc::new(Self {
            stream: Mutex::new(stream),
            live: watch::Sender::new(0),
            closed: AtomicBool::new(false),
            gateway: OnceLock::new(),
        });
        let own = Arc::clone(&link);
        thread::Builder::new()
            .name("upgrade".to_owned())
            .spawn(move || {
                own.listen(reader, &events);
                own.closed.store(true, Ordering::Relaxed);
                // Whoever waits for an answer looks again.
                own.live.send_modify(|_| {});
                // Nobody may be left to hear it, at the end of this process.
                let _ = events.send(Event::Closed);
            })?;
        Ok(link)
    }

    /// From now on the other one's changes are followed.
    pub(crate) fn follow_with(&self, gateway: &Arc<Gateway>) {
        // Set once, at the start of the gateway.
        let _ = self.gateway.set(Arc::clone(gateway));
    }

    fn listen(&self, stream: UnixStream, events: &UnboundedSender<Event>) {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "committed" => {
                    self.follow();
                    self.say(&format!("live {rest}"));
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

    /// Waits until the newest revision of the store is live here.
    fn follow(&self) {
        let Some(gateway) = self.gateway.get() else {
            return;
        };
        gateway.follow();
        gateway.pass_on(self);
    }

    /// Tells the other process of a revision without waiting for it.
    pub(crate) fn tell(&self, revision: u64) {
        self.say(&format!("committed {revision}"));
    }

    /// Tells the other process of a revision, and waits until it is live there or that process is gone.
    pub(crate) async fn announce(&self, revision: u64) {
        self.tell(revision);
        let mut live = self.live.subscribe();
        let there = live.wait_for(|live| *live >= revision || self.is_closed());
        if tokio::time::timeout(PATIENCE, there).await.is_err() {
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

    /// Ends the line; the other process sees it as if this one had ended.
    pub(crate) fn close(&self) {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }

    fn say(&self, line: &str) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // A process that is gone is noticed by the thread that listens.
        let _ = stream.write_all(format!("{line}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::current_thread_runtime;
    use tokio::sync::mpsc::unbounded_channel;

    #[test]
    fn a_revision_is_answered_when_the_other_side_has_it() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (events, mut seen) = unbounded_channel();
        let one = Link::start(here, events).expect("a link");
        let (others, _kept) = unbounded_channel();
        let other = Link::start(there, others).expect("a link");
        let runtime = current_thread_runtime().expect("a runtime");
        runtime.block_on(async {
            // The other side serves nothing yet, so it has nothing to wait for.
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
            // Nobody is waited for who is gone.
            one.announce(8).await;
            assert!(one.is_closed());
        });
    }
}
