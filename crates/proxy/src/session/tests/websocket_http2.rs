//! WebSockets over HTTP/2 (RFC 8441). All run as streams of one connection, and carry the same bytes as over HTTP/1.1.

use super::websocket_frames::{
    Case, Play, all, closes, fragments, messages, pings, reserved, sizes, texts,
};
use super::*;
use bytes::Bytes;
use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{Method, Request, Version};

/// A connection that has received the gateway's settings.
async fn connect(gateway: &Gateway) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut client, connection) = h2::client::Builder::new()
        .initial_window_size(1 << 20)
        .initial_connection_window_size(1 << 24)
        .handshake(stream)
        .await
        .unwrap();
    tokio::task::spawn_local(connection);
    // The settings arrive before the first response.
    let request = Request::get("http://a/").body(()).unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    assert!(client.is_extended_connect_protocol_enabled());
    client
}

async fn open(client: &mut SendRequest<Bytes>) -> (SendStream<Bytes>, RecvStream) {
    let request = Request::builder()
        .method(Method::CONNECT)
        .version(Version::HTTP_2)
        .uri("http://a/chat")
        .extension(Protocol::from_static("websocket"))
        .header("sec-websocket-version", "13")
        .body(())
        .unwrap();
    let (answer, sending) = client.send_request(request, false).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    for name in ["upgrade", "connection", "sec-websocket-accept"] {
        assert!(!answer.headers().contains_key(name), "{name}");
    }
    (sending, answer.into_body())
}

/// The next bytes, or `None` at the end of the stream.
async fn next(receiving: &mut RecvStream) -> Option<Bytes> {
    let data = receiving.data().await?.unwrap();
    let _ = receiving.flow_control().release_capacity(data.len());
    Some(data)
}

async fn check(cases: Vec<Case>) {
    let Play {
        bytes,
        mut scripts,
        arrived,
    } = Play::of(&cases);
    scripts.insert(
        0,
        script(|mut peer: Peer| async move {
            peer.head().await;
            // The connection is closed, so that the gateway does not reuse it for a WebSocket: each has its own script.
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                .await;
        }),
    );
    let mut setup = Setup::new(upstream(scripts).await);
    setup.listen = "127.0.0.1:0 http2";
    let gateway = setup.start();
    let mut client = connect(&gateway).await;
    for (case, [up, down]) in cases.iter().zip(bytes) {
        let (mut sending, mut receiving) = open(&mut client).await;
        for piece in up.chunks(case.piece) {
            sending
                .send_data(Bytes::copy_from_slice(piece), false)
                .unwrap();
        }
        let mut got = Vec::new();
        while let Some(data) = next(&mut receiving).await {
            got.extend_from_slice(&data);
        }
        assert!(got == *down, "{}: changed on the way down", case.name);
        sending.send_data(Bytes::new(), true).unwrap();
    }
    assert_eq!(arrived.get(), cases.len());
}

#[test]
fn frames_of_every_kind_pass_untouched() {
    run(check(all([messages(), pings(), reserved(), fragments()])));
}

#[test]
fn texts_and_closes_pass_untouched() {
    run(check(all([texts(), closes()])));
}

#[test]
fn messages_up_to_16_mib_pass_untouched() {
    run(check(sizes()));
}
