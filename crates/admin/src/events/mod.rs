//! The event socket: other programs on this machine receive every revision in order, once it is durable and live in the
//! workers of this process.
//!
//! There is no queue: each subscriber has a position in the change log, so a slow subscriber only lags behind. If the
//! change log no longer contains the next revisions, the subscriber receives a gap event. As with the Admin API's local
//! socket, everyone who may open the socket's file acts as the operator.

#[cfg(test)]
mod tests;
pub mod wire;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::time::Duration;
use store::{ChangeLogError, Event, Follower, Revision, RevisionInfo, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{ReadHalf, WriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wire::{CHANGES_AT_ONCE, Frame, HEARTBEAT, Head, Malformed, OPENING, Reason, SILENCE, Start};

/// Maximum number of subscribers.
pub const MAX_SUBSCRIBERS: usize = 64;
/// Maximum time until a client has sent its complete opening.
const OPENING_LIMIT: Duration = Duration::from_secs(5);
/// Maximum time for sending the last events to subscribers when this process ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Initial size of the buffer for bytes from a client. Clients send only heartbeats, but several may arrive at once.
const HEARD_AT_ONCE: usize = 64;

/// The source of events.
#[derive(Debug, Clone)]
pub struct Feed {
    pub store: Store,
    /// The newest revision that is live in the workers.
    pub live: watch::Receiver<u64>,
}

/// Serves subscribers until `stop` resolves, then sends each of them a final frame.
pub async fn serve(listener: UnixListener, feed: Feed, stop: impl Future<Output = ()>) {
    let stopping = watch::Sender::new(false);
    let mut subscribers = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = subscribers.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) if subscribers.len() < MAX_SUBSCRIBERS => {
                let subscriber = Subscriber {
                    feed: feed.clone(),
                    stopping: stopping.subscribe(),
                    bytes: Vec::new(),
                    is_cut: false,
                };
                subscribers.spawn(subscriber.attend(stream));
            }
            Ok((stream, _)) => refuse(&stream),
            Err(error) => {
                tracing::warn!(%error, "a subscriber cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    let all = async { while subscribers.join_next().await.is_some() {} };
    // Clients that do not read see only that the connection is closed.
    let _ = timeout(FAREWELL, all).await;
}

/// Sends the reason without waiting; the connection is closed afterwards. The send buffer of a new connection always
/// has room for this frame.
fn refuse(stream: &UnixStream) {
    let mut bytes = Vec::new();
    wire::encode(
        &end(Reason::Crowded, "there are too many subscribers"),
        &mut bytes,
    );
    let _ = stream.try_write(&bytes);
    tracing::info!(
        limit = MAX_SUBSCRIBERS,
        "a subscriber is refused: there are too many"
    );
}

fn end(reason: Reason, text: &str) -> Frame<'_> {
    let text = text.into();
    Frame::End { reason, text }
}

/// The reason why a subscriber is no longer served.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Connection(#[from] io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the client has sent nothing for too long")]
    Silent,
    #[error("revision {start} is unknown, the newest is {newest}")]
    Unknown { start: Revision, newest: Revision },
    #[error(transparent)]
    ChangeLog(#[from] ChangeLogError),
    #[error("the record of revision {0} is incomplete")]
    Short(Revision),
    #[error("this process is stopping or was replaced")]
    Leaving,
}

impl Ended {
    /// Returns the reason to report to the client; `None` if it cannot receive one.
    fn reason(&self) -> Option<Reason> {
        match self {
            Ended::Connection(_) | Ended::Silent => None,
            Ended::Malformed(Malformed::Version(_)) => Some(Reason::Version),
            Ended::Malformed(_) => Some(Reason::Malformed),
            Ended::Unknown { .. } => Some(Reason::Unknown),
            Ended::ChangeLog(ChangeLogError::Store(_)) | Ended::Short(_) => {
                Some(Reason::Unreadable)
            }
            Ended::ChangeLog(_) => Some(Reason::Lost),
            Ended::Leaving => Some(Reason::Leaving),
        }
    }
}

/// A connection of a client.
struct Subscriber {
    feed: Feed,
    stopping: watch::Receiver<bool>,
    /// Bytes to send: at most a page of changes and the head of a revision.
    bytes: Vec<u8>,
    /// Whether a frame may have been sent only in part. Then no other frame can follow.
    is_cut: bool,
}

impl Subscriber {
    async fn attend(mut self, mut stream: UnixStream) {
        let (mut reader, mut writer) = stream.split();
        let Err(ended) = self.exchange(&mut reader, &mut writer).await;
        match &ended {
            Ended::ChangeLog(ChangeLogError::Store(_)) | Ended::Short(_) => {
                tracing::error!(%ended, "events cannot be sent to a subscriber");
            }
            _ => tracing::debug!(%ended, "a subscriber was disconnected"),
        }
        if let Some(reason) = ended.reason().filter(|_| !self.is_cut) {
            self.bytes.clear();
            wire::encode(&end(reason, &ended.to_string()), &mut self.bytes);
            // Send only as much as the buffer has room for, without waiting for clients that do not read.
            let _ = writer.try_write(&self.bytes);
        }
    }

    async fn exchange(
        &mut self,
        reader: &mut ReadHalf<'_>,
        writer: &mut WriteHalf<'_>,
    ) -> Result<Infallible, Ended> {
        let mut opening = [0; OPENING];
        let opened = timeout(OPENING_LIMIT, reader.read_exact(&mut opening));
        opened.await.map_err(|_| Ended::Silent)??;
        let seen = self.start(wire::decode_opening(&opening)?)?;
        let follower = Follower::new(self.feed.store.clone(), seen);
        tokio::select! {
            ended = self.tell(follower, writer) => ended,
            ended = listen(reader) => ended,
        }
    }

    /// Returns the revision after which the subscriber starts.
    fn start(&self, start: Start) -> Result<Revision, Ended> {
        let start = match start {
            Start::Now => return Ok(Revision(*self.feed.live.borrow())),
            Start::After(revision) => Revision(revision),
        };
        // The revision need not be live in this process yet, but it must be in the store.
        let newest = self.newest()?;
        if start > newest {
            Err(Ended::Unknown { start, newest })
        } else {
            Ok(start)
        }
    }

    fn newest(&self) -> Result<Revision, ChangeLogError> {
        Ok(self.feed.store.view()?.revision())
    }

    async fn tell(
        &mut self,
        mut follower: Follower,
        writer: &mut WriteHalf<'_>,
    ) -> Result<Infallible, Ended> {
        let welcome = Frame::Welcome {
            version: wire::VERSION,
            after: follower.seen().0,
        };
        self.send(&welcome, writer).await?;
        loop {
            if *self.stopping.borrow() {
                return Err(Ended::Leaving);
            }
            let live = Revision(*self.feed.live.borrow_and_update());
            match follower.next(live)? {
                Some(Event::Happened(info)) => self.send_revision(&info, &follower, writer).await?,
                Some(Event::Gap { from, to }) => {
                    let (from, to) = (from.0, to.0);
                    self.send(&Frame::Gap { from, to }, writer).await?;
                }
                None => self.wait(writer).await?,
            }
        }
    }

    async fn wait(&mut self, writer: &mut WriteHalf<'_>) -> Result<(), Ended> {
        tokio::select! {
            changed = self.feed.live.changed() => changed.map_err(|_| Ended::Leaving),
            stopping = self.stopping.changed() => stopping.map_err(|_| Ended::Leaving),
            () = sleep(HEARTBEAT) => self.send(&Frame::Heartbeat, writer).await,
        }
    }

    /// Sends a revision page by page, so that only one page of its changes is in memory.
    async fn send_revision(
        &mut self,
        info: &RevisionInfo,
        follower: &Follower,
        writer: &mut WriteHalf<'_>,
    ) -> Result<(), Ended> {
        let head = Head::from(info);
        let count = head.changes as usize;
        wire::encode(&Frame::Revision(head), &mut self.bytes);
        let mut told = 0;
        while told < count {
            let page = follower.changes(info.revision, told, CHANGES_AT_ONCE)?;
            if page.is_empty() {
                return Err(Ended::Short(info.revision));
            }
            told += page.len();
            let changes = page.iter().map(wire::Change::from).collect();
            self.send(&Frame::Changes(changes), writer).await?;
        }
        self.flush(writer).await
    }

    /// Sends all pending bytes, followed by `frame`.
    async fn send(&mut self, frame: &Frame<'_>, writer: &mut WriteHalf<'_>) -> Result<(), Ended> {
        wire::encode(frame, &mut self.bytes);
        self.flush(writer).await
    }

    async fn flush(&mut self, writer: &mut WriteHalf<'_>) -> Result<(), Ended> {
        self.is_cut = true;
        writer.write_all(&self.bytes).await?;
        self.is_cut = false;
        self.bytes.clear();
        Ok(())
    }
}

/// Reads heartbeats. Fails if the client sends any other frame, closes the connection, or sends nothing for too long.
async fn listen(reader: &mut ReadHalf<'_>) -> Result<Infallible, Ended> {
    let mut bytes = Vec::with_capacity(HEARD_AT_ONCE);
    loop {
        let heard = timeout(SILENCE, reader.read_buf(&mut bytes)).await;
        if heard.map_err(|_| Ended::Silent)?? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        while let Some((frame, length)) = wire::decode(&bytes)? {
            if frame != Frame::Heartbeat {
                return Err(Malformed::Kind.into());
            }
            bytes.drain(..length);
        }
    }
}
