//! The data that the log phase gets about a request: statuses, sizes on the wire, attempts, and times.

use super::acts::Acts;
use super::websocket::{ASK, SWITCH};
use super::*;
use crate::access_log::{AccessLog, Format, Lane};
use model::entities::{Consumer, ConsumerId};
use plugin::{Filtered, Response, Step, TryEnd};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Entry {
    status: u16,
    upstream_status: Option<u16>,
    tries: Vec<(bool, TryEnd)>,
    received: u64,
    sent: u64,
    /// Seconds of the whole request, in the gateway, until the upstream's response, and while it was received.
    seconds: [Option<u64>; 4],
}

thread_local! {
    static ENTRIES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// A plugin that stores the log entries for the test that runs on the same thread.
fn record() -> Arc<PluginDef> {
    let acts = Acts::new().log(|cx, _| {
        let entry = cx.entry;
        let times = &entry.latencies;
        let tries = entry.tries.iter();
        ENTRIES.with_borrow_mut(|entries| {
            entries.push(Entry {
                status: entry.status,
                upstream_status: entry.upstream_status,
                tries: tries.map(|one| (one.address.is_some(), one.end)).collect(),
                received: entry.request_size,
                sent: entry.response_size,
                seconds: [
                    Some(times.request),
                    Some(times.gateway),
                    times.upstream,
                    Some(times.receive),
                ]
                .map(|time| time.map(|time| time.as_secs())),
            });
        });
    });
    acts.define::<0>()
}

/// Removes and returns the newest entry. Waits if there is none yet, because the log phase runs after the response.
async fn entry() -> Entry {
    loop {
        if let Some(entry) = ENTRIES.with_borrow_mut(Vec::pop) {
            return entry;
        }
        tokio::task::yield_now().await;
    }
}

fn logged(upstream: SocketAddr) -> Setup {
    let mut setup = Setup::new(upstream);
    setup.plugins = vec![record()];
    setup
}

const CLOSED: [(bool, TryEnd); 1] = [(true, TryEnd::Answered(200))];

#[test]
fn sizes_are_those_of_the_wire() {
    run(async {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let gateway = logged(
            upstream(vec![script(move |mut peer: Peer| async move {
                while peer.head_or_end().await.is_some() {
                    peer.send(chunked).await;
                }
            })])
            .await,
        )
        .start();
        let requests = [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ];
        for request in requests {
            let mut client = gateway.client().await;
            client.send(request).await;
            let sent = client.until("abc\r\n0\r\n\r\n").await.len() as u64;
            let entry = entry().await;
            assert_eq!((entry.status, entry.upstream_status), (200, Some(200)));
            assert_eq!(entry.tries, CLOSED);
            assert_eq!((entry.received, entry.sent), (request.len() as u64, sent));
        }
        // Pipelined requests are counted separately.
        let mut client = gateway.client().await;
        client.send(requests.concat()).await;
        for request in requests {
            let sent = client.until("abc\r\n0\r\n\r\n").await.len() as u64;
            let entry = entry().await;
            assert_eq!((entry.received, entry.sent), (request.len() as u64, sent));
        }
    });
}

#[test]
fn attempts_and_times_are_logged_separately() {
    run_paused(async {
        let stall = script(|mut peer: Peer| async move {
            peer.rest().await;
        });
        let slow = script(|mut peer: Peer| async move {
            peer.head().await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            peer.send("HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\na")
                .await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            peer.send("bc").await;
        });
        let mut setup = logged(upstream(vec![stall, slow]).await);
        setup.service.read_timeout = 4000;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let answer = client.answer().await;
        assert_eq!(header(&answer, "x-kong-proxy-latency"), Some("4000"));
        assert_eq!(header(&answer, "x-kong-upstream-latency"), Some("2000"));
        let entry = entry().await;
        assert_eq!(
            entry.tries,
            [(true, TryEnd::Failed(504)), (true, TryEnd::Answered(201))]
        );
        assert_eq!(entry.seconds, [7, 4, 2, 1].map(Some));
    });
}

#[test]
fn a_response_that_ends_with_its_connection_lasts_until_then() {
    run_paused(async {
        let upstream = upstream(vec![script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send("HTTP/1.1 200 OK\r\n\r\nabc").await;
            tokio::time::sleep(Duration::from_secs(3)).await;
        })])
        .await;
        let gateway = logged(upstream).start();
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(status(&client.answer().await), "200");
        assert_eq!(entry().await.seconds, [3, 0, 0, 3].map(Some));
    });
}

#[test]
fn a_response_of_the_gateway_logs_no_attempt() {
    run(async {
        let mut setup = logged(([127, 0, 0, 1], 1).into());
        setup.route.protocols = vec![Protocol::Https];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(status(&client.answer().await), "426");
        let entry = entry().await;
        assert_eq!((entry.status, entry.upstream_status), (426, None));
        assert_eq!((entry.tries, entry.seconds[2]), (vec![], None));
    });
}

#[test]
fn a_failure_is_logged_with_its_attempts() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = listener.local_addr().unwrap();
        drop(listener);
        let mut setup = logged(nobody);
        setup.service.retries = 1;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(status(&client.answer().await), "502");
        let entry = entry().await;
        assert_eq!((entry.status, entry.upstream_status), (502, None));
        assert_eq!(entry.tries, [(true, TryEnd::Failed(502)); 2]);
    });
}

#[test]
fn a_response_with_a_malformed_body_is_logged_as_a_failure() {
    run(async {
        let nonsense = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nX";
        let gateway = logged(upstream(vec![answers(nonsense)]).await).start();
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(status(&client.answer().await), "502");
        let entry = entry().await;
        assert_eq!((entry.status, entry.upstream_status), (502, None));
        assert_eq!(entry.tries, [(true, TryEnd::Failed(502))]);
    });
}

#[test]
fn a_disconnected_client_is_logged_with_what_it_received() {
    run(async {
        let (tell, told) = tokio::sync::oneshot::channel::<()>();
        let broken = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send("HTTP/1.1 203 OK\r\nContent-Length: 10\r\n\r\nabc")
                .await;
        });
        let waiting = script(|mut peer: Peer| async move {
            peer.head().await;
            tell.send(()).unwrap();
            peer.rest().await;
        });
        let mut setup = logged(upstream(vec![broken, waiting]).await);
        setup.route.request_buffering = false;
        let gateway = setup.start();
        gateway.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let broken = entry().await;
        assert_eq!((broken.status, broken.upstream_status), (203, Some(203)));
        assert_eq!(broken.tries, [(true, TryEnd::Answered(203))]);
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
            .await;
        told.await.unwrap();
        drop(client);
        let gone = entry().await;
        assert_eq!((gone.status, gone.upstream_status), (499, None));
        assert_eq!(gone.tries, [(true, TryEnd::Abandoned)]);
    });
}

#[test]
fn a_tunnel_is_logged_at_its_end_with_what_went_through_it() {
    run_paused(async {
        let upstream = upstream(vec![script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send(SWITCH).await;
            assert_eq!(peer.rest().await, "x".repeat(1000));
            peer.send("y".repeat(5000)).await;
        })])
        .await;
        let gateway = logged(upstream).start();
        let mut client = gateway.client().await;
        client.send(ASK).await;
        let head = client.head().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(ENTRIES.with_borrow(Vec::is_empty));
        client.send("x".repeat(1000)).await;
        client.stream.shutdown().await.unwrap();
        assert_eq!(client.rest().await.len(), 5000);
        let entry = entry().await;
        assert_eq!((entry.status, entry.upstream_status), (101, Some(101)));
        assert_eq!(entry.received, ASK.len() as u64 + 1000);
        assert_eq!(entry.sent, head.len() as u64 + 5000);
        assert_eq!(entry.seconds, [3, 0, 0, 3].map(Some));
    });
}

#[test]
fn a_tunnel_that_a_drain_ends_is_logged() {
    run_paused(async {
        let upstream = upstream(vec![script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send(SWITCH).await;
            peer.rest().await;
        })])
        .await;
        let gateway = logged(upstream).start();
        let mut client = gateway.client().await;
        client.send(ASK).await;
        client.head().await;
        let stop = Stop::Drain(Duration::from_secs(5));
        gateway.stop.send(stop).unwrap();
        assert_eq!(client.rest().await, "");
        assert_eq!(entry().await.status, 101);
    });
}

/// An access log in this format, and the lines in it.
pub(super) fn access_log(directive: &str) -> (AccessLog, Arc<[Lane]>) {
    let lanes: Arc<[Lane]> = vec![Lane::default()].into();
    let format = Arc::new(Format::directive(directive).unwrap().1);
    let log = AccessLog::new(format, lanes.clone(), std::thread::current());
    (log, lanes)
}

/// Ends the gateway and returns the lines that it has logged.
pub(super) async fn lines(gateway: Gateway, lanes: &[Lane]) -> String {
    let stop = Stop::Drain(Duration::from_secs(60));
    gateway.stop.send(stop).unwrap();
    gateway.done.await.unwrap().unwrap();
    String::from_utf8(lanes[0].take(Vec::new())).unwrap()
}

#[test]
fn the_time_of_an_upstream_lasts_until_it_has_closed_its_response() {
    for is_whole in [false, true] {
        run_paused(async move {
            let closes = script(|mut peer: Peer| async move {
                peer.head().await;
                peer.send("HTTP/1.1 200 OK\r\n\r\n").await;
                tokio::time::sleep(Duration::from_secs(2)).await;
                peer.send("abc").await;
                tokio::time::sleep(Duration::from_secs(3)).await;
            });
            let mut setup = Setup::new(upstream(vec![closes]).await);
            if is_whole {
                let reads = Acts::new().response(|_| Ok(Step::Continue));
                setup.plugins = vec![reads.define::<0>()];
            }
            let (log, lanes) = access_log("m '$upstream_header_time $upstream_response_time'");
            setup.settings.access_log = Some(log);
            let gateway = setup.start();
            let get = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            assert_eq!(status(&gateway.exchange(get).await), "200");
            assert_eq!(lines(gateway, &lanes).await, "0.000 5.000\n");
        });
    }
}

/// Lets time pass without waiting, as a plugin that computes does.
fn compute(seconds: u64) {
    let advance = pin!(tokio::time::advance(Duration::from_secs(seconds)));
    // The first poll moves the clock. The others would let tasks run.
    let _ = advance.poll(&mut Context::from_waker(Waker::noop()));
}

/// Starts a gateway whose filters take five seconds, and whose upstream takes one.
async fn computing(mut plugins: Vec<Arc<PluginDef>>, access_log: Option<AccessLog>) -> Gateway {
    let slow = script(|mut peer: Peer| async move {
        peer.head().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        peer.send(OK).await;
        peer.rest().await;
    });
    let computes = Acts::new()
        .access(|cx, _| {
            Ok(match cx.request.header("x-responds") {
                Some(_) => Step::Respond(Response::new(200, "ok")),
                None => Step::Continue,
            })
        })
        .header_filter(|_| {
            compute(2);
            Ok(Filtered::Continue)
        })
        .body_filter(|_, chunk| {
            if chunk.last {
                compute(3);
            }
            Ok(())
        });
    plugins.push(computes.define::<1>());
    let mut setup = Setup::new(upstream(vec![slow]).await);
    setup.plugins = plugins;
    setup.settings.access_log = access_log;
    setup.start()
}

#[test]
fn the_time_of_filters_is_part_of_a_request() {
    run_paused(async {
        let gateway = computing(vec![record()], None).await;
        let mut client = gateway.client().await;
        for (header, seconds) in [
            ("", [Some(6), Some(0), Some(1), Some(5)]),
            ("X-Responds: 1\r\n", [Some(5), Some(5), None, Some(0)]),
        ] {
            let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n");
            client.send(request).await;
            assert_eq!(status(&client.answer().await), "200");
            assert_eq!(entry().await.seconds, seconds, "{header}");
        }
    });
}

#[test]
fn the_time_of_filters_is_in_the_access_log_where_no_plugin_logs() {
    run_paused(async {
        let (log, lanes) = access_log("m '$request_time $upstream_header_time'");
        let gateway = computing(Vec::new(), Some(log)).await;
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(status(&client.answer().await), "200");
        assert_eq!(lines(gateway, &lanes).await, "6.000 1.000\n");
    });
}

/// Logs the requests, each on its own connection, and compares what is logged of each: the request line and
/// `$request_length`.
fn check_lengths(listen: &'static str, requests: &[(String, &str)]) {
    run(async {
        let mut setup = Setup::new(([127, 0, 0, 1], 1).into());
        setup.listen = listen;
        let (log, lanes) = access_log("m '$request_length $request'");
        setup.settings.access_log = Some(log);
        let gateway = setup.start();
        let mut expected = String::new();
        for (request, line) in requests {
            gateway.exchange(request).await;
            expected += &format!("{} {line}\n", request.len());
        }
        assert_eq!(lines(gateway, &lanes).await, expected);
    });
}

#[test]
fn a_malformed_request_is_logged_with_all_the_bytes_read_of_it() {
    let long = format!("nonsense\r\nX: {}\r\n\r\n", "x".repeat(5000));
    let short = "nonsense\r\n\r\n".to_owned();
    check_lengths("127.0.0.1:0", &[(long, "nonsense"), (short, "nonsense")]);
}

#[test]
fn a_plaintext_request_on_a_tls_port_is_logged_as_it_came() {
    let [new, old] = ["1.1", "1.0"].map(|version| {
        let filler = "x".repeat(3000);
        format!("GET /a HTTP/{version}\r\nHost: a\r\nX: {filler}\r\n\r\n")
    });
    let requests = [(new, "GET /a HTTP/1.1"), (old, "GET /a HTTP/1.0")];
    check_lengths("127.0.0.1:0 ssl", &requests);
}

/// Makes the client a consumer. The value of `x-consumer` is its username.
fn authenticate() -> Arc<PluginDef> {
    let acts = Acts::new().access(|cx, _| {
        let username = cx.request.header("x-consumer");
        cx.state.consumer = Some(Arc::new(Consumer {
            id: ConsumerId(Uuid::from_u128(7)),
            username: username.map(|name| std::str::from_utf8(name).unwrap().into()),
            custom_id: Some("custom".into()),
        }));
        Ok(Step::Continue)
    });
    acts.define::<0>()
}

#[test]
fn a_consumer_without_a_username_is_logged_by_its_id() {
    run(async {
        let mut setup = Setup::new(upstream(vec![answers(OK)]).await);
        setup.plugins = vec![authenticate()];
        let (log, lanes) = access_log("m $kong_consumer");
        setup.settings.access_log = Some(log);
        let gateway = setup.start();
        let mut client = gateway.client().await;
        for header in ["X-Consumer: jane\r\n", ""] {
            let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n");
            client.send(request).await;
            assert_eq!(status(&client.answer().await), "200");
        }
        let expected = "jane\n00000000-0000-0000-0000-000000000007\n";
        assert_eq!(lines(gateway, &lanes).await, expected);
    });
}
