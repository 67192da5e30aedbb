//! Tests CNAME chains, and responses with records of other names and types than the queried ones.

use super::script::{addresses, resolve, settings, start, wait};
use crate::dns::answer::ResolveError;
use crate::dns::settings::{DnsSettings, LookupKind};
use hickory_resolver::proto::rr::RecordType;

#[tokio::test(start_paused = true)]
async fn a_chain_in_one_message_is_followed() {
    let (resolver, script) = start(settings());
    script.set_message(
        "a.test",
        RecordType::A,
        "c.test 60 A 10.0.0.3\na.test 60 CNAME b.test\nB.TEST 60 CNAME c.test",
    );
    assert_eq!(
        addresses(&resolver.host("a.test", 80)).await,
        ["10.0.0.3:80"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_chain_is_asked_for() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 CNAME b.test\nb.test 60 CNAME c.test\nc.test 60 A 10.0.0.3");
    assert_eq!(
        addresses(&resolver.host("a.test", 80)).await,
        ["10.0.0.3:80"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_alias_leads_to_services_too() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 CNAME b.test\nb.test 60 SRV 0 1 9 c.test\nc.test 60 A 10.0.0.3");
    assert_eq!(
        addresses(&resolver.host("a.test", 80)).await,
        ["10.0.0.3:9"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_tells_aliases_only_when_asked_is_asked() {
    let (resolver, script) = start(DnsSettings {
        order: vec![LookupKind::Cname],
        ..settings()
    });
    script.set("a.test 60 CNAME c.test\nc.test 60 A 10.0.0.3");
    assert_eq!(
        addresses(&resolver.host("a.test", 80)).await,
        ["10.0.0.3:80"]
    );
}

#[tokio::test(start_paused = true)]
async fn loops_end_with_an_error() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 CNAME b.test\nb.test 60 CNAME a.test\nself.test 60 CNAME self.test");
    for name in ["a.test", "self.test"] {
        let error = resolve(&resolver.host(name, 80)).await.unwrap_err();
        assert_eq!(error, ResolveError::TooManyAliases, "{name}");
    }
    script.set_message(
        "m.test",
        RecordType::A,
        "m.test 60 CNAME n.test\nn.test 60 CNAME m.test",
    );
    let error = resolve(&resolver.host("m.test", 80)).await.unwrap_err();
    assert_eq!(error, ResolveError::TooManyAliases);
}

#[tokio::test(start_paused = true)]
async fn records_of_other_names_and_kinds_do_not_count() {
    let (resolver, script) = start(settings());
    let foreign = "evil.test 60 A 10.6.6.6\nb.test 60 CNAME evil.test\na.test 60 AAAA fd00::6";
    script.set_message("a.test", RecordType::A, foreign);
    let error = resolve(&resolver.host("a.test", 80)).await.unwrap_err();
    assert_eq!(error, ResolveError::NotFound);
}

#[tokio::test(start_paused = true)]
async fn the_shortest_ttl_of_a_chain_counts() {
    let (resolver, script) = start(settings());
    script.set("a.test 10 CNAME b.test\nb.test 600 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    script.set("a.test 10 CNAME c.test\nc.test 600 A 10.0.0.2");
    wait(10.0).await;
    assert_eq!(addresses(&host).await, ["10.0.0.2:80"]);
}
