//! Decides from a response whether a shared cache may store it, and how long and under which terms it may be sent again
//! (RFC 9111, sections 3, 3.5, 4.2 and 5; RFC 5861). No I/O and no storage.

use super::directives::{RequestDirectives, ResponseDirectives};
use crate::proxy_cache::control::http_date;
use crate::proxy_cache::entry::{Entry, Terms};
use compact_str::CompactString;

/// Statuses whose responses may be stored without explicit freshness (RFC 9110, section 15.1). 206 is not stored here.
const HEURISTIC: [u16; 11] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];

/// Part of the time since its last modification for which a response is fresh (RFC 9111, section 4.2.2).
const HEURISTIC_SHARE: u64 = 10;

/// Maximum number of names in `Vary`. A response with more is not stored.
const MAX_VARY: usize = 16;

/// Seconds for which a response stays in the storage after it has become stale, at least.
const KEPT_STALE: u64 = 24 * 60 * 60;

/// The header fields of a response that decide.
#[derive(Debug, Default)]
pub(super) struct Fields<'f> {
    pub(super) directives: ResponseDirectives,
    /// The earliest of all `Expires`. Zero if one cannot be read.
    expires: Option<u64>,
    date: Option<u64>,
    age: u64,
    last_modified: Option<u64>,
    has_etag: bool,
    sets_cookie: bool,
    vary: Vec<&'f [u8]>,
}

/// What a response allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) lifetime: u64,
    pub(super) terms: Terms,
    /// Seconds for which the response is of use in the storage.
    pub(super) keep: u64,
}

/// The request that a response belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) directives: RequestDirectives,
    pub(super) is_authorized: bool,
    /// When it was sent, in seconds since 1970.
    pub(super) at: u64,
}

impl Asked {
    /// Whether the request itself leaves it open who may get its response.
    pub(super) fn is_for_all(&self) -> bool {
        !self.is_authorized && !self.directives.no_store
    }
}

impl<'f> Fields<'f> {
    pub(super) fn read(lines: impl Iterator<Item = (&'f str, &'f [u8])>) -> Self {
        let mut fields = Self::default();
        let mut control: Vec<&[u8]> = Vec::new();
        let mut has_age = false;
        for (name, value) in lines {
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            if is("cache-control") {
                control.push(value);
            } else if is("expires") {
                let end = http_date(value).unwrap_or(0);
                fields.expires = Some(fields.expires.map_or(end, |other| other.min(end)));
            } else if is("date") {
                fields.date = fields.date.or_else(|| http_date(value));
            } else if is("age") && !has_age {
                (has_age, fields.age) = (true, age(value));
            } else if is("last-modified") {
                fields.last_modified = fields.last_modified.or_else(|| http_date(value));
            } else if is("etag") {
                fields.has_etag = true;
            } else if is("set-cookie") || is("set-cookie2") {
                fields.sets_cookie = true;
            } else if is("vary") {
                fields.vary.push(value);
            }
        }
        fields.directives = ResponseDirectives::parse(control.into_iter());
        fields
    }

    /// Returns the names in `Vary`, in lower case. `None` if the response depends on something else, or on too much.
    pub(super) fn vary(&self) -> Option<Vec<Box<str>>> {
        let mut names: Vec<Box<str>> = Vec::new();
        let members = self
            .vary
            .iter()
            .flat_map(|line| line.split(|&byte| byte == b','));
        for member in members.map(<[u8]>::trim_ascii) {
            let name = std::str::from_utf8(member).ok()?.to_ascii_lowercase();
            if name == "*" || is_set_by_gateway(&name) {
                return None;
            }
            if !name.is_empty() && !names.iter().any(|other| **other == *name) {
                if names.len() == MAX_VARY {
                    return None;
                }
                names.push(name.into());
            }
        }
        Some(names)
    }

    /// Returns what the response allows. `None` if it must not be stored, or if storing it is of no use.
    pub(super) fn judge(
        &self,
        status: u16,
        asked: &Asked,
        heuristic_limit: u64,
        now: u64,
    ) -> Option<Verdict> {
        let rules = &self.directives;
        // With `must-understand`, `no-store` is for caches that do not know the status (section 5.2.2.3).
        let is_forbidden =
            rules.no_store && !(rules.must_understand && HEURISTIC.contains(&status));
        let sets_cookie = self.sets_cookie && !rules.hides("set-cookie");
        if is_forbidden || rules.private || sets_cookie || asked.directives.no_store {
            return None;
        }
        let shares_authorized = rules.public || rules.must_revalidate || rules.s_maxage.is_some();
        if asked.is_authorized && !shares_authorized {
            return None;
        }
        let lifetime = self.lifetime(status, heuristic_limit, now)?;
        // `s-maxage` implies `proxy-revalidate` (section 5.2.2.10).
        let forbids_stale = rules.must_revalidate
            || rules.proxy_revalidate
            || rules.no_cache
            || rules.s_maxage.is_some();
        let allowed = |seconds: u64| if forbids_stale { 0 } else { seconds };
        let terms = Terms {
            age: self.initial_age(asked.at, now),
            always_validates: rules.no_cache,
            forbids_stale,
            shares_authorized,
            while_revalidate: allowed(rules.while_revalidate),
            if_error: allowed(rules.if_error),
        };
        let has_validator = self.has_etag || self.last_modified.is_some();
        let stale_use = terms.while_revalidate.max(terms.if_error);
        let is_sent_as_it_is = lifetime.saturating_add(stale_use) > terms.age && !rules.no_cache;
        // Clients may ask for stale responses, too. What nobody uses is evicted.
        let stale_use = match has_validator || !forbids_stale {
            true => stale_use.max(KEPT_STALE),
            false => stale_use,
        };
        let keep = lifetime.saturating_add(stale_use).saturating_sub(terms.age);
        let is_of_use = has_validator || is_sent_as_it_is;
        (keep > 0 && is_of_use).then_some(Verdict {
            lifetime,
            terms,
            keep,
        })
    }

    /// Returns the seconds for which the response is fresh. `None` if it does not say so, and its status does not allow
    /// to guess.
    fn lifetime(&self, status: u16, heuristic_limit: u64, now: u64) -> Option<u64> {
        let rules = &self.directives;
        let date = self.date.unwrap_or(now);
        let explicit = rules.s_maxage.or(rules.max_age);
        let explicit = explicit.or_else(|| Some(self.expires?.saturating_sub(date)));
        if explicit.is_some() {
            return explicit;
        }
        if !rules.public && !HEURISTIC.contains(&status) {
            return None;
        }
        let since = self
            .last_modified
            .map_or(0, |last| date.saturating_sub(last));
        Some((since / HEURISTIC_SHARE).min(heuristic_limit))
    }

    /// Returns the age of the response on arrival (section 4.2.3).
    fn initial_age(&self, asked_at: u64, now: u64) -> u64 {
        let apparent = self.date.map_or(0, |date| now.saturating_sub(date));
        apparent.max(self.age.saturating_add(now.saturating_sub(asked_at)))
    }
}

/// Whether the gateway sends its own value in place of the client's, so that the value of the client does not show which
/// response the upstream chooses.
fn is_set_by_gateway(name: &str) -> bool {
    name.starts_with("x-forwarded-") || matches!(name, "x-real-ip" | "x-kong-request-id")
}

/// Reads `Age`. Only the first member of a list counts, and what is no number is ignored (section 5.1).
fn age(value: &[u8]) -> u64 {
    let first = value.split(|&byte| byte == b',').next();
    let digits = first.unwrap_or_default().trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).unwrap_or_default();
    match is_number {
        // A number that is too large for the type is an age beyond every lifetime.
        true => text.parse().unwrap_or(u64::from(u32::MAX)),
        false => 0,
    }
}

/// How a stored response may be used for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Fresh,
    /// It is stale, and the client or the response allows to send it.
    Stale,
    /// It is stale. It may be sent while another request validates it.
    WhileRevalidating,
    /// It must be validated first.
    Validate,
    /// It must not be used for this request.
    Never,
}

/// Returns the age of a stored response.
pub(super) fn age_of(entry: &Entry, now: u64) -> u64 {
    let since = now.saturating_sub(entry.stored_at);
    entry.terms.age.saturating_add(since)
}

/// Decides about a stored response (sections 4 and 5.2.1).
pub(super) fn usable(entry: &Entry, asked: &Asked, now: u64) -> Use {
    let (terms, wishes) = (&entry.terms, &asked.directives);
    if asked.is_authorized && !terms.shares_authorized {
        return Use::Never;
    }
    let age = age_of(entry, now);
    // With `max-age=0` the client wants to be sure, however young the response is.
    let is_too_old = wishes.max_age.is_some_and(|max| age > max || max == 0);
    if wishes.no_cache || terms.always_validates || is_too_old {
        return Use::Validate;
    }
    if age < entry.ttl {
        let left = entry.ttl - age;
        return match wishes.min_fresh.is_some_and(|min| left < min) {
            true => Use::Validate,
            false => Use::Fresh,
        };
    }
    let stale = age - entry.ttl;
    if terms.forbids_stale || wishes.min_fresh.is_some() {
        Use::Validate
    } else if wishes.max_stale.is_some_and(|max| stale <= max) {
        Use::Stale
    } else if stale < terms.while_revalidate {
        Use::WhileRevalidating
    } else {
        Use::Validate
    }
}

/// Whether a stored response may be sent in place of an error (RFC 5861, section 4).
pub(super) fn stands_in_for_error(entry: &Entry, asked: &Asked, now: u64) -> bool {
    let stale = age_of(entry, now).saturating_sub(entry.ttl);
    let allowed = entry.terms.if_error.max(asked.directives.if_error);
    !entry.terms.forbids_stale && usable(entry, asked, now) != Use::Never && stale < allowed
}

/// Whether a response with this status says what the resource is now. Others are about the request of one client, such as
/// 406 and 429. If they removed a stored response, one client could take it from all others.
pub(super) fn is_about_resource(status: u16) -> bool {
    matches!(status, 200..=205 | 207..=303 | 307 | 308 | 404 | 410)
}

/// Returns the names of `hidden` and of what no stored response has.
pub(super) fn hidden(directives: &ResponseDirectives) -> Vec<CompactString> {
    let mut hidden = directives.hidden.clone();
    hidden.push(CompactString::const_new("set-cookie"));
    hidden.push(CompactString::const_new("set-cookie2"));
    hidden
}
