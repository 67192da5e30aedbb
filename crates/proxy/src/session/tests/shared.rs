//! Many concurrent requests on few shared upstream connections: which connections are opened, who waits for them, and
//! how waiting requests learn about failures.

use super::blame::server_tls;
use super::http2::{Accepted, call, connect, gateway_to, grpc_head, status_of};
use super::*;
use bytes::Bytes;
use http::Response;
use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Barrier, Notify};

/// More streams than two connections allow (100 each).
const MANY: usize = 300;

fn answer_call((_, mut respond): Accepted) {
    let mut head = grpc_head();
    head.headers_mut().extend(status_of("0"));
    respond.send_response(head, true).unwrap();
}

/// Serves HTTP/2 on a connection, with at most `most` concurrent streams.
async fn serve<F: Future<Output = ()> + 'static>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    most: u32,
    each: impl Fn(Accepted) -> F,
) {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(most);
    let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
    while let Some(Ok(accepted)) = connection.accept().await {
        tokio::task::spawn_local(each(accepted));
    }
}

/// Starts an upstream without TLS that allows `most` concurrent streams per connection. Also returns a count of its
/// connections.
async fn upstream_with<F: Future<Output = ()> + 'static>(
    most: u32,
    each: impl Fn(Accepted) -> F + Clone + 'static,
) -> (SocketAddr, Rc<Cell<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let made = Rc::new(Cell::new(0));
    let counted = made.clone();
    tokio::task::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.set(counted.get() + 1);
            tokio::task::spawn_local(serve(stream, most, each.clone()));
        }
    });
    (address, made)
}

/// Starts an upstream without TLS that responds to every request.
pub(super) async fn answering() -> SocketAddr {
    let answer = |(_, mut respond): Accepted| async move {
        respond.send_response(Response::new(()), true).unwrap();
    };
    upstream_with(100, answer).await.0
}

/// Sends this many calls at once, 100 on each client connection. Returns the statuses of the responses.
async fn calls(gateway: &Gateway, count: usize) -> HashSet<u16> {
    let mut answers = Vec::new();
    for _ in 0..count.div_ceil(100) {
        let client = connect(gateway).await;
        for _ in 0..100.min(count - answers.len()) {
            let mut client = client.clone().ready().await.unwrap();
            answers.push(client.send_request(call(), true).unwrap().0);
        }
    }
    let mut statuses = HashSet::new();
    for answer in answers {
        statuses.insert(answer.await.unwrap().status().as_u16());
    }
    statuses
}

#[test]
fn calls_beyond_the_streams_of_one_connection_get_another() {
    run(async {
        // The upstream responds only after all calls have arrived, so all of them must be open at the same time.
        let barrier = Rc::new(Barrier::new(MANY));
        let each = move |accepted| {
            let barrier = barrier.clone();
            async move {
                barrier.wait().await;
                answer_call(accepted);
            }
        };
        let (upstream, made) = upstream_with(250, each).await;
        let mut setup = gateway_to(upstream, Protocol::Grpc);
        setup.service.connect_timeout = 5000;
        let gateway = setup.start();
        assert_eq!(calls(&gateway, MANY).await, HashSet::from([200]));
        assert_eq!(made.get(), 3);
    });
}

#[test]
fn an_upstream_that_allows_few_streams_refuses_no_call() {
    run(async {
        let each = |accepted| async move {
            tokio::task::yield_now().await;
            answer_call(accepted);
        };
        let (upstream, made) = upstream_with(10, each).await;
        let mut setup = gateway_to(upstream, Protocol::Grpc);
        setup.service.connect_timeout = 5000;
        setup.service.retries = 0;
        let gateway = setup.start();
        assert_eq!(calls(&gateway, MANY).await, HashSet::from([200]));
        assert!(made.get() <= 16, "{}", made.get());
    });
}

#[test]
fn calls_wait_for_a_slow_handshake_and_share_its_connection() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut setup = gateway_to(listener.local_addr().unwrap(), Protocol::Grpcs);
        setup.route.protocols = vec![Protocol::Grpc];
        setup.service.connect_timeout = 5000;
        let gateway = setup.start();
        let (go, tls) = (Rc::new(Notify::new()), server_tls(true));
        let going = go.clone();
        let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
        tokio::task::spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                begin.send(()).unwrap();
                let (tls, go) = (tls.clone(), going.clone());
                tokio::task::spawn_local(async move {
                    go.notified().await;
                    go.notify_one();
                    let stream = tls.accept(stream).await.unwrap();
                    serve(stream, 250, |accepted| async move { answer_call(accepted) }).await;
                });
            }
        });
        let starting = async {
            begun.recv().await.unwrap();
            go.notify_one();
        };
        let (statuses, ()) = tokio::join!(calls(&gateway, MANY), starting);
        assert_eq!(statuses, HashSet::from([200]));
    });
}

#[test]
fn calls_that_wait_for_a_handshake_fail_with_it() {
    run(async {
        // This upstream closes every connection during the handshake.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut setup = gateway_to(listener.local_addr().unwrap(), Protocol::Grpcs);
        setup.route.protocols = vec![Protocol::Grpc];
        setup.service.connect_timeout = 5000;
        setup.service.retries = 1;
        let gateway = setup.start();
        tokio::task::spawn_local(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.read_u8().await.unwrap();
            }
        });
        assert_eq!(calls(&gateway, MANY).await, HashSet::from([502]));
    });
}

#[test]
fn requests_that_waited_for_http2_get_http1_connections() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut setup = Setup::new(listener.local_addr().unwrap());
        setup.service.protocol = Protocol::Https;
        setup.service.connect_timeout = 5000;
        setup.upstream_http2 = true;
        let gateway = setup.start();
        let tls = server_tls(false);
        // No request gets a response before all have a connection, so no request can reuse the connection of another.
        let barrier = Rc::new(Barrier::new(20));
        tokio::task::spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, barrier) = (tls.clone(), barrier.clone());
                tokio::task::spawn_local(async move {
                    let mut stream = tls.accept(stream).await.unwrap();
                    let mut read = Vec::new();
                    while !read.ends_with(b"\r\n\r\n") {
                        assert!(stream.read_buf(&mut read).await.unwrap() > 0);
                    }
                    barrier.wait().await;
                    stream.write_all(OK.as_bytes()).await.unwrap();
                    stream.flush().await.unwrap();
                    let _ = stream.read_buf(&mut read).await;
                });
            }
        });
        let mut clients = Vec::new();
        for _ in 0..20 {
            let mut client = gateway.client().await;
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            clients.push(client);
        }
        for mut client in clients {
            assert_eq!(status(&client.answer().await), "200");
        }
    });
}

/// Number of streams whose clients receive nothing.
const STALLED: usize = 40;

#[test]
fn stalled_clients_do_not_delay_others_on_the_same_connection() {
    run(async {
        let each = |(request, mut respond): Accepted| async move {
            let mut body = respond.send_response(grpc_head(), false).unwrap();
            let length = match request.uri().path() {
                "/pkg.Service/Method" => 1 << 20,
                _ => 1000,
            };
            body.send_data(vec![b'x'; length].into(), true).unwrap();
        };
        let (upstream, made) = upstream_with(100, each).await;
        let mut setup = gateway_to(upstream, Protocol::Grpc);
        setup.settings.read_ahead = 0;
        let gateway = setup.start();
        let stalled = connect(&gateway).await;
        let mut kept = Vec::new();
        for _ in 0..STALLED {
            let mut stalled = stalled.clone().ready().await.unwrap();
            let answer = stalled.send_request(call(), true).unwrap().0;
            kept.push(answer.await.unwrap());
        }
        // All streams share the window of the upstream connection. If the stalled streams filled it, these responses
        // could not arrive.
        for _ in 0..100 {
            let mut other = connect(&gateway).await;
            let mut small = call();
            *small.uri_mut() = "http://a.test/small".parse().unwrap();
            let answer = other.send_request(small, true).unwrap().0;
            let mut body = answer.await.unwrap().into_body();
            let data = tokio::time::timeout(Duration::from_secs(10), body.data()).await;
            assert_eq!(data.unwrap().unwrap().unwrap().len(), 1000);
        }
        assert_eq!(made.get(), 1);
    });
}
