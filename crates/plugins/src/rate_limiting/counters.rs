//! The counters of a node. They belong to no configuration: a counter is found by the route and the service of the
//! configured plugin, the identifier of the client and the period, as in Kong.
//!
//! So the counts survive these changes of a configured plugin: another limit, another `window_type`, other messages and
//! headers, another id, and another `limit_by` for clients that are still identified by the same property. Counts begin
//! anew with another route or service, for clients with another identifier, and with another place of the counters
//! (`policy`, `leases`).
//!
//! # Algorithm
//!
//! Each key has one [`Counter`] in a concurrent map that workers read without a lock. A key is a keyed 128-bit hash, so
//! that finding a counter neither builds a text nor depends on what clients send.
//!
//! A request is judged by all its windows at once and counts only if none is full:
//!
//! 1. *Look.* If a window is full, the request is refused. Nothing was written, so a refusal is cheap.
//! 2. *Count*, beginning with the shortest period. Each step is one compare-and-swap that compares with the limit: of
//!    any number of workers, exactly N succeed in a window with a limit of N.
//! 3. If a window has become full since the look, the request is *given back* to the shorter windows, and refused.
//!
//! No request is refused only because of one that is given back later. Proof: calendar windows are nested, and requests
//! of one key have the same limits. Requests are given back only by those for whom a longer window was full. The longest
//! window never gets a request back, so it stays full until its end. Whoever sees a shorter window full because of
//! such a request is within the same longer window, and is refused rightly. Between two periods the same argument
//! applies step by step, from the longest downwards. (While a change of limits goes live, requests with the old and the
//! new limits share counters for a moment. A refusal can then be early by the requests that are in step 3.)
//!
//! # Memory
//!
//! [`Counters::sweep`] removes counters whose windows are over; it runs outside of the workers. A counter is first marked
//! as removed, in one step with the check that its window is over, and then taken out of the map. Workers that hold the
//! marked counter look for a new one.
//!
//! Keys of consumers, credentials and services always have a counter of their own: there are only as many as are
//! configured. Addresses and texts (values of headers) are what clients choose, so there can be any number of them. At
//! most `max` addresses and at most `max` texts have a counter of their own. These are two budgets, because a single
//! client can send any number of texts: it must not use up the counters of addresses.
//!
//! If a budget is used up, a live counter is never evicted: its client would get a second allowance. Instead, the keys
//! without a counter share counters: 65,536 for each period, chosen by the client's network (an IPv4 /24, an IPv6 /48)
//! and by the configured plugin. So a network that floods the gateway with keys shares its counters with itself, and
//! other networks only have the same counter by chance. An address cannot exceed its limit that way. A text can get one
//! allowance from each network that sends it. When a key gets a counter of its own later, that counter continues from
//! the shared one.

use super::counter::{Counted, Counter, Recent, Uncounted};
use super::window::{Calendar, Moment, Period};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uuid::Uuid;

/// Maximum number of addresses, and of texts, with a counter of their own. Kong's shared memory of 12 MiB has room for
/// fewer.
pub(crate) const MAX_COUNTERS: usize = 1 << 18;

/// Number of counters of a period that keys beyond the maximum share.
const SHARED: usize = 1 << 16;

/// A period with the number of requests that may pass in each of its windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) period: Period,
    pub(crate) requests: u64,
}

/// The result for one request. The numbers are in the order of the allowances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) passes: bool,
    /// The requests in each window without this one.
    pub(crate) before: [u64; Period::COUNT],
}

/// What identifies the client of a request. Texts and addresses never have the same counter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Identifier<'a> {
    Text(&'a [u8]),
    Id(Uuid),
    /// The id of a credential that is made of what the client sends.
    Made(Uuid),
    Address(IpAddr),
}

/// The hash of a counter's key without its period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    hash: u128,
    budget: Option<Budget>,
    /// Route and service of the configured plugin, the network of the client, and the budget. They choose the counter
    /// that the key shares if it has none of its own.
    sharing: Sharing,
}

/// The budget from which a key takes its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Budget {
    Addresses,
    Texts,
}

type Sharing = [u8; 40];

pub(crate) struct Counters {
    map: papaya::HashMap<Key, Counter, BuildHasherDefault<KeyHash>>,
    /// Number of counters in the map for each [`Budget`], including those that are about to be inserted.
    used: [AtomicUsize; 2],
    max: usize,
    shared: [OnceLock<Box<[Counter]>>; Period::COUNT],
    calendar: Calendar,
    is_swept: AtomicBool,
    /// Drawn at the start of the process, so that clients cannot choose identifiers with equal hashes.
    seed: (u64, u64),
}

type Pinned<'m> =
    papaya::HashMapRef<'m, Key, Counter, BuildHasherDefault<KeyHash>, papaya::LocalGuard<'m>>;

impl Counters {
    pub(crate) fn new(max: usize) -> Self {
        let random = || RandomState::new().build_hasher().finish();
        Self {
            map: papaya::HashMap::default(),
            used: Default::default(),
            max,
            shared: Default::default(),
            calendar: Calendar::default(),
            is_swept: AtomicBool::new(false),
            seed: (random(), random()),
        }
    }

    /// Returns the moment for a time in seconds since 1970.
    pub(crate) fn moment(&self, now: u64) -> Moment {
        self.calendar.moment(now)
    }

    pub(crate) fn identity(
        &self,
        route: Option<Uuid>,
        service: Option<Uuid>,
        identifier: Identifier<'_>,
        client: IpAddr,
    ) -> Identity {
        let budget = match identifier {
            Identifier::Text(_) | Identifier::Made(_) => Some(Budget::Texts),
            Identifier::Id(_) => None,
            Identifier::Address(_) => Some(Budget::Addresses),
        };
        let mut sharing = [0; 40];
        sharing[..16].copy_from_slice(route.unwrap_or_default().as_bytes());
        sharing[16..32].copy_from_slice(service.unwrap_or_default().as_bytes());
        sharing[32..39].copy_from_slice(&network(client));
        sharing[39] = budget.map_or(0, |budget| budget as u8);
        // Clients do not choose the ids of routes and services, so that these need no hash of their own.
        let scope = route.unwrap_or_default().as_u128()
            ^ service.unwrap_or_default().as_u128().rotate_left(64);
        let hash = match identifier {
            Identifier::Id(id) => self.mixed(id),
            other => self.hashed(other),
        };
        Identity {
            hash: hash ^ scope,
            budget,
            sharing,
        }
    }

    /// Spreads the bits of an id over all places. Clients do not choose such an id, so that it needs no hash against
    /// collisions. Each step can be undone, so that two ids never have the same result.
    fn mixed(&self, id: Uuid) -> u128 {
        const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
        let (high, low) = id.as_u64_pair();
        let (high, low) = (high ^ self.seed.0, low ^ self.seed.1);
        let low = low ^ high.wrapping_mul(FACTOR).rotate_left(32);
        let low = low.wrapping_mul(FACTOR);
        let low = low ^ (low >> 32);
        let high = high ^ low.wrapping_mul(FACTOR).rotate_left(32);
        u128::from(high) << 64 | u128::from(low)
    }

    /// Hashes what clients can choose.
    fn hashed(&self, identifier: Identifier<'_>) -> u128 {
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        // The first byte tells the kinds apart, so that a text is never taken for an address. One write is faster than
        // two.
        let mut parts = [0; 17];
        match identifier {
            Identifier::Text(text) => {
                hasher.write(&[0]);
                hasher.write(text);
            }
            Identifier::Made(id) | Identifier::Id(id) => {
                parts[0] = 1;
                parts[1..].copy_from_slice(id.as_bytes());
                hasher.write(&parts);
            }
            Identifier::Address(IpAddr::V4(address)) => {
                parts[0] = 2;
                parts[1..5].copy_from_slice(&address.octets());
                hasher.write(&parts[..5]);
            }
            Identifier::Address(IpAddr::V6(address)) => {
                parts[0] = 3;
                parts[1..].copy_from_slice(&address.octets());
                hasher.write(&parts);
            }
        }
        hasher.finish128().as_u128()
    }

    /// Returns the identity of one of several counters of the same client and configured plugin.
    pub(crate) fn named(&self, mut identity: Identity, name: &str) -> Identity {
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        hasher.write(name.as_bytes());
        let hash = hasher.finish128().as_u128();
        identity.hash ^= hash;
        for (byte, other) in identity.sharing.iter_mut().zip(hash.to_le_bytes()) {
            *byte ^= other;
        }
        identity
    }

    /// Returns what has been counted in the current window of a period.
    pub(crate) fn counted(&self, identity: Identity, period: Period, moment: &Moment) -> u64 {
        let key = identity.key(period);
        let map = self.map.pin();
        self.requests(map.get(&key), &identity, key, moment)
    }

    /// Returns what a sliding window needs of the windows before. `None` if there are no counts.
    pub(super) fn recent(
        &self,
        identity: Identity,
        period: Period,
        moment: &Moment,
    ) -> Option<Recent> {
        let key = identity.key(period);
        let map = self.map.pin();
        let shared = || (key.budget).and_then(|_| self.shared_counter(&identity, key));
        let counter = map.get(&key).or_else(shared)?;
        Some(counter.recent(moment))
    }

    /// Adds to the current window, whether or not it is full; nothing if the moment is in an older window.
    pub(crate) fn add(&self, identity: Identity, period: Period, by: i64, moment: &Moment) {
        let key = identity.key(period);
        let map = self.map.pin();
        while !self
            .find_or_insert(&map, &identity, key, moment)
            .add(moment, by)
        {
            self.take_out(&map, key);
        }
    }

    /// Judges a request and counts it if it passes. The allowances are ordered by period, the shortest first.
    pub(crate) fn judge(
        &self,
        identity: Identity,
        allowances: &[Allowance],
        moment: &Moment,
    ) -> Verdict {
        let map = self.map.pin();
        let mut counters: [Option<&Counter>; Period::COUNT] = [None; Period::COUNT];
        let mut before = [0; Period::COUNT];
        let mut passes = true;
        for (at, allowance) in allowances.iter().enumerate() {
            let key = identity.key(allowance.period);
            counters[at] = map.get(&key);
            before[at] = self.requests(counters[at], &identity, key, moment);
            passes &= before[at] < allowance.requests;
        }
        if !passes {
            return Verdict { passes, before };
        }
        let mut counted: [Option<(&Counter, Counted)>; Period::COUNT] = [None; Period::COUNT];
        for (at, allowance) in allowances.iter().enumerate() {
            let key = identity.key(allowance.period);
            let Some((counter, count)) = self.count(
                &map,
                &identity,
                key,
                counters[at],
                allowance.requests,
                moment,
            ) else {
                return self.refuse(&map, identity, allowances, moment, &counted[..at]);
            };
            before[at] = count.before;
            counted[at] = Some((counter, count));
        }
        Verdict { passes, before }
    }

    /// Gives a request back to the windows in which it was counted.
    #[cold]
    fn refuse(
        &self,
        map: &Pinned<'_>,
        identity: Identity,
        allowances: &[Allowance],
        moment: &Moment,
        counted: &[Option<(&Counter, Counted)>],
    ) -> Verdict {
        for (counter, count) in counted.iter().flatten() {
            counter.give_back(*count);
        }
        let mut before = [0; Period::COUNT];
        for (before, allowance) in before.iter_mut().zip(allowances) {
            let key = identity.key(allowance.period);
            *before = self.requests(map.get(&key), &identity, key, moment);
        }
        Verdict {
            passes: false,
            before,
        }
    }

    /// Counts a request in the counter of a key. `None` if the window is full.
    fn count<'m>(
        &'m self,
        map: &'m Pinned<'_>,
        identity: &Identity,
        key: Key,
        known: Option<&'m Counter>,
        allowed: u64,
        moment: &Moment,
    ) -> Option<(&'m Counter, Counted)> {
        let mut counter = match known {
            Some(counter) => counter,
            None => self.find_or_insert(map, identity, key, moment),
        };
        loop {
            match counter.count(moment, allowed) {
                Ok(counted) => return Some((counter, counted)),
                Err(Uncounted::Full) => return None,
                Err(Uncounted::Removed) => {
                    self.take_out(map, key);
                    counter = self.find_or_insert(map, identity, key, moment);
                }
            }
        }
    }

    /// Returns the requests of a key in the current window, for which its own counter is given if there is one.
    fn requests(
        &self,
        own: Option<&Counter>,
        identity: &Identity,
        key: Key,
        moment: &Moment,
    ) -> u64 {
        match own {
            Some(counter) => counter.requests(moment),
            None => (key.budget)
                .and_then(|_| self.shared_counter(identity, key))
                .map_or(0, |shared| shared.requests(moment)),
        }
    }

    /// Returns the counter that a key shares if it has none of its own. `None` if no key has shared one yet.
    fn shared_counter(&self, identity: &Identity, key: Key) -> Option<&Counter> {
        let shared = self.shared[key.period as usize].get()?;
        Some(&shared[self.share_of(identity)])
    }

    #[cold]
    fn find_or_insert<'m>(
        &'m self,
        map: &'m Pinned<'_>,
        identity: &Identity,
        key: Key,
        moment: &Moment,
    ) -> &'m Counter {
        if let Some(counter) = map.get(&key) {
            return counter;
        }
        if !self.take_room(key) {
            return self.share(identity, key, moment);
        }
        let shared = (key.budget).and_then(|_| self.shared_counter(identity, key));
        let counter = match shared {
            Some(shared) => shared.continued(moment),
            None => Counter::new(key.period, moment, 0),
        };
        match map.try_insert(key, counter) {
            Ok(counter) => counter,
            Err(occupied) => {
                self.give_room(key);
                occupied.current
            }
        }
    }

    fn share(&self, identity: &Identity, key: Key, moment: &Moment) -> &Counter {
        let shared = self.shared[key.period as usize].get_or_init(|| {
            let counters = (0..SHARED).map(|_| Counter::new(key.period, moment, 0));
            counters.collect()
        });
        &shared[self.share_of(identity)]
    }

    /// Returns the number of the counter that a key shares if it has none of its own.
    #[cold]
    fn share_of(&self, identity: &Identity) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        hasher.write(&identity.sharing);
        hasher.finish() as usize % SHARED
    }

    /// Takes a counter that is marked as removed out of the map.
    fn take_out(&self, map: &Pinned<'_>, key: Key) -> bool {
        let removed = map.remove_if(&key, |_, counter| counter.is_removed());
        let is_taken_out = matches!(removed, Ok(Some(_)));
        if is_taken_out {
            self.give_room(key);
        }
        is_taken_out
    }

    /// Takes room for the counter of a key. Returns false if its budget is used up.
    fn take_room(&self, key: Key) -> bool {
        let Some(budget) = key.budget else {
            return true;
        };
        let reserve = |used: usize| (used < self.max).then_some(used + 1);
        let used = &self.used[budget as usize];
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve)
            .is_ok()
    }

    /// Gives back the room that the counter of a key had.
    fn give_room(&self, key: Key) {
        if let Some(budget) = key.budget {
            self.used[budget as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the caller is the first one that asks, and has to see to it that [`Counters::sweep`] runs now and then.
    pub(crate) fn begin_sweeping(&self) -> bool {
        !self.is_swept.swap(true, Ordering::AcqRel)
    }

    /// Tells that the caller no longer runs [`Counters::sweep`].
    pub(crate) fn end_sweeping(&self) {
        self.is_swept.store(false, Ordering::Release);
    }

    /// Whether no key has a counter of its own.
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Removes the counters whose windows are over, and returns their number. Requests go on meanwhile. The time grows
    /// with the number of counters, so that this must not run on a worker.
    pub(crate) fn sweep(&self, now: u64) -> usize {
        let map = self.map.pin();
        let over = map
            .iter()
            .filter(|(_, counter)| counter.remove_if_over(now));
        over.filter(|(key, _)| self.take_out(&map, **key)).count()
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        let used = self.used.iter().map(|used| used.load(Ordering::Relaxed));
        used.sum()
    }
}

/// Returns the network of a client: the first 24 bits of an IPv4 address, the first 48 bits of an IPv6 address.
fn network(client: IpAddr) -> [u8; 7] {
    let mut network = [0; 7];
    match client {
        IpAddr::V4(address) => {
            network[0] = 4;
            network[1..4].copy_from_slice(&address.octets()[..3]);
        }
        IpAddr::V6(address) => {
            network[0] = 6;
            network[1..7].copy_from_slice(&address.octets()[..6]);
        }
    }
    network
}

impl Identity {
    /// The hash of the client and the configured plugin.
    pub(super) fn hash(self) -> u128 {
        self.hash
    }

    /// Whether clients can choose keys like this one.
    pub(super) fn is_bounded(self) -> bool {
        self.budget.is_some()
    }

    fn key(self, period: Period) -> Key {
        Key {
            hash: [(self.hash >> 64) as u64, self.hash as u64],
            period,
            budget: self.budget,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    /// Both halves of the hash. A `u128` would make each entry of the map 16 bytes larger.
    hash: [u64; 2],
    period: Period,
    /// `None` if clients cannot choose keys like this one, so that there are only as many as are configured.
    budget: Option<Budget>,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The hash is uniform already. An odd multiple of the period spreads the periods of one client.
        let period = (self.period as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        state.write_u64(self.hash[1] ^ period);
    }
}

/// The hasher of the map, which passes the hash of a [`Key`] on.
#[derive(Default)]
pub(super) struct KeyHash(u64);

impl Hasher for KeyHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        debug_assert!(false, "a key is hashed as one number");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }
}
