//! The socket over which other programs of this machine follow what happens to the configuration: every revision in order, once
//! it is durable and live in the workers of this process.
//!
//! There is no queue. Each subscriber is a position in the journal, so a slow one is late and nothing else; one that is so late
//! that revisions are not kept any more is told of the gap. Who may open the socket's file is the operator, as at the Admin API's.

#[cfg(test)]
mod tests;
pub mod wire;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::time::Duration;
use store::{Event, Follower, JournalError, Revision, RevisionInfo, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{ReadHalf, WriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wire::{CHANGES_AT_ONCE, Frame, HEARTBEAT, Head, Malformed, OPENING, Reason, SILENCE, Start};

/// More than a machine has programs that follow its gateway.
pub const MAX_SUBSCRIBERS: usize = 64;
/// How long a client may take for its first bytes.
const OPENING_LIMIT: Duration = Duration::from_secs(5);
/// How long a subscriber may take to read that this process ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// Between failed accepts.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A client has nothing to say but that it lives: a few heartbeats at once, should it have been stopped.
const HEARD_AT_ONCE: usize = 64;

/// What subscribers are told of.
#[derive(Debug, Clone)]
pub struct Feed {
    pub store: Store,
    /// The revision that is live in the workers.
    pub live: watch::Receiver<u64>,
}

/// Serves subscribers until `stop` is ready, and tells them when it is.
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
    // Who does not read finds the end of the connection.
    let _ = timeout(FAREWELL, all).await;
}

/// The buffer of a new connection has room for it.
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

/// Why a subscriber is not served any more.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Connection(#[from] io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("it has said nothing for too long")]
    Silent,
    #[error("revision {start} is unknown, the newest is {newest}")]
    Unknown { start: Revision, newest: Revision },
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the record of revision {0} is shorter than it says")]
    Short(Revision),
    #[error("this process takes no more part")]
    Leaving,
}

impl Ended {
    /// What the client is told, where there is somebody to tell it to.
    fn reason(&self) -> Option<Reason> {
        match self {
            Ended::Connection(_) | Ended::Silent => None,
            Ended::Malformed(Malformed::Version(_)) => Some(Reason::Version),
            Ended::Malformed(_) => Some(Reason::Malformed),
            Ended::Unknown { .. } => Some(Reason::Unknown),
            Ended::Journal(JournalError::Store(_)) | Ended::Short(_) => Some(Reason::Unreadable),
            Ended::Journal(_) => Some(Reason::Lost),
            Ended::Leaving => Some(Reason::Leaving),
        }
    }
}

/// One connection.
struct Subscriber {
    feed: Feed,
    stopping: watch::Receiver<bool>,
    /// What is to be sent; at most a page of changes and a head.
    bytes: Vec<u8>,
    /// A frame may be half on its way.
    is_cut: bool,
}

impl Subscriber {
    async fn attend(mut self, mut stream: UnixStream) {
        let (mut reader, mut writer) = stream.split();
        let Err(ended) = self.exchange(&mut reader, &mut writer).await;
        match &ended {
            Ended::Journal(JournalError::Store(_)) | Ended::Short(_) => {
                tracing::error!(%ended, "a subscriber cannot be told what happened");
            }
            _ => tracing::debug!(%ended, "a subscriber has gone"),
        }
        if let Some(reason) = ended.reason().filter(|_| !self.is_cut) {
            self.bytes.clear();
            wire::encode(&end(reason, &ended.to_string()), &mut self.bytes);
            // Into the room that there is: nobody waits for who does not read.
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

    /// The last revision that is not told.
    fn start(&self, start: Start) -> Result<Revision, Ended> {
        let start = match start {
            Start::Now => return Ok(Revision(*self.feed.live.borrow())),
            Start::After(revision) => Revision(revision),
        };
        // It may be live in another process already and not in this one, but then it is in the store.
        let newest = self.newest()?;
        match start > newest {
            true => Err(Ended::Unknown { start, newest }),
            false => Ok(start),
        }
    }

    fn newest(&self) -> Result<Revision, JournalError> {
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

    /// Page by page: what is not sent yet stays in the journal.
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

    /// With what is to be sent before it.
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

/// Until the client says something else than that it lives, or nothing.
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
