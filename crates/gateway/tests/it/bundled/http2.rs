//! A blocking client of HTTP/2 without TLS.

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderValue, Request};
use std::net::SocketAddr;
use std::time::Duration;
use testkit::HttpResponse;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Time limit of each request. It turns a hang into a failure.
const LIMIT: Duration = Duration::from_secs(60);

/// A connection. It makes progress only while one of its methods runs.
pub(super) struct Http2 {
    runtime: Runtime,
    client: SendRequest<Bytes>,
}

impl Http2 {
    pub(super) fn connect(address: SocketAddr) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let client = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("it listens");
            let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
            tokio::spawn(connection);
            client
        });
        Self { runtime, client }
    }

    /// Sends a request and reads its response. Trailers are added to the headers of the response.
    pub(super) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> HttpResponse {
        let client = &mut self.client;
        self.runtime.block_on(async {
            let exchange = async {
                let answer = send(client, method, path, headers, body).await;
                receive(answer).await.expect("a response")
            };
            timeout(LIMIT, exchange).await.expect("it is answered")
        })
    }

    /// Sends a request, waits for the first piece of its response and resets the stream. Returns the piece.
    pub(super) fn begin_and_reset(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Bytes {
        let client = &mut self.client;
        self.runtime.block_on(async {
            let exchange = async {
                let answer = send(client, "POST", path, headers, body).await;
                let mut received = answer.await.expect("a response").into_body();
                received.data().await.expect("a body").expect("a piece")
            };
            let piece = timeout(LIMIT, exchange).await.expect("it is answered");
            // The stream was dropped. Another request makes sure that the reset is written.
            let ping = send(client, "GET", "/nowhere", &[], b"").await;
            let _ = timeout(LIMIT, ping).await.expect("it is answered");
            piece
        })
    }
}

async fn send(
    client: &mut SendRequest<Bytes>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> ResponseFuture {
    let mut request = Request::builder().method(method);
    request = request.uri(format!("http://localhost{path}"));
    for (name, value) in headers {
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
        request = request.header(*name, value);
    }
    let request = request.body(()).expect("a request");
    let mut ready = client.clone().ready().await.expect("an open connection");
    let sent = ready.send_request(request, body.is_empty());
    let (answer, mut stream) = sent.expect("the connection is open");
    if !body.is_empty() {
        let body = Bytes::copy_from_slice(body);
        stream.send_data(body, true).expect("the stream is open");
    }
    answer
}

async fn receive(answer: ResponseFuture) -> Result<HttpResponse, h2::Error> {
    let (head, mut stream) = answer.await?.into_parts();
    let body = read(&mut stream).await?;
    let trailers = stream.trailers().await?.unwrap_or_default();
    let fields = head.headers.iter().chain(&trailers);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = fields.map(|(name, value)| (name.to_string(), text(value.as_bytes())));
    Ok(HttpResponse {
        status: head.status.as_u16(),
        line: "HTTP/2".to_owned(),
        headers: fields.collect(),
        body,
    })
}

/// Reads a body to its end.
pub(super) async fn read(stream: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut body = Vec::new();
    while let Some(piece) = stream.data().await {
        let piece = piece?;
        stream.flow_control().release_capacity(piece.len())?;
        body.extend_from_slice(&piece);
    }
    Ok(body)
}
