//! Tests when names are queried again.

use super::script::{addresses, now, resolve, settings, settle, start, wait};
use crate::dns::answer::ResolveError;
use crate::dns::settings::DnsSettings;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn an_answer_is_replaced_before_it_ends_and_nobody_waits() {
    let (resolver, script) = start(settings());
    script.set("a.test 10 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    script.asked();
    wait(7.9).await;
    assert!(script.asked().is_empty());
    script.set("a.test 10 A 10.0.0.2");
    script.set_delay(Duration::from_millis(500));
    for _ in 0..210 {
        wait(0.01).await;
        assert_ne!(now(&host), "wait");
    }
    assert_eq!(script.asked(), ["a.test A"]);
    assert_eq!(now(&host), "10.0.0.2:80");
}

#[tokio::test(start_paused = true)]
async fn the_same_records_are_the_same_answer() {
    let (resolver, script) = start(settings());
    script.set("a.test 10 A 10.0.0.1\na.test 10 A 10.0.0.2");
    let host = resolver.host("a.test", 80);
    let first = resolve(&host).await.unwrap();
    script.set("a.test 10 A 10.0.0.2\na.test 10 A 10.0.0.1");
    wait(30.0).await;
    let second = resolve(&host).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    script.set("a.test 10 A 10.0.0.3");
    wait(10.0).await;
    assert!(resolve(&host).await.unwrap().number > first.number);
}

#[tokio::test(start_paused = true)]
async fn the_setting_overrides_the_ttl() {
    let (resolver, script) = start(DnsSettings {
        valid_ttl: Some(Duration::from_secs(100)),
        ..settings()
    });
    script.set("a.test 1 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    script.asked();
    wait(79.0).await;
    assert!(script.asked().is_empty());
    wait(21.0).await;
    assert_eq!(script.asked().len(), 1);
}

/// RFC 8767 §4: a TTL of 68 years is a mistake or an attack.
#[tokio::test(start_paused = true)]
async fn a_giant_ttl_is_a_week() {
    let (resolver, script) = start(settings());
    script.set("a.test 4294967295 A 10.0.0.1\nb.test 2147483647 A 10.0.0.1");
    let hosts = [resolver.host("a.test", 80), resolver.host("b.test", 80)];
    for host in &hosts {
        addresses(host).await;
    }
    script.set("a.test 4294967295 A 10.0.0.2\nb.test 2147483647 A 10.0.0.2");
    wait(7.0 * 24.0 * 3600.0).await;
    for host in &hosts {
        assert_eq!(now(host), "10.0.0.2:80");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_name_is_asked_for_again_after_its_time_whatever_the_traffic() {
    let (resolver, script) = start(settings());
    let host = resolver.host("a.test", 80);
    assert_eq!(resolve(&host).await.unwrap_err(), ResolveError::NotFound);
    script.asked();
    script.set("a.test 60 A 10.0.0.1");
    for _ in 0..290 {
        wait(0.1).await;
        assert_eq!(now(&host), "name resolution failed");
    }
    assert!(script.asked().is_empty());
    wait(1.5).await;
    assert_eq!(now(&host), "10.0.0.1:80");
}

#[tokio::test(start_paused = true)]
async fn a_removed_name_is_reported_missing() {
    let (resolver, script) = start(settings());
    script.set("a.test 10 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    script.remove("a.test");
    // The answer must stay in use until its TTL has passed.
    wait(9.9).await;
    assert_eq!(now(&host), "10.0.0.1:80");
    wait(0.6).await;
    assert_eq!(now(&host), "name resolution failed");
    script.set("a.test 10 A 10.0.0.1");
    wait(31.0).await;
    assert_eq!(now(&host), "10.0.0.1:80");
}

/// A name server that has just started or lags behind may not know a name for a moment.
#[tokio::test(start_paused = true)]
async fn a_name_missing_for_a_moment_keeps_its_answer() {
    let (resolver, script) = start(settings());
    script.set("a.test 30 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    for _ in 0..20 {
        script.asked();
        script.remove("a.test");
        while script.asked().is_empty() {
            wait(0.1).await;
            assert_eq!(now(&host), "10.0.0.1:80");
        }
        script.set("a.test 30 A 10.0.0.1");
        wait(5.0).await;
        assert_eq!(now(&host), "10.0.0.1:80");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_one_use_is_renewed_by_its_use_within_bounds() {
    let (resolver, script) = start(settings());
    script.set("a.test 0 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    assert_eq!(addresses(&host).await, ["10.0.0.1:80"]);
    script.asked();
    // Without requests, a name with TTL 0 is queried only once a minute.
    wait(50.0).await;
    assert!(script.asked().is_empty());
    // After a pause the answer is too old to use.
    script.set("a.test 0 A 10.0.0.2");
    assert_eq!(now(&host), "wait");
    assert_eq!(addresses(&host).await, ["10.0.0.2:80"]);
    script.asked();
    // With constant use no request waits, and the number of queries is bounded.
    for _ in 0..1000 {
        wait(0.01).await;
        assert_eq!(now(&host), "10.0.0.2:80");
    }
    let asked = script.asked().len();
    assert!(
        (80..=101).contains(&asked),
        "{asked} queries in ten seconds"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_one_use_outlives_the_name_servers_too() {
    let (resolver, script) = start(settings());
    script.set("a.test 0 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    script.go_down(Some(ResolveError::Timeout));
    script.set_delay(Duration::from_secs(4));
    for _ in 0..60 {
        wait(10.0).await;
        let asked = tokio::time::Instant::now();
        assert_eq!(addresses(&host).await, ["10.0.0.1:80"]);
        assert!(asked.elapsed() <= Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_nobody_holds_is_not_asked_for() {
    let (resolver, script) = start(settings());
    script.set("a.test 10 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    assert_eq!(resolver.hosts().len(), 1);
    drop(host);
    settle().await;
    script.asked();
    wait(100.0).await;
    assert!(script.asked().is_empty());
    assert!(resolver.hosts().is_empty());
    let host = resolver.host("a.test", 80);
    assert_eq!(addresses(&host).await, ["10.0.0.1:80"]);
}

#[tokio::test(start_paused = true)]
async fn the_resolver_ends_when_nobody_can_ask() {
    let (resolver, background) = crate::dns::Resolver::new(settings());
    let running = tokio::spawn(background.run());
    let host = resolver.host("a.test", 80);
    drop(resolver);
    settle().await;
    assert!(!running.is_finished());
    drop(host);
    running.await.unwrap();
}
