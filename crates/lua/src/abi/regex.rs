//! Regexes of `ngx.re`, by PCRE2.
//!
//! Compiled regexes are kept per worker, in a bounded list in the order of use. A match has a limit of steps, and it looks
//! for its start in pieces of the subject, so that the watchdog can stop it between them: PCRE2 counts the steps of each
//! start anew.

#![expect(unsafe_code, reason = "the interface of PCRE2 is C's")]

use super::{Cx, NONE, PANIC, REFUSED};
use lru::LruCache;
use pcre2_sys::*;
use std::ptr::{NonNull, null, null_mut};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Maximum number of compiled regexes, and of the bytes of their patterns, their compiled forms and their machine code.
const MAX_REGEXES: usize = 1024;
const MAX_MEMORY: usize = 32 << 20;
/// Maximum length of a pattern, and of its compiled form.
const MAX_PATTERN: usize = 64 << 10;
const MAX_COMPILED: usize = 1 << 20;
/// Maximum steps from each start: Kong's `lua_regex_match_limit`.
const MATCH_LIMIT: u32 = 100_000;
/// Maximum depth of backtracking, and its memory in KiB, where PCRE2 interprets.
const DEPTH_LIMIT: u32 = 10_000;
const HEAP_LIMIT: u32 = 20_000;
/// Maximum number of bytes in which a match may start before the watchdog's mark is looked at.
const PIECE: usize = 256;
/// Maximum number of bytes that these starts see if each sees the subject to its end. One repetition of a character may do
/// that in one step. So the first piece of a long subject is shorter.
const SEEN: usize = 4 << 20;
/// The next piece is longer after one that took less than this time, and shorter after others.
const SHORT: Duration = Duration::from_micros(100);

/// The compiled regexes of a worker, and the memory of the last match.
pub(crate) struct Regexes {
    known: LruCache<Key, Rc<Regex>>,
    memory: usize,
    limits: Limits,
    /// The result of the last match, which Lua reads. All regexes share it, because PCRE2 keeps in it the memory that a
    /// match needs for backtracking.
    data: Option<MatchData>,
    /// The regex that was compiled last.
    last: Option<Rc<Regex>>,
}

/// The data of a match, with room for this number of pairs of positions.
struct MatchData {
    data: NonNull<pcre2_match_data_8>,
    pairs: u32,
}

impl MatchData {
    fn new(pairs: u32) -> Option<Self> {
        // SAFETY: it has no preconditions but that the result is freed.
        let data = NonNull::new(unsafe { pcre2_match_data_create_8(pairs, null_mut()) })?;
        Some(Self { data, pairs })
    }
}

impl Drop for MatchData {
    fn drop(&mut self) {
        // SAFETY: nothing else frees it.
        unsafe { pcre2_match_data_free_8(self.data.as_ptr()) };
    }
}

/// What a compiled regex is found by.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    pattern: Box<[u8]>,
    flags: Box<[u8]>,
}

struct Limits {
    matching: NonNull<pcre2_match_context_8>,
    compiling: NonNull<pcre2_compile_context_8>,
    stack: *mut pcre2_jit_stack_8,
}

struct Regex {
    code: NonNull<pcre2_code_8>,
    /// Bytes of the compiled form and the machine code.
    memory: usize,
    is_dfa: bool,
    is_utf: bool,
    is_anchored: bool,
    groups: u32,
    names: Vec<(Box<[u8]>, u16)>,
}

impl Default for Regexes {
    fn default() -> Self {
        // SAFETY: the functions have no preconditions but that their results are freed.
        let limits = unsafe {
            let matching = NonNull::new(pcre2_match_context_create_8(null_mut()));
            let compiling = NonNull::new(pcre2_compile_context_create_8(null_mut()));
            Limits {
                matching: matching.expect("there is memory for a context"),
                compiling: compiling.expect("there is memory for a context"),
                stack: pcre2_jit_stack_create_8(32 << 10, 512 << 10, null_mut()),
            }
        };
        // SAFETY: the contexts are new.
        unsafe {
            let matching = limits.matching.as_ptr();
            pcre2_set_match_limit_8(matching, MATCH_LIMIT);
            pcre2_set_depth_limit_8(matching, DEPTH_LIMIT);
            pcre2_set_heap_limit_8(matching, HEAP_LIMIT);
            pcre2_set_max_pattern_length_8(limits.compiling.as_ptr(), MAX_PATTERN);
            pcre2_set_max_pattern_compiled_length_8(limits.compiling.as_ptr(), MAX_COMPILED);
            if !limits.stack.is_null() {
                pcre2_jit_stack_assign_8(matching, None, limits.stack.cast());
            }
        }
        Self {
            known: LruCache::unbounded(),
            memory: 0,
            limits,
            data: None,
            last: None,
        }
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        // SAFETY: nothing else frees them.
        unsafe {
            pcre2_match_context_free_8(self.matching.as_ptr());
            pcre2_compile_context_free_8(self.compiling.as_ptr());
            pcre2_jit_stack_free_8(self.stack);
        }
    }
}

impl Drop for Regex {
    fn drop(&mut self) {
        // SAFETY: nothing else frees it.
        unsafe { pcre2_code_free_8(self.code.as_ptr()) };
    }
}

/// Compiles a regex, or finds it. Returns 1, or [`REFUSED`] with the text of the error. `number` is the number of groups
/// without the whole match, `flags` the number of names.
pub(super) fn compile(cx: &mut Cx, pattern: &[u8], flags: &[u8]) -> i32 {
    let regexes = &mut cx.regexes;
    // Flags come in few combinations. More of them are no key of a regex.
    if flags.len() > 32 {
        return cx.refuse("too many flags");
    }
    let key = Key {
        pattern: pattern.into(),
        flags: flags.into(),
    };
    let known = regexes.known.get(&key).cloned();
    let regex = match known {
        Some(regex) => regex,
        None => match Regex::new(pattern, flags, &regexes.limits) {
            Err(error) => return cx.refuse(error),
            Ok(regex) => {
                let regex = Rc::new(regex);
                regexes.memory += pattern.len() + regex.memory;
                regexes.known.put(key, regex.clone());
                while regexes.known.len() > MAX_REGEXES || regexes.memory > MAX_MEMORY {
                    match regexes.known.pop_lru() {
                        Some((key, regex)) => regexes.memory -= key.pattern.len() + regex.memory,
                        None => break,
                    }
                }
                regex
            }
        },
    };
    cx.number = regex.groups.into();
    cx.flags = u32::try_from(regex.names.len()).unwrap_or(u32::MAX);
    regexes.last = Some(regex);
    1
}

/// Makes a list of the names of the groups of the regex that was compiled last, with their numbers.
pub(super) fn names(cx: &mut Cx) -> i32 {
    let Some(regex) = cx.regexes.last.clone() else {
        return NONE;
    };
    super::list::fill(cx, |push| {
        for (name, number) in &regex.names {
            push(name, number.to_string().as_bytes());
        }
    })
}

/// Matches the regex that was compiled last. Returns the number of groups that are known, with the whole match; 0 if
/// there is no match; and otherwise an error of PCRE2. `ptr` is then the address of the positions, as pairs of `size_t`.
/// The error -2 is that it was stopped.
pub(super) fn run(cx: &mut Cx, from: i32, subject: &[u8]) -> i32 {
    let Some(regex) = cx.regexes.last.clone() else {
        return PANIC;
    };
    let from = usize::try_from(from).unwrap_or(0);
    if from > subject.len() {
        return NONE;
    }
    let pairs = regex.groups + 1;
    let regexes = &mut cx.regexes;
    if regexes.data.as_ref().is_none_or(|data| data.pairs < pairs) {
        regexes.data = MatchData::new(pairs.max(16));
    }
    let Some(data) = &regexes.data else {
        return PANIC;
    };
    let code = regex.find(subject, from, data, &regexes.limits, || cx.slot.must_stop());
    // SAFETY: the data lives until the next match.
    let positions = unsafe { pcre2_get_ovector_pointer_8(data.data.as_ptr()) };
    cx.ptr = positions.cast::<u8>();
    match code {
        PCRE2_ERROR_NOMATCH => NONE,
        code => code,
    }
}

impl Regex {
    fn new(pattern: &[u8], flags: &[u8], limits: &Limits) -> Result<Self, String> {
        let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let mut options = PCRE2_USE_OFFSET_LIMIT;
        let (mut is_jit, mut is_dfa) = (false, false);
        for flag in flags {
            options |= match flag {
                b'a' => PCRE2_ANCHORED,
                b'd' => {
                    is_dfa = true;
                    0
                }
                b'D' => PCRE2_DUPNAMES,
                b'i' => PCRE2_CASELESS,
                b'j' => {
                    is_jit = true;
                    0
                }
                b'J' => PCRE2_ALT_BSUX | PCRE2_MATCH_UNSET_BACKREF,
                b'm' => PCRE2_MULTILINE,
                // Every regex is kept.
                b'o' => 0,
                b's' => PCRE2_DOTALL,
                // The flag `U` is without checks of the subject, which are needed for memory safety.
                b'u' | b'U' => PCRE2_UTF,
                b'x' => PCRE2_EXTENDED,
                other => {
                    let (flag, flags) = (shown(&[*other]), shown(flags));
                    return Err(format!("unknown flag \"{flag}\" (flags \"{flags}\")"));
                }
            };
        }
        // A pattern must not switch UTF on by itself where the subject is not checked. PCRE2 checks it in each match.
        let (mut error, mut at) = (0, 0);
        // SAFETY: the pattern lives during the call.
        let code = unsafe {
            pcre2_compile_8(
                pattern.as_ptr(),
                pattern.len(),
                options,
                &mut error,
                &mut at,
                limits.compiling.as_ptr(),
            )
        };
        let Some(code) = NonNull::new(code) else {
            let (text, whole) = (message(error), shown(pattern));
            return Err(match pattern.get(at..) {
                Some(rest) if !rest.is_empty() => {
                    let rest = shown(rest);
                    format!("pcre2_compile() failed: {text} in \"{whole}\" at \"{rest}\"")
                }
                _ => format!("pcre2_compile() failed: {text} in \"{whole}\""),
            });
        };
        // SAFETY: the code is valid. Without memory for the code of the machine, PCRE2 interprets.
        if is_jit && !is_dfa {
            unsafe { pcre2_jit_compile_8(code.as_ptr(), PCRE2_JIT_COMPLETE) };
        }
        let all = info(code, PCRE2_INFO_ALLOPTIONS);
        Ok(Self {
            code,
            memory: size(code, PCRE2_INFO_SIZE) + size(code, PCRE2_INFO_JITSIZE),
            is_dfa,
            is_utf: all & PCRE2_UTF != 0,
            is_anchored: all & PCRE2_ANCHORED != 0,
            groups: if is_dfa {
                0
            } else {
                info(code, PCRE2_INFO_CAPTURECOUNT)
            },
            names: if is_dfa {
                Vec::new()
            } else {
                group_names(code)
            },
        })
    }

    fn find(
        &self,
        subject: &[u8],
        from: usize,
        data: &MatchData,
        limits: &Limits,
        must_stop: impl Fn() -> bool,
    ) -> i32 {
        // A DFA also follows all alternatives at once.
        let mut piece = match self.is_dfa {
            true => 1,
            false => (SEEN / subject.len().max(1)).clamp(1, PIECE),
        };
        let mut workspace = [0_i32; 1024];
        let matching = limits.matching.as_ptr();
        let (mut start, mut options) = (from, 0);
        loop {
            let began = Instant::now();
            let mut limit = start.saturating_add(piece);
            let is_last = self.is_anchored || limit >= subject.len();
            if is_last {
                limit = usize::MAX;
            }
            // SAFETY: all pointers live during the calls. The whole subject from the first start on is checked by the
            // first call if it must be UTF-8, so later calls need no check.
            let code = unsafe {
                pcre2_set_offset_limit_8(matching, limit);
                let (code, data) = (self.code.as_ptr(), data.data.as_ptr());
                let (at, length) = (subject.as_ptr(), subject.len());
                if self.is_dfa {
                    let space = (workspace.as_mut_ptr(), workspace.len());
                    let found = pcre2_dfa_match_8(
                        code, at, length, start, options, data, matching, space.0, space.1,
                    );
                    // Several matches have the same start. The first is the longest, and it is the only one that counts.
                    if found >= 0 { 1 } else { found }
                } else {
                    pcre2_match_8(code, at, length, start, options, data, matching)
                }
            };
            if code != PCRE2_ERROR_NOMATCH || is_last {
                return code;
            }
            if must_stop() {
                return STOPPED;
            }
            piece = match began.elapsed() < SHORT {
                true => (piece * 2).min(PIECE),
                false => (piece / 2).max(1),
            };
            start = limit + 1;
            if self.is_utf {
                options = PCRE2_NO_UTF_CHECK;
                while subject.get(start).is_some_and(|byte| byte & 0xc0 == 0x80) {
                    start += 1;
                }
            }
            if start > subject.len() {
                return PCRE2_ERROR_NOMATCH;
            }
        }
    }
}

/// The result of a match that the watchdog has stopped. PCRE2 uses it for partial matches, which are not asked for.
const STOPPED: i32 = -2;

fn info(code: NonNull<pcre2_code_8>, what: u32) -> u32 {
    let mut value = 0_u32;
    // SAFETY: these values are numbers of 32 bits.
    unsafe { pcre2_pattern_info_8(code.as_ptr(), what, (&raw mut value).cast()) };
    value
}

fn size(code: NonNull<pcre2_code_8>, what: u32) -> usize {
    let mut value = 0_usize;
    // SAFETY: these values are of the type `size_t`.
    unsafe { pcre2_pattern_info_8(code.as_ptr(), what, (&raw mut value).cast()) };
    value
}

fn group_names(code: NonNull<pcre2_code_8>) -> Vec<(Box<[u8]>, u16)> {
    let count = info(code, PCRE2_INFO_NAMECOUNT) as usize;
    let size = info(code, PCRE2_INFO_NAMEENTRYSIZE) as usize;
    let mut table: *const u8 = null();
    // SAFETY: the table has `count` entries of `size` bytes, and lives as long as the code.
    let table = unsafe {
        pcre2_pattern_info_8(code.as_ptr(), PCRE2_INFO_NAMETABLE, (&raw mut table).cast());
        match table.is_null() || size < 3 {
            true => return Vec::new(),
            false => std::slice::from_raw_parts(table, count * size),
        }
    };
    let entries = table.chunks_exact(size);
    let named = entries.map(|entry| {
        let name = entry[2..]
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        (Box::from(name), u16::from_be_bytes([entry[0], entry[1]]))
    });
    named.collect()
}

fn message(error: i32) -> String {
    let mut text = [0_u8; 256];
    // SAFETY: PCRE2 writes at most the length of the buffer.
    let length = unsafe { pcre2_get_error_message_8(error, text.as_mut_ptr(), text.len()) };
    let text = &text[..usize::try_from(length).unwrap_or(0).min(text.len())];
    String::from_utf8_lossy(text).into_owned()
}

const _: () = assert!(REFUSED == -3);

#[cfg(test)]
mod tests;
