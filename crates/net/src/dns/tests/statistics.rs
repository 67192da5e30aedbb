//! Tests the counters of the resolver.

use super::script::{addresses, now, resolve, settings, start, wait};
use crate::dns::answer::ResolveError;
use hickory_resolver::proto::rr::RecordType;
use std::collections::BTreeMap;

fn fields(fields: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let fields = fields.iter();
    fields
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn questions_and_uses_are_counted_as_kong_counts_them() {
    let (resolver, script) = start(settings());
    script.set("a.test 100 A 10.0.0.1");
    script.fail(
        "a.test",
        RecordType::SRV,
        ResolveError::Server(4, "not implemented"),
    );
    script.set_delay(std::time::Duration::from_millis(7));
    let host = resolver.host("a.test", 80);
    assert_eq!(now(&host), "wait");
    addresses(&host).await;
    for _ in 0..5 {
        now(&host);
    }
    let missing = resolver.host("missing.test", 80);
    resolve(&missing).await.unwrap_err();
    now(&missing);
    let mut counters = resolver.statistics();
    let mut of = |key: &str| counters.remove(key).unwrap();
    let all = fields(&[("runs", 6), ("hit_lru", 5), ("miss", 1)]);
    assert_eq!(of("a.test:all"), all);
    let a = fields(&[("query", 1), ("query_last_time", 7), ("query_succ", 1)]);
    assert_eq!(of("a.test:A"), a);
    let failed = |why| fields(&[("query", 1), ("query_last_time", 7), (why, 1)]);
    assert_eq!(of("a.test:SRV"), failed("query_fail:not implemented"));
    assert_eq!(of("missing.test:A"), failed("query_fail:name error"));
    let totals = resolver.totals();
    assert_eq!(
        [totals.answered.0, totals.not_found.0, totals.failed.0],
        [1, 3, 1]
    );
    assert_eq!(totals.failed.1.as_millis(), 7);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_seen_in_the_counters() {
    let (resolver, script) = start(settings());
    script.set("a.test 10 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    script.go_down(Some(ResolveError::Timeout));
    wait(60.0).await;
    let counters = resolver.statistics();
    assert!(counters["a.test:all"]["stale"] > 5, "{counters:?}");
    assert!(
        counters["a.test:A"]["query_fail_nameserver"] > 5,
        "{counters:?}"
    );
}
