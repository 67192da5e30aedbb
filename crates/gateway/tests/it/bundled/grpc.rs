//! A gRPC upstream over HTTP/2 without TLS. It runs in a thread of its own.

use super::http2::read;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use serde_json::{Value, json};
use std::future::poll_fn;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};

/// Time limit for the end of a call. It turns a hang into a failure.
const LIMIT: Duration = Duration::from_secs(60);

/// A running upstream. The last part of the path decides about the response:
///
/// - `Echo` sends the body of the request back, and succeeds with the message `fine`.
/// - `Stream` sends what the test passes to [`GrpcUpstream::send`], until [`GrpcUpstream::end`].
/// - `Fail` ends the call with status 5 in its first header block.
pub(super) struct GrpcUpstream {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Value>>>,
    pieces: UnboundedSender<Option<Bytes>>,
    resets: mpsc::Receiver<()>,
}

/// The part of the upstream that its streams use.
struct Serving {
    seen: Arc<Mutex<Vec<Value>>>,
    pieces: tokio::sync::Mutex<UnboundedReceiver<Option<Bytes>>>,
    resets: mpsc::Sender<()>,
}

impl GrpcUpstream {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("a bound address");
        let seen = Arc::new(Mutex::default());
        let (pieces, received) = unbounded_channel();
        let (sender, resets) = mpsc::channel();
        let recording = Arc::clone(&seen);
        thread::spawn(move || {
            let serving = Rc::new(Serving {
                seen: recording,
                pieces: received.into(),
                resets: sender,
            });
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            LocalSet::new().block_on(&runtime, serving.accept(listener));
        });
        Self {
            address,
            seen,
            pieces,
            resets,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("grpc://{}", self.address)
    }

    /// Returns the path, the headers and the length of the body of each call so far.
    pub(super) fn seen(&self) -> Vec<Value> {
        lock(&self.seen).clone()
    }

    /// Makes the current streaming response send this.
    pub(super) fn send(&self, piece: &[u8]) {
        let piece = Bytes::copy_from_slice(piece);
        self.pieces.send(Some(piece)).expect("the upstream runs");
    }

    /// Ends the current streaming response.
    pub(super) fn end(&self) {
        self.pieces.send(None).expect("the upstream runs");
    }

    /// Waits until the gateway has reset a streaming response.
    pub(super) fn wait_for_reset(&self) {
        let reset = self.resets.recv_timeout(LIMIT);
        reset.expect("the gateway resets the stream");
    }
}

impl Serving {
    async fn accept(self: Rc<Self>, listener: TcpListener) {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("a TCP socket");
            let serving = Rc::clone(&self);
            spawn_local(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else {
                    return;
                };
                while let Some(Ok((request, answer))) = connection.accept().await {
                    // Errors are ignored, because the gateway may reset a stream at any time.
                    spawn_local(Rc::clone(&serving).serve(request, answer));
                }
            });
        }
    }

    async fn serve(
        self: Rc<Self>,
        request: Request<RecvStream>,
        mut answer: SendResponse<Bytes>,
    ) -> Result<(), h2::Error> {
        let (head, mut body) = request.into_parts();
        let body = read(&mut body).await?;
        let header = |name: &str| head.headers.get(name)?.to_str().ok();
        lock(&self.seen).push(json!({
            "method": head.method.as_str(), "path": head.uri.path(), "content-type": header("content-type"),
            "te": header("te"), "length": body.len(), "x-number": header("x-number")
        }));
        match head.uri.path().rsplit('/').next() {
            Some("Stream") => self.stream(answer).await,
            Some("Fail") => {
                let mut response = grpc_head();
                response.headers_mut().extend(status(5, "nothing here"));
                answer.send_response(response, true).map(|_| ())
            }
            _ => {
                let mut stream = answer.send_response(grpc_head(), false)?;
                stream.send_data(body.into(), false)?;
                stream.send_trailers(status(0, "fine"))
            }
        }
    }

    async fn stream(&self, mut answer: SendResponse<Bytes>) -> Result<(), h2::Error> {
        let mut pieces = self.pieces.lock().await;
        let mut stream = answer.send_response(grpc_head(), false)?;
        loop {
            tokio::select! {
                piece = pieces.recv() => match piece.flatten() {
                    Some(piece) => stream.send_data(piece, false)?,
                    None => return stream.send_trailers(status(0, "done")),
                },
                reason = poll_fn(|cx| stream.poll_reset(cx)) => {
                    let _ = self.resets.send(());
                    return reason.map(|_| ());
                }
            }
        }
    }
}

fn grpc_head() -> Response<()> {
    let response = Response::builder().header("content-type", "application/grpc");
    response.body(()).expect("a response")
}

fn status(code: u16, message: &'static str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", code.into());
    fields.insert("grpc-message", HeaderValue::from_static(message));
    fields
}

/// A message of gRPC: its flags, its length and its content.
pub(super) fn message(content: &[u8]) -> Vec<u8> {
    frame(0, content)
}

/// The frame in which gRPC-Web has the trailers.
pub(super) fn trailers(lines: &str) -> Vec<u8> {
    frame(0x80, lines.as_bytes())
}

fn frame(flags: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("messages here are small");
    [&[flags][..], &length.to_be_bytes(), content].concat()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
