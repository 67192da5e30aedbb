//! WebSockets: which requests can open one, the heads of the handshake, and how a tunnel ends.

use super::*;
use std::time::Duration;
use tokio::time::{Instant, timeout};

pub(super) const ASK: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
pub(super) const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// An upstream that switches protocols, and then runs `then`.
fn switching<F: Future<Output = ()> + 'static>(then: impl FnOnce(Peer) -> F + 'static) -> Script {
    script(|mut peer: Peer| async move {
        peer.head().await;
        peer.send(SWITCH).await;
        then(peer).await;
    })
}

async fn open(gateway: &Gateway) -> Peer {
    let mut client = gateway.client().await;
    client.send(ASK).await;
    assert_eq!(status(&client.head().await), "101");
    client
}

#[test]
fn the_handshake_passes_as_it_is() {
    run(async {
        let seen = Rc::new(RefCell::new(String::new()));
        let kept = seen.clone();
        let upstream = upstream(vec![script(|mut peer: Peer| async move {
            *kept.borrow_mut() = peer.head().await;
            peer.send(SWITCH).await;
            peer.rest().await;
        })])
        .await;
        let gateway = Setup::new(upstream).start();
        let mut client = gateway.client().await;
        client
            .send(ASK.replace("websocket", "WebSocket").replace(
                "Connection: Upgrade",
                "Connection: keep-alive, Upgrade\r\nSec-WebSocket-Protocol: chat, v2\r\n\
                 Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
            ))
            .await;
        let head = client.head().await;
        assert!(
            head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"),
            "{head}"
        );
        for (name, value) in [
            ("connection", Some("upgrade")),
            ("upgrade", Some("websocket")),
            ("sec-websocket-accept", Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")),
            ("via", Some("1.1 kong/3.9.1")),
            ("server", Some("kong/3.9.1")),
            ("content-length", None),
            ("transfer-encoding", None),
        ] {
            assert_eq!(header(&head, name), value, "{name}: {head}");
        }
        for name in [
            "x-kong-request-id",
            "x-kong-upstream-latency",
            "x-kong-proxy-latency",
        ] {
            assert!(header(&head, name).is_some(), "{name}: {head}");
        }
        let seen = seen.borrow();
        for (name, value) in [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "chat, v2"),
            (
                "sec-websocket-extensions",
                "permessage-deflate; client_max_window_bits",
            ),
        ] {
            assert_eq!(header(&seen, name), Some(value), "{name}: {seen}");
        }
    });
}

#[test]
fn an_invalid_websocket_request_is_forwarded_without_upgrade() {
    run(async {
        for lines in [
            // The gateway ignores this `Upgrade` header, because `Connection` does not name it.
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Connection: Upgrade\r\nUpgrade: h2c",
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
            "Connection: Upgrade\r\nUpgrade: websocket, h2c",
            "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c",
            "Connection: Upgrade\r\nUpgrade: websocket/13",
            "Connection: Upgrade\r\nUpgrade: TLS/1.3",
        ] {
            let seen = Rc::new(RefCell::new(String::new()));
            let kept = seen.clone();
            let upstream = upstream(vec![script(|mut peer: Peer| async move {
                *kept.borrow_mut() = peer.head().await;
                peer.send(OK).await;
                peer.rest().await;
            })])
            .await;
            let gateway = keep(Setup::new(upstream).start());
            let mut client = gateway.client().await;
            client
                .send(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n"))
                .await;
            assert_eq!(status(&client.answer().await), "200", "{lines}");
            let seen = seen.borrow();
            assert_eq!(header(&seen, "upgrade"), None, "{lines}");
            assert_eq!(header(&seen, "connection"), Some("keep-alive"), "{lines}");
            assert_eq!(header(&seen, "http2-settings"), None, "{lines}");
        }
    });
}

#[test]
fn a_switch_that_nobody_asked_for_is_an_error() {
    run(async {
        let old = ASK.replace("HTTP/1.1", "HTTP/1.0");
        let posted = ASK.replace("GET", "POST").replace(
            "Host: a",
            "Host: a\r\nExpect: 100-continue\r\nContent-Length: 9",
        );
        for (request, answer) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", SWITCH),
            (&*old, SWITCH),
            (
                ASK,
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
            ),
            (
                ASK,
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n",
            ),
            // Here the upstream switches before the client has sent the request's body.
            (&posted, SWITCH),
        ] {
            let upstream = upstream(vec![script(move |mut peer: Peer| async move {
                peer.head().await;
                peer.send(answer).await;
                peer.rest().await;
            })])
            .await;
            let gateway = keep(Setup::new(upstream).start());
            let mut client = gateway.client().await;
            client.send(request).await;
            let mut head = client.head().await;
            if status(&head) == "100" {
                head = client.head().await;
            }
            assert_eq!(status(&head), "502", "{request}{answer}");
        }
    });
}

#[test]
fn another_response_is_forwarded_and_the_connection_is_kept() {
    run(async {
        let refusal = "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
            Content-Length: 2\r\n\r\nno";
        let gateway = Setup::new(upstream(vec![answers(refusal)]).await).start();
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(ASK).await;
            let answer = client.answer().await;
            assert_eq!(
                (status(&answer), header(&answer, "connection")),
                ("426", Some("keep-alive"))
            );
            assert!(answer.ends_with("no"), "{answer}");
        }
    });
}

#[test]
fn bytes_that_came_with_the_request_or_the_switch_are_not_lost() {
    run(async {
        let upstream = upstream(vec![script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send(format!("{SWITCH}first")).await;
            assert_eq!(peer.take(5).await, b"early");
            peer.send("second").await;
            peer.rest().await;
        })])
        .await;
        let gateway = Setup::new(upstream).start();
        let mut client = gateway.client().await;
        client.send(format!("{ASK}early")).await;
        client.head().await;
        assert_eq!(client.take(11).await, b"firstsecond");
    });
}

#[test]
fn the_end_of_either_side_is_passed_on_and_the_other_goes_on() {
    run(async {
        let upstream = upstream(vec![
            switching(|mut peer| async move {
                assert_eq!(peer.rest().await, "all I had");
                peer.send("thanks").await;
            }),
            switching(|mut peer| async move {
                peer.send("all I had").await;
                peer.stream.shutdown().await.unwrap();
                assert_eq!(peer.rest().await, "thanks");
            }),
        ])
        .await;
        let gateway = Setup::new(upstream).start();
        let mut client = open(&gateway).await;
        client.send("all I had").await;
        client.stream.shutdown().await.unwrap();
        assert_eq!(client.rest().await, "thanks");
        let mut client = open(&gateway).await;
        assert_eq!(client.rest().await, "all I had");
        client.send("thanks").await;
    });
}

#[test]
fn a_reset_of_either_side_ends_the_other() {
    run(async {
        let (told, heard) = tokio::sync::oneshot::channel();
        let upstream = upstream(vec![
            switching(|mut peer| async move {
                let _ = told.send(peer.rest().await);
            }),
            switching(|peer| async move {
                peer.stream.set_zero_linger().unwrap();
            }),
        ])
        .await;
        let gateway = Setup::new(upstream).start();
        let client = open(&gateway).await;
        client.stream.set_zero_linger().unwrap();
        drop(client);
        assert_eq!(heard.await.unwrap(), "");
        let mut client = open(&gateway).await;
        assert_eq!(client.rest().await, "");
    });
}

#[test]
fn a_tunnel_without_traffic_ends_after_the_read_timeout() {
    run_paused(async {
        let upstream = upstream(vec![switching(|mut peer| async move {
            // Traffic in one direction keeps the tunnel open.
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(3)).await;
                peer.send("x").await;
            }
            peer.rest().await;
        })])
        .await;
        let mut setup = Setup::new(upstream);
        setup.service.read_timeout = 4000;
        let gateway = setup.start();
        let mut client = open(&gateway).await;
        let start = Instant::now();
        assert_eq!(client.rest().await, "xxxxx");
        assert_eq!(start.elapsed().as_secs(), 19);
    });
}

/// Sends until the receiver's buffers are full, then waits for the end. Returns the number of bytes sent.
async fn stuff(peer: &mut Peer) -> usize {
    let (mut sent, block) = (0, vec![b'x'; 64 * 1024]);
    while let Ok(written) = peer.stream.write(&block).await {
        sent += written;
    }
    sent
}

#[test]
fn a_side_that_receives_nothing_ends_the_tunnel() {
    run_paused(async {
        let (told, heard) = tokio::sync::oneshot::channel();
        let upstream = upstream(vec![
            switching(|mut peer| async move {
                let _ = told.send(stuff(&mut peer).await);
            }),
            switching(|peer| async move {
                std::future::pending::<()>().await;
                drop(peer);
            }),
        ])
        .await;
        let mut setup = Setup::new(upstream);
        setup.settings.send_timeout = Duration::from_secs(7);
        setup.service.write_timeout = 3000;
        let gateway = setup.start();
        let client = open(&gateway).await;
        let start = Instant::now();
        // The system's buffers and one read buffer of the gateway fill up. The gateway does not buffer more.
        assert!(heard.await.unwrap() < 64 << 20);
        assert_eq!(start.elapsed().as_secs(), 7);
        drop(client);
        let mut client = open(&gateway).await;
        let start = Instant::now();
        assert!(stuff(&mut client).await < 64 << 20);
        assert_eq!(start.elapsed().as_secs(), 3);
    });
}

#[test]
fn a_drain_ends_tunnels_at_its_time_limit() {
    run_paused(async {
        let echo = || {
            switching(|mut peer| async move {
                loop {
                    let text = peer.take(1).await;
                    peer.send(text).await;
                }
            })
        };
        let gateway = Setup::new(upstream(vec![echo(), echo()]).await).start();
        let (mut one, mut two) = (open(&gateway).await, open(&gateway).await);
        let start = Instant::now();
        gateway
            .stop
            .send(Stop::Drain(Duration::from_secs(30)))
            .unwrap();
        tokio::time::sleep(Duration::from_secs(20)).await;
        for client in [&mut one, &mut two] {
            client.send("x").await;
            assert_eq!(client.take(1).await, b"x");
        }
        assert_eq!((one.rest().await, two.rest().await), ("".into(), "".into()));
        assert_eq!(start.elapsed().as_secs(), 30);
        assert_eq!(gateway.plane.totals().active(), 0);
    });
}

#[test]
fn a_tunnels_connection_is_not_reused() {
    run(async {
        let upstream = upstream(vec![
            switching(|mut peer| async move {
                peer.stream.shutdown().await.unwrap();
                peer.rest().await;
            }),
            answers(OK),
        ])
        .await;
        let gateway = Setup::new(upstream).start();
        let mut client = open(&gateway).await;
        client.stream.shutdown().await.unwrap();
        let rest = timeout(Duration::from_secs(5), client.rest()).await;
        assert_eq!(rest.unwrap(), "");
        let got = gateway
            .exchange("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await;
        assert_eq!(status(&got), "200");
    });
}
