//! AES for the module `resty.aes`.

use super::{Cx, FOUND, NONE};
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256};
use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use subtle::ConstantTimeEq;

super::numbered! {
    pub(super) enum Mode {
        Ecb = "ecb",
        Cbc = "cbc",
        Ctr = "ctr",
        Ofb = "ofb",
        Cfb = "cfb",
        Gcm = "gcm",
    }
}

const BLOCK: usize = 16;
/// Bits of the settings of a call, in addition to the mode.
const ENCRYPT: i32 = 1 << 8;
const NO_PADDING: i32 = 1 << 9;

type Block = [u8; BLOCK];

/// A key of one of the three lengths.
enum Key {
    Short(Box<Aes128>),
    Middle(Box<Aes192>),
    Long(Box<Aes256>),
}

impl Key {
    fn new(key: &[u8]) -> Option<Self> {
        Some(match key.len() {
            16 => Self::Short(Box::new(Aes128::new_from_slice(key).ok()?)),
            24 => Self::Middle(Box::new(Aes192::new_from_slice(key).ok()?)),
            32 => Self::Long(Box::new(Aes256::new_from_slice(key).ok()?)),
            _ => return None,
        })
    }

    fn encrypt(&self, block: &mut Block) {
        let mut array = Array::from(*block);
        match self {
            Self::Short(key) => key.encrypt_block(&mut array),
            Self::Middle(key) => key.encrypt_block(&mut array),
            Self::Long(key) => key.encrypt_block(&mut array),
        }
        *block = array.into();
    }

    fn decrypt(&self, block: &mut Block) {
        let mut array = Array::from(*block);
        match self {
            Self::Short(key) => key.decrypt_block(&mut array),
            Self::Middle(key) => key.decrypt_block(&mut array),
            Self::Long(key) => key.decrypt_block(&mut array),
        }
        *block = array.into();
    }
}

/// Encrypts or decrypts a text. `settings` is the mode with [`ENCRYPT`] and [`NO_PADDING`]. `secret` is the key, whose
/// length is given, followed by the initialization vector. To decrypt with GCM, the tag follows it. The second result of
/// encrypting with GCM is the tag. Returns [`NONE`] if the text or the secret does not fit.
pub(super) fn run(cx: &mut Cx, settings: i32, key_length: i32, secret: &[u8], text: &[u8]) -> i32 {
    let key_length = usize::try_from(key_length).unwrap_or(0);
    let (Some(mode), Some((key, rest))) = (
        Mode::numbered(settings & 0xff),
        secret.split_at_checked(key_length),
    ) else {
        return NONE;
    };
    let Some(key) = Key::new(key) else {
        return NONE;
    };
    let encrypts = settings & ENCRYPT != 0;
    let pads = settings & NO_PADDING == 0;
    let result = match mode {
        Mode::Gcm if encrypts => return seal(cx, &key, rest, text),
        Mode::Gcm => open(&key, rest, text),
        _ => blocks(mode, &key, rest, text, encrypts, pads),
    };
    match result {
        Some(result) => cx.made(|out| out.extend_from_slice(&result)),
        None => NONE,
    }
}

fn seal(cx: &mut Cx, key: &Key, iv: &[u8], text: &[u8]) -> i32 {
    let gcm = Gcm::new(key, iv);
    let mut sealed = text.to_vec();
    gcm.combine(&mut sealed);
    let tag = gcm.tag(&sealed);
    cx.made(|out| {
        out.extend_from_slice(&sealed);
        out.extend_from_slice(&tag);
    });
    let both = std::mem::take(&mut cx.scratch);
    let (text, tag) = both.split_at(sealed.len());
    cx.texts(text, tag);
    cx.scratch = both;
    FOUND
}

fn open(key: &Key, rest: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    let (iv, tag) = rest.split_at_checked(rest.len().checked_sub(BLOCK)?)?;
    let gcm = Gcm::new(key, iv);
    if !bool::from(gcm.tag(text).ct_eq(tag)) {
        return None;
    }
    let mut opened = text.to_vec();
    gcm.combine(&mut opened);
    Some(opened)
}

/// Galois/Counter Mode (NIST SP 800-38D).
struct Gcm<'k> {
    key: &'k Key,
    hash: GHash,
    /// The counter before the first block of the text.
    start: Block,
}

impl<'k> Gcm<'k> {
    fn new(key: &'k Key, iv: &[u8]) -> Self {
        let mut hash_key = [0; BLOCK];
        key.encrypt(&mut hash_key);
        let hash = GHash::new(&Array::from(hash_key));
        let mut start = [0; BLOCK];
        if iv.len() == 12 {
            start[..12].copy_from_slice(iv);
            start[15] = 1;
        } else {
            start = hashed(hash.clone(), iv, [0, iv.len()]);
        }
        Self { key, hash, start }
    }

    /// Encrypts or decrypts a text.
    fn combine(&self, text: &mut [u8]) {
        let mut counter = u128::from_be_bytes(self.start);
        for piece in text.chunks_mut(BLOCK) {
            // Only the last 32 bits count.
            let low = (counter as u32).wrapping_add(1);
            counter = counter & !u128::from(u32::MAX) | u128::from(low);
            let mut block = counter.to_be_bytes();
            self.key.encrypt(&mut block);
            xor(piece, &block);
        }
    }

    fn tag(&self, sealed: &[u8]) -> Block {
        let mut tag = hashed(self.hash.clone(), sealed, [0, sealed.len()]);
        let mut mask = self.start;
        self.key.encrypt(&mut mask);
        xor(&mut tag, &mask);
        tag
    }
}

/// Returns the hash of a text that is filled to whole blocks, and of two lengths in bytes.
fn hashed(mut hash: GHash, text: &[u8], lengths: [usize; 2]) -> Block {
    hash.update_padded(text);
    let [first, second] = lengths.map(|length| (length as u128) * 8);
    let last = (first << 64 | second).to_be_bytes();
    hash.update(&[Array::from(last)]);
    hash.finalize().into()
}

fn blocks(
    mode: Mode,
    key: &Key,
    iv: &[u8],
    text: &[u8],
    encrypts: bool,
    pads: bool,
) -> Option<Vec<u8>> {
    let iv: Block = match mode {
        Mode::Ecb => [0; BLOCK],
        _ => iv.try_into().ok()?,
    };
    match mode {
        Mode::Ecb | Mode::Cbc if encrypts => encrypt(mode, key, iv, text, pads),
        Mode::Ecb | Mode::Cbc => decrypt(mode, key, iv, text, pads),
        _ => Some(stream(mode, key, iv, text, encrypts)),
    }
}

fn encrypt(mode: Mode, key: &Key, iv: Block, text: &[u8], pads: bool) -> Option<Vec<u8>> {
    let mut out = text.to_vec();
    if pads {
        // PKCS #7: a text of whole blocks gets another one.
        let missing = BLOCK - text.len() % BLOCK;
        out.resize(text.len() + missing, u8::try_from(missing).unwrap_or(0));
    }
    let mut last = iv;
    let (whole, rest) = out.as_chunks_mut::<BLOCK>();
    if !rest.is_empty() {
        return None;
    }
    for block in whole {
        if mode == Mode::Cbc {
            xor(block, &last);
        }
        key.encrypt(block);
        last = *block;
    }
    Some(out)
}

fn decrypt(mode: Mode, key: &Key, iv: Block, text: &[u8], pads: bool) -> Option<Vec<u8>> {
    let mut out = text.to_vec();
    let mut last = iv;
    let (whole, rest) = out.as_chunks_mut::<BLOCK>();
    if !rest.is_empty() {
        return None;
    }
    for block in whole {
        let before = *block;
        key.decrypt(block);
        if mode == Mode::Cbc {
            xor(block, &last);
        }
        last = before;
    }
    if pads {
        let padding = usize::from(*out.last()?);
        let length = out.len().checked_sub(padding)?;
        let is_valid = (1..=BLOCK).contains(&padding)
            && out[length..]
                .iter()
                .all(|byte| usize::from(*byte) == padding);
        if !is_valid {
            return None;
        }
        out.truncate(length);
    }
    Some(out)
}

/// The modes in which a block is only combined with the text.
fn stream(mode: Mode, key: &Key, iv: Block, text: &[u8], encrypts: bool) -> Vec<u8> {
    let mut out = text.to_vec();
    let mut state = iv;
    for piece in out.chunks_mut(BLOCK) {
        let mut block = state;
        key.encrypt(&mut block);
        if mode == Mode::Ctr {
            state = u128::from_be_bytes(state).wrapping_add(1).to_be_bytes();
        } else if mode == Mode::Ofb {
            state = block;
        } else if !encrypts && piece.len() == BLOCK {
            state.copy_from_slice(piece);
        }
        xor(piece, &block);
        if mode == Mode::Cfb && encrypts && piece.len() == BLOCK {
            state.copy_from_slice(piece);
        }
    }
    out
}

fn xor(text: &mut [u8], with: &Block) {
    for (byte, other) in text.iter_mut().zip(with) {
        *byte ^= other;
    }
}
