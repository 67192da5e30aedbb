//! A connection in memory, for fuzzing without sockets. The released program is built without the feature `memory`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// Behaviour of the other end after it has sent all its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Close,
    Wait,
}

/// One end of an in-memory connection. The bytes that the other end sends are fixed in advance.
#[derive(Debug)]
pub struct Memory {
    incoming: Vec<u8>,
    then: Then,
    read: usize,
    outgoing: Arc<Mutex<Vec<u8>>>,
    /// Maximum bytes per read or write.
    piece: usize,
    /// The next read returns `Pending` if `read_waits` is `false`, and then the value flips. Thus every other read and
    /// every other write waits, and both paths are tested.
    read_waits: bool,
    write_waits: bool,
    /// Number of reads that still find no data. With `patient`, every write resets it.
    patience: u8,
    patient: bool,
}

/// Number of reads that find no data after a write, with `patient`. A task that reads this often has nothing more to
/// send.
const ROUNDS_TO_WAIT: u8 = 6;

/// The bytes that were written to a [`Memory`].
#[derive(Debug, Clone)]
pub struct Sent(Arc<Mutex<Vec<u8>>>);

impl Sent {
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Memory {
    pub fn new(incoming: Vec<u8>, then: Then, piece: usize) -> (Self, Sent) {
        let outgoing = Arc::<Mutex<Vec<u8>>>::default();
        let memory = Self {
            incoming,
            then,
            read: 0,
            outgoing: outgoing.clone(),
            piece: piece.max(1),
            read_waits: false,
            write_waits: false,
            patience: 0,
            patient: false,
        };
        (memory, Sent(outgoing))
    }

    /// Makes the other end send nothing until it has received everything that this end has to send.
    pub fn patient(mut self) -> Self {
        self.patient = true;
        self.patience = ROUNDS_TO_WAIT;
        self
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let rest = &self.incoming[self.read..];
        // Do not wake the task: tokio's paused time advances only while all tasks are idle.
        if rest.is_empty() && self.then == Then::Wait {
            return Poll::Pending;
        }
        if self.patience > 0 {
            self.patience -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if waits(&mut self.read_waits, cx) {
            return Poll::Pending;
        }
        let length = rest.len().min(buffer.len()).min(self.piece);
        buffer[..length].copy_from_slice(&rest[..length]);
        self.read += length;
        Poll::Ready(Ok(length))
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        if waits(&mut self.write_waits, cx) {
            return Poll::Pending;
        }
        let mut outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = outgoing.len();
        if self.patient {
            self.patience = ROUNDS_TO_WAIT;
        }
        let bytes = first.iter().chain(second);
        outgoing.extend(bytes.take(self.piece));
        Poll::Ready(Ok(outgoing.len() - before))
    }
}

/// Returns `true` and `false` alternately; wakes the task when it returns `true`.
fn waits(now: &mut bool, cx: &Context<'_>) -> bool {
    *now = !*now;
    if *now {
        cx.waker().wake_by_ref();
    }
    *now
}

thread_local! {
    static DIALS: RefCell<Option<VecDeque<Memory>>> = const { RefCell::new(None) };
}

/// Replaces the next upstream connections of this thread by these, in this order.
pub fn expect_dials(connections: impl IntoIterator<Item = Memory>) {
    DIALS.set(Some(connections.into_iter().collect()));
}

/// Returns the next expected connection, or `None` if this thread has not called [`expect_dials`]. After the last one
/// it returns an error, like an upstream that refuses the connection.
pub fn dial() -> Option<io::Result<Memory>> {
    DIALS.with_borrow_mut(|dials| {
        let next = dials.as_mut()?.pop_front();
        Some(next.ok_or_else(|| io::ErrorKind::ConnectionRefused.into()))
    })
}
