//! Peers that receive or send an HTTP/2 stream slowly but steadily, and peers that stop. The time limits must
//! count progress within a single write or frame: windows are smaller than the gateway's writes, and a frame takes
//! longer than a limit.

use super::http2::{gateway_to, get};
use super::*;
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::Response;
use std::time::Duration;
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};

/// Bytes that a slow peer receives per second. Also the size of its window.
const PIECE: u32 = 8 * 1024;
const SECOND: Duration = Duration::from_secs(1);
/// The time limit under test.
const LIMIT: Duration = Duration::from_secs(3);
const BODY: usize = 10 * PIECE as usize;

/// Connects without Nagle's algorithm. With it, the paused clock would jump past the time limits before a delayed
/// acknowledgement arrives.
async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

async fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// An upstream that sends a head, and then one piece of a body per second.
fn drips(pieces: usize, length: usize) -> Script {
    script(move |mut peer: Peer| async move {
        peer.head().await;
        let total = pieces * length;
        peer.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n"
        ))
        .await;
        for _ in 0..pieces {
            if peer.stream.write_all(&vec![b'x'; length]).await.is_err() {
                return;
            }
            sleep(SECOND).await;
        }
        peer.rest().await;
    })
}

fn sends_at_once(length: usize) -> Script {
    drips(1, length)
}

/// A client whose streams have a window of one piece.
async fn slow_connection(gateway: &Gateway) -> SendRequest<Bytes> {
    let stream = connect(gateway.address).await;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(PIECE);
    let (client, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    tokio::task::spawn_local(connection);
    client.ready().await.unwrap()
}

/// Sends a request from a client that receives slowly, and returns the body of the response.
async fn slow_client(gateway: &Gateway) -> RecvStream {
    let mut client = slow_connection(gateway).await;
    let (answer, _) = client.send_request(get("/"), true).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body()
}

/// Receives this many pieces, one per second.
async fn take(stream: &mut RecvStream, pieces: usize) -> Result<usize, h2::Error> {
    let mut taken = 0;
    while taken < pieces * PIECE as usize {
        let Some(data) = stream.data().await else {
            break;
        };
        let length = data?.len();
        taken += length;
        sleep(SECOND * length as u32 / PIECE).await;
        stream.flow_control().release_capacity(length)?;
    }
    Ok(taken)
}

/// Tests that a client that receives one piece per second gets the whole body. `set` changes the gateway's settings.
fn slow_client_gets_all(set: impl FnOnce(&mut Setup)) {
    run_paused(async {
        let mut setup = gateway_to(upstream(vec![sends_at_once(BODY)]).await, Protocol::Http);
        set(&mut setup);
        let gateway = setup.start();
        let mut stream = slow_client(&gateway).await;
        assert_eq!(take(&mut stream, 10).await.unwrap(), BODY);
    });
}

#[test]
fn a_client_that_takes_an_answer_slowly_gets_all_of_it() {
    slow_client_gets_all(|setup| {
        setup.settings.send_timeout = LIMIT;
        setup.service.read_timeout = LIMIT.as_millis() as u32;
    });
}

#[test]
fn a_client_above_the_minimum_rate_is_not_too_slow() {
    slow_client_gets_all(|setup| {
        setup.settings.min_rate = super::super::MinRate {
            bytes: u64::from(PIECE) / 2,
            grace: LIMIT,
        };
    });
}

#[test]
fn a_client_that_stops_receiving_is_reset_after_the_limit() {
    run_paused(async {
        let mut setup = gateway_to(upstream(vec![sends_at_once(BODY)]).await, Protocol::Http);
        setup.settings.send_timeout = LIMIT;
        let gateway = setup.start();
        let mut stream = slow_client(&gateway).await;
        assert!(take(&mut stream, 4).await.unwrap() < BODY);
        let stopped = Instant::now();
        let error = loop {
            if let Err(error) = stream.data().await.unwrap() {
                break error;
            }
        };
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
        let waited = stopped.elapsed();
        assert!(
            waited >= LIMIT - SECOND && waited <= LIMIT + SECOND,
            "{waited:?}"
        );
    });
}

/// Bytes that the gateway reads ahead do not count as progress of the client.
#[test]
fn a_client_that_receives_nothing_is_reset_while_the_upstream_sends() {
    run_paused(async {
        let answer = drips(60, 2 * PIECE as usize);
        let mut setup = gateway_to(upstream(vec![answer]).await, Protocol::Http);
        setup.settings.send_timeout = LIMIT;
        let gateway = setup.start();
        let mut stream = slow_client(&gateway).await;
        stream.data().await.unwrap().unwrap();
        let started = Instant::now();
        let error = stream.data().await.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
        assert!(started.elapsed() <= LIMIT + SECOND);
    });
}

/// An HTTP/2 upstream that receives this many pieces of a request, one per second, and responds if that was the whole
/// body. It responds at once to requests without a body.
async fn slow_upstream(pieces: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        let stream = accept(&listener).await;
        let mut builder = h2::server::Builder::new();
        builder.initial_window_size(PIECE);
        let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            tokio::task::spawn_local(async move {
                let mut stream = request.into_body();
                match take(&mut stream, pieces).await {
                    Ok(0 | BODY) => respond.send_response(Response::new(()), true).map(drop),
                    _ => std::future::pending().await,
                }
                .unwrap();
            });
        }
    });
    address
}

/// Sends a request of `BODY` bytes over HTTP/1.1. Returns the status of the response and the time until it arrived.
async fn upload(upstream: SocketAddr) -> (String, Duration) {
    let mut setup = gateway_to(upstream, Protocol::Grpc);
    setup.route.protocols = vec![Protocol::Http];
    setup.service.write_timeout = LIMIT.as_millis() as u32;
    setup.service.retries = 0;
    let gateway = setup.start();
    let mut client = gateway.client().await;
    // After one response, the gateway knows the size of the upstream's windows.
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(status(&client.answer().await), "200");
    let started = Instant::now();
    client
        .send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY}\r\n\r\n{}",
            "x".repeat(BODY)
        ))
        .await;
    let head = client.head().await;
    (status(&head).to_owned(), started.elapsed())
}

#[test]
fn an_upstream_that_receives_slowly_gets_the_whole_request() {
    run_paused(async {
        let (status, took) = upload(slow_upstream(10).await).await;
        assert_eq!(status, "200", "{took:?}");
        assert!(took > 2 * LIMIT, "{took:?}");
    });
}

#[test]
fn an_upstream_that_stops_receiving_times_out() {
    run_paused(async {
        let (status, took) = upload(slow_upstream(4).await).await;
        assert_eq!(status, "504");
        assert!(took >= 3 * SECOND + LIMIT, "{took:?}");
        assert!(took <= 5 * SECOND + LIMIT, "{took:?}");
    });
}

/// A WebSocket on an HTTP/2 stream runs as a tunnel, which has its own time limits.
#[test]
fn a_client_that_receives_slowly_keeps_its_tunnel() {
    run_paused(async {
        let accept = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
                .await;
            peer.send("x".repeat(BODY)).await;
            peer.rest().await;
        });
        let mut setup = gateway_to(upstream(vec![accept]).await, Protocol::Http);
        setup.settings.send_timeout = LIMIT;
        let gateway = setup.start();
        let mut client = slow_connection(&gateway).await;
        while !client.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let mut request = http::Request::connect("http://a.test/").body(()).unwrap();
        let websocket = h2::ext::Protocol::from_static("websocket");
        request.extensions_mut().insert(websocket);
        let (answer, _sending) = client.send_request(request, false).unwrap();
        let mut stream = answer.await.unwrap().into_body();
        assert_eq!(take(&mut stream, 10).await.unwrap(), BODY);
    });
}

/// Maximum frame size in HTTP/2 unless a peer allows more. Such a frame takes 16 seconds at `RATE`.
const FRAME: usize = 16 * 1024;
/// Bytes that a slow peer sends per second.
const RATE: usize = 1024;

/// Wraps a connection so that it sends `RATE` bytes per second, and nothing after about `most` bytes.
fn slowly(stream: TcpStream, most: usize) -> DuplexStream {
    let (near, far) = tokio::io::duplex(4 * FRAME);
    let (mut from_peer, mut to_peer) = stream.into_split();
    let (mut from_near, mut to_near) = tokio::io::split(far);
    tokio::task::spawn_local(async move { tokio::io::copy(&mut from_peer, &mut to_near).await });
    tokio::task::spawn_local(async move {
        let mut piece = [0; RATE];
        let mut sent = 0;
        while sent < most {
            let read = from_near.read(&mut piece).await.unwrap();
            if read == 0 || to_peer.write_all(&piece[..read]).await.is_err() {
                return;
            }
            sent += read;
            sleep(SECOND).await;
        }
        std::future::pending().await
    });
    near
}

/// Sends a body of one frame slowly, and stops after `most` bytes of the connection. Returns the response's status.
fn slow_upload(buffers: bool, most: usize) -> u16 {
    let (sender, receiver) = std::sync::mpsc::channel();
    run_paused(async move {
        let mut setup = gateway_to(upstream(vec![answers(OK)]).await, Protocol::Http);
        setup.settings.body_timeout = LIMIT;
        setup.route.request_buffering = buffers;
        let gateway = setup.start();
        let stream = connect(gateway.address).await;
        let (client, connection) = h2::client::handshake(slowly(stream, most)).await.unwrap();
        tokio::task::spawn_local(connection);
        let mut client = client.ready().await.unwrap();
        let request = http::Request::post("http://a.test/").header("content-length", FRAME);
        let (answer, mut sending) = client
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        sending.send_data(vec![b'x'; FRAME].into(), true).unwrap();
        sender
            .send(answer.await.unwrap().status().as_u16())
            .unwrap();
    });
    receiver.recv().unwrap()
}

#[test]
fn a_client_that_sends_a_frame_slowly_gets_an_answer() {
    assert_eq!(slow_upload(true, usize::MAX), 200);
    assert_eq!(slow_upload(false, usize::MAX), 200);
}

#[test]
fn a_client_that_stops_within_a_frame_times_out() {
    assert_eq!(slow_upload(true, FRAME / 2), 408);
    assert_eq!(slow_upload(false, FRAME / 2), 408);
}

/// Returns the size of the body received from an HTTP/2 upstream that sends one frame slowly, and stops after `most`
/// bytes of the connection.
fn slow_download(most: usize) -> usize {
    let (sender, receiver) = std::sync::mpsc::channel();
    run_paused(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::task::spawn_local(async move {
            let stream = accept(&listener).await;
            let mut connection = h2::server::handshake(slowly(stream, most)).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let mut answer = respond.send_response(Response::new(()), false).unwrap();
                answer.send_data(vec![b'x'; FRAME].into(), true).unwrap();
            }
        });
        let mut setup = gateway_to(address, Protocol::Grpc);
        setup.route.protocols = vec![Protocol::Http];
        setup.service.read_timeout = LIMIT.as_millis() as u32;
        let gateway = setup.start();
        let answer = gateway
            .exchange("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await;
        assert_eq!(status(&answer), "200");
        let body = answer.bytes().filter(|byte| *byte == b'x').count();
        sender.send(body).unwrap();
    });
    receiver.recv().unwrap()
}

#[test]
fn an_upstream_that_sends_a_frame_slowly_does_not_time_out() {
    assert!(slow_download(usize::MAX) >= FRAME);
}

#[test]
fn an_upstream_that_stops_within_a_frame_times_out() {
    assert!(slow_download(FRAME / 2) < FRAME);
}
