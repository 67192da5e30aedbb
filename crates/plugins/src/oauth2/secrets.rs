//! Compares client secrets. A hash in PBKDF2 costs milliseconds, so hashes are computed off the workers, a few at a time,
//! and a secret that was right is remembered: then its client never waits in the queue (`turns`).
//!
//! What is remembered is an HMAC of the credential's id, its stored secret and the given one, with a key that the process
//! has made for itself. So a changed credential is not remembered any more, and the memory of the process has no secrets
//! that somebody could find by trying likely ones.
//!
//! Every refusal costs one hash, whether the client does not exist, has a secret in plain text or a hashed one. So the
//! time does not tell which clients exist.

use super::credential::Oauth2Credential;
use super::turns::{Asker, Permit, Turns};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::{hmac, pbkdf2};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use subtle::ConstantTimeEq;

/// Maximum number of secrets that are remembered.
const MAX_KNOWN: usize = 65_536;
/// Maximum number of requests that wait for a hash.
const MAX_WAITING: usize = 1_000;
/// Maximum number of rounds of a stored hash. More would let one credential keep a core busy.
const MAX_ROUNDS: u32 = 1_000_000;
/// The rounds of Kong's hashes.
const USUAL_ROUNDS: NonZeroU32 = NonZeroU32::new(10_000).expect("not zero");
/// Maximum length of a stored hash.
const MAX_HASH: usize = 64;

type Mac = [u8; 32];

pub(super) struct Secrets {
    key: hmac::Key,
    known: papaya::HashSet<Mac>,
    /// What is known, from the oldest to the newest.
    order: Mutex<VecDeque<Mac>>,
    max_known: usize,
    turns: Arc<Turns>,
    /// Makes short numbers of the client ids that wait.
    ids: RandomState,
}

/// Too many requests of the client's address, or with its id, wait for a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overload;

impl Secrets {
    /// Fails if the operating system gives no random numbers.
    pub(super) fn new() -> Result<Self, Unspecified> {
        let cores = available_parallelism().map_or(1, usize::from);
        Self::with_room(MAX_KNOWN, (cores / 2).max(1))
    }

    /// `at_once` is the number of hashes that are computed at the same time.
    pub(super) fn with_room(known: usize, at_once: usize) -> Result<Self, Unspecified> {
        Ok(Self {
            key: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?,
            known: papaya::HashSet::new(),
            order: Mutex::default(),
            max_known: known,
            turns: Turns::new(at_once, MAX_WAITING),
            ids: RandomState::new(),
        })
    }

    /// Whether one of the given texts is the secret of the client. `None` is a client that does not exist.
    pub(super) async fn is_right(
        &self,
        client: Option<&Oauth2Credential>,
        given: &[&str],
        asker: Asker,
    ) -> Result<bool, Overload> {
        let stored = client.and_then(|client| client.client_secret.as_deref());
        let (Some(client), Some(stored)) = (client, stored) else {
            return self.waste(given, asker).await;
        };
        if !client.has_hashed_secret() {
            let is_stored = |given: &&str| bool::from(stored.as_bytes().ct_eq(given.as_bytes()));
            return match given.iter().any(is_stored) {
                true => Ok(true),
                false => self.waste(given, asker).await,
            };
        }
        let macs: Vec<_> = (given.iter().map(|given| self.mac(client, stored, given))).collect();
        if self.is_any_known(&macs) {
            return Ok(true);
        }
        let Some(hash) = Hash::parse(stored) else {
            let id = client.id.0;
            tracing::error!(
                plugin = super::NAME,
                "the hashed secret of the credential {id} cannot be used"
            );
            return self.waste(given, asker).await;
        };
        let permit = self.turns.permit(asker).await?;
        // Another request may have found the same secret right in the meantime.
        if self.is_any_known(&macs) {
            return Ok(true);
        }
        let right = compute(permit, hash, given).await?;
        if let Some(mac) = right.and_then(|at| macs.get(at)) {
            self.remember(*mac);
        }
        Ok(right.is_some())
    }

    /// Takes the time of a hash for each text, for a refusal.
    async fn waste(&self, given: &[&str], asker: Asker) -> Result<bool, Overload> {
        let nobody = Hash {
            algorithm: pbkdf2::PBKDF2_HMAC_SHA512,
            rounds: USUAL_ROUNDS,
            salt: vec![0; 16],
            hash: vec![0; 32],
        };
        let permit = self.turns.permit(asker).await?;
        compute(permit, nobody, given).await?;
        Ok(false)
    }

    /// Who asks with this client id, which may be that of no client.
    pub(super) fn asker(&self, address: IpAddr, client_id: &str) -> Asker {
        Asker::new(address, self.ids.hash_one(client_id))
    }

    fn is_any_known(&self, macs: &[Mac]) -> bool {
        macs.iter().any(|mac| self.known.pin().contains(mac))
    }

    fn mac(&self, client: &Oauth2Credential, stored: &str, given: &str) -> Mac {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(client.id.0.as_bytes());
        context.update(&(stored.len() as u64).to_le_bytes());
        context.update(stored.as_bytes());
        context.update(given.as_bytes());
        let mut mac = Mac::default();
        mac.copy_from_slice(context.sign().as_ref());
        mac
    }

    fn remember(&self, mac: Mac) {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.pin();
        if !known.insert(mac) {
            return;
        }
        order.push_back(mac);
        if order.len() > self.max_known
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }

    #[cfg(test)]
    pub(super) fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.known.pin().len()
    }
}

/// Compares with a hash on another thread. Returns which text is right. The permit is given back when that is done, also
/// if nobody waits for it any more.
async fn compute(permit: Permit, hash: Hash, given: &[&str]) -> Result<Option<usize>, Overload> {
    let given: Vec<_> = given.iter().map(|&given| given.to_owned()).collect();
    let computed = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        given.iter().position(|given| hash.is_of(given.as_bytes()))
    });
    computed.await.map_err(|_| Overload)
}

/// A stored hash.
struct Hash {
    algorithm: pbkdf2::Algorithm,
    rounds: NonZeroU32,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl Hash {
    /// Reads `$pbkdf2-sha512$i=10000,l=32$salt$hash`. Source: kong/plugins/oauth2/secret.lua.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('$').skip(1);
        let (name, options) = (parts.next()?, parts.next()?);
        let (salt, hash) = (parts.next()?, parts.next()?);
        let algorithm = match name {
            "pbkdf2-sha1" => pbkdf2::PBKDF2_HMAC_SHA1,
            "pbkdf2-sha256" => pbkdf2::PBKDF2_HMAC_SHA256,
            "pbkdf2-sha384" => pbkdf2::PBKDF2_HMAC_SHA384,
            "pbkdf2-sha512" => pbkdf2::PBKDF2_HMAC_SHA512,
            _ => return None,
        };
        let option = |name: &str| {
            let mut all = options
                .split(',')
                .filter_map(|option| option.split_once('='));
            let (_, value) = all.find(|(one, _)| *one == name)?;
            value.parse::<u32>().ok()
        };
        let rounds = option("i").filter(|rounds| *rounds <= MAX_ROUNDS)?;
        let hash = plugin::base64::decode(hash.as_bytes())?;
        let length = option("l").map_or(hash.len(), |length| length as usize);
        (parts.next().is_none() && length == hash.len() && (16..=MAX_HASH).contains(&length))
            .then_some(())?;
        Some(Self {
            algorithm,
            rounds: NonZeroU32::new(rounds)?,
            salt: plugin::base64::decode(salt.as_bytes())?,
            hash,
        })
    }

    fn is_of(&self, secret: &[u8]) -> bool {
        pbkdf2::verify(self.algorithm, self.rounds, &self.salt, secret, &self.hash).is_ok()
    }
}
