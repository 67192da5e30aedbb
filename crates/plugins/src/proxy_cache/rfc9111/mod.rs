//! What the plugin does with `rfc9111`: a shared cache after RFC 9111, with `stale-while-revalidate` and
//! `stale-if-error` (RFC 5861). Kong's settings about statuses, media types and methods still limit what is stored.
//!
//! A request with a range or with a condition about the state of the origin goes to the upstream, and its response is
//! not stored. Only responses to GET are stored; they also answer HEAD.

mod answers;
mod conditions;
mod directives;
mod effects;
mod family;
mod freshness;
#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
mod wishes;

use super::collect::{Gathering, Personal, storable_lines};
use super::entry::Entry;
use super::flights::{Flight, Later, Place as Turn, Waiting};
use super::key::CacheKey;
use super::storage::Storage;
use super::{AGE, Own, ProxyCache, Shown, Status, owner};
use answers::{replacing, stored};
use compact_str::CompactString;
use conditions::Conditions;
use family::{Found, Place, Seen};
use freshness::{Asked, Fields, Use, Verdict};
use net::http1::{Framing, KnownHeader};
use plugin::{
    Chunk, Filtered, Flow, HeaderEdits, Origin, PluginError, Request, RequestCx, Response,
    ResponseCx, Step, Stored,
};
use std::sync::Arc;
use wishes::Wishes;

/// Statuses that count as errors of the upstream (RFC 5861, section 4).
const ERRORS: [u16; 4] = [500, 502, 503, 504];

/// A request that a stored response could answer.
struct Ask {
    place: Place,
    asked: Asked,
    conditions: Conditions,
    shown: Shown,
}

/// A GET request on its way to the upstream.
pub(super) struct Fetch {
    ask: Ask,
    /// The stored response that fits to the request but must not be sent as it is.
    entry: Option<Entry>,
    key: CacheKey,
    /// Whether the request to the upstream validates `entry`.
    validates: bool,
    /// Invalidations of the URI before the request was sent.
    stamp: u32,
    personal: Personal,
    /// The changes of earlier plugins to the headers of the request.
    edits: HeaderEdits,
    flight: Option<Flight>,
    storing: Option<Storing>,
}

/// A response that is being stored.
struct Storing {
    gathering: Gathering,
    verdict: Verdict,
    vary: Vec<Box<str>>,
}

impl Fetch {
    /// Lets requests that wait for this one go to the upstream.
    fn set_unshared(&self, now: u64) {
        if let Some(flight) = &self.flight {
            flight.set_unshared(now);
        }
    }

    /// Sets whether requests that wait for this one learn nothing more by waiting for the next one.
    fn set_known(&self, is_known: bool) {
        if let Some(flight) = &self.flight {
            flight.set_known(is_known);
        }
    }
}

/// What a request comes to.
enum Decision<'s> {
    Respond(Response),
    Forward,
    /// It waits for another request. The question is to be asked again afterwards.
    Wait(Box<Ask>, Later, Waiting<'s>),
}

impl ProxyCache {
    pub(super) fn access_rfc9111<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        let request = &*cx.request;
        let shown = Shown::new(&self.config.response_headers, request);
        let is_safe = matches!(request.method(), "GET" | "HEAD" | "OPTIONS" | "TRACE");
        if !is_safe {
            *own = Own::Unsafe;
        }
        let wishes = self.may_be_answered(request).then(|| Wishes::read(request));
        let Some(wishes) = wishes.filter(|wishes| !wishes.needs_origin) else {
            shown.status(&mut cx.state.headers, Status::Bypass);
            return Ok(Step::Continue);
        };
        let ask = self.ask(&cx, wishes, shown);
        match self.decide(&mut cx, own, ask, true) {
            Decision::Respond(response) => Ok(Step::Respond(response)),
            Decision::Forward => Ok(Step::Continue),
            Decision::Wait(ask, later, waiting) => {
                let until = self.collapse_deadline();
                Ok(Step::wait_for_client(async move {
                    let (mut ask, mut later, mut waiting) = (ask, later, waiting);
                    loop {
                        let may_wait = later.wait(until).await;
                        drop(waiting);
                        match self.decide(&mut cx, own, *ask, may_wait) {
                            Decision::Respond(response) => return Ok(Flow::Respond(response)),
                            Decision::Forward => return Ok(Flow::Continue),
                            Decision::Wait(same, next, counted) => {
                                (ask, later, waiting) = (same, next, counted);
                            }
                        }
                    }
                }))
            }
        }
    }

    /// Whether a stored response can answer a request like this one.
    fn may_be_answered(&self, request: &Request<'_>) -> bool {
        let method = request.method();
        let mut methods = self.config.request_method.iter();
        matches!(method, "GET" | "HEAD")
            && method == request.head.method()
            && methods.any(|other| other == method)
            && request.head.framing() == Framing::None
            && request.upstream.body.is_none()
            && request.head.upgrade().is_none()
    }

    fn ask(&self, cx: &RequestCx<'_, '_>, wishes: Wishes, shown: Shown) -> Ask {
        let request = &*cx.request;
        let mut authorization = request.head.known(KnownHeader::Authorization);
        Ask {
            place: Place::of(request, &owner(request, cx.state), &self.config),
            asked: Asked {
                directives: wishes.directives,
                is_authorized: authorization.next().is_some(),
                at: now(cx),
            },
            conditions: wishes.conditions,
            shown,
        }
    }

    /// Decides about a request. If it goes to the upstream, `own` has what is needed for its response.
    fn decide<'s>(
        &'s self,
        cx: &mut RequestCx<'_, '_>,
        own: &mut Own,
        ask: Ask,
        may_wait: bool,
    ) -> Decision<'s> {
        let now = now(cx);
        let storage = self.storage(cx.node);
        let Found { key, entry } = ask.place.find(storage, cx.request, &self.vary, now);
        let usable = entry
            .as_ref()
            .map(|entry| freshness::usable(entry, &ask.asked, now));
        let send = |entry: &Entry, status| {
            let response = stored(entry, &ask, status, now);
            Decision::Respond(response)
        };
        let mut flight = None;
        match (&entry, usable) {
            (Some(entry), Some(Use::Fresh)) => return send(entry, Status::Hit),
            (Some(entry), Some(Use::Stale)) => return send(entry, Status::Stale),
            _ if ask.asked.directives.only_if_cached => {
                ask.shown.key(&mut cx.state.headers, ask.place.uri);
                return Decision::Respond(Response::server_error(504));
            }
            (Some(stale), Some(Use::WhileRevalidating)) => {
                let decision = send(stale, Status::Stale);
                // One request validates it after its client has got the stale response. A HEAD request cannot, and neither
                // can one whose response must not be stored: its client would keep the others from doing so.
                if cx.request.method() == "GET"
                    && !ask.asked.directives.no_store
                    && let Some(flight) = storage.take_off_in_background(key)
                {
                    cx.state.goes_on = true;
                    *own = self.fetch(cx, ask, entry, key, Some(flight));
                }
                return decision;
            }
            _ => {}
        }
        ask.shown.key(&mut cx.state.headers, ask.place.uri);
        let entry = entry.filter(|_| usable != Some(Use::Never));
        if cx.request.method() == "HEAD" {
            ask.shown.status(&mut cx.state.headers, Status::Miss);
            *own = Own::Head(entry.map(|entry| Box::new((key, entry))));
            return Decision::Forward;
        }
        if flight.is_none() && self.may_collapse(storage, &ask.asked, &key, now) {
            match storage.take_off(key) {
                Turn::First(first) => flight = Some(first),
                Turn::Later(later) if may_wait => {
                    if let Some(waiting) = storage.flights.wait(self.max_waiting()) {
                        return Decision::Wait(Box::new(ask), later, waiting);
                    }
                }
                Turn::Later(_) => {}
            }
        }
        let status = match entry {
            Some(_) => Status::Refresh,
            None => Status::Miss,
        };
        ask.shown.status(&mut cx.state.headers, status);
        *own = self.fetch(cx, ask, entry, key, flight);
        Decision::Forward
    }

    /// Prepares a request for the upstream. If there is a stored response, it is validated.
    fn fetch(
        &self,
        cx: &mut RequestCx<'_, '_>,
        ask: Ask,
        entry: Option<Entry>,
        key: CacheKey,
        flight: Option<Flight>,
    ) -> Own {
        let stamp = self.storage(cx.node).stamp(&ask.place.uri);
        let edits = cx.request.upstream.headers.clone();
        let validates = entry
            .as_ref()
            .is_some_and(|entry| conditions::validate(cx.request, entry));
        Own::Fetch(Box::new(Fetch {
            personal: Personal::new(&cx.state.headers),
            edits,
            ask,
            entry,
            key,
            validates,
            stamp,
            flight,
            storing: None,
        }))
    }

    /// Whether a request may wait for another one, and others for it. What only its own client may get would make others
    /// wait for nothing.
    fn may_collapse(&self, storage: &Storage, asked: &Asked, key: &CacheKey, now: u64) -> bool {
        self.config.collapse_timeout.is_some()
            && asked.is_for_all()
            && !storage.flights.is_unshared(key, now)
    }

    /// Looks at the head of a response to a GET request.
    pub(super) fn filter_fetched(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        mut fetch: Box<Fetch>,
    ) -> (Filtered, Own) {
        let now = cx.node.clock.since_epoch().as_secs();
        let (status, shown) = (cx.answer.status, fetch.ask.shown);
        fetch.set_known(true);
        let is_own_error = cx.answer.origin == Origin::Gateway;
        if ERRORS.contains(&status)
            && (is_own_error || cx.upstream.is_some())
            && let Some(entry) = &fetch.entry
            && freshness::stands_in_for_error(entry, &fetch.ask.asked, now)
        {
            let response = stored(entry, &fetch.ask, Status::Stale, now);
            return (Filtered::Replace(replacing(cx, response)), Own::None);
        }
        if cx.upstream.is_none() {
            return (Filtered::Continue, Own::None);
        }
        let storage = self.storage(cx.node);
        if status == 304
            && fetch.validates
            && let Some(entry) = fetch.entry.take()
        {
            if conditions::contradicts(&entry, cx.header("etag")) {
                // The upstream has confirmed the response, and names another one. What it says about that one is not
                // written into this one, which is sent for the last time.
                storage.purge(&fetch.key, now);
                let response = stored(&entry, &fetch.ask, Status::Stale, now);
                return (Filtered::Replace(replacing(cx, response)), Own::None);
            }
            return (self.freshen(cx, &fetch, &entry, now), Own::None);
        }
        let fields = Fields::read(cx.header_pairs());
        let verdict = self
            .may_keep(cx)
            .then(|| fields.judge(status, &fetch.ask.asked, self.cache_ttl(), now));
        let (Some(verdict), Some(vary)) = (verdict.flatten(), fields.vary()) else {
            shown.status(&mut cx.answer.headers, Status::Bypass);
            let replaces = fetch.entry.is_some() && freshness::is_about_resource(status);
            if replaces && fetch.ask.asked.is_for_all() {
                // The stored response has been replaced by one that must not be stored.
                storage.purge(&fetch.key, now);
            }
            fetch.set_unshared(now);
            return (Filtered::Continue, Own::None);
        };
        let hidden = freshness::hidden(&fields.directives);
        let gathering = Gathering::begin(
            cx,
            &fetch.personal,
            |name| is_one_of(&hidden, name),
            storage.collect(),
        );
        if !gathering.may_fit() {
            fetch.set_unshared(now);
            return (Filtered::Continue, Own::None);
        }
        fetch.storing = Some(Storing {
            gathering,
            verdict,
            vary,
        });
        if status == 204 {
            // It has no body, so that no body filter runs.
            self.end(cx, *fetch, now);
            return (Filtered::Continue, Own::None);
        }
        fetch.set_known(false);
        (Filtered::Continue, Own::Fetch(fetch))
    }

    pub(super) fn gather(
        &self,
        cx: &ResponseCx<'_, '_>,
        mut fetch: Box<Fetch>,
        chunk: &Chunk,
    ) -> Own {
        let storing = fetch.storing.as_mut();
        let added = storing.map(|storing| storing.gathering.add(&chunk.data));
        let now = cx.node.clock.since_epoch().as_secs();
        if added != Some(Ok(())) {
            fetch.set_unshared(now);
            return Own::None;
        }
        if !chunk.last {
            return Own::Fetch(fetch);
        }
        fetch.set_known(true);
        self.end(cx, *fetch, now);
        Own::None
    }

    /// Stores a response that is complete. Requests that wait for it are woken afterwards.
    fn end(&self, cx: &ResponseCx<'_, '_>, mut fetch: Fetch, now: u64) {
        let Some(storing) = fetch.storing.take() else {
            return;
        };
        let Some(gathered) = storing.gathering.finish(cx) else {
            return;
        };
        let stored = Arc::new(gathered.stored);
        let entry = self.entry(gathered.status, stored, &storing.verdict, now);
        let vary = self.with_configured(storing.vary);
        self.store(cx, &fetch, vary, entry, now);
        drop(fetch.flight);
    }

    fn store(
        &self,
        cx: &ResponseCx<'_, '_>,
        fetch: &Fetch,
        vary: Vec<Box<str>>,
        entry: Entry,
        now: u64,
    ) {
        let (request, place) = (cx.request, fetch.ask.place);
        if Place::of(request, &owner(request, cx.state), &self.config) != place {
            // A plugin that runs later has led the request elsewhere, or has found another client.
            return;
        }
        let asked = Seen {
            head: request.head,
            before: &fetch.edits,
            sent: &request.upstream.headers,
            stamp: fetch.stamp,
        };
        place.store(self.storage(cx.node), &asked, vary, entry, now);
    }

    /// Updates a stored response after a 304, and sends it (RFC 9111, section 4.3.4).
    fn freshen(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        fetch: &Fetch,
        entry: &Entry,
        now: u64,
    ) -> Filtered {
        let own_age = cx.header_lines("age").map(|age| (AGE, age));
        let news = Fields::read(cx.header_pairs());
        let mut hidden = freshness::hidden(&news.directives);
        // They describe the stored body.
        let of_body = ["content-length", "content-encoding", "content-range"];
        hidden.extend(of_body.map(CompactString::const_new));
        let update = storable_lines(cx, &fetch.personal, |name| is_one_of(&hidden, name));
        let kept = entry
            .stored
            .header_pairs()
            .filter(|(name, _)| update.header(name).is_none() && !news.directives.hides(name));
        let merged: Vec<(&str, &[u8])> = kept.chain(update.header_pairs()).collect();
        let merged_head = Stored::new(merged.iter().copied());
        let fields = Fields::read(merged.iter().copied().chain(own_age));
        let asked = &fetch.ask.asked;
        let verdict = fields.judge(entry.status, asked, self.cache_ttl(), now);
        let mut fresh = Entry {
            stored: Arc::new(merged_head.with_body(entry.stored.pieces())),
            stored_at: now,
            ..entry.clone()
        };
        match (verdict, fields.vary()) {
            (Some(verdict), Some(vary)) => {
                fresh = self.entry(fresh.status, fresh.stored, &verdict, now);
                self.store(cx, fetch, self.with_configured(vary), fresh.clone(), now);
            }
            _ if fetch.ask.asked.is_for_all() => {
                self.storage(cx.node).purge(&fetch.key, now);
            }
            _ => {}
        }
        let response = stored(&fresh, &fetch.ask, Status::Revalidated, now);
        Filtered::Replace(response)
    }

    fn entry(&self, status: u16, stored: Arc<Stored>, verdict: &Verdict, now: u64) -> Entry {
        let keep = match self.config.storage_ttl {
            None => verdict.keep,
            Some(0) => u64::MAX,
            Some(seconds) => u64::try_from(seconds).unwrap_or(0),
        };
        Entry {
            status,
            stored,
            stored_at: now,
            ttl: verdict.lifetime,
            expires_at: now.saturating_add(keep),
            terms: verdict.terms,
        }
    }

    /// Adds the headers of `vary_headers` to those of `Vary`.
    fn with_configured(&self, mut vary: Vec<Box<str>>) -> Vec<Box<str>> {
        vary.extend(self.vary.iter().cloned());
        vary
    }
}

fn now(cx: &RequestCx<'_, '_>) -> u64 {
    cx.node.clock.since_epoch().as_secs()
}

fn is_one_of(names: &[CompactString], name: &str) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}
