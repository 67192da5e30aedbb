//! The key of a stored response: Kong's text about the request, hashed with SHA-256. Source:
//! kong/plugins/proxy-cache/cache_key.lua.
//!
//! The text is `prefix|method|request line|arguments|headers`. Kong joins decoded values with `:`, `=` and `,`, so that
//! a client can write the text of another request: `?a=1%3Ab%3D2` has that of `?a=1&b=2`. Whoever does that could
//! have a response stored for others. For this reason the text ends with the lengths of its parts if a part has one of
//! these characters. For the same reason, arguments that Kong does not look at are a part of the key: those without a
//! name, and those after the first hundred. All other keys are Kong's.

use aws_lc_rs::digest::{Context, SHA256, digest};
use compact_str::CompactString;
use plugin::args::Arg;
use smallvec::SmallVec;
use std::fmt;
use std::hash::{Hash, Hasher};
use uuid::Uuid;

/// The parts of a request that distinguish its response from others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) consumer: Option<Uuid>,
    /// The credential of a client that has no consumer, such as a user of a directory. Kong leaves it out.
    pub(super) credential: Option<Uuid>,
    pub(super) route: Option<Uuid>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheKey([u8; 32]);

/// Half of a key is distributed as well as the whole.
impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut half = [0; 16];
        half.copy_from_slice(&self.0[16..]);
        state.write_u128(u128::from_le_bytes(half));
    }
}

impl CacheKey {
    fn of(hash: &[u8]) -> Self {
        let mut key = [0; 32];
        key.copy_from_slice(hash);
        Self(key)
    }

    /// Returns the form in which clients see the key.
    pub(super) fn text(&self) -> CompactString {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        CompactString::from_utf8_lossy(&text)
    }

    /// Parses the form in which clients see the key. `None` if no key looks like this.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut key = [0; 32];
        let lower = data_encoding::HEXLOWER;
        let is_key = lower.decode_len(text.len()) == Ok(key.len())
            && lower.decode_mut(text.as_bytes(), &mut key).is_ok();
        is_key.then_some(Self(key))
    }

    /// Returns 64 bits of the hash, which distribute keys evenly.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(bytes)
    }
}

/// The length that stands for a part that is absent.
const ABSENT: u32 = u32::MAX;

/// Hashes the parts of a key with their lengths, so that no two lists of parts have the same hash. Used where the text
/// need not be Kong's.
pub(super) struct KeyParts(SmallVec<[u8; 256]>);

impl KeyParts {
    pub(super) fn new() -> Self {
        Self(SmallVec::new())
    }

    pub(super) fn part(&mut self, part: &[u8]) {
        // Most parts are short: fewer bytes of length are fewer bytes to hash. No part has the length `ABSENT`.
        let length = u32::try_from(part.len()).unwrap_or(ABSENT - 1);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(part);
    }

    /// Adds a part that may be absent.
    pub(super) fn optional(&mut self, part: Option<&[u8]>) {
        match part {
            Some(part) => self.part(part),
            None => self.0.extend_from_slice(&ABSENT.to_le_bytes()),
        }
    }

    pub(super) fn key(&mut self, key: &CacheKey) {
        self.0.extend_from_slice(&key.0);
    }

    pub(super) fn finish(self) -> CacheKey {
        CacheKey::of(digest(&SHA256, &self.0).as_ref())
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text())
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CacheKey({self})")
    }
}

/// Writes the text of a key, part by part.
pub(super) struct KeyText {
    text: Vec<u8>,
    /// The lengths of all parts that clients can choose, as text.
    lengths: Vec<u8>,
    /// Whether the text alone does not tell where its parts end.
    is_ambiguous: bool,
}

impl KeyText {
    /// Begins with the owner of the response and the method.
    pub(super) fn new(owner: Owner, method: &str) -> Self {
        let mut key = Self {
            text: Vec::with_capacity(256),
            lengths: Vec::with_capacity(32),
            is_ambiguous: false,
        };
        match (owner.consumer.or(owner.credential), owner.route) {
            (Some(client), Some(route)) => {
                key.id(client);
                key.text.push(b':');
                key.id(route);
            }
            (None, Some(route)) => key.id(route),
            // Kong uses this prefix for all clients. Every request that is cached has a route.
            (Some(client), None) => {
                key.id(client);
                key.text.extend_from_slice(b":default");
            }
            (None, None) => key.text.extend_from_slice(b"default"),
        }
        key.text.push(b'|');
        key.text.extend_from_slice(method.as_bytes());
        key.text.push(b'|');
        key
    }

    /// Adds the parts of the request line as the client sent it, up to the query. Kong removes everything from the query
    /// on, the protocol too.
    pub(super) fn request_line(&mut self, line: &[&[u8]], ignores_case: bool) {
        let start = self.text.len();
        for part in line {
            let query = memchr::memchr(b'?', part);
            self.text
                .extend_from_slice(&part[..query.unwrap_or(part.len())]);
            if query.is_some() {
                break;
            }
        }
        let line = &mut self.text[start..];
        if ignores_case {
            line.make_ascii_lowercase();
        }
        self.is_ambiguous |= memchr::memchr2(b'|', b'\0', line).is_some();
        let length = line.len();
        self.length(length);
        self.text.push(b'|');
    }

    /// Adds the path for the upstream that an earlier plugin has set, which may depend on headers. Kong leaves it out.
    pub(super) fn upstream_path(&mut self, path: &str) {
        self.is_ambiguous = true;
        self.lengths.push(b'p');
        self.length(path.len());
        self.lengths.extend_from_slice(path.as_bytes());
    }

    /// Adds all arguments, sorted by name.
    pub(super) fn all_arguments<'a>(&mut self, args: impl Iterator<Item = Arg<'a>>) {
        let mut args: Vec<Arg<'a>> = args.collect();
        args.sort_by(|one, other| one.name.cmp(&other.name));
        let is_same = |one: &Arg<'_>, other: &Arg<'_>| one.name == other.name;
        for (number, group) in args.chunk_by(is_same).enumerate() {
            let values = group.iter().map(|arg| arg.value.as_deref());
            self.field(number == 0, &group[0].name, values.collect());
        }
    }

    /// Adds the arguments that have no name, such as `=x`. Kong leaves them out, but the upstream sees them.
    pub(super) fn nameless_arguments(&mut self, query: &[u8]) {
        for piece in query.split(|&byte| byte == b'&') {
            if !piece.starts_with(b"=") {
                continue;
            }
            self.is_ambiguous = true;
            self.lengths.push(b'q');
            self.length(piece.len());
            self.lengths.extend_from_slice(piece);
        }
    }

    /// Adds the arguments with these names, in the order of the names.
    pub(super) fn arguments<'a, 'n>(
        &mut self,
        names: impl Iterator<Item = &'n str>,
        args: impl Iterator<Item = Arg<'a>>,
    ) {
        let args: Vec<Arg<'a>> = args.collect();
        self.fields(names, |name| {
            let same = args.iter().filter(|arg| *arg.name == *name.as_bytes());
            same.map(|arg| arg.value.as_deref()).collect()
        });
    }

    /// Adds the fields with these names that have a value.
    pub(super) fn fields<'n, 'v>(
        &mut self,
        names: impl Iterator<Item = &'n str>,
        values: impl Fn(&str) -> Vec<Option<&'v [u8]>>,
    ) {
        let mut is_first = true;
        for name in names {
            let values = values(name);
            if !values.is_empty() {
                self.field(is_first, name.as_bytes(), values);
                is_first = false;
            }
        }
    }

    /// Ends the arguments. Headers follow.
    pub(super) fn end_arguments(&mut self) {
        self.text.push(b'|');
        self.lengths.push(b'|');
    }

    /// Adds `name=value,value`, or `name` for an argument without a value.
    fn field(&mut self, is_first: bool, name: &[u8], mut values: Vec<Option<&[u8]>>) {
        const DELIMITERS: &[u8] = b"|:=,\0";
        if !is_first {
            self.text.push(b':');
        }
        self.lengths.push(b'n');
        self.part(name, DELIMITERS);
        if let [None] = values[..] {
            return;
        }
        values.sort_unstable();
        for (number, value) in values.iter().enumerate() {
            self.text.push(if number == 0 { b'=' } else { b',' });
            self.part(value.unwrap_or_default(), DELIMITERS);
            if value.is_none() {
                // Kong fails on an argument that occurs with and without a value.
                self.lengths.push(b'-');
                self.is_ambiguous = true;
            }
        }
    }

    fn part(&mut self, part: &[u8], delimiters: &[u8]) {
        self.text.extend_from_slice(part);
        self.is_ambiguous |= part.iter().any(|byte| delimiters.contains(byte));
        self.length(part.len());
    }

    fn length(&mut self, length: usize) {
        let mut digits = itoa::Buffer::new();
        self.lengths
            .extend_from_slice(digits.format(length).as_bytes());
        self.lengths.push(b',');
    }

    fn id(&mut self, id: Uuid) {
        let mut text = [0; 36];
        let text = id.hyphenated().encode_lower(&mut text);
        self.text.extend_from_slice(text.as_bytes());
    }

    pub(super) fn finish(self) -> CacheKey {
        if !self.is_ambiguous {
            return CacheKey::of(digest(&SHA256, &self.text).as_ref());
        }
        let mut hasher = Context::new(&SHA256);
        hasher.update(&self.text);
        // Texts without this end have no NUL.
        hasher.update(b"\0");
        hasher.update(&self.lengths);
        CacheKey::of(hasher.finish().as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plugin::args;

    const ROUTE: Uuid = Uuid::from_u128(7);

    fn owner() -> Owner {
        Owner {
            consumer: None,
            credential: None,
            route: Some(ROUTE),
        }
    }

    /// The key of a request with this query and these values of the configured headers.
    fn key(query: &str, headers: &[(&str, &str)]) -> CacheKey {
        let mut text = KeyText::new(owner(), "GET");
        text.request_line(&[b"GET ", b"/a"], false);
        text.all_arguments(args::parse_all(query.as_bytes()));
        text.nameless_arguments(query.as_bytes());
        text.end_arguments();
        let values = |name: &str| {
            let same = headers.iter().filter(|(other, _)| *other == name);
            same.map(|(_, value)| Some(value.as_bytes())).collect()
        };
        text.fields(["x", "y"].into_iter(), values);
        text.finish()
    }

    fn hash(text: &str) -> CacheKey {
        CacheKey::of(aws_lc_rs::digest::digest(&SHA256, text.as_bytes()).as_ref())
    }

    #[test]
    fn plain_keys_are_kongs() {
        let id = ROUTE.to_string();
        let expected = hash(&format!("{id}|GET|GET /a|a=1:b=2,3:c:d=|x=1,2:y=3"));
        let headers = [("y", "3"), ("x", "2"), ("x", "1")];
        assert_eq!(key("d=&b=3&c&a=1&b=2", &headers), expected);
        assert_eq!(key("", &[]), hash(&format!("{id}|GET|GET /a||")));
    }

    #[test]
    fn the_consumer_is_part_of_the_key() {
        let client = Uuid::from_u128(9);
        let finish = |owner| {
            let mut text = KeyText::new(owner, "HEAD");
            text.request_line(&[b"HEAD /a HTTP/1.1"], false);
            text.end_arguments();
            text.finish()
        };
        let consumer = Owner {
            consumer: Some(client),
            ..owner()
        };
        let expected = hash(&format!("{client}:{ROUTE}|HEAD|HEAD /a HTTP/1.1||"));
        assert_eq!(finish(consumer), expected);
        let credential = Owner {
            credential: Some(client),
            ..owner()
        };
        assert_ne!(finish(credential), finish(owner()));
    }

    #[test]
    fn the_request_line_ends_before_the_query() {
        let line = |line: &str, ignores_case| {
            let mut text = KeyText::new(owner(), "GET");
            text.request_line(&[line.as_bytes()], ignores_case);
            text.finish()
        };
        assert_eq!(
            line("GET /a?b HTTP/1.1", false),
            line("GET /a?c HTTP/1.1", false)
        );
        assert_ne!(
            line("GET /a HTTP/1.1", false),
            line("GET /a? HTTP/1.1", false)
        );
        assert_ne!(
            line("GET /A HTTP/1.1", false),
            line("GET /a HTTP/1.1", false)
        );
        assert_eq!(line("GET /A HTTP/1.1", true), line("GET /a HTTP/1.1", true));
    }

    #[test]
    fn configured_arguments_come_in_their_order_and_others_do_not_count() {
        let finish = |query: &str| {
            let mut text = KeyText::new(owner(), "GET");
            text.request_line(&[b"GET ", b"/a"], false);
            text.arguments(["y", "x"].into_iter(), args::parse(query.as_bytes()));
            text.end_arguments();
            text.finish()
        };
        assert_eq!(
            finish("x=1&y=2&z=3"),
            hash(&format!("{ROUTE}|GET|GET /a|y=2:x=1|"))
        );
        assert_eq!(finish("x=1&y=2&z=3"), finish("y=2&x=1"));
        assert_eq!(finish("z=3"), finish(""));
    }

    #[test]
    fn no_request_has_the_key_of_another_one() {
        let queries = [
            "a=1&b=2",
            "a=1%3Ab%3D2",
            "a=1:b=2",
            "a%3D1&b=2",
            "a=1%3Ab&b=2",
            "a=1,2",
            "a=1&a=2",
            "a=1%2C2",
            "a=2&a=1,",
            "a&b",
            "a%3Ab",
            "a&a",
            "a=",
            "a",
            "a=&a",
            "a&a=&a",
            "a=1%7C",
            "a=1|x=2",
            "%00",
            "a=%00",
            "=b",
            "=b&=c",
            "=b%26=c",
            "a=1&=b",
            "a=1&b=2&=b",
        ];
        let headers: [&[(&str, &str)]; 6] = [
            &[],
            &[("x", "2")],
            &[("x", "1:y=2")],
            &[("x", "1"), ("y", "2")],
            &[("x", "1,2")],
            &[("x", "1"), ("x", "2")],
        ];
        let mut seen = std::collections::HashMap::new();
        for query in queries {
            for headers in headers {
                let before = seen.insert(key(query, headers), (query, headers));
                let is_same = before.is_some_and(|(other, _)| {
                    // These two are the same arguments in another spelling.
                    [other, query] == ["a=1%3Ab%3D2", "a=1:b=2"]
                        || [other, query] == ["a=1,2", "a=1%2C2"]
                });
                assert!(
                    before.is_none() || is_same,
                    "{query} {headers:?} {before:?}"
                );
            }
        }
    }

    #[test]
    fn keys_are_shown_and_read_in_hexadecimal() {
        let key = key("", &[]);
        let text = key.to_string();
        assert_eq!(text.len(), 64);
        assert_eq!(CacheKey::parse(&text), Some(key));
        for wrong in [
            "",
            "123",
            &text[1..],
            &text.to_uppercase(),
            &format!("{text}00"),
            &"é".repeat(32),
        ] {
            assert_eq!(CacheKey::parse(wrong), None, "{wrong}");
        }
    }
}
