//! Tests of requests by HTTP/2.

use super::*;
use ::http::HeaderValue;

/// Answers each request of a connection with its path and a trailer, until the client has gone.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let head = ::http::Response::new(());
        let mut body = respond.send_response(head, false).unwrap();
        let path = request.uri().path().to_owned();
        body.send_data(path.into(), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-end", "yes".parse().unwrap());
        body.send_trailers(trailers).unwrap();
    }
}

fn options() -> Options {
    Options {
        http2: true,
        ..Options::default()
    }
}

fn get(server: &Server, scheme: &str, path: &str) -> Request {
    Request {
        options: options(),
        ..Request::new(Method::GET, server.url(scheme, "127.0.0.1", path))
    }
}

#[tokio::test]
async fn requests_share_a_connection_and_responses_have_trailers() {
    let (server, client) = (Server::new().await, client());
    let serving = async { serve(server.accept().await).await };
    let asking = async {
        let send = |path| client.send(get(&server, "http", path));
        let (first, second) = tokio::join!(send("/a"), send("/b"));
        let third = send("/c").await;
        for (response, path) in [(first, "/a"), (second, "/b"), (third, "/c")] {
            let response = response.unwrap();
            assert_eq!(
                (&*response.body, response.truncated),
                (path.as_bytes(), false)
            );
            assert_eq!(response.trailers["x-end"], "yes");
        }
    };
    tokio::select! {
        () = serving => panic!("the connection ends early"),
        () = asking => {}
    }
}

#[tokio::test]
async fn a_server_with_interim_responses_without_end_is_given_up() {
    let (server, client) = (Server::new().await, client());
    let serving = async {
        let mut connection = h2::server::handshake(server.accept().await).await.unwrap();
        let (_, mut respond) = connection.accept().await.unwrap().unwrap();
        let flood = async {
            loop {
                let mut interim = ::http::Response::new(());
                *interim.status_mut() = StatusCode::EARLY_HINTS;
                let _ = respond.send_informational(interim);
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = flood => {}
            // The client closes the connection.
            _ = connection.accept() => {}
        }
    };
    let (response, ()) = tokio::join!(client.send(get(&server, "http", "/a")), serving);
    let error = response.unwrap_err().to_string();
    assert!(
        error.contains("too_many_informational_responses"),
        "{error}"
    );
}

/// Answers each request after this many interim responses with this header.
async fn serve_after_interim_responses(stream: TcpStream, count: usize, link: &str) {
    stream.set_nodelay(true).unwrap();
    let mut connection = h2::server::handshake(stream).await.unwrap();
    // A sensitive value is not in the table of the connection: it is sent with each response.
    let mut link = HeaderValue::try_from(link).unwrap();
    link.set_sensitive(true);
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        for _ in 0..count {
            let mut interim = ::http::Response::new(());
            *interim.status_mut() = StatusCode::EARLY_HINTS;
            interim.headers_mut().insert("link", link.clone());
            respond.send_informational(interim).unwrap();
        }
        let response = ::http::Response::new(());
        respond.send_response(response, true).unwrap();
    }
}

fn get_patiently(server: &Server) -> Request {
    let mut request = get(server, "http", "/a");
    request.options.timeout = Duration::from_secs(300);
    request
}

#[tokio::test]
async fn the_interim_responses_of_a_connection_are_not_limited() {
    // A character has 8 bits in the code of HPACK.
    let (count, link, requests) = (120, "X".repeat(500), 160);
    assert!(count * link.len() * requests > ALLOWANCE);
    let (server, client) = (Server::new().await, client());
    let serving =
        async { serve_after_interim_responses(server.accept().await, count, &link).await };
    let asking = async {
        for number in 0..requests {
            let response = client.send(get_patiently(&server)).await;
            assert_eq!(response.unwrap().status, 200, "request {number}");
        }
    };
    tokio::select! {
        () = serving => panic!("the connection ends early"),
        () = asking => {}
    }
}

#[tokio::test]
async fn interim_responses_before_a_response_are_limited_by_the_allowance() {
    // A character has 15 bits in the code of HPACK.
    let link = "<".repeat(40_000);
    for (count, is_served) in [(100, true), (120, false)] {
        assert_eq!(count * link.len() * 15 / 8 < ALLOWANCE, is_served);
        let (server, client) = (Server::new().await, client());
        let serving =
            async { serve_after_interim_responses(server.accept().await, count, &link).await };
        let asking = async {
            let response = client.send(get_patiently(&server)).await;
            // The connection ends with its client.
            drop(client);
            response
        };
        let (response, ()) = tokio::join!(asking, serving);
        match is_served {
            true => assert_eq!(response.unwrap().status, 200),
            false => {
                let error = response.unwrap_err().to_string();
                assert!(error.contains("too much without payload"), "{error}");
            }
        }
    }
}

/// The header of a frame and its payload.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
    [&head, payload].concat()
}

/// Sends these frames after the settings, and then one frame without end until the client closes the connection.
async fn flood(stream: TcpStream, first: &[u8], rest: &[u8]) {
    let (mut from, mut to) = stream.into_split();
    let mut begin = frame(4, 0, 0, &[]);
    // The acknowledgement of the client's settings.
    begin.extend(frame(4, 1, 0, &[]));
    begin.extend(first);
    to.write_all(&begin).await.unwrap();
    let rest = rest.repeat(1000);
    let sending = async { while to.write_all(&rest).await.is_ok() {} };
    // The answers to pings and settings must not fill the connection.
    let reading = async {
        let mut buffer = vec![0; 65_536];
        while from.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    };
    tokio::join!(sending, reading);
}

#[tokio::test]
async fn frames_without_payload_and_without_end_end_the_connection() {
    let frames = [
        ("PING", frame(6, 0, 0, &[7; 8])),
        ("SETTINGS", frame(4, 0, 0, &[])),
        ("WINDOW_UPDATE", frame(8, 0, 0, &[0, 0, 0, 1])),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 0, 1])),
        ("unknown", frame(0x42, 0, 0, b"unknown")),
    ];
    // The indexed field `:status: 200`, which ends headers and stream.
    let answer = frame(1, 5, 1, &[0x88]);
    for (name, rest) in &frames {
        for first in [&[][..], &answer] {
            let (server, client) = (Server::new().await, client());
            let mut request = get(&server, "http", "/a");
            request.options.timeout = Duration::from_secs(3600);
            request.options.keepalive = Duration::from_secs(3600);
            let serving = async { flood(server.accept().await, first, rest).await };
            let (response, ()) = tokio::join!(client.send(request), serving);
            assert_eq!(response.is_ok(), !first.is_empty(), "{name}");
        }
    }
}

#[tokio::test]
async fn over_tls_the_protocol_is_offered_and_certificates_are_verified() {
    let identity = identity("collector.test");
    let mut config = ServerConfig::clone(identity.acceptor.config());
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    for (client, is_trusted) in [(trusting(&identity), true), (client(), false)] {
        let server = Server::new().await;
        let mut request = get(&server, "https", "/a");
        request.options.server_name = Some("collector.test".into());
        let serving = async {
            let Ok(stream) = acceptor.accept(server.accept().await).await else {
                return;
            };
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            serve(stream).await;
        };
        let (response, ()) = tokio::join!(
            async {
                let response = client.send(request).await;
                // The connection ends with its client.
                drop(client);
                response
            },
            serving
        );
        match is_trusted {
            true => assert_eq!(response.unwrap().body, "/a"),
            false => {
                let kind = response.unwrap_err().kind;
                assert!(matches!(kind, HttpErrorKind::Connect(ConnectError::Tls(_))));
            }
        }
    }
}
