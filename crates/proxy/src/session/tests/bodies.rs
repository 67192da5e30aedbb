//! Bodies in both directions, in every framing.

use super::*;

const LARGE: usize = 8 * 1024 * 1024;

/// A gateway that forwards request bodies as they arrive.
fn streaming(upstream: SocketAddr) -> Setup {
    let mut setup = Setup::new(upstream);
    setup.route.request_buffering = false;
    setup
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 % 251) as u8).collect()
}

#[test]
fn large_bodies_stream_both_ways() {
    run(async {
        let address = upstream(vec![script(|mut peer| async move {
            let head = peer.head().await;
            assert_eq!(header(&head, "content-length"), Some("8388608"));
            let body = peer.take(LARGE).await;
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n"
            ))
            .await;
            peer.send(body).await;
        })])
        .await;
        let gateway = Setup::new(address).start();
        let mut client = gateway.client().await;
        let body = pattern(LARGE);
        client
            .send(format!(
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n"
            ))
            .await;
        client.send(&body).await;
        client.head().await;
        assert!(client.take(LARGE).await == body);
    });
}

#[test]
fn an_echo_that_starts_before_the_end_of_the_request_is_relayed_as_it_comes() {
    run(async {
        let address = upstream(vec![script(|mut peer| async move {
            peer.head().await;
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n"
            ))
            .await;
            for _ in 0..LARGE / 65536 {
                let part = peer.take(65536).await;
                peer.send(part).await;
            }
        })])
        .await;
        let gateway = streaming(address).start();
        let (mut reader, mut writer) = gateway.client().await.stream.into_split();
        let body = pattern(LARGE);
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n");
        let sent = body.clone();
        let sending = tokio::task::spawn_local(async move {
            writer.write_all(head.as_bytes()).await.unwrap();
            writer.write_all(&sent).await.unwrap();
            writer
        });
        let mut got = Vec::new();
        reader.read_to_end(&mut got).await.unwrap();
        let start = memchr::memmem::find(&got, b"\r\n\r\n").unwrap() + 4;
        assert!(got[start..] == body);
        sending.await.unwrap();
    });
}

#[test]
fn a_small_chunked_request_gets_a_length() {
    run(async {
        let address = upstream(vec![script(|mut peer| async move {
            let head = peer.head().await;
            assert_eq!(header(&head, "content-length"), Some("7"));
            assert_eq!(header(&head, "transfer-encoding"), None);
            assert_eq!(peer.take(7).await, b"hello77");
            peer.send(OK).await;
        })])
        .await;
        let gateway = Setup::new(address).start();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")
            .await;
        client
            .send("lo\r\n2\r\n77\r\n0\r\nTrailer: x\r\n\r\n")
            .await;
        assert_eq!(status(&client.answer().await), "200");
    });
}

#[test]
fn chunks_and_trailers_stream_through_where_requests_are_not_buffered() {
    run(async {
        let body = "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n";
        let address = upstream(vec![script(move |mut peer| async move {
            let head = peer.head().await;
            assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
            assert_eq!(peer.until("X-Sum: 1\r\n\r\n").await, body);
            peer.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\na",
            )
            .await;
            peer.send("bc\r\n0\r\nX-Sum: 2\r\n\r\n").await;
            peer.rest().await;
        })])
        .await;
        let mut setup = Setup::new(address);
        setup.route.request_buffering = false;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe").await;
        client.send("llo\r\n0\r\nX-Sum: 1\r\n\r\n").await;
        let head = client.head().await;
        assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
        assert_eq!(header(&head, "trailer"), Some("X-Sum"));
        assert_eq!(
            client.until("X-Sum: 2\r\n\r\n").await,
            "3\r\nabc\r\n0\r\nX-Sum: 2\r\n\r\n"
        );
        assert_eq!(gateway.plane.totals().requests, 1);
    });
}

#[test]
fn a_chunked_body_that_is_too_large_for_memory_streams() {
    run(async {
        let address = upstream(vec![script(|mut peer| async move {
            let head = peer.head().await;
            assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
            peer.until("\r\n0\r\n\r\n").await;
            peer.send(OK).await;
        })])
        .await;
        let mut setup = Setup::new(address);
        setup.settings.plugin_body = 1000;
        setup.settings.body_memory = 16_000;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client
            .send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        for _ in 0..100 {
            client.send(format!("64\r\n{}\r\n", "x".repeat(100))).await;
        }
        client.send("0\r\n\r\n").await;
        assert_eq!(status(&client.answer().await), "200");
    });
}

#[test]
fn a_client_that_waits_gets_100_continue() {
    run(async {
        let address = upstream(vec![script(|mut peer| async move {
            let head = peer.head().await;
            assert_eq!(header(&head, "expect"), None);
            assert_eq!(peer.take(5).await, b"hello");
            peer.send(OK).await;
            peer.rest().await;
        })])
        .await;
        let gateway = Setup::new(address).start();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            .await;
        assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
        client.send("hello").await;
        assert_eq!(status(&client.answer().await), "200");
    });
}

#[test]
fn a_refused_client_gets_no_100_continue() {
    run(async {
        let mut setup = Setup::new(([127, 0, 0, 1], 1).into());
        setup.route.service = None;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            .await;
        let answer = client.answer().await;
        assert_eq!(
            (status(&answer), header(&answer, "connection")),
            ("503", Some("close"))
        );
    });
}

#[test]
fn answers_without_body_end_at_their_head() {
    run(async {
        for (method, answer) in [
            ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
            (
                "HEAD",
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            ),
            ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
            (
                "GET",
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            ),
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ] {
            let gateway = keep(Setup::new(upstream(vec![answers(answer)]).await).start());
            let mut client = gateway.client().await;
            for _ in 0..2 {
                client
                    .send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"))
                    .await;
                let head = client.head().await;
                assert_eq!(status(&head), status(answer));
                let length = header(answer, "content-length");
                assert_eq!(header(&head, "content-length"), length, "{answer}");
            }
        }
    });
}

#[test]
fn interim_answers_are_passed_on_but_not_100() {
    run(async {
        let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let gateway = Setup::new(upstream(vec![answers(answer), answers(answer)]).await).start();
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(
            client.head().await,
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        );
        assert_eq!(status(&client.answer().await), "200");
        let old = gateway.exchange("GET / HTTP/1.0\r\n\r\n").await;
        assert_eq!(status(&old), "200");
    });
}

#[test]
fn an_old_client_gets_no_chunks() {
    run(async {
        let answer =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let gateway = Setup::new(upstream(vec![answers(answer)]).await).start();
        let got = gateway
            .exchange("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            .await;
        assert!(got.ends_with("\r\n\r\nabcde"), "{got}");
        assert_eq!(header(&got, "transfer-encoding"), None);
        assert_eq!(header(&got, "connection"), Some("close"));
    });
}

#[test]
fn a_body_that_ends_by_closing_becomes_chunks() {
    run(async {
        let close = || {
            script(|mut peer: Peer| async move {
                peer.head().await;
                peer.send("HTTP/1.1 200 OK\r\n\r\nabc").await;
                peer.send("").await;
            })
        };
        let gateway = Setup::new(upstream(vec![close(), close()]).await).start();
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            let head = client.head().await;
            assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
            assert_eq!(client.until("\r\n0\r\n\r\n").await, "3\r\nabc\r\n0\r\n\r\n");
        }
    });
}

#[test]
fn an_answer_before_the_end_of_the_request_ends_the_connection() {
    run(async {
        let address = upstream(vec![script(|mut peer| async move {
            peer.head().await;
            peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
                .await;
            peer.rest().await;
        })])
        .await;
        let gateway = streaming(address).start();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
            .await;
        let answer = client.answer().await;
        assert_eq!(
            (status(&answer), header(&answer, "connection")),
            ("413", Some("close"))
        );
    });
}
