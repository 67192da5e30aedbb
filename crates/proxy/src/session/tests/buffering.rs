//! Buffering in both directions. The upstream gets a request once its body has arrived, and is released while a slow
//! client still receives the response. Bodies beyond the memory limits are streamed.

use super::*;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 % 251) as u8).collect()
}

/// A script that reports its first request's head and body, and responds.
fn telling(tell: oneshot::Sender<(String, Vec<u8>)>) -> Script {
    script(|mut peer: Peer| async move {
        let head = peer.head().await;
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        let body = peer.take(length).await;
        let _ = tell.send((head, body));
        peer.send(OK).await;
        peer.rest().await;
    })
}

#[test]
fn the_upstream_gets_a_request_when_its_body_is_complete() {
    run_paused(async {
        let (tell, mut told) = oneshot::channel();
        let gateway = Setup::new(upstream(vec![telling(tell)]).await).start();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
            .await;
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(told.try_recv().is_err());
            client.send("ab").await;
        }
        let answer = client.answer().await;
        assert_eq!(status(&answer), "200");
        // The time of the upload counts as the gateway's, not as the upstream's.
        assert_eq!(header(&answer, "x-kong-upstream-latency"), Some("0"));
        assert_eq!(header(&answer, "x-kong-proxy-latency"), Some("25000"));
        let (head, body) = told.await.unwrap();
        assert_eq!(header(&head, "content-length"), Some("10"));
        assert_eq!(body, b"ababababab");
        assert_eq!(gateway.plane.body_memory.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn unbuffered_requests_are_forwarded_at_once() {
    run(async {
        let grpc = "Content-Type: application/grpc+proto\r\n";
        for (buffering, lines, size) in [
            (false, "", 10),
            (true, grpc, 10),
            // This body is larger than the limit for one body in memory.
            (true, "", 1001),
        ] {
            let (tell, told) = oneshot::channel();
            let upstream = upstream(vec![script(|mut peer: Peer| async move {
                tell.send(peer.head().await).unwrap();
                peer.take(2).await;
                peer.send(OK).await;
                peer.rest().await;
            })])
            .await;
            let mut setup = Setup::new(upstream);
            setup.route.request_buffering = buffering;
            setup.settings.plugin_body = 1000;
            setup.settings.body_memory = 16_000;
            let gateway = keep(setup.start());
            let mut client = gateway.client().await;
            client
                .send(format!(
                    "POST / HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: {size}\r\n\r\nab"
                ))
                .await;
            let head = told.await.unwrap();
            assert_eq!(header(&head, "content-length"), Some(&*size.to_string()));
            assert_eq!(status(&client.answer().await), "200");
        }
    });
}

#[test]
fn bodies_beyond_the_memory_of_the_node_stream() {
    run_paused(async {
        let (tell, mut told) = oneshot::channel();
        let (tell_next, told_next) = oneshot::channel();
        let upstream = upstream(vec![telling(tell_next), telling(tell)]).await;
        let mut setup = Setup::new(upstream);
        setup.settings.body_memory = 1000;
        setup.settings.pool.size = 0;
        let gateway = setup.start();
        let ask = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n";
        let (mut one, mut two) = (gateway.client().await, gateway.client().await);
        one.send(format!("{ask}{}", "x".repeat(800))).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        two.send(format!("{ask}{}", "x".repeat(800))).await;
        two.send("y".repeat(100)).await;
        assert_eq!(status(&two.answer().await), "200");
        assert_eq!(told_next.await.unwrap().1.len(), 900);
        assert!(
            told.try_recv().is_err(),
            "the gateway still holds the first body"
        );
        one.send("y".repeat(100)).await;
        assert_eq!(status(&one.answer().await), "200");
        assert_eq!(told.await.unwrap().1.len(), 900);
        assert_eq!(gateway.plane.body_memory.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_held_body_can_be_sent_again() {
    run(async {
        for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
            let (tell, told) = oneshot::channel();
            let dead = script(|mut peer: Peer| async move {
                peer.head().await;
                peer.take(5).await;
            });
            let gateway = keep(Setup::new(upstream(vec![dead, telling(tell)]).await).start());
            let mut client = gateway.client().await;
            client
                .send(format!("PUT / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"))
                .await;
            tokio::task::yield_now().await;
            if framing.starts_with('C') {
                client.send("hello").await;
            } else {
                client.send("2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n").await;
            }
            assert_eq!(status(&client.answer().await), "200");
            assert_eq!(told.await.unwrap().1, b"hello");
        }
    });
}

#[test]
fn a_failed_body_is_refused_without_contacting_the_upstream() {
    run_paused(async {
        let (tell, mut told) = oneshot::channel();
        let mut setup = Setup::new(upstream(vec![telling(tell)]).await);
        setup.settings.max_body = 100;
        let gateway = setup.start();
        for (request, expected) in [
            ("Content-Length: 5\r\n\r\nhe".to_owned(), "408"),
            (
                "Transfer-Encoding: chunked\r\n\r\n5\r\nhellooo\r\n".to_owned(),
                "400",
            ),
            (
                format!(
                    "Transfer-Encoding: chunked\r\n\r\n65\r\n{}\r\n0\r\n\r\n",
                    "x".repeat(101)
                ),
                "413",
            ),
        ] {
            let got = gateway
                .exchange(&format!("POST / HTTP/1.1\r\nHost: a\r\n{request}"))
                .await;
            assert_eq!(status(&got), expected, "{request}");
        }
        assert!(told.try_recv().is_err());
        // Chunk framing does not count against `max_body`, so a hundred chunks of one byte are allowed.
        let chunks = "1\r\nx\r\n".repeat(100);
        let mut client = gateway.client().await;
        client
            .send(format!(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
            ))
            .await;
        assert_eq!(status(&client.answer().await), "200");
    });
}

/// A script that sends `body` as its first response, and reports when the gateway has received all of it.
fn sending(body: Vec<u8>, tell: oneshot::Sender<()>) -> Script {
    script(move |mut peer: Peer| async move {
        peer.head().await;
        peer.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ))
        .await;
        peer.send(&body).await;
        // The next request arrives only when the gateway has the whole response.
        peer.head().await;
        let _ = tell.send(());
        peer.send(OK).await;
        while peer.head_or_end().await.is_some() {
            peer.send(OK).await;
        }
    })
}

/// More bytes than socket buffers hold.
const LARGE: usize = 24 << 20;

/// Runs a client that does not read its response for a while. Returns whether the upstream connection was meanwhile
/// free for another client's request.
fn is_read_ahead(setup: impl FnOnce(&mut Setup)) -> bool {
    let (send, receive) = std::sync::mpsc::channel();
    run(async move {
        let (tell, mut told) = oneshot::channel();
        let body = pattern(LARGE);
        let spare = answers(OK);
        let address = upstream(vec![sending(body.clone(), tell), spare]).await;
        let mut prepared = Setup::new(address);
        setup(&mut prepared);
        let gateway = prepared.start();
        let mut slow = gateway.client().await;
        slow.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        slow.head().await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        let mut other = gateway.client().await;
        other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(status(&other.answer().await), "200");
        let free = told.try_recv().is_ok();
        assert!(slow.take(LARGE).await == body);
        // The connection can carry another request.
        slow.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(status(&slow.answer().await), "200");
        assert_eq!(gateway.plane.body_memory.load(Ordering::Relaxed), 0);
        send.send(free).unwrap();
    });
    receive.recv().unwrap()
}

#[test]
fn a_response_is_read_ahead_of_a_slow_client() {
    assert!(is_read_ahead(|setup| setup.settings.read_ahead = 2 * LARGE));
}

#[test]
fn reading_ahead_is_limited() {
    assert!(!is_read_ahead(|setup| {
        setup.settings.read_ahead = 2 * LARGE;
        setup.route.response_buffering = false;
    }));
    assert!(!is_read_ahead(|setup| setup.settings.read_ahead = 1 << 20));
    assert!(!is_read_ahead(|setup| {
        setup.settings.read_ahead = 2 * LARGE;
        setup.settings.body_memory = 1 << 20;
    }));
}

/// Sends a response in two pieces. Returns what the client gets before the second one is sent, and the rest.
fn in_two_pieces(
    setup: impl FnOnce(&mut Setup),
    first: &'static str,
    second: &'static str,
) -> (String, String) {
    let (send, receive) = std::sync::mpsc::channel();
    run_paused(async move {
        let upstream = upstream(vec![script(move |mut peer: Peer| async move {
            peer.head().await;
            peer.send(first).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            peer.send(second).await;
        })])
        .await;
        let mut prepared = Setup::new(upstream);
        setup(&mut prepared);
        let gateway = prepared.start();
        let mut client = gateway.client().await;
        client
            .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await;
        let mut early = vec![0; 100_000];
        let read = client.stream.read(&mut early);
        let read = tokio::time::timeout(Duration::from_secs(1), read).await;
        early.truncate(read.map_or(0, |read| read.unwrap()));
        let early = String::from_utf8(early).unwrap();
        send.send((early, client.rest().await)).unwrap();
    });
    receive.recv().unwrap()
}

const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nab\r\n1\r\nc\r\n";
const CHUNKED_END: &str = "2\r\nde\r\n0\r\nX: y\r\n\r\n";

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").expect("a head").1
}

#[test]
fn a_buffered_answer_comes_when_it_is_whole_and_in_chunks_of_a_useful_size() {
    let (early, late) = in_two_pieces(|_| {}, CHUNKED, CHUNKED_END);
    assert_eq!(early, "");
    assert_eq!(body(&late), "5\r\nabcde\r\n0\r\nX: y\r\n\r\n");
    let (early, late) = in_two_pieces(
        |_| {},
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab",
        "cd",
    );
    assert_eq!((&*early, body(&late)), ("", "abcd"));
    let (early, late) = in_two_pieces(|_| {}, "HTTP/1.1 200 OK\r\n\r\nab", "cd");
    assert_eq!((&*early, body(&late)), ("", "4\r\nabcd\r\n0\r\n\r\n"));
}

#[test]
fn a_buffered_answer_comes_early_when_a_buffer_is_full() {
    let full: &str = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        format!("64\r\n{}\r\n", "x".repeat(100)).repeat(50)
    )
    .leak();
    let (early, late) = in_two_pieces(|_| {}, full, "1\r\ny\r\n0\r\n\r\n");
    assert_eq!(
        body(&early),
        format!("1388\r\n{}\r\n", "x".repeat(5000)),
        "in one chunk"
    );
    assert_eq!(late, "1\r\ny\r\n0\r\n\r\n");
}

#[test]
fn an_answer_that_streams_comes_as_the_upstream_sends_it() {
    let (early, late) = in_two_pieces(
        |setup| setup.route.response_buffering = false,
        CHUNKED,
        CHUNKED_END,
    );
    assert_eq!(body(&early), "2\r\nab\r\n1\r\nc\r\n");
    assert_eq!(late, CHUNKED_END);
    for line in [
        "X-Accel-Buffering: no",
        "Content-Type: text/event-stream; charset=utf-8",
    ] {
        let head = CHUNKED.replace("Trailer: X", line).leak();
        let (early, _) = in_two_pieces(|_| {}, head, CHUNKED_END);
        assert_eq!(body(&early), "2\r\nab\r\n1\r\nc\r\n", "{line}");
        assert_eq!(header(&early, "x-accel-buffering"), None);
    }
}

#[test]
fn the_received_part_of_a_broken_response_is_forwarded() {
    let (early, late) = in_two_pieces(|_| {}, CHUNKED, "");
    assert_eq!(early, "");
    assert_eq!(body(&late), "3\r\nabc\r\n");
    let (early, late) = in_two_pieces(|_| {}, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", "");
    assert_eq!((&*early, body(&late)), ("", "ab"));
}

#[test]
fn the_time_of_an_upload_is_the_upstreams_where_requests_are_not_buffered() {
    run_paused(async {
        for (buffering, proxy, upstream_latency) in [(true, "5000", "0"), (false, "0", "5000")] {
            let (tell, _told) = oneshot::channel();
            let mut setup = Setup::new(upstream(vec![telling(tell)]).await);
            setup.route.request_buffering = buffering;
            let gateway = keep(setup.start());
            let mut client = gateway.client().await;
            client
                .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab")
                .await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            client.send("cd").await;
            let answer = client.answer().await;
            assert_eq!(header(&answer, "x-kong-proxy-latency"), Some(proxy));
            assert_eq!(
                header(&answer, "x-kong-upstream-latency"),
                Some(upstream_latency)
            );
        }
    });
}

#[test]
fn a_body_larger_than_plugins_may_look_into_is_held_too() {
    run_paused(async {
        let (tell, mut told) = oneshot::channel();
        let mut setup = Setup::new(upstream(vec![telling(tell)]).await);
        setup.settings.plugin_body = 1000;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n")
            .await;
        client.send("x".repeat(4000)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(told.try_recv().is_err());
        client.send("x".repeat(1000)).await;
        assert_eq!(status(&client.answer().await), "200");
        assert_eq!(told.await.unwrap().1.len(), 5000);
        assert_eq!(gateway.plane.body_memory.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_client_that_closes_during_a_long_wait_is_gone() {
    run_paused(async {
        for may_abort in [true, false] {
            let (tell, told) = oneshot::channel();
            let upstream = upstream(vec![script(|mut peer: Peer| async move {
                peer.head().await;
                let wait = tokio::time::timeout(Duration::from_secs(30), peer.rest());
                let gone = wait.await.is_ok();
                peer.send(OK).await;
                tell.send(gone).unwrap();
                peer.rest().await;
            })])
            .await;
            let mut setup = Setup::new(upstream);
            setup.settings.client_may_abort = may_abort;
            let gateway = keep(setup.start());
            let start = tokio::time::Instant::now();
            let mut client = gateway.client().await;
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            client.stream.shutdown().await.unwrap();
            let got = client.rest().await;
            assert_eq!(got.is_empty(), may_abort, "{got}");
            let waited = if may_abort { 2 } else { 300 };
            assert_eq!(start.elapsed().as_millis() / 100, waited);
            assert_eq!(told.await.unwrap(), may_abort);
        }
    });
}

#[test]
fn requests_that_come_while_another_is_answered_slowly_are_kept() {
    run_paused(async {
        let slow = script(|mut peer: Peer| async move {
            while let Some(head) = peer.head_or_end().await {
                tokio::time::sleep(Duration::from_secs(5)).await;
                let path = head.split(' ').nth(1).unwrap().to_owned();
                peer.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}",
                    path.len()
                ))
                .await;
            }
        });
        let gateway = Setup::new(upstream(vec![slow]).await).start();
        let mut client = gateway.client().await;
        client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        client
            .send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 ")
            .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.send("HTTP/1.1\r\nHost: a\r\n\r\n").await;
        for path in ["/1", "/2", "/3"] {
            assert!(client.answer().await.ends_with(path));
        }
    });
}
