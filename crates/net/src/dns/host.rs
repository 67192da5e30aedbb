//! The handle of a name, and the resolver that hands them out. What is known is read without a lock; a request waits only
//! for a name of which nothing was ever known.

use super::answer::{Answer, ResolveError};
use super::background::{Background, Command, Ends};
use super::name::normal;
use super::parse_ip;
use super::settings::Settings;
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

/// What answers with a TTL of 0 are asked for again at most so often, however many requests use them.
pub(super) const PER_USE_INTERVAL: Duration = Duration::from_millis(100);
/// Up to this age such an answer is used while it is asked for again; an older one is waited for.
const PER_USE_AGE: Duration = Duration::from_secs(1);
/// How long it is waited for; then the old one is used.
const PER_USE_PATIENCE: Duration = Duration::from_secs(1);

static ID: AtomicU64 = AtomicU64::new(1);

/// Makes the handles of names. Cheap to clone; all clones share what they know.
#[derive(Clone)]
pub struct Resolver(Arc<Shared>);

pub(super) struct Shared {
    hosts: Mutex<Hosts>,
    commands: mpsc::UnboundedSender<Command>,
    statistics: Arc<Statistics>,
    /// Counts changes of what names resolve to.
    changes: watch::Sender<u64>,
}

/// The handles that somebody holds, by normal name and port.
#[derive(Default)]
struct Hosts(HashMap<(Box<str>, u16), Weak<Host>>);

/// A name (or an address) with a port. While somebody holds it, what it resolves to is kept current.
pub struct Host {
    /// No other handle ever has it.
    id: u64,
    name: Box<str>,
    port: u16,
    source: Source,
}

enum Source {
    /// It was an address to begin with.
    Fixed(SocketAddr),
    Named(Box<Named>),
}

struct Named {
    me: Weak<Host>,
    shared: Arc<Shared>,
    known: ArcSwapOption<Known>,
    /// Rung at every change of `known`.
    changed: Notify,
    turns: AtomicUsize,
    /// Requests that had to wait, and that got an error.
    waits: AtomicUsize,
    errors: AtomicUsize,
    /// Lookups that failed while the former answer went on being used.
    stale: AtomicUsize,
    /// The background has been told that somebody wants to know, and has not answered since.
    asked: AtomicBool,
}

/// What is known of a name.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) outcome: Result<Arc<Answer>, ResolveError>,
    pub(super) at: Instant,
    pub(super) renewal: Renewal,
}

/// Who sees to it that what is known gets replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// The background, in time.
    Ahead,
    /// Whoever uses it: the answer has a TTL of 0.
    PerUse,
    /// As `Ahead`; who meets this error may hurry it.
    Hurried,
}

/// Where to connect next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Address(SocketAddr),
    /// Nothing is known yet: [`Host::resolved`], then again.
    Wait,
    Error(ResolveError),
}

impl Resolver {
    /// A resolver and its other half, which must run for names to be resolved.
    pub fn new(settings: Settings) -> (Self, Background) {
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

    /// The handle of a name, which begins to be resolved. Takes a lock; for building snapshots, not for requests.
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

    /// Other settings from now on; also reads the files again that they name. What is known stays until it is replaced.
    pub fn reload(&self, settings: Settings) {
        let _ = self.0.commands.send(Command::Reload(settings));
    }

    /// Tells of every change of what some name resolves to.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Names that somebody holds.
    pub fn hosts(&self) -> Vec<Arc<Host>> {
        self.0
            .hosts()
            .0
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// What was asked, in the words of Kong's newer client: of each name (`name:all`) how often requests used it, and of each
    /// question (`name:A`) what came of it.
    pub fn statistics(&self) -> Counters {
        let mut counters = Counters::new();
        self.0.statistics.collect(&mut counters);
        for host in self.hosts() {
            let key = format!("{}:all", host.name());
            host.count_into(counters.entry(key).or_default());
        }
        counters
    }

    /// All questions since the start.
    pub fn totals(&self) -> Totals {
        self.0.statistics.totals()
    }
}

/// A resolver of which nobody runs the other half: it knows addresses only.
impl Default for Resolver {
    fn default() -> Self {
        Self::new(Settings::default()).0
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

    /// In lower case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where no record says another.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where to connect next: the records take turns, those to avoid only when there are no others.
    #[inline]
    pub fn next(&self, avoid: &[SocketAddr]) -> Next {
        match &self.source {
            Source::Fixed(address) => Next::Address(*address),
            Source::Named(named) => named.next(avoid),
        }
    }

    /// What is known now; none while the first answer is awaited. An answer that may only be used once counts as known, and
    /// is asked for again by this.
    pub fn answer(&self) -> Option<Result<Arc<Answer>, ResolveError>> {
        match &self.source {
            Source::Fixed(address) => Some(Ok(Arc::new(Answer::fixed(*address)))),
            Source::Named(named) => {
                let known = named.known();
                known.as_ref().map(|known| known.outcome.clone())
            }
        }
    }

    /// Differs whenever the answer does; 0 while nothing is known. Asks nobody.
    pub fn number(&self) -> u64 {
        match &self.source {
            Source::Fixed(_) => Answer::FIXED,
            Source::Named(named) => named
                .known
                .load()
                .as_ref()
                .map_or(0, |known| known.number()),
        }
    }

    /// Waits until something is known that may be used now, for at most `limit`.
    pub async fn resolved(&self, limit: Duration) -> Result<Arc<Answer>, ResolveError> {
        match &self.source {
            Source::Fixed(address) => Ok(Arc::new(Answer::fixed(*address))),
            Source::Named(named) => match timeout(named.patience(limit), named.resolved()).await {
                Ok(resolved) => resolved,
                // Better an old answer than none.
                Err(_) => match &*named.known.load() {
                    Some(known) => known.outcome.clone(),
                    None => Err(ResolveError::Timeout),
                },
            },
        }
    }

    /// One name with several ports is counted together.
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

    /// Replaces what is known, for all who use it and all who wait. From the background only.
    pub(super) fn learn(&self, known: Known) {
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

    pub(super) fn known(&self) -> Option<Arc<Known>> {
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

    /// What is known; asked for again where that is up to its users.
    #[inline]
    fn known(&self) -> Guard<Option<Arc<Known>>> {
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

    /// Who has an old answer does not wait long for a new one.
    fn patience(&self, limit: Duration) -> Duration {
        match &*self.known.load() {
            Some(_) => limit.min(PER_USE_PATIENCE),
            None => limit,
        }
    }

    async fn resolved(&self) -> Result<Arc<Answer>, ResolveError> {
        let mut waits = false;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before looking, or a change in between would not be heard.
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

impl Known {
    /// Of the answer; all errors have one.
    fn number(&self) -> u64 {
        self.outcome
            .as_ref()
            .map_or(u64::MAX, |answer| answer.number)
    }

    /// Nobody need ask.
    #[inline]
    fn is_current(&self) -> bool {
        match self.renewal {
            Renewal::Ahead => true,
            Renewal::PerUse => self.at.elapsed() < PER_USE_INTERVAL,
            Renewal::Hurried => false,
        }
    }

    /// An answer for one use that is too old to be used meanwhile.
    fn must_be_renewed(&self) -> bool {
        self.renewal == Renewal::PerUse && self.at.elapsed() > PER_USE_AGE
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Source::Named(named) = &self.source {
            let mut hosts = named.shared.hosts();
            let key = (std::mem::take(&mut self.name), self.port);
            // The name may have a new handle already, made between our last use and this lock.
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
