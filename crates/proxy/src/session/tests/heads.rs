//! The heads that upstream and client receive from each other.

use super::acts::Acts;
use super::*;
use crate::session::exchange::PARSED;

/// Returns the head that the upstream received for a request.
async fn seen(setup: impl FnOnce(&mut Setup), request: &str) -> String {
    let (tell, told) = tokio::sync::oneshot::channel();
    let address = upstream(vec![script(|mut peer| async move {
        let head = peer.head().await;
        peer.send(OK).await;
        tell.send(head).unwrap();
        peer.rest().await;
    })])
    .await;
    let mut described = Setup::new(address);
    setup(&mut described);
    let gateway = described.start();
    let mut client = gateway.client().await;
    client.send(request).await;
    assert_eq!(status(&client.answer().await), "200");
    told.await.unwrap()
}

#[test]
fn a_query_that_is_not_ascii_is_forwarded_unchanged() {
    run(async {
        let head = seen(|_| {}, "GET /a?q=\u{e4}&%e4 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(
            head.starts_with("GET /a?q=\u{e4}&%e4 HTTP/1.1\r\n"),
            "{head}"
        );
    });
}

#[test]
fn the_upstream_gets_forwarding_headers_and_no_hop_by_hop_ones() {
    run(async {
        let request = "GET /a?b=c HTTP/1.1\r\nHost: Example.com:8000\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\
            Keep-Alive: 1\r\nProxy-Connection: x\r\nProxy: x\r\nUpgrade: websocket\r\nTE: trailers, gzip\r\n\
            X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 5.6.7.8\r\nX-Forwarded-Proto: https\r\nVia: 1.0 a\r\n\
            X_Under: 1\r\nX-Kong-Request-Id: forged\r\n\r\n";
        let head = seen(|_| {}, request).await;
        assert!(
            head.starts_with("GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:"),
            "{head}"
        );
        for (name, value) in [
            ("connection", Some("keep-alive")),
            ("x-hop", None),
            ("keep-alive", None),
            ("proxy-connection", None),
            ("proxy", None),
            ("upgrade", None),
            ("te", Some("trailers")),
            ("x-forwarded-for", Some("1.2.3.4, 5.6.7.8, 127.0.0.1")),
            ("x-real-ip", Some("127.0.0.1")),
            ("x-forwarded-proto", Some("http")),
            ("x-forwarded-host", Some("example.com")),
            ("x-forwarded-path", Some("/a")),
            ("x-forwarded-prefix", None),
            ("via", Some("1.0 a, 1.1 kong/3.9.1")),
            ("x_under", Some("1")),
        ] {
            assert_eq!(header(&head, name), value, "{name}");
        }
        assert_eq!(header(&head, "x-kong-request-id").unwrap().len(), 32);
    });
}

#[test]
fn a_plugin_can_ask_the_upstream_for_trailers() {
    run(async {
        let ask = |setup: &mut Setup| {
            let asks = Acts::new().access(|cx, _| {
                cx.request.upstream.headers.set("TE", "trailers");
                Ok(plugin::Step::Continue)
            });
            setup.plugins = vec![asks.define::<0>()];
            setup.plugins_on_route = true;
        };
        for request in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nTE: gzip\r\n\r\n",
        ] {
            let head = seen(ask, request).await;
            assert_eq!(header(&head, "te"), Some("trailers"), "{head}");
        }
    });
}

#[test]
fn a_trusted_peer_is_believed() {
    run(async {
        let request = "GET /p/a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n\
            X-Forwarded-Host: other\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Path: /x\r\nX-Forwarded-Prefix: /y\r\n\
            X-Real-IP: 9.9.9.9\r\n\r\n";
        let trust = |setup: &mut Setup| {
            setup.settings.real_ip.trusted = vec!["127.0.0.0/8".parse().unwrap()];
        };
        let head = seen(trust, request).await;
        assert_eq!(header(&head, "x-real-ip"), Some("9.9.9.9"));
        assert_eq!(header(&head, "x-forwarded-for"), Some("1.2.3.4, 127.0.0.1"));
        assert_eq!(header(&head, "x-forwarded-proto"), Some("https"));
        assert_eq!(header(&head, "x-forwarded-host"), Some("other"));
        assert_eq!(header(&head, "x-forwarded-port"), Some("443"));
        assert_eq!(header(&head, "x-forwarded-path"), Some("/x"));
        assert_eq!(header(&head, "x-forwarded-prefix"), Some("/y"));
    });
}

#[test]
fn paths_are_stripped_and_joined_and_the_host_kept_as_the_route_says() {
    run(async {
        let strip = |setup: &mut Setup| {
            setup.route.paths = vec!["/pre".into()];
            setup.route.strip_path = true;
            setup.route.preserve_host = true;
            setup.service.path = Some("/base".into());
        };
        let head = seen(strip, "GET /pre/x? HTTP/1.1\r\nHost: A.b:99\r\n\r\n").await;
        assert!(
            head.starts_with("GET /base/x? HTTP/1.1\r\nHost: A.b:99\r\n"),
            "{head}"
        );
        assert_eq!(header(&head, "x-forwarded-prefix"), Some("/pre"));
    });
}

#[test]
fn the_client_gets_kongs_headers_and_no_hop_by_hop_ones() {
    run(async {
        let answer = "HTTP/1.1 201 Made\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nVia: 1.1 x\r\n\
            Content-Type: text/html\r\nTrailer: A\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nok";
        let gateway = Setup::new(upstream(vec![answers(answer)]).await).start();
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let answer = client.answer().await;
        assert!(
            answer.starts_with("HTTP/1.1 201 Made\r\n") && answer.ends_with("\r\n\r\nok"),
            "{answer}"
        );
        for (name, value) in [
            ("x-hop", None),
            ("keep-alive", None),
            ("trailer", None),
            ("x-a", Some("1")),
            ("server", Some("kong/3.9.1")),
            ("via", Some("1.1 x, 1.1 kong/3.9.1")),
            ("content-type", Some("text/html; charset=UTF-8")),
            ("connection", Some("keep-alive")),
        ] {
            assert_eq!(header(&answer, name), value, "{name}");
        }
        assert!(header(&answer, "x-kong-upstream-latency").is_some());
        assert!(header(&answer, "x-kong-proxy-latency").is_some());
        assert!(header(&answer, "x-kong-response-latency").is_none());
    });
}

#[test]
fn requests_without_route_or_service_get_an_error() {
    run(async {
        let mut setup = Setup::new(([127, 0, 0, 1], 1).into());
        setup.route.paths = vec!["/a".into()];
        setup.route.service = None;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client
            .send("GET /b HTTP/1.1\r\nHost: a\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            .await;
        let answer = client.answer().await;
        assert_eq!(status(&answer), "404");
        assert!(
            answer.contains("no Route matched with those values"),
            "{answer}"
        );
        assert!(header(&answer, "x-kong-response-latency").is_some());
        let answer = client.answer().await;
        assert_eq!(status(&answer), "503");
        assert!(
            answer.contains("no Service found with those values"),
            "{answer}"
        );
    });
}

#[test]
fn an_https_route_redirects() {
    run(async {
        let mut setup = Setup::new(([127, 0, 0, 1], 1).into());
        setup.route.protocols = vec![Protocol::Https];
        setup.route.https_redirect_status_code = 301;
        let gateway = setup.start();
        let answer = gateway
            .exchange("GET /a?b HTTP/1.1\r\nHost: Ex.com:8000\r\nConnection: close\r\n\r\n")
            .await;
        assert_eq!(status(&answer), "301");
        assert_eq!(header(&answer, "location"), Some("https://ex.com/a?b"));
        // nginx adds no charset to a redirect.
        let content_type = Some("text/html");
        assert_eq!(header(&answer, "content-type"), content_type);
        let page = "<html>\r\n<head><title>301 Moved Permanently</title></head>\r\n<body>\r\n\
            <center><h1>301 Moved Permanently</h1></center>\r\n</body>\r\n</html>\r\n";
        assert!(answer.ends_with(&format!("\r\n\r\n{page}")), "{answer}");
    });
}

#[test]
fn an_answer_that_asks_for_another_protocol_names_the_upgrade() {
    run(async {
        let mut setup = Setup::new(([127, 0, 0, 1], 1).into());
        setup.route.protocols = vec![Protocol::Https];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        for (more, connection) in [("", "Upgrade"), ("Connection: close\r\n", "close, Upgrade")] {
            client
                .send(format!("GET / HTTP/1.1\r\nHost: a\r\n{more}\r\n"))
                .await;
            let answer = client.answer().await;
            assert_eq!(status(&answer), "426");
            assert_eq!(header(&answer, "upgrade"), Some("TLS/1.2, HTTP/1.1"));
            assert_eq!(header(&answer, "connection"), Some(connection), "{answer}");
        }
    });
}

#[test]
fn an_upstreams_answer_of_a_later_minor_version_is_passed_on_as_ours() {
    run(async {
        let answer = "HTTP/1.2 200 Fine\r\nContent-Length: 2\r\n\r\nok";
        let gateway = Setup::new(upstream(vec![answers(answer)]).await).start();
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.9\r\nHost: a\r\n\r\n").await;
        let answer = client.answer().await;
        assert!(answer.starts_with("HTTP/1.1 200 Fine\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    });
}

/// An upstream that sends a response byte by byte, so that each byte arrives alone.
async fn dribbles(answer: String) -> SocketAddr {
    let script = script(move |mut peer: Peer| async move {
        peer.head().await;
        for byte in answer.into_bytes() {
            peer.send([byte]).await;
            tokio::task::yield_now().await;
        }
        peer.rest().await;
    });
    upstream(vec![script]).await
}

#[test]
fn an_answer_that_comes_byte_by_byte_is_not_scanned_anew_for_each() {
    run(async {
        let lines = |end: &str| {
            let line = |number: usize| format!("X-{number}: {}{end}", "v".repeat(100));
            let head = format!("HTTP/1.1 200 OK{end}Content-Length: 2{end}");
            head + &(0..40).map(line).collect::<String>() + end + "ok"
        };
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        for answer in [
            lines("\r\n"),
            lines("\n"),
            interim.to_owned() + &lines("\r\n"),
        ] {
            let length = answer.len();
            let gateway = keep(Setup::new(dribbles(answer).await).start());
            let mut client = gateway.client().await;
            PARSED.set(0);
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            let mut answer = client.answer().await;
            if status(&answer) == "103" {
                answer = client.answer().await;
            }
            assert_eq!(status(&answer), "200");
            assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
            assert_eq!(header(&answer, "x-39").map(str::len), Some(100));
            assert!(PARSED.get() < 2 * length, "{} of {length}", PARSED.get());
        }
    });
}

#[test]
fn an_invalid_response_is_detected_even_byte_by_byte() {
    run(async {
        for nonsense in ["SSH-2.0-OpenSSH\r\n", "HTTP/1.1 2000\r\n"] {
            let gateway = keep(Setup::new(dribbles(nonsense.into()).await).start());
            let mut client = gateway.client().await;
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert_eq!(status(&client.answer().await), "502", "{nonsense}");
        }
    });
}
