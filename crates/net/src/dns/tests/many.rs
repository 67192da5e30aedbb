//! Tests many requests for one name, and many names.

use super::script::{now, resolve, settings, settle, start, wait};
use crate::dns::settings::DnsSettings;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_name_is_asked_for_once_however_many_wait() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 A 10.0.0.1");
    script.set_delay(Duration::from_millis(100));
    let mut waiting = tokio::task::JoinSet::new();
    for port in [80, 81, 82] {
        let host = resolver.host("a.test", port);
        for _ in 0..100 {
            let host = host.clone();
            waiting.spawn(async move { resolve(&host).await.map(|_| ()) });
        }
    }
    while let Some(done) = waiting.join_next().await {
        done.unwrap().unwrap();
    }
    assert_eq!(script.asked(), ["a.test SRV", "a.test A"]);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_names_are_asked_for_a_bounded_number_at_once() {
    let (resolver, script) = start(settings());
    script.set_delay(Duration::from_millis(20));
    let names: Vec<String> = (0..10_000).map(|n| format!("n{n}.test")).collect();
    let zone: Vec<String> = names
        .iter()
        .map(|name| format!("{name} 60 A 10.0.0.1"))
        .collect();
    script.set(&zone.join("\n"));
    let hosts: Vec<_> = names.iter().map(|name| resolver.host(name, 80)).collect();
    for host in &hosts {
        resolve(host).await.unwrap();
    }
    assert!(script.most_at_once() <= 256);
    script.asked();
    // In the next minutes each name is queried about once a minute, and never all at once.
    let mut each_second = Vec::new();
    for _ in 0..180 {
        wait(1.0).await;
        each_second.push(script.asked().len());
    }
    let total: usize = each_second.iter().sum();
    assert!((30_000..=40_000).contains(&total), "{total}");
    let later = &each_second[120..];
    assert!(later.iter().all(|asked| *asked < 1_600), "{later:?}");
    assert!(hosts.iter().all(|host| now(host) == "10.0.0.1:80"));
}

#[tokio::test(start_paused = true)]
async fn names_that_requests_wait_for_are_queried_first() {
    let (resolver, script) = start(settings());
    script.set_delay(Duration::from_secs(1));
    let _many: Vec<Arc<_>> = (0..5_000)
        .map(|n| resolver.host(&format!("n{n}.test"), 80))
        .collect();
    script.set("a.test 60 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    let started = tokio::time::Instant::now();
    resolve(&host).await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(16),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn responses_kept_in_addition_to_those_in_use_are_limited() {
    let settings = DnsSettings {
        cache_size: 100,
        ..settings()
    };
    let script = Arc::new(super::script::Script::default());
    let transport = Arc::new(script.clone());
    let records = crate::dns::records::Records::new(transport, &settings, Arc::default());
    for number in 0..1000 {
        script.set(&format!("n{number}.test 60 A 10.0.0.1"));
        let name = crate::dns::name::absolute_name(&format!("n{number}.test")).unwrap();
        let kind = hickory_resolver::proto::rr::RecordType::A;
        records.get(&name, kind).await.unwrap();
        assert!(records.len() <= 100);
    }
    assert!(records.len() > 80);
}

#[tokio::test(start_paused = true)]
async fn handles_that_come_and_go_leave_nothing_behind() {
    let (resolver, script) = start(settings());
    for round in 0..200 {
        let hosts: Vec<_> = (0..50)
            .map(|n| resolver.host(&format!("n{n}.test"), round))
            .collect();
        settle().await;
        drop(hosts);
    }
    settle().await;
    assert!(resolver.hosts().is_empty());
    script.asked();
    wait(120.0).await;
    assert!(script.asked().is_empty());
}
