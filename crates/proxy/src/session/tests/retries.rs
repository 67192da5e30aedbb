//! Retries over sockets. The tests of `tries` check which failures are retried.

use super::failures::reset;
use super::*;
use std::cell::Cell;
use std::time::Duration;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Returns a script that reads a head, sends `text`, and closes the connection.
fn leaves_after(text: &'static str) -> Script {
    script(move |mut peer: Peer| async move {
        peer.head().await;
        peer.send(text).await;
    })
}

#[test]
fn a_response_that_ends_within_its_head_is_retried() {
    run(async {
        let cut = leaves_after("HTTP/1.1 200 OK\r\nContent-Le");
        let gateway = Setup::new(upstream(vec![cut, answers(OK)]).await).start();
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "200");
    });
}

#[test]
fn no_retry_once_the_client_has_received_a_head() {
    run(async {
        for start in [
            "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        ] {
            let upstream = upstream(vec![leaves_after(start), answers(OK)]).await;
            let gateway = keep(Setup::new(upstream).start());
            let mut client = gateway.client().await;
            client.send(GET).await;
            match status(&client.head().await) {
                "103" => assert_eq!(status(&client.head().await), "502"),
                _ => assert_eq!(client.rest().await, "ab"),
            }
        }
    });
}

#[test]
fn a_body_that_streams_by_configuration_is_sent_once() {
    run(async {
        for (request_buffering, expected) in [(true, "200"), (false, "502")] {
            let silent = script(|mut peer: Peer| async move {
                peer.head().await;
                peer.take(5).await;
                reset(peer);
            });
            let mut setup = Setup::new(upstream(vec![silent, answers(OK)]).await);
            setup.route.request_buffering = request_buffering;
            let gateway = keep(setup.start());
            let mut client = gateway.client().await;
            client
                .send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
                .await;
            assert_eq!(status(&client.answer().await), expected);
        }
        // A request without a body has nothing to stream, so it is retried.
        let mut setup = Setup::new(upstream(vec![leaves_after(""), answers(OK)]).await);
        setup.route.request_buffering = false;
        let gateway = keep(setup.start());
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "200");
    });
}

#[test]
fn a_body_of_no_bytes_is_not_awaited_a_second_time() {
    run(async {
        let (arrived, arrival) = tokio::sync::oneshot::channel();
        let silent = script(move |mut peer: Peer| async move {
            peer.head().await;
            let _ = arrived.send(());
            peer.take(5).await;
        });
        let gateway = keep(Setup::new(upstream(vec![silent, answers(OK)]).await).start());
        let mut client = gateway.client().await;
        // The body of a gRPC call is forwarded as it arrives.
        client
            .send("GET / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        arrival
            .await
            .expect("the head is forwarded before the body");
        client.send("0\r\n\r\n").await;
        assert_eq!(status(&client.head().await), "502");
    });
}

#[test]
fn only_idempotent_methods_are_retried() {
    run(async {
        for (method, expected) in [
            ("GET", "200"),
            ("HEAD", "200"),
            ("PUT", "200"),
            ("DELETE", "200"),
            ("OPTIONS", "200"),
            ("PROPFIND", "200"),
            ("POST", "502"),
            ("PATCH", "502"),
            ("LOCK", "502"),
        ] {
            let gateway =
                keep(Setup::new(upstream(vec![leaves_after(""), answers(OK)]).await).start());
            let mut client = gateway.client().await;
            client
                .send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"))
                .await;
            assert_eq!(status(&client.head().await), expected, "{method}");
        }
    });
}

/// Returns the address of a listener whose queue is full, so that no more connections are established. The listener
/// lives as long as the second value.
async fn deaf() -> (SocketAddr, impl Drop) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    loop {
        let connecting = TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(200), connecting).await {
            Ok(connected) => queue.push(connected.unwrap()),
            Err(_) => return (address, Held(listener, queue)),
        }
    }
}

/// Keeps a listener and the connections in its queue open. `Drop` does nothing; it lets `deaf` return `impl Drop`.
struct Held(
    #[expect(dead_code)] TcpListener,
    #[expect(dead_code)] Vec<TcpStream>,
);

impl Drop for Held {
    fn drop(&mut self) {}
}

#[test]
fn connecting_has_its_own_timeout_and_any_method_is_tried_again() {
    run(async {
        let (address, _held) = deaf().await;
        let mut setup = Setup::new(address);
        setup.service.connect_timeout = 150;
        setup.service.retries = 2;
        let gateway = setup.start();
        let start = std::time::SystemTime::now();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
            .await;
        let answer = client.answer().await;
        assert_eq!(status(&answer), "504", "{answer}");
        assert!(answer.contains("The upstream server is timing out"));
        assert!(start.elapsed().unwrap() >= Duration::from_millis(450));
    });
}

#[test]
fn the_last_failure_decides_between_502_and_504() {
    run_paused(async {
        let stall = || {
            script(|mut peer: Peer| async move {
                peer.rest().await;
            })
        };
        let scripts = vec![leaves_after(""), stall(), stall(), leaves_after("")];
        let mut setup = Setup::new(upstream(scripts).await);
        setup.service.retries = 1;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "504");
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "502");
    });
}

#[test]
fn an_upstream_that_takes_no_more_of_the_body_is_a_504_after_the_write_timeout() {
    run_paused(async {
        let deaf = script(|mut peer: Peer| async move {
            peer.head().await;
            std::future::pending::<()>().await;
            drop(peer);
        });
        let mut setup = Setup::new(upstream(vec![deaf]).await);
        setup.service.write_timeout = 5000;
        let gateway = setup.start();
        let start = tokio::time::Instant::now();
        let mut client = gateway.client().await;
        client
            .send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
            .await;
        // Sends until the gateway accepts no more bytes.
        let block = vec![0; 64 * 1024];
        let second = Duration::from_secs(1);
        while let Ok(written) = tokio::time::timeout(second, client.stream.write(&block)).await {
            assert!(written.unwrap() > 0);
        }
        let answer = client.answer().await;
        assert_eq!((status(&answer), start.elapsed().as_secs()), ("504", 5));
    });
}

#[test]
fn a_request_succeeds_although_all_idle_connections_are_dead() {
    run(async {
        // Two connections are idle when the third request arrives. The upstream has not closed them, but resets each
        // one when another request arrives on it.
        let reset_next = |mut peer: Peer, started: Rc<Cell<usize>>| async move {
            peer.head().await;
            started.set(started.get() + 1);
            while started.get() < 2 {
                tokio::task::yield_now().await;
            }
            peer.send(OK).await;
            peer.head().await;
            reset(peer);
        };
        let started = Rc::new(Cell::new(0));
        let scripts = (0..2).map(|_| {
            let started = started.clone();
            script(move |peer| reset_next(peer, started))
        });
        let scripts = scripts.chain([answers(OK)]).collect();
        let mut setup = Setup::new(upstream(scripts).await);
        setup.service.retries = 0;
        let gateway = setup.start();
        let (mut one, mut two) = (gateway.client().await, gateway.client().await);
        one.send(GET).await;
        two.send(GET).await;
        assert_eq!(status(&one.answer().await), "200");
        assert_eq!(status(&two.answer().await), "200");
        one.send(GET).await;
        assert_eq!(status(&one.answer().await), "200");
    });
}
