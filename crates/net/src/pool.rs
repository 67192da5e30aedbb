//! Idle upstream connections of one worker. Each target has a stack with the most recently used connection on top. Each
//! target also has a [`Slot`], whose number is the index of its stack; so no hash lookup is needed.

use crate::gate::Gate;
use crate::stream::Stream;
use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::task::Context;
use std::time::Duration;
use tokio::time::Instant;

/// Kong's `upstream_keepalive_*` settings.
#[derive(Debug, Clone, Copy)]
pub struct PoolSettings {
    /// Maximum idle connections per worker and target. With 0, every connection is used for one request only.
    pub size: usize,
    /// Maximum requests per connection. Zero means no limit.
    pub max_requests: u32,
    /// Maximum idle time of a connection. Zero means no limit.
    pub idle: Duration,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            size: 512,
            max_requests: 10_000,
            idle: Duration::from_secs(60),
        }
    }
}

/// Key of connections that can be shared: same host, same port, and for TLS the same trust and client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotKey {
    pub host: String,
    pub port: u16,
    /// [`ClientTls::number`](crate::tls::ClientTls::number) of the TLS settings; `None` without TLS.
    pub tls: Option<usize>,
}

/// A slot in every worker's pool. When no snapshot or request refers to it any more, its number can be reused.
#[derive(Debug)]
pub struct Slot {
    number: usize,
    /// Distinguishes successive slots that have the same number.
    generation: u64,
    key: SlotKey,
}

#[derive(Debug, Default)]
struct Slots {
    by_key: HashMap<SlotKey, Weak<Slot>>,
    free: Vec<usize>,
    used: usize,
    generation: u64,
}

static SLOTS: LazyLock<Mutex<Slots>> = LazyLock::new(Mutex::default);

impl Slot {
    /// Returns the slot of a key. This takes a global lock, so call it when building snapshots, not per request.
    pub fn of(key: SlotKey) -> Arc<Self> {
        let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.by_key.get(&key).and_then(Weak::upgrade) {
            return slot;
        }
        let number = slots.free.pop().unwrap_or_else(|| {
            slots.used += 1;
            slots.used - 1
        });
        slots.generation += 1;
        let slot = Arc::new(Self {
            number,
            generation: slots.generation,
            key: key.clone(),
        });
        slots.by_key.insert(key, Arc::downgrade(&slot));
        slot
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        slots.free.push(self.number);
        // Keep the entry if it has a newer slot. Another thread can create one for the same key after the last
        // reference was dropped and before this lock was taken.
        let dead = |slot: &Weak<Slot>| slot.strong_count() == 0;
        if slots.by_key.get(&self.key).is_some_and(dead) {
            slots.by_key.remove(&self.key);
        }
    }
}

/// An upstream connection, and the data that is needed to return it to the pool. It is always boxed, because it is
/// moved several times per request.
#[derive(Debug)]
pub struct Connection {
    pub stream: Stream,
    pub address: SocketAddr,
    /// Server name sent in the TLS handshake. A connection is reused only for the same name.
    pub sni: Option<Arc<str>>,
    /// Number of responses received on the connection.
    pub requests: u32,
    /// Counts the connection as open. `None` for a stream of a shared connection.
    pub open: Option<Open>,
}

thread_local! {
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// Counts an open connection of this thread until it is dropped.
#[derive(Debug)]
pub struct Open(());

impl Open {
    #[expect(
        clippy::new_without_default,
        reason = "a default would hide that it counts"
    )]
    pub fn new() -> Self {
        OPEN.set(OPEN.get() + 1);
        Self(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN.set(OPEN.get().saturating_sub(1));
    }
}

/// Returns the number of open connections of this thread, idle or in use.
pub fn open_connections() -> usize {
    OPEN.get()
}

#[derive(Debug)]
struct Idle {
    connection: Box<Connection>,
    /// `None` if the connection never expires.
    expires: Option<Instant>,
}

impl Idle {
    fn is_fresh(&self, now: Instant) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

#[derive(Debug, Default)]
struct IdleSlot {
    generation: u64,
    /// Has no strong references any more when no target uses the connections.
    slot: Weak<Slot>,
    idle: Vec<Idle>,
    /// Limit of concurrent requests. It is created on first use, if there is a limit.
    gate: Option<Arc<Gate>>,
}

/// The idle connections of one worker.
#[derive(Debug, Default)]
pub struct Pool {
    settings: PoolSettings,
    places: Vec<IdleSlot>,
}

impl Pool {
    pub fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            places: Vec::new(),
        }
    }

    /// Removes a usable idle connection to the address from the pool and returns it.
    #[inline]
    pub fn take(
        &mut self,
        slot: &Arc<Slot>,
        address: SocketAddr,
        sni: Option<&str>,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Option<Box<Connection>> {
        let place = self.place(slot);
        loop {
            let found = place.idle.iter().rposition(|idle| {
                idle.connection.address == address && idle.connection.sni.as_deref() == sni
            })?;
            let mut idle = place.idle.remove(found);
            if idle.is_fresh(now) && idle.connection.stream.is_quiet(cx) {
                return Some(idle.connection);
            }
        }
    }

    /// Returns the gate that admits at most `requests` concurrent requests to a target.
    pub fn gate(&mut self, slot: &Arc<Slot>, requests: usize) -> Arc<Gate> {
        let gate = &mut self.place(slot).gate;
        gate.get_or_insert_with(|| Arc::new(Gate::new(requests)))
            .clone()
    }

    /// Puts a connection back into the pool after a complete response.
    #[inline]
    pub fn give(&mut self, slot: &Arc<Slot>, connection: Box<Connection>, now: Instant) {
        let settings = self.settings;
        let worn = settings.max_requests != 0 && connection.requests >= settings.max_requests;
        if settings.size == 0 || worn {
            return;
        }
        let place = self.place(slot);
        if place.idle.len() >= settings.size {
            // Drop the oldest connection, because the target is likely to close it first.
            place.idle.remove(0);
        }
        place.idle.push(Idle {
            connection,
            expires: (!settings.idle.is_zero()).then(|| now + settings.idle),
        });
    }

    /// Closes expired connections and connections to removed targets. A timer calls this every few seconds.
    pub fn sweep(&mut self, now: Instant) {
        for place in &mut self.places {
            match place.slot.strong_count() {
                0 => place.idle.clear(),
                _ => place.idle.retain(|idle| idle.is_fresh(now)),
            }
            if place.idle.is_empty() {
                place.idle = Vec::new();
            }
        }
    }

    /// Closes all idle connections to free their descriptors.
    pub fn clear(&mut self) {
        self.places
            .iter_mut()
            .for_each(|place| place.idle = Vec::new());
    }

    /// Returns the number of idle connections.
    pub fn idle_connections(&self) -> usize {
        self.places.iter().map(|place| place.idle.len()).sum()
    }

    #[inline]
    fn place(&mut self, slot: &Arc<Slot>) -> &mut IdleSlot {
        let current = |place: &IdleSlot| place.generation == slot.generation;
        if !self.places.get(slot.number).is_some_and(current) {
            self.renew(slot);
        }
        &mut self.places[slot.number]
    }

    #[cold]
    fn renew(&mut self, slot: &Arc<Slot>) {
        if self.places.len() <= slot.number {
            self.places.resize_with(slot.number + 1, IdleSlot::default);
        }
        // The stack belonged to an earlier slot. A number is reused only after its slot was dropped, so the connections
        // can be closed.
        self.places[slot.number] = IdleSlot {
            generation: slot.generation,
            slot: Arc::downgrade(slot),
            idle: Vec::new(),
            gate: None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;
    use tokio::net::{TcpListener, TcpStream};

    fn slot(host: &str) -> Arc<Slot> {
        Slot::of(SlotKey {
            host: host.into(),
            port: 80,
            tls: None,
        })
    }

    async fn pair() -> (Box<Connection>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let connection = Connection {
            stream: Stream::Tcp(stream),
            address,
            sni: None,
            requests: 1,
            open: None,
        };
        (Box::new(connection), listener.accept().await.unwrap().0)
    }

    async fn take(pool: &mut Pool, slot: &Arc<Slot>, address: SocketAddr, now: Instant) -> bool {
        poll_fn(|cx| Poll::Ready(pool.take(slot, address, None, now, cx).is_some())).await
    }

    #[test]
    fn a_key_has_one_slot_while_it_is_used() {
        let (one, same) = (slot("pool-a"), slot("pool-a"));
        assert!(Arc::ptr_eq(&one, &same));
        let generation = one.generation;
        drop((one, same));
        assert_ne!(slot("pool-a").generation, generation);
    }

    #[tokio::test]
    async fn a_connection_is_reused_until_it_is_too_old() {
        let (slot, now) = (slot("pool-b"), Instant::now());
        let mut pool = Pool::new(PoolSettings::default());
        let (connection, _peer) = pair().await;
        let address = connection.address;
        pool.give(&slot, connection, now);
        assert!(take(&mut pool, &slot, address, now).await);
        let (connection, _peer) = pair().await;
        let address = connection.address;
        pool.give(&slot, connection, now);
        assert!(!take(&mut pool, &slot, address, now + Duration::from_secs(60)).await);
    }

    #[tokio::test]
    async fn a_connection_that_the_peer_closed_is_not_reused() {
        let (slot, now) = (slot("pool-c"), Instant::now());
        let mut pool = Pool::new(PoolSettings::default());
        let (mut connection, peer) = pair().await;
        let address = connection.address;
        poll_fn(|cx| Poll::Ready(connection.stream.is_quiet(cx))).await;
        drop(peer);
        connection.stream.tcp().unwrap().readable().await.unwrap();
        pool.give(&slot, connection, now);
        assert!(!take(&mut pool, &slot, address, now).await);
    }

    #[tokio::test]
    async fn size_and_requests_are_limited() {
        let (slot, now) = (slot("pool-d"), Instant::now());
        let mut pool = Pool::new(PoolSettings {
            size: 1,
            max_requests: 2,
            ..PoolSettings::default()
        });
        let ((one, _a), (two, _b), (mut worn, _c)) = (pair().await, pair().await, pair().await);
        worn.requests = 2;
        pool.give(&slot, one, now);
        pool.give(&slot, two, now);
        pool.give(&slot, worn, now);
        assert_eq!(pool.idle_connections(), 1);
        pool.sweep(now + Duration::from_secs(61));
        assert_eq!(pool.idle_connections(), 0);
    }

    #[tokio::test]
    async fn connections_to_a_target_that_is_gone_are_closed_though_they_never_expire() {
        let (kept, gone, now) = (slot("pool-f"), slot("pool-g"), Instant::now());
        let mut pool = Pool::new(PoolSettings {
            idle: Duration::ZERO,
            ..PoolSettings::default()
        });
        let ((one, _one), (two, mut closed)) = (pair().await, pair().await);
        pool.give(&kept, one, now);
        pool.give(&gone, two, now);
        pool.sweep(now);
        assert_eq!(pool.idle_connections(), 2);
        drop(gone);
        pool.sweep(now);
        assert_eq!(pool.idle_connections(), 1);
        let read = tokio::io::AsyncReadExt::read(&mut closed, &mut [0]).await;
        assert_eq!(read.unwrap(), 0, "the other side sees the end");
    }

    #[tokio::test]
    async fn zero_requests_are_no_limit() {
        let (slot, now) = (slot("pool-e"), Instant::now());
        let mut pool = Pool::new(PoolSettings {
            max_requests: 0,
            ..PoolSettings::default()
        });
        let (mut worn, _peer) = pair().await;
        worn.requests = u32::MAX;
        pool.give(&slot, worn, now);
        assert_eq!(pool.idle_connections(), 1);
    }
}
