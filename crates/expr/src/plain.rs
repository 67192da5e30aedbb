//! Recognises PCRE patterns that have the same meaning in the dialect of the `regex` crate if classes are limited to
//! ASCII. `regex-syntax` can then analyse them. Only listed syntax is accepted, because the dialects differ in too many
//! ways to list the differences.

/// Maximum nesting depth of groups. It is less than the limits of `regex-syntax` and `fancy-regex`.
const MAX_DEPTH: usize = 20;

/// Whether the pattern consists only of ASCII literals, escaped punctuation, `.`, the classes `\d`, `\w`, `\s` and
/// their negations, simple bracketed classes, unnamed, named or non-capturing groups, alternation, the anchors `^`,
/// `$`, `\A` and `\z`, and greedy or lazy repetition.
pub(crate) fn is_plain(pattern: &str) -> bool {
    let mut reader = Reader {
        rest: pattern.as_bytes(),
        depth: 0,
        repeatable: false,
    };
    while !reader.rest.is_empty() {
        if reader.token().is_none() {
            return false;
        }
    }
    reader.depth == 0
}

struct Reader<'p> {
    rest: &'p [u8],
    depth: usize,
    /// Whether the last token may be repeated.
    repeatable: bool,
}

impl Reader<'_> {
    /// Reads one token. Returns `None` if it is not allowed.
    fn token(&mut self) -> Option<()> {
        let first = self.next()?;
        self.repeatable = match first {
            b'^' | b'$' | b'|' => false,
            b'(' => self.group()?,
            b')' => {
                self.depth = self.depth.checked_sub(1)?;
                true
            }
            b'[' => self.class()?,
            b'*' | b'+' | b'?' | b'{' => self.repetition(first)?,
            b'\\' => self.escape()?,
            b']' | b'}' => return None,
            b' '..=b'~' => true,
            _ => return None,
        };
        Some(())
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text.as_bytes());
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn group(&mut self) -> Option<bool> {
        self.depth += 1;
        if self.skip("?P<") || self.skip("?<") {
            let end = self.rest.iter().position(|byte| *byte == b'>')?;
            let (name, rest) = self.rest.split_at(end);
            let (first, others) = name.split_first()?;
            let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            if !(first.is_ascii_alphabetic() && others.iter().all(word)) {
                return None;
            }
            self.rest = &rest[1..];
        } else if !self.skip("?:") && matches!(self.rest.first()?, b'?' | b'*') {
            return None;
        }
        // Only one dialect can repeat an empty group.
        let empty = self.rest.first() == Some(&b')');
        (!empty && self.depth <= MAX_DEPTH).then_some(false)
    }

    fn escape(&mut self) -> Option<bool> {
        match self.next()? {
            b'A' | b'z' => Some(false),
            escaped => is_same_everywhere(escaped).then_some(true),
        }
    }

    /// Reads the inside of a bracketed class. Returns `None` for syntax that only one dialect treats specially: nested
    /// brackets, set operators and most hyphens. A hyphen is allowed only as the first or last character and in a range
    /// of letters or digits.
    fn class(&mut self) -> Option<bool> {
        self.skip("^");
        let mut first = true;
        loop {
            match self.next()? {
                b']' if first => return None,
                b']' => return Some(true),
                b'\\' => {
                    let escaped = self.next().filter(|byte| is_same_everywhere(*byte));
                    escaped?;
                    // `\w-z` is no range in either dialect, and the dialects treat it differently.
                    if self.rest.first() == Some(&b'-') && self.rest.get(1) != Some(&b']') {
                        return None;
                    }
                }
                b'[' | b'&' | b'~' => return None,
                b'-' if first || self.rest.first() == Some(&b']') => {}
                start if start.is_ascii_alphanumeric() && self.rest.first() == Some(&b'-') => {
                    if self.rest.get(1) != Some(&b']') {
                        self.next();
                        let end = self.next().filter(u8::is_ascii_alphanumeric)?;
                        if end < start || self.rest.first() == Some(&b'-') {
                            return None;
                        }
                    }
                }
                b'-' => return None,
                b' '..=b'~' => {
                    if self.rest.first() == Some(&b'-') && self.rest.get(1) != Some(&b']') {
                        return None;
                    }
                }
                _ => return None,
            }
            first = false;
        }
    }

    fn repetition(&mut self, first: u8) -> Option<bool> {
        if !self.repeatable {
            return None;
        }
        if first == b'{' {
            let end = self.rest.iter().position(|byte| *byte == b'}')?;
            let (counts, rest) = self.rest.split_at(end);
            let counts = std::str::from_utf8(counts).ok()?;
            let (min, max) = counts.split_once(',').unwrap_or((counts, counts));
            let digits = |text: &str| text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
            // The dialects disagree whether a group that is repeated zero times is counted as a group.
            let none = !max.is_empty() && max.bytes().all(|byte| byte == b'0');
            if min.is_empty() || !digits(min) || !digits(max) || none {
                return None;
            }
            self.rest = &rest[1..];
        }
        self.skip("?");
        Some(false)
    }
}

/// Whether the escaped character has one meaning in both dialects: a class, or the character itself.
fn is_same_everywhere(escaped: u8) -> bool {
    match escaped {
        b'd' | b'D' | b'w' | b'W' | b's' | b'S' => true,
        // The `regex` crate reads these as word boundaries.
        b'<' | b'>' => false,
        _ => escaped.is_ascii_punctuation(),
    }
}
