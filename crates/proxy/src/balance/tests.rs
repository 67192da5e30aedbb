//! Tests of whole upstreams: picks, health, and the state that survives a change.

use super::*;
use crate::health::Outcome::{Status, TcpFailure, Timeout};
use serde_json::{Value, json};
use uuid::Uuid;

struct Draft {
    fields: Value,
    targets: Vec<(&'static str, u32)>,
}

fn draft(fields: Value, targets: &[(&'static str, u32)]) -> Draft {
    Draft {
        fields,
        targets: targets.to_vec(),
    }
}

impl Draft {
    fn build(&self, previous: Option<&Arc<Upstream>>) -> Arc<Upstream> {
        let id = Uuid::from_u128(40);
        let mut entity = json!({"id": id, "name": "pool"});
        for (name, value) in self.fields.as_object().unwrap() {
            entity[name] = value.clone();
        }
        let targets = self.targets.iter().map(|(target, weight)| {
            let target = json!({
                "id": Uuid::new_v5(&id, target.as_bytes()), "upstream": {"id": id},
                "target": target, "weight": weight,
            });
            TargetSettings::new(&serde_json::from_value(target).unwrap()).unwrap()
        });
        let settings = BalancerSettings {
            entity: serde_json::from_value(entity).unwrap(),
            targets: targets.collect(),
            ways: vec![way("http", 5)],
            probing: None,
        };
        Upstream::new(settings, &Resolver::default(), previous)
    }
}

fn way(protocol: &str, retries: u16) -> Way {
    struct NoCertificates;
    impl crate::upstream::CertificateLookup for NoCertificates {
        fn certificate(&self, _: entities::CertificateId) -> Option<&entities::Certificate> {
            None
        }
        fn ca_certificate(&self, _: entities::CaCertificateId) -> Option<&entities::CaCertificate> {
            None
        }
    }
    let service = json!({
        "id": Uuid::nil(), "enabled": true, "protocol": protocol, "host": "pool", "port": 80,
        "retries": retries,
    });
    let service = serde_json::from_value(service).unwrap();
    Way::new(&service, None, &NoCertificates, &Default::default()).unwrap()
}

const THREE: &[(&str, u32)] = &[
    ("10.0.0.1:80", 100),
    ("10.0.0.2:80", 100),
    ("10.0.0.3:80", 100),
];

fn pick(upstream: &Upstream) -> Option<String> {
    let visit = upstream.pick(0, PickInput::default(), &Tried::default());
    visit.ok().map(|visit| visit.authority.to_string())
}

/// Returns how often each target is picked.
fn picks(upstream: &Upstream, number: usize) -> Vec<(String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..number {
        *counts.entry(pick(upstream).unwrap()).or_default() += 1;
    }
    counts.into_iter().collect()
}

/// Reports an outcome for the next request that goes to an address.
fn report(upstream: &Upstream, host: &str, outcome: Outcome) {
    let visit = (0..1000).find_map(|number| {
        let input = PickInput {
            key: ring::hash(&[number as u8]),
        };
        let visit = upstream.pick(0, input, &Tried::default()).ok()?;
        (visit.authority.split(':').next() == Some(host)).then_some(visit)
    });
    visit
        .unwrap_or_else(|| panic!("{host} is picked"))
        .report(outcome);
}

fn passive(limit: u8) -> Value {
    json!({"healthchecks": {"passive": {"unhealthy": {
        "http_failures": limit, "tcp_failures": limit, "timeouts": limit,
    }}}})
}

#[test]
fn an_upstream_without_usable_targets_has_no_peer() {
    for targets in [&[][..], &[("10.0.0.1:80", 0)]] {
        let upstream = draft(json!({}), targets).build(None);
        assert_eq!(pick(&upstream), None, "{targets:?}");
        assert!(!upstream.status().healthy);
    }
}

#[test]
fn every_algorithm_uses_all_targets_and_none_of_weight_zero() {
    for algorithm in [
        "round-robin",
        "consistent-hashing",
        "least-connections",
        "latency",
    ] {
        let mut targets = THREE.to_vec();
        targets.push(("10.0.0.4:80", 0));
        let upstream = draft(json!({"algorithm": algorithm}), &targets).build(None);
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..200_u32 {
            let input = PickInput {
                key: ring::hash(&number.to_le_bytes()),
            };
            let visit = upstream.pick(0, input, &Tried::default()).unwrap();
            seen.insert(visit.authority.to_string());
        }
        let seen: Vec<_> = seen.iter().map(String::as_str).collect();
        assert_eq!(seen, ["10.0.0.1", "10.0.0.2", "10.0.0.3"], "{algorithm}");
    }
}

#[test]
fn a_try_goes_to_a_peer_that_has_not_failed_while_there_is_one() {
    for algorithm in [
        "round-robin",
        "consistent-hashing",
        "least-connections",
        "latency",
    ] {
        let upstream = draft(json!({"algorithm": algorithm}), THREE).build(None);
        let mut tried = Tried::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3 {
            let visit = upstream.pick(0, PickInput { key: 7 }, &tried).unwrap();
            assert!(seen.insert(visit.authority.to_string()), "{algorithm}");
            tried.add(&visit);
        }
        assert!(
            upstream.pick(0, PickInput { key: 7 }, &tried).is_ok(),
            "{algorithm}"
        );
    }
}

#[test]
fn requests_that_run_count_as_connections_until_they_end() {
    let upstream = draft(json!({"algorithm": "least-connections"}), THREE).build(None);
    let none = Tried::default();
    let running: Vec<_> = (0..6)
        .map(|_| upstream.pick(0, PickInput::default(), &none).unwrap())
        .collect();
    let connections = |upstream: &Upstream| -> Vec<u32> {
        let peers = upstream.peers.load();
        peers
            .members
            .iter()
            .map(|one| one.peer.connections())
            .collect()
    };
    assert_eq!(connections(&upstream), [2, 2, 2]);
    let mut running = running.into_iter();
    let stay = running.next().map(Visit::into_stay);
    drop(running);
    assert_eq!(connections(&upstream).iter().sum::<u32>(), 1);
    drop(stay);
    assert_eq!(connections(&upstream), [0, 0, 0]);
}

#[test]
fn a_target_that_fails_often_enough_is_left_out() {
    for (outcome, other) in [
        (TcpFailure, Status(500)),
        (Timeout, TcpFailure),
        (Status(503), Timeout),
        (Status(504), Status(500)),
    ] {
        let upstream = draft(passive(2), THREE).build(None);
        report(&upstream, "10.0.0.2", outcome);
        report(&upstream, "10.0.0.2", other);
        assert_eq!(picks(&upstream, 30).len(), 3);
        report(&upstream, "10.0.0.2", outcome);
        let expected = [("10.0.0.1".to_owned(), 15), ("10.0.0.3".to_owned(), 15)];
        assert_eq!(picks(&upstream, 30), expected);
    }
}

#[test]
fn without_a_checker_failures_change_nothing() {
    let upstream = draft(json!({}), THREE).build(None);
    for _ in 0..300 {
        report(&upstream, "10.0.0.2", TcpFailure);
    }
    assert_eq!(picks(&upstream, 30).len(), 3);
    assert!(!upstream.status().checked);
    let refused = upstream.set_health("10.0.0.2:80", None, false).unwrap_err();
    assert_eq!(refused.to_string(), "no healthchecker found for pool");
}

#[test]
fn when_all_are_unhealthy_there_is_no_peer() {
    let upstream = draft(passive(1), THREE).build(None);
    for (target, _) in THREE {
        assert!(pick(&upstream).is_some());
        upstream.set_health(target, None, false).unwrap();
    }
    assert_eq!(pick(&upstream), None);
    upstream.set_health("10.0.0.2:80", None, true).unwrap();
    assert_eq!(pick(&upstream).as_deref(), Some("10.0.0.2"));
}

#[test]
fn below_the_threshold_the_whole_upstream_is_unhealthy() {
    let mut fields = passive(1);
    fields["healthchecks"]["threshold"] = json!(50.0);
    let targets = [
        ("10.0.0.1:80", 100),
        ("10.0.0.2:80", 100),
        ("10.0.0.3:80", 200),
    ];
    let upstream = draft(fields, &targets).build(None);
    upstream.set_health("10.0.0.1:80", None, false).unwrap();
    assert!(pick(&upstream).is_some());
    let weight = Weight {
        total: 400,
        available: 300,
    };
    assert_eq!(upstream.status().weight, weight);
    // Half of the weight does not exceed a threshold of 50 percent.
    upstream.set_health("10.0.0.2:80", None, false).unwrap();
    assert_eq!(pick(&upstream), None);
    assert!(!upstream.status().healthy);
    upstream.set_health("10.0.0.2:80", None, true).unwrap();
    assert!(pick(&upstream).is_some());
}

#[test]
fn health_and_connections_survive_changes_that_keep_the_pair() {
    let before = draft(passive(1), THREE).build(None);
    let running = before
        .pick(0, PickInput::default(), &Tried::default())
        .unwrap();
    let busy = running.stay.member().peer.place.clone();
    before.set_health("10.0.0.2:80", None, false).unwrap();
    let changes = [
        draft(passive(1), &[THREE, &[("10.0.0.4:80", 100)]].concat()),
        draft(
            passive(1),
            &[
                ("10.0.0.3:80", 7),
                ("10.0.0.1:80", 100),
                ("10.0.0.2:80", 50),
            ],
        ),
        draft(passive(3), THREE),
    ];
    for change in &changes {
        let after = change.build(Some(&before));
        assert!(
            !picks(&after, 30)
                .iter()
                .any(|(target, _)| target == "10.0.0.2")
        );
        let peers = after.peers.load();
        for member in &peers.members {
            let expected = u32::from(member.peer.place == busy);
            assert_eq!(member.peer.connections(), expected);
        }
    }
    // The old upstream still gets the outcomes of its requests, and the new one shares that state.
    let after = changes[0].build(Some(&before));
    before.set_health("10.0.0.1:80", None, false).unwrap();
    assert_eq!(picks(&after, 30).len(), 2);
}

#[test]
fn an_unchanged_upstream_stays_the_same_one() {
    let before = draft(passive(1), THREE).build(None);
    let after = draft(passive(1), THREE).build(Some(&before));
    assert!(Arc::ptr_eq(&before, &after));
}

#[test]
fn a_target_that_is_taken_out_gets_nothing_new_while_its_requests_go_on() {
    let before = draft(passive(1), &[("10.0.0.1:80", 100)]).build(None);
    let running = before
        .pick(0, PickInput::default(), &Tried::default())
        .unwrap();
    let drained = draft(passive(1), &[("10.0.0.1:80", 0), ("10.0.0.2:80", 1)]).build(Some(&before));
    assert_eq!(picks(&drained, 9), [("10.0.0.2".to_owned(), 9)]);
    let deleted = draft(passive(1), &[("10.0.0.2:80", 1)]).build(Some(&drained));
    assert_eq!(picks(&deleted, 9), [("10.0.0.2".to_owned(), 9)]);
    running.report(Status(200));
    assert_eq!(running.stay.member().peer.connections(), 1);
}

#[test]
fn unhealthy_targets_are_used_again_once_nothing_is_checked() {
    let before = draft(passive(1), THREE).build(None);
    before.set_health("10.0.0.2:80", None, false).unwrap();
    let unchecked = draft(json!({}), THREE).build(Some(&before));
    assert_eq!(picks(&unchecked, 30).len(), 3);
    let checked = draft(passive(1), THREE).build(Some(&unchecked));
    assert_eq!(picks(&checked, 30).len(), 3);
}

#[test]
fn the_host_header_of_the_upstream_replaces_the_name_of_the_target() {
    for (target, host_header, expected) in [
        ("10.0.0.1:80", json!(null), "10.0.0.1"),
        ("10.0.0.1:8080", json!(null), "10.0.0.1:8080"),
        ("10.0.0.1:80", json!("shop.test"), "shop.test"),
        ("10.0.0.1:443", json!("shop.test"), "shop.test:443"),
    ] {
        let target: &'static str = target;
        let upstream = draft(json!({"host_header": host_header}), &[(target, 1)]).build(None);
        assert_eq!(pick(&upstream).as_deref(), Some(expected), "{target}");
    }
}

#[test]
fn response_times_show_which_target_is_fast() {
    let targets = [("10.0.0.1:80", 100), ("10.0.0.2:80", 100)];
    let upstream = draft(json!({"algorithm": "latency"}), &targets).build(None);
    for member in &upstream.peers.load().members {
        let slow = &*member.peer.place.host == "10.0.0.1";
        let took = Duration::from_millis(if slow { 500 } else { 5 });
        let later = now() + Duration::from_secs(10);
        member.peer.latency.add(took, later);
    }
    assert_eq!(picks(&upstream, 50), [("10.0.0.2".to_owned(), 50)]);
    // A new target starts with the average latency of the others.
    let targets = [targets[0], targets[1], ("10.0.0.3:80", 100)];
    let upstream = draft(json!({"algorithm": "latency"}), &targets).build(Some(&upstream));
    let picked = picks(&upstream, 300);
    assert!(
        picked.iter().all(|(target, _)| target != "10.0.0.1"),
        "{picked:?}"
    );
}

#[test]
fn ten_thousand_targets_are_picked_among_and_shown() {
    let targets: Vec<(&'static str, u32)> = (0..10_000_u32)
        .map(|number| {
            let [_, _, high, low] = number.to_be_bytes();
            let target = format!("10.1.{high}.{low}:80");
            (&*Box::leak(target.into_boxed_str()), 100)
        })
        .collect();
    for algorithm in [
        "round-robin",
        "consistent-hashing",
        "least-connections",
        "latency",
    ] {
        let mut fields = passive(1);
        fields["algorithm"] = json!(algorithm);
        let upstream = draft(fields, &targets).build(None);
        upstream.set_health("10.1.0.7:80", None, false).unwrap();
        for _ in 0..100 {
            assert_ne!(pick(&upstream).unwrap(), "10.1.0.7");
        }
        assert_eq!(upstream.status().weight.available, 999_900);
    }
}
