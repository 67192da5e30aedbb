//! Connections: pipelining, keep-alive, and TLS on both sides.

use super::super::{After, server};
use super::*;
use net::stream::Stream;
use net::tls::{CertificateSource, Certificates, ClientTls, Trust, self_signed};
use std::time::Duration;
use tokio::time::{Instant, timeout};

#[test]
fn pipelined_requests_are_answered_in_order() {
    run(async {
        let echo = script(|mut peer: Peer| async move {
            while let Some(head) = peer.head_or_end().await {
                let path = head.split(' ').nth(1).unwrap().to_owned();
                let length =
                    header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
                let body = String::from_utf8(peer.take(length).await).unwrap();
                let body = path + &body;
                peer.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ))
                .await;
            }
        });
        let gateway = Setup::new(upstream(vec![echo]).await).start();
        let got = gateway
            .exchange(
                "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
                 POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n\
                 GET /4 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /5 HTTP/1.1\r\nHost: a\r\n\r\n",
            )
            .await;
        let bodies: Vec<&str> = got.split("\r\n\r\n").skip(1).collect();
        let starts = ["/1HTTP", "/2abcHTTP", "/3xHTTP", "/4"];
        assert_eq!(bodies.len(), starts.len(), "{got}");
        assert!(
            bodies
                .iter()
                .zip(starts)
                .all(|(body, start)| body.starts_with(start)),
            "{got}"
        );
    });
}

#[test]
fn a_head_may_come_byte_by_byte() {
    run(async {
        let gateway = Setup::new(upstream(vec![answers(OK)]).await).start();
        let mut client = gateway.client().await;
        for byte in "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n".bytes() {
            client.send([byte]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(status(&client.answer().await), "200");
    });
}

#[test]
fn refused_heads_get_an_answer_and_a_closed_connection() {
    run(async {
        let gateway = Setup::new(([127, 0, 0, 1], 1).into()).start();
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9000));
        let large = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
            "x".repeat(40_000)
        );
        for (request, code, message) in [
            ("GET / HTTP/1.1\r\n\r\n", "400", "Bad request"),
            ("nonsense\r\n\r\n", "400", "Bad request"),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "400",
                "Bad request",
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n",
                "417",
                "Expectation failed",
            ),
            (&long, "414", "URI too long"),
            (&large, "400", "Request header or cookie too large"),
        ] {
            let got = gateway.exchange(request).await;
            assert_eq!(
                (status(&got), header(&got, "connection")),
                (code, Some("close")),
                "{got}"
            );
            assert!(got.contains(message), "{got}");
        }
    });
}

#[test]
fn old_clients_may_keep_their_connection() {
    run(async {
        let gateway = Setup::new(upstream(vec![answers(OK)]).await).start();
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client
                .send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                .await;
            let answer = client.answer().await;
            assert_eq!(header(&answer, "connection"), Some("keep-alive"));
        }
        let got = gateway.exchange("GET / HTTP/1.0\r\n\r\n").await;
        assert_eq!(header(&got, "connection"), Some("close"));
    });
}

#[test]
fn upstream_connections_are_reused_up_to_their_limit() {
    run(async {
        let close = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
        let mut setup = Setup::new(upstream(vec![answers(OK), answers(close), answers(OK)]).await);
        setup.settings.pool.max_requests = 2;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        // Two requests use the first connection. One uses the second, which the upstream closes. One uses the third.
        for _ in 0..4 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert_eq!(status(&client.answer().await), "200");
        }
    });
}

#[derive(Debug)]
pub(super) struct One(pub(super) Arc<Certificates>);

impl CertificateSource for One {
    fn certificates(&self, _: Option<&str>) -> Option<Arc<Certificates>> {
        Some(self.0.clone())
    }
}

#[test]
fn tls_is_terminated_and_spoken_to_upstreams() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::task::spawn_local(async move {
            let tls = ServerTls::new(Arc::new(One(Arc::new(self_signed().unwrap())))).unwrap();
            let mut stream = tls
                .accept(listener.accept().await.unwrap().0)
                .await
                .unwrap();
            let mut head = Vec::new();
            for _ in 0..2 {
                while !head.ends_with(b"\r\n\r\n") {
                    stream.read_buf(&mut head).await.unwrap();
                }
                assert!(
                    head.windows(24)
                        .any(|part| part == b"X-Forwarded-Proto: https")
                );
                head.clear();
                stream.write_all(OK.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
            }
        });
        let mut setup = Setup::new(address);
        setup.service.protocol = Protocol::Https;
        setup.service.host = "localhost".into();
        setup.listen = "127.0.0.1:0 ssl";
        let gateway = setup.start();
        let tls = ClientTls::new(Trust::Anyone, None).unwrap();
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let mut stream = tls.connect(stream, "a").await.unwrap();
        for _ in 0..2 {
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .await
                .unwrap();
            let mut got = Vec::new();
            while !got.ends_with(b"ok") {
                assert!(stream.read_buf(&mut got).await.unwrap() > 0);
            }
            assert!(got.starts_with(b"HTTP/1.1 200 OK"));
        }
    });
}

/// A TLS connection of a client that stops reading, with as many bytes sent to it as the system accepts.
async fn clogged() -> (Stream, impl Sized) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = tokio::task::spawn_local(async move {
        let tls = ClientTls::new(Trust::Anyone, None).unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        tls.connect(stream, "a").await.unwrap()
    });
    let tls = ServerTls::new(Arc::new(One(Arc::new(self_signed().unwrap())))).unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let stream = tls.accept(socket).await.unwrap();
    let client = client.await.unwrap();
    let socket = stream.get_ref().0;
    // With a paused clock, the limit has passed as soon as the socket stays full.
    while timeout(Duration::from_secs(1), socket.writable())
        .await
        .is_ok()
    {
        while socket.try_write(&[0; 65_536]).is_ok() {}
    }
    (Stream::Tls(Box::new(stream.into())), client)
}

#[test]
fn a_client_that_stops_reading_does_not_hold_a_connection_that_closes() {
    run_paused(async {
        let mut setup = Setup::new(([127, 0, 0, 1], 1).into());
        setup.settings.send_timeout = Duration::from_secs(7);
        let gateway = setup.start();
        for after in [After::Close, After::Linger] {
            let (stream, _client) = clogged().await;
            let (ticket, arrival) = server::ticket_over(&gateway.plane);
            let mut connection = ticket.connection(stream, arrival);
            let start = Instant::now();
            let closing = timeout(Duration::from_secs(3600), connection.close(after));
            closing.await.expect("the connection closes");
            let seconds = start.elapsed().as_secs();
            assert!(seconds <= 7, "{after:?}: {seconds}");
        }
    });
}

#[test]
fn plain_http_on_a_tls_port_gets_an_error_page() {
    run(async {
        let mut setup = Setup::new(([127, 0, 0, 1], 1).into());
        setup.listen = "127.0.0.1:0 ssl";
        let gateway = setup.start();
        let answer = gateway
            .exchange("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok")
            .await;
        assert!(
            answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
            "{answer}"
        );
        let content_type = Some("text/html; charset=UTF-8");
        assert_eq!(header(&answer, "content-type"), content_type);
        assert_eq!(header(&answer, "connection"), Some("close"));
        let page = "<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head>\r\n\
            <body>\r\n<center><h1>400 Bad Request</h1></center>\r\n\
            <center>The plain HTTP request was sent to HTTPS port</center>\r\n</body>\r\n</html>\r\n";
        assert!(answer.ends_with(&format!("\r\n\r\n{page}")), "{answer}");
        let answer = gateway.exchange("HEAD / HTTP/1.0\r\n\r\n").await;
        let length = page.len().to_string();
        assert_eq!(header(&answer, "content-length"), Some(&*length));
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
        let answer = gateway.exchange("nonsense\r\n\r\n").await;
        assert_eq!(status(&answer), "400");
        assert!(answer.contains("Bad request"), "{answer}");
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(9000));
        assert_eq!(status(&gateway.exchange(&long).await), "414");
    });
}

#[test]
fn the_node_counts_its_connections_and_requests() {
    run(async {
        let gateway = Setup::new(upstream(vec![answers(OK)]).await).start();
        gateway
            .exchange("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await;
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        client.answer().await;
        tokio::task::yield_now().await;
        let totals = gateway.plane.totals();
        assert_eq!((totals.accepted, totals.requests), (2, 2));
        assert_eq!((totals.active(), totals.waiting, totals.reading), (1, 1, 0));
    });
}
