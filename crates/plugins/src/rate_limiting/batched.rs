//! Counting in Redis with `sync_rate`: what a node counts is reported once per interval, for all clients in one round
//! trip. [`super::tally`] decides which requests can be judged without Redis.
//!
//! A store belongs to a Redis and an interval, not to a configuration: a changed limit keeps the counts, and each interval
//! has a timer of its own.
//!
//! Redis has the counts, so an entry here is only a copy of it. At most [`MAX_COUNTERS`] clients that nobody has
//! configured (addresses, values of headers up to some hundred bytes) have one. Beyond that, each of their requests asks Redis. So a flood of
//! identifiers neither evicts the entry of another client nor gives anybody a second allowance.

mod sending;
#[cfg(test)]
mod tests;

use super::counters::{Allowance, Identity, KeyHash, MAX_COUNTERS, Verdict};
use super::direct::{CountError, counted, numbers};
use super::names::{self, Names};
use super::tally::{Judged, Now, Report, Tally};
use super::window::{Moment, Period};
use plugin::Node;
use sending::Sending;
use services::Clock;
use services::redis::{Call, Script, Server};
use std::future::Future;
use std::hash::BuildHasherDefault;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// Clients whose counters one script increments. Redis does nothing else meanwhile.
const CLIENTS_PER_CALL: usize = 100;
/// Clients whose counts are reported in one round trip. Between two, other tasks of the background run.
const CLIENTS: usize = 4000;
/// Minimum time without requests after which an entry is removed.
const IDLE: Duration = Duration::from_secs(5);
/// Maximum time between two looks whether anybody uses a store.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Time between two removals.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Reports what was counted, and counts one more request if no window is full. Returns the counts and whether the
/// request was counted.
/// KEYS: the counters. ARGV: for each the requests to report, the limit and the lifetime in seconds.
static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local counts, passes = {}, 1
local function add(i, by)
  local count = redis.call('INCRBY', KEYS[i], by)
  if count == by then redis.call('EXPIRE', KEYS[i], ARGV[3 * i]) end
  counts[i] = count
end
for i, key in ipairs(KEYS) do
  local by = tonumber(ARGV[3 * i - 2])
  if by > 0 then add(i, by) else counts[i] = tonumber(redis.call('GET', key) or 0) end
  if counts[i] >= tonumber(ARGV[3 * i - 1]) then passes = 0 end
end
if passes == 1 then for i in ipairs(KEYS) do add(i, 1) end end
counts[#KEYS + 1] = passes
return counts",
    )
});

/// The stores of a node.
#[derive(Default)]
pub(super) struct Stores(Mutex<Vec<Weak<Batched>>>);

pub(super) struct Batched {
    server: Server,
    interval: Duration,
    clock: Clock,
    entries: papaya::HashMap<u128, Arc<Entry>, BuildHasherDefault<KeyHash>>,
    /// Number of entries of clients that nobody has configured.
    used: AtomicUsize,
    max: usize,
    /// Entries with something to report, each at most once.
    listed: mpsc::UnboundedSender<Arc<Entry>>,
}

/// The counters of a client, as this node knows them.
struct Entry {
    names: Names,
    is_bounded: bool,
    tally: Mutex<Tally>,
}

impl Entry {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stores {
    /// Returns the store of a server and an interval. The first plugin that needs it starts its reports.
    pub(super) fn get(
        of_node: &Arc<Self>,
        node: &Arc<Node>,
        server: &Server,
        interval: Duration,
    ) -> Arc<Batched> {
        let mut stores = of_node.stores();
        let known = stores.iter().filter_map(Weak::upgrade);
        let mut known = known.filter(|store| store.interval == interval);
        if let Some(store) = known.find(|store| store.server.is_same(server)) {
            return store;
        }
        let (listed, to_report) = mpsc::unbounded_channel();
        let store = Arc::new(Batched {
            server: server.clone(),
            interval,
            clock: node.clock.clone(),
            entries: papaya::HashMap::default(),
            used: AtomicUsize::new(0),
            max: MAX_COUNTERS,
            listed,
        });
        stores.retain(|store| store.strong_count() > 0);
        stores.push(Arc::downgrade(&store));
        let closing = node.background.closing();
        let reports = report(of_node.clone(), store.clone(), to_report, closing);
        node.background.spawn(reports);
        store
    }

    fn stores(&self) -> MutexGuard<'_, Vec<Weak<Batched>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a store that nobody uses but its reports. Returns whether it was so.
    fn forget(&self, store: &Arc<Batched>) -> bool {
        let mut stores = self.stores();
        let is_unused = Arc::strong_count(store) == 1;
        if is_unused {
            stores.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(store)));
        }
        is_unused
    }
}

impl Batched {
    /// Judges a request if that needs no exchange with Redis.
    pub(super) fn judge_here(
        &self,
        identity: Identity,
        names: impl Fn() -> Names,
        allowances: &[Allowance],
        moment: &Moment,
    ) -> Option<Verdict> {
        let now = self.now(moment);
        let judged = self.with_entry(identity, &names, |entry, tally| {
            let judged = tally.judge(allowances, &now, self.interval);
            self.list(entry, tally);
            judged
        })?;
        match judged {
            Judged::Known(verdict) => Some(verdict),
            Judged::Unknown => None,
        }
    }

    /// Judges a request by asking Redis, which also gets what was not reported.
    pub(super) async fn judge(
        &self,
        identity: Identity,
        names: &Names,
        allowances: &[Allowance],
        moment: &Moment,
    ) -> Result<Verdict, CountError> {
        let now = self.now(moment);
        let begun = self.with_entry(
            identity,
            || names.clone(),
            |entry, tally| {
                let reports = tally.report(allowances, &now);
                Sending::new(vec![(entry.clone(), reports)])
            },
        );
        let Some(mut sending) = begun else {
            let reports: Vec<Report> = allowances
                .iter()
                .map(|one| nothing(one.period, moment))
                .collect();
            return Ok(self.take(names, &reports, allowances).await?.0);
        };
        let reports: Vec<Report> = sending.reports().collect();
        let entries: Vec<Arc<Entry>> = sending.entries().cloned().collect();
        let taken = self.take(names, &reports, allowances).await;
        if let Ok((verdict, counts)) = &taken {
            let counts: Vec<Option<u64>> = counts.iter().copied().map(Some).collect();
            sending.end(&counts, verdict.passes, &self.clock, self.interval);
        }
        // After a failure, this takes back what was to be reported.
        drop(sending);
        self.list_all(&entries);
        Ok(taken?.0)
    }

    /// Counts a request that passes although Redis could not be asked. It is reported when Redis is back.
    pub(super) fn count(
        &self,
        identity: Identity,
        names: &Names,
        allowances: &[Allowance],
        moment: &Moment,
    ) {
        let now = self.now(moment);
        self.with_entry(
            identity,
            || names.clone(),
            |entry, tally| {
                tally.count(allowances, &now);
                self.list(entry, tally);
            },
        );
    }

    /// Returns the verdict and the counts after it.
    async fn take(
        &self,
        names: &Names,
        reports: &[Report],
        allowances: &[Allowance],
    ) -> Result<(Verdict, Vec<u64>), CountError> {
        let keys = reports
            .iter()
            .map(|one| names.of_window("", one.period, one.begin));
        let arguments = reports
            .iter()
            .zip(allowances)
            .flat_map(|(report, allowance)| {
                [
                    report.requests.to_string().into_bytes(),
                    allowance.requests.to_string().into_bytes(),
                    names::lifetime(report.period),
                ]
            });
        let call = Call::script(&TAKE, keys.collect(), arguments.collect());
        let mut counts = numbers(&self.server.run(call).await?, reports.len() + 1)?;
        let passes = counts.pop() == Some(1);
        let mut before = [0; Period::COUNT];
        for (before, count) in before.iter_mut().zip(&counts) {
            *before = count.saturating_sub(u64::from(passes));
        }
        Ok((Verdict { passes, before }, counts))
    }

    /// Calls a function with the entry of a client; makes the entry if there is room. `None` if there is none.
    fn with_entry<R>(
        &self,
        identity: Identity,
        names: impl Fn() -> Names,
        with: impl Fn(&Arc<Entry>, &mut Tally) -> R,
    ) -> Option<R> {
        let entries = self.entries.pin();
        loop {
            let entry = match entries.get(&identity.hash()) {
                Some(entry) => entry,
                None => {
                    let is_bounded = identity.is_bounded();
                    let names = names();
                    if is_bounded && (names.is_long() || !self.take_room()) {
                        return None;
                    }
                    let entry = Arc::new(Entry {
                        names,
                        is_bounded,
                        tally: Mutex::default(),
                    });
                    match entries.try_insert(identity.hash(), entry) {
                        Ok(entry) => entry,
                        Err(occupied) => {
                            self.give_room(is_bounded);
                            occupied.current
                        }
                    }
                }
            };
            let mut tally = entry.tally();
            if !tally.is_removed {
                return Some(with(entry, &mut tally));
            }
            drop(tally);
            // The sweep is about to take it out of the map.
            let _ = entries.remove_if(&identity.hash(), |_, known| Arc::ptr_eq(known, entry));
        }
    }

    fn list(&self, entry: &Arc<Entry>, tally: &mut Tally) {
        if tally.has_unreported() && !tally.is_listed {
            // The reports end only when nobody uses the store.
            tally.is_listed = self.listed.send(entry.clone()).is_ok();
        }
    }

    /// Lists what these entries have to report again: a report has failed, or Redis has lost counts.
    fn list_all(&self, entries: &[Arc<Entry>]) {
        for entry in entries {
            self.list(entry, &mut entry.tally());
        }
    }

    fn take_room(&self) -> bool {
        let reserve = |used: usize| (used < self.max).then_some(used + 1);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve)
            .is_ok()
    }

    fn give_room(&self, is_bounded: bool) {
        if is_bounded {
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn now(&self, moment: &Moment) -> Now {
        Now {
            moment: *moment,
            wall: self.clock.since_epoch(),
            steady: self.clock.since_beginning(),
        }
    }

    /// Reports what these entries have counted, in one round trip.
    async fn push(&self, entries: Vec<Arc<Entry>>) {
        let per_call = if self.server.is_cluster() {
            1
        } else {
            CLIENTS_PER_CALL
        };
        let wall = self.clock.since_epoch();
        let begun = entries.into_iter().filter_map(|entry| {
            let mut tally = entry.tally();
            tally.is_listed = false;
            tally.drop_over(wall);
            let reports = tally.report_all();
            drop(tally);
            (!reports.is_empty()).then_some((entry, reports))
        });
        let mut begun = begun.peekable();
        let mut sending: Vec<Sending> = Vec::new();
        while begun.peek().is_some() {
            sending.push(Sending::new(begun.by_ref().take(per_call).collect()));
        }
        if sending.is_empty() {
            return;
        }
        let calls: Vec<Call> = sending.iter().map(Sending::call).collect();
        let answers = self.server.run_all(&calls).await;
        for (mut sending, answer) in sending.into_iter().zip(answers) {
            let expected = sending.reports().count();
            let entries: Vec<Arc<Entry>> = sending.entries().cloned().collect();
            let counts = answer.map_err(CountError::from);
            match counts.and_then(|answer| counted(&answer, expected)) {
                Ok(counts) => sending.end(&counts, false, &self.clock, self.interval),
                // The client of Redis has logged that it cannot be reached.
                Err(error) => tracing::debug!(%error, "counts are not reported yet"),
            }
            // After a failure, this takes back what was to be reported.
            drop(sending);
            self.list_all(&entries);
        }
    }

    /// Removes entries that were not used lately and have nothing to report. Redis has their counts.
    fn sweep(&self) {
        let (now, wall) = (self.clock.since_beginning(), self.clock.since_epoch());
        let idle = IDLE.max(self.interval.saturating_mul(2));
        let entries = self.entries.pin();
        for (hash, entry) in &entries {
            let mut tally = entry.tally();
            let is_idle = now.saturating_sub(tally.used_at) > idle;
            if is_idle {
                tally.drop_over(wall);
            }
            if !is_idle || tally.is_listed || tally.has_unreported() {
                continue;
            }
            tally.is_removed = true;
            drop(tally);
            let _ = entries.remove_if(hash, |_, known| Arc::ptr_eq(known, entry));
            self.give_room(entry.is_bounded);
        }
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }
}

fn nothing(period: Period, moment: &Moment) -> Report {
    Report {
        period,
        begin: moment.window(period),
        requests: 0,
        number: 0,
    }
}

/// Reports once per interval until nobody uses the store or the gateway shuts down, and then a last time.
async fn report(
    stores: Arc<Stores>,
    store: Arc<Batched>,
    mut listed: mpsc::UnboundedReceiver<Arc<Entry>>,
    closing: impl Future<Output = ()>,
) {
    // Somewhat more often than a count becomes stale, so that a busy client never has to wait for it.
    let pause = store.interval.mul_f64(0.8);
    let mut reported_at = Instant::now();
    let mut swept_at = reported_at;
    let mut closing = pin!(closing);
    loop {
        let left = pause.saturating_sub(reported_at.elapsed());
        // A last time comes soon after the last plugin is gone, also with a long interval.
        let is_closing = timeout(left.min(LONGEST_WAIT), &mut closing).await.is_ok();
        let is_last = is_closing || stores.forget(&store);
        if !is_last && reported_at.elapsed() < pause {
            continue;
        }
        reported_at = Instant::now();
        // What is listed meanwhile is for the next time.
        let mut left = listed.len();
        while left > 0 {
            let mut entries = Vec::with_capacity(left.min(CLIENTS));
            while entries.len() < left.min(CLIENTS)
                && let Ok(entry) = listed.try_recv()
            {
                entries.push(entry);
            }
            if entries.is_empty() {
                break;
            }
            left -= entries.len();
            store.push(entries).await;
        }
        if is_last {
            return;
        }
        if swept_at.elapsed() > SWEEP_INTERVAL {
            let swept = store.clone();
            // A task of the background must not take long. An error means that the process ends.
            let _ = tokio::task::spawn_blocking(move || swept.sweep()).await;
            swept_at = Instant::now();
        }
    }
}
