//! Hashes and random bytes for the modules `resty.*`.

use super::{Cx, NONE};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use sha2::Digest;

super::numbered! {
    pub(super) enum Hash {
        Md5 = "md5",
        Sha1 = "sha1",
        Sha224 = "sha224",
        Sha256 = "sha256",
        Sha384 = "sha384",
        Sha512 = "sha512",
    }
}

/// Maximum number of random bytes in a call.
const MAX_RANDOM: usize = 1 << 20;

/// Returns the digest of a text as bytes.
pub(super) fn digest(cx: &mut Cx, hash: i32, text: &[u8]) -> i32 {
    let Some(hash) = Hash::numbered(hash) else {
        return NONE;
    };
    cx.made(|out| match hash {
        Hash::Md5 => out.extend_from_slice(&md5::Md5::digest(text)),
        Hash::Sha1 => out.extend_from_slice(&sha1::Sha1::digest(text)),
        Hash::Sha224 => out.extend_from_slice(&sha2::Sha224::digest(text)),
        Hash::Sha256 => out.extend_from_slice(&sha2::Sha256::digest(text)),
        Hash::Sha384 => out.extend_from_slice(&sha2::Sha384::digest(text)),
        Hash::Sha512 => out.extend_from_slice(&sha2::Sha512::digest(text)),
    })
}

/// Returns so many random bytes.
pub(super) fn random(cx: &mut Cx, length: i32) -> i32 {
    let Some(length) = usize::try_from(length)
        .ok()
        .filter(|length| *length <= MAX_RANDOM)
    else {
        return NONE;
    };
    let mut is_filled = false;
    let code = cx.made(|out| {
        out.resize(length, 0);
        is_filled = SystemRandom::new().fill(out).is_ok();
    });
    if is_filled { code } else { NONE }
}
