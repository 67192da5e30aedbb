//! The key of a stored response: Kong's text about the request, hashed with SHA-256. Source:
//! kong/plugins/proxy-cache/cache_key.lua.
//!
//! The text is `prefix|method|request line|arguments|headers`. Kong joins decoded values with `:`, `=` and `,`, so that
//! a client can write the text of another request: `?a=1%3Ab%3D2` has that of `?a=1&b=2`. Whoever does that could
//! have a response stored for others. For this reason the text ends with the lengths of its parts if a part has one of
//! these characters. For the same reason, arguments that Kong does not look at are a part of the key: those without a
//! name, and those after the first hundred. All other keys are Kong's.

use aws_lc_rs::digest::{Context, SHA256};
use plugin::args::Arg;
use std::borrow::Cow;
use std::fmt;
use uuid::Uuid;

/// The parts of a request that distinguish its response from others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) consumer: Option<Uuid>,
    /// The credential of a client that has no consumer, such as a user of a directory. Kong leaves it out.
    pub(super) credential: Option<Uuid>,
    pub(super) route: Option<Uuid>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CacheKey([u8; 32]);

impl CacheKey {
    fn of(hash: &[u8]) -> Self {
        let mut key = [0; 32];
        key.copy_from_slice(hash);
        Self(key)
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

/// Hashes the parts of a key with their lengths, so that no two lists of parts have the same hash. Used where the text
/// need not be Kong's.
pub(super) struct KeyParts(Context);

impl KeyParts {
    pub(super) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(super) fn part(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    /// Adds a part that may be absent.
    pub(super) fn optional(&mut self, part: Option<&[u8]>) {
        match part {
            Some(part) => self.part(part),
            // No part has this length.
            None => self.0.update(&u64::MAX.to_le_bytes()),
        }
    }

    pub(super) fn key(&mut self, key: &CacheKey) {
        self.0.update(&key.0);
    }

    pub(super) fn finish(self) -> CacheKey {
        CacheKey::of(self.0.finish().as_ref())
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 64];
        data_encoding::HEXLOWER.encode_mut(&self.0, &mut text);
        formatter.write_str(&String::from_utf8_lossy(&text))
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
    lengths: String,
    /// Whether the text alone does not tell where its parts end.
    is_ambiguous: bool,
}

impl KeyText {
    /// Begins with the owner of the response and the method.
    pub(super) fn new(owner: Owner, method: &str) -> Self {
        let mut key = Self {
            text: Vec::with_capacity(256),
            lengths: String::new(),
            is_ambiguous: false,
        };
        match (owner.consumer.or(owner.credential), owner.route) {
            (Some(client), Some(route)) => key.write(format_args!("{client}:{route}")),
            (None, Some(route)) => key.write(format_args!("{route}")),
            // Kong uses this prefix for all clients. Every request that is cached has a route.
            (Some(client), None) => key.write(format_args!("{client}:default")),
            (None, None) => key.write(format_args!("default")),
        }
        key.write(format_args!("|{method}|"));
        key
    }

    /// Adds the request line as the client sent it, up to the query. Kong removes everything from the query on, the
    /// protocol too.
    pub(super) fn request_line(&mut self, line: &str, ignores_case: bool) {
        let line = line.split_once('?').map_or(line, |(before, _)| before);
        let line = if ignores_case {
            Cow::Owned(line.to_ascii_lowercase())
        } else {
            Cow::Borrowed(line)
        };
        self.part(line.as_bytes(), b"|\0");
        self.text.push(b'|');
    }

    /// Adds the path for the upstream that an earlier plugin has set, which may depend on headers. Kong leaves it out.
    pub(super) fn upstream_path(&mut self, path: &str) {
        use std::fmt::Write as _;
        self.is_ambiguous = true;
        // Writing to a string cannot fail.
        let _ = write!(self.lengths, "p{},{path}", path.len());
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
        use std::fmt::Write as _;
        for piece in query.split(|&byte| byte == b'&') {
            if !piece.starts_with(b"=") {
                continue;
            }
            self.is_ambiguous = true;
            // Writing to a string cannot fail.
            let _ = write!(self.lengths, "q{},{}", piece.len(), piece.escape_ascii());
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
        self.lengths.push('|');
    }

    /// Adds `name=value,value`, or `name` for an argument without a value.
    fn field(&mut self, is_first: bool, name: &[u8], mut values: Vec<Option<&[u8]>>) {
        const DELIMITERS: &[u8] = b"|:=,\0";
        if !is_first {
            self.text.push(b':');
        }
        self.lengths.push('n');
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
                self.lengths.push('-');
                self.is_ambiguous = true;
            }
        }
    }

    fn part(&mut self, part: &[u8], delimiters: &[u8]) {
        use std::fmt::Write as _;
        self.text.extend_from_slice(part);
        self.is_ambiguous |= part.iter().any(|byte| delimiters.contains(byte));
        // Writing to a string cannot fail.
        let _ = write!(self.lengths, "{},", part.len());
    }

    fn write(&mut self, text: fmt::Arguments<'_>) {
        use std::io::Write as _;
        // Writing to a vector cannot fail.
        let _ = self.text.write_fmt(text);
    }

    pub(super) fn finish(self) -> CacheKey {
        let mut hasher = Context::new(&SHA256);
        hasher.update(&self.text);
        if self.is_ambiguous {
            // Texts without this end have no NUL.
            hasher.update(b"\0");
            hasher.update(self.lengths.as_bytes());
        }
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
        text.request_line("GET /a", false);
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
            text.request_line("HEAD /a HTTP/1.1", false);
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
        let line = |line, ignores_case| {
            let mut text = KeyText::new(owner(), "GET");
            text.request_line(line, ignores_case);
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
            text.request_line("GET /a", false);
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
