//! Random values for generated fields, from the system's generator. They are drawn in blocks, because one system call
//! for each credential of a large configuration would cost more than the rest of its processing.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use compact_str::CompactString;
use std::cell::RefCell;
use std::fmt::Write;
use std::sync::LazyLock;

const BLOCK: usize = 4096;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

struct Pool {
    bytes: [u8; BLOCK],
    used: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; BLOCK], used: BLOCK }) };
}

pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    POOL.with_borrow_mut(|pool| {
        if pool.used + N > BLOCK {
            SystemRandom::new()
                .fill(&mut pool.bytes)
                .expect("the system has a random generator");
            pool.used = 0;
        }
        let mut taken = [0; N];
        let block = &mut pool.bytes[pool.used..pool.used + N];
        taken.copy_from_slice(block);
        // A second copy of issued bytes must not stay in memory.
        block.fill(0);
        pool.used += N;
        taken
    })
}

/// A version 4 UUID.
pub(crate) fn uuid() -> CompactString {
    let id = uuid::Builder::from_random_bytes(bytes()).into_uuid();
    let mut text = CompactString::with_capacity(36);
    let _ = write!(text, "{id}");
    text
}

/// 32 letters and digits, each of the 62 equally likely.
pub(crate) fn key() -> CompactString {
    let mut text = CompactString::with_capacity(32);
    while text.len() < 32 {
        for byte in bytes::<48>() {
            // 248 is the largest multiple of 62 below 256. Larger bytes would make some characters more likely.
            if byte < 248 && text.len() < 32 {
                text.push(char::from(ALPHABET[usize::from(byte % 62)]));
            }
        }
    }
    text
}

/// A random text that is the same as long as the process runs: 32 bytes in base64. It is the default of settings that
/// Kong fills when it loads a schema. Source: kong/plugins/session/schema.lua.
pub fn process_secret() -> &'static str {
    static SECRET: LazyLock<String> =
        LazyLock::new(|| data_encoding::BASE64.encode(&bytes::<32>()));
    &SECRET
}
