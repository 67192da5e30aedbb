//! The half of the resolver that asks: which name when. Runs on a thread of its own.
//!
//! A name that is in use is asked for again before what is known of it ends, at a random point of its last fifth, so that
//! names which were learned together do not stay together. Where the name servers fail, the former answer stays for
//! `stale_ttl`, and the name is tried again at growing intervals. What a request waits for goes first.

use super::answer::{Answer, ResolveError};
use super::host::{Host, Known, PER_USE_INTERVAL, Renewal};
use super::lookup::{Found, Lookup};
use super::settings::{Kind, Settings};
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

/// Lookups under way for refreshing. Those that requests wait for have as many again, and more.
const MOST_REFRESHES: usize = 64;
const MOST_LOOKUPS: usize = 512;
/// Between two background lookups of one name, whatever the TTL.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(500);
/// Between two attempts while the name servers fail and nobody asks.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// While an old answer is served the retries matter more: it may lead nowhere.
const LONGEST_STALE_RETRY: Duration = Duration::from_secs(5);
/// After which names of the hosts file, and of TTL 0, are looked at again.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
/// How often resolv.conf and the hosts file are looked at.
const FILES_INTERVAL: Duration = Duration::from_secs(5);
/// Names that the log lists when they cannot be resolved at one time.
const MOST_TOLD: usize = 10;
/// After a change of the files, all names are asked for again within this time.
const SPREAD: Duration = Duration::from_secs(5);

pub(super) enum Command {
    /// Somebody uses the name.
    Ask(Weak<Host>),
    /// A request waits for it.
    Hurry(Weak<Host>),
    /// Nobody holds the handle of this id any more.
    Forget(u64),
    Reload(Settings),
}

/// What it shares with the handles.
pub(super) struct Ends {
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) statistics: Arc<Statistics>,
}

/// Makes the transport of a configuration; tests have another.
type Connect = Box<dyn Fn(&System) -> Arc<dyn Transport> + Send>;

/// Resolves names while its future runs; ends when nobody can ask any more.
pub struct Background {
    settings: Settings,
    connect: Connect,
    commands: mpsc::UnboundedReceiver<Command>,
    lookup: Arc<Lookup>,
    statistics: Arc<Statistics>,
    system: System,
    stamp: Option<Stamp>,
    /// By the id of the handle.
    names: HashMap<u64, Entry>,
    /// May have more than what is due: an entry says itself when it is.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    urgent: VecDeque<u64>,
    running: JoinSet<Done>,
    refreshing: usize,
    /// Names whose last lookup failed.
    failing: usize,
    /// Nodes that start together must not ask together.
    random: fastrand::Rng,
}

/// The end of a lookup.
struct Done {
    id: u64,
    refresh: bool,
    found: Result<Found, ResolveError>,
}

/// What is remembered of a name besides its answer.
struct Entry {
    host: Weak<Host>,
    state: State,
    last: Option<Kind>,
    /// Of the current answer; none while there is none.
    expires: Option<Instant>,
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At this time a lookup begins.
    Due(Instant),
    /// As soon as there is room.
    Urgent,
    Running {
        /// Once more afterwards: the settings have changed meanwhile.
        again: bool,
    },
}

impl Background {
    pub(super) fn new(settings: Settings, ends: Ends) -> Self {
        let connect = |system: &System| Arc::new(Servers::new(&system.conf)) as Arc<dyn Transport>;
        Self::with_transport(settings, ends, Box::new(connect))
    }

    pub(super) fn with_transport(
        settings: Settings,
        Ends {
            commands,
            statistics,
        }: Ends,
        connect: Connect,
    ) -> Self {
        // The files are read when it runs: making a resolver does no I/O.
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
                    Err(error) => tracing::error!(%error, "a lookup of a name was lost"),
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
            tracing::info!("resolv.conf or the hosts file has changed: names are resolved anew");
            self.use_system(system);
        }
    }

    /// From now on lookups go by these; what is known is asked for again soon.
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
                State::Due(_) => self.schedule(id, now + within),
                State::Running { again, .. } => *again = true,
                State::Urgent => {}
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
                state: State::Urgent,
                last: None,
                expires: None,
                failures: 0,
            };
            self.names.insert(id, entry);
            self.urgent.push_back(id);
            return;
        };
        let State::Due(due) = entry.state else {
            return;
        };
        let now = Instant::now();
        let earliest = match strong.known() {
            Some(known) if known.renewal == Renewal::PerUse => known.at + PER_USE_INTERVAL,
            Some(known) => known.at + self.settings.error_ttl,
            None => now,
        };
        if earliest <= now {
            entry.state = State::Urgent;
            self.urgent.push_back(id);
        } else if earliest < due {
            self.schedule(id, earliest);
        }
    }

    /// Before all others that have not begun.
    fn hurry(&mut self, host: &Weak<Host>) {
        let Some(id) = host.upgrade().map(|host| host.id()) else {
            return;
        };
        let state = self.names.get(&id).map(|entry| entry.state);
        if state == Some(State::Urgent) {
            self.urgent.push_front(id);
        }
    }

    fn forget(&mut self, id: u64) {
        self.remove(id);
        if self.due.len() > 1024 + 2 * self.names.len() {
            let names = &self.names;
            self.due.retain(|Reverse((at, id))| {
                let state = names.get(id).map(|entry| entry.state);
                state == Some(State::Due(*at))
            });
        }
    }

    fn schedule(&mut self, id: u64, at: Instant) {
        if let Some(entry) = self.names.get_mut(&id) {
            entry.state = State::Due(at);
            self.due.push(Reverse((at, id)));
        }
    }

    fn start_lookups(&mut self) {
        while self.running.len() < MOST_LOOKUPS {
            let Some(id) = self.urgent.pop_front() else {
                break;
            };
            // One that was hurried is in the list twice.
            let state = self.names.get(&id).map(|entry| entry.state);
            if state == Some(State::Urgent) {
                self.start(id, false);
            }
        }
        let now = Instant::now();
        while let Some(Reverse((at, id))) = self.due.peek().copied() {
            let current = self.names.get(&id).map(|entry| entry.state);
            if current != Some(State::Due(at)) {
                self.due.pop();
            } else if at <= now && self.refreshing < MOST_REFRESHES {
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
            // Nobody holds the name any more.
            self.remove(id);
            return;
        };
        entry.state = State::Running { again: false };
        self.refreshing += usize::from(refresh);
        let (lookup, last) = (self.lookup.clone(), entry.last);
        // The task must not keep the name in use.
        let (name, port): (Box<str>, u16) = (host.name().into(), host.port());
        self.running.spawn(async move {
            let finding = AssertUnwindSafe(lookup.find(&name, port, last));
            let found = finding.catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(%name, "resolving a name has failed by a defect");
                Err(ResolveError::Malformed)
            });
            Done { id, refresh, found }
        });
    }

    /// When there is something to do; none while only the end of a lookup can change that.
    fn next_due(&self) -> Option<Instant> {
        let Reverse((at, _)) = self.due.peek()?;
        (self.refreshing < MOST_REFRESHES).then_some(*at)
    }

    fn finish(&mut self, done: Done) {
        let Done { id, refresh, found } = done;
        self.refreshing -= usize::from(refresh);
        let chance = self.random.f64();
        let Some(entry) = self.names.get_mut(&id) else {
            return;
        };
        let again = entry.state == State::Running { again: true };
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

    /// An outage that hits thousands of names is not told thousands of times.
    fn begin_failing(&mut self, host: &Host, error: Option<ResolveError>) {
        self.failing += 1;
        let name = host.name();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        let stale = host.known().is_some_and(|known| known.outcome.is_ok());
        match self.failing {
            ..=MOST_TOLD => tracing::warn!(%name, %error, stale, "cannot resolve a name"),
            _ => tracing::debug!(%name, %error, stale, "cannot resolve a name"),
        }
        if self.failing == MOST_TOLD + 1 {
            tracing::warn!("cannot resolve more names, which are not listed");
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
    /// Takes an answer over; gives the time until the next lookup.
    fn learn(&mut self, host: &Host, found: Found, now: Instant, chance: f64) -> Duration {
        self.failures = 0;
        let is_per_use = found.ttl == Some(Duration::ZERO);
        // The hosts file is believed at once when a name is not there any more.
        self.expires = Some(now + found.ttl.unwrap_or_default());
        self.last = found.ttl.is_some().then_some(found.kind).or(self.last);
        let former = host.known().and_then(|known| known.outcome.clone().ok());
        let answer = match former {
            Some(former) if same(&former, &found) => Some(former),
            _ => Answer::new(found.records).map(Arc::new),
        };
        host.learn(Known {
            outcome: answer.ok_or(ResolveError::NotFound),
            at: now,
            renewal: match is_per_use {
                true => Renewal::PerUse,
                false => Renewal::Ahead,
            },
        });
        match found.ttl {
            None => IDLE_INTERVAL,
            Some(_) if is_per_use => IDLE_INTERVAL,
            Some(ttl) => ttl.mul_f64(0.8 + chance * 0.1).max(SHORTEST_INTERVAL),
        }
    }

    /// The name servers say that there is nothing. While the former answer has not ended they are asked once more: it is
    /// still good, and one that has just started, or lags behind the others, says so of every name.
    fn miss(&mut self, host: &Host, settings: &Settings, now: Instant) -> Duration {
        self.failures = 0;
        let left = self
            .expires
            .map(|expires| expires.saturating_duration_since(now));
        let former = host.known().and_then(|known| known.outcome.clone().ok());
        if let (Some(former), Some(left)) = (former, left)
            && !left.is_zero()
        {
            host.learn(Known {
                outcome: Ok(former),
                at: now,
                renewal: Renewal::Ahead,
            });
            return settings.error_ttl.max(SHORTEST_INTERVAL).min(left);
        }
        self.expires = None;
        host.learn(Known {
            outcome: Err(ResolveError::NotFound),
            at: now,
            renewal: Renewal::Ahead,
        });
        settings.not_found_ttl.max(SHORTEST_INTERVAL)
    }

    /// The former answer stays while it may.
    fn fail(
        &mut self,
        host: &Host,
        error: ResolveError,
        settings: &Settings,
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
            Some(answer) => Known {
                outcome: Ok(answer),
                at: now,
                renewal: Renewal::Ahead,
            },
            None => Known {
                outcome: Err(error),
                at: now,
                renewal: Renewal::Hurried,
            },
        });
        let doubled = 1 << (self.failures - 1).min(10);
        let wait = settings.error_ttl.max(SHORTEST_INTERVAL) * doubled;
        let wait = wait.min(longest).mul_f64(0.75 + chance * 0.25);
        // Not a moment longer than it may.
        let end = stale_until.map(|until| until.saturating_duration_since(now));
        match end {
            Some(end) if !end.is_zero() => wait.min(end),
            _ => wait,
        }
    }
}

/// Whether an answer has the records that were found, in whatever order.
fn same(answer: &Answer, found: &Found) -> bool {
    let mut records: Vec<_> = found.records.iter().collect();
    records.sort();
    records.dedup();
    records.into_iter().eq(answer.records.iter())
}

/// As good as never: a point that arithmetic with durations can still be done on.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(100 * 365 * 24 * 3600)
}
