//! Tests which record types are queried, and in which order.

use super::script::{addresses, resolve, settings, settle, start};
use crate::dns::answer::ResolveError;
use crate::dns::settings::{DnsSettings, LookupKind};
use hickory_resolver::proto::rr::RecordType;

#[tokio::test(start_paused = true)]
async fn a_service_record_wins_over_an_address() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 A 10.0.0.1\na.test 60 SRV 0 0 8080 b.test\nb.test 60 A 10.0.0.2");
    assert_eq!(
        addresses(&resolver.host("a.test", 80)).await,
        ["10.0.0.2:8080"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_type_that_answered_last_is_queried_first() {
    let (resolver, script) = start(settings());
    script.set("a.test 10 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    assert_eq!(addresses(&host).await, ["10.0.0.1:80"]);
    assert_eq!(script.asked(), ["a.test SRV", "a.test A"]);
    super::script::wait(10.0).await;
    assert_eq!(script.asked(), ["a.test A"]);
}

#[tokio::test(start_paused = true)]
async fn without_last_every_lookup_follows_the_order() {
    let order = vec![LookupKind::Srv, LookupKind::A];
    let (resolver, script) = start(DnsSettings {
        order,
        not_found_ttl: std::time::Duration::from_secs(1),
        ..settings()
    });
    script.set("a.test 10 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    resolve(&host).await.unwrap();
    script.asked();
    super::script::wait(10.0).await;
    assert_eq!(script.asked(), ["a.test SRV", "a.test A"]);
}

#[tokio::test(start_paused = true)]
async fn ipv6_is_asked_for_only_where_it_is_listed() {
    let zone = "a.test 60 AAAA fd00::1";
    let (resolver, script) = start(settings());
    script.set(zone);
    let host = resolver.host("a.test", 80);
    assert_eq!(resolve(&host).await.unwrap_err(), ResolveError::NotFound);
    let order = vec![
        LookupKind::Last,
        LookupKind::Srv,
        LookupKind::A,
        LookupKind::Aaaa,
    ];
    let (resolver, script) = start(DnsSettings {
        order,
        ..settings()
    });
    script.set(zone);
    assert_eq!(
        addresses(&resolver.host("a.test", 80)).await,
        ["[fd00::1]:80"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_kind_with_records_is_the_only_one() {
    let order = vec![LookupKind::Aaaa, LookupKind::A];
    let (resolver, script) = start(DnsSettings {
        order,
        ..settings()
    });
    script.set("a.test 60 AAAA fd00::1\na.test 60 A 10.0.0.1");
    assert_eq!(
        addresses(&resolver.host("a.test", 80)).await,
        ["[fd00::1]:80"]
    );
}

#[tokio::test(start_paused = true)]
async fn names_differ_neither_by_case_nor_by_their_final_dot() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 A 10.0.0.1");
    let host = resolver.host("A.Test", 80);
    assert!(std::sync::Arc::ptr_eq(&host, &resolver.host("a.test", 80)));
    assert_eq!(addresses(&host).await, ["10.0.0.1:80"]);
    assert_eq!(
        addresses(&resolver.host("a.TEST.", 80)).await,
        ["10.0.0.1:80"]
    );
}

#[tokio::test(start_paused = true)]
async fn addresses_are_their_own_answer() {
    let (resolver, script) = start(settings());
    for (text, expected) in [
        ("10.0.0.9", "10.0.0.9:80"),
        ("[::1]", "[::1]:80"),
        ("::1", "[::1]:80"),
    ] {
        let host = resolver.host(text, 80);
        assert_eq!(super::script::now(&host), expected);
        assert_eq!(addresses(&host).await, [expected]);
    }
    settle().await;
    assert!(script.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_cannot_be_asked_for_says_why() {
    let (resolver, script) = start(settings());
    for name in [
        "a..test",
        &"a".repeat(64),
        &format!("{}test", "a.".repeat(130)),
    ] {
        let error = resolve(&resolver.host(name, 80)).await.unwrap_err();
        assert!(
            matches!(error, ResolveError::InvalidName(_)),
            "{name}: {error}"
        );
    }
    assert!(script.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_missing_name_and_an_empty_answer_are_not_found() {
    let (resolver, _script) = start(settings());
    let error = resolve(&resolver.host("missing.test", 80))
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "name resolution failed");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_server_is_told_in_its_words() {
    let (resolver, script) = start(settings());
    let error = ResolveError::Server(2, "server failure");
    script.fail("a.test", RecordType::A, error);
    let error = resolve(&resolver.host("a.test", 80)).await.unwrap_err();
    assert_eq!(error.to_string(), "dns server error: 2 server failure");
}

/// Some name servers respond with an error to queries for unknown types.
#[tokio::test(start_paused = true)]
async fn an_error_for_one_kind_leaves_the_others() {
    let (resolver, script) = start(settings());
    script.fail(
        "a.test",
        RecordType::SRV,
        ResolveError::Server(4, "not implemented"),
    );
    script.set("a.test 60 A 10.0.0.1");
    assert_eq!(
        addresses(&resolver.host("a.test", 80)).await,
        ["10.0.0.1:80"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_does_not_turn_into_an_address_while_it_cannot_be_asked_for() {
    let (resolver, script) = start(settings());
    script.set("a.test 10 SRV 0 0 8080 b.test\nb.test 600 A 10.0.0.2\na.test 10 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    assert_eq!(addresses(&host).await, ["10.0.0.2:8080"]);
    script.fail(
        "a.test",
        RecordType::SRV,
        ResolveError::Server(2, "server failure"),
    );
    super::script::wait(60.0).await;
    assert_eq!(super::script::now(&host), "10.0.0.2:8080");
}
