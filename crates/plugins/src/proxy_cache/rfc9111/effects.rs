//! Effects of responses on stored ones: those to HEAD, and those to methods that change something.

use super::family::Uri;
use crate::proxy_cache::ProxyCache;
use crate::proxy_cache::entry::Entry;
use crate::proxy_cache::key::CacheKey;
use plugin::ResponseCx;

impl ProxyCache {
    /// A response to HEAD shows whether a stored response is still the current one (RFC 9111, section 4.3.5).
    pub(in crate::proxy_cache) fn filter_head(
        &self,
        cx: &ResponseCx<'_, '_>,
        key: CacheKey,
        entry: &Entry,
    ) {
        let is_another = ["etag", "last-modified"].iter().any(|name| {
            let now = cx.header(name);
            now.is_some() && now != entry.stored.header(name)
        });
        let length = cx.header("content-length").map(<[u8]>::to_vec);
        let has_other_length = length
            .is_some_and(|length| length != entry.stored.body_length().to_string().into_bytes());
        let is_ok = cx.upstream.is_some() && cx.answer.status == 200;
        if is_ok && (is_another || has_other_length) {
            let now = cx.node.clock.since_epoch().as_secs();
            self.storage(cx.node).purge(&key, now);
        }
    }

    /// A response to a method that changes something makes the stored responses of its URI invalid (RFC 9111, section
    /// 4.4).
    pub(in crate::proxy_cache) fn filter_unsafe(&self, cx: &ResponseCx<'_, '_>) {
        if cx.upstream.is_none() || !(200..400).contains(&cx.answer.status) {
            return;
        }
        let storage = self.storage(cx.node);
        let uri = Uri::of(cx.request);
        storage.invalidate(&uri.key(&self.config));
        for name in ["location", "content-location"] {
            let mut joined = Vec::new();
            let reference = cx.header(name);
            if let Some(other) = reference.and_then(|text| uri.resolve(text, &mut joined)) {
                storage.invalidate(&other.key(&self.config));
            }
        }
    }
}
