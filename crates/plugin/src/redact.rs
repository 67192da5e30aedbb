//! Hides credentials in logs (`log_redact`): values of query fields, cookies, and headers with keys.
//!
//! Some names are known, and plugins add those that their configuration says ([`learn`]). A name is compared without
//! case, and `_` is `-`: a header that clients send as `x-key` can be configured as `x_key`.

use arc_swap::ArcSwapOption;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// What a log shows in place of a credential.
pub const REDACTED: &[u8] = b"REDACTED";

/// Fields of a query whose values are credentials: those of OAuth 2.0 and of Kong's plugins, and those of presigned URLs.
const FIELDS: [&[u8]; 27] = [
    b"access-token",
    b"client-secret",
    b"code",
    b"refresh-token",
    b"jwt",
    b"apikey",
    b"api-key",
    b"id-token",
    b"assertion",
    b"client-assertion",
    b"password",
    b"code-verifier",
    b"provision-key",
    b"token",
    b"auth-token",
    b"private-token",
    b"session-token",
    b"secret",
    b"samlresponse",
    b"signature",
    b"sig",
    b"x-amz-signature",
    b"x-amz-credential",
    b"x-amz-security-token",
    b"x-goog-signature",
    b"x-goog-credential",
    b"x-oss-signature",
];

/// Headers whose values are credentials. Kong hides the first two in log records.
const HEADERS: [&[u8]; 15] = [
    b"authorization",
    b"proxy-authorization",
    b"cookie",
    b"set-cookie",
    b"apikey",
    b"api-key",
    b"x-api-key",
    b"x-auth-token",
    b"x-access-token",
    b"x-amz-security-token",
    b"x-vault-token",
    b"x-goog-api-key",
    b"private-token",
    b"x-forwarded-access-token",
    b"x-kong-request-debug-token",
];

/// Headers whose values are URLs, with codes and tokens of OAuth 2.0 in their queries and fragments.
const URL_HEADERS: [&[u8]; 4] = [b"referer", b"location", b"content-location", b"refresh"];

/// Number of names that stay hidden after the last plugin with them has gone, because clients may still send their keys. Up
/// to twice as many are kept, so that they are seldom removed.
const MAX_FORMER: usize = 1000;

/// The names that plugins have added. There is one list per process, since a name that is secret in one place must not be
/// shown by another.
static LEARNT: ArcSwapOption<Learnt> = ArcSwapOption::const_empty();
/// The names of [`LEARNT`] with their users.
static USERS: Mutex<Users> = Mutex::new(Users::new());

/// A name as it is compared: the bytes of [`letters`].
type Letters = Arc<[u8]>;

#[derive(Default)]
struct Learnt {
    /// The names in the order of their bytes.
    names: Vec<Letters>,
    /// A bit for each length of a name that occurs; the last one is for all longer names. Most names that are looked for
    /// have another length.
    lengths: u64,
}

struct Users {
    /// The number of plugins with each name.
    names: BTreeMap<Letters, usize>,
    /// Names without a plugin, the one that is without for the longest time first.
    former: VecDeque<Letters>,
}

/// Names that a plugin has added. They are hidden at least as long as this exists.
#[must_use]
pub struct Hidden(Vec<Letters>);

/// Hides the values of headers and of query fields with these names. Plugins call it when they start, with names from
/// their configuration, and keep the result.
pub fn learn<'n>(names: impl IntoIterator<Item = &'n str>) -> Hidden {
    let names = names.into_iter();
    let names: Vec<Letters> = names
        .map(|name| letters(name.as_bytes()).collect())
        .collect();
    let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_new = false;
    for name in &names {
        is_new |= users.add(name);
    }
    if is_new {
        users.publish();
    }
    Hidden(names)
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        for name in &self.0 {
            users.remove(name);
        }
        if users.former.len() > 2 * MAX_FORMER {
            users.forget();
            users.publish();
        }
    }
}

impl Users {
    const fn new() -> Self {
        Self {
            names: BTreeMap::new(),
            former: VecDeque::new(),
        }
    }

    /// Adds a user of a name. Returns whether the name was not hidden before.
    fn add(&mut self, name: &Letters) -> bool {
        let Some(users) = self.names.get_mut(name) else {
            self.names.insert(Arc::clone(name), 1);
            return true;
        };
        if *users == 0 {
            self.former.retain(|former| former != name);
        }
        *users += 1;
        false
    }

    fn remove(&mut self, name: &Letters) {
        let Some(users) = self.names.get_mut(name) else {
            return;
        };
        *users = users.saturating_sub(1);
        if *users == 0 {
            self.former.push_back(Arc::clone(name));
        }
    }

    /// Forgets the oldest names that no plugin has any more.
    fn forget(&mut self) {
        let excess = self.former.len().saturating_sub(MAX_FORMER);
        for name in self.former.drain(..excess) {
            self.names.remove(&name);
        }
    }

    fn publish(&self) {
        let names: Vec<Letters> = self.names.keys().cloned().collect();
        let lengths = names.iter().map(|name| length_bit(name.len()));
        let lengths = lengths.fold(0, |all, one| all | one);
        LEARNT.store(Some(Arc::new(Learnt { names, lengths })));
    }
}

impl Learnt {
    fn has(&self, name: &[u8]) -> bool {
        let find = |known: &Letters| known.iter().copied().cmp(letters(name));
        self.lengths & length_bit(name.len()) != 0 && self.names.binary_search_by(find).is_ok()
    }
}

const fn length_bit(length: usize) -> u64 {
    1 << if length < 63 { length } else { 63 }
}

/// The bits of the lengths of [`FIELDS`]. A client can send a thousand names in one query.
const FIELD_LENGTHS: u64 = length_bits(&FIELDS);
const HEADER_LENGTHS: u64 = length_bits(&HEADERS);
const URL_HEADER_LENGTHS: u64 = length_bits(&URL_HEADERS);

const fn length_bits(names: &[&[u8]]) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < names.len() {
        bits |= length_bit(names[at].len());
        at += 1;
    }
    bits
}

/// Returns the bytes of a name by which names are compared.
fn letters(name: &[u8]) -> impl Iterator<Item = u8> {
    name.iter().map(|byte| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    })
}

/// Whether a name is one of these, whose lengths have these bits.
fn is_one_of(names: &[&[u8]], lengths: u64, name: &[u8]) -> bool {
    let is_same = |known: &&[u8]| known.len() == name.len() && letters(known).eq(letters(name));
    lengths & length_bit(name.len()) != 0 && names.iter().any(is_same)
}

/// Whether a field of a query has a credential. The name may be percent-encoded, and that of an array or of a member, as
/// in `apikey[]` and `user[password]`.
pub fn is_secret_field(name: &[u8]) -> bool {
    let name: Cow<'_, [u8]> = match name.contains(&b'%') {
        true => percent_encoding::percent_decode(name).into(),
        false => name.into(),
    };
    let learnt = LEARNT.load();
    let is_secret = |name: &[u8]| {
        is_one_of(&FIELDS, FIELD_LENGTHS, name)
            || learnt.as_ref().is_some_and(|learnt| learnt.has(name))
    };
    is_secret(&name)
        || name.contains(&b'[') && name.split(|byte| b"[]".contains(byte)).any(is_secret)
}

/// Whether a header has a credential.
pub fn is_secret_header(name: &[u8]) -> bool {
    let is_learnt = || (LEARNT.load().as_ref()).is_some_and(|learnt| learnt.has(name));
    is_one_of(&HEADERS, HEADER_LENGTHS, name) || is_learnt()
}

/// Whether the value of a header is a URL, which [`url`] shows without credentials.
pub fn is_url_header(name: &[u8]) -> bool {
    is_one_of(&URL_HEADERS, URL_HEADER_LENGTHS, name)
}

/// Passes the pieces of a query to `out`, with values of secret fields hidden.
pub fn query(query: &[u8], mut out: impl FnMut(&[u8])) {
    for (at, pair) in query.split(|byte| *byte == b'&').enumerate() {
        if at > 0 {
            out(b"&");
        }
        match memchr::memchr(b'=', pair) {
            Some(equals) if is_secret_field(&pair[..equals]) => {
                out(&pair[..=equals]);
                out(REDACTED);
            }
            _ => out(pair),
        }
    }
}

/// Passes the pieces of a target to `out`, with its user information and values of secret fields of its query hidden.
pub fn target(target: &[u8], out: impl FnMut(&[u8])) {
    before_fragment(target, ends_scheme, out);
}

/// Passes the pieces of a URL to `out`. Like [`target`], with secret fields of the fragment hidden too. The URL may have
/// no scheme, and there may be text before it, as in `Refresh`.
pub fn url(url: &[u8], mut out: impl FnMut(&[u8])) {
    let Some(at) = memchr::memchr(b'#', url) else {
        return before_fragment(url, begins_authority, out);
    };
    let (before, fragment) = url.split_at(at + 1);
    before_fragment(&before[..at], begins_authority, &mut out);
    out(b"#");
    // A client application may have a query in the fragment.
    let fields = memchr::memchr(b'?', fragment).map_or(0, |at| at + 1);
    out(&fragment[..fields]);
    query(&fragment[fields..], out);
}

/// Passes a URL without its fragment to `out`. Two slashes begin an authority if `begins` is true of what comes before
/// them.
fn before_fragment(url: &[u8], begins: fn(Option<u8>) -> bool, mut out: impl FnMut(&[u8])) {
    let (place, fields) = match memchr::memchr(b'?', url) {
        Some(at) => url.split_at(at + 1),
        None => (url, &b""[..]),
    };
    without_user(place, begins, &mut out);
    if !fields.is_empty() {
        query(fields, out);
    }
}

/// Whether two slashes after this begin the authority of an absolute URL.
fn ends_scheme(before: Option<u8>) -> bool {
    before == Some(b':')
}

/// Whether two slashes after this begin the authority of a URL that may be relative to a scheme, as in
/// `//user:password@host/`, and may have text before it, as in `Refresh`. Slashes within a path, and in the target of a
/// request, are no beginning of an authority.
fn begins_authority(before: Option<u8>) -> bool {
    before.is_none_or(|before| b":= '\";,".contains(&before))
}

/// Passes a URL without its query to `out`. The user information in each authority is hidden: a URL may have another one
/// in its path.
fn without_user(place: &[u8], begins: fn(Option<u8>) -> bool, mut out: impl FnMut(&[u8])) {
    let mut shown = 0;
    for slashes in memchr::memmem::find_iter(place, b"//") {
        let start = slashes + 2;
        if start < shown || !begins(place[..slashes].last().copied()) {
            continue;
        }
        let rest = &place[start..];
        let authority = &rest[..memchr::memchr(b'/', rest).unwrap_or(rest.len())];
        if let Some(length) = memchr::memrchr(b'@', authority) {
            out(&place[shown..start]);
            out(REDACTED);
            shown = start + length;
        }
    }
    out(&place[shown..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut out = Vec::new();
        target(text.as_bytes(), |piece| out.extend_from_slice(piece));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_of_secret_fields_are_hidden_and_nothing_else_is_changed() {
        for (text, expected) in [
            ("/a", "/a"),
            ("/a?", "/a?"),
            ("/a?b=c&&d", "/a?b=c&&d"),
            ("/code=1?codex=2", "/code=1?codex=2"),
            ("/?apikey", "/?apikey"),
            ("/?apikey=", "/?apikey=REDACTED"),
            (
                "/?x=1&Access_Token=a=b&y=2",
                "/?x=1&Access_Token=REDACTED&y=2",
            ),
            ("/?%61pikey=k", "/?%61pikey=REDACTED"),
            (
                "/?apikey[]=a&apikey%5B0%5D=b&user[password]=c&a[b]=d&[]=e",
                "/?apikey[]=REDACTED&apikey%5B0%5D=REDACTED&user[password]=REDACTED&a[b]=d&[]=e",
            ),
            (
                "/o?X-Amz-Credential=a&X-Amz-Date=b&X-Amz-Signature=c&X-Amz-Security-Token=d",
                "/o?X-Amz-Credential=REDACTED&X-Amz-Date=b&X-Amz-Signature=REDACTED&X-Amz-Security-Token=REDACTED",
            ),
            (
                "/o?Expires=1&Signature=a&sig=b&X-Goog-Signature=c&sigma=d",
                "/o?Expires=1&Signature=REDACTED&sig=REDACTED&X-Goog-Signature=REDACTED&sigma=d",
            ),
            ("https://a/?jwt=a.b.c?d", "https://a/?jwt=REDACTED"),
            ("http://u:p@a/?b=c", "http://REDACTED@a/?b=c"),
            // The target of a request begins with its path.
            ("//u:p@a/", "//u:p@a/"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn user_information_and_fragments_of_urls_are_hidden() {
        let shown = |text: &str| {
            let mut out = Vec::new();
            url(text.as_bytes(), |piece| out.extend_from_slice(piece));
            String::from_utf8(out).unwrap()
        };
        for (text, expected) in [
            ("", ""),
            ("#", "#"),
            ("/a#b", "/a#b"),
            ("https://a/b@c?d=e", "https://a/b@c?d=e"),
            ("https://u:p@a", "https://REDACTED@a"),
            (
                "https://u:p@w@a/b?code=1#c",
                "https://REDACTED@a/b?code=REDACTED#c",
            ),
            (
                "/cb#access_token=a&state=b",
                "/cb#access_token=REDACTED&state=b",
            ),
            ("/#/cb?id_token=a", "/#/cb?id_token=REDACTED"),
            ("0; url=/x?code=1", "0; url=/x?code=REDACTED"),
            ("//u:p@a/b?c", "//REDACTED@a/b?c"),
            ("//a/b@c//d@e", "//a/b@c//d@e"),
            ("/a//b@c", "/a//b@c"),
            ("0;URL='//u:p@a'", "0;URL='//REDACTED@a'"),
            ("0; url=//u:p@a#b", "0; url=//REDACTED@a#b"),
            ("0; https://u:p@a", "0; https://REDACTED@a"),
            ("5;//u:p@a", "5;//REDACTED@a"),
            ("//a/https://u:p@b/", "//a/https://REDACTED@b/"),
            ("//xftp://u:p@//", "//xftp://REDACTED@//"),
            ("//u@a/https://v@b", "//REDACTED@a/https://REDACTED@b"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
        assert!(is_url_header(b"Location") && !is_url_header(b"host"));
    }

    #[test]
    fn names_are_compared_without_case() {
        assert!(is_secret_header(b"X-API-Key") && is_secret_header(b"Cookie"));
        assert!(!is_secret_header(b"x-api-key-id"));
        assert!(is_secret_field(b"CODE") && !is_secret_field(b"codes"));
        assert!(is_secret_field(b"api-key") && is_secret_field(b"client_secret"));
    }

    #[test]
    fn names_of_plugins_are_hidden_too() {
        assert!(!is_secret_field(b"learnt_b") && !is_secret_header(b"learnt-b"));
        let one = learn(["learnt_b", "Learnt_A", "learnt_c"]);
        let other = learn(["learnt_a", &"x".repeat(100)]);
        for name in ["LEARNT_A", "learnt_b", "learnt-c", "%6Cearnt_c[]"] {
            assert!(is_secret_field(name.as_bytes()), "{name}");
        }
        assert!(is_secret_header(b"learnt-b"));
        assert!(is_secret_header("X".repeat(100).as_bytes()));
        assert!(!is_secret_header("x".repeat(99).as_bytes()) && !is_secret_field(b"learnt_d"));
        let number = || LEARNT.load_full().unwrap().names.len();
        assert_eq!(number(), 4);
        // Names stay for a while after their plugin. However often the configuration changes, their number is bounded.
        drop(one);
        assert!(is_secret_field(b"learnt_b"));
        for round in 0..100 {
            let names: Vec<String> = (0..100).map(|n| format!("many-{round}-{n}")).collect();
            drop(learn(names.iter().map(String::as_str)));
            assert!(number() <= 2 + 2 * MAX_FORMER + 100);
        }
        assert!(is_secret_field(b"many-99-99") && !is_secret_field(b"many-0-0"));
        assert!(!is_secret_field(b"learnt_b"));
        assert!(is_secret_field(b"learnt_a"), "another plugin has it");
        // All names of the configuration are hidden.
        let names: Vec<String> = (0..20_000).map(|n| format!("all-{n}")).collect();
        let all = learn(names.iter().map(String::as_str));
        assert!(is_secret_field(b"all-0") && is_secret_field(b"all-19999"));
        drop((all, other));
        assert!(number() <= 2 * MAX_FORMER);
    }
}
