//! Counts queries and their outcomes, under the names of Kong's newer client (kong/dns/client.lua stats()).

use super::answer::ResolveError;
use super::transport::Reply;
use hickory_resolver::proto::rr::{Name, RecordType};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counters of each query. The outer key is `name:type`, the inner key is the name of the counter.
pub type Counters = BTreeMap<String, BTreeMap<String, u64>>;

/// Maximum number of distinct queries with counters. If it is exceeded, all these counters are reset, because some of
/// the names are probably no longer in use.
const MAX_NAMES: usize = 20_000;

/// Statistics of all queries to name servers.
#[derive(Debug, Default)]
pub(super) struct Statistics(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    by_question: HashMap<(Name, RecordType), Question>,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Question {
    asked: u64,
    succeeded: u64,
    unanswered: u64,
    last: Duration,
    failures: BTreeMap<&'static str, u64>,
}

/// Number and total duration of queries, by outcome.
#[derive(Debug, Default, Clone, Copy)]
pub struct Totals {
    pub answered: (u64, Duration),
    pub not_found: (u64, Duration),
    pub failed: (u64, Duration),
}

impl Statistics {
    pub(super) fn count(
        &self,
        name: &Name,
        kind: RecordType,
        took: Duration,
        reply: &Result<Reply, ResolveError>,
    ) {
        let mut counted = self.counted();
        let total = match reply {
            Ok(reply) if !reply.answers.is_empty() => &mut counted.totals.answered,
            Ok(_) => &mut counted.totals.not_found,
            Err(_) => &mut counted.totals.failed,
        };
        total.0 += 1;
        total.1 += took;
        let key = (name.clone(), kind);
        if counted.by_question.len() >= MAX_NAMES && !counted.by_question.contains_key(&key) {
            counted.by_question.clear();
        }
        let question = counted.by_question.entry(key).or_default();
        question.asked += 1;
        question.last = took;
        match reply {
            Ok(reply) if !reply.answers.is_empty() => question.succeeded += 1,
            Ok(reply) => question.fail(if reply.exists {
                "empty record received"
            } else {
                "name error"
            }),
            Err(ResolveError::Server(_, text)) => question.fail(text),
            Err(_) => question.unanswered += 1,
        }
    }

    pub(super) fn totals(&self) -> Totals {
        self.counted().totals
    }

    /// Adds the counters of all queries.
    pub(super) fn collect(&self, counters: &mut Counters) {
        for ((name, kind), question) in &self.counted().by_question {
            let name = name.to_ascii();
            let name = name.strip_suffix('.').unwrap_or(&name);
            let fields = question.fields();
            counters.insert(format!("{name}:{kind}"), fields.collect());
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    fn fail(&mut self, why: &'static str) {
        *self.failures.entry(why).or_default() += 1;
    }

    fn fields(&self) -> impl Iterator<Item = (String, u64)> {
        let last = u64::try_from(self.last.as_millis()).unwrap_or(u64::MAX);
        let fixed = [
            ("query", self.asked),
            ("query_last_time", last),
            ("query_succ", self.succeeded),
            ("query_fail_nameserver", self.unanswered),
        ];
        // Counters that are zero are omitted. The duration of the last query is not a counter and is always included.
        let fixed = fixed
            .into_iter()
            .filter(|(name, count)| *count > 0 || *name == "query_last_time")
            .map(|(name, count)| (name.to_owned(), count));
        let failures = self.failures.iter();
        fixed.chain(failures.map(|(why, count)| (format!("query_fail:{why}"), *count)))
    }
}
