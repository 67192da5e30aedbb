//! The server's sockets: plain and TLS listeners, time limits, and shutdown.

use crate::fake::Fake;
use admin::control::Database;
use admin::{Limits, Listener};
use bytes::Bytes;
use http_body_util::Empty;
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use net::tls::{CertificateSource, Certificates, ClientTls, ServerTls, Trust, self_signed};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

#[derive(Debug)]
struct SelfSigned(Arc<Certificates>);

impl CertificateSource for SelfSigned {
    fn certificates(&self, _name: Option<&str>) -> Option<Arc<Certificates>> {
        Some(self.0.clone())
    }
}

struct Server {
    plain: SocketAddr,
    /// Address of the listener that also accepts HTTP/2.
    either: SocketAddr,
    tls: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<std::io::Result<()>>,
}

async fn serve() -> Server {
    serve_with(Limits::default()).await
}

async fn serve_with(limits: Limits) -> Server {
    let (plain, either, tls) = (bind().await, bind().await, bind().await);
    let addresses = [&plain, &either, &tls].map(|listener| listener.local_addr().unwrap());
    let source = SelfSigned(Arc::new(self_signed().unwrap()));
    let server_tls = ServerTls::new(Arc::new(source)).unwrap();
    let listeners = vec![
        Listener::Plain(plain),
        Listener::PlainHttp2(either),
        Listener::Tls(tls, server_tls),
    ];
    let (stop, stopped) = oneshot::channel::<()>();
    let control = Arc::new(Fake::new(Database::Off));
    let running = tokio::spawn(admin::serve(
        listeners,
        admin::router(control),
        limits,
        async {
            let _ = stopped.await;
        },
    ));
    let [plain, either, tls] = addresses;
    Server {
        plain,
        either,
        tls,
        stop,
        running,
    }
}

async fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A TLS server may close the connection without `close_notify`.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

const GET: &str = "GET /services HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn plain_and_tls_listeners_answer_alike() {
    let server = serve().await;
    let plain = TcpStream::connect(server.plain).await.unwrap();
    let answer = exchange(plain, GET).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("{\"data\":[],\"next\":null}"), "{answer}");
    let tls = TcpStream::connect(server.tls).await.unwrap();
    let client = ClientTls::new(Trust::Anyone, None).unwrap();
    let answer = exchange(client.connect(tls, "a.test").await.unwrap(), GET).await;
    assert!(answer.ends_with("{\"data\":[],\"next\":null}"), "{answer}");
}

#[tokio::test]
async fn a_request_without_tls_on_a_tls_port_gets_an_error_page() {
    let server = serve().await;
    for request in [
        GET,
        "POST /services HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
    ] {
        let plain = TcpStream::connect(server.tls).await.unwrap();
        let answer = exchange(plain, request).await;
        assert!(
            answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
            "{answer}"
        );
        assert!(answer.contains("\r\ncontent-type: text/html; charset=UTF-8\r\n"));
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        let page = answer.split_once("\r\n\r\n").unwrap().1;
        assert!(page.contains("<center>The plain HTTP request was sent to HTTPS port</center>"));
    }
}

/// Opens an HTTP/2 connection without TLS.
async fn http2(address: SocketAddr) -> http2::SendRequest<Empty<Bytes>> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

#[tokio::test]
async fn http2_streams_get_the_same_responses_as_http1() {
    let server = serve().await;
    let mut sender = http2(server.either).await;
    let ask = |path: &str| Request::get(format!("http://a{path}")).body(Empty::new());
    let first = sender.send_request(ask("/services").unwrap());
    let second = sender.send_request(ask("/nowhere").unwrap());
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap().status(), 200);
    assert_eq!(second.unwrap().status(), 404);
    let plain = TcpStream::connect(server.either).await.unwrap();
    let answer = exchange(plain, GET).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed() {
    let server = serve_with(Limits {
        head: Duration::from_millis(50),
        idle: Duration::from_millis(50),
        ..Limits::default()
    })
    .await;
    let mut sender = http2(server.either).await;
    let request = Request::get("http://a/services").body(Empty::new());
    let answer = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    drop(answer);
    // If the server kept the connection open, this loop would run until the time limit of the test.
    while sender.ready().await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_without_a_tls_handshake_delays_nobody() {
    let server = serve().await;
    let _silent = TcpStream::connect(server.tls).await.unwrap();
    let mut nonsense = TcpStream::connect(server.tls).await.unwrap();
    nonsense.write_all(GET.as_bytes()).await.unwrap();
    let tls = TcpStream::connect(server.tls).await.unwrap();
    let client = ClientTls::new(Trust::Anyone, None).unwrap();
    let answer = exchange(client.connect(tls, "a.test").await.unwrap(), GET).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn a_client_with_a_too_large_body_receives_the_response() {
    let server = serve().await;
    let stream = TcpStream::connect(server.plain).await.unwrap();
    let body = "x".repeat(4 << 20);
    let head = "POST /services HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n";
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let answer = exchange(stream, &request).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn head_has_the_content_length_of_get() {
    let server = serve().await;
    let stream = TcpStream::connect(server.plain).await.unwrap();
    let answer = exchange(stream, &GET.replace("GET", "HEAD")).await;
    assert!(answer.contains("\r\ncontent-length: 23\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn serving_ends_after_stop() {
    let server = serve().await;
    let idle = TcpStream::connect(server.plain).await.unwrap();
    assert!(exchange(idle, GET).await.starts_with("HTTP/1.1 200"));
    server.stop.send(()).unwrap();
    server.running.await.unwrap().unwrap();
    assert!(TcpStream::connect(server.plain).await.is_err());
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.plain).await.unwrap()
}

/// Reads until the server closes or resets the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

/// Sends a request on a connection that stays open, and returns the response.
async fn ask(stream: &mut TcpStream) -> String {
    let request = "GET /services HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"null}") {
        answer.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap()
}

const SHORT: Duration = Duration::from_millis(50);
/// A time that never passes in a test.
const LONG: Duration = Duration::from_secs(3600);

/// Limits with times that never pass in a test. A test shortens the one that it examines.
fn patient() -> Limits {
    Limits {
        head: LONG,
        body: LONG,
        idle: LONG,
        send: LONG,
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_missing_request_head_ends_the_connection() {
    let server = serve_with(Limits {
        head: SHORT,
        ..patient()
    })
    .await;
    let mut silent = connect(&server).await;
    assert_eq!(rest(&mut silent).await, "");
    let mut slow = connect(&server).await;
    slow.write_all(b"GET / HTT").await.unwrap();
    assert_eq!(rest(&mut slow).await, "");
    let mut second = connect(&server).await;
    assert!(ask(&mut second).await.starts_with("HTTP/1.1 200"));
    second.write_all(b"GET / HTT").await.unwrap();
    assert_eq!(rest(&mut second).await, "");
}

#[tokio::test]
async fn a_connection_without_requests_is_closed() {
    let server = serve_with(Limits {
        idle: SHORT,
        ..patient()
    })
    .await;
    let mut idle = connect(&server).await;
    for _ in 0..3 {
        assert!(ask(&mut idle).await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(rest(&mut idle).await, "");
}

#[tokio::test]
async fn a_missing_body_is_reported() {
    let server = serve_with(Limits {
        body: SHORT,
        ..patient()
    })
    .await;
    let mut slow = connect(&server).await;
    let head = "POST /config HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("nothing of the request body"), "{answer}");
}

#[tokio::test]
async fn a_client_that_reads_no_responses_is_disconnected() {
    let server = serve_with(Limits {
        send: SHORT,
        ..patient()
    })
    .await;
    let mut greedy = connect(&server).await;
    let requests = "GET /schemas/services HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    // Write until the socket buffers of both sides are full and the server closes the connection.
    while greedy.write_all(requests.as_bytes()).await.is_ok() {}
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_immediately() {
    let server = serve_with(Limits {
        connections: 1,
        ..patient()
    })
    .await;
    let mut first = connect(&server).await;
    ask(&mut first).await;
    assert_eq!(rest(&mut connect(&server).await).await, "");
    drop(first);
    // The server may notice the closed connection a moment later.
    while exchange(connect(&server).await, GET).await.is_empty() {}
}

#[tokio::test]
async fn requests_beyond_the_limit_get_retry_after() {
    let server = serve_with(Limits {
        requests: 0,
        ..patient()
    })
    .await;
    let answer = exchange(connect(&server).await, GET).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    assert!(answer.contains("which is the limit"), "{answer}");
    let server = serve_with(Limits {
        requests: 1,
        ..patient()
    })
    .await;
    for _ in 0..3 {
        let answer = exchange(connect(&server).await, GET).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[tokio::test]
async fn expect_continue_is_refused_without_the_body() {
    let server = serve().await;
    let mut client = connect(&server).await;
    let head =
        "POST /nope HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9000\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}
