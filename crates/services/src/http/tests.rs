mod http2;

use super::meter::ALLOWANCE;
use super::pools::MAX_POOLS;
use super::*;
use net::dns::DnsSettings;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Test: yes\r\n\r\nok";

struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    async fn accept(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    fn url(&self, scheme: &str, host: &str, path: &str) -> Url {
        let port = self.address.port();
        Url::parse(&format!("{scheme}://{host}:{port}{path}")).unwrap()
    }

    fn get(&self) -> Request {
        Request::new(Method::GET, self.url("http", "127.0.0.1", "/"))
    }
}

fn client() -> Client {
    client_trusting(Trust::Authorities {
        pems: Vec::new(),
        depth: 1,
        common_name: net::tls::CommonName::Ignored,
    })
}

fn client_trusting(trust: Trust) -> Client {
    Client::new(trust, Resolver::default(), Background::here()).unwrap()
}

/// Reads the head and the body of a request, as text.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return text;
            }
        }
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "{text}");
    }
}

async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), response: &str) -> String {
    let request = read_request(stream).await;
    // The client can close the connection before it has read everything.
    let _ = stream.write_all(response.as_bytes()).await;
    request
}

/// Answers one request on a new connection. Returns the request and the connection.
async fn answer_new(server: &Server, response: &str) -> (String, TcpStream) {
    let mut stream = server.accept().await;
    let request = answer(&mut stream, response).await;
    (request, stream)
}

#[tokio::test]
async fn interim_responses_are_skipped_up_to_a_number() {
    let (server, client) = (Server::new().await, client());
    let some = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
        .repeat(MAX_INTERIM / 2);
    let answer = format!("{some}{OK}");
    let (response, _) = tokio::join!(client.send(server.get()), answer_new(&server, &answer));
    assert_eq!(response.unwrap().status, 200);
}

#[tokio::test]
async fn a_server_that_sends_interim_responses_without_end_is_given_up() {
    let (server, client) = (Server::new().await, client());
    let mut request = server.get();
    request.options.timeout = Duration::from_secs(3600);
    let endless = async {
        let mut stream = server.accept().await;
        read_request(&mut stream).await;
        while stream
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            .await
            .is_ok()
        {}
    };
    let (response, ()) = tokio::join!(client.send(request), endless);
    let error = response.unwrap_err().kind;
    assert!(matches!(error, HttpErrorKind::Malformed(_)), "{error}");
    assert!(error.to_string().contains("interim"), "{error}");
}

/// Returns as many interim responses of this size as may come before a response, and the response.
fn after_interim_responses(size: usize) -> String {
    let link = "a".repeat(size);
    format!("HTTP/1.1 103 Early Hints\r\nLink: {link}\r\n\r\n").repeat(MAX_INTERIM) + OK
}

#[tokio::test]
async fn the_interim_responses_of_a_connection_are_not_limited() {
    let (server, client) = (Server::new().await, client());
    // Together, they are twice as long as what a server may send without payload.
    let (text, requests) = (after_interim_responses(60 * 1024), 9);
    assert!(text.len() * requests > 2 * ALLOWANCE);
    let serving = async {
        let mut stream = server.accept().await;
        for _ in 0..requests {
            answer(&mut stream, &text).await;
        }
        stream
    };
    let asking = async {
        for number in 0..requests {
            let mut request = server.get();
            request.options.timeout = Duration::from_secs(300);
            let response = client.send(request).await;
            assert_eq!(response.unwrap().status, 200, "request {number}");
        }
    };
    tokio::join!(asking, serving);
}

/// Sends a response that begins like this and goes on with these bytes without end. Returns the error of the request when
/// the client has closed the connection.
async fn endless(begin: &str, rest: &[u8]) -> HttpErrorKind {
    let (server, client) = (Server::new().await, client());
    let mut request = server.get();
    request.options.timeout = Duration::from_secs(3600);
    let serving = async {
        let mut stream = server.accept().await;
        answer(&mut stream, begin).await;
        let rest = rest.repeat(1000);
        while stream.write_all(&rest).await.is_ok() {}
    };
    let (response, ()) = tokio::join!(client.send(request), serving);
    response.unwrap_err().kind
}

#[tokio::test]
async fn the_size_of_a_chunk_and_trailers_without_end_end_the_connection() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (begin, rest) in [
        ("", "0"),
        ("0", " "),
        ("0;", "a"),
        ("0\r\n", "a: b\r\n"),
        ("0\r\na: ", "b"),
    ] {
        let error = endless(&format!("{head}{begin}"), rest.as_bytes()).await;
        let is_failure = matches!(
            error,
            HttpErrorKind::Malformed(_) | HttpErrorKind::Failed(_)
        );
        assert!(is_failure, "{rest:?}: {error}");
    }
}

#[tokio::test]
async fn a_long_body_in_small_chunks_is_read() {
    let (server, client) = (Server::new().await, client());
    let mut request = server.get();
    request.options.max_body = 4 * 1024 * 1024;
    request.options.timeout = Duration::from_secs(300);
    // Together, the chunks are longer than what a server may send without payload.
    let size = 3 * 1024 * 1024 / 2;
    let chunks = "1\r\nx\r\n".repeat(size);
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = format!("{head}{chunks}0\r\n\r\n");
    let (response, _) = tokio::join!(client.send(request), answer_new(&server, &answer));
    let response = response.unwrap();
    assert_eq!((response.body.len(), response.truncated), (size, false));
}

#[tokio::test]
async fn a_request_is_sent_as_given_and_its_response_is_read() {
    let (server, client) = (Server::new().await, client());
    let mut request = Request::new(
        Method::POST,
        server.url("http", "me:pw@127.0.0.1", "/a?b=c"),
    );
    request.headers.insert("x-own", "1".parse().unwrap());
    request
        .headers
        .insert("content-length", "999".parse().unwrap());
    let pieces = [&b"bo"[..], b"", b"dy"].map(Bytes::from_static);
    request.body = pieces.into_iter().collect();
    let (response, (sent, _)) = tokio::join!(client.send(request), answer_new(&server, OK));
    let response = response.unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(response.headers["x-test"], "yes");
    assert_eq!((&*response.body, response.truncated), (&b"ok"[..], false));
    let (head, body) = sent.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.lines().collect();
    lines[1..].sort_unstable();
    let host = format!("host: {}", server.address);
    let expected = [
        "POST /a?b=c HTTP/1.1",
        "content-length: 4",
        &host,
        "x-own: 1",
    ];
    assert_eq!((lines.as_slice(), body), (&expected[..], "body"));
}

#[tokio::test]
async fn connections_are_reused_for_equal_settings_only() {
    let (server, client) = (Server::new().await, client());
    let (first, (_, mut stream)) = tokio::join!(client.send(server.get()), answer_new(&server, OK));
    first.unwrap();
    let (second, _) = tokio::join!(client.send(server.get()), answer(&mut stream, OK));
    second.unwrap();
    let mut other = server.get();
    other.options.keepalive = Duration::from_secs(5);
    let (third, _) = tokio::join!(client.send(other), answer_new(&server, OK));
    third.unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_keepalive_time() {
    let (server, client) = (Server::new().await, client());
    for keepalive in [Duration::ZERO, Duration::from_millis(20)] {
        let mut request = server.get();
        request.options.keepalive = keepalive;
        let (response, (_, mut stream)) =
            tokio::join!(client.send(request), answer_new(&server, OK));
        response.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "{keepalive:?}");
    }
}

#[tokio::test]
async fn a_pooled_connection_that_the_server_has_closed_is_not_used() {
    let (server, client) = (Server::new().await, client());
    let runtime = tokio::runtime::Handle::current();
    for _ in 0..20 {
        let (response, (_, stream)) =
            tokio::join!(client.send(server.get()), answer_new(&server, OK));
        response.unwrap();
        drop(stream);
        // The task of the connection ends when it notices; the one that closes idle connections is left.
        while runtime.metrics().num_alive_tasks() > 1 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn redirects_and_errors_are_responses() {
    let (server, client) = (Server::new().await, client());
    for status in [301, 404, 500] {
        let response = format!(
            "HTTP/1.1 {status} X\r\nLocation: /other\r\nConnection: close\r\n\r\nbody until the end"
        );
        let closing = async { drop(answer_new(&server, &response).await) };
        let (response, ()) = tokio::join!(client.send(server.get()), closing);
        let response = response.unwrap();
        assert_eq!(response.status, status);
        assert_eq!(&*response.body, b"body until the end");
    }
}

#[tokio::test]
async fn a_long_body_is_cut_at_the_maximum() {
    let (server, client) = (Server::new().await, client());
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n";
    for (max_body, body, truncated) in [
        (0, "", true),
        (2, "ab", true),
        (5, "abcde", true),
        (6, "abcdef", false),
        (usize::MAX, "abcdef", false),
    ] {
        let mut request = server.get();
        request.options = Options {
            max_body,
            keepalive: Duration::ZERO,
            ..Options::default()
        };
        let (response, _) = tokio::join!(client.send(request), answer_new(&server, chunked));
        let response = response.unwrap();
        assert_eq!(
            (&*response.body, response.truncated),
            (body.as_bytes(), truncated)
        );
    }
}

#[tokio::test]
async fn a_response_to_head_has_no_body() {
    let (server, client) = (Server::new().await, client());
    let mut request = server.get();
    request.method = Method::HEAD;
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    let (response, _) = tokio::join!(client.send(request), answer_new(&server, head));
    assert_eq!(response.unwrap().body, "");
}

async fn failure_of(response: &str) -> HttpErrorKind {
    let (server, client) = (Server::new().await, client());
    let closing = async { drop(answer_new(&server, response).await) };
    let (sent, ()) = tokio::join!(client.send(server.get()), closing);
    sent.unwrap_err().kind
}

#[tokio::test]
async fn a_connection_that_ends_early_is_an_error() {
    for response in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
    ] {
        let kind = failure_of(response).await;
        assert!(
            matches!(kind, HttpErrorKind::Closed),
            "{response:?}: {kind:?}"
        );
    }
}

#[tokio::test]
async fn a_malformed_response_is_an_error() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(1_000_000));
    for response in ["nonsense\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", &long] {
        let kind = failure_of(response).await;
        assert!(matches!(kind, HttpErrorKind::Malformed(_)), "{kind:?}");
    }
}

#[tokio::test]
async fn the_timeout_covers_the_head_and_the_body() {
    let (server, client) = (Server::new().await, client());
    for response in ["", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"] {
        let mut request = server.get();
        request.options.timeout = Duration::from_millis(30);
        let (sent, _stream) = tokio::join!(client.send(request), answer_new(&server, response));
        let error = sent.unwrap_err();
        let expected = format!("{}: no response within 30ms", server.address);
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn a_handshake_that_stalls_ends_at_the_connect_timeout() {
    let (server, client) = (Server::new().await, client());
    let mut request = Request::new(Method::GET, server.url("https", "127.0.0.1", "/"));
    request.options.connect_timeout = Duration::from_millis(30);
    let (sent, _stream) = tokio::join!(client.send(request), server.accept());
    let kind = sent.unwrap_err().kind;
    let HttpErrorKind::Connect(ConnectError::Timeout(limit)) = kind else {
        panic!("{kind:?}");
    };
    assert_eq!(limit, Duration::from_millis(30));
}

#[tokio::test]
async fn errors_name_the_server_but_no_credentials() {
    let client = client();
    let server = Server::new().await;
    let request = Request::new(Method::GET, server.url("http", "me:secret@127.0.0.1", "/"));
    let place = server.address;
    drop(server);
    assert!(!format!("{request:?}").contains("secret"));
    let error = client.send(request).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("{place}: cannot connect: "))
    );
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_an_error() {
    let (resolver, _) = Resolver::new(DnsSettings::default());
    let client = Client::new(Trust::Anyone, resolver, Background::here()).unwrap();
    let url = Url::parse("http://name.test/").unwrap();
    let error = client.send(Request::new(Method::GET, url)).await;
    let expected = "name.test:80: the resolver has stopped";
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[tokio::test]
async fn names_are_resolved_by_the_gateways_resolver() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    std::fs::write(&hosts, "127.0.0.1 log.test\n").unwrap();
    let settings = DnsSettings {
        hosts_file: hosts,
        resolv_conf: directory.path().join("none"),
        ..DnsSettings::default()
    };
    let (resolver, background) = Resolver::new(settings);
    tokio::spawn(background.run());
    let client = Client::new(Trust::Anyone, resolver, Background::here()).unwrap();
    let server = Server::new().await;
    let request = Request::new(Method::GET, server.url("http", "Log.test", "/"));
    let (response, (sent, _)) = tokio::join!(client.send(request), answer_new(&server, OK));
    response.unwrap();
    let host = format!("host: log.test:{}\r\n", server.address.port());
    assert!(sent.contains(&host), "{sent}");
}

#[tokio::test]
async fn dropping_the_future_closes_the_connection() {
    let (server, client) = (Server::new().await, client());
    let sending = tokio::spawn({
        let (client, request) = (client.clone(), server.get());
        async move { client.send(request).await }
    });
    let mut stream = server.accept().await;
    read_request(&mut stream).await;
    sending.abort();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_request_after_the_shutdown_is_an_error() {
    let (server, client) = (Server::new().await, client());
    client
        .0
        .background
        .shut_down(tokio::time::Instant::now())
        .await;
    let error = client.send(server.get()).await.unwrap_err();
    assert!(matches!(error.kind, HttpErrorKind::Stopped));
}

#[tokio::test]
async fn dropping_the_client_closes_its_idle_connections_and_ends_its_tasks() {
    let (server, client) = (Server::new().await, client());
    let (response, (_, mut stream)) =
        tokio::join!(client.send(server.get()), answer_new(&server, OK));
    response.unwrap();
    drop(client);
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    let runtime = tokio::runtime::Handle::current();
    while runtime.metrics().num_alive_tasks() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_number_of_pools_is_bounded() {
    let client = client();
    for number in 0..2 * MAX_POOLS as u64 {
        let url = Url::parse("http://127.0.0.1:1/").unwrap();
        let mut options = Options::default();
        options.keepalive += Duration::from_secs(number);
        client.0.pools.of(PoolKey::new(&url, &options));
    }
    assert_eq!(client.0.pools.len(), MAX_POOLS);
}

struct Identity {
    pem: String,
    acceptor: TlsAcceptor,
}

fn identity(name: &str) -> Identity {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let chain = vec![CertificateDer::from(made.cert.der().to_vec())];
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Identity {
        pem: made.cert.pem(),
        acceptor: Arc::new(config).into(),
    }
}

/// Sends a request to a TLS server, and returns the outcome and the server name that the client has asked for.
async fn over_tls(
    identity: &Identity,
    client: &Client,
    options: Options,
) -> (Result<Response, HttpError>, Option<String>) {
    let server = Server::new().await;
    let request = Request {
        options,
        ..Request::new(Method::GET, server.url("https", "127.0.0.1", "/"))
    };
    let serving = async {
        let stream = server.accept().await;
        let mut stream = identity.acceptor.accept(stream).await.ok()?;
        answer(&mut stream, OK).await;
        let name = stream.get_ref().1.server_name().map(str::to_owned);
        let _ = stream.shutdown().await;
        name
    };
    tokio::join!(client.send(request), serving)
}

fn trusting(identity: &Identity) -> Client {
    client_trusting(Trust::Bundles {
        pems: vec![identity.pem.clone()],
        depth: 1,
        common_name: net::tls::CommonName::Ignored,
    })
}

#[tokio::test]
async fn certificates_are_verified_for_the_server_name() {
    let identity = identity("log.test");
    let client = trusting(&identity);
    let named = |name: &str| Options {
        server_name: Some(name.into()),
        ..Options::default()
    };
    let (response, asked) = over_tls(&identity, &client, named("log.test")).await;
    assert_eq!(response.unwrap().status, 200);
    assert_eq!(asked.as_deref(), Some("log.test"));
    for options in [named("other.test"), Options::default()] {
        let (response, _) = over_tls(&identity, &client, options).await;
        let kind = response.unwrap_err().kind;
        let refused = matches!(kind, HttpErrorKind::Connect(ConnectError::Tls(_)));
        assert!(refused, "{kind:?}");
    }
}

#[tokio::test]
async fn without_verification_any_certificate_is_accepted() {
    let (identity, client) = (identity("log.test"), client());
    let (response, _) = over_tls(&identity, &client, Options::default()).await;
    response.unwrap_err();
    let options = Options {
        verify: false,
        ..Options::default()
    };
    let (response, _) = over_tls(&identity, &client, options).await;
    assert_eq!(response.unwrap().body, "ok");
}
