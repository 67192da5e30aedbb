//! `silverback events`: prints configuration changes of the running gateway as they happen. It reads them from the
//! events socket in the prefix. After an upgrade or a restart of the gateway, it continues with the next revision.

mod print;

use crate::commands::Failure;
use crate::instance::not_running;
use crate::local;
use admin::events::wire::{
    self, Change, Frame, HEARTBEAT, Head, Malformed, Reason, SILENCE, Start, VERSION,
};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pause between attempts to connect to the gateway again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Number of failed attempts after which a message says that the gateway has ended. A shorter interruption is not
/// reported.
const QUIET_RETRIES: u32 = 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum EventsError {
    #[error("{}", not_running(.0))]
    NotRunning(PathBuf),
    #[error(
        "the gateway with prefix {0} belongs to another user, who alone may follow it over its socket"
    )]
    Denied(PathBuf),
    #[error("cannot follow the gateway: {0}")]
    Connection(#[source] io::Error),
    #[error("cannot print: {0}")]
    Output(#[source] io::Error),
    #[error("the gateway refuses: {0}")]
    Refused(String),
    #[error("the gateway does not keep to the protocol: {0}")]
    Malformed(#[from] Malformed),
    #[error("the gateway does not keep to the protocol: {0}")]
    Order(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Format {
    Text,
    Json,
}

/// An event to print.
#[derive(Debug, PartialEq)]
enum Event {
    Revision(Head<'static>, Vec<Change<'static>>),
    /// First and last of the missing revisions, which the gateway has already removed from its history.
    Gap(u64, u64),
}

/// Prints events until the process is interrupted or the reader closes the pipe. Messages that are not events go to
/// `say`.
pub(crate) fn follow(
    prefix: &Path,
    from: Option<u64>,
    format: Format,
    say: fn(&str),
) -> Result<(), Failure> {
    let mut print = |event: &Event| {
        let line = match format {
            Format::Text => print::text(event),
            Format::Json => print::json(event),
        };
        let mut output = io::stdout().lock();
        output.write_all(line.as_bytes())?;
        output.flush()
    };
    let mut order = Order::new(from);
    match follow_on(prefix, &mut order, &mut print, say) {
        Err(EventsError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        ended => ended.map_err(Failure::new),
    }
}

fn follow_on(
    prefix: &Path,
    order: &mut Order,
    print: &mut dyn FnMut(&Event) -> io::Result<()>,
    say: fn(&str),
) -> Result<(), EventsError> {
    let mut stream = connect(prefix)?;
    loop {
        match Connection::open(stream, order)
            .and_then(|connection| connection.exchange(order, print))
        {
            // The connection has ended, or the gateway has been silent for too long.
            Err(EventsError::Connection(_)) => {}
            ended => return ended,
        }
        order.interrupted();
        stream = find_again(prefix, say)?;
    }
}

fn connect(prefix: &Path) -> Result<UnixStream, EventsError> {
    local::connect(prefix, local::EVENTS).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            EventsError::NotRunning(prefix.to_owned())
        }
        ErrorKind::PermissionDenied => EventsError::Denied(prefix.to_owned()),
        _ => EventsError::Connection(error),
    })
}

/// Waits for the next gateway process, without a time limit.
fn find_again(prefix: &Path, say: fn(&str)) -> Result<UnixStream, EventsError> {
    let mut attempts = 0;
    loop {
        std::thread::sleep(RETRY_INTERVAL);
        match connect(prefix) {
            Err(EventsError::NotRunning(_)) => {}
            found => return found,
        }
        attempts += 1;
        if attempts == QUIET_RETRIES {
            say("the gateway has ended: waiting for it to be started again");
        }
    }
}

/// Checks that revisions arrive complete and in order.
#[derive(Debug)]
struct Order {
    /// The last revision that was received completely.
    seen: Option<u64>,
    /// The current revision, until all of its changes have arrived.
    coming: Option<(Head<'static>, Vec<Change<'static>>)>,
    is_welcome: bool,
}

impl Order {
    fn new(from: Option<u64>) -> Self {
        Self {
            seen: from.map(|from| from.saturating_sub(1)),
            coming: None,
            is_welcome: false,
        }
    }

    fn start(&self) -> Start {
        self.seen.map_or(Start::Now, Start::After)
    }

    /// Forgets the unfinished state of a connection before the next one starts.
    fn interrupted(&mut self) {
        self.coming = None;
        self.is_welcome = false;
    }

    /// Processes a frame. Returns the event that it completes, if any.
    fn take(&mut self, frame: Frame<'_>) -> Result<Option<Event>, EventsError> {
        match frame {
            Frame::Heartbeat => return Ok(None),
            Frame::End { reason, text } => return Err(ended(reason, &text)),
            Frame::Welcome { version, after } => {
                let expected = self.seen.unwrap_or(after);
                if self.is_welcome || version != VERSION || after != expected {
                    return Err(EventsError::Order("its welcome is not what was asked for"));
                }
                self.is_welcome = true;
                self.seen = Some(after);
                return Ok(None);
            }
            _ if !self.is_welcome => return Err(EventsError::Order("there is no welcome")),
            Frame::Revision(head) => {
                self.expect(head.revision)?;
                self.coming = Some((head.into_owned(), Vec::new()));
            }
            Frame::Changes(changes) => {
                let (_, so_far) =
                    (self.coming.as_mut()).ok_or(EventsError::Order("changes of no revision"))?;
                so_far.extend(changes.into_iter().map(Change::into_owned));
            }
            Frame::Gap { from, to } => {
                self.expect(from)?;
                self.seen = Some(to);
                return Ok(Some(Event::Gap(from, to)));
            }
        }
        self.complete()
    }

    fn expect(&self, revision: u64) -> Result<(), EventsError> {
        let next = self.seen.and_then(|seen| seen.checked_add(1));
        if self.coming.is_some() || next != Some(revision) {
            return Err(EventsError::Order("revisions are out of order"));
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<Option<Event>, EventsError> {
        let Some((head, changes)) = self.coming.take() else {
            return Ok(None);
        };
        match changes.len().cmp(&(head.changes as usize)) {
            std::cmp::Ordering::Less => {
                self.coming = Some((head, changes));
                Ok(None)
            }
            std::cmp::Ordering::Equal => {
                self.seen = Some(head.revision);
                Ok(Some(Event::Revision(head, changes)))
            }
            std::cmp::Ordering::Greater => {
                Err(EventsError::Order("there are more changes than were told"))
            }
        }
    }
}

/// Converts the reason why the gateway closes the connection to an error. The caller connects again after an
/// `EventsError::Connection`.
fn ended(reason: Reason, text: &str) -> EventsError {
    match reason {
        // The next connection reports lost revisions as a gap event.
        Reason::Leaving | Reason::Lost => EventsError::Connection(ErrorKind::UnexpectedEof.into()),
        Reason::Crowded
        | Reason::Version
        | Reason::Unknown
        | Reason::Malformed
        | Reason::Unreadable => EventsError::Refused(text.to_owned()),
    }
}

/// A connection to one gateway process.
struct Connection {
    stream: UnixStream,
    read: Vec<u8>,
    /// Time of the last bytes received (`heard`) and sent (`said`).
    heard: Instant,
    said: Instant,
}

impl Connection {
    fn open(mut stream: UnixStream, order: &Order) -> Result<Self, EventsError> {
        let prepared = (stream.set_read_timeout(Some(HEARTBEAT)))
            .and_then(|()| stream.set_write_timeout(Some(SILENCE)))
            .and_then(|()| stream.write_all(&wire::encode_opening(order.start())));
        // A gateway that refuses this client may have closed the connection already. Its reason can still be read.
        match prepared {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(EventsError::Connection(error))
            }
            _ => Ok(Self {
                stream,
                read: Vec::new(),
                heard: Instant::now(),
                said: Instant::now(),
            }),
        }
    }

    /// Receives and prints until the connection ends, which is always an error.
    fn exchange(
        mut self,
        order: &mut Order,
        print: &mut dyn FnMut(&Event) -> io::Result<()>,
    ) -> Result<(), EventsError> {
        loop {
            self.receive().map_err(EventsError::Connection)?;
            let mut taken = 0;
            while let Some((frame, length)) = wire::decode(&self.read[taken..])? {
                taken += length;
                if let Some(event) = order.take(frame)? {
                    print(&event).map_err(EventsError::Output)?;
                }
            }
            self.read.drain(..taken);
            self.live().map_err(EventsError::Connection)?;
        }
    }

    /// Reads the bytes that have arrived, if any. Fails when nothing has arrived for `SILENCE`.
    fn receive(&mut self) -> io::Result<()> {
        let mut piece = [0; 1 << 14];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                self.read.extend_from_slice(&piece[..length]);
                self.heard = Instant::now();
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if self.heard.elapsed() < SILENCE {
                    Ok(())
                } else {
                    Err(ErrorKind::TimedOut.into())
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends a heartbeat if the last one is `HEARTBEAT` ago, so that the gateway knows that this client lives.
    fn live(&mut self) -> io::Result<()> {
        if self.said.elapsed() >= HEARTBEAT {
            let mut bytes = Vec::new();
            wire::encode(&Frame::Heartbeat, &mut bytes);
            self.stream.write_all(&bytes)?;
            self.said = Instant::now();
        }
        Ok(())
    }
}
