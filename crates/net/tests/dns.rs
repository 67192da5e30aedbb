//! Tests of the resolver with a name server over real sockets: transports, malformed and adversarial messages.

use net::dns::{DnsAnswer, DnsSettings, LookupKind, ResolveError, Resolver};
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::NameServer;
use testkit::dns::{Question, encoded};

const LIMIT: Duration = Duration::from_secs(20);

/// Creates a resolver for these servers, with a timeout of one second and one attempt.
fn start(servers: &[SocketAddr], options: &str) -> (Resolver, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("the temporary directory can be created");
    let resolv_conf = folder.path().join("resolv.conf");
    let options = format!("options timeout:1 attempts:1 {options}\n");
    fs::write(&resolv_conf, options).expect("resolv.conf can be written");
    let (resolver, background) = Resolver::new(DnsSettings {
        servers: servers.to_vec(),
        resolv_conf,
        hosts_file: folder.path().join("hosts"),
        order: vec![LookupKind::A],
        ..DnsSettings::default()
    });
    tokio::spawn(background.run());
    (resolver, folder)
}

async fn resolve(resolver: &Resolver, name: &str) -> Result<Arc<DnsAnswer>, ResolveError> {
    resolver.host(name, 80).resolved(LIMIT).await
}

fn addresses(answer: &DnsAnswer) -> Vec<String> {
    let records = answer.records.iter();
    records.map(|record| record.address.to_string()).collect()
}

/// Resolves a name whose correct response is 10.0.0.1, from a server that behaves as given.
async fn under(
    behaviour: impl Fn(&Question, Vec<u8>) -> Vec<Vec<u8>> + Send + Sync + 'static,
) -> Result<Vec<String>, ResolveError> {
    let server = NameServer::start();
    server.set("a.test 60 A 10.0.0.1");
    server.behave(behaviour);
    let (resolver, _folder) = start(&[server.address], "");
    resolve(&resolver, "a.test")
        .await
        .map(|answer| addresses(&answer))
}

#[tokio::test]
async fn records_of_all_kinds_come_over_the_wire() {
    let server = NameServer::start();
    server.set(
        "a.test 60 SRV 0 5 8080 b.test\nb.test 60 CNAME c.test\nc.test 60 A 10.0.0.1\nc.test 60 A 10.0.0.2\n\
         d.test 60 AAAA fd00::1",
    );
    let (resolver, background) = Resolver::new(DnsSettings {
        servers: vec![server.address],
        resolv_conf: "/nonexistent".into(),
        order: vec![
            LookupKind::Last,
            LookupKind::Srv,
            LookupKind::A,
            LookupKind::Aaaa,
        ],
        ..DnsSettings::default()
    });
    tokio::spawn(background.run());
    let answer = resolve(&resolver, "A.test").await.unwrap();
    assert_eq!(addresses(&answer), ["10.0.0.1:8080", "10.0.0.2:8080"]);
    assert_eq!(answer.records[0].weight, 5);
    let answer = resolve(&resolver, "d.test.").await.unwrap();
    assert_eq!(addresses(&answer), ["[fd00::1]:80"]);
    let missing = resolve(&resolver, "missing.test").await;
    assert_eq!(missing.unwrap_err(), ResolveError::NotFound);
}

#[tokio::test]
async fn a_response_too_large_for_a_datagram_comes_over_tcp() {
    let server = NameServer::start();
    let zone: Vec<String> = (1..=200)
        .map(|n| format!("a.test 60 A 10.0.1.{n}"))
        .collect();
    server.set(&zone.join("\n"));
    server.behave(|question, right| {
        if question.over_tcp {
            vec![right]
        } else {
            vec![question.truncated()]
        }
    });
    let (resolver, _folder) = start(&[server.address], "");
    let answer = resolve(&resolver, "a.test").await.unwrap();
    assert_eq!(answer.records.len(), 200);
}

#[tokio::test]
async fn truncation_without_end_is_an_error() {
    let got = under(|question, _| vec![question.truncated()]).await;
    assert!(got.is_err(), "{got:?}");
}

#[tokio::test]
async fn a_server_that_does_not_know_edns_is_asked_without() {
    let got = under(|question, right| {
        if question.edns {
            vec![question.reply(1, &[])]
        } else {
            vec![right]
        }
    });
    assert_eq!(got.await.unwrap(), ["10.0.0.1:80"]);
}

#[tokio::test]
async fn a_lost_datagram_is_sent_again() {
    let lost = AtomicBool::new(false);
    let got = under(move |_, right| {
        if lost.swap(true, Ordering::SeqCst) {
            vec![right]
        } else {
            Vec::new()
        }
    });
    assert_eq!(got.await.unwrap(), ["10.0.0.1:80"]);
}

#[tokio::test]
async fn answers_with_another_id_are_passed_over() {
    let forged = |question: &Question, right: Vec<u8>| {
        let mut forged = question.reply(0, &[encoded("a.test 60 A 10.6.6.6")]);
        let id = question.id.wrapping_add(1);
        forged[..2].copy_from_slice(&id.to_be_bytes());
        vec![forged.clone(), forged, right]
    };
    assert_eq!(under(forged).await.unwrap(), ["10.0.0.1:80"]);
}

#[tokio::test]
async fn answers_to_another_question_are_passed_over() {
    let forged = |question: &Question, right: Vec<u8>| {
        let mut forged = question.reply(0, &[encoded("a.test 60 A 10.6.6.6")]);
        // The first letter of the name in the query.
        forged[13] = b'x';
        vec![forged, right]
    };
    assert_eq!(under(forged).await.unwrap(), ["10.0.0.1:80"]);
}

#[tokio::test]
async fn records_that_were_not_asked_for_do_not_count() {
    let got = under(|question, _| {
        let foreign = ["evil.test 60 A 10.6.6.6", "a.test 60 AAAA fd00::6"];
        vec![question.reply(0, &foreign.map(encoded))]
    });
    assert_eq!(got.await.unwrap_err(), ResolveError::NotFound);
}

#[tokio::test]
async fn malformed_answers_are_errors_and_nothing_worse() {
    // In this order: names with a pointer to itself, with a pointer past the end, and without end; records that are cut
    // off or too short; and no record at all.
    let tails: [&[u8]; 6] = [
        &[0xc0, 24, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 1],
        &[0xff, 0xff, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 1],
        &[63; 200],
        &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0xff, 0xff, 10],
        &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 3, 10, 0, 0],
        &[],
    ];
    for tail in tails {
        let tail = tail.to_vec();
        let got = under(move |question, _| {
            let mut message = question.reply(0, &[]);
            // The header announces one record and no EDNS record after it.
            message.truncate(message.len() - if question.edns { 11 } else { 0 });
            message[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
            message.extend(&tail);
            vec![message]
        });
        assert!(got.await.is_err());
    }
}

#[tokio::test]
async fn noise_before_an_answer_does_not_hide_it() {
    let noise = |_: &Question, right: Vec<u8>| vec![Vec::new(), vec![1], vec![0xff; 512], right];
    assert_eq!(under(noise).await.unwrap(), ["10.0.0.1:80"]);
}

#[tokio::test]
async fn response_codes_are_reported_as_in_kong() {
    for (code, text) in [
        (1, "dns server error: 1 format error"),
        (2, "dns server error: 2 server failure"),
        (4, "dns server error: 4 not implemented"),
        (5, "dns server error: 5 refused"),
    ] {
        let got = under(move |question, _| vec![question.reply(code, &[])]).await;
        assert_eq!(got.unwrap_err().to_string(), text);
    }
    let got = under(|question, _| vec![question.reply(3, &[])]).await;
    assert_eq!(got.unwrap_err(), ResolveError::NotFound);
}

#[tokio::test]
async fn a_silent_server_is_an_error_within_its_time() {
    let started = Instant::now();
    let got = under(|_, _| Vec::new()).await;
    assert_eq!(got.unwrap_err(), ResolveError::Timeout);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn the_next_server_answers_when_one_does_not_and_a_silent_one_comes_last_then() {
    let servers = [(); 3].map(|()| NameServer::start());
    let [silent, failing, good] = &servers;
    silent.go_silent();
    failing.fail(2);
    good.set("a.test 60 A 10.0.0.1\nb.test 60 A 10.0.0.2");
    let (resolver, _folder) = start(&servers.each_ref().map(|server| server.address), "");
    let answer = resolve(&resolver, "a.test").await.unwrap();
    assert_eq!(addresses(&answer), ["10.0.0.1:80"]);
    assert!(!silent.asked().is_empty() && !failing.asked().is_empty());
    let answer = resolve(&resolver, "b.test").await.unwrap();
    assert_eq!(addresses(&answer), ["10.0.0.2:80"]);
    assert!(silent.asked().is_empty() && !failing.asked().is_empty());
}

#[tokio::test]
async fn with_rotate_the_servers_take_turns() {
    let servers = [(); 2].map(|()| NameServer::start());
    for server in &servers {
        server.set("a.test 60 A 10.0.0.1\nb.test 60 A 10.0.0.1");
    }
    let (resolver, _folder) = start(&servers.each_ref().map(|server| server.address), "rotate");
    for name in ["a.test", "b.test"] {
        resolve(&resolver, name).await.unwrap();
    }
    assert_eq!(servers.map(|server| server.asked().len()), [1, 1]);
}

#[tokio::test]
async fn without_name_servers_names_are_unknown_and_addresses_are_not() {
    let (resolver, _folder) = start(&[], "");
    let got = resolve(&resolver, "a.test").await;
    assert_eq!(got.unwrap_err(), ResolveError::NoServers);
    let local = resolve(&resolver, "localhost").await.unwrap();
    assert_eq!(addresses(&local), ["127.0.0.1:80"]);
}
