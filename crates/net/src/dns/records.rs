//! Sends DNS queries and caches the responses. Concurrent requests for the same records share one query. The number of
//! concurrent queries is limited, so that thousands of names do not flood a name server.

use super::answer::ResolveError;
use super::settings::DnsSettings;
use super::statistics::Statistics;
use super::transport::{Reply, Transport};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use hickory_resolver::proto::rr::{Name, RecordType};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Maximum concurrent queries.
const MAX_QUERIED: usize = 256;
/// Maximum TTL. A longer one is a mistake or an attack (RFC 8767 §4).
const MAX_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// Remaining time to live that is reported for an expired response that is still in use.
const PAST_END: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key(Name, RecordType);

/// A response and its time of arrival.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) reply: Reply,
    at: Instant,
    /// TTL of the response, or the one from the settings.
    ttl: Duration,
}

impl Kept {
    /// Returns the remaining time to live. For an expired response it returns `PAST_END`, because 0 would mean that the
    /// response has TTL 0 and must be queried again for each use.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let age = now.saturating_duration_since(self.at);
        match self.ttl.saturating_sub(age) {
            Duration::ZERO if !self.ttl.is_zero() => PAST_END,
            left => left,
        }
    }

    /// Whether less than three quarters of the TTL have passed. An older response is queried again. Otherwise, a name
    /// that is refreshed shortly before its answer expires would only get the same response with a shorter TTL.
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < self.ttl - self.ttl / 4
    }
}

type Asked = Shared<BoxFuture<'static, Result<Arc<Kept>, ResolveError>>>;

pub(super) struct Records {
    transport: Arc<dyn Transport>,
    permits: Arc<Semaphore>,
    statistics: Arc<Statistics>,
    state: Mutex<CacheState>,
    size: usize,
    valid_ttl: Option<Duration>,
    stale_ttl: Duration,
    not_found_ttl: Duration,
}

#[derive(Default)]
struct CacheState {
    kept: HashMap<Key, Arc<Kept>>,
    asked: HashMap<Key, Asked>,
}

impl Records {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        settings: &DnsSettings,
        statistics: Arc<Statistics>,
    ) -> Self {
        Self {
            transport,
            permits: Arc::new(Semaphore::new(MAX_QUERIED)),
            statistics,
            state: Mutex::default(),
            size: settings.cache_size,
            valid_ttl: settings.valid_ttl,
            stale_ttl: settings.stale_ttl,
            not_found_ttl: settings.not_found_ttl,
        }
    }

    pub(super) async fn get(
        &self,
        name: &Name,
        kind: RecordType,
    ) -> Result<Arc<Kept>, ResolveError> {
        let key = Key(name.clone(), kind);
        let asked = {
            let mut state = self.state();
            if let Some(kept) = state
                .kept
                .get(&key)
                .filter(|kept| kept.is_fresh(Instant::now()))
            {
                return Ok(kept.clone());
            }
            match state.asked.get(&key) {
                Some(asked) => asked.clone(),
                None => {
                    let asked = self.ask(name.clone(), kind);
                    state.asked.insert(key.clone(), asked.clone());
                    asked
                }
            }
        };
        let answered = asked.clone().await;
        self.settle(key, &asked, &answered);
        answered
    }

    /// Like [`Records::get`], but if the query fails, returns a previous response until `stale_ttl` after its expiry.
    pub(super) async fn get_or_stale(
        &self,
        name: &Name,
        kind: RecordType,
    ) -> Result<Arc<Kept>, ResolveError> {
        let got = self.get(name, kind).await;
        let Err(error) = got else {
            return got;
        };
        let key = Key(name.clone(), kind);
        let kept = self.state().kept.get(&key).cloned();
        let usable = |kept: &Arc<Kept>| {
            let until = kept.at + kept.ttl + self.stale_ttl;
            !kept.reply.answers.is_empty() && Instant::now() < until
        };
        kept.filter(usable).ok_or(error)
    }

    fn ask(&self, name: Name, kind: RecordType) -> Asked {
        let (transport, permits) = (self.transport.clone(), self.permits.clone());
        let (not_found_ttl, valid_ttl) = (self.not_found_ttl, self.valid_ttl);
        let statistics = self.statistics.clone();
        let asking = async move {
            let _permit = permits.acquire().await;
            let began = Instant::now();
            let reply = transport.ask(name.clone(), kind).await;
            statistics.count(&name, kind, began.elapsed(), &reply);
            let reply = reply?;
            let shortest = reply.answers.iter().map(|record| record.ttl).min();
            let ttl = match shortest {
                None => not_found_ttl,
                Some(seconds) => ttl(seconds, valid_ttl),
            };
            Ok(Arc::new(Kept {
                reply,
                at: Instant::now(),
                ttl,
            }))
        };
        asking.boxed().shared()
    }

    /// Stores the result of a query. The first of the waiting callers does this for all.
    fn settle(&self, key: Key, asked: &Asked, answered: &Result<Arc<Kept>, ResolveError>) {
        let mut state = self.state();
        let current = state.asked.get(&key);
        if !current.is_some_and(|current| current.ptr_eq(asked)) {
            return;
        }
        state.asked.remove(&key);
        if let Ok(kept) = answered
            && !kept.ttl.is_zero()
            && self.size > 0
        {
            if state.kept.len() >= self.size && !state.kept.contains_key(&key) {
                make_room(&mut state.kept);
            }
            state.kept.insert(key, kept.clone());
        }
    }

    /// Removes a cached response that says that a name has no records of this type.
    pub(super) fn forget_missing(&self, name: &Name, kind: RecordType) {
        let key = Key(name.clone(), kind);
        let mut state = self.state();
        let kept = state.kept.get(&key);
        if kept.is_some_and(|kept| kept.reply.answers.is_empty()) {
            state.kept.remove(&key);
        }
    }

    /// Returns the TTL to use for a record with a TTL of `seconds`. It is `valid_ttl` if that is set, else the record's
    /// own TTL up to `MAX_TTL`.
    pub(super) fn ttl(&self, seconds: u32) -> Duration {
        ttl(seconds, self.valid_ttl)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state().kept.len()
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ttl(seconds: u32, valid: Option<Duration>) -> Duration {
    valid.unwrap_or_else(|| Duration::from_secs(seconds.into()).min(MAX_TTL))
}

/// Removes the eighth of the responses that expires first. Removing many at once makes this work rare.
fn make_room(kept: &mut HashMap<Key, Arc<Kept>>) {
    let mut ends: Vec<Instant> = kept.values().map(|one| one.at + one.ttl).collect();
    let at = ends.len() / 8;
    if ends.is_empty() {
        return;
    }
    let (_, limit, _) = ends.select_nth_unstable(at);
    let limit = *limit;
    let mut excess = at + 1;
    kept.retain(|_, one| {
        let goes = excess > 0 && one.at + one.ttl <= limit;
        excess -= usize::from(goes);
        !goes
    });
}
