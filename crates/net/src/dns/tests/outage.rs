//! Tests failing name servers: how long the previous answer is used, and when queries are retried.

use super::script::{addresses, now, resolve, settings, start, wait};
use crate::dns::answer::ResolveError;
use crate::dns::settings::DnsSettings;
use std::time::Duration;

const TIMEOUT: Option<ResolveError> = Some(ResolveError::Timeout);

#[tokio::test(start_paused = true)]
async fn an_outage_of_ten_minutes_is_not_seen_by_requests() {
    let (resolver, script) = start(settings());
    script.set("a.test 30 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    for outage in [
        ResolveError::Timeout,
        ResolveError::Unreachable,
        ResolveError::Malformed,
        ResolveError::Server(2, "server failure"),
        ResolveError::Server(5, "refused"),
    ] {
        script.go_down(Some(outage));
        script.set_delay(Duration::from_secs(4));
        for _ in 0..6000 {
            wait(0.1).await;
            assert_eq!(now(&host), "10.0.0.1:80", "{outage}");
        }
        let asked = script.asked().len();
        assert!(asked < 600, "{asked} queries in ten minutes");
        // After the outage, the new answer is in use within seconds.
        script.go_down(None);
        script.set_delay(Duration::ZERO);
        script.set("a.test 30 A 10.0.0.2");
        wait(10.0).await;
        assert_eq!(now(&host), "10.0.0.2:80");
        script.set("a.test 30 A 10.0.0.1");
        wait(31.0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_former_answer_ends_with_its_stale_time() {
    let (resolver, script) = start(DnsSettings {
        stale_ttl: Duration::from_secs(100),
        ..settings()
    });
    script.set("a.test 10 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    script.go_down(TIMEOUT);
    wait(105.0).await;
    assert_eq!(now(&host), "10.0.0.1:80");
    wait(15.0).await;
    assert_eq!(now(&host), ResolveError::Timeout.to_string());
}

#[tokio::test(start_paused = true)]
async fn without_stale_time_an_answer_is_good_to_its_end_only() {
    let (resolver, script) = start(DnsSettings {
        stale_ttl: Duration::ZERO,
        ..settings()
    });
    script.set("a.test 10 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    script.go_down(TIMEOUT);
    wait(9.5).await;
    assert_eq!(now(&host), "10.0.0.1:80");
    wait(2.0).await;
    assert_eq!(now(&host), ResolveError::Timeout.to_string());
}

#[tokio::test(start_paused = true)]
async fn a_name_never_known_is_tried_again_each_second_while_it_is_used() {
    let (resolver, script) = start(settings());
    script.go_down(TIMEOUT);
    let host = resolver.host("a.test", 80);
    assert_eq!(resolve(&host).await.unwrap_err(), ResolveError::Timeout);
    script.asked();
    for _ in 0..1000 {
        wait(0.01).await;
        assert_eq!(now(&host), ResolveError::Timeout.to_string());
    }
    let asked = script.asked().len();
    assert!((8..=20).contains(&asked), "{asked} queries in ten seconds");
    script.go_down(None);
    script.set("a.test 10 A 10.0.0.1");
    wait(1.1).await;
    assert_eq!(now(&host), "10.0.0.1:80");
}

#[tokio::test(start_paused = true)]
async fn an_unused_name_never_known_is_tried_ever_more_seldom() {
    let (resolver, script) = start(settings());
    script.go_down(TIMEOUT);
    let host = resolver.host("a.test", 80);
    let _ = resolve(&host).await;
    script.asked();
    wait(600.0).await;
    let asked = script.asked().len();
    assert!((20..=35).contains(&asked), "{asked} queries in ten minutes");
    script.go_down(None);
    script.set("a.test 10 A 10.0.0.1");
    wait(31.0).await;
    assert_eq!(now(&host), "10.0.0.1:80");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_gives_up_at_its_own_limit() {
    let (resolver, script) = start(settings());
    script.set_delay(Duration::from_secs(60));
    let host = resolver.host("a.test", 80);
    let started = tokio::time::Instant::now();
    let error = host.resolved(Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(error, ResolveError::Timeout);
    assert_eq!(started.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_without_its_background_reports_it() {
    let resolver = crate::dns::Resolver::default();
    let host = resolver.host("a.test", 80);
    assert_eq!(resolve(&host).await.unwrap_err(), ResolveError::Stopped);
    assert_eq!(now(&resolver.host("10.0.0.1", 80)), "10.0.0.1:80");
}

/// The address changes in every round, and the name server fails in every third round.
#[tokio::test(start_paused = true)]
async fn flapping_answers_are_followed() {
    let (resolver, script) = start(settings());
    script.set("a.test 2 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    for round in 0..100 {
        let ip = round % 2 + 1;
        script.go_down((round % 3 == 0).then_some(ResolveError::Server(2, "server failure")));
        script.set(&format!("a.test 2 A 10.0.0.{ip}"));
        wait(2.0).await;
        let got = now(&host);
        assert!(got.starts_with("10.0.0."), "{got}");
        if round % 3 != 0 {
            wait(5.0).await;
            assert_eq!(now(&host), format!("10.0.0.{ip}:80"));
        }
    }
}
