//! Questions and their answers, each asked once however many wait for it, and kept as long as they are good. The number of
//! questions under way is bounded: thousands of names must not flood a name server.

use super::answer::ResolveError;
use super::settings::Settings;
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

/// Questions under way at once.
const MOST_ASKED: usize = 256;
/// RFC 8767 §4: longer ones are a mistake or an attack.
const MOST_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long an answer is used past its end before it is asked for again.
const PAST_END: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key(Name, RecordType);

/// An answer and when it came.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) reply: Reply,
    at: Instant,
    /// As it came, or as the settings have it.
    ttl: Duration,
}

impl Kept {
    /// What is left of its time. One that is used past its end is good for another moment, or it would look as if it had a
    /// TTL of 0.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let age = now.saturating_duration_since(self.at);
        match self.ttl.saturating_sub(age) {
            Duration::ZERO if !self.ttl.is_zero() => PAST_END,
            left => left,
        }
    }

    /// Close to its end an answer is asked for again, or names whose turn is just before it would never get a longer one.
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < self.ttl - self.ttl / 4
    }
}

type Asked = Shared<BoxFuture<'static, Result<Arc<Kept>, ResolveError>>>;

pub(super) struct Records {
    transport: Arc<dyn Transport>,
    permits: Arc<Semaphore>,
    statistics: Arc<Statistics>,
    state: Mutex<State>,
    size: usize,
    valid_ttl: Option<Duration>,
    stale_ttl: Duration,
    not_found_ttl: Duration,
}

#[derive(Default)]
struct State {
    kept: HashMap<Key, Arc<Kept>>,
    asked: HashMap<Key, Asked>,
}

impl Records {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        settings: &Settings,
        statistics: Arc<Statistics>,
    ) -> Self {
        Self {
            transport,
            permits: Arc::new(Semaphore::new(MOST_ASKED)),
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

    /// As [`Records::get`]; where the name servers fail, the former answer while it may still be used.
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

    /// The first of those that waited takes the question off the list.
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

    /// Forgets that a name has no records of a kind.
    pub(super) fn forget_missing(&self, name: &Name, kind: RecordType) {
        let key = Key(name.clone(), kind);
        let mut state = self.state();
        let kept = state.kept.get(&key);
        if kept.is_some_and(|kept| kept.reply.answers.is_empty()) {
            state.kept.remove(&key);
        }
    }

    /// As the settings have it.
    pub(super) fn ttl(&self, seconds: u32) -> Duration {
        ttl(seconds, self.valid_ttl)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state().kept.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ttl(seconds: u32, valid: Option<Duration>) -> Duration {
    valid.unwrap_or_else(|| Duration::from_secs(seconds.into()).min(MOST_TTL))
}

/// Takes out the eighth that ends first, so that the work is rare.
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
