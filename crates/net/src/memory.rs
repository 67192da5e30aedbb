//! A connection that is no socket: bytes in, bytes out. For fuzzing a whole connection; not part of the program, which is built
//! without the feature `memory`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// What the other end does when it has said everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Close,
    Wait,
}

/// One end of it. What the other end says is known beforehand.
#[derive(Debug)]
pub struct Memory {
    incoming: Vec<u8>,
    then: Then,
    read: usize,
    outgoing: Arc<Mutex<Vec<u8>>>,
    /// The most that is read or written at once.
    piece: usize,
    /// Every other time, there is nothing to read yet, and no room to write yet.
    read_waits: bool,
    write_waits: bool,
    /// How often there is still nothing to read since something was written.
    patience: u8,
    patient: bool,
}

/// So often in a row is asked for an answer only by who has nothing more to send.
const PATIENCE: u8 = 6;

/// What was written to a [`Memory`].
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

    /// An end that says nothing before it has heard everything.
    pub fn patient(mut self) -> Self {
        self.patient = true;
        self.patience = PATIENCE;
        self
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let rest = &self.incoming[self.read..];
        // Without waking anybody: time passes only while nobody has anything to do.
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
            self.patience = PATIENCE;
        }
        let bytes = first.iter().chain(second);
        outgoing.extend(bytes.take(self.piece));
        Poll::Ready(Ok(outgoing.len() - before))
    }
}

/// Whether it is not the time yet; then it is when asked again.
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

/// From now on, connections to upstreams that this thread makes are these, in this order.
pub fn expect_dials(connections: impl IntoIterator<Item = Memory>) {
    DIALS.set(Some(connections.into_iter().collect()));
}

/// The next of them, where any are expected. There is nobody to connect to when they are used up.
pub fn dial() -> Option<io::Result<Memory>> {
    DIALS.with_borrow_mut(|dials| {
        let next = dials.as_mut()?.pop_front();
        Some(next.ok_or_else(|| io::ErrorKind::ConnectionRefused.into()))
    })
}
