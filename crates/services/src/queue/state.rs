//! The entries of a queue and its counters, behind one lock: what pushes and the sending task share.
//!
//! The lock is held for a few instructions: a push moves one entry, and the task takes at most [`TAKEN_AT_ONCE`] entries.
//! Entries are dropped and messages are logged without the lock.

use super::statistics::Counts;
use super::text::{Chunk, Text};
use super::{Join, Queue, QueueParams, SendError, Sender};
use futures_util::future::BoxFuture;
use smallvec::SmallVec;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Minimum time between two messages of the same kind about one queue.
pub const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of items that the task moves while pushes wait for the lock.
const TAKEN_AT_ONCE: usize = 256;
/// Capacity above which the buffer of an empty queue is freed.
const KEPT_CAPACITY: usize = 1024;
/// Maximum length of a sender's error in the log.
const LOGGED_ERROR: usize = 1000;

pub(super) struct State<T> {
    plugin: Box<str>,
    /// The name of the queue as it may be shown.
    name: Box<str>,
    /// Start of every message about the queue, as in Kong.
    pub(super) tag: Box<str>,
    locked: Mutex<Locked<T>>,
    /// Notified when the task has to look at the queue.
    pub(super) wake: Notify,
    /// Notified when nothing waits and nothing is being sent.
    pub(super) idle: Notify,
    /// Notified when the last handle is dropped.
    pub(super) closing: Notify,
}

pub(super) struct Locked<T> {
    pub(super) items: VecDeque<Item<T>>,
    /// Number of entries of all items.
    pub(super) waiting: usize,
    /// The chunk into which texts are copied. Queues of other entries do not use it.
    chunk: Chunk,
    /// Number of waiting entries at which a push wakes the task; `usize::MAX` while the task does not wait for entries.
    wake_at: usize,
    /// Number of waiting entries from which on a push looks at the limits.
    warn_at: usize,
    params: Arc<QueueParams>,
    pub(super) sender: Sender<T>,
    /// Number of the newest handle.
    pub(super) handle: u64,
    /// When the newest handle was dropped.
    pub(super) closed: Option<Instant>,
    /// When a batch was accepted for the last time.
    pub(super) accepted: Option<Instant>,
    /// Whether the task has ended. A queue that has ended accepts nothing.
    pub(super) ended: bool,
    /// Whether it ended because nobody held it and its receiver did not accept what was left.
    pub(super) abandoned: bool,
    /// The counters, except `waiting`.
    pub(super) counts: Counts,
    /// Whether the queue has been above the warning level since the last warning.
    warned: bool,
    /// Whether entries were dropped since the queue was last processed.
    dropping: bool,
    reports: Reports,
}

/// What one push has added: an entry, or several texts that stay together.
pub(super) struct Item<T> {
    of: T,
    size: Size,
}

/// The size of an item. Both numbers are limited where it is made, so that sums do not overflow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    entries: u32,
    bytes: u32,
}

impl Size {
    pub(super) fn new(entries: usize, bytes: usize) -> Self {
        let limited = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            entries: limited(entries),
            bytes: limited(bytes),
        }
    }

    #[inline]
    fn entries(self) -> usize {
        self.entries as usize
    }

    #[inline]
    fn bytes(self) -> usize {
        self.bytes as usize
    }

    /// Adds the size of what is added to an item, which is far from the limits.
    #[inline]
    fn add(&mut self, more: Self) {
        self.entries = self.entries.saturating_add(more.entries);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// Items to drop without the lock. Usually one: the entry that a new one replaces.
type Victims<T> = SmallVec<[Item<T>; 1]>;

/// A message about a push that was not smooth.
enum Notice {
    NearlyFull,
    Full {
        dropped: u64,
    },
    OutOfBytes {
        dropped: u64,
    },
    TooLarge {
        bytes: usize,
        max: usize,
        refused: u64,
    },
}

/// The messages that are limited in number.
#[derive(Default)]
struct Reports {
    nearly_full: Report,
    full: Report,
    bytes: Report,
    too_large: Report,
    resumed: Report,
    failed: Report,
    given_up: Report,
}

#[derive(Default)]
struct Report {
    last: Option<Instant>,
    /// Number of cases since the last message.
    unreported: u64,
}

/// What the task does next.
pub(super) enum Next {
    /// Take this number of entries and send them.
    Send(usize),
    /// Wait for entries, for a batch that is being sent, or until this time.
    Wait(Option<Instant>),
    /// Nobody holds the queue, and it is empty.
    End,
}

/// How a batch ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    Sent,
    /// The receiver does not accept the entries.
    Refused,
    GivenUp,
}

/// A queue whose entries are of any type.
pub(super) trait Listed: Send + Sync {
    /// Returns the names of the plugin and of the queue, for metrics.
    fn names(&self) -> (&str, &str);
    fn counts(&self) -> Counts;
    /// Waits until nothing waits and nothing is being sent.
    fn idle(self: Arc<Self>) -> BoxFuture<'static, ()>;
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T> State<T> {
    /// Makes a queue and its first handle. `name` is the name as it may be shown.
    pub(super) fn new(
        (plugin, name): (&str, &str),
        params: QueueParams,
        sender: Sender<T>,
    ) -> (Arc<Self>, Arc<Queue<T>>) {
        let state = Arc::new(Self {
            plugin: plugin.into(),
            name: name.into(),
            tag: format!("[{plugin}] queue {name}").into(),
            locked: Mutex::new(Locked {
                items: VecDeque::new(),
                waiting: 0,
                chunk: Chunk::default(),
                wake_at: 1,
                warn_at: params.warn_at(),
                params: Arc::new(params),
                sender,
                handle: 0,
                closed: None,
                accepted: None,
                ended: false,
                abandoned: false,
                counts: Counts::default(),
                warned: false,
                dropping: false,
                reports: Reports::default(),
            }),
            wake: Notify::new(),
            idle: Notify::new(),
            closing: Notify::new(),
        });
        let first = Arc::new(Queue {
            state: state.clone(),
            number: 0,
        });
        (state, first)
    }

    /// Adds the item that `make` returns. `make` gets the chunk of the queue and the size of all entries.
    #[inline]
    pub(super) fn push(&self, size: Size, make: impl FnOnce(&mut Chunk, u64) -> T) {
        let mut locked = self.lock();
        locked.counts.pushed += size.entries() as u64;
        if !locked.has_room(size) {
            return self.push_slow(locked, size, make);
        }
        let wake = locked.add(size, make);
        self.pushed(locked, wake);
    }

    /// Wakes the task after a push, if it waits for it.
    #[inline]
    fn pushed(&self, locked: MutexGuard<'_, Locked<T>>, wake: bool) {
        drop(locked);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Adds an item to a queue that is nearly full, full, or has ended.
    #[cold]
    fn push_slow(
        &self,
        mut locked: MutexGuard<'_, Locked<T>>,
        size: Size,
        make: impl FnOnce(&mut Chunk, u64) -> T,
    ) {
        let mut victims = Victims::new();
        let mut notices: SmallVec<[Notice; 2]> = SmallVec::new();
        let max = locked.params.max_bytes();
        let mut wake = false;
        if locked.ended {
            locked.counts.dropped_shutdown += size.entries() as u64;
        } else if size.bytes() > max {
            notices.extend(locked.refuse(size));
        } else {
            locked.make_room(size, max, &mut victims, &mut notices);
            wake = locked.add(size, make);
        }
        drop(locked);
        if wake {
            self.wake.notify_one();
        }
        drop(victims);
        for notice in notices {
            self.report(&notice);
        }
    }

    /// Counts an item that is larger than the queue may be.
    pub(super) fn refuse(&self, size: Size) {
        let mut locked = self.lock();
        locked.counts.pushed += size.entries() as u64;
        let notice = locked.refuse(size);
        drop(locked);
        if let Some(notice) = notice {
            self.report(&notice);
        }
    }

    fn report(&self, notice: &Notice) {
        let tag = &self.tag;
        match notice {
            Notice::NearlyFull => tracing::warn!("{tag}: queue at 80% capacity"),
            Notice::Full { dropped } => tracing::error!(
                "{tag}: queue full, dropping old entries until processing is successful again ({dropped} dropped)"
            ),
            Notice::OutOfBytes { dropped } => {
                tracing::error!(
                    "{tag}: byte capacity exceeded, {dropped} queue entries were dropped"
                );
            }
            Notice::TooLarge {
                bytes,
                max,
                refused,
            } => tracing::error!(
                "{tag}: string to be queued is longer ({bytes} bytes) than the queue's max_bytes ({max} bytes) \
                 ({refused} refused)"
            ),
        }
    }

    /// Uses newer parameters and a newer sender, and returns the previous sender. The first value is `false` if the queue
    /// has ended.
    pub(super) fn renew(
        &self,
        params: &QueueParams,
        sender: &Sender<T>,
    ) -> (bool, Option<Sender<T>>) {
        let mut locked = self.lock();
        if locked.ended {
            return (false, None);
        }
        let previous = locked.renew(params, sender);
        drop(locked);
        // The task looks at the queue again, because a batch may be due now.
        self.wake.notify_one();
        (true, Some(previous))
    }

    /// Returns a new handle for a queue without handles, or `None` if it has ended.
    pub(super) fn revive(
        self: &Arc<Self>,
        params: &QueueParams,
        sender: &Sender<T>,
    ) -> Option<Arc<Queue<T>>> {
        let mut locked = self.lock();
        if locked.ended {
            return None;
        }
        locked.closed = None;
        locked.handle += 1;
        let number = locked.handle;
        let previous = locked.renew(params, sender);
        drop(locked);
        drop(previous);
        self.wake.notify_one();
        let state = self.clone();
        Some(Arc::new(Queue { state, number }))
    }

    /// Decides what the task does. `collecting` is the time at which it began to collect a batch.
    pub(super) fn next(
        &self,
        collecting: &mut Option<Instant>,
        sends: usize,
        (max_sends, draining): (usize, bool),
    ) -> Next {
        let mut locked = self.lock();
        let max_sends = match locked.params.concurrency_limit {
            super::Concurrency::One => 1,
            super::Concurrency::Unlimited => max_sends,
        };
        if sends >= max_sends {
            locked.wake_at = usize::MAX;
            return Next::Wait(None);
        }
        if locked.items.is_empty() {
            *collecting = None;
            if locked.closed.is_some() && sends == 0 {
                locked.ended = true;
                return Next::End;
            }
            locked.wake_at = 1;
            return Next::Wait(None);
        }
        let (waiting, full) = (locked.waiting, locked.params.batch_size());
        if waiting < full && !draining && locked.closed.is_none() {
            let began = *collecting.get_or_insert_with(Instant::now);
            let until = began + locked.params.coalescing_delay();
            if Instant::now() < until {
                locked.wake_at = full;
                return Next::Wait(Some(until));
            }
        }
        *collecting = None;
        locked.wake_at = usize::MAX;
        Next::Send(waiting.min(full))
    }

    /// Takes the oldest items that have together at most this number of entries, or a single one. The first value is how
    /// many entries there are: the batch has fewer values if items were joined.
    pub(super) fn take(&self, number: usize) -> (usize, Vec<T>) {
        let (mut taken, mut batch) = (0, Vec::new());
        let mut moved = Vec::with_capacity(number.min(TAKEN_AT_ONCE));
        let resumed;
        let _freed;
        loop {
            let mut locked = self.lock();
            let before = taken;
            while moved.len() < TAKEN_AT_ONCE
                && (locked.oldest()).is_some_and(|next| taken == 0 || taken + next <= number)
                && let Some(Item { of, size }) = locked.remove_oldest()
            {
                taken += size.entries();
                moved.push(of);
            }
            locked.counts.sending += (taken - before) as u64;
            let join = locked.sender.join;
            if moved.len() == TAKEN_AT_ONCE {
                drop(locked);
                append(&mut batch, &mut moved, join);
                continue;
            }
            locked.warned &= locked.waiting >= locked.warn_at;
            let dropped = std::mem::take(&mut locked.dropping);
            resumed = dropped && locked.reports.resumed.count(1).is_some();
            _freed = locked.spare_buffer();
            drop(locked);
            append(&mut batch, &mut moved, join);
            break;
        }
        if resumed {
            tracing::info!("{}: queue resumed processing", self.tag);
        }
        (taken, batch)
    }

    pub(super) fn sender(&self) -> (Sender<T>, Arc<QueueParams>) {
        let locked = self.lock();
        (locked.sender.clone(), locked.params.clone())
    }

    /// Logs a failed attempt.
    pub(super) fn failed(&self, error: &SendError) {
        let report = self.lock().reports.failed.count(1);
        let Some(times) = report else {
            return;
        };
        let error = &*error.reason;
        let shown = &error[..error.floor_char_boundary(LOGGED_ERROR)];
        tracing::warn!(
            "{}: handler could not process entries: {shown} ({times} attempts failed)",
            self.tag
        );
    }

    pub(super) fn retried(&self) {
        self.lock().counts.retried += 1;
    }

    /// Counts a batch that is no longer being sent.
    pub(super) fn finish(&self, entries: usize, outcome: Outcome) {
        let entries = entries as u64;
        let mut locked = self.lock();
        locked.counts.sending -= entries;
        let given_up = match outcome {
            Outcome::Sent => {
                locked.counts.sent += entries;
                locked.accepted = Some(Instant::now());
                None
            }
            // The failed attempt was logged.
            Outcome::Refused => {
                locked.counts.refused += entries;
                None
            }
            Outcome::GivenUp => {
                locked.counts.given_up += entries;
                locked.reports.given_up.count(entries)
            }
        };
        let idle = locked.is_idle();
        drop(locked);
        if idle {
            self.idle.notify_waiters();
        }
        if let Some(lost) = given_up {
            tracing::error!(
                "{}: could not send entries due to max_retry_time exceeded. {lost} queue entries were lost",
                self.tag
            );
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let locked = self.lock();
        Counts {
            waiting: locked.waiting as u64,
            ..locked.counts
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Locked<T>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State<Text> {
    /// Adds a copy of texts, to those that were pushed last if these are few. An item of its own for each push would take
    /// the lock longer, and memory that is not in the processor's cache.
    pub(super) fn push_texts(&self, size: Size, texts: &[u8]) {
        let mut locked = self.lock();
        locked.counts.pushed += size.entries() as u64;
        let has_room = locked.has_room(size);
        // An item is dropped as a whole, so it must be a small part of what may wait.
        let (most, most_bytes) = (
            locked.params.most_together() / 8,
            locked.params.max_bytes() / 8,
        );
        let Locked { items, chunk, .. } = &mut *locked;
        if let Some(Item { of, size: before }) = items.back_mut() {
            if has_room
                && before.entries() + size.entries() <= most
                && before.bytes() + size.bytes() <= most_bytes
                && of.extend(size.entries(), texts)
            {
                before.add(size);
                let wake = locked.count(size);
                return self.pushed(locked, wake);
            }
            chunk.close(of);
        }
        let open = |chunk: &mut Chunk, waiting| chunk.open(size.entries(), texts, waiting);
        if !has_room {
            return self.push_slow(locked, size, open);
        }
        let wake = locked.add(size, open);
        self.pushed(locked, wake);
    }
}

impl<T> Locked<T> {
    /// Whether an item can be added without looking at the limits.
    #[inline]
    fn has_room(&self, size: Size) -> bool {
        let fits = self.counts.bytes as usize + size.bytes() <= self.params.max_bytes();
        fits && self.waiting + size.entries() <= self.warn_at && !self.ended
    }

    /// Adds an item. Returns whether the task must be woken.
    #[inline]
    fn add(&mut self, size: Size, make: impl FnOnce(&mut Chunk, u64) -> T) -> bool {
        let of = make(&mut self.chunk, self.counts.bytes);
        self.items.push_back(Item { of, size });
        self.count(size)
    }

    /// Counts entries that were added. Returns whether the task must be woken.
    #[inline]
    fn count(&mut self, size: Size) -> bool {
        self.waiting += size.entries();
        self.counts.bytes += size.bytes() as u64;
        let wake = self.waiting >= self.wake_at;
        if wake {
            self.wake_at = usize::MAX;
        }
        wake
    }

    /// Counts an item that is larger than the queue may be. Returns a message if one is due.
    fn refuse(&mut self, size: Size) -> Option<Notice> {
        let entries = size.entries() as u64;
        self.counts.refused += entries;
        let refused = self.reports.too_large.count(entries)?;
        Some(Notice::TooLarge {
            bytes: size.bytes(),
            max: self.params.max_bytes(),
            refused,
        })
    }

    /// Drops the oldest items until there is room for one of this size.
    fn make_room(
        &mut self,
        size: Size,
        max_bytes: usize,
        victims: &mut Victims<T>,
        notices: &mut SmallVec<[Notice; 2]>,
    ) {
        if self.waiting >= self.warn_at
            && !std::mem::replace(&mut self.warned, true)
            && self.reports.nearly_full.count(1).is_some()
        {
            notices.push(Notice::NearlyFull);
        }
        let most = self.params.max_entries.max(1);
        let dropped = self.drop_while(victims, |queue| queue.waiting + size.entries() > most);
        if dropped > 0 {
            self.counts.dropped_entries += dropped;
            let report = self.reports.full.count(dropped);
            notices.extend(report.map(|dropped| Notice::Full { dropped }));
        }
        let dropped = self.drop_while(victims, |queue| {
            queue.counts.bytes as usize + size.bytes() > max_bytes
        });
        if dropped > 0 {
            self.counts.dropped_bytes += dropped;
            let report = self.reports.bytes.count(dropped);
            notices.extend(report.map(|dropped| Notice::OutOfBytes { dropped }));
        }
    }

    /// Drops the oldest items as long as there is too much. Returns the number of their entries.
    fn drop_while(&mut self, victims: &mut Victims<T>, is_full: impl Fn(&Self) -> bool) -> u64 {
        let before = self.waiting;
        while is_full(self)
            && let Some(oldest) = self.remove_oldest()
        {
            self.dropping = true;
            victims.push(oldest);
        }
        (before - self.waiting) as u64
    }

    /// Returns the number of entries of the oldest item.
    fn oldest(&self) -> Option<usize> {
        self.items.front().map(|item| item.size.entries())
    }

    fn remove_oldest(&mut self) -> Option<Item<T>> {
        let oldest = self.items.pop_front()?;
        self.waiting -= oldest.size.entries();
        self.counts.bytes -= oldest.size.bytes() as u64;
        Some(oldest)
    }

    fn renew(&mut self, params: &QueueParams, sender: &Sender<T>) -> Sender<T> {
        if *self.params != *params {
            self.params = Arc::new(params.clone());
            self.warn_at = params.warn_at();
        }
        std::mem::replace(&mut self.sender, sender.clone())
    }

    /// Returns the buffer of an empty queue if it is large, so that it is freed without the lock.
    fn spare_buffer(&mut self) -> Option<VecDeque<Item<T>>> {
        let large = self.items.is_empty() && self.items.capacity() > KEPT_CAPACITY;
        large.then(|| std::mem::take(&mut self.items))
    }

    fn is_idle(&self) -> bool {
        self.items.is_empty() && self.counts.sending == 0
    }
}

/// Moves entries to the end of a batch, joined where possible.
fn append<T>(batch: &mut Vec<T>, moved: &mut Vec<T>, join: Option<Join<T>>) {
    let Some(join) = join else {
        return batch.append(moved);
    };
    for entry in moved.drain(..) {
        let apart = match batch.last_mut() {
            Some(last) => join(last, entry),
            None => Some(entry),
        };
        batch.extend(apart);
    }
}

impl Report {
    /// Counts cases. Returns the number of cases to report if a message is due.
    fn count(&mut self, cases: u64) -> Option<u64> {
        self.unreported += cases;
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last < LOG_INTERVAL) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unreported))
    }
}

impl<T: Send + Sync + 'static> Listed for State<T> {
    fn names(&self) -> (&str, &str) {
        (&self.plugin, &self.name)
    }

    fn counts(&self) -> Counts {
        self.counts()
    }

    fn idle(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let mut idle = std::pin::pin!(self.idle.notified());
                // The notification is enabled before the check, so that a change in between is not missed.
                idle.as_mut().enable();
                if self.lock().is_idle() {
                    return;
                }
                idle.await;
            }
        })
    }

    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
