//! Lua's patterns, with a question that stops them: a pattern can need time that grows with a power of the length of the
//! subject, and no hook of LuaJIT interrupts a function of C. It follows the description in Lua's manual. It backtracks,
//! and recurses to a limited depth.

pub const MAX_CAPTURES: usize = 32;
const MAX_DEPTH: u32 = 200;
/// Steps between two questions whether to stop.
const LOOK: u32 = 1024;

pub const NO_MATCH: i32 = -1;
pub const STOPPED: i32 = -2;
/// The modes: `string.find`, `string.find` of a plain text, and `string.gmatch`. All others are for the other functions.
pub const FIND: i32 = 0;
pub const PLAIN: i32 = 1;
pub const GMATCH: i32 = 3;
/// Malformed patterns; `lua/guard.lua` has the texts in this order.
pub const MALFORMED: i32 = -10;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Capture {
    pub start: u32,
    /// -1: a position; -2: still open.
    pub len: i32,
}

#[repr(C)]
pub struct Match {
    pub start: u32,
    pub end: u32,
    pub captures: [Capture; MAX_CAPTURES],
}

impl Default for Match {
    fn default() -> Self {
        Match {
            start: 0,
            end: 0,
            captures: [Capture { start: 0, len: 0 }; MAX_CAPTURES],
        }
    }
}

/// A match in progress. In its methods, `s` is a position in the subject and `p` one in the pattern.
struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    /// Number of captures so far.
    level: usize,
    captures: &'a mut [Capture; MAX_CAPTURES],
    /// Number of calls of [`Matcher::run`] within each other.
    depth: u32,
    /// Steps since the last question whether to stop.
    steps: u32,
    must_stop: &'a dyn Fn() -> bool,
}

/// The end of a match in the subject, `None` if there is no match, or a code.
type End = Result<Option<usize>, i32>;

/// Finds the first match at or after `init`. Returns the number of captures, or a negative code.
pub fn find(
    s: &[u8],
    p: &[u8],
    init: usize,
    mode: i32,
    must_stop: &dyn Fn() -> bool,
    m: &mut Match,
) -> i32 {
    let special: &[u8] = if mode == FIND {
        b"^$*+?.([%-"
    } else {
        b"^$*+?.()[%-"
    };
    if mode == PLAIN || !p.iter().any(|c| special.contains(c)) {
        return match memchr::memmem::find(&s[init..], p) {
            Some(at) => {
                (m.start, m.end) = ((init + at) as u32, (init + at + p.len()) as u32);
                0
            }
            None => NO_MATCH,
        };
    }
    let (anchored, p) = match p.strip_prefix(b"^") {
        // For `gmatch`, it is an ordinary character.
        Some(rest) if mode != GMATCH => (true, rest),
        _ => (false, p),
    };
    let mut matcher = Matcher {
        subject: s,
        pattern: p,
        level: 0,
        captures: &mut m.captures,
        depth: 0,
        steps: 0,
        must_stop,
    };
    let mut at = init;
    loop {
        matcher.level = 0;
        match matcher.run(at, 0) {
            Err(code) => return code,
            Ok(Some(end)) => {
                (m.start, m.end) = (at as u32, end as u32);
                let level = matcher.level;
                if m.captures[..level].iter().any(|c| c.len == -2) {
                    return MALFORMED - 8;
                }
                return level as i32;
            }
            Ok(None) if anchored || at >= s.len() => return NO_MATCH,
            Ok(None) => at += 1,
        }
    }
}

/// Whether a character is in a class such as `%a`.
fn class(c: u8, kind: u8) -> bool {
    let is = match kind.to_ascii_lowercase() {
        b'a' => c.is_ascii_alphabetic(),
        b'c' => c.is_ascii_control(),
        b'd' => c.is_ascii_digit(),
        b'g' => c.is_ascii_graphic(),
        b'l' => c.is_ascii_lowercase(),
        b'p' => c.is_ascii_punctuation(),
        b's' => c.is_ascii_whitespace() || c == 11,
        b'u' => c.is_ascii_uppercase(),
        b'w' => c.is_ascii_alphanumeric(),
        b'x' => c.is_ascii_hexdigit(),
        b'z' => c == 0,
        _ => return c == kind,
    };
    is != kind.is_ascii_uppercase()
}

impl Matcher<'_> {
    fn step(&mut self) -> Result<(), i32> {
        self.steps_of(1)
    }

    /// Counts the work on this number of bytes, if it is more than that of a step.
    fn bytes(&mut self, count: usize) -> Result<(), i32> {
        match count / 64 {
            0 => Ok(()),
            steps => self.steps_of(steps as u32),
        }
    }

    fn steps_of(&mut self, count: u32) -> Result<(), i32> {
        self.steps = self.steps.saturating_add(count);
        if self.steps >= LOOK {
            self.steps = 0;
            if (self.must_stop)() {
                return Err(STOPPED);
            }
        }
        Ok(())
    }

    /// Returns the end of the item for a single character at `p`.
    fn item_end(&self, p: usize) -> Result<usize, i32> {
        match self.pattern[p] {
            b'%' if p + 1 >= self.pattern.len() => Err(MALFORMED),
            b'%' => Ok(p + 2),
            b'[' => {
                let mut q = p + 1 + (self.pattern.get(p + 1) == Some(&b'^')) as usize;
                // A `]` in the first place is an ordinary character.
                loop {
                    match self.pattern.get(q) {
                        None => return Err(MALFORMED - 1),
                        Some(b'%') => q += 2,
                        Some(_) => q += 1,
                    }
                    if self.pattern.get(q) == Some(&b']') {
                        return Ok(q + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether a character is in the set at `p`.
    fn in_set(&self, c: u8, p: usize, end: usize) -> bool {
        let negated = self.pattern[p + 1] == b'^';
        let mut q = p + 1 + negated as usize;
        while q < end - 1 {
            if self.pattern[q] == b'%' {
                if class(c, self.pattern[q + 1]) {
                    return !negated;
                }
                q += 2;
            } else if q + 2 < end - 1 && self.pattern[q + 1] == b'-' {
                if self.pattern[q] <= c && c <= self.pattern[q + 2] {
                    return !negated;
                }
                q += 3;
            } else {
                if self.pattern[q] == c {
                    return !negated;
                }
                q += 1;
            }
        }
        negated
    }

    /// Whether a character fits the item at `p`.
    fn single(&self, c: u8, p: usize, end: usize) -> bool {
        match self.pattern[p] {
            b'.' => true,
            b'%' => class(c, self.pattern[p + 1]),
            b'[' => self.in_set(c, p, end),
            other => other == c,
        }
    }

    /// Whether the character at `s` fits the item at `p`.
    fn at(&mut self, s: usize, p: usize, end: usize) -> Result<bool, i32> {
        // A set may be as long as the pattern.
        self.bytes(end - p)?;
        Ok(s < self.subject.len() && self.single(self.subject[s], p, end))
    }

    /// Matches the rest of the pattern within another match.
    fn deeper(&mut self, s: usize, p: usize) -> End {
        if self.depth == MAX_DEPTH {
            return Err(MALFORMED - 6);
        }
        self.depth += 1;
        let result = self.run(s, p);
        self.depth -= 1;
        result
    }

    /// Matches the pattern from `p` on at `s`.
    fn run(&mut self, mut s: usize, mut p: usize) -> End {
        loop {
            self.step()?;
            let Some(&c) = self.pattern.get(p) else {
                return Ok(Some(s));
            };
            match c {
                b'(' => {
                    let position = self.pattern.get(p + 1) == Some(&b')');
                    if self.level == MAX_CAPTURES {
                        return Err(MALFORMED - 2);
                    }
                    let len = if position { -1 } else { -2 };
                    self.captures[self.level] = Capture {
                        start: s as u32,
                        len,
                    };
                    self.level += 1;
                    let end = self.deeper(s, p + 1 + position as usize)?;
                    if end.is_none() {
                        self.level -= 1;
                    }
                    return Ok(end);
                }
                b')' => {
                    let open = (0..self.level).rev().find(|&i| self.captures[i].len == -2);
                    let Some(i) = open else {
                        return Err(MALFORMED - 3);
                    };
                    self.captures[i].len = (s - self.captures[i].start as usize) as i32;
                    let end = self.deeper(s, p + 1)?;
                    if end.is_none() {
                        self.captures[i].len = -2;
                    }
                    return Ok(end);
                }
                b'$' if p + 1 == self.pattern.len() => {
                    return Ok((s == self.subject.len()).then_some(s));
                }
                b'%' if self.pattern.get(p + 1) == Some(&b'b') => {
                    let (Some(&open), Some(&close)) =
                        (self.pattern.get(p + 2), self.pattern.get(p + 3))
                    else {
                        return Err(MALFORMED - 4);
                    };
                    let Some(end) = self.balanced(s, open, close)? else {
                        return Ok(None);
                    };
                    (s, p) = (end, p + 4);
                    continue;
                }
                b'%' if self.pattern.get(p + 1) == Some(&b'f') => {
                    p += 2;
                    if self.pattern.get(p) != Some(&b'[') {
                        return Err(MALFORMED - 5);
                    }
                    let end = self.item_end(p)?;
                    self.bytes(end - p)?;
                    let before = if s == 0 { 0 } else { self.subject[s - 1] };
                    let here = self.subject.get(s).copied().unwrap_or(0);
                    if self.in_set(before, p, end) || !self.in_set(here, p, end) {
                        return Ok(None);
                    }
                    p = end;
                    continue;
                }
                b'%' if self.pattern.get(p + 1).is_some_and(u8::is_ascii_digit) => {
                    let i = (self.pattern[p + 1] as usize).wrapping_sub(b'1' as usize);
                    if i >= self.level || self.captures[i].len == -2 {
                        return Err(MALFORMED - 7);
                    }
                    let (from, len) = (
                        self.captures[i].start as usize,
                        self.captures[i].len.max(0) as usize,
                    );
                    if self.subject[s..].len() < len
                        || self.subject[from..from + len] != self.subject[s..s + len]
                    {
                        return Ok(None);
                    }
                    self.bytes(len)?;
                    (s, p) = (s + len, p + 2);
                    continue;
                }
                _ => {}
            }
            let end = self.item_end(p)?;
            match self.pattern.get(end) {
                Some(b'?') => {
                    if self.at(s, p, end)?
                        && let Some(e) = self.deeper(s + 1, end + 1)?
                    {
                        return Ok(Some(e));
                    }
                    p = end + 1;
                }
                Some(b'*') => return self.greedy(s, p, end, 0),
                Some(b'+') => return self.greedy(s, p, end, 1),
                Some(b'-') => loop {
                    self.step()?;
                    if let Some(e) = self.deeper(s, end + 1)? {
                        return Ok(Some(e));
                    }
                    if !self.at(s, p, end)? {
                        return Ok(None);
                    }
                    s += 1;
                },
                _ => {
                    if !self.at(s, p, end)? {
                        return Ok(None);
                    }
                    (s, p) = (s + 1, end);
                }
            }
        }
    }

    /// Matches as many repetitions of an item as possible, but `least` of them, and then the rest.
    fn greedy(&mut self, s: usize, p: usize, end: usize, least: usize) -> End {
        let mut n = 0;
        while self.at(s + n, p, end)? {
            n += 1;
        }
        // A long run costs as much as the steps of a short one; then each shorter length is a step of `run`.
        self.bytes(n)?;
        loop {
            if n < least {
                return Ok(None);
            }
            if let Some(e) = self.deeper(s + n, end + 1)? {
                return Ok(Some(e));
            }
            if n == 0 {
                return Ok(None);
            }
            n -= 1;
        }
    }

    /// Returns the end of a balanced text (`%bxy`).
    fn balanced(&mut self, s: usize, open: u8, close: u8) -> End {
        if self.subject.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for (i, &c) in self.subject[s + 1..].iter().enumerate() {
            if c == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(s + i + 2));
                }
            } else if c == open {
                depth += 1;
            }
        }
        self.bytes(self.subject.len() - s)?;
        Ok(None)
    }
}
