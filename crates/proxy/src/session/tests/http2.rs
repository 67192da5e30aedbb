//! HTTP/2 to the client, to the upstream, or to both: plain requests, gRPC, and how streams end. The `h2` crate is the
//! client and the upstream.

use super::acts::Acts;
use super::*;
use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use plugin::Step;
use std::future::poll_fn;
use std::time::Duration;

pub(super) type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

/// Starts an upstream that speaks HTTP/2 with prior knowledge. It passes every stream to `serve`, with the number of
/// its connection.
pub(super) async fn upstream_of<F: Future<Output = ()> + 'static>(
    serve: impl Fn(usize, Accepted) -> F + Clone + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            let serve = serve.clone();
            tokio::task::spawn_local(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok(accepted)) = connection.accept().await {
                    tokio::task::spawn_local(serve(number, accepted));
                }
            });
        }
    });
    address
}

pub(super) fn gateway_to(upstream: SocketAddr, protocol: Protocol) -> Setup {
    let mut setup = Setup::new(upstream);
    setup.listen = "127.0.0.1:0 http2";
    setup.service.protocol = protocol;
    if protocol == Protocol::Grpc {
        setup.route.protocols = vec![Protocol::Grpc, Protocol::Grpcs];
    }
    setup
}

pub(super) async fn connect(gateway: &Gateway) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::task::spawn_local(connection);
    client.ready().await.unwrap()
}

pub(super) fn get(path: &str) -> Request<()> {
    let uri = format!("http://a.test{path}");
    Request::get(uri).body(()).unwrap()
}

pub(super) fn call() -> Request<()> {
    Request::post("http://a.test/pkg.Service/Method")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

pub(super) async fn body(stream: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok(body)
}

pub(super) fn grpc_head() -> Response<()> {
    let head = Response::builder().header("content-type", "application/grpc");
    head.body(()).unwrap()
}

pub(super) fn status_of(code: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_str(code).unwrap());
    trailers
}

pub(super) fn send(stream: &mut SendStream<Bytes>, text: &'static str, last: bool) {
    stream
        .send_data(Bytes::from_static(text.as_bytes()), last)
        .unwrap();
}

#[test]
fn a_stream_becomes_a_request_and_an_answer_a_stream() {
    run(async {
        let (heads, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let serve = script(move |mut peer: Peer| async move {
            heads.send(peer.head().await).unwrap();
            peer.send("HTTP/1.1 200 OK\r\nX-Some: Thing\r\nConnection: X-Hop\r\nX-Hop: 1\r\nContent-Length: 2\r\n\r\nok").await;
        });
        let setup = gateway_to(upstream(vec![serve]).await, Protocol::Http);
        let gateway = setup.start();
        let mut client = connect(&gateway).await;
        let (answer, _) = client.send_request(get("/a?b=c"), true).unwrap();
        let answer = answer.await.unwrap();
        let head = seen.recv().await.unwrap();
        assert!(head.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{head}");
        assert_eq!(header(&head, "via"), Some("2 kong/3.9.1"));
        assert_eq!(header(&head, "x-forwarded-host"), Some("a.test"));
        let headers = answer.headers();
        assert_eq!(headers["x-some"], "Thing");
        assert_eq!(headers["via"], "1.1 kong/3.9.1");
        assert!(!headers.contains_key("connection") && !headers.contains_key("x-hop"));
        assert_eq!(body(&mut answer.into_body()).await.unwrap(), b"ok");
    });
}

#[test]
fn a_listener_with_http2_also_speaks_http1_and_closes_on_anything_else() {
    run(async {
        let setup = gateway_to(upstream(vec![answers(OK)]).await, Protocol::Http);
        let gateway = setup.start();
        let mut client = gateway.client().await;
        // The first byte could also be the start of the HTTP/2 preface (`PRI * HTTP/2.0`).
        client.send("P").await;
        client
            .send("UT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
            .await;
        assert_eq!(status(&client.answer().await), "200");
        assert_eq!(
            gateway.exchange("INVALID CONNECTION PREFACE\r\n\r\n").await,
            ""
        );
        for malformed in [
            "GET / \r\n\r\n",
            "GET /a\r\nHost: a\r\n\r\n",
            "GET http://a/ x\r\n",
        ] {
            let answer = gateway.exchange(malformed).await;
            assert_eq!(status(&answer), "400", "{malformed:?}: {answer:?}");
        }
    });
}

#[test]
fn a_connection_carries_5000_streams() {
    run(async {
        let scripts = (0..200).map(|_| answers(OK)).collect();
        let gateway = gateway_to(upstream(scripts).await, Protocol::Http).start();
        let client = connect(&gateway).await;
        let (done, mut count) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..100 {
            let (client, done) = (client.clone(), done.clone());
            tokio::task::spawn_local(async move {
                for _ in 0..50 {
                    let mut client = client.clone().ready().await.unwrap();
                    let (answer, _) = client.send_request(get("/"), true).unwrap();
                    let answer = answer.await.unwrap();
                    assert_eq!(answer.status(), 200);
                    assert_eq!(body(&mut answer.into_body()).await.unwrap(), b"ok");
                    done.send(()).unwrap();
                }
            });
        }
        for _ in 0..5000 {
            count.recv().await.unwrap();
        }
        let totals = gateway.plane.totals();
        assert_eq!((totals.requests, totals.accepted), (5000, 1));
    });
}

#[test]
fn a_call_streams_both_ways_and_keeps_its_trailers() {
    run(async {
        let echo = |_, (request, mut respond): Accepted| async move {
            assert_eq!(request.headers()["te"], "trailers");
            assert_eq!(request.headers()["via"], "2 kong/3.9.1");
            let mut requests = request.into_body();
            let mut answer = respond.send_response(grpc_head(), false).unwrap();
            while let Some(data) = requests.data().await {
                answer.send_data(data.unwrap(), false).unwrap();
            }
            answer.send_trailers(status_of("0")).unwrap();
        };
        let gateway = gateway_to(upstream_of(echo).await, Protocol::Grpc).start();
        let mut client = connect(&gateway).await;
        let (answer, mut requests) = client.send_request(call(), false).unwrap();
        send(&mut requests, "one", false);
        let answer = answer.await.unwrap();
        assert_eq!(answer.headers()["via"], "2 kong/3.9.1");
        assert!(!answer.headers().contains_key("content-length"));
        let mut answers = answer.into_body();
        assert_eq!(answers.data().await.unwrap().unwrap(), "one");
        send(&mut requests, "two", false);
        assert_eq!(answers.data().await.unwrap().unwrap(), "two");
        send(&mut requests, "", true);
        assert!(answers.data().await.is_none());
        let trailers = answers.trailers().await.unwrap().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
    });
}

#[test]
fn a_grpc_status_without_messages_stays_one_head() {
    run(async {
        let refuse = |_, (_, mut respond): Accepted| async move {
            let mut head = grpc_head();
            head.headers_mut().extend(status_of("12"));
            respond.send_response(head, true).unwrap();
        };
        let gateway = gateway_to(upstream_of(refuse).await, Protocol::Grpc).start();
        let mut client = connect(&gateway).await;
        let (answer, mut requests) = client.send_request(call(), false).unwrap();
        send(&mut requests, "one", true);
        let answer = answer.await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "12");
        assert!(answer.body().is_end_stream());
    });
}

#[test]
fn grpc_routes_refuse_other_requests() {
    run(async {
        let gateway = gateway_to("127.0.0.1:1".parse().unwrap(), Protocol::Grpc).start();
        let of_http1 =
            |more: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{more}\r\n");
        let answer = gateway
            .exchange(&of_http1("Content-Type: application/grpc\r\n"))
            .await;
        assert_eq!(status(&answer), "426");
        assert!(answer.contains("Please use HTTP2 protocol"), "{answer}");
        assert_eq!(status(&gateway.exchange(&of_http1("")).await), "415");
        let mut client = connect(&gateway).await;
        let (plain, _) = client.send_request(get("/"), true).unwrap();
        assert_eq!(plain.await.unwrap().status(), 415);
        // Nobody listens at that address, so the client gets the error in gRPC's form.
        let (answer, _) = client.send_request(call(), true).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 502);
        assert_eq!(answer.headers()["content-type"], "application/grpc");
        assert_eq!(answer.headers()["grpc-status"], "13");
        assert!(!answer.headers().contains_key("content-length"));
        assert!(answer.body().is_end_stream());
    });
}

/// Changes the content type of the upstream request, and refuses the request.
fn retype() -> Arc<PluginDef> {
    let acts = Acts::new().access(|cx, _| {
        let other = if cx.request.is_grpc {
            "application/json"
        } else {
            "application/grpc"
        };
        cx.request.upstream.headers.set("content-type", other);
        Ok(Step::Respond(plugin::Response::message(403, "no")))
    });
    acts.define::<0>()
}

#[test]
fn the_response_form_follows_the_clients_content_type() {
    run(async {
        let mut setup = gateway_to("127.0.0.1:1".parse().unwrap(), Protocol::Http);
        setup.plugins = vec![retype()];
        let gateway = setup.start();
        let mut client = connect(&gateway).await;
        let (plain, _) = client.send_request(get("/"), true).unwrap();
        let plain = plain.await.unwrap();
        assert_eq!(plain.status(), 403);
        assert!(!plain.headers().contains_key("grpc-status"));
        let text = body(&mut plain.into_body()).await.unwrap();
        assert_eq!(text, br#"{"message":"no"}"#);
        let (answer, _) = client.send_request(call(), true).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "7");
        assert_eq!(answer.headers()["grpc-message"], "no");
        assert_eq!(answer.headers()["content-type"], "application/grpc");
    });
}

#[test]
fn a_call_that_is_redirected_is_told_so_in_headers() {
    run(async {
        let mut setup = gateway_to("127.0.0.1:1".parse().unwrap(), Protocol::Http);
        setup.route.protocols = vec![Protocol::Https];
        setup.route.https_redirect_status_code = 301;
        let gateway = setup.start();
        let mut client = connect(&gateway).await;
        let (answer, _) = client.send_request(call(), true).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 301);
        let headers = answer.headers();
        assert_eq!(headers["location"], "https://a.test/pkg.Service/Method");
        assert_eq!(headers["content-type"], "application/grpc");
        assert_eq!(headers["grpc-status"], "2");
        assert!(body(&mut answer.into_body()).await.unwrap().is_empty());
    });
}

#[test]
fn a_reset_by_the_client_cancels_the_upstreams_stream() {
    run(async {
        let (told, mut reasons) = tokio::sync::mpsc::unbounded_channel();
        let wait = move |_, (_request, mut respond): Accepted| {
            let told = told.clone();
            async move {
                told.send(None).unwrap();
                let reason = poll_fn(|cx| respond.poll_reset(cx)).await.unwrap();
                told.send(Some(reason)).unwrap();
            }
        };
        let gateway = gateway_to(upstream_of(wait).await, Protocol::Grpc).start();
        let mut client = connect(&gateway).await;
        let (_answer, mut requests) = client.send_request(call(), false).unwrap();
        assert_eq!(reasons.recv().await, Some(None));
        requests.send_reset(Reason::CANCEL);
        assert_eq!(reasons.recv().await, Some(Some(Reason::CANCEL)));
    });
}

#[test]
fn a_reset_by_the_upstream_reaches_the_client() {
    run(async {
        // The upstream resets only after the client has received a part of the response.
        let (go, gone) = tokio::sync::watch::channel(false);
        let give_up = move |_, (_, mut respond): Accepted| {
            let mut gone = gone.clone();
            async move {
                let mut answer = respond.send_response(grpc_head(), false).unwrap();
                send(&mut answer, "one", false);
                gone.wait_for(|gone| *gone).await.unwrap();
                answer.send_reset(Reason::ENHANCE_YOUR_CALM);
            }
        };
        let gateway = gateway_to(upstream_of(give_up).await, Protocol::Grpc).start();
        let mut client = connect(&gateway).await;
        let (answer, _) = client.send_request(call(), true).unwrap();
        let mut stream = answer.await.unwrap().into_body();
        assert_eq!(stream.data().await.unwrap().unwrap(), "one");
        go.send(true).unwrap();
        let error = body(&mut stream).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    });
}

#[test]
fn a_refused_stream_is_retried_for_any_method() {
    run(async {
        let seen = std::rc::Rc::new(std::cell::Cell::new(0));
        let counted = seen.clone();
        let refuse_first = move |_, (_, mut respond): Accepted| {
            let seen = counted.clone();
            async move {
                seen.set(seen.get() + 1);
                if seen.get() == 1 {
                    return respond.send_reset(Reason::REFUSED_STREAM);
                }
                let mut head = grpc_head();
                head.headers_mut().extend(status_of("0"));
                respond.send_response(head, true).unwrap();
            }
        };
        let gateway = gateway_to(upstream_of(refuse_first).await, Protocol::Grpc).start();
        let mut client = connect(&gateway).await;
        let (answer, _) = client.send_request(call(), true).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!((answer.status().as_u16(), seen.get()), (200, 2));
    });
}

#[test]
fn requests_share_a_connection_to_the_upstream() {
    run(async {
        let (told, mut numbers) = tokio::sync::mpsc::unbounded_channel();
        let note = move |number, (_, mut respond): Accepted| {
            told.send(number).unwrap();
            async move {
                let mut head = grpc_head();
                head.headers_mut().extend(status_of("0"));
                respond.send_response(head, true).unwrap();
            }
        };
        let gateway = gateway_to(upstream_of(note).await, Protocol::Grpc).start();
        let client = connect(&gateway).await;
        let mut answers = Vec::new();
        for _ in 0..50 {
            let mut client = client.clone().ready().await.unwrap();
            answers.push(client.send_request(call(), true).unwrap().0);
        }
        for answer in answers {
            assert_eq!(answer.await.unwrap().status(), 200);
        }
        for _ in 0..50 {
            assert_eq!(
                numbers.recv().await,
                Some(0),
                "all requests use the first connection"
            );
        }
    });
}

#[test]
fn a_drain_says_goaway_and_lets_streams_finish() {
    run(async {
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let slow = script(move |mut peer: Peer| async move {
            peer.head().await;
            wait.await.unwrap();
            peer.send(OK).await;
        });
        let gateway = gateway_to(upstream(vec![slow]).await, Protocol::Http).start();
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::task::spawn_local(connection);
        let mut client = client.ready().await.unwrap();
        let (answer, _) = client.send_request(get("/"), true).unwrap();
        // Waits until the gateway has read the head, so that the drain finds a request in progress.
        while gateway.plane.totals().waiting > 0 {
            tokio::task::yield_now().await;
        }
        gateway
            .stop
            .send(Stop::Drain(Duration::from_secs(30)))
            .unwrap();
        tokio::task::yield_now().await;
        go.send(()).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(body(&mut answer.into_body()).await.unwrap(), b"ok");
        drop(client);
        let _ = connection.await.unwrap();
        gateway.done.await.unwrap().unwrap();
    });
}

#[test]
fn a_client_that_receives_nothing_times_out() {
    run_paused(async {
        let large = script(|mut peer: Peer| async move {
            peer.head().await;
            let body = "x".repeat(300_000);
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n{body}"
            ))
            .await;
            peer.rest().await;
        });
        let gateway = gateway_to(upstream(vec![large]).await, Protocol::Http).start();
        let mut client = connect(&gateway).await;
        let (answer, _) = client.send_request(get("/"), true).unwrap();
        let mut stream = answer.await.unwrap().into_body();
        // The client never releases flow-control capacity, so it gets only as much as the first window allows.
        let started = tokio::time::Instant::now();
        let error = loop {
            match stream.data().await.unwrap() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
        assert!(started.elapsed() >= Duration::from_secs(60));
    });
}
