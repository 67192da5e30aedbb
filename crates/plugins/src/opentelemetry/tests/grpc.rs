//! Tests of OTLP over gRPC, with a server of HTTP/2 on a thread of its own.

use super::{TRACE, hex, tracing};
use crate::testing;
use bytes::Bytes;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};
use plugin::testing::Case;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use testkit::otlp;
use tokio::net::{TcpListener, TcpStream};

/// Time limit for what happens in the background.
const LIMIT: Duration = Duration::from_secs(60);

const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A receiver of gRPC. Its first answers have these statuses, the others 0.
struct Server {
    address: SocketAddr,
    calls: Receiver<Call>,
}

struct Call {
    path: String,
    headers: HeaderMap,
    /// The message, without its prefix.
    message: Vec<u8>,
    /// The number of the connection.
    connection: usize,
}

/// The status of an answer, and its message.
type Reply = (&'static str, &'static [u8]);

impl Server {
    fn start(replies: &'static [Reply]) -> Self {
        let (send, calls) = channel();
        let (tell, address) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let (mut replies, mut number) = (replies.iter(), 0);
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    serve(stream, &mut replies, number, &send).await;
                    number += 1;
                }
            });
        });
        let address = address.recv_timeout(LIMIT).unwrap();
        Self { address, calls }
    }

    fn next(&self) -> Call {
        self.calls.recv_timeout(LIMIT).expect("a call arrives")
    }

    fn case(&self, more: serde_json::Value) -> Case {
        let mut config = json!({"protocol": "grpc", "queue": {"max_batch_size": 1}});
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        testing::case(super::def(), config).tracing(tracing(1.0))
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Serves one connection.
async fn serve(
    stream: TcpStream,
    replies: &mut impl Iterator<Item = &'static Reply>,
    connection: usize,
    calls: &Sender<Call>,
) {
    let Ok(mut accepted) = h2::server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, respond))) = accepted.accept().await {
        let call = read(request, connection);
        // The connection must be polled while the body is read.
        let call = tokio::select! {
            call = call => call,
            _ = std::future::poll_fn(|cx| accepted.poll_closed(cx)) => return,
        };
        let _ = calls.send(call);
        reply(respond, *replies.next().unwrap_or(&("0", b"")));
    }
}

async fn read(request: Request<h2::RecvStream>, connection: usize) -> Call {
    let (parts, mut body) = request.into_parts();
    let mut bytes = Vec::new();
    while let Some(Ok(piece)) = body.data().await {
        let _ = body.flow_control().release_capacity(piece.len());
        bytes.extend_from_slice(&piece);
    }
    let (prefix, message) = bytes.split_at(5);
    let length = u32::from_be_bytes(prefix[1..].try_into().unwrap());
    assert_eq!((prefix[0], length as usize), (0, message.len()));
    Call {
        path: parts.uri.path().to_owned(),
        headers: parts.headers,
        message: message.to_vec(),
        connection,
    }
}

fn reply(mut respond: SendResponse<Bytes>, (status, message): Reply) {
    let head = Response::builder().header("content-type", "application/grpc");
    let mut body = respond
        .send_response(head.body(()).unwrap(), false)
        .unwrap();
    let mut bytes = vec![0];
    bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
    bytes.extend_from_slice(message);
    body.send_data(bytes.into(), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    body.send_trailers(trailers).unwrap();
}

#[test]
fn spans_are_sent_by_calls_of_grpc_over_one_connection() {
    let server = Server::start(&[]);
    let case = server.case(json!({
        "traces_endpoint": format!("{}/ignored", server.url()),
        "headers": {"X-Key": "secret", "Content-Type": "text/plain", "TE": "gzip"},
        "read_timeout": 1000, "send_timeout": 1000, "connect_timeout": 1000,
    }));
    for connection in [0, 0] {
        case.request("GET /")
            .header("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01"))
            .run_now();
        let call = server.next();
        assert_eq!((&*call.path, call.connection), (TRACES, connection));
        let of = |name: &str| call.headers[name].to_str().unwrap();
        assert_eq!(of("content-type"), "application/grpc");
        assert_eq!((of("te"), of("grpc-timeout")), ("trailers", "3000m"));
        assert_eq!(of("x-key"), "secret");
        let spans = otlp::spans(&call.message);
        assert_eq!(hex(&spans[0].trace_id), TRACE);
    }
}

#[test]
fn a_call_is_repeated_if_the_collector_is_unavailable_but_not_if_it_refuses() {
    let server = Server::start(&[("14", b""), ("4", b""), ("0", b""), ("3", b"")]);
    let case = server.case(json!({
        "traces_endpoint": server.url(),
        "queue": {"max_batch_size": 1, "initial_retry_delay": 0.001},
    }));
    case.request("GET /").run_now();
    let messages = [(); 3].map(|()| server.next().message);
    assert!(messages[0] == messages[1] && messages[1] == messages[2]);
    // What is refused is followed by another request's span.
    let refused = case.request("GET /").run_now();
    assert_ne!(server.next().message, messages[0]);
    let other = case.request("GET /").run_now();
    let span = &otlp::spans(&server.next().message)[0];
    let of = |outcome: &plugin::testing::Outcome| outcome.state.trace.id.unwrap().hex();
    assert_eq!(hex(&span.trace_id).as_bytes(), of(&other));
    assert_ne!(of(&refused), of(&other));
}

#[test]
fn entries_that_a_success_leaves_out_are_counted_as_lost() {
    // ExportTracePartialSuccess with one rejected span and a message.
    let server = Server::start(&[("0", b"\x0a\x07\x08\x01\x12\x03bad")]);
    let case = server.case(json!({"traces_endpoint": server.url()}));
    let node = case.node();
    case.request("GET /").run_now();
    server.next();
    let refused = testing::eventually(|| {
        let counts = node.queues.counts().into_iter().next()?.counts;
        (counts.refused > 0).then_some(counts)
    });
    assert_eq!((refused.refused, refused.sent, refused.retried), (1, 0, 0));
}

#[test]
fn metrics_are_sent_in_intervals() {
    let server = Server::start(&[]);
    let case = server.case(json!({
        "metrics_endpoint": server.url(), "metrics_interval": 1,
        "resource_attributes": {"service.name": "edge"},
    }));
    let counter = case.node().metrics.counter("things_total", "Things.", &[]);
    counter.unwrap().with(&[]).add(0, 5);
    case.request("GET /").run_now();
    for _ in 0..2 {
        let call = server.next();
        let method = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
        assert_eq!(call.path, method);
        let metrics = otlp::metrics(&call.message);
        let found = metrics.iter().find(|metric| metric.name == "things_total");
        let Some(otlp::Data::Sum(sum)) = found.and_then(|metric| metric.data.as_ref()) else {
            panic!("{metrics:?}");
        };
        assert_eq!(sum.points[0].value, Some(otlp::Number::Integer(5)));
        let export: otlp::Export<otlp::Metric> = prost::Message::decode(&*call.message).unwrap();
        let resource = export.resources[0].resource.as_ref().unwrap();
        let attributes = otlp::attributes(&resource.attributes);
        assert_eq!(attributes["service.name"], otlp::Value::Text("edge".into()));
    }
}
