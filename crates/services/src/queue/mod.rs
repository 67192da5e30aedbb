//! Queues from the data plane to slow receivers such as log servers: Kong's plugin queue (kong/tools/queue.lua).
//!
//! The contract:
//!
//! - [`Queue::push`] never waits and never fails. It costs a short critical section and allocates nothing (growth of the
//!   buffer apart), and it wakes the background only if a batch can start.
//! - Texts are copied into chunks ([`Queue::push_text`]), and a batch of texts has few pieces ([`Text`]). Texts that are
//!   pushed together stay together, and each of them counts as an entry.
//! - A batch is sent when it has `max_batch_size` entries, or when `max_coalescing_delay` has passed since the queue began
//!   to collect it. The sender gets the entries in the order of their pushes.
//! - A failed batch is sent again with exponential back-off, or later if the receiver asks for it. It is given up after
//!   `max_retry_time`. Entries that arrive meanwhile wait.
//! - Memory is bounded by `max_entries` and `max_bytes`, plus the batch that is being sent. When a limit is reached, the
//!   oldest waiting entries are dropped. An entry larger than `max_bytes` is refused. Every loss is counted by its cause,
//!   and logged in Kong's words at most once per [`LOG_INTERVAL`].
//! - A queue is found by plugin and name, so it outlives changes of the configuration that do not concern it. It uses the
//!   newest parameters and sender. When its last handle is dropped, it sends what it holds at once and ends. If it is
//!   asked for again before that, it continues. A receiver that then accepts nothing for 10 seconds, or not all
//!   within 60, loses the rest.
//! - [`Queues::drain`] sends what all queues hold, without waiting for batches to fill up. What is left at the deadline is
//!   dropped, counted and logged, and before that what a receiver that accepts nothing for 5 seconds should
//!   get.
//!
//! With [`Concurrency::Unlimited`], Kong keeps no queue at all and its memory is not bounded. Here at most
//! [`MAX_SENDS`] entries are sent at once, and the others wait within the limits of the queue.

mod drain;
mod ending;
mod params;
mod state;
mod statistics;
mod task;
#[cfg(test)]
mod tests;
mod text;

pub use params::{Concurrency, DEFAULT_MAX_BYTES, QueueParams};
pub use state::LOG_INTERVAL;
pub use statistics::{Counts, QueueCounts};
pub use task::MAX_SENDS;
pub use text::{Text, Unwritten};

use crate::background::Background;
use crate::http::without_userinfo;
use drain::Drain;
use futures_util::future::{BoxFuture, join_all};
use state::{Listed, Size, State};
use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::{Future, ready};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Number of queues below which ended ones are not looked for.
const FIRST_SWEEP: usize = 64;
/// Time after the deadline of a drain in which the queues count what they drop.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// All queues of the node. Clones share them.
#[derive(Clone)]
pub struct Queues(Arc<Inner>);

struct Inner {
    background: Background,
    drain: Arc<Drain>,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    queues: HashMap<Key, Registered>,
    /// Counters of the queues that have ended, by plugin.
    ended: BTreeMap<Box<str>, Counts>,
    /// Number of entries at which ended queues are removed.
    sweep_at: usize,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    plugin: Box<str>,
    name: Box<str>,
    /// The type of the entries.
    of: TypeId,
}

struct Registered {
    /// The `Queue<T>` that the holders share.
    queue: Weak<dyn Any + Send + Sync>,
    /// The `State<T>`, which outlives its holders until everything is sent. It stays here until its counters are added to
    /// those of the queues that have ended.
    state: Arc<dyn Listed>,
}

/// A queue of entries. When the last `Arc` of it is dropped, the queue sends what it holds and ends.
pub struct Queue<T> {
    state: Arc<State<T>>,
    /// Number of this handle among those of the queue. Only the newest can close the queue.
    number: u64,
}

/// Sends batches of entries. If it fails, it is called again with the same batch.
///
/// It must end: the queue waits for it without a time limit, except during a drain.
pub struct Sender<T> {
    send: Arc<SendFn<T>>,
    join: Option<Join<T>>,
    prepare: Option<Prepare<T>>,
}

/// Joins an entry to the one before it in a batch, or returns it.
type Join<T> = fn(&mut T, T) -> Option<T>;

/// Prepares a batch once, before it is sent for the first time.
type Prepare<T> = fn(Vec<T>) -> BoxFuture<'static, Vec<T>>;

type SendFn<T> = dyn Fn(Arc<Vec<T>>) -> BoxFuture<'static, Result<(), SendError>> + Send + Sync;

/// Why a batch could not be sent, for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct SendError {
    reason: Box<str>,
    /// Number of entries that can never be sent, if the others were. `None` if the batch is to be sent again.
    lost: Option<usize>,
    /// How long the receiver wants to be left alone.
    pause: Option<Duration>,
}

impl SendError {
    /// The batch is to be sent again.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self {
            reason: reason.to_string().into(),
            lost: None,
            pause: None,
        }
    }

    /// The next attempt is not earlier than after this time, or after `max_retry_delay` if that is shorter.
    #[must_use]
    pub fn after(self, pause: Duration) -> Self {
        Self {
            pause: Some(pause),
            ..self
        }
    }

    /// This number of entries was not accepted and never will be. The others were sent.
    pub fn lost(entries: usize, reason: impl fmt::Display) -> Self {
        Self {
            reason: reason.to_string().into(),
            lost: Some(entries),
            pause: None,
        }
    }
}

impl<T> Sender<T> {
    pub fn new<F>(send: impl Fn(Arc<Vec<T>>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), SendError>> + Send + 'static,
    {
        Self {
            send: Arc::new(move |batch| Box::pin(send(batch))),
            join: None,
            prepare: None,
        }
    }

    /// The sender of a queue that has ended.
    fn none() -> Self {
        Self {
            send: Arc::new(|_| Box::pin(ready(Ok(())))),
            join: None,
            prepare: None,
        }
    }

    async fn send(&self, batch: Arc<Vec<T>>) -> Result<(), SendError> {
        (self.send)(batch).await
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            send: self.send.clone(),
            join: self.join,
            prepare: self.prepare,
        }
    }
}

impl Queues {
    pub fn new(background: Background) -> Self {
        Self(Arc::new(Inner {
            background,
            drain: Arc::default(),
            registry: Mutex::default(),
        }))
    }

    /// Returns the queue of this name, and makes it if there is none. An existing queue takes over the parameters and the
    /// sender. It takes a lock, so plugins call it when they start, and keep the queue.
    pub fn get<T: Send + Sync + 'static>(
        &self,
        plugin: &str,
        name: &str,
        params: QueueParams,
        sender: Sender<T>,
    ) -> Arc<Queue<T>> {
        let key = Key {
            plugin: plugin.into(),
            name: name.into(),
            of: TypeId::of::<T>(),
        };
        // The previous sender is dropped after the lock of the registry, because it can hold anything.
        let _previous;
        let mut registry = self.0.registry();
        if let Some(known) = registry.queues.get_mut(&key) {
            if let Some(queue) = known.queue::<T>() {
                let (taken, previous) = queue.state.renew(&params, &sender);
                _previous = previous;
                if taken {
                    return queue;
                }
            } else if let Some(queue) = known
                .state::<T>()
                .and_then(|state| state.revive(&params, &sender))
            {
                known.queue = Arc::downgrade(&queue) as Weak<dyn Any + Send + Sync>;
                return queue;
            }
        }
        let shown = shown(name);
        let (state, queue) = State::new((plugin, &shown), params, sender);
        let task = task::run(state, self.0.drain.clone());
        self.0.background.spawn_service(task);
        registry.insert(key, &queue);
        queue
    }

    /// Sends what the queues hold. Batches do not wait for more entries, and waiting retries start at once. At the
    /// deadline the queues drop the rest and end. Returns the number of entries that were lost during the drain.
    pub async fn drain(&self, deadline: Instant) -> u64 {
        let queues = self.0.states();
        let lost = |queues: &[Arc<dyn Listed>]| -> u64 {
            queues.iter().map(|queue| queue.counts().lost()).sum()
        };
        let before = lost(&queues);
        self.0.drain.begin(deadline);
        let idle = join_all(queues.iter().map(|queue| queue.clone().idle()));
        // A queue whose task is blocked must not hold up the shutdown.
        let _ = timeout_at(deadline + DRAIN_GRACE, idle).await;
        lost(&queues) - before
    }

    /// Returns the counters of every queue.
    pub fn counts(&self) -> Vec<QueueCounts> {
        self.0.counts()
    }
}

impl Inner {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn states(&self) -> Vec<Arc<dyn Listed>> {
        self.registry().states()
    }
}

impl Registry {
    fn insert<T: Send + Sync + 'static>(&mut self, key: Key, queue: &Arc<Queue<T>>) {
        if self.queues.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.sweep();
            self.sweep_at = 2 * self.queues.len();
        }
        let state = queue.state.clone();
        let queue = Arc::downgrade(queue) as Weak<dyn Any + Send + Sync>;
        if let Some(replaced) = self.queues.insert(key, Registered { queue, state }) {
            count_ended(&mut self.ended, &*replaced.state);
        }
    }

    fn states(&self) -> Vec<Arc<dyn Listed>> {
        let known = self.queues.values();
        known.map(|known| known.state.clone()).collect()
    }

    /// Removes the queues that have ended, and keeps their counters by plugin.
    fn sweep(&mut self) {
        let ended = &mut self.ended;
        self.queues.retain(|_, known| {
            // Its task and all its handles are gone, so nothing can change its counters.
            let is_over = Arc::strong_count(&known.state) == 1;
            if is_over {
                count_ended(ended, &*known.state);
            }
            !is_over
        });
    }
}

/// Paths of receivers that have no secret.
const KNOWN_PATHS: [&str; 6] = [
    "/",
    "/v1/traces",
    "/v1/logs",
    "/v1/metrics",
    "/api/v1/spans",
    "/api/v2/spans",
];

/// Returns the name of a queue for the log and for metrics: without what may be secret in a URL, which is its user
/// information, its query, and its path, since webhooks and log services have tokens there. What follows a URL cannot be
/// told from it. So a hash keeps such names apart.
fn shown(name: &str) -> Cow<'_, str> {
    let shown = without_userinfo(name);
    let Some(start) = shown.find("://").map(|at| at + 3) else {
        return shown;
    };
    let Some(end) = shown[start..].find(['/', '?', '#', '\\']) else {
        return shown;
    };
    let (place, rest) = shown.split_at(start + end);
    let path = rest.split(':').next().unwrap_or_default();
    if KNOWN_PATHS.contains(&path) && !rest.contains('?') {
        return shown;
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("{place}/***:{:x}", hasher.finish()).into()
}

fn count_ended(ended: &mut BTreeMap<Box<str>, Counts>, state: &dyn Listed) {
    let (plugin, _) = state.names();
    *ended.entry(plugin.into()).or_default() += state.counts();
}

impl Registered {
    fn queue<T: Send + Sync + 'static>(&self) -> Option<Arc<Queue<T>>> {
        self.queue.upgrade()?.downcast().ok()
    }

    fn state<T: Send + Sync + 'static>(&self) -> Option<Arc<State<T>>> {
        self.state.clone().any().downcast().ok()
    }
}

impl<T> Queue<T> {
    /// Adds an entry, whose size counts against `max_bytes`. It never waits for the receiver of the entries.
    #[inline]
    pub fn push(&self, entry: T, bytes: usize) {
        self.state.push(Size::new(1, bytes), |_, _| entry);
    }

    pub fn counts(&self) -> Counts {
        self.state.counts()
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        self.state.close(self.number);
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Queue({})", self.state.tag)
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = self.0.states().len();
        formatter
            .debug_struct("Queues")
            .field("queues", &queues)
            .finish()
    }
}
