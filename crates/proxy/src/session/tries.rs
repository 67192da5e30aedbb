//! The attempts of a request at its upstream: the result of each, and whether another follows. [`Tries::judge`] is the
//! only place that decides about retries. Source: nginx's ngx_http_upstream_next() with `proxy_next_upstream error
//! timeout`, which Kong does not change.

use super::connect::{ConnectError, Freshness};
use super::failure::{Failed, Owner, TryFailure, UpstreamFailure};
use plugin::{Try, TryEnd};
use std::net::SocketAddr;
use std::slice;
use std::time::Duration;
use tokio::time::Instant;

/// The time between two instants. The instants are mostly equal, and comparing them is cheaper than subtracting.
#[inline]
fn between(from: Instant, to: Instant) -> Duration {
    if from == to {
        Duration::ZERO
    } else {
        to - from
    }
}

/// Retry limits of a request and its service.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Retries of the service after the first attempt.
    pub(super) retries: u16,
    /// Whether the request may safely be sent twice.
    pub(super) idempotent: bool,
    /// Whether the route streams request bodies and this request has one.
    pub(super) streams: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Retry at the same target, because only its reused connection was dead.
    Same,
    /// Retry at another target if there is one.
    Another,
    /// Do not retry: the failure decides the response.
    Final,
}

/// The attempts of a connection's current request.
pub(super) struct Tries {
    made: TryList,
    /// Number of failed attempts that count against the retries.
    failed: u32,
    pub(super) freshness: Freshness,
    request_started: Instant,
    began: Instant,
    /// When the address for the last attempt was found. Latencies count the time before as the gateway's, and the time
    /// after as the upstream's.
    contacted: Instant,
    address: Option<SocketAddr>,
}

impl Tries {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            made: TryList::default(),
            failed: 0,
            freshness: Freshness::Any,
            request_started: now,
            began: now,
            contacted: now,
            address: None,
        }
    }

    /// Forgets the attempts of the previous request.
    #[inline]
    pub(super) fn restart(&mut self, request_started: Instant) {
        self.request_started = request_started;
        self.failed = 0;
        self.freshness = Freshness::Any;
        self.made.clear();
    }

    /// Addresses that another attempt should avoid. Computed on demand, because a stored list would enlarge every
    /// connection.
    #[inline]
    pub(super) fn failed_at(&self) -> Vec<SocketAddr> {
        if self.failed == 0 {
            return Vec::new();
        }
        let failed = |one: &&Try| matches!(one.end, TryEnd::Failed(_));
        let made = self.made().iter().filter(failed);
        made.filter_map(|one| one.address).collect()
    }

    /// The attempts, in order.
    pub(super) fn made(&self) -> &[Try] {
        self.made.as_slice()
    }

    pub(super) fn begin(&mut self, now: Instant) {
        (self.began, self.contacted, self.address) = (now, now, None);
    }

    /// Records the address that was found for the current attempt, and when.
    pub(super) fn contact(&mut self, address: SocketAddr, now: Instant) {
        (self.contacted, self.address) = (now, Some(address));
    }

    /// Address of the last attempt, or `None` if no address was found.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// When the last attempt began.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    pub(super) fn contacted(&self) -> Instant {
        self.contacted
    }

    pub(super) fn answered(&mut self, status: u16, now: Instant) {
        self.end(TryEnd::Answered(status), now);
    }

    fn end(&mut self, end: TryEnd, now: Instant) {
        self.made.push(Try {
            address: self.address,
            after: between(self.request_started, self.began),
            choosing: between(self.began, self.contacted),
            took: now - self.began,
            end,
        });
    }

    /// Records a failure and decides about a retry:
    /// - A failure of the client, or of name resolution, is never retried.
    /// - Other failures to connect are retried, whatever the request is.
    /// - After sending, a request is retried only if it can be repeated, is idempotent and does not stream its body. If
    ///   the upstream reported that it did nothing, it is enough that the request can be repeated.
    /// - If a reused connection turned out to be closed, a request that may be retried is sent again on a new
    ///   connection. This does not count against the retries.
    pub(super) fn judge(&mut self, failure: &TryFailure, rules: Rules, now: Instant) -> Verdict {
        if let Some(end) = failure.end() {
            self.end(end, now);
        }
        match failure {
            _ if failure.owner() == Owner::Client => Verdict::Final,
            TryFailure::Connect(ConnectError::Resolve(_)) => Verdict::Final,
            // This includes targets for which the gateway had no free slot or port: another target may have one.
            TryFailure::Connect(_) => self.count(rules),
            // The upstream reported that it did nothing, so even a non-idempotent request is retried.
            TryFailure::Exchange {
                failed: Failed::Upstream(UpstreamFailure::Unprocessed),
                repeatable: true,
                ..
            } => self.count(rules),
            TryFailure::Exchange {
                failed: Failed::Upstream(failure),
                reused,
                repeatable,
                ..
            } if *repeatable && rules.idempotent && !rules.streams => match failure {
                UpstreamFailure::Silent | UpstreamFailure::Interrupted
                    if *reused && self.freshness == Freshness::Any =>
                {
                    self.freshness = Freshness::OpenedAfter(now);
                    Verdict::Same
                }
                UpstreamFailure::Silent
                | UpstreamFailure::Interrupted
                | UpstreamFailure::CutOff
                | UpstreamFailure::Timeout => self.count(rules),
                UpstreamFailure::Nonsense
                | UpstreamFailure::Rejected
                | UpstreamFailure::Unprocessed => Verdict::Final,
            },
            TryFailure::Exchange { .. } => Verdict::Final,
        }
    }

    fn count(&mut self, rules: Rules) -> Verdict {
        self.failed += 1;
        if self.failed <= u32::from(rules.retries) {
            Verdict::Another
        } else {
            Verdict::Final
        }
    }
}

/// Whether nginx treats the method as idempotent.
pub(super) fn is_idempotent(method: &[u8]) -> bool {
    !matches!(method, b"POST" | b"PATCH" | b"LOCK")
}

/// The list of attempts. Most requests have one, which needs no allocation.
#[derive(Debug, Default)]
struct TryList {
    first: Option<Try>,
    /// All attempts, if there are several.
    all: Vec<Try>,
}

impl TryList {
    fn push(&mut self, one: Try) {
        match self.first {
            None => self.first = Some(one),
            Some(first) => {
                if self.all.is_empty() {
                    self.all.push(first);
                }
                self.all.push(one);
            }
        }
    }

    fn as_slice(&self) -> &[Try] {
        match &self.first {
            Some(first) if self.all.is_empty() => slice::from_ref(first),
            _ => &self.all,
        }
    }

    #[inline]
    fn clear(&mut self) {
        self.first = None;
        if !self.all.is_empty() {
            self.all = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::dns::ResolveError;
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::time::Duration;

    const RULES: Rules = Rules {
        retries: 2,
        idempotent: true,
        streams: false,
    };

    fn exchange(failed: Failed) -> TryFailure {
        TryFailure::Exchange {
            failed,
            reused: false,
            repeatable: true,
            told: None,
            passed: None,
        }
    }

    fn upstream(failure: UpstreamFailure) -> TryFailure {
        exchange(Failed::Upstream(failure))
    }

    fn refused() -> TryFailure {
        let cause = Arc::new(ErrorKind::ConnectionRefused.into());
        TryFailure::Connect(ConnectError::Refused(cause))
    }

    fn handshake(owner: Owner) -> TryFailure {
        TryFailure::Connect(ConnectError::Handshake {
            cause: Arc::new(ErrorKind::UnexpectedEof.into()),
            owner,
        })
    }

    fn timeout() -> TryFailure {
        TryFailure::Connect(ConnectError::Timeout)
    }

    fn judge(failure: &TryFailure, rules: Rules) -> Verdict {
        let now = Instant::now();
        Tries::new(now).judge(failure, rules, now)
    }

    #[test]
    fn verdicts_on_retries() {
        use UpstreamFailure::{CutOff, Interrupted, Nonsense, Rejected, Silent, Timeout};
        use Verdict::{Another as Again, Final};
        let post = Rules {
            idempotent: false,
            ..RULES
        };
        let streamed = Rules {
            streams: true,
            ..RULES
        };
        let connect = TryFailure::Connect;
        let resolve = |error| connect(ConnectError::Resolve(error));
        // The verdicts for three requests: an idempotent one, a POST, and an idempotent one that streams its body.
        let (always, never, repeatable) = ([Again; 3], [Final; 3], [Again, Final, Final]);
        for (name, failure, expected) in [
            ("refused", refused(), always),
            ("connect timeout", timeout(), always),
            ("no slot", connect(ConnectError::Busy), always),
            ("no name", resolve(ResolveError::NotFound), never),
            ("no name server", resolve(ResolveError::Unreachable), never),
            ("silent", upstream(Silent), repeatable),
            ("cut off", upstream(CutOff), repeatable),
            ("timeout", upstream(Timeout), repeatable),
            ("nonsense", upstream(Nonsense), never),
            ("interrupted", upstream(Interrupted), repeatable),
            ("rejected", upstream(Rejected), never),
            ("handshake", handshake(Owner::Upstream), always),
            ("unclear handshake", handshake(Owner::Unclear), always),
            ("client's name", handshake(Owner::Client), never),
            ("not for HTTP/2", exchange(Failed::ClientRequest), never),
            ("client gone", exchange(Failed::ClientGone), never),
            ("client slow", exchange(Failed::ClientTimeout), never),
            ("client's body", exchange(Failed::ClientBody), never),
            ("too large", exchange(Failed::TooLarge), never),
            ("broken answer", exchange(Failed::Broken), never),
            ("broken end", exchange(Failed::BrokenUnnoticed), never),
        ] {
            let got = [RULES, post, streamed].map(|rules| judge(&failure, rules));
            assert_eq!(got, expected, "{name}");
        }
        for failure in [Silent, CutOff, Timeout] {
            let failure = TryFailure::Exchange {
                failed: Failed::Upstream(failure),
                reused: true,
                repeatable: false,
                told: None,
                passed: None,
            };
            assert_eq!(judge(&failure, RULES), Final);
        }
    }

    #[test]
    fn attempts_are_one_more_than_retries() {
        for retries in [0, 1, 5, 32767] {
            let now = Instant::now();
            let mut tries = Tries::new(now);
            let rules = Rules { retries, ..RULES };
            let mut again = 0;
            while tries.judge(&refused(), rules, now) == Verdict::Another {
                again += 1;
            }
            assert_eq!(again, u32::from(retries));
            assert_eq!(tries.made().len(), usize::from(retries) + 1);
        }
    }

    #[test]
    fn a_dead_idle_connection_costs_no_attempt_and_the_next_is_new() {
        let now = Instant::now();
        let mut tries = Tries::new(now);
        let rules = Rules {
            retries: 0,
            ..RULES
        };
        let dead = TryFailure::Exchange {
            failed: Failed::Upstream(UpstreamFailure::Silent),
            reused: true,
            repeatable: true,
            told: None,
            passed: None,
        };
        assert_eq!(tries.judge(&dead, rules, now), Verdict::Same);
        assert_eq!(tries.freshness, Freshness::OpenedAfter(now));
        let dead = upstream(UpstreamFailure::Silent);
        assert_eq!(tries.judge(&dead, rules, now), Verdict::Final);
    }

    #[test]
    fn attempts_are_listed_with_their_times_and_ends() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        let mut tries = Tries::new(start);
        assert!(tries.made().is_empty());
        tries.begin(at(1));
        tries.judge(&timeout(), RULES, at(3));
        tries.begin(at(4));
        tries.contact(address, at(5));
        tries.judge(&upstream(UpstreamFailure::CutOff), RULES, at(7));
        tries.begin(at(8));
        tries.contact(address, at(8));
        tries.answered(204, at(9));
        let seconds = |one: &Try| [one.after, one.choosing, one.took].map(|time| time.as_secs());
        let got: Vec<_> = tries
            .made()
            .iter()
            .map(|one| (one.address, seconds(one), one.end))
            .collect();
        let expected = [
            (None, [1, 0, 2], TryEnd::Failed(504)),
            (Some(address), [4, 1, 3], TryEnd::Failed(502)),
            (Some(address), [8, 0, 1], TryEnd::Answered(204)),
        ];
        assert_eq!(got, expected);
        assert_eq!(tries.failed_at(), [address]);
        tries.restart(start);
        assert!(tries.made().is_empty() && tries.failed_at().is_empty());
    }
}
