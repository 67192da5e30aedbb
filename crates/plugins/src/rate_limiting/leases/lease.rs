//! A node's part of one limit in one window: the permits that Redis granted, and those that requests have used.
//!
//! The node never has more permits than Redis has noted for it. Before it sends a message it gives up what it returns,
//! and it gets permits only from the reply to its newest message. So it does not matter which messages arrive.

use super::super::window::Period;
use super::message::{Answer, Ask, Others};
use std::time::Duration;

/// The part of the time to the end of a window by which a lease ends early, for clocks that run at different speeds.
/// NTP changes the speed of a clock by at most 1 / 2000.
const DRIFT: u32 = 1000;

/// How long it holds that nothing is left, if other nodes may return something.
const VALID: Duration = Duration::from_millis(60);

/// How long it holds if all nodes have used what they had. A node that was suspended may yet return something.
const FINAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) period: Period,
    pub(super) limit: u64,
    /// Number of the record in Redis. Each window has a new one.
    record: u64,
    window: Option<Window>,
    sequence: u64,
    /// Whether the newest message has no reply yet.
    asked: bool,
    granted: u64,
    used: u64,
    /// What no node had at the last reply.
    left: u64,
    empty: Option<Empty>,
    /// Whether the current master may not know this node's total.
    is_unreported: bool,
    /// The used permits that Redis knows of.
    reported: u64,
    /// Whether Redis may have permits noted that the node does not use any more.
    has_returned: bool,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    begin: u64,
    /// The time of the node at which the window ends at the earliest.
    end: Duration,
}

/// What Redis said when it granted nothing.
#[derive(Debug, Clone, Copy)]
struct Empty {
    /// The limit for which it said so.
    limit: u64,
    /// When Redis is asked again.
    until: Duration,
    /// Whether no other node has anything to return.
    is_final: bool,
}

/// What a lease has for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Permit,
    /// The limit is reached.
    Refusal,
    /// Redis must be asked.
    Unknown,
}

impl Lease {
    pub(super) fn new(period: Period, limit: u64, record: u64) -> Self {
        Self {
            period,
            limit,
            record,
            window: None,
            sequence: 0,
            asked: false,
            granted: 0,
            used: 0,
            left: limit,
            empty: None,
            is_unreported: false,
            reported: 0,
            has_returned: false,
        }
    }

    /// Whether the window is over, so that the lease must be replaced.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.window.is_some_and(|window| window.end <= now)
    }

    /// Whether Redis has a record of this lease in a window that goes on.
    pub(super) fn is_live(&self, now: Duration) -> bool {
        self.window.is_some_and(|window| now < window.end)
    }

    /// Returns what the lease has for a request. Permits count only while the node is certain that the master is the
    /// one that granted them.
    pub(super) fn offer(&self, is_certain: bool, now: Duration) -> Offer {
        let is_empty = self.empty(now).is_some();
        if self.unused() > 0 && is_certain {
            Offer::Permit
        } else if is_empty {
            Offer::Refusal
        } else {
            Offer::Unknown
        }
    }

    pub(super) fn take(&mut self) {
        self.used += 1;
    }

    pub(super) fn unused(&self) -> u64 {
        self.granted.saturating_sub(self.used)
    }

    /// Returns the requests that were let through, as far as the node knows.
    pub(super) fn requests(&self) -> u64 {
        let remaining = self.left.saturating_add(self.unused());
        self.limit.saturating_sub(remaining).max(self.used)
    }

    /// Returns the requests that this node has let through in the window.
    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    #[cfg(test)]
    pub(super) fn window(&self) -> Option<u64> {
        self.window.map(|window| window.begin)
    }

    pub(super) fn is_unreported(&self) -> bool {
        self.is_unreported
    }

    /// Whether Redis may give this lease more when it is asked again.
    pub(super) fn may_get_more(&self, now: Duration) -> bool {
        self.empty(now).is_none_or(|empty| !empty.is_final)
    }

    /// Returns what Redis said when it granted nothing, if that still holds.
    fn empty(&self, now: Duration) -> Option<Empty> {
        let holds = |empty: &Empty| self.limit <= empty.limit && now < empty.until;
        self.empty.filter(holds)
    }

    /// Whether Redis does not know what the node has used, or returns.
    pub(super) fn has_news(&self) -> bool {
        self.has_returned || self.used != self.reported
    }

    /// Gives up the permits that are unused.
    pub(super) fn give_up(&mut self) {
        self.has_returned |= self.unused() > 0;
        self.granted = self.granted.min(self.used);
    }

    /// Gives up the permits that are unused, because a new master may not know them.
    pub(super) fn begin_epoch(&mut self) {
        self.granted = self.granted.min(self.used);
        self.is_unreported = self.window.is_some();
        // What the new master does not know may be left.
        self.empty = None;
    }

    /// Returns the message that the lease needs, if any: for `waiting` requests and those that are expected. The node
    /// keeps at most `keep` permits that are unused.
    pub(super) fn ask(&mut self, need: Need) -> Option<Ask> {
        if self.asked {
            return None;
        }
        let unused = self.unused().min(need.keep.max(need.waiting));
        let keep = self.used + unused;
        let waiting = need.waiting.saturating_sub(unused);
        let rest = unused.saturating_sub(need.waiting);
        let ahead = if rest < need.ahead.div_ceil(2) {
            need.ahead
        } else {
            0
        };
        let is_news = self.has_returned || (need.keep == 0 && self.used != self.reported);
        let returns = keep < self.granted || is_news;
        if !returns && waiting == 0 && ahead == 0 && !self.is_unreported {
            return None;
        }
        self.granted = keep;
        self.reported = self.used;
        self.sequence += 1;
        self.asked = true;
        Some(Ask {
            id: need.id,
            digest: need.digest,
            period: self.period,
            limit: self.limit,
            record: self.record,
            window: self.window.map(|window| window.begin),
            sequence: self.sequence,
            keep,
            used: self.used,
            waiting,
            ahead,
        })
    }

    /// Whether this is the lease's newest message, and has no reply yet.
    pub(super) fn expects(&self, ask: &Ask) -> bool {
        self.asked && self.record == ask.record && self.sequence == ask.sequence
    }

    /// Takes note that there will be no reply to the newest message. Redis may have applied it.
    pub(super) fn fail(&mut self) {
        self.asked = false;
        self.has_returned = true;
    }

    /// Applies the reply to the newest message. `sent` is when the node sent it, and `time` is when Redis replied (in
    /// microseconds of Redis's clock). Returns false if the window is over.
    pub(super) fn apply(
        &mut self,
        ask: &Ask,
        answer: &Answer,
        sent: Duration,
        time: u64,
        frozen: bool,
    ) -> bool {
        self.asked = false;
        if answer.sequence.is_none() || self.window.is_some_and(|own| own.begin != answer.begin) {
            return false;
        }
        if answer.sequence != Some(self.sequence) {
            // Redis has a record of the same name with newer messages, which never happens between well-behaved nodes.
            return true;
        }
        // What was granted for waiting requests counts as used, until the next message.
        let new = answer.granted.saturating_sub(ask.keep);
        self.reported = ask.used + new.min(ask.waiting);
        // Redis replied after the message was sent, so that the window ends at this time at the earliest.
        let rest = Duration::from_micros((answer.end * 1_000_000).saturating_sub(time));
        let end = sent.saturating_add(rest - rest / DRIFT);
        self.window = Some(Window {
            begin: answer.begin,
            end,
        });
        self.is_unreported = false;
        self.has_returned = answer.others == Others::TooMany && answer.granted > self.used;
        self.granted = match answer.others {
            Others::TooMany => self.granted.min(self.used),
            Others::Unused | Others::AllUsed => answer.granted,
        };
        self.left = answer.left;
        let is_empty = !frozen && self.left == 0 && self.unused() == 0;
        let is_final = answer.others == Others::AllUsed;
        // The limit may have been raised since the message was sent.
        self.empty = is_empty.then(|| Empty {
            limit: ask.limit,
            until: sent + if is_final { FINAL } else { VALID },
            is_final,
        });
        true
    }
}

/// What a node needs of a limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    pub(super) id: u128,
    pub(super) digest: super::message::Digest,
    /// Requests that wait.
    pub(super) waiting: u64,
    /// Permits that are worth having for expected requests.
    pub(super) ahead: u64,
    /// Maximum number of unused permits that the node keeps.
    pub(super) keep: u64,
}
