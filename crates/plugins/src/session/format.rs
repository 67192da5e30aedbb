//! The encrypted form of a session, that of lua-resty-session 4.x, so that a cluster of Kong's accepts it.
//! Source: lua-resty-session 4.0.5, lib/resty/session.lua open(), save(), touch(), and utils.lua.
//!
//! A session has a header of 82 bytes and a payload. Both are sent in base64url without padding. The header is, with
//! little-endian numbers:
//!
//! | field | bytes |
//! |---|---|
//! | type, 1 | 1 |
//! | flags | 2 |
//! | session id, random | 32 |
//! | creation time, in Unix seconds | 5 |
//! | rolling offset: from the creation to the last renewal | 4 |
//! | length of the payload in base64url | 3 |
//! | tag of AES-GCM | 16 |
//! | idling offset: from the last renewal to the last request that was noted | 3 |
//! | MAC of all before | 16 |
//!
//! The keys and the nonce are derived from the session id. Encrypting two payloads with one id would reveal both, so a
//! [`Fresh`] id is used up by encrypting. [`Header::touched`] changes only what the MAC covers.

use super::payload::MAX_PLAINTEXT;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{constant_time, digest, hkdf, hmac, pbkdf2, rand};
use data_encoding::BASE64URL_NOPAD;
use std::num::NonZeroU32;
use tokens::sessions::SessionStoreError;

/// Length of the header in base64url.
pub(crate) const HEADER_TEXT: usize = 110;

/// The payload is not in the cookie.
pub(crate) const STORED: u16 = 0x0001;
/// The client does not want to be remembered.
pub(crate) const FORGET: u16 = 0x0002;
/// The payload is deflated.
pub(crate) const DEFLATED: u16 = 0x0010;

const TYPE: u8 = 1;
const ID: usize = 32;
/// Length of the part of the header that is the additional data of AES-GCM.
const SEALED: usize = 47;
const TAG: usize = 16;
/// Length of the part of the header that the MAC covers.
const AUTHENTICATED: usize = 66;
const MAC: usize = 16;

const MAX_IDLING: u64 = (1 << 24) - 1;
const MAX_CREATED: u64 = (1 << 40) - 1;

/// Iterations for the key of a cookie that the browser keeps (`remember_safety` "Medium", which Kong does not change).
const REMEMBER_ITERATIONS: NonZeroU32 = NonZeroU32::new(10_000).expect("it is not 0");

/// Use of a session, which determines how its key is derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Session,
    Remember,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) flags: u16,
    pub(crate) id: [u8; ID],
    pub(crate) created: u64,
    pub(crate) rolling: u32,
    /// Length of the payload in base64url.
    pub(crate) size: u32,
    tag: [u8; TAG],
    pub(crate) idling: u32,
}

/// Properties that the sender of a session chooses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) created: u64,
    pub(crate) rolling: u32,
}

/// What encrypts the payload of a session: a key and a nonce.
pub(crate) struct Derived([u8; 44]);

/// The id of a new session, and what encrypts its payload.
pub(crate) struct Fresh {
    id: [u8; ID],
    derived: Derived,
}

/// The text is not a session of this secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("the request has none, or it was deleted")]
    Missing,
    #[error("it has expired")]
    Expired,
    #[error("the header of the session is malformed")]
    Header,
    #[error("the session was made with another secret, or was changed")]
    Forged,
    #[error("the data of the session is malformed")]
    Payload,
    #[error("the session is too large")]
    TooLarge,
    #[error("the cryptography failed")]
    Cryptography,
    #[error("the storage of sessions failed")]
    Storage(#[from] SessionStoreError),
}

/// Returns the length of `length` bytes in base64url without padding.
pub(crate) fn encoded_size(length: usize) -> usize {
    BASE64URL_NOPAD.encode_len(length)
}

/// The secret of a configuration, prepared for the derivation of keys.
pub(crate) struct Secret {
    /// SHA-256 of the configured text.
    material: digest::Digest,
    extracted: hkdf::Prk,
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Secret {
    pub(crate) fn new(secret: &str) -> Self {
        let material = digest::digest(&digest::SHA256, secret.as_bytes());
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, b"").extract(material.as_ref());
        Self {
            material,
            extracted,
        }
    }

    /// Returns a text that is the same for equal secrets, and from which the secret cannot be found.
    pub(crate) fn fingerprint(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"fingerprint:");
        context.update(self.material.as_ref());
        BASE64URL_NOPAD.encode(context.finish().as_ref())
    }

    /// Reads and authenticates a header.
    pub(crate) fn open_header(&self, text: &[u8]) -> Result<Header, Invalid> {
        let bytes = BASE64URL_NOPAD.decode(text).map_err(|_| Invalid::Header)?;
        let Some((&authenticated, mac)) = bytes.split_first_chunk::<AUTHENTICATED>() else {
            return Err(Invalid::Header);
        };
        if mac.len() != MAC || authenticated[0] != TYPE {
            return Err(Invalid::Header);
        }
        let header = Header::parse(&authenticated);
        let expected = self.mac(&header.id, &authenticated)?;
        constant_time::verify_slices_are_equal(mac, &expected).map_err(|_| Invalid::Forged)?;
        Ok(header)
    }

    /// Decrypts the payload of an authenticated header.
    pub(crate) fn open_payload(
        &self,
        header: &Header,
        payload: &[u8],
        purpose: Purpose,
    ) -> Result<Vec<u8>, Invalid> {
        let derived = self.derive(&header.id, purpose)?;
        derived.open(header, payload)
    }

    /// Encrypts a payload under a new session id. Returns the header, and the payload in base64url.
    pub(crate) fn seal(
        &self,
        flags: u16,
        times: Times,
        payload: Vec<u8>,
        purpose: Purpose,
    ) -> Result<(Header, String), Invalid> {
        self.fresh(purpose)?.seal(flags, times, payload)
    }

    /// Draws a session id. For [`Purpose::Remember`] this takes as long as [`Secret::derive`].
    pub(crate) fn fresh(&self, purpose: Purpose) -> Result<Fresh, Invalid> {
        let mut id = [0; ID];
        rand::fill(&mut id).map_err(|_| Invalid::Cryptography)?;
        let derived = self.derive(&id, purpose)?;
        Ok(Fresh { id, derived })
    }

    /// Returns the header with its MAC, in base64url.
    pub(crate) fn header_text(&self, header: &Header) -> Result<String, Invalid> {
        let bytes = header.bytes();
        let mac = self.mac(&header.id, &bytes)?;
        Ok(BASE64URL_NOPAD.encode(&[&bytes[..], &mac[..]].concat()))
    }

    fn mac(&self, id: &[u8; ID], authenticated: &[u8]) -> Result<[u8; MAC], Invalid> {
        let info: [&[u8]; 2] = [b"authentication:", id];
        let key = self.extracted.expand(&info, hmac::HMAC_SHA256);
        let key = hmac::Key::from(key.map_err(|_| Invalid::Cryptography)?);
        let tag = hmac::sign(&key, authenticated);
        let mac = tag.as_ref().first_chunk().copied();
        mac.ok_or(Invalid::Cryptography)
    }

    /// Derives the encryption of a session. For [`Purpose::Remember`] this takes some milliseconds.
    pub(crate) fn derive(&self, id: &[u8; ID], purpose: Purpose) -> Result<Derived, Invalid> {
        let mut derived = [0; 44];
        match purpose {
            Purpose::Session => {
                let info: [&[u8]; 2] = [b"encryption:", id];
                let expanded = self.extracted.expand(&info, Length(derived.len()));
                let filled = expanded.and_then(|okm| okm.fill(&mut derived));
                filled.map_err(|_| Invalid::Cryptography)?;
            }
            Purpose::Remember => pbkdf2::derive(
                pbkdf2::PBKDF2_HMAC_SHA256,
                REMEMBER_ITERATIONS,
                &[&b"encryption:"[..], id].concat(),
                self.material.as_ref(),
                &mut derived,
            ),
        }
        Ok(Derived(derived))
    }
}

impl Derived {
    fn encryption(&self) -> Result<(LessSafeKey, Nonce), Invalid> {
        let (key, nonce) = self.0.split_at(32);
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| Invalid::Cryptography)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Invalid::Cryptography)?;
        Ok((LessSafeKey::new(key), nonce))
    }

    /// Decrypts the payload of the authenticated header that this was derived from.
    pub(crate) fn open(&self, header: &Header, payload: &[u8]) -> Result<Vec<u8>, Invalid> {
        if payload.len() != header.size as usize {
            return Err(Invalid::Payload);
        }
        let mut text = BASE64URL_NOPAD
            .decode(payload)
            .map_err(|_| Invalid::Payload)?;
        text.extend_from_slice(&header.tag);
        let (key, nonce) = self.encryption()?;
        let bytes = header.bytes();
        let sealed = Aad::from(&bytes[..SEALED]);
        let opened = key.open_in_place(nonce, sealed, &mut text);
        let length = opened.map_err(|_| Invalid::Forged)?.len();
        text.truncate(length);
        Ok(text)
    }
}

impl Fresh {
    /// Encrypts a payload. Returns the header, and the payload in base64url.
    pub(crate) fn seal(
        self,
        flags: u16,
        times: Times,
        mut payload: Vec<u8>,
    ) -> Result<(Header, String), Invalid> {
        if payload.len() > MAX_PLAINTEXT || times.created > MAX_CREATED {
            return Err(Invalid::TooLarge);
        }
        let size = encoded_size(payload.len());
        let mut header = Header {
            flags,
            id: self.id,
            created: times.created,
            rolling: times.rolling,
            size: u32::try_from(size).map_err(|_| Invalid::TooLarge)?,
            tag: [0; TAG],
            idling: 0,
        };
        let (key, nonce) = self.derived.encryption()?;
        let bytes = header.bytes();
        let sealed = Aad::from(&bytes[..SEALED]);
        let tag = key.seal_in_place_separate_tag(nonce, sealed, &mut payload);
        let tag = tag.map_err(|_| Invalid::Cryptography)?;
        header.tag = tag.as_ref().try_into().map_err(|_| Invalid::Cryptography)?;
        Ok((header, BASE64URL_NOPAD.encode(&payload)))
    }
}

impl Header {
    fn parse(bytes: &[u8; AUTHENTICATED]) -> Self {
        let number = |from: usize, length: usize| {
            let bytes = bytes[from..from + length].iter().rev();
            bytes.fold(0, |number: u64, &byte| number << 8 | u64::from(byte))
        };
        let short = |from, length| u32::try_from(number(from, length)).unwrap_or_default();
        let mut id = [0; ID];
        id.copy_from_slice(&bytes[3..35]);
        let mut tag = [0; TAG];
        tag.copy_from_slice(&bytes[47..63]);
        Self {
            flags: u16::from_le_bytes([bytes[1], bytes[2]]),
            id,
            created: number(35, 5),
            rolling: short(40, 4),
            size: short(44, 3),
            tag,
            idling: short(63, 3),
        }
    }

    fn bytes(&self) -> [u8; AUTHENTICATED] {
        let mut bytes = [0; AUTHENTICATED];
        bytes[0] = TYPE;
        bytes[1..3].copy_from_slice(&self.flags.to_le_bytes());
        bytes[3..35].copy_from_slice(&self.id);
        bytes[35..40].copy_from_slice(&self.created.to_le_bytes()[..5]);
        bytes[40..44].copy_from_slice(&self.rolling.to_le_bytes());
        bytes[44..47].copy_from_slice(&self.size.to_le_bytes()[..3]);
        bytes[47..63].copy_from_slice(&self.tag);
        bytes[63..66].copy_from_slice(&self.idling.to_le_bytes()[..3]);
        bytes
    }

    /// The session id in base64url. It is the key of stored sessions.
    pub(crate) fn id_text(&self) -> String {
        BASE64URL_NOPAD.encode(&self.id)
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// When the session was created or renewed last.
    pub(crate) fn renewed(&self) -> u64 {
        self.created.saturating_add(self.rolling.into())
    }

    /// When a request was noted last.
    pub(crate) fn last_noted(&self) -> u64 {
        self.renewed().saturating_add(self.idling.into())
    }

    /// Returns the header with this idling offset. The payload and its encryption stay the same.
    pub(crate) fn touched(&self, idling: u64) -> Self {
        Self {
            idling: u32::try_from(idling.min(MAX_IDLING)).unwrap_or_default(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
