//! proxy-cache: stores responses in memory and sends them again without asking the upstream. Source of the behaviour:
//! kong/plugins/proxy-cache/handler.lua.

mod checks;
mod collect;
mod config;
mod control;
mod endpoints;
mod key;
pub(crate) mod source;
mod storage;
#[cfg(test)]
mod storage_tests;
#[cfg(test)]
mod tests;
mod zones;

pub(crate) use endpoints::endpoints;

use collect::Pending;
use config::{Config, ResponseHeaders};
use control::{Directives, MediaType};
use key::{CacheKey, KeyText, Owner};
use net::http1::{KnownHeader, list_contains};
use plugin::{
    BuildCx, BuildError, Chunk, Filtered, HeaderEdits, HeaderValue, Node, Phases, Plugin,
    PluginDef, PluginError, Request, RequestCx, Response, ResponseBody, ResponseCx, Scopes, Step,
    args,
};
use std::sync::{Arc, OnceLock};
use storage::{Entry, Storage};

const NAME: &str = "proxy-cache";

/// Default of `cache_ttl`.
const CACHE_TTL: u64 = 300;

const AGE: &str = "Age";
const CACHE_STATUS: &str = "X-Cache-Status";
const CACHE_KEY: &str = "X-Cache-Key";

pub(crate) fn def() -> PluginDef {
    let phases = Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER);
    PluginDef::bundled::<ProxyCache>(NAME, 100, phases, Scopes::ALL)
}

struct ProxyCache {
    config: Config,
    /// The configured media types. Texts that are none match nothing, as in Kong.
    media_types: Vec<MediaType>,
    storage: OnceLock<Arc<Storage>>,
}

/// A request whose response may be stored. `None` for all other requests.
#[derive(Default)]
struct Own(Option<Pending>);

/// The value of `X-Cache-Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Miss,
    Hit,
    /// The stored response was too old for this request.
    Refresh,
    /// The request or its response cannot be stored.
    Bypass,
}

impl Plugin for ProxyCache {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let media_types = config.content_type.iter();
        let media_types = media_types.filter_map(|text| MediaType::parse(text));
        Ok(Self {
            media_types: media_types.collect(),
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
        let shown = Shown::new(&self.config.response_headers, cx.request);
        let directives = self.directives(header_values(cx.request, "cache-control"));
        if !self.may_store(cx.request.method(), &directives) {
            shown.status(&mut cx.state.headers, Status::Bypass);
            return Ok(Step::Continue);
        }
        let key = self.key(&cx);
        shown.key(&mut cx.state.headers, key);
        let now = cx.node.clock.since_epoch().as_secs();
        let storage = self.storage(cx.node);
        let status = match storage.get(&key, now) {
            Some(entry) if self.is_fresh(&entry, &directives, now) => {
                return Ok(Step::Respond(hit(&entry, key, now, shown)));
            }
            Some(_) => Status::Refresh,
            None if directives.only_if_cached => {
                return Ok(Step::Respond(Response::server_error(504)));
            }
            None => Status::Miss,
        };
        shown.status(&mut cx.state.headers, status);
        own.0 = Some(Pending::new(key, shown, &cx.state.headers));
        Ok(Step::Continue)
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
    ) -> Result<Filtered, PluginError> {
        let Some(pending) = &mut own.0 else {
            return Ok(Filtered::Continue);
        };
        let now = cx.node.clock.since_epoch().as_secs();
        match self.lifetime(cx, now) {
            Some(ttl) => pending.begin(cx, ttl, self.storage(cx.node).collect()),
            None => {
                pending.shown.status(&mut cx.answer.headers, Status::Bypass);
                own.0 = None;
            }
        }
        Ok(Filtered::Continue)
    }

    fn body_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        let Some(pending) = &mut own.0 else {
            return Ok(());
        };
        if pending.add(&chunk.data).is_err() {
            own.0 = None;
            return Ok(());
        }
        if chunk.last
            && let Some(pending) = own.0.take()
        {
            let now = cx.node.clock.since_epoch().as_secs();
            let key = pending.key;
            if let Some(entry) = pending.finish(cx, self.config.storage_ttl, now) {
                self.storage(cx.node).put(key, entry, now);
            }
        }
        Ok(())
    }
}

impl ProxyCache {
    fn storage(&self, node: &Arc<Node>) -> &Arc<Storage> {
        let zone = &self.config.memory.dictionary_name;
        self.storage.get_or_init(|| zones::storage(node, zone))
    }

    /// Reads the directives of a message. Without `cache_control` they do not count.
    fn directives<'a>(&self, lines: impl Iterator<Item = &'a [u8]>) -> Directives {
        if self.config.cache_control {
            Directives::parse(lines)
        } else {
            Directives::default()
        }
    }

    /// Whether the response to a request with this method and these directives may be stored.
    fn may_store(&self, method: &str, directives: &Directives) -> bool {
        let mut methods = self.config.request_method.iter();
        methods.any(|other| other == method) && !directives.no_store && !directives.no_cache
    }

    fn key(&self, cx: &RequestCx<'_, '_>) -> CacheKey {
        let (config, request) = (&self.config, &*cx.request);
        let owner = Owner {
            consumer: cx.state.consumer.as_ref().map(|consumer| consumer.id.0),
            credential: cx.state.credential.as_ref().map(|credential| credential.id),
            route: request.route.map(|route| route.id),
        };
        let mut text = KeyText::new(owner, request.method());
        let ignores_case = config.ignore_uri_case.unwrap_or(false);
        text.request_line(&request_line(request), ignores_case);
        if let Some(path) = &request.upstream.path {
            text.upstream_path(path);
        }
        // All arguments, not the first hundred as in Kong: the upstream sees all of them.
        let args = args::parse_all(request.query());
        match config.vary_query_params.as_deref().unwrap_or_default() {
            [] => {
                text.all_arguments(args);
                text.nameless_arguments(request.query());
            }
            names => text.arguments(names.iter().map(|name| name.as_str()), args),
        }
        text.end_arguments();
        let names = config.vary_headers.as_deref().unwrap_or_default();
        text.fields(names.iter().map(|name| name.as_str()), |name| {
            forwarded_values(request, name).map(Some).collect()
        });
        text.finish()
    }

    /// Whether a stored response may be sent for this request.
    fn is_fresh(&self, entry: &Entry, directives: &Directives, now: u64) -> bool {
        let age = now.saturating_sub(entry.stored_at);
        if !self.config.cache_control {
            return age <= self.cache_ttl();
        }
        let is_too_old = directives.max_age.is_some_and(|max| age > max);
        let is_too_stale = directives
            .max_stale
            .is_some_and(|max| age.saturating_sub(entry.ttl) > max);
        let left = entry.ttl.saturating_sub(age);
        let ends_too_soon = directives.min_fresh.is_some_and(|min| left < min);
        !is_too_old && !is_too_stale && !ends_too_soon
    }

    fn cache_ttl(&self) -> u64 {
        self.config.cache_ttl.unwrap_or(CACHE_TTL)
    }

    /// Returns the seconds for which a response may be sent again. `None` if it must not be stored.
    fn lifetime(&self, cx: &ResponseCx<'_, '_>, now: u64) -> Option<u64> {
        // A part of a response, or the news that a client's own copy is still valid, is no response for other clients.
        let is_for_one_client = matches!(cx.answer.status, 206 | 304);
        if is_for_one_client || !self.config.response_code.contains(&cx.answer.status) {
            return None;
        }
        let content_type = cx.header("content-type").filter(|text| !text.is_empty())?;
        let content_type = std::str::from_utf8(content_type).ok();
        let media_type = content_type.and_then(MediaType::parse);
        let mut included = self.media_types.iter();
        if !included.any(|configured| configured.includes(media_type.as_ref())) {
            return None;
        }
        if !self.config.cache_control {
            return Some(self.cache_ttl());
        }
        let directives = Directives::parse(cx.header_lines("cache-control"));
        if directives.private || directives.no_store || directives.no_cache {
            return None;
        }
        let expires = cx.header_lines("expires").last();
        Some(directives.lifetime(expires, now)).filter(|ttl| *ttl > 0)
    }
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Miss => "Miss",
            Self::Hit => "Hit",
            Self::Refresh => "Refresh",
            Self::Bypass => "Bypass",
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
            headers.set(AGE, &*seconds.to_string());
        }
    }

    fn status(self, headers: &mut HeaderEdits, status: Status) {
        if self.status {
            headers.set(CACHE_STATUS, HeaderValue::from_static(status.name()));
        }
    }

    fn key(self, headers: &mut HeaderEdits, key: CacheKey) {
        if self.key {
            headers.set(CACHE_KEY, key.to_string());
        }
    }
}

/// Returns the request line that nginx shows under Kong. The query, which need not be UTF-8, is no part of the key.
fn request_line(request: &Request<'_>) -> String {
    let head = request.head;
    let version = match (request.http2, head.version()) {
        (true, _) => "HTTP/2.0",
        (false, net::http1::Version::Http10) => "HTTP/1.0",
        (false, net::http1::Version::Http11) => "HTTP/1.1",
    };
    let target = String::from_utf8_lossy(head.target_bytes());
    format!("{} {target} {version}", head.method())
}

/// Returns the values of a header by a configured name. All lines count, however many the request has: the upstream sees
/// them, too.
fn header_values<'s>(request: &'s Request<'_>, name: &str) -> impl Iterator<Item = &'s [u8]> {
    let lines = request.header_pairs();
    lines.filter_map(move |(other, value)| has_name(other, name).then_some(value))
}

/// Returns the values of a header as the upstream gets them. A line that `Connection` names is not forwarded. If it were
/// a part of the key, a client could have the response without it stored for the clients that really send it.
fn forwarded_values<'s>(request: &'s Request<'_>, name: &str) -> impl Iterator<Item = &'s [u8]> {
    let (head, edits) = (request.head, &request.upstream.headers);
    let is_hop = |name: &str| {
        let mut lists = head.known(KnownHeader::Connection);
        lists.any(|list| list_contains(list, name.as_bytes()))
    };
    let received = head.headers();
    let received = received
        .filter(move |(other, _)| has_name(other, name) && !edits.drops(other) && !is_hop(other));
    let added = edits
        .added()
        .filter(move |(other, _)| has_name(other, name));
    received.chain(added).map(|(_, value)| value)
}

/// Whether a configured name means this header. A `_` in it also matches `-`, as in Kong's header tables.
fn has_name(header: &str, configured: &str) -> bool {
    let same =
        |one: u8, other: u8| one.eq_ignore_ascii_case(&other) || (one == b'_' && other == b'-');
    let mut pairs = configured.bytes().zip(header.bytes());
    configured.len() == header.len() && pairs.all(|(one, other)| same(one, other))
}

/// Builds the response from a stored one. Its headers replace those that earlier plugins have set.
fn hit(entry: &Entry, key: CacheKey, now: u64, shown: Shown) -> Response {
    let mut headers = collect::replay(&entry.headers);
    shown.age(&mut headers, now.saturating_sub(entry.stored_at));
    shown.status(&mut headers, Status::Hit);
    shown.key(&mut headers, key);
    Response {
        status: entry.status,
        headers,
        body: ResponseBody::Pieces(entry.body.pieces.to_vec()),
        counts_as_proxied: true,
    }
}
