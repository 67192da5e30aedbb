//! Tokens whose signature this worker has verified. Clients send the same token with many requests. To read it and to
//! verify its signature each time would cost more than the rest of the gateway's work for a request.
//!
//! Nothing passes that the plugin would not have let pass without this table:
//!
//! - An entry has the whole token. Only a token with the same bytes finds it.
//! - An entry belongs to one decoded credential. Each request looks up the credential that the token names. After a
//!   change of any credential of jwt or any consumer it is decoded again, and so the signature is verified again.
//! - The settings that decide what a token means and which keys are accepted are part of the entry.
//! - The times in the token are compared with the clock for each request.
//!
//! A worker keeps at most 8,192 tokens of at most 2 KiB. Only verified tokens get here, so nobody without a credential
//! can evict others. A token gets an entry when it is verified a second time, as in the cache of look-ups: tokens that
//! are used once cost no memory.

use super::config::Config;
use super::credential::JwtSecret;
use super::members::Member;
use compact_str::CompactString;
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// Number of sets. Each token belongs to one set.
const SETS: usize = 2048;
/// Number of entries in a set. A new entry replaces the oldest one of its set.
const WAYS: usize = 4;
/// Number of tokens without an entry that a set remembers.
const SEEN: usize = 3;
/// Maximum length of a token that is kept.
const MAX_LENGTH: usize = 2048;

thread_local! {
    static VERIFIED: RefCell<Table> = RefCell::new(Table::new());
}

/// The settings on which the reading and verifying of a token depends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    key_claim: CompactString,
    secret_is_base64: bool,
    accept_short_rsa_keys: bool,
}

impl Rules {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            key_claim: config.key_claim().into(),
            secret_is_base64: config.secret_is_base64,
            accept_short_rsa_keys: config.accept_short_rsa_keys == Some(true),
        }
    }
}

/// A token that was verified, and what it says.
pub(super) struct Verified {
    token: Box<[u8]>,
    rules: Rules,
    /// Keeps only the place in memory of a credential that is no longer in use, so that no other one can be there.
    credential: Weak<JwtSecret>,
    /// The key of the credential.
    pub(super) key: CompactString,
    pub(super) times: Times,
}

/// The times in a token.
#[derive(Debug, Clone)]
pub(super) struct Times {
    pub(super) exp: Member,
    pub(super) nbf: Member,
}

impl Verified {
    /// Whether the signature was verified with this credential.
    pub(super) fn is_of(&self, credential: &Arc<JwtSecret>) -> bool {
        std::ptr::eq(self.credential.as_ptr(), Arc::as_ptr(credential))
    }

    fn is(&self, token: &[u8], rules: &Rules) -> bool {
        *self.token == *token && self.rules == *rules
    }
}

/// Returns what is known of a token that was verified under these rules.
pub(super) fn find(token: &[u8], rules: &Rules) -> Option<Rc<Verified>> {
    VERIFIED.with_borrow(|table| table.find(token, rules))
}

/// Keeps a token that was verified with this credential under these rules.
pub(super) fn keep(token: &[u8], rules: &Rules, credential: &Arc<JwtSecret>, times: &Times) {
    if token.len() > MAX_LENGTH {
        return;
    }
    let entry = || {
        Rc::new(Verified {
            token: token.into(),
            rules: rules.clone(),
            credential: Arc::downgrade(credential),
            key: credential.key.clone(),
            times: times.clone(),
        })
    };
    VERIFIED.with_borrow_mut(|table| table.keep(token, rules, entry));
}

struct Table {
    /// Empty until the first token is kept.
    sets: Vec<Set>,
    /// Clients must not be able to choose tokens that share a set.
    seed: [u64; 2],
}

#[derive(Clone, Default)]
#[repr(align(64))]
struct Set {
    tags: [u32; WAYS],
    entries: [Option<Rc<Verified>>; WAYS],
    /// Tags of tokens that were verified once.
    seen: [u32; SEEN],
    /// Positions of the oldest entry and of the oldest token that was seen.
    oldest_entry: u8,
    oldest_seen: u8,
}

impl Table {
    fn new() -> Self {
        let random = |number: u64| RandomState::new().hash_one(number);
        Self {
            sets: Vec::new(),
            seed: [random(0), random(1)],
        }
    }

    /// Returns the set of a token, and what tells it from most others of the set. The last characters decide: they are
    /// a part of the signature, which is as good as random.
    fn place(&self, token: &[u8]) -> Option<(usize, u32)> {
        let end: &[u8; 16] = token.last_chunk()?;
        let (words, _) = end.as_chunks();
        let mixed = words.iter().zip(self.seed).map(|(word, seed)| {
            // With the lowest bit, neither factor is zero.
            u128::from((u64::from_ne_bytes(*word) ^ seed) | 1)
        });
        let product = mixed.fold(1, u128::wrapping_mul);
        let hash = product as u64 ^ (product >> 64) as u64;
        // A tag of zero is that of an empty place.
        Some((hash as usize % SETS, (hash >> 32) as u32 | 1))
    }

    fn find(&self, token: &[u8], rules: &Rules) -> Option<Rc<Verified>> {
        let (set, tag) = self.place(token)?;
        let set = self.sets.get(set)?;
        let way = set.way(tag, token, rules)?;
        set.entries[way].clone()
    }

    fn keep(&mut self, token: &[u8], rules: &Rules, entry: impl FnOnce() -> Rc<Verified>) {
        let Some((set, tag)) = self.place(token) else {
            return;
        };
        if self.sets.is_empty() {
            self.sets.resize(SETS, Set::default());
        }
        let set = &mut self.sets[set];
        if let Some(way) = set.way(tag, token, rules).or_else(|| set.admit(tag)) {
            set.tags[way] = tag;
            set.entries[way] = Some(entry());
        }
    }
}

impl Set {
    fn way(&self, tag: u32, token: &[u8], rules: &Rules) -> Option<usize> {
        let is_it = |entry: &Option<Rc<Verified>>| {
            entry.as_ref().is_some_and(|entry| entry.is(token, rules))
        };
        let mut ways = self.tags.iter().zip(&self.entries);
        ways.position(|(other, entry)| *other == tag && is_it(entry))
    }

    /// Returns the place for a token; `None` if it was not seen before.
    fn admit(&mut self, tag: u32) -> Option<usize> {
        if !self.seen.contains(&tag) {
            let place = usize::from(self.oldest_seen);
            self.seen[place] = tag;
            self.oldest_seen = ((place + 1) % SEEN) as u8;
            return None;
        }
        let way = usize::from(self.oldest_entry);
        self.oldest_entry = ((way + 1) % WAYS) as u8;
        Some(way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jwt::algorithm::Algorithm;
    use model::entities::{ConsumerId, CredentialId};
    use uuid::Uuid;

    fn credential() -> Arc<JwtSecret> {
        Arc::new(JwtSecret {
            id: CredentialId(Uuid::nil()),
            consumer: ConsumerId(Uuid::nil()),
            key: "key".into(),
            algorithm: Algorithm::Hs256,
            secret: None,
            public_key: None,
        })
    }

    fn rules(key_claim: &str) -> Rules {
        Rules {
            key_claim: key_claim.into(),
            secret_is_base64: false,
            accept_short_rsa_keys: false,
        }
    }

    const TIMES: Times = Times {
        exp: Member::Absent,
        nbf: Member::Absent,
    };

    fn token(number: usize) -> Vec<u8> {
        format!("a.b.{number:020}").into_bytes()
    }

    /// Keeps a token as often as it takes to get an entry.
    fn keep_twice(token: &[u8], credential: &Arc<JwtSecret>) {
        for _ in 0..2 {
            keep(token, &rules("iss"), credential, &TIMES);
        }
    }

    fn is_known(token: &[u8], credential: &Arc<JwtSecret>) -> bool {
        find(token, &rules("iss")).is_some_and(|known| known.is_of(credential))
    }

    #[test]
    fn a_token_is_known_from_the_second_time_on() {
        let credential = credential();
        keep(&token(1), &rules("iss"), &credential, &TIMES);
        assert!(!is_known(&token(1), &credential));
        keep(&token(1), &rules("iss"), &credential, &TIMES);
        assert!(is_known(&token(1), &credential));
    }

    #[test]
    fn another_token_credential_or_rule_is_not_known() {
        let credential = credential();
        keep_twice(&token(1), &credential);
        let mut other = token(1);
        other[0] = b'x';
        assert!(!is_known(&other, &credential));
        assert!(!is_known(&token(1)[1..], &credential));
        assert!(!is_known(&token(1), &self::credential()));
        assert!(find(&token(1), &rules("kid")).is_none());
    }

    #[test]
    fn a_credential_that_is_decoded_again_replaces_the_former_one() {
        let former = credential();
        keep_twice(&token(1), &former);
        let newer = credential();
        keep(&token(1), &rules("iss"), &newer, &TIMES);
        assert!(is_known(&token(1), &newer) && !is_known(&token(1), &former));
    }

    #[test]
    fn the_table_keeps_its_size_and_long_tokens_are_not_kept() {
        let credential = credential();
        for number in 0..4 * SETS * WAYS {
            keep_twice(&token(number), &credential);
            assert!(is_known(&token(number), &credential));
        }
        let kept = (0..4 * SETS * WAYS).filter(|number| is_known(&token(*number), &credential));
        assert!(kept.count() <= SETS * WAYS);
        let long = [b'a'; MAX_LENGTH + 1];
        keep_twice(&long, &credential);
        assert!(!is_known(&long, &credential));
        assert!(size_of::<Set>() == 64);
    }
}
