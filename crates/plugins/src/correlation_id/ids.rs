//! The generators of ids. Each worker thread has its own, so that an id costs no lock.

use net::id::RequestIds;
use plugin::{HeaderValue, LineValue, Node, Request};
use std::cell::RefCell;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::new(Worker::new());
}

/// What a worker generates ids from. All configured plugins share it, as in Kong, so a change of the configuration does
/// not start the counter again.
struct Worker {
    random: RequestIds,
    uuid: [u8; 36],
    count: u64,
}

impl Worker {
    fn new() -> Self {
        let mut random = RequestIds::default();
        let uuid = uuid(&mut random);
        Self {
            random,
            uuid,
            count: 0,
        }
    }
}

/// The id of a request. The usual ones need no allocation.
pub(super) enum Id {
    /// The id that the client has sent.
    Sent(HeaderValue),
    Uuid([u8; 36]),
    Counted(Counted),
    Tracker(String),
}

/// A UUID with a number.
pub(super) struct Counted {
    text: [u8; 57],
    length: u8,
}

impl Id {
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Sent(value) => value.as_bytes(),
            Self::Uuid(text) => text,
            Self::Counted(id) => &id.text[..id.length.into()],
            Self::Tracker(text) => text.as_bytes(),
        }
    }
}

impl LineValue for &Id {
    #[inline]
    fn with_bytes(self, write: impl FnOnce(&[u8])) {
        write(self.as_bytes());
    }
}

/// Returns a random UUID.
pub(super) fn random() -> Id {
    WORKER.with_borrow_mut(|worker| Id::Uuid(uuid(&mut worker.random)))
}

/// Returns the UUID of the worker with the number of this id.
pub(super) fn counted() -> Id {
    WORKER.with_borrow_mut(|worker| {
        worker.count = worker.count.wrapping_add(1);
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(worker.count).as_bytes();
        let length = worker.uuid.len() + 1 + digits.len();
        let mut text = [b'#'; 57];
        text[..worker.uuid.len()].copy_from_slice(&worker.uuid);
        text[worker.uuid.len() + 1..length].copy_from_slice(digits);
        Id::Counted(Counted {
            text,
            // A number has at most 20 digits.
            length: length as u8,
        })
    })
}

/// The number of trackers of this process. Kong has nginx's number of the connection in its place, of which HTTP/2 has
/// only one for many requests at the same time.
static TRACKERS: AtomicU64 = AtomicU64::new(0);

/// Returns an id that says where and when the request arrived.
pub(super) fn tracker(request: &Request<'_>, node: &Node) -> Id {
    let now = node.clock.since_epoch();
    let mut text = String::with_capacity(64);
    if let Some(address) = request.local {
        // Writing to a String cannot fail.
        let _ = write!(text, "{address}");
    }
    let _ = write!(
        text,
        "-{}-{}-{}-{}-{}.{:03}",
        request.port,
        std::process::id(),
        TRACKERS.fetch_add(1, Ordering::Relaxed) + 1,
        request.connection_requests,
        now.as_secs(),
        now.subsec_millis(),
    );
    Id::Tracker(text)
}

/// Makes a UUID of version 4 from 32 random hex digits.
fn uuid(random: &mut RequestIds) -> [u8; 36] {
    let digits = random.next_id();
    let mut text = [b'-'; 36];
    for (to, from) in [
        (0, 0..8),
        (9, 8..12),
        (14, 12..16),
        (19, 16..20),
        (24, 20..32),
    ] {
        let length = from.len();
        text[to..to + length].copy_from_slice(&digits[from]);
    }
    text[14] = b'4';
    // The two highest bits of this digit are the variant.
    text[19] = match text[19] {
        b'0' | b'4' | b'8' | b'c' => b'8',
        b'1' | b'5' | b'9' | b'd' => b'9',
        b'2' | b'6' | b'a' | b'e' => b'a',
        _ => b'b',
    };
    text
}
