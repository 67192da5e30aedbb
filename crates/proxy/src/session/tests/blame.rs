//! Tests of the owner of a failure: a failure that a client causes must not make an upstream unavailable to others.

use super::*;
use net::tls::{Alpn, CertificateSource, Certificates, ServerSettings};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[derive(Debug)]
struct One(Arc<Certificates>);

impl CertificateSource for One {
    fn certificates(&self, _: Option<&str>) -> Option<Arc<Certificates>> {
        Some(self.0.clone())
    }
}

/// The server side of TLS, with a self-signed certificate.
pub(super) fn server_tls(http2: bool) -> ServerTls {
    let source = One(Arc::new(net::tls::self_signed().unwrap()));
    let settings = ServerSettings::default();
    let tls = ServerTls::with_settings(Arc::new(source), Alpn::Http, &settings).unwrap();
    tls.offering(http2)
}

/// An upstream that a single failure to connect makes unhealthy.
fn checked(upstream: SocketAddr) -> Setup {
    let mut setup = Setup::new(upstream);
    setup.tcp_failures = 1;
    setup
}

async fn ask(gateway: &Gateway, text: &str) -> String {
    let mut client = gateway.client().await;
    client.send(text).await;
    client.answer().await
}

/// An upstream that speaks TLS, but closes its first `broken` connections during the handshake.
async fn tls_upstream(mut broken: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = server_tls(false);
    tokio::task::spawn_local(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if broken > 0 {
                broken -= 1;
                stream.read_u8().await.unwrap();
                continue;
            }
            let tls = tls.clone();
            tokio::task::spawn_local(async move {
                let mut stream = tls.accept(stream).await.unwrap();
                let mut read = Vec::new();
                while let Ok(1..) = stream.read_buf(&mut read).await {
                    if read.ends_with(b"\r\n\r\n") {
                        read.clear();
                        stream.write_all(OK.as_bytes()).await.unwrap();
                        stream.flush().await.unwrap();
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_host_that_is_no_host_name_goes_to_a_tls_upstream_without_server_name() {
    run(async {
        let mut setup = checked(tls_upstream(0).await);
        setup.service.protocol = Protocol::Https;
        setup.route.preserve_host = true;
        let gateway = setup.start();
        for host in ["a!b", "a%zz", "a.test"] {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let answer = ask(&gateway, &request).await;
            assert_eq!(status(&answer), "200", "{host}: {answer}");
        }
    });
}

#[test]
fn a_failed_handshake_with_the_clients_name_does_not_count() {
    run(async {
        for (preserve_host, then) in [(true, "200"), (false, "503")] {
            let mut setup = checked(tls_upstream(1).await);
            setup.service.protocol = Protocol::Https;
            setup.service.retries = 0;
            setup.route.preserve_host = preserve_host;
            let gateway = keep(setup.start());
            assert_eq!(status(&ask(gateway, GET).await), "502");
            assert_eq!(status(&ask(gateway, GET).await), then);
        }
    });
}

/// An HTTP/2 upstream that resets the first request, or closes its whole connection.
async fn gives_up_first(whole_connection: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        let mut is_first = true;
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                match (std::mem::take(&mut is_first), whole_connection) {
                    (false, _) => {
                        let answer = respond.send_response(http::Response::new(()), true);
                        let _: h2::SendStream<bytes::Bytes> = answer.unwrap();
                    }
                    (true, false) => respond.send_reset(h2::Reason::ENHANCE_YOUR_CALM),
                    (true, true) => connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM),
                }
            }
        }
    });
    address
}

#[test]
fn http2_resets_do_not_count_against_health() {
    run(async {
        for whole_connection in [false, true] {
            let mut setup = checked(gives_up_first(whole_connection).await);
            setup.upstream_http2 = true;
            let gateway = keep(setup.start());
            let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
            assert_eq!(status(&ask(gateway, post).await), "502");
            let then = ask(gateway, GET).await;
            assert_eq!(status(&then), "200", "{whole_connection}: {then}");
        }
    });
}

#[test]
fn a_host_invalid_in_http2_is_a_400_and_does_not_count() {
    run(async {
        let mut setup = checked(super::shared::answering().await);
        setup.upstream_http2 = true;
        setup.route.preserve_host = true;
        let gateway = setup.start();
        for _ in 0..3 {
            let answer = ask(&gateway, "GET / HTTP/1.1\r\nHost: a%zz\r\n\r\n").await;
            assert_eq!(status(&answer), "400", "{answer}");
            assert_eq!(status(&ask(&gateway, GET).await), "200");
        }
    });
}

#[test]
fn a_malformed_response_is_no_failure_to_connect() {
    run(async {
        let nonsense = || answers("HTTP/1.1 200 OK\r\nX: a\n\r\n\r\n");
        let scripts = vec![nonsense(), nonsense(), answers(OK)];
        let gateway = checked(upstream(scripts).await).start();
        for expected in ["502", "502", "200"] {
            assert_eq!(status(&ask(&gateway, GET).await), expected);
        }
    });
}

#[test]
fn an_upstream_that_closes_on_a_client_that_is_slow_with_its_body_is_not_blamed() {
    run(async {
        let impatient = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.until("begun").await;
        });
        let mut setup = checked(upstream(vec![impatient, answers(OK)]).await);
        setup.route.request_buffering = false;
        let gateway = setup.start();
        let slow = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nbegun";
        assert_eq!(status(&ask(&gateway, slow).await), "502");
        assert_eq!(status(&ask(&gateway, GET).await), "200");
    });
}

#[test]
fn clients_that_break_off_or_send_nonsense_in_their_body_do_not_count() {
    run(async {
        let scripts =
            (0..2).map(|_| script(|mut peer: Peer| async move { drop(peer.rest().await) }));
        let scripts = scripts.chain([answers(OK)]).collect();
        let mut setup = checked(upstream(scripts).await);
        setup.route.request_buffering = false;
        let gateway = setup.start();
        let put = |rest: &str| format!("PUT / HTTP/1.1\r\nHost: a\r\n{rest}");
        let mut gone = gateway.client().await;
        gone.send(put("Content-Length: 100\r\n\r\nbegun")).await;
        gone.stream.shutdown().await.unwrap();
        gone.rest().await;
        let nonsense = put("Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX");
        assert_eq!(status(&ask(&gateway, &nonsense).await), "400");
        assert_eq!(status(&ask(&gateway, GET).await), "200");
    });
}

#[test]
fn an_upstream_that_closes_without_an_answer_is_blamed() {
    run(async {
        let silent = script(|mut peer: Peer| async move { drop(peer.head().await) });
        let mut setup = checked(upstream(vec![silent, answers(OK)]).await);
        setup.service.retries = 0;
        let gateway = setup.start();
        assert_eq!(status(&ask(&gateway, GET).await), "502");
        let answer = ask(&gateway, GET).await;
        assert_eq!(status(&answer), "503");
        assert!(answer.contains("failure to get a peer"), "{answer}");
    });
}

#[test]
fn unambiguous_responses_of_old_servers_are_accepted() {
    run(async {
        for (answer, expected) in [
            ("HTTP/1.0 200 OK\nContent-Length: 2\n\nok", "ok"),
            ("HTTP/1.1 200 OK\nX: y\nContent-Length: 2\n\nok", "ok"),
            (
                "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
                "2\r\nok\r\n0\r\n\r\n",
            ),
        ] {
            let gateway = keep(checked(upstream(vec![answers(answer)]).await).start());
            let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            let got = gateway.exchange(request).await;
            assert_eq!(status(&got), "200", "{got}");
            let (head, body) = got.split_once("\r\n\r\n").unwrap();
            assert_eq!(body, expected, "{got}");
            assert!(!head.replace("\r\n", "").contains('\n'), "{head:?}");
        }
    });
}

#[test]
fn the_status_of_an_answer_that_breaks_off_counts() {
    run(async {
        for (code, then) in [("500", "503"), ("404", "200")] {
            let broken = script(move |mut peer: Peer| async move {
                peer.head().await;
                peer.send(format!(
                    "HTTP/1.1 {code} X\r\nContent-Length: 9\r\n\r\nbegun"
                ))
                .await;
            });
            let mut setup = Setup::new(upstream(vec![broken, answers(OK)]).await);
            setup.http_failures = 1;
            let gateway = keep(setup.start());
            assert_eq!(status(&gateway.exchange(GET).await), code);
            assert_eq!(status(&ask(gateway, GET).await), then);
        }
    });
}
