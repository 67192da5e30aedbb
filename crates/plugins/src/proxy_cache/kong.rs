//! What the plugin does without `rfc9111`: Kong's cache. Source: kong/plugins/proxy-cache/handler.lua.

use super::collect::{Gathering, Personal};
use super::control::Directives;
use super::entry::{Entry, Terms};
use super::flights::{Flight, Later, Place, Waiting};
use super::key::{CacheKey, KeyText};
use super::{Own, ProxyCache, Shown, Status, forwarded_values, has_name, header_values, owner};
use plugin::{
    Chunk, Flow, HeaderEdits, PluginError, Request, RequestCx, Response, ResponseBody, ResponseCx,
    Step, args,
};
use std::sync::Arc;

/// A request whose response is stored if it turns out to be storable.
pub(super) struct Pending {
    key: CacheKey,
    shown: Shown,
    personal: Personal,
    flight: Option<Flight>,
    /// The response, since its head is known, and the seconds for which it may be sent.
    begun: Option<(Gathering, u64)>,
}

impl Pending {
    /// Lets requests that wait for this one go to the upstream.
    fn set_unshared(&self, now: u64) {
        if let Some(flight) = &self.flight {
            flight.set_unshared(now);
        }
    }
}

/// What a request comes to.
enum Decision<'s> {
    Respond(Response),
    Forward,
    Wait(Later, Waiting<'s>),
}

impl ProxyCache {
    pub(super) fn access_as_kong<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        let shown = Shown::new(&self.config.response_headers, cx.request);
        let directives = self.directives(header_values(cx.request, "cache-control"));
        if !self.may_store(cx.request.method(), &directives) {
            shown.status(&mut cx.state.headers, Status::Bypass);
            return Ok(Step::Continue);
        }
        let key = self.key(&cx);
        match self.look_up(&mut cx, own, key, &directives, true) {
            Decision::Respond(response) => Ok(Step::Respond(response)),
            Decision::Forward => Ok(Step::Continue),
            Decision::Wait(later, waiting) => {
                let until = self.collapse_deadline();
                Ok(Step::wait_for_client(async move {
                    let (mut later, mut waiting) = (later, waiting);
                    loop {
                        let may_wait = later.wait(until).await;
                        drop(waiting);
                        match self.look_up(&mut cx, own, key, &directives, may_wait) {
                            Decision::Respond(response) => return Ok(Flow::Respond(response)),
                            Decision::Forward => return Ok(Flow::Continue),
                            Decision::Wait(next, counted) => (later, waiting) = (next, counted),
                        }
                    }
                }))
            }
        }
    }

    /// Decides about a request whose response may be stored. If it goes to the upstream, `own` has what is needed for
    /// the response.
    fn look_up<'s>(
        &'s self,
        cx: &mut RequestCx<'_, '_>,
        own: &mut Own,
        key: CacheKey,
        directives: &Directives,
        may_wait: bool,
    ) -> Decision<'s> {
        let now = cx.node.clock.since_epoch().as_secs();
        let shown = Shown::new(&self.config.response_headers, cx.request);
        let storage = self.storage(cx.node);
        let status = match storage.get(&key, now) {
            Some(entry) if self.is_fresh(&entry, directives, now) => {
                return Decision::Respond(hit(&entry, key, now, shown));
            }
            Some(_) => Status::Refresh,
            None if directives.only_if_cached => {
                shown.key(&mut cx.state.headers, key);
                return Decision::Respond(Response::server_error(504));
            }
            None => Status::Miss,
        };
        let mut flight = None;
        // The response to HEAD has no body, so that it is not stored.
        let may_collapse = self.config.collapse_timeout.is_some() && cx.request.method() != "HEAD";
        if may_collapse && !storage.flights.is_unshared(&key, now) {
            match storage.take_off(key) {
                Place::First(first) => flight = Some(first),
                Place::Later(later) if may_wait => {
                    if let Some(waiting) = storage.flights.wait(self.max_waiting()) {
                        return Decision::Wait(later, waiting);
                    }
                }
                Place::Later(_) => {}
            }
        }
        shown.key(&mut cx.state.headers, key);
        shown.status(&mut cx.state.headers, status);
        *own = Own::Pending(Box::new(Pending {
            key,
            shown,
            personal: Personal::new(&cx.state.headers),
            flight,
            begun: None,
        }));
        Decision::Forward
    }

    /// Looks at the head of a response that may be stored as Kong does it.
    pub(super) fn filter_pending(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        mut pending: Box<Pending>,
    ) -> Own {
        let now = cx.node.clock.since_epoch().as_secs();
        let storage = self.storage(cx.node);
        let Some(ttl) = self.lifetime(cx, now) else {
            pending.shown.status(&mut cx.answer.headers, Status::Bypass);
            pending.set_unshared(now);
            return Own::None;
        };
        let gathering = Gathering::begin(cx, &pending.personal, |_| false, storage.collect());
        // Without a body, no body filter runs that could store the response.
        if cx.answer.status == 204 || !gathering.may_fit() {
            pending.set_unshared(now);
            return Own::None;
        }
        pending.begun = Some((gathering, ttl));
        Own::Pending(pending)
    }

    /// Adds a piece of the body, and stores the response after the last one.
    pub(super) fn gather_pending(
        &self,
        cx: &ResponseCx<'_, '_>,
        mut pending: Box<Pending>,
        chunk: &Chunk,
    ) -> Own {
        let begun = pending.begun.as_mut();
        let added = begun.map(|(gathering, _)| gathering.add(&chunk.data));
        let now = cx.node.clock.since_epoch().as_secs();
        if added != Some(Ok(())) {
            pending.set_unshared(now);
            return Own::None;
        }
        if !chunk.last {
            return Own::Pending(pending);
        }
        if let Some(flight) = &pending.flight {
            flight.set_known(true);
        }
        let gathered = pending.begun.take();
        let gathered = gathered.and_then(|(gathering, ttl)| Some((gathering.finish(cx)?, ttl)));
        if let Some((gathered, ttl)) = gathered
            && let Some(seconds) = self.kept_for(ttl)
        {
            let entry = Entry {
                status: gathered.status,
                stored: Arc::new(gathered.stored),
                stored_at: now,
                ttl,
                expires_at: now.saturating_add(seconds),
                terms: Terms::default(),
            };
            self.storage(cx.node).put(pending.key, entry, now);
        }
        Own::None
    }

    /// Returns the seconds for which a response stays in the storage. `None` if it is not stored.
    fn kept_for(&self, ttl: u64) -> Option<u64> {
        match self.config.storage_ttl {
            None => Some(ttl),
            // In nginx's shared memory, zero means that an entry does not expire.
            Some(0) => Some(u64::MAX),
            Some(seconds) => u64::try_from(seconds).ok(),
        }
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
        let mut text = KeyText::new(owner(request, cx.state), request.method());
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
            forwarded_values(request.head, &request.upstream.headers, name, has_name)
                .map(Some)
                .collect()
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

    /// Returns the seconds for which a response may be sent again. `None` if it must not be stored.
    fn lifetime(&self, cx: &ResponseCx<'_, '_>, now: u64) -> Option<u64> {
        if !self.may_keep(cx) {
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

/// Returns the parts of the request line that nginx shows under Kong.
fn request_line<'r>(request: &'r Request<'_>) -> [&'r [u8]; 5] {
    let head = request.head;
    let version = match (request.http2, head.version()) {
        (true, _) => &b"HTTP/2.0"[..],
        (false, net::http1::Version::Http10) => b"HTTP/1.0",
        (false, net::http1::Version::Http11) => b"HTTP/1.1",
    };
    [
        head.method_bytes(),
        b" ",
        head.target_bytes(),
        b" ",
        version,
    ]
}

/// Builds the response from a stored one. Its headers replace those that earlier plugins have set.
fn hit(entry: &Entry, key: CacheKey, now: u64, shown: Shown) -> Response {
    let mut headers = HeaderEdits::new();
    shown.age(&mut headers, now.saturating_sub(entry.stored_at));
    shown.status(&mut headers, Status::Hit);
    shown.key(&mut headers, key);
    Response {
        status: entry.status,
        headers,
        body: ResponseBody::Stored(Arc::clone(&entry.stored)),
        counts_as_proxied: true,
    }
}
