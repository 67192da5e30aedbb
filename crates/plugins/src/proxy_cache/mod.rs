//! proxy-cache: stores responses in memory and sends them again without asking the upstream. There are two sets of
//! rules: Kong's ([`kong`]), and those of RFC 9111 ([`rfc9111`]) for plugins that ask for them.

mod checks;
mod collect;
mod collector;
mod config;
mod control;
mod endpoints;
mod entry;
mod flights;
mod key;
mod kong;
mod order;
#[cfg(test)]
mod policies_tests;
mod rfc9111;
pub(crate) mod source;
mod storage;
#[cfg(test)]
mod storage_tests;
#[cfg(test)]
mod tests;
mod zones;

pub(crate) use endpoints::endpoints;

use compact_str::CompactString;
use config::{Config, ResponseHeaders};
use control::MediaType;
use entry::Entry;
use key::{CacheKey, Owner};
use kong::Pending;
use net::http1::{KnownHeader, RequestHead, list_contains};
use plugin::{
    BuildCx, BuildError, Chunk, Filtered, HeaderEdits, HeaderValue, Node, Phases, Plugin,
    PluginDef, PluginError, Request, RequestCx, RequestState, ResponseCx, Scopes, Shortcoming,
    Step,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use storage::Storage;
use tokio::time::Instant;

const NAME: &str = "proxy-cache";

/// Default of `cache_ttl`.
const CACHE_TTL: u64 = 300;

/// Default of `collapse_max_waiting`.
const MAX_WAITING: usize = 1000;

const AGE: &str = "Age";
const CACHE_STATUS: &str = "X-Cache-Status";
const CACHE_KEY: &str = "X-Cache-Key";

pub(crate) fn def() -> PluginDef {
    let phases = Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER);
    PluginDef::bundled::<ProxyCache>(NAME, 100, phases, Scopes::ALL).with_shortcoming(shortcoming)
}

/// Kong's cache sends what it has stored to clients that it was not meant for. Whoever sets `rfc9111`, also to false,
/// knows about it.
fn shortcoming(config: &model::Value) -> Option<Shortcoming> {
    let is_chosen = config
        .as_object()?
        .get("rfc9111")
        .and_then(model::Value::as_bool);
    is_chosen.is_none().then_some(Shortcoming {
        setting: "RFC 9111 unless `rfc9111` is set",
        instead: Some(
            "it ignores Vary, sends a stored response to clients with another Host, scheme or Authorization, and \
             replays Set-Cookie",
        ),
    })
}

struct ProxyCache {
    config: Config,
    /// The configured media types. Texts that are none match nothing, as in Kong.
    media_types: Vec<MediaType>,
    /// The names of `vary_headers` for `rfc9111`, in lower case.
    vary: Vec<Box<str>>,
    storage: OnceLock<Arc<Storage>>,
}

/// What the later phases do about a request.
#[derive(Default)]
enum Own {
    #[default]
    None,
    /// The response may be stored as Kong does it.
    Pending(Box<Pending>),
    /// The response may be stored or validated, with `rfc9111`.
    Fetch(Box<rfc9111::Fetch>),
    /// A HEAD request, with the stored response to GET, if there is one.
    Head(Option<Box<(CacheKey, Entry)>>),
    /// The method makes stored responses invalid.
    Unsafe,
}

/// The value of `X-Cache-Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Miss,
    Hit,
    /// The stored response was too old for this request.
    Refresh,
    /// The request or its response cannot be stored.
    Bypass,
    /// A stored response was sent although it is too old. Only with `rfc9111`.
    Stale,
    /// The upstream has confirmed the stored response. Only with `rfc9111`.
    Revalidated,
}

impl Plugin for ProxyCache {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let media_types = config.content_type.iter();
        let media_types = media_types.filter_map(|text| MediaType::parse(text));
        Ok(Self {
            media_types: media_types.collect(),
            vary: vary(config.vary_headers.as_deref().unwrap_or_default()),
            config,
            storage: OnceLock::new(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        self.storage(node);
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        if self.config.rfc9111 == Some(true) {
            return self.access_rfc9111(cx, own);
        }
        self.access_as_kong(cx, own)
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
    ) -> Result<Filtered, PluginError> {
        match std::mem::take(own) {
            Own::None => {}
            Own::Pending(pending) => *own = self.filter_pending(cx, pending),
            Own::Fetch(fetch) => {
                let (filtered, next) = self.filter_fetched(cx, fetch);
                *own = next;
                return Ok(filtered);
            }
            Own::Head(Some(stored)) => self.filter_head(cx, stored.0, &stored.1),
            Own::Head(None) => {}
            Own::Unsafe => self.filter_unsafe(cx),
        }
        Ok(Filtered::Continue)
    }

    fn body_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        *own = match std::mem::take(own) {
            Own::Pending(pending) => self.gather_pending(cx, pending, chunk),
            Own::Fetch(fetch) => self.gather(cx, fetch, chunk),
            _ => Own::None,
        };
        Ok(())
    }
}

impl ProxyCache {
    fn storage(&self, node: &Arc<Node>) -> &Arc<Storage> {
        let zone = &self.config.memory.dictionary_name;
        self.storage.get_or_init(|| zones::storage(node, zone))
    }

    /// Returns until when a request that arrives now waits for others.
    fn collapse_deadline(&self) -> Instant {
        let timeout = self.config.collapse_timeout.unwrap_or_default();
        Instant::now() + Duration::try_from_secs_f64(timeout).unwrap_or_default()
    }

    fn max_waiting(&self) -> usize {
        self.config.collapse_max_waiting.unwrap_or(MAX_WAITING)
    }

    fn cache_ttl(&self) -> u64 {
        self.config.cache_ttl.unwrap_or(CACHE_TTL)
    }

    /// Whether the settings allow to store a response with this status and media type.
    fn may_keep(&self, cx: &ResponseCx<'_, '_>) -> bool {
        // A part of a response, or the news that a client's own copy is still valid, is no response for other clients.
        // nginx closes the connection in place of sending a response of a plugin with one of the other statuses.
        let is_for_one_client = matches!(cx.answer.status, 206 | 304 | 408 | 444 | 499);
        if is_for_one_client || !self.config.response_code.contains(&cx.answer.status) {
            return false;
        }
        let content_type = cx.header("content-type").filter(|text| !text.is_empty());
        let Some(content_type) = content_type else {
            return false;
        };
        let content_type = std::str::from_utf8(content_type).ok();
        let media_type = content_type.and_then(MediaType::parse);
        let mut included = self.media_types.iter();
        included.any(|configured| configured.includes(media_type.as_ref()))
    }
}

/// Returns for whom a response is stored.
fn owner(request: &Request<'_>, state: &RequestState) -> Owner {
    Owner {
        consumer: state.consumer.as_ref().map(|consumer| consumer.id.0),
        credential: state.credential.as_ref().map(|credential| credential.id),
        route: request.route.map(|route| route.id),
    }
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Miss => "Miss",
            Self::Hit => "Hit",
            Self::Refresh => "Refresh",
            Self::Bypass => "Bypass",
            Self::Stale => "Stale",
            Self::Revalidated => "Revalidated",
        }
    }
}

/// The headers that the response to a request gets.
#[derive(Debug, Clone, Copy)]
struct Shown {
    age: bool,
    status: bool,
    key: bool,
}

impl Shown {
    fn new(config: &ResponseHeaders, request: &Request<'_>) -> Self {
        let all = request.head.header("kong-debug").is_some();
        Self {
            age: all || config.age.unwrap_or(false),
            status: all || config.cache_status.unwrap_or(false),
            key: all || config.cache_key.unwrap_or(false),
        }
    }

    fn age(self, headers: &mut HeaderEdits, seconds: u64) {
        if self.age {
            let mut digits = itoa::Buffer::new();
            headers.set(AGE, HeaderValue::Text(digits.format(seconds).into()));
        }
    }

    fn status(self, headers: &mut HeaderEdits, status: Status) {
        if self.status {
            headers.set(CACHE_STATUS, HeaderValue::from_static(status.name()));
        }
    }

    fn key(self, headers: &mut HeaderEdits, key: CacheKey) {
        if self.key {
            headers.set(CACHE_KEY, HeaderValue::Text(key.text()));
        }
    }
}

/// Returns the values of a header by a configured name. All lines count, however many the request has: the upstream sees
/// them, too.
fn header_values<'s>(request: &'s Request<'_>, name: &str) -> impl Iterator<Item = &'s [u8]> {
    let lines = request.header_pairs();
    lines.filter_map(move |(other, value)| has_name(other, name).then_some(value))
}

/// Returns the values of a header as the upstream gets them. A line that `Connection` names is not forwarded. If it were
/// a part of the key, a client could have the response without it stored for the clients that really send it.
/// `edits` are the changes that plugins have made, and `is_same` decides whether a header has the name.
fn forwarded_values<'s>(
    head: &'s RequestHead,
    edits: &'s HeaderEdits,
    name: &str,
    is_same: fn(&str, &str) -> bool,
) -> impl Iterator<Item = &'s [u8]> {
    let is_hop = |name: &str| {
        let mut lists = head.known(KnownHeader::Connection);
        lists.any(|list| list_contains(list, name.as_bytes()))
    };
    let received = head.headers();
    let received = received
        .filter(move |(other, _)| is_same(other, name) && !edits.drops(other) && !is_hop(other));
    let added = edits.added().filter(move |(other, _)| is_same(other, name));
    received.chain(added).map(|(_, value)| value)
}

/// Returns configured names in lower case. One with `_` also means the header with `-` in its place, as in Kong's header
/// tables; a name in the header `Vary` only means itself.
fn vary(names: &[CompactString]) -> Vec<Box<str>> {
    let names = names.iter().flat_map(|name| {
        let name = String::from(name.to_ascii_lowercase());
        let dashed = name.contains('_').then(|| name.replace('_', "-"));
        std::iter::once(name).chain(dashed)
    });
    names.map(String::into_boxed_str).collect()
}

/// Whether a configured name means this header. A `_` in it also matches `-`, as in Kong's header tables.
fn has_name(header: &str, configured: &str) -> bool {
    let same =
        |one: u8, other: u8| one.eq_ignore_ascii_case(&other) || (one == b'_' && other == b'-');
    let mut pairs = configured.bytes().zip(header.bytes());
    configured.len() == header.len() && pairs.all(|(one, other)| same(one, other))
}
