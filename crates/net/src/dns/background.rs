//! The half of the resolver that decides when to query the name servers, and does so. It runs on its own thread.
//!
//! A name in use is queried again after 80 to 90 percent of its answer's TTL. The exact time is random, so that names
//! that were resolved together are not queried together again. If the name servers fail, the previous answer is used
//! for up to `stale_ttl` after its expiry, and the retry interval grows. Names that requests wait for are queried
//! first.

use super::answer::{DnsAnswer, ResolveError};
use super::host::{Host, KnownAnswer, PER_USE_INTERVAL, Renewal};
use super::lookup::{Found, Lookup};
use super::settings::{DnsSettings, LookupKind};
use super::statistics::Statistics;
use super::system::{Stamp, System};
use super::transport::{Servers, Transport};
use futures_util::FutureExt;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Maximum concurrent lookups that refresh answers at their scheduled time.
const MAX_REFRESHES: usize = 64;
const MAX_LOOKUPS: usize = 512;
/// Minimum interval between two background lookups of a name, whatever the TTL and the settings. Only a retry may come
/// earlier: by up to a quarter at random, or when an answer expires.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum interval between retries while the name servers fail and no previous answer is usable.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// Maximum interval between retries while an expired answer is served. It is shorter, because that answer may be wrong.
const LONGEST_STALE_RETRY: Duration = Duration::from_secs(5);
/// Interval between lookups of unused names with TTL 0, and of names in the hosts file.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
/// Interval between checks of resolv.conf and the hosts file for changes.
const FILES_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of failing names that are logged as warnings at one time.
const MAX_REPORTED: usize = 10;
/// After a change of the files or the settings, all names are queried again at random times within this period.
const SPREAD: Duration = Duration::from_secs(5);

pub(super) enum Command {
    /// Sent when the handle of a name is created, and when a request needs a newer answer.
    Ask(Weak<Host>),
    /// A request waits for the name.
    Hurry(Weak<Host>),
    /// The last handle with this id was dropped.
    Forget(u64),
    Reload(DnsSettings),
}

/// The parts of the background that it shares with the handles: the receiver of their commands, and the statistics.
pub(super) struct Ends {
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) statistics: Arc<Statistics>,
}

/// Creates the transport for a configuration. Tests replace it.
type Connect = Box<dyn Fn(&System) -> Arc<dyn Transport> + Send>;

/// Resolves names while the future of [`Background::run`] is polled. This future ends when the resolver and all handles
/// are dropped.
pub struct Background {
    settings: DnsSettings,
    connect: Connect,
    commands: mpsc::UnboundedReceiver<Command>,
    lookup: Arc<Lookup>,
    statistics: Arc<Statistics>,
    system: System,
    stamp: Option<Stamp>,
    /// State of each name, by the id of its handle.
    names: HashMap<u64, Entry>,
    /// Times of scheduled lookups. An entry is outdated, and ignored, if it differs from the state of its name.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    urgent: VecDeque<u64>,
    running: JoinSet<Done>,
    refreshing: usize,
    /// Number of names whose last lookup failed.
    failing: usize,
    /// Source of random delays, so that nodes that start together do not send their queries together.
    random: fastrand::Rng,
}

/// Result of a lookup.
struct Done {
    id: u64,
    refresh: bool,
    found: Result<Found, ResolveError>,
}

/// State of a name, apart from its answer.
struct Entry {
    host: Weak<Host>,
    state: LookupState,
    last: Option<LookupKind>,
    /// Expiry of the current answer; `None` if there is no answer, or if it is from the hosts file. An answer from there
    /// is not used after its line was removed from the file.
    expires: Option<Instant>,
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LookupState {
    /// A lookup starts at this time.
    Due(Instant),
    /// A lookup starts as soon as there is room.
    Urgent,
    Running {
        /// Whether to repeat the lookup afterwards, because the settings have changed meanwhile.
        again: bool,
    },
}

impl Background {
    pub(super) fn new(settings: DnsSettings, ends: Ends) -> Self {
        let connect = |system: &System| Arc::new(Servers::new(&system.conf)) as Arc<dyn Transport>;
        Self::with_transport(settings, ends, Box::new(connect))
    }

    pub(super) fn with_transport(
        settings: DnsSettings,
        Ends {
            commands,
            statistics,
        }: Ends,
        connect: Connect,
    ) -> Self {
        // `run` reads the files, so that creating a resolver does no I/O.
        let system = System::default();
        let (transport, counted) = (connect(&system), statistics.clone());
        let lookup = Lookup::new(&settings, system.clone(), transport, counted);
        Self {
            settings,
            connect,
            commands,
            lookup: Arc::new(lookup),
            statistics,
            system,
            stamp: None,
            names: HashMap::new(),
            due: BinaryHeap::new(),
            urgent: VecDeque::new(),
            running: JoinSet::new(),
            refreshing: 0,
            failing: 0,
            random: fastrand::Rng::with_seed(crate::id::random_seed()),
        }
    }

    pub async fn run(mut self) {
        self.serve().await;
    }

    /// Resolves names until the last [`super::Resolver`] is dropped. It can be called again after a panic: it keeps the
    /// names, and queries them again.
    pub async fn serve(&mut self) {
        self.stamp = Some(System::stamp(&self.settings));
        self.use_system(System::read(&self.settings));
        let mut files = tokio::time::interval(FILES_INTERVAL);
        files.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.start_lookups();
            let next = self.next_due();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                Some(done) = self.running.join_next() => match done {
                    Ok(done) => self.finish(done),
                    Err(error) => tracing::error!(%error, "a name lookup ended without a result"),
                },
                () = sleep_until(next.unwrap_or_else(far)), if next.is_some() => {}
                _ = files.tick() => self.look_at_files(),
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Ask(host) => self.ask(host),
            Command::Hurry(host) => self.hurry(&host),
            Command::Forget(id) => self.forget(id),
            Command::Reload(settings) => {
                self.settings = settings;
                self.stamp = Some(System::stamp(&self.settings));
                self.use_system(System::read(&self.settings));
            }
        }
    }

    fn look_at_files(&mut self) {
        let stamp = System::stamp(&self.settings);
        if self.stamp == Some(stamp) {
            return;
        }
        self.stamp = Some(stamp);
        let system = System::read(&self.settings);
        if system != self.system {
            tracing::info!(
                "resolv.conf or the hosts file has changed: all names are resolved again"
            );
            self.use_system(system);
        }
    }

    /// Uses new settings for all further lookups, and queries all names again within [`SPREAD`].
    fn use_system(&mut self, system: System) {
        let (transport, counted) = ((self.connect)(&system), self.statistics.clone());
        let lookup = Lookup::new(&self.settings, system.clone(), transport, counted);
        self.lookup = Arc::new(lookup);
        self.system = system;
        let now = Instant::now();
        let ids: Vec<u64> = self.names.keys().copied().collect();
        for id in ids {
            let within = self.random_part(SPREAD);
            let Some(entry) = self.names.get_mut(&id) else {
                continue;
            };
            match &mut entry.state {
                LookupState::Due(_) => self.schedule(id, now + within),
                LookupState::Running { again, .. } => *again = true,
                LookupState::Urgent => {}
            }
        }
    }

    fn ask(&mut self, host: Weak<Host>) {
        let Some(strong) = host.upgrade() else {
            return;
        };
        let id = strong.id();
        let Some(entry) = self.names.get_mut(&id) else {
            let entry = Entry {
                host,
                state: LookupState::Urgent,
                last: None,
                expires: None,
                failures: 0,
            };
            self.names.insert(id, entry);
            self.urgent.push_back(id);
            return;
        };
        let LookupState::Due(due) = entry.state else {
            return;
        };
        let now = Instant::now();
        let earliest = match strong.known() {
            Some(known) if known.renewal == Renewal::PerUse => known.at + PER_USE_INTERVAL,
            Some(known) => known.at + self.settings.error_ttl,
            None => now,
        };
        if earliest <= now {
            entry.state = LookupState::Urgent;
            self.urgent.push_back(id);
        } else if earliest < due {
            self.schedule(id, earliest);
        }
    }

    /// Puts a name in front of all others that wait for a lookup.
    fn hurry(&mut self, host: &Weak<Host>) {
        let Some(id) = host.upgrade().map(|host| host.id()) else {
            return;
        };
        let state = self.names.get(&id).map(|entry| entry.state);
        if state == Some(LookupState::Urgent) {
            self.urgent.push_front(id);
        }
    }

    fn forget(&mut self, id: u64) {
        self.remove(id);
        if self.due.len() > 1024 + 2 * self.names.len() {
            let names = &self.names;
            self.due.retain(|Reverse((at, id))| {
                let state = names.get(id).map(|entry| entry.state);
                state == Some(LookupState::Due(*at))
            });
        }
    }

    fn schedule(&mut self, id: u64, at: Instant) {
        if let Some(entry) = self.names.get_mut(&id) {
            entry.state = LookupState::Due(at);
            self.due.push(Reverse((at, id)));
        }
    }

    fn start_lookups(&mut self) {
        while self.running.len() < MAX_LOOKUPS {
            let Some(id) = self.urgent.pop_front() else {
                break;
            };
            // A name that requests wait for can be in the list several times.
            let state = self.names.get(&id).map(|entry| entry.state);
            if state == Some(LookupState::Urgent) {
                self.start(id, false);
            }
        }
        let now = Instant::now();
        while let Some(Reverse((at, id))) = self.due.peek().copied() {
            let current = self.names.get(&id).map(|entry| entry.state);
            if current != Some(LookupState::Due(at)) {
                self.due.pop();
            } else if at <= now && self.refreshing < MAX_REFRESHES {
                self.due.pop();
                self.start(id, true);
            } else {
                break;
            }
        }
    }

    fn start(&mut self, id: u64, refresh: bool) {
        let Some(entry) = self.names.get_mut(&id) else {
            return;
        };
        let Some(host) = entry.host.upgrade() else {
            // The last handle of the name was dropped.
            self.remove(id);
            return;
        };
        entry.state = LookupState::Running { again: false };
        self.refreshing += usize::from(refresh);
        let (lookup, last) = (self.lookup.clone(), entry.last);
        // The task gets copies of the name and the port. A handle would keep the name in use while the lookup runs.
        let (name, port): (Box<str>, u16) = (host.name().into(), host.port());
        self.running.spawn(async move {
            let finding = AssertUnwindSafe(lookup.find(&name, port, last));
            let found = finding.catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(%name, "resolving a name panicked, which is a defect of the gateway");
                Err(ResolveError::Malformed)
            });
            Done { id, refresh, found }
        });
    }

    /// Returns the time of the next lookup, or `None` if one can start only after another has finished.
    fn next_due(&self) -> Option<Instant> {
        let Reverse((at, _)) = self.due.peek()?;
        (self.refreshing < MAX_REFRESHES).then_some(*at)
    }

    fn finish(&mut self, done: Done) {
        let Done { id, refresh, found } = done;
        self.refreshing -= usize::from(refresh);
        let chance = self.random.f64();
        let Some(entry) = self.names.get_mut(&id) else {
            return;
        };
        let again = entry.state == LookupState::Running { again: true };
        let Some(host) = entry.host.upgrade() else {
            self.remove(id);
            return;
        };
        let now = Instant::now();
        let failed_before = entry.failures > 0;
        let failure = found.as_ref().err().copied();
        let wait = match found {
            Ok(found) => entry.learn(&host, found, now, chance),
            Err(ResolveError::NotFound) => {
                let wait = entry.miss(&host, &self.settings, now);
                if host.known().is_some_and(|known| known.outcome.is_ok()) {
                    self.lookup.forget_missing(host.name());
                }
                wait
            }
            Err(error) => entry.fail(&host, error, &self.settings, now, chance),
        };
        let fails = entry.failures > 0;
        let wait = if again { Duration::ZERO } else { wait };
        match (failed_before, fails) {
            (false, true) => self.begin_failing(&host, failure),
            (true, false) => self.end_failing(),
            _ => {}
        }
        self.schedule(id, now + wait);
    }

    fn remove(&mut self, id: u64) {
        let removed = self.names.remove(&id);
        if removed.is_some_and(|entry| entry.failures > 0) {
            self.end_failing();
        }
    }

    /// Counts and logs a failing name. Beyond [`MAX_REPORTED`] failing names it logs at level debug only, so that an
    /// outage does not flood the log.
    fn begin_failing(&mut self, host: &Host, error: Option<ResolveError>) {
        self.failing += 1;
        let name = host.name();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        let stale = host.known().is_some_and(|known| known.outcome.is_ok());
        match self.failing {
            ..=MAX_REPORTED => tracing::warn!(%name, %error, stale, "cannot resolve a name"),
            _ => tracing::debug!(%name, %error, stale, "cannot resolve a name"),
        }
        if self.failing == MAX_REPORTED + 1 {
            tracing::warn!("more names cannot be resolved; they are logged at level debug only");
        }
    }

    fn end_failing(&mut self) {
        self.failing -= 1;
        if self.failing == 0 {
            tracing::info!("all names can be resolved again");
        }
    }

    fn random_part(&mut self, of: Duration) -> Duration {
        of.mul_f64(self.random.f64())
    }
}

impl Entry {
    /// Stores a new answer; returns the time until the next lookup.
    fn learn(&mut self, host: &Host, found: Found, now: Instant, chance: f64) -> Duration {
        self.failures = 0;
        let is_per_use = found.ttl == Some(Duration::ZERO);
        self.expires = found.ttl.map(|ttl| now + ttl);
        self.last = found.ttl.is_some().then_some(found.kind).or(self.last);
        let former = host.known().and_then(|known| known.outcome.clone().ok());
        let answer = match former {
            Some(former) if same(&former, &found) => Some(former),
            _ => DnsAnswer::new(found.records).map(Arc::new),
        };
        host.learn(KnownAnswer {
            outcome: answer.ok_or(ResolveError::NotFound),
            at: now,
            renewal: if is_per_use {
                Renewal::PerUse
            } else {
                Renewal::Ahead
            },
        });
        match found.ttl {
            None => IDLE_INTERVAL,
            Some(_) if is_per_use => IDLE_INTERVAL,
            Some(ttl) => ttl.mul_f64(0.8 + chance * 0.1).max(SHORTEST_INTERVAL),
        }
    }

    /// Handles a response without records. The previous answer stays in use until it expires, and meanwhile the name
    /// servers are queried again. A name server that has just started, or that lags behind the others, may not know the
    /// name yet.
    fn miss(&mut self, host: &Host, settings: &DnsSettings, now: Instant) -> Duration {
        self.failures = 0;
        let left = self
            .expires
            .map(|expires| expires.saturating_duration_since(now));
        let former = host.known().and_then(|known| known.outcome.clone().ok());
        if let (Some(former), Some(left)) = (former, left)
            && !left.is_zero()
        {
            host.learn(KnownAnswer {
                outcome: Ok(former),
                at: now,
                renewal: Renewal::Ahead,
            });
            return settings.error_ttl.max(SHORTEST_INTERVAL).min(left);
        }
        self.expires = None;
        host.learn(KnownAnswer {
            outcome: Err(ResolveError::NotFound),
            at: now,
            renewal: Renewal::Ahead,
        });
        settings.not_found_ttl.max(SHORTEST_INTERVAL)
    }

    /// Handles a failure. The previous answer stays in use for up to `stale_ttl` after its expiry.
    fn fail(
        &mut self,
        host: &Host,
        error: ResolveError,
        settings: &DnsSettings,
        now: Instant,
        chance: f64,
    ) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let known = host.known();
        let former = known.and_then(|known| known.outcome.clone().ok());
        let stale_until = self.expires.map(|expires| expires + settings.stale_ttl);
        let usable = former.filter(|_| stale_until.is_some_and(|until| now < until));
        let longest = match usable {
            Some(_) => LONGEST_STALE_RETRY,
            None => LONGEST_RETRY,
        };
        if usable.is_none() {
            self.expires = None;
        }
        if usable.is_some() {
            host.count_stale();
        }
        host.learn(match usable {
            Some(answer) => KnownAnswer {
                outcome: Ok(answer),
                at: now,
                renewal: Renewal::Ahead,
            },
            None => KnownAnswer {
                outcome: Err(error),
                at: now,
                renewal: Renewal::Hurried,
            },
        });
        let doubled = 1 << (self.failures - 1).min(10);
        let wait = settings.error_ttl.max(SHORTEST_INTERVAL) * doubled;
        let wait = wait.min(longest).mul_f64(0.75 + chance * 0.25);
        // An expired answer must not be used beyond its limit.
        let end = stale_until.map(|until| until.saturating_duration_since(now));
        match end {
            Some(end) if !end.is_zero() => wait.min(end),
            _ => wait,
        }
    }
}

/// Whether an answer has the same records as a lookup, in any order.
fn same(answer: &DnsAnswer, found: &Found) -> bool {
    let mut records: Vec<_> = found.records.iter().collect();
    records.sort();
    records.dedup();
    records.into_iter().eq(answer.records.iter())
}

/// Returns a time that is never reached. `Instant` has no maximum, and a time too far away would overflow.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(100 * 365 * 24 * 3600)
}
