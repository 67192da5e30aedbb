//! Over sockets: plain, TLS, and the way to stop.

use crate::fake::Fake;
use admin::control::Database;
use admin::{Limits, Listener};
use net::tls::{CertificateSource, Certificates, ClientTls, ServerTls, Trust, self_signed};
use std::net::SocketAddr;
use std::sync::Arc;
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
    tls: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<std::io::Result<()>>,
}

async fn serve() -> Server {
    let (plain, tls) = (bind().await, bind().await);
    let addresses = [&plain, &tls].map(|listener| listener.local_addr().unwrap());
    let source = SelfSigned(Arc::new(self_signed().unwrap()));
    let server_tls = ServerTls::new(Arc::new(source)).unwrap();
    let listeners = vec![Listener::Plain(plain), Listener::Tls(tls, server_tls)];
    let (stop, stopped) = oneshot::channel::<()>();
    let control = Arc::new(Fake::new(Database::Off));
    let limits = Limits::default();
    let running = tokio::spawn(admin::serve(
        listeners,
        admin::router(control),
        limits,
        async {
            let _ = stopped.await;
        },
    ));
    let [plain, tls] = addresses;
    Server {
        plain,
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
    // A TLS server need not say goodbye.
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
async fn a_client_that_does_not_shake_hands_keeps_nobody_waiting() {
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
async fn a_body_that_is_too_large_gets_its_answer() {
    let server = serve().await;
    let stream = TcpStream::connect(server.plain).await.unwrap();
    let body = "x".repeat(4 << 20);
    let head = "POST /services HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n";
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let answer = exchange(stream, &request).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn serving_ends_when_told_to() {
    let server = serve().await;
    let idle = TcpStream::connect(server.plain).await.unwrap();
    assert!(exchange(idle, GET).await.starts_with("HTTP/1.1 200"));
    server.stop.send(()).unwrap();
    server.running.await.unwrap().unwrap();
    assert!(TcpStream::connect(server.plain).await.is_err());
}
