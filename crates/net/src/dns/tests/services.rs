//! Tests how SRV records are resolved and used.

use super::script::{addresses, now, resolve, settings, shown, start, wait};
use crate::dns::answer::ResolveError;
use hickory_resolver::proto::rr::RecordType;

#[tokio::test(start_paused = true)]
async fn only_the_lowest_priority_is_used_with_port_and_weight_of_each() {
    let (resolver, script) = start(settings());
    script.set(
        "_http._tcp.a.test 60 SRV 1 10 8001 one.test\n_http._tcp.a.test 60 SRV 1 0 8002 two.test\n\
         _http._tcp.a.test 60 SRV 2 50 8003 three.test\n\
         one.test 60 A 10.0.0.1\ntwo.test 60 A 10.0.0.2\nthree.test 60 A 10.0.0.3",
    );
    let answer = resolve(&resolver.host("_http._tcp.a.test", 80))
        .await
        .unwrap();
    assert_eq!(shown(&answer), ["10.0.0.1:8001 10", "10.0.0.2:8002"]);
    let names: Vec<_> = answer.records.iter().map(|r| r.srv.as_deref()).collect();
    assert_eq!(names, [Some("one.test"), Some("two.test")]);
    assert!(answer.records.iter().all(|record| record.priority == 1));
    assert!(!script.asked().contains(&"three.test A".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn port_zero_is_that_of_the_service() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 SRV 0 5 0 b.test\nb.test 60 A 10.0.0.1");
    assert_eq!(
        addresses(&resolver.host("a.test", 8888)).await,
        ["10.0.0.1:8888 5"]
    );
}

#[tokio::test(start_paused = true)]
async fn every_address_of_a_target_is_used() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 SRV 0 5 1 b.test\nb.test 60 A 10.0.0.2\nb.test 60 A 10.0.0.1");
    let expected = ["10.0.0.1:1 5", "10.0.0.2:1 5"];
    assert_eq!(addresses(&resolver.host("a.test", 80)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_target_behind_an_alias_is_found() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 SRV 0 1 1 b.test\nb.test 60 CNAME c.test\nc.test 60 A 10.0.0.3");
    assert_eq!(
        addresses(&resolver.host("a.test", 80)).await,
        ["10.0.0.3:1"]
    );
}

#[tokio::test(start_paused = true)]
async fn addresses_in_the_same_message_spare_the_question() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 SRV 0 1 1 b.test");
    script.set_additionals("b.test 60 A 10.0.0.4\nother.test 60 A 10.6.6.6");
    assert_eq!(
        addresses(&resolver.host("a.test", 80)).await,
        ["10.0.0.4:1"]
    );
    assert_eq!(script.asked(), ["a.test SRV"]);
}

#[tokio::test(start_paused = true)]
async fn a_target_without_address_is_left_out_while_others_have_one() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 SRV 0 1 1 gone.test\na.test 60 SRV 0 1 1 b.test\nb.test 60 A 10.0.0.1");
    assert_eq!(
        addresses(&resolver.host("a.test", 80)).await,
        ["10.0.0.1:1"]
    );
    script.set("c.test 60 SRV 0 1 1 gone.test");
    let error = resolve(&resolver.host("c.test", 80)).await.unwrap_err();
    assert_eq!(error, ResolveError::NotFound);
}

/// With the target `.`, "the service is decidedly not available at this domain" (RFC 2782).
#[tokio::test(start_paused = true)]
async fn the_root_as_target_is_no_service() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 SRV 0 0 0 .");
    let error = resolve(&resolver.host("a.test", 80)).await.unwrap_err();
    assert_eq!(error, ResolveError::NotFound);
}

#[tokio::test(start_paused = true)]
async fn the_answer_lasts_as_long_as_its_shortest_part() {
    let (resolver, script) = start(settings());
    script.set("a.test 100 SRV 0 1 1 b.test\nb.test 10 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    script.set("b.test 10 A 10.0.0.2");
    script.asked();
    wait(10.0).await;
    assert_eq!(addresses(&host).await, ["10.0.0.2:1"]);
    assert_eq!(script.asked(), ["b.test A"]);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_be_asked_for_keeps_its_former_address() {
    let (resolver, script) = start(settings());
    script.set(
        "a.test 10 SRV 0 1 1 b.test\na.test 10 SRV 0 1 1 c.test\nb.test 10 A 10.0.0.1\nc.test 10 A 10.0.0.2",
    );
    let host = resolver.host("a.test", 80);
    let expected = ["10.0.0.1:1", "10.0.0.2:1"];
    assert_eq!(addresses(&host).await, expected);
    script.fail(
        "b.test",
        RecordType::A,
        ResolveError::Server(2, "server failure"),
    );
    for _ in 0..300 {
        wait(1.0).await;
        assert_ne!(now(&host), "wait");
    }
    assert_eq!(addresses(&host).await, expected);
}

#[tokio::test(start_paused = true)]
async fn turns_go_by_weight() {
    let (resolver, script) = start(settings());
    script.set("a.test 60 SRV 0 3 1 b.test\na.test 60 SRV 0 1 2 b.test\nb.test 60 A 10.0.0.1");
    let host = resolver.host("a.test", 80);
    addresses(&host).await;
    let turns: Vec<String> = (0..400).map(|_| super::script::now(&host)).collect();
    let heavy = turns.iter().filter(|turn| *turn == "10.0.0.1:1").count();
    assert_eq!(heavy, 300);
}
