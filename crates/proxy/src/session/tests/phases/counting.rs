//! Plugins that log without the head of the response, as those do that only count. They get the right status, however a
//! request ends.

use super::*;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const STATUS_203: &str = "HTTP/1.1 203 OK\r\nContent-Length: 10\r\n\r\nabc";

/// Notes the status of the request, what is kept of the head of its response, and the size of the head.
fn counts() -> Acts {
    Acts::new().log_without_head(|cx, _| {
        let entry = cx.entry;
        let kept = String::from_utf8_lossy(entry.response_head);
        let (status, size) = (entry.status, entry.response_head_size);
        note(format!("log {status}, '{kept}' of {size}"));
    })
}

/// The note about a request with this status, whose response has this head.
fn counted(status: u16, head: &str) -> String {
    let kept = head.get(..12).unwrap_or_default();
    format!("log {status}, '{kept}' of {}", head.len())
}

/// Waits for the next note, and returns it.
async fn logged() -> String {
    while NOTES.with_borrow(Vec::is_empty) {
        tokio::task::yield_now().await;
    }
    noted().concat()
}

#[test]
fn a_response_is_counted_with_its_status() {
    run(async {
        let has = |request: &plugin::Request<'_>, name| request.head.header(name).is_some();
        let decides = Acts::new()
            .access(move |cx, _| {
                Ok(match has(cx.request, "x-responds") {
                    true => Step::Respond(Response::new(401, "no")),
                    false => Step::Continue,
                })
            })
            .header_filter(move |cx| {
                if has(cx.request, "x-filters") {
                    cx.answer.status = 418;
                }
                Ok(Filtered::Continue)
            });
        let upstream = always("HTTP/1.1 203 OK\r\nContent-Length: 2\r\n\r\nok").await;
        let gateway = gateway(
            upstream,
            vec![counts().define::<0>(), decides.define::<1>()],
        );
        let mut client = gateway.client().await;
        for (header, status) in [
            ("", 203),
            ("X-Responds: 1\r\n", 401),
            ("X-Filters: 1\r\n", 418),
            ("", 203),
        ] {
            let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n");
            client.send(request).await;
            let head = client.head().await;
            client.take(2).await;
            assert_eq!(logged().await, counted(status, &head));
        }
    });
}

#[test]
fn a_response_that_the_upstream_breaks_off_is_counted_with_its_status() {
    run(async {
        let closes = script(|mut peer: Peer| async move {
            peer.head().await;
        });
        let breaks_off = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send(STATUS_203).await;
        });
        let mut setup = Setup::new(upstream(vec![closes, breaks_off]).await);
        setup.service.retries = 0;
        setup.plugins = vec![counts().define::<0>()];
        let gateway = setup.start();
        for status in [502, 203] {
            let mut client = gateway.client().await;
            client.send(GET).await;
            let head = client.head().await;
            assert_eq!(logged().await, counted(status, &head));
        }
    });
}

/// An upstream that answers two requests at most with the beginning of a response. `told` hears when it has done so.
async fn stalls(begins: bool, told: &Arc<Notify>) -> SocketAddr {
    let tell = told.clone();
    let stalls = script(move |mut peer: Peer| async move {
        peer.head().await;
        peer.send(OK).await;
        peer.head().await;
        if begins {
            peer.send(STATUS_203).await;
        }
        tell.notify_one();
        pending::<()>().await;
    });
    upstream(vec![stalls]).await
}

/// Sends a request that gets its response and one whose response stalls, which has the head that is returned.
async fn stalled(client: &mut Peer, begins: bool, told: &Notify) -> String {
    client.send(GET).await;
    let answer = client.answer().await;
    let head = answer.strip_suffix("ok").unwrap();
    assert_eq!(logged().await, counted(200, head));
    client.send(GET).await;
    told.notified().await;
    match begins {
        true => client.head().await,
        false => String::new(),
    }
}

#[test]
fn a_request_whose_client_leaves_is_counted_with_what_it_has_received() {
    for (begins, status) in [(false, 499), (true, 203)] {
        run(async move {
            let told = Arc::new(Notify::new());
            let mut setup = Setup::new(stalls(begins, &told).await);
            setup.route.response_buffering = false;
            setup.plugins = vec![counts().define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            let head = stalled(&mut client, begins, &told).await;
            drop(client);
            assert_eq!(logged().await, counted(status, &head));
        });
    }
}

/// The status is that in the kept beginning of the head. It is not that of the request before, in the same memory.
#[test]
fn a_request_whose_task_is_aborted_is_counted_with_what_its_client_has_received() {
    for (begins, status) in [(false, 499), (true, 203)] {
        let (send, receive) = std::sync::mpsc::channel();
        run(async move {
            let told = Arc::new(Notify::new());
            let mut setup = Setup::new(stalls(begins, &told).await);
            setup.route.response_buffering = false;
            setup.plugins = vec![counts().define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            let head = stalled(&mut client, begins, &told).await;
            gateway.stop.send(Stop::Drain(Duration::ZERO)).unwrap();
            gateway.done.await.unwrap().unwrap();
            send.send((head, gateway.plane)).unwrap();
        });
        // The worker's thread drops the runtime, and what is left in it.
        let (head, plane) = receive.recv().unwrap();
        assert_eq!(noted(), [counted(status, &head)]);
        let requests = &plane.all_counters()[0].requests;
        let expected = if begins { [2, 0] } else { [1, 1] };
        assert_eq!([requests[2].value(), requests[4].value()], expected);
    }
}
