//! Tokens as texts, and what is stored of them: a keyed hash to find them by, and, if the operator wants the Admin API
//! to show them, the sealed text.

use crate::place::{ALPHABET, PLACE_LETTERS, Place};
use crate::store::{Known, StoreError};
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{digest, hmac, rand};
use uuid::Uuid;

/// Letters of a token, as in Kong.
pub(crate) const TOKEN_LETTERS: usize = 32;

/// The length of a hash.
pub(crate) const MAC: usize = 32;

/// What is kept of the text of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// Its hash, and the encrypted text, so that the Admin API and exports show it as Kong's do.
    Sealed,
    /// Its hash, and the encrypted SHA-256. The Admin API and exports show `sha256:…`, which an import takes.
    Hashed,
}

/// The keys of a store. They are kept outside of it.
pub struct Keys {
    /// Finds tokens.
    mac: hmac::Key,
    /// Make the sealing keys of rows. Rows name theirs by its number. New rows use the first one.
    seals: Vec<(u32, hmac::Key)>,
}

impl Keys {
    /// Makes the 64 secret bytes of new keys.
    pub fn generate() -> Result<[u8; 64], StoreError> {
        let mut secret = [0; 64];
        rand::fill(&mut secret).map_err(|_| StoreError::Crypto("no random numbers"))?;
        Ok(secret)
    }

    /// Makes keys of 64 secret bytes.
    pub fn new(secret: &[u8; 64], seal_id: u32) -> Self {
        let (mac, seal) = secret.split_at(MAC);
        Self {
            mac: hmac::Key::new(hmac::HMAC_SHA256, mac),
            seals: vec![(seal_id, hmac::Key::new(hmac::HMAC_SHA256, seal))],
        }
    }

    /// Adds the sealing key of earlier rows.
    pub fn with_earlier_seal(mut self, seal: &[u8; 32], seal_id: u32) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, seal);
        self.seals.push((seal_id, key));
        self
    }

    /// The number of the sealing key for new rows.
    pub(crate) fn seal_id(&self) -> u32 {
        self.seals.first().map_or(0, |(id, _)| *id)
    }

    pub(crate) fn digest(token: &[u8]) -> [u8; 32] {
        let digest = digest::digest(&digest::SHA256, token);
        let mut sha = [0; 32];
        sha.copy_from_slice(digest.as_ref());
        sha
    }

    /// Returns the hash by which a token is found: the HMAC of its SHA-256. So a token of which only the SHA-256 is known
    /// can be imported.
    pub(crate) fn mac(&self, token: &[u8]) -> [u8; MAC] {
        self.mac_of_digest(&Self::digest(token))
    }

    pub(crate) fn mac_of_digest(&self, sha: &[u8]) -> [u8; MAC] {
        let tag = hmac::sign(&self.mac, sha);
        let mut mac = [0; MAC];
        mac.copy_from_slice(tag.as_ref());
        mac
    }

    /// Returns the sealing key of a row. Each row has its own: random nonces are safe for 2^32 texts of one key only, and
    /// a node can issue more tokens than that.
    fn seal_of(&self, seal: u32, row: Uuid) -> Result<Option<RandomizedNonceKey>, StoreError> {
        let Some((_, seal)) = self.seals.iter().find(|(id, _)| *id == seal) else {
            return Ok(None);
        };
        let key = hmac::sign(seal, row.as_bytes());
        RandomizedNonceKey::new(&AES_256_GCM, key.as_ref())
            .map(Some)
            .map_err(|_| StoreError::Crypto("a sealing key is refused"))
    }

    /// Encrypts a text of a row.
    pub(crate) fn seal(&self, row: Uuid, text: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut sealed = text.to_vec();
        let key = self.seal_of(self.seal_id(), row)?;
        let nonce = key
            .ok_or(StoreError::Crypto("there is no sealing key"))?
            .seal_in_place_append_tag(Aad::empty(), &mut sealed)
            .map_err(|_| StoreError::Crypto("a token cannot be sealed"))?;
        sealed.extend_from_slice(nonce.as_ref());
        Ok(sealed)
    }

    /// Decrypts a text of a row. `None` if the store does not have the key any more.
    pub(crate) fn open(
        &self,
        seal: u32,
        row: Uuid,
        sealed: &[u8],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(key) = self.seal_of(seal, row)? else {
            return Ok(None);
        };
        let refused = || StoreError::Crypto("a sealed token was sealed with another key");
        let split = sealed.len().checked_sub(NONCE_LEN).ok_or_else(refused)?;
        let (text, nonce) = sealed.split_at(split);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| refused())?;
        let mut text = text.to_vec();
        let opened = key.open_in_place(nonce, Aad::empty(), &mut text);
        let length = opened.map_err(|_| refused())?.len();
        text.truncate(length);
        Ok(Some(text))
    }
}

/// The beginning of what is shown instead of a token of which only the SHA-256 is known.
const DIGEST: &str = "sha256:";

pub(crate) fn shown_digest(digest: &[u8; 32]) -> String {
    let mut text = String::with_capacity(DIGEST.len() + 64);
    text.push_str(DIGEST);
    for byte in digest {
        for half in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(half), 16));
        }
    }
    text
}

impl Known {
    /// Reads the text of a token, or `sha256:` and 64 hexadecimal digits.
    pub fn parse(text: &str) -> Self {
        let digest = text.strip_prefix(DIGEST).and_then(parse_digest);
        match digest {
            Some(digest) => Self::Sha256(digest),
            None => Self::Text(text.to_owned()),
        }
    }
}

fn parse_digest(text: &str) -> Option<[u8; 32]> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    if pairs.len() != 32 {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(pairs) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from(high? << 4 | low?).ok()?;
    }
    Some(digest)
}

/// A text that a client presents: an access token, a refresh token or a code.
#[derive(Clone, PartialEq, Eq)]
pub struct Made(pub String);

impl std::fmt::Debug for Made {
    /// Does not show the text, because texts for debugging reach logs.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Made(…)")
    }
}

impl Made {
    pub(crate) fn known(&self) -> Known {
        Known::Text(self.0.clone())
    }

    /// Makes a token with a place and 131 random bits.
    pub(crate) fn at(place: Place) -> Result<Self, StoreError> {
        let mut token = [0; TOKEN_LETTERS];
        let (place_letters, letters) = token.split_at_mut(PLACE_LETTERS);
        if let Ok(place_letters) = place_letters.try_into() {
            place.write(place_letters);
        }
        fill(letters)?;
        Ok(Self(token.iter().map(|byte| char::from(*byte)).collect()))
    }
}

impl Made {
    /// Makes a token without a place.
    pub(crate) fn loose() -> Result<Self, StoreError> {
        let mut token = [0; TOKEN_LETTERS];
        fill(&mut token)?;
        Ok(Self(token.iter().map(|byte| char::from(*byte)).collect()))
    }
}

/// Fills a text with random letters, all with the same probability.
fn fill(letters: &mut [u8]) -> Result<(), StoreError> {
    let mut random = [0; 64];
    let mut from = random.len();
    for letter in letters {
        *letter = loop {
            if from == random.len() {
                rand::fill(&mut random).map_err(|_| StoreError::Crypto("no random numbers"))?;
                from = 0;
            }
            let byte = random[from];
            from += 1;
            // 248 is the largest multiple of 62 in a byte.
            if byte < 248 {
                break ALPHABET[usize::from(byte % 62)];
            }
        };
    }
    Ok(())
}

pub(crate) fn random_id_bits() -> Result<u64, StoreError> {
    let mut random = [0; 8];
    rand::fill(&mut random).map_err(|_| StoreError::Crypto("no random numbers"))?;
    Ok(u64::from_ne_bytes(random))
}
