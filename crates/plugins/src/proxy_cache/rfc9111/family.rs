//! Finds the stored response for a request under RFC 9111.
//!
//! The key of a URI (scheme, host, path, query) leads to its [`Family`]. The number of the family, the client, the route
//! and the values of the headers in `Vary` lead to the response. So one removal, that of the family, makes all responses
//! of a URI invalid, for all clients and all variants.

use crate::proxy_cache::config::Config;
use crate::proxy_cache::entry::{Entry, Family};
use crate::proxy_cache::forwarded_values;
use crate::proxy_cache::key::{CacheKey, KeyParts, Owner};
use crate::proxy_cache::storage::{Item, Storage};
use net::http1::RequestHead;
use plugin::{HeaderEdits, Request, args};
use std::sync::Arc;

/// Maximum number of different values of the headers in `Vary` for a URI. A further one replaces the oldest, so that a
/// client cannot fill the storage with variants of one URI.
const MAX_VARIANTS: usize = 64;

/// Maximum number of names in the `Vary` headers of all responses of a URI.
const MAX_NAMES: usize = 32;

/// Where the responses to a request are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) uri: CacheKey,
    /// A digest of what else distinguishes responses for the gateway: the client, the route, and what plugins have
    /// changed in the request for the upstream.
    owner: CacheKey,
}

/// A request as it was when its response was looked up, and as it was sent.
pub(super) struct Seen<'s> {
    pub(super) head: &'s RequestHead,
    /// The changes of plugins to its headers before the look-up.
    pub(super) before: &'s HeaderEdits,
    /// All changes of plugins to its headers.
    pub(super) sent: &'s HeaderEdits,
    /// Invalidations of the URI before it was sent.
    pub(super) stamp: u32,
}

impl Seen<'_> {
    /// Whether a plugin that runs after the look-up has changed a header.
    fn was_changed_later(&self, name: &str) -> bool {
        let values = |edits: &HeaderEdits| -> Vec<Vec<u8>> {
            let added = edits.added().filter(|(other, _)| is_same(other, name));
            added.map(|(_, value)| value.to_vec()).collect()
        };
        let drops = |edits: &HeaderEdits| {
            let mut received = self.head.headers();
            received.any(|(other, _)| is_same(other, name) && edits.drops(other))
        };
        values(self.before) != values(self.sent) || drops(self.before) != drops(self.sent)
    }
}

/// What was found for a request.
pub(super) struct Found {
    pub(super) key: CacheKey,
    pub(super) entry: Option<Entry>,
}

/// The parts of a URI that count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Uri<'u> {
    pub(super) scheme: &'u str,
    pub(super) host: &'u [u8],
    pub(super) path: &'u [u8],
    pub(super) query: &'u [u8],
}

impl<'u> Uri<'u> {
    /// The URI as the client sent it.
    pub(super) fn of(request: &'u Request<'_>) -> Self {
        let head = request.head;
        Self {
            scheme: request.scheme.name(),
            host: head.host_bytes().unwrap_or_default(),
            path: head.path_bytes(),
            query: head.query_bytes().unwrap_or_default(),
        }
    }

    pub(super) fn key(&self, config: &Config) -> CacheKey {
        let mut key = KeyParts::new();
        key.part(self.scheme.as_bytes());
        key.part(&self.host.to_ascii_lowercase());
        match config.ignore_uri_case {
            Some(true) => key.part(&self.path.to_ascii_lowercase()),
            _ => key.part(self.path),
        }
        match config.vary_query_params.as_deref().unwrap_or_default() {
            [] => key.part(self.query),
            names => {
                let args: Vec<_> = args::parse_all(self.query).collect();
                for name in names {
                    let same = args.iter().filter(|arg| *arg.name == *name.as_bytes());
                    for arg in same {
                        key.part(name.as_bytes());
                        key.optional(arg.value.as_deref());
                    }
                }
            }
        }
        key.finish()
    }

    /// Resolves the reference in `Location` or `Content-Location`. `None` if it leads to another host: a response must
    /// not invalidate those of others (RFC 9111, section 4.4).
    pub(super) fn resolve(&self, reference: &'u [u8], joined: &'u mut Vec<u8>) -> Option<Uri<'u>> {
        let end = memchr::memchr(b'#', reference).unwrap_or(reference.len());
        let mut rest = &reference[..end];
        let scheme = [self.scheme.as_bytes(), b":"].concat();
        if let Some((before, after)) = rest.split_at_checked(scheme.len())
            && before.eq_ignore_ascii_case(&scheme)
        {
            rest = after;
        } else if let Some(at) = rest.iter().position(|byte| b":/?".contains(byte))
            && rest[at] == b':'
        {
            return None;
        }
        if let Some(after) = rest.strip_prefix(b"//") {
            let end = after.iter().position(|byte| b"/?".contains(byte));
            let (host, path) = after.split_at(end.unwrap_or(after.len()));
            if !host.eq_ignore_ascii_case(self.host) {
                return None;
            }
            rest = path;
        }
        if !rest.starts_with(b"/") {
            let folder = memchr::memrchr(b'/', self.path).map_or(0, |at| at + 1);
            joined.extend_from_slice(match rest.first() {
                Some(b'?') => self.path,
                _ => &self.path[..folder],
            });
        }
        joined.extend_from_slice(rest);
        let joined: &'u [u8] = joined;
        let query = memchr::memchr(b'?', joined);
        Some(Uri {
            path: &joined[..query.unwrap_or(joined.len())],
            query: query.map_or(&[], |at| &joined[at + 1..]),
            ..*self
        })
    }
}

impl Place {
    pub(super) fn of(request: &Request<'_>, owner: &Owner, config: &Config) -> Self {
        let target = request.upstream.target.as_deref();
        let mut key = KeyParts::new();
        for id in [owner.consumer, owner.credential, owner.route] {
            key.optional(id.as_ref().map(|id| id.as_bytes().as_slice()));
        }
        key.optional(request.upstream.path.as_deref().map(str::as_bytes));
        key.optional(request.upstream.query.as_deref());
        let host = target.and_then(|target| target.address.as_ref());
        key.optional(host.map(|(host, _)| host.as_bytes()));
        let port = host.map(|(_, port)| port.to_le_bytes());
        key.optional(port.as_ref().map(|port| port.as_slice()));
        let upstream = target.and_then(|target| target.upstream.as_deref());
        key.optional(upstream.map(str::as_bytes));
        // What earlier plugins have put in place of the client's. They choose the site and the user at the upstream, and
        // the upstream does not list them in `Vary`.
        for name in ["host", "authorization"] {
            let set = request.upstream.headers.values(name.as_bytes());
            set.for_each(|value| key.part(value));
            key.optional(None);
        }
        Self {
            uri: Uri::of(request).key(config),
            owner: key.finish(),
        }
    }

    /// Returns the stored response that fits to the request.
    ///
    /// Responses that were stored before the configuration named all headers of `vary` do not count.
    pub(super) fn find(
        &self,
        storage: &Storage,
        request: &Request<'_>,
        vary: &[Box<str>],
        now: u64,
    ) -> Found {
        let family = storage.family(&self.uri, now);
        let family = family.filter(|family| vary.iter().all(|name| family.vary.contains(name)));
        let Some(family) = family else {
            let key = self.key(0, None);
            return Found { key, entry: None };
        };
        let variant = variant(request.head, &request.upstream.headers, &family.vary);
        let key = self.key(family.number, variant.as_ref());
        let is_known = variant.is_none_or(|variant| {
            let digest = variant.fingerprint();
            family.variants.contains(&digest)
        });
        let entry = is_known.then(|| storage.get(&key, now)).flatten();
        Found { key, entry }
    }

    fn key(&self, family: u64, variant: Option<&CacheKey>) -> CacheKey {
        let mut key = KeyParts::new();
        key.key(&self.uri);
        key.key(&self.owner);
        key.part(&family.to_le_bytes());
        if let Some(variant) = variant {
            key.key(variant);
        }
        key.finish()
    }

    /// Stores a response, which depends on the headers in `vary`.
    pub(super) fn store(
        &self,
        storage: &Storage,
        asked: &Seen<'_>,
        vary: Vec<Box<str>>,
        entry: Entry,
        now: u64,
    ) {
        if storage.stamp(&self.uri) != asked.stamp {
            return;
        }
        let known = storage.family(&self.uri, now);
        let mut names = known
            .as_ref()
            .map_or_else(Vec::new, |known| known.vary.to_vec());
        names.extend(vary);
        names.sort_unstable();
        names.dedup();
        if names.len() > MAX_NAMES {
            return;
        }
        let variant = variant(asked.head, asked.before, &names);
        if names.iter().any(|name| asked.was_changed_later(name)) {
            // Other requests are looked up before the plugin runs that has changed the header, so that nothing
            // distinguishes them.
            return;
        }
        let same = known.as_ref().filter(|known| *known.vary == *names);
        // Other names lead to other keys. The responses that were stored before are not found any more.
        let number = same.map_or_else(|| storage.next_family(), |known| known.number);
        let key = self.key(number, variant.as_ref());
        let mut variants = same.map_or_else(Vec::new, |known| known.variants.to_vec());
        if let Some(digest) = variant.map(|variant| variant.fingerprint())
            && !variants.contains(&digest)
        {
            if variants.len() == MAX_VARIANTS {
                variants.remove(0);
            }
            variants.push(digest);
        }
        let family = Family {
            number,
            vary: names.into_boxed_slice(),
            variants: variants.into_boxed_slice(),
            latest: key,
        };
        if !storage.put(key, entry, now) {
            return;
        }
        if known.is_none_or(|known| *known != family) {
            storage.put_item(self.uri, Item::Family(Arc::new(family)), now);
        }
        if storage.stamp(&self.uri) != asked.stamp {
            // It was invalidated in between, perhaps before the family was stored.
            storage.purge(&self.uri, now);
        }
    }
}

fn is_same(header: &str, name: &str) -> bool {
    header.eq_ignore_ascii_case(name)
}

/// Returns a digest of the values of some headers, as the upstream gets them. `None` if there are no names. Blanks and
/// the number of lines do not count (RFC 9111, section 4.1).
fn variant(head: &RequestHead, edits: &HeaderEdits, names: &[Box<str>]) -> Option<CacheKey> {
    if names.is_empty() {
        return None;
    }
    let mut key = KeyParts::new();
    for name in names {
        let mut value: Option<Vec<u8>> = None;
        for line in forwarded_values(head, edits, name, is_same) {
            let value = value.get_or_insert_default();
            for member in line.split(|&byte| byte == b',') {
                value.extend_from_slice(member.trim_ascii());
                value.push(b',');
            }
        }
        key.optional(value.as_deref());
    }
    Some(key.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_on_the_same_host_only() {
        let base = Uri {
            scheme: "http",
            host: b"a.test",
            path: b"/x/y",
            query: b"q",
        };
        for (reference, wanted) in [
            ("z", Some("/x/z ")),
            ("/z?a#b", Some("/z a")),
            ("?a", Some("/x/y a")),
            ("//A.test/z", Some("/z ")),
            ("HTTP://a.test/z?a", Some("/z a")),
            ("http://b.test/z", None),
            ("//b.test", None),
            ("https://a.test/z", None),
        ] {
            let mut joined = Vec::new();
            let found = base.resolve(reference.as_bytes(), &mut joined);
            let found = found.map(|uri| [uri.path, b" ", uri.query].concat());
            assert_eq!(found.as_deref(), wanted.map(str::as_bytes), "{reference}");
        }
    }
}
