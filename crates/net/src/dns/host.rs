//! The handle of a name, and the resolver that creates handles. Requests read the current answer without a lock. A
//! request waits only if a name has no answer yet, or if an answer with TTL 0 is older than a second.

use super::answer::{DnsAnswer, ResolveError};
use super::background::{Background, Command, Ends};
use super::name::normal;
use super::parse_ip;
use super::settings::DnsSettings;
use super::statistics::{Counters, Statistics, Totals};
use arc_swap::{ArcSwapOption, Guard};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout};

/// Minimum interval between queries for an answer with TTL 0, however many requests use it.
pub(super) const PER_USE_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum age at which an answer with TTL 0 is used while a new query runs. Requests wait if it is older.
const PER_USE_AGE: Duration = Duration::from_secs(1);
/// Maximum time that a request waits for a replacement of an answer with TTL 0. After that, it uses the old answer.
const PER_USE_PATIENCE: Duration = Duration::from_secs(1);

static ID: AtomicU64 = AtomicU64::new(1);

/// Creates the handles of names. A clone is cheap, and all clones share their names and answers.
#[derive(Clone)]
pub struct Resolver(Arc<Shared>);

pub(super) struct Shared {
    hosts: Mutex<Hosts>,
    commands: mpsc::UnboundedSender<Command>,
    statistics: Arc<Statistics>,
    /// Number of changes of answers, of all names together.
    changes: watch::Sender<u64>,
}

/// Handles in use, by normalised name and port.
#[derive(Default)]
struct Hosts(HashMap<(Box<str>, u16), Weak<Host>>);

/// A name (or an address) with a port. While a handle exists, its answer is kept up to date.
pub struct Host {
    /// Unique among the handles of names. Handles of addresses have 0.
    id: u64,
    name: Box<str>,
    port: u16,
    source: Source,
}

enum Source {
    /// The host is an address, not a name.
    Fixed(SocketAddr),
    Named(Box<Named>),
}

struct Named {
    me: Weak<Host>,
    shared: Arc<Shared>,
    known: ArcSwapOption<KnownAnswer>,
    /// Notified of every change of `known`.
    changed: Notify,
    turns: AtomicUsize,
    /// Number of requests that had to wait for an answer.
    waits: AtomicUsize,
    /// Number of requests for which the current answer was an error.
    errors: AtomicUsize,
    /// Number of failed lookups during which the previous answer stayed in use.
    stale: AtomicUsize,
    /// Whether the background has been sent [`Command::Ask`] and has not delivered an answer since.
    asked: AtomicBool,
}

/// The latest answer for a name, or the error.
#[derive(Debug)]
pub(super) struct KnownAnswer {
    pub(super) outcome: Result<Arc<DnsAnswer>, ResolveError>,
    pub(super) at: Instant,
    pub(super) renewal: Renewal,
}

/// The party that starts the renewal of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// The background, before the answer expires.
    Ahead,
    /// The requests that use the answer, because its TTL is 0.
    PerUse,
    /// The background, after a failed lookup. A request that gets the error makes the next lookup start earlier.
    Hurried,
}

/// Result of [`Host::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Address(SocketAddr),
    /// There is no usable answer yet. Wait with [`Host::resolved`], then call [`Host::next`] again.
    Wait,
    Error(ResolveError),
}

impl Resolver {
    /// Creates a resolver and its background half. Names are resolved only while the background half runs.
    pub fn new(settings: DnsSettings) -> (Self, Background) {
        Self::with_background(|ends| Background::new(settings, ends))
    }

    pub(super) fn with_background(
        background: impl FnOnce(Ends) -> Background,
    ) -> (Self, Background) {
        let (commands, received) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            hosts: Mutex::default(),
            commands,
            statistics: Arc::default(),
            changes: watch::Sender::new(0),
        });
        let ends = Ends {
            commands: received,
            statistics: shared.statistics.clone(),
        };
        (Self(shared), background(ends))
    }

    /// Returns the handle of a name and starts to resolve it. It takes a lock, so call it when building snapshots, not
    /// per request.
    pub fn host(&self, name: &str, port: u16) -> Arc<Host> {
        let name = normal(name);
        if let Some(ip) = parse_ip(&name) {
            return Host::fixed(name, ip, port);
        }
        let mut hosts = self.0.hosts();
        let key = (name, port);
        if let Some(host) = hosts.0.get(&key).and_then(Weak::upgrade) {
            return host;
        }
        let host = Host::named(key.clone(), self.0.clone());
        hosts.0.insert(key, Arc::downgrade(&host));
        drop(hosts);
        if let Source::Named(named) = &host.source {
            named.ask();
        }
        host
    }

    /// Changes the settings and reads the files named in them again. Current answers stay in use until they are
    /// replaced.
    pub fn reload(&self, settings: DnsSettings) {
        let _ = self.0.commands.send(Command::Reload(settings));
    }

    /// Returns a receiver that is notified whenever the answer of any name changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Returns the handles in use.
    pub fn hosts(&self) -> Vec<Arc<Host>> {
        self.0
            .hosts()
            .0
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Returns counters named as in Kong's newer DNS client. The key `name:all` has the number of uses of a name by
    /// requests. Keys such as `name:A` have the outcomes of the queries for one record type.
    pub fn statistics(&self) -> Counters {
        let mut counters = Counters::new();
        self.0.statistics.collect(&mut counters);
        for host in self.hosts() {
            let key = format!("{}:all", host.name());
            host.count_into(counters.entry(key).or_default());
        }
        counters
    }

    /// Returns the totals of all queries since the start.
    pub fn totals(&self) -> Totals {
        self.0.statistics.totals()
    }
}

/// A resolver whose background half does not run, so that it resolves only addresses.
impl Default for Resolver {
    fn default() -> Self {
        Self::new(DnsSettings::default()).0
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Resolver")
            .field("hosts", &self.0.hosts().0.len())
            .finish()
    }
}

impl Shared {
    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    fn fixed(name: Box<str>, ip: IpAddr, port: u16) -> Arc<Self> {
        Arc::new(Self {
            id: 0,
            name,
            port,
            source: Source::Fixed(SocketAddr::new(ip, port)),
        })
    }

    fn named((name, port): (Box<str>, u16), shared: Arc<Shared>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            id: ID.fetch_add(1, Ordering::Relaxed),
            name,
            port,
            source: Source::Named(Box::new(Named {
                me: me.clone(),
                shared,
                known: ArcSwapOption::empty(),
                changed: Notify::new(),
                turns: AtomicUsize::new(0),
                waits: AtomicUsize::new(0),
                errors: AtomicUsize::new(0),
                stale: AtomicUsize::new(0),
                asked: AtomicBool::new(false),
            })),
        })
    }

    /// Returns the name in lower case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the host is an address, not a name.
    pub fn is_address(&self) -> bool {
        matches!(self.source, Source::Fixed(_))
    }

    /// Returns the port of the handle. The port of an SRV record overrides it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the next address to connect to. The records take turns. Addresses in `avoid` are used only if there are
    /// no others.
    #[inline]
    pub fn next(&self, avoid: &[SocketAddr]) -> Next {
        match &self.source {
            Source::Fixed(address) => Next::Address(*address),
            Source::Named(named) => named.next(avoid),
        }
    }

    /// Returns the current answer, or `None` before the first one. If there is no answer or its users must renew it,
    /// the call also starts a query.
    pub fn answer(&self) -> Option<Result<Arc<DnsAnswer>, ResolveError>> {
        match &self.source {
            Source::Fixed(address) => Some(Ok(Arc::new(DnsAnswer::fixed(*address)))),
            Source::Named(named) => {
                let known = named.known();
                known.as_ref().map(|known| known.outcome.clone())
            }
        }
    }

    /// Returns a number that changes whenever the answer changes. It is 0 before the first answer. The call starts no
    /// query.
    pub fn number(&self) -> u64 {
        match &self.source {
            Source::Fixed(_) => DnsAnswer::FIXED,
            Source::Named(named) => named
                .known
                .load()
                .as_ref()
                .map_or(0, |known| known.number()),
        }
    }

    /// Waits for a usable answer, at most as long as `limit`.
    pub async fn resolved(&self, limit: Duration) -> Result<Arc<DnsAnswer>, ResolveError> {
        match &self.source {
            Source::Fixed(address) => Ok(Arc::new(DnsAnswer::fixed(*address))),
            Source::Named(named) => match timeout(named.patience(limit), named.resolved()).await {
                Ok(resolved) => resolved,
                // An old answer is better than none.
                Err(_) => match &*named.known.load() {
                    Some(known) => known.outcome.clone(),
                    None => Err(ResolveError::Timeout),
                },
            },
        }
    }

    /// Adds the counters of this handle to `counters`, which may already contain those of the same name with another
    /// port.
    fn count_into(&self, counters: &mut BTreeMap<String, u64>) {
        let Source::Named(named) = &self.source else {
            return;
        };
        let load = |counter: &AtomicUsize| counter.load(Ordering::Relaxed) as u64;
        let (runs, misses, fails) = (load(&named.turns), load(&named.waits), load(&named.errors));
        for (name, count) in [
            ("runs", runs),
            ("hit_lru", runs.saturating_sub(misses + fails)),
            ("miss", misses),
            ("fail", fails),
            ("stale", load(&named.stale)),
        ] {
            if count > 0 || name == "runs" {
                *counters.entry(name.to_owned()).or_default() += count;
            }
        }
    }

    /// Replaces the answer and wakes all waiting requests. Only the background calls this.
    pub(super) fn learn(&self, known: KnownAnswer) {
        if let Source::Named(named) = &self.source {
            let number = known.number();
            let former = named.known.swap(Some(Arc::new(known)));
            named.asked.store(false, Ordering::Release);
            named.changed.notify_waiters();
            if former.is_none_or(|former| former.number() != number) {
                let changes = &named.shared.changes;
                changes.send_modify(|number| *number = number.wrapping_add(1));
            }
        }
    }

    pub(super) fn count_stale(&self) {
        if let Source::Named(named) = &self.source {
            named.stale.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn known(&self) -> Option<Arc<KnownAnswer>> {
        match &self.source {
            Source::Fixed(..) => None,
            Source::Named(named) => named.known.load_full(),
        }
    }
}

impl Named {
    fn next(&self, avoid: &[SocketAddr]) -> Next {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        match &*self.known() {
            Some(known) if known.must_be_renewed() => Next::Wait,
            Some(known) => match &known.outcome {
                Ok(answer) => Next::Address(answer.pick(turn, avoid).address),
                Err(error) => {
                    self.errors.fetch_add(1, Ordering::Relaxed);
                    Next::Error(*error)
                }
            },
            None => Next::Wait,
        }
    }

    /// Returns the current answer. Starts a query if there is no answer or if its users must renew it.
    #[inline]
    fn known(&self) -> Guard<Option<Arc<KnownAnswer>>> {
        let known = self.known.load();
        if !known.as_ref().is_some_and(|known| known.is_current()) {
            self.ask();
        }
        known
    }

    #[cold]
    fn ask(&self) {
        if !self.asked.swap(true, Ordering::AcqRel) {
            let _ = self.shared.commands.send(Command::Ask(self.me.clone()));
        }
    }

    /// Limits the wait for a new answer if there is an old one.
    fn patience(&self, limit: Duration) -> Duration {
        match &*self.known.load() {
            Some(_) => limit.min(PER_USE_PATIENCE),
            None => limit,
        }
    }

    async fn resolved(&self) -> Result<Arc<DnsAnswer>, ResolveError> {
        let mut waits = false;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // The notification is enabled before the check, so that a change in between is not missed.
            changed.as_mut().enable();
            if let Some(known) = &*self.known()
                && !known.must_be_renewed()
            {
                return known.outcome.clone();
            }
            let hurry = Command::Hurry(self.me.clone());
            if self.shared.commands.send(hurry).is_err() {
                return Err(ResolveError::Stopped);
            }
            if !std::mem::replace(&mut waits, true) {
                self.waits.fetch_add(1, Ordering::Relaxed);
            }
            changed.await;
        }
    }
}

impl KnownAnswer {
    /// Returns the number of the answer. All errors have the same number.
    fn number(&self) -> u64 {
        self.outcome
            .as_ref()
            .map_or(u64::MAX, |answer| answer.number)
    }

    /// Whether the answer can be used without starting a query.
    #[inline]
    fn is_current(&self) -> bool {
        match self.renewal {
            Renewal::Ahead => true,
            Renewal::PerUse => self.at.elapsed() < PER_USE_INTERVAL,
            Renewal::Hurried => false,
        }
    }

    /// Whether an answer with TTL 0 is too old to be used while a new query runs.
    fn must_be_renewed(&self) -> bool {
        self.renewal == Renewal::PerUse && self.at.elapsed() > PER_USE_AGE
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Source::Named(named) = &self.source {
            let mut hosts = named.shared.hosts();
            let key = (std::mem::take(&mut self.name), self.port);
            // Keep the entry if another thread has created a new handle for the name, after the last reference to this
            // handle was dropped and before this lock.
            if hosts
                .0
                .get(&key)
                .is_some_and(|host| host.strong_count() == 0)
            {
                hosts.0.remove(&key);
            }
            let _ = named.shared.commands.send(Command::Forget(self.id));
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Host({}:{})", self.name, self.port)
    }
}
