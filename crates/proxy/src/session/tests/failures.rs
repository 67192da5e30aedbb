//! Upstreams that reset, stall or send malformed responses, and clients that disconnect.

use super::*;
use crate::session::Stop;
use std::time::Duration;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const BAD_GATEWAY: &str = "An invalid response was received from the upstream server";

/// Closes a connection with a reset.
pub(super) fn reset(peer: Peer) {
    socket2::SockRef::from(&peer.stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}

#[test]
fn nonsense_from_the_upstream_is_a_502_and_the_client_stays() {
    run(async {
        for nonsense in [
            "SSH-2.0-OpenSSH\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\n\n",
            "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        ] {
            let gateway = Setup::new(upstream(vec![answers(nonsense)]).await).start();
            let gateway = keep(gateway);
            let mut client = gateway.client().await;
            client.send(GET).await;
            let answer = client.answer().await;
            assert_eq!(status(&answer), "502", "{nonsense}");
            assert!(answer.contains(BAD_GATEWAY), "{answer}");
            assert!(
                header(&answer, "x-kong-upstream-latency").is_some(),
                "{answer}"
            );
            assert_eq!(header(&answer, "connection"), Some("keep-alive"));
        }
    });
}

#[test]
fn an_upstream_that_resets_every_time_is_tried_as_often_as_the_service_says() {
    run(async {
        let (count, counted) = tokio::sync::mpsc::unbounded_channel();
        let scripts = (0..10).map(|_| {
            let count = count.clone();
            script(move |mut peer: Peer| async move {
                peer.head().await;
                count.send(()).unwrap();
                reset(peer);
            })
        });
        let mut setup = Setup::new(upstream(scripts.collect()).await);
        setup.service.retries = 2;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "502");
        assert_eq!(counted.len(), 3);
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
            .await;
        assert_eq!(status(&client.answer().await), "502");
        assert_eq!(counted.len(), 4, "a POST that was sent is not sent again");
    });
}

#[test]
fn a_refused_connection_is_a_502() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = listener.local_addr().unwrap();
        drop(listener);
        let gateway = Setup::new(nobody).start();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
            .await;
        assert_eq!(status(&client.answer().await), "502");
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "502");
    });
}

/// A script that responds to one request, keeps the connection, and resets it when the next request arrives.
fn once_then_reset() -> Script {
    script(|mut peer: Peer| async move {
        peer.head().await;
        peer.send(OK).await;
        peer.head().await;
        reset(peer);
    })
}

#[test]
fn a_request_that_dies_on_a_reused_connection_is_sent_again() {
    run(async {
        let mut setup = Setup::new(upstream(vec![once_then_reset(), answers(OK)]).await);
        setup.service.retries = 0;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "200");
        client
            .send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
            .await;
        assert_eq!(status(&client.answer().await), "200");
    });
}

#[test]
fn a_post_that_dies_on_a_reused_connection_is_not_sent_again() {
    run(async {
        let gateway = Setup::new(upstream(vec![once_then_reset(), answers(OK)]).await).start();
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "200");
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
            .await;
        assert_eq!(status(&client.answer().await), "502");
    });
}

#[test]
fn an_answer_that_breaks_off_ends_the_clients_connection() {
    run(async {
        for partial in [
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        ] {
            let address = upstream(vec![script(move |mut peer: Peer| async move {
                peer.head().await;
                peer.send(partial).await;
            })])
            .await;
            let gateway = keep(Setup::new(address).start());
            let got = gateway.exchange(GET).await;
            assert!(
                status(&got) == "200" && !got.ends_with("0\r\n\r\n"),
                "{got}"
            );
        }
    });
}

#[test]
fn an_upstream_that_stalls_is_a_504_after_the_services_timeout() {
    run_paused(async {
        let stall = || {
            script(|mut peer: Peer| async move {
                peer.rest().await;
            })
        };
        let mut setup = Setup::new(upstream((0..3).map(|_| stall()).collect()).await);
        setup.service.read_timeout = 3000;
        setup.service.retries = 1;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        let start = tokio::time::Instant::now();
        client.send(GET).await;
        let answer = client.answer().await;
        assert_eq!(status(&answer), "504");
        assert!(
            answer.contains("The upstream server is timing out"),
            "{answer}"
        );
        assert_eq!(start.elapsed().as_secs(), 6, "two tries of three seconds");
    });
}

#[test]
fn an_upstream_that_stalls_within_its_answer_ends_the_connection() {
    run_paused(async {
        let address = upstream(vec![script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
                .await;
            peer.rest().await;
        })])
        .await;
        let gateway = Setup::new(address).start();
        let start = tokio::time::Instant::now();
        let got = gateway.exchange(GET).await;
        assert!(got.ends_with("abc"), "{got}");
        assert_eq!(start.elapsed().as_secs(), 60);
    });
}

#[test]
fn slow_clients_have_limits_for_head_body_and_idling() {
    run_paused(async {
        let gateway = Setup::new(upstream(vec![answers(OK), answers(OK)]).await).start();
        let start = tokio::time::Instant::now();
        let slow = gateway.exchange("GET / HTTP/1.1\r\nHost:").await;
        assert_eq!((status(&slow), start.elapsed().as_secs()), ("408", 60));
        let start = tokio::time::Instant::now();
        assert_eq!(gateway.exchange("").await, "");
        assert_eq!(start.elapsed().as_secs(), 60);
        let start = tokio::time::Instant::now();
        assert_eq!(status(&gateway.exchange(GET).await), "200");
        assert_eq!(start.elapsed().as_secs(), 75);
        let start = tokio::time::Instant::now();
        let body = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe";
        assert_eq!(status(&gateway.exchange(body).await), "408");
        assert_eq!(start.elapsed().as_secs(), 60);
    });
}

#[test]
fn a_client_that_stops_reading_is_disconnected_and_the_upstream_released() {
    run_paused(async {
        let (tell, told) = tokio::sync::oneshot::channel();
        let address = upstream(vec![script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
                .await;
            let part = vec![0; 65536];
            let mut sent = 0;
            while peer.stream.write_all(&part).await.is_ok() {
                sent += part.len();
            }
            tell.send(sent).unwrap();
        })])
        .await;
        let gateway = Setup::new(address).start();
        let mut client = gateway.client().await;
        client.send(GET).await;
        let sent = told.await.unwrap();
        assert!(sent < 100_000_000, "no more than the sockets hold: {sent}");
        drop(client);
    });
}

#[test]
fn a_client_that_disconnects_in_its_body_ends_the_upstream_connection() {
    run(async {
        let (tell, told) = tokio::sync::oneshot::channel();
        let address = upstream(vec![script(|mut peer: Peer| async move {
            peer.head().await;
            tell.send(peer.rest().await).unwrap();
        })])
        .await;
        let mut setup = Setup::new(address);
        setup.route.request_buffering = false;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
            .await;
        drop(client);
        assert_eq!(told.await.unwrap(), "abc");
    });
}

#[test]
fn a_half_closed_client_gets_its_answer() {
    run(async {
        let gateway = Setup::new(upstream(vec![answers(OK)]).await).start();
        let mut client = gateway.client().await;
        client.send(GET).await;
        client.stream.shutdown().await.unwrap();
        let got = client.rest().await;
        assert!(status(&got) == "200" && got.ends_with("ok"), "{got}");
    });
}

#[test]
fn a_drain_ends_idle_connections_and_lets_requests_end() {
    run(async {
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel::<()>();
        let slow = script(|mut peer: Peer| async move {
            peer.head().await;
            begin.send(()).unwrap();
            gone.await.unwrap();
            peer.send(OK).await;
        });
        let gateway = Setup::new(upstream(vec![slow, answers(OK)]).await).start();
        let (mut busy, mut idle) = (gateway.client().await, gateway.client().await);
        busy.send(GET).await;
        begun.await.unwrap();
        idle.send(GET).await;
        assert_eq!(status(&idle.answer().await), "200");
        gateway
            .stop
            .send(Stop::Drain(Duration::from_secs(10)))
            .unwrap();
        assert_eq!(idle.rest().await, "");
        go.send(()).unwrap();
        let got = busy.rest().await;
        assert_eq!(
            (status(&got), header(&got, "connection")),
            ("200", Some("close"))
        );
        gateway.done.await.unwrap().unwrap();
    });
}

#[test]
fn a_drain_has_an_end() {
    run_paused(async {
        let stall = script(|mut peer: Peer| async move {
            peer.rest().await;
        });
        let gateway = Setup::new(upstream(vec![stall]).await).start();
        let mut busy = gateway.client().await;
        busy.send(GET).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let start = tokio::time::Instant::now();
        gateway
            .stop
            .send(Stop::Drain(Duration::from_secs(10)))
            .unwrap();
        gateway.done.await.unwrap().unwrap();
        assert_eq!(start.elapsed().as_secs(), 10);
        assert_eq!(busy.rest().await, "");
    });
}
