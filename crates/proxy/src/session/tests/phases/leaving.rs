//! Clients that leave, connections that are aborted, and panics: what is held is given back, and `log` runs once.

use super::*;
use crate::session::tests::http2;
use plugin::Flow;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Rewrite,
    Access,
    Response,
}

const PLACES: [Place; 3] = [Place::Rewrite, Place::Access, Place::Response];

/// Notes that it was dropped.
struct Held;

impl Drop for Held {
    fn drop(&mut self) {
        note("dropped");
    }
}

/// A plugin that waits in one phase for `go`.
fn waits_in(place: Place, ends_with_client: bool, go: &Arc<Notify>) -> Acts {
    let go = go.clone();
    let wait = move || {
        let go = go.clone();
        let future = async move {
            let _held = Held;
            note("waits");
            go.notified().await;
            note("goes on");
            Ok(Flow::Continue)
        };
        Ok(match ends_with_client {
            true => Step::wait_for_client(future),
            false => Step::wait(future),
        })
    };
    let acts = Acts::new().log(|cx, _| note(format!("log {}", cx.entry.status)));
    match place {
        Place::Rewrite => acts.rewrite(move |_, _| wait()),
        Place::Access => acts.access(move |_, _| wait()),
        Place::Response => acts.response(move |_| wait()),
    }
}

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn a_handler_finishes_although_the_client_has_left() {
    for place in PLACES {
        run(async move {
            let go = Arc::new(Notify::new());
            let acts = waits_in(place, false, &go);
            let gateway = gateway(always(OK).await, vec![acts.define::<0>()]);
            let mut client = gateway.client().await;
            client.send(POST).await;
            wait_for("waits").await;
            drop(client);
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            assert_eq!(noted(), ["waits"], "{place:?}");
            go.notify_one();
            while gateway.plane.totals().active() > 0 {
                tokio::task::yield_now().await;
            }
            let notes = noted();
            assert_eq!(notes[..2], ["goes on", "dropped"], "{place:?}");
            let logs = notes.iter().filter(|note| note.starts_with("log"));
            assert_eq!(logs.count(), 1, "{place:?}: {notes:?}");
            assert_eq!(gateway.body_memory(), 0);
        });
    }
}

#[test]
fn a_handler_that_asks_for_it_ends_with_the_client() {
    for place in PLACES {
        run(async move {
            let go = Arc::new(Notify::new());
            let acts = waits_in(place, true, &go);
            let gateway = gateway(always(OK).await, vec![acts.define::<0>()]);
            let mut client = gateway.client().await;
            client.send(POST).await;
            wait_for("waits").await;
            drop(client);
            wait_for("log 499").await;
            assert_eq!(noted(), ["waits", "dropped", "log 499"], "{place:?}");
            while gateway.plane.totals().active() > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(gateway.body_memory(), 0);
        });
    }
}

#[test]
fn a_handler_that_asks_for_it_ends_with_the_stream_of_an_http2_client() {
    for place in PLACES {
        run(async move {
            let go = Arc::new(Notify::new());
            let acts = waits_in(place, true, &go);
            let mut setup = http2::gateway_to(always(OK).await, Protocol::Http);
            setup.plugins = vec![acts.define::<0>()];
            let gateway = setup.start();
            let mut client = http2::connect(&gateway).await;
            let (answer, _) = client.send_request(http2::get("/"), true).unwrap();
            wait_for("waits").await;
            drop(answer);
            wait_for("log 499").await;
            assert_eq!(noted(), ["waits", "dropped", "log 499"], "{place:?}");
        });
    }
}

#[test]
fn an_http2_client_that_leaves_does_not_keep_a_handler_from_finishing() {
    for place in PLACES {
        run(async move {
            let go = Arc::new(Notify::new());
            let acts = waits_in(place, false, &go);
            let mut setup = http2::gateway_to(always(OK).await, Protocol::Http);
            setup.plugins = vec![acts.define::<0>()];
            let gateway = setup.start();
            let mut client = http2::connect(&gateway).await;
            let (answer, _) = client.send_request(http2::get("/"), true).unwrap();
            wait_for("waits").await;
            drop(answer);
            drop(client);
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            assert_eq!(noted(), ["waits"], "{place:?}");
            go.notify_one();
            while !NOTES.with_borrow(|notes| notes.iter().any(|note| note.starts_with("log"))) {
                tokio::task::yield_now().await;
            }
            assert_eq!(noted()[..2], ["goes on", "dropped"], "{place:?}");
        });
    }
}

/// The waits of a request at which its task can be aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Of(Place),
    ForTheBody,
    ForTheUpstream,
    WithTheResponseInMemory,
    ForTheClient,
}

#[test]
fn a_task_that_is_aborted_gives_back_what_it_held_and_logs_once() {
    let waits = PLACES.map(Wait::Of).into_iter().chain([
        Wait::ForTheBody,
        Wait::ForTheUpstream,
        Wait::WithTheResponseInMemory,
        Wait::ForTheClient,
    ]);
    for wait in waits {
        for is_http2 in [false, true] {
            let (send, receive) = std::sync::mpsc::channel();
            run(async move { send.send(aborted_at(wait, is_http2).await).unwrap() });
            // The worker's thread drops the runtime, and what is left in it.
            let plane = receive.recv().unwrap();
            let notes = noted();
            let logs = notes.iter().filter(|note| note.starts_with("log"));
            assert_eq!(logs.count(), 1, "{wait:?} {is_http2}: {notes:?}");
            assert_eq!(plane.totals().active(), 0);
            assert_eq!(plane.body_memory.load(Ordering::Relaxed), 0);
            // The connection limit of 1 has its place back.
            let peer = std::net::IpAddr::from([127, 0, 0, 1]);
            assert!(plane.admission.enter(peer, false).is_some(), "{wait:?}");
        }
    }
}

/// Ends the worker while a request waits, and returns its plane.
async fn aborted_at(wait: Wait, is_http2: bool) -> Arc<DataPlane> {
    let go = Arc::new(Notify::new());
    let upstream_acts = script(move |mut peer: Peer| async move {
        peer.head().await;
        peer.take(5).await;
        match wait {
            Wait::ForTheUpstream => {}
            Wait::WithTheResponseInMemory => {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
                    .await;
            }
            Wait::ForTheClient => {
                let size = 32 * 1024 * 1024;
                peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"))
                    .await;
                let _ = peer.stream.write_all(&vec![b'x'; size]).await;
            }
            Wait::Of(_) | Wait::ForTheBody => peer.send(OK).await,
        }
        note("waits");
        pending::<()>().await;
    });
    let reads = |acts: Acts| {
        acts.access(|cx, _| {
            Ok(match cx.request.body_bytes() {
                Some(_) => Step::Continue,
                None => {
                    note("reads");
                    Step::ReadBody
                }
            })
        })
    };
    let acts = match wait {
        Wait::Of(place) => waits_in(place, false, &go),
        Wait::WithTheResponseInMemory => Acts::new().logs().response(|_| Ok(Step::Continue)),
        _ => reads(Acts::new().logs()),
    };
    let mut setup = http2::gateway_to(upstream(vec![upstream_acts]).await, Protocol::Http);
    setup.plugins = vec![acts.define::<0>()];
    setup.settings.upstream.requests = 1;
    setup.settings.connections.all = 1;
    let gateway = setup.start();
    let body = if wait == Wait::ForTheBody {
        "hel"
    } else {
        "hello"
    };
    let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
    if is_http2 {
        let mut client = http2::connect(&gateway).await;
        let request = http::Request::post("http://a.test/").header("content-length", "5");
        let (answer, mut sender) = client
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        sender.send_data(body.into(), body.len() == 5).unwrap();
        held.push(Box::new((client, answer, sender)));
    } else {
        let mut client = gateway.client().await;
        client.send(POST.replace("hello", body)).await;
        held.push(Box::new(client));
    }
    let begun = match wait {
        Wait::ForTheBody => "reads",
        // The client receives nothing of what is sent, so the upstream does not get that far.
        Wait::ForTheClient => "reads",
        _ => "waits",
    };
    wait_for(begun).await;
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    gateway.stop.send(Stop::Drain(Duration::ZERO)).unwrap();
    let plane = gateway.plane.clone();
    gateway.done.await.unwrap().unwrap();
    plane
}

#[test]
fn a_task_that_is_aborted_logs_the_sizes_that_it_knows() {
    let (send, receive) = std::sync::mpsc::channel();
    run(async move {
        let acts = Acts::new()
            .access(|cx, _| {
                Ok(match cx.request.body_bytes() {
                    Some(_) => Step::Continue,
                    None => Step::ReadBody,
                })
            })
            .log(|cx, _| {
                let entry = cx.entry;
                assert!(entry.response_head.starts_with(b"HTTP/1.1 200 OK\r\n"));
                assert_eq!(entry.response_size, entry.response_head_size);
                // The gateway's own Date is sent, but plugins do not see it.
                let without = entry.response_head.len() as u64;
                assert_eq!(entry.response_head_size - without, 37);
                assert_eq!(entry.reason, Some(plugin::Reason::Draining));
                note(format!("log {} {}", entry.status, entry.request_size));
            });
        let stops = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
                .await;
            pending::<()>().await;
        });
        let mut setup = Setup::new(upstream(vec![stops]).await);
        setup.route.response_buffering = false;
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send(POST).await;
        client.until("hello").await;
        gateway.stop.send(Stop::Drain(Duration::ZERO)).unwrap();
        gateway.done.await.unwrap().unwrap();
        send.send(()).unwrap();
    });
    // The worker's thread drops the runtime, and what is left in it.
    receive.recv().unwrap();
    assert_eq!(noted(), [format!("log 200 {}", POST.len())]);
}

#[test]
fn a_client_that_leaves_while_the_response_is_filtered_is_logged_once() {
    run(async {
        let acts = Acts::new()
            .body_filter(|_, _| {
                note("filters");
                Ok(())
            })
            .log(|_, _| note("log"));
        let endless = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send("HTTP/1.1 200 OK\r\n\r\n").await;
            while peer.stream.write_all(&[b'x'; 1000]).await.is_ok() {}
            note("upstream");
        });
        let gateway = gateway(upstream(vec![endless]).await, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        client.send(GET).await;
        wait_for("filters").await;
        drop(client);
        wait_for("log").await;
        wait_for("upstream").await;
        let logs = noted().into_iter().filter(|note| note == "log").count();
        assert_eq!(logs, 1);
    });
}

#[test]
fn a_client_that_leaves_during_its_body_is_logged_once() {
    run(async {
        let acts = Acts::new()
            .request_body(|_| {
                note("filters");
                Ok(())
            })
            .logs();
        let silent = script(|mut peer: Peer| async move {
            peer.rest().await;
        });
        let mut setup = Setup::new(upstream(vec![silent]).await);
        setup.route.request_buffering = false;
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nhello")
            .await;
        wait_for("filters").await;
        drop(client);
        wait_for("log 499").await;
        assert_eq!(noted(), ["filters", "log 499"]);
    });
}

#[test]
fn a_request_that_panics_is_logged_once() {
    run(async {
        for phase in 0..5 {
            let panics = move |at: i32| {
                assert!(at != phase, "the panic of this test, in phase {phase}");
            };
            let acts = Acts::new()
                .rewrite(move |_, _| {
                    panics(0);
                    Ok(Step::Continue)
                })
                .access(move |cx, _| {
                    panics(1);
                    cx.request.upstream.buffer_response = phase == 2;
                    Ok(Step::Continue)
                })
                .header_filter(move |cx| {
                    if phase == 2 || phase == 3 {
                        panics(phase);
                    }
                    continues(cx)
                })
                .body_filter(move |_, _| {
                    panics(4);
                    Ok(())
                });
            // The second plugin logs.
            let later = Acts::new()
                .rewrite(|_, _| Ok(Step::Continue))
                .log(|_, _| note("log"));
            let later = later.access(|_, _| Ok(Step::Continue));
            let earlier = later.define::<0>();
            let plugins = vec![earlier, acts.define::<1>()];
            let gateway = keep(gateway(always(OK).await, plugins));
            assert_eq!(gateway.exchange(GET).await, "", "{phase}");
            wait_for("log").await;
            assert_eq!(noted(), ["log"], "{phase}");
            assert_eq!(gateway.body_memory(), 0);
        }
    });
}
