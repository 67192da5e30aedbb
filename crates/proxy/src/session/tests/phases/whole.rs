//! The `response` phase, and responses that are read into memory for filters.

use super::*;
use crate::session::tests::http2;
use crate::session::tests::websocket::{ASK, SWITCH};
use plugin::Flow;

/// Reads the whole response in `response`, and appends what it saw to the notes.
fn reads_whole() -> Acts {
    Acts::new().response(|cx| {
        let body = cx.upstream_body.expect("it is in memory");
        note(format!(
            "{} {:?}",
            String::from_utf8_lossy(body),
            cx.trailer("x-sum").map(String::from_utf8_lossy)
        ));
        Ok(Step::Continue)
    })
}

fn closes_after(answer: &'static str) -> Script {
    script(move |mut peer: Peer| async move {
        peer.head().await;
        peer.send(answer).await;
    })
}

const IN_CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
    2\r\nhe\r\n3\r\nllo\r\n0\r\nX-Sum: 7\r\n\r\n";

#[test]
fn the_whole_response_is_seen_in_every_framing() {
    run(async {
        let scripts = vec![
            answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
            answers(IN_CHUNKS),
            closes_after("HTTP/1.1 200 OK\r\n\r\nhello"),
        ];
        let gateway = gateway(
            upstream(scripts).await,
            vec![reads_whole().logs().define::<0>()],
        );
        let mut sized = gateway.client().await;
        sized.send(GET).await;
        assert!(sized.answer().await.ends_with("\r\n\r\nhello"));
        wait_for("log 200").await;
        assert_eq!(noted(), ["hello None", "log 200"]);
        assert_eq!(gateway.body_memory(), 0);
    });
    run(async {
        for (script, seen) in [
            (answers(IN_CHUNKS), "hello Some(\"7\")"),
            (closes_after("HTTP/1.1 200 OK\r\n\r\nhello"), "hello None"),
        ] {
            let plugins = vec![reads_whole().logs().define::<0>()];
            let gateway = keep(gateway(upstream(vec![script]).await, plugins));
            let mut client = gateway.client().await;
            client.send(GET).await;
            let head = client.head().await;
            assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
            let end = if seen.contains("Some") {
                "0\r\nX-Sum: 7\r\n\r\n"
            } else {
                "0\r\n\r\n"
            };
            assert_eq!(client.until(end).await, format!("5\r\nhello\r\n{end}"));
            wait_for("log 200").await;
            assert_eq!(noted(), [seen, "log 200"]);
        }
    });
}

#[test]
fn both_connections_stay_open_after_a_response_in_memory() {
    run(async {
        // Only one connection of the upstream answers.
        let gateway = gateway(
            upstream(vec![answers(
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            )])
            .await,
            vec![reads_whole().define::<0>()],
        );
        let mut client = gateway.client().await;
        for _ in 0..3 {
            client.send(GET).await;
            let answer = client.answer().await;
            assert_eq!(header(&answer, "connection"), Some("keep-alive"));
        }
    });
}

#[test]
fn a_plugin_that_replaces_the_response_may_wait_before() {
    run(async {
        let acts = Acts::new()
            .response(|_| {
                Ok(Step::wait(async {
                    tokio::task::yield_now().await;
                    Ok(Flow::Respond(Response::new(203, "other")))
                }))
            })
            .header_filter(|cx| {
                note(format!("head {}", cx.answer.status));
                continues(cx)
            })
            .log(|cx, _| {
                note(format!(
                    "log {} {:?}",
                    cx.entry.status, cx.entry.upstream_status
                ))
            });
        let gateway = gateway(always(OK).await, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(GET).await;
            let answer = client.answer().await;
            assert_eq!(status(&answer), "203");
            assert!(answer.ends_with("\r\n\r\nother"), "{answer}");
            wait_for("log 203 Some(200)").await;
            assert_eq!(noted(), ["head 203", "log 203 Some(200)"]);
        }
        assert_eq!(gateway.body_memory(), 0);
    });
}

/// The body of the first request must not be taken for a part of the second one.
#[test]
fn a_replaced_response_leaves_the_next_request_of_the_connection_alone() {
    run(async {
        let acts = Acts::new().response(|_| Ok(Step::Respond(Response::new(203, "other"))));
        let gateway = gateway(always(OK).await, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n01234567890123456789";
        client.send(format!("{post}{post}{post}")).await;
        for _ in 0..3 {
            let answer = client.answer().await;
            assert_eq!(status(&answer), "203", "{answer}");
            assert_eq!(header(&answer, "connection"), Some("keep-alive"));
        }
    });
}

#[test]
fn an_error_in_response_gives_status_500() {
    run(async {
        let acts = Acts::new().response(|_| Err(failed())).logs();
        let gateway = gateway(always(OK).await, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "500");
        wait_for("log 500").await;
    });
}

#[test]
fn the_response_phase_does_not_run_for_a_websocket() {
    run(async {
        let switching = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send(SWITCH).await;
            peer.until("ping").await;
            peer.send("pong").await;
        });
        let acts = reads_whole()
            .header_filter(|cx| {
                note(format!("head {}", cx.answer.status));
                continues(cx)
            })
            .body_filter(|_, chunk| {
                note_piece(chunk);
                Ok(())
            })
            .logs();
        let gateway = gateway(upstream(vec![switching]).await, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        client.send(ASK).await;
        assert_eq!(status(&client.head().await), "101");
        client.send("ping").await;
        assert_eq!(client.until("pong").await, "pong");
        drop(client);
        wait_for("log 101").await;
        assert_eq!(noted(), ["head 101", "log 101"]);
    });
}

/// Whether a plugin asks in `access` or by its phase, the filters get the whole body and then the end.
#[test]
fn filters_get_a_response_in_memory_as_a_whole() {
    run(async {
        let acts = Acts::new()
            .access(|cx, _| {
                cx.request.upstream.buffer_response = true;
                Ok(Step::Continue)
            })
            .header_filter(|cx| {
                note(format!("{:?}", cx.upstream_body.map(|body| body.len())));
                without_length(cx)
            })
            .body_filter(|_, chunk| {
                note_piece(chunk);
                if chunk.last {
                    chunk.data = "!".into();
                }
                Ok(())
            });
        let mut setup = http2::gateway_to(upstream(vec![answers(IN_CHUNKS)]).await, Protocol::Http);
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(GET).await;
            client.head().await;
            let body = client.until("X-Sum: 7\r\n\r\n").await;
            assert_eq!(body, "6\r\nhello!\r\n0\r\nX-Sum: 7\r\n\r\n");
            assert_eq!(noted(), ["Some(5)", "hello", " end"]);
        }
        let mut client = http2::connect(&gateway).await;
        let (answer, _) = client.send_request(http2::get("/"), true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        let mut text = Vec::new();
        while let Some(data) = body.data().await {
            text.extend_from_slice(&data.unwrap());
        }
        assert_eq!(text, b"hello!");
        assert_eq!(body.trailers().await.unwrap().unwrap()["x-sum"], "7");
        assert_eq!(noted(), ["Some(5)", "hello", " end"]);
    });
}

#[test]
fn a_response_larger_than_the_memory_gives_502_and_the_memory_back() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
    ] {
        run(async move {
            let endless = script(move |mut peer: Peer| async move {
                peer.head().await;
                peer.send(answer).await;
                while peer.stream.write_all(&[b'x'; 1000]).await.is_ok() {}
            });
            let mut setup = Setup::new(upstream(vec![endless]).await);
            setup.settings.body_memory = 32 * 1024;
            setup.settings.plugin_body = 16 * 1024;
            setup.plugins = vec![reads_whole().logs().define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            client.send(GET).await;
            assert_eq!(status(&client.answer().await), "502");
            wait_for("log 502").await;
            assert_eq!(gateway.body_memory(), 0);
            assert_eq!(noted(), ["log 502"]);
        });
    }
}

#[test]
fn a_response_that_breaks_off_before_it_is_whole_gives_502() {
    run(async {
        for cut in [
            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nno",
        ] {
            let plugins = vec![reads_whole().logs().define::<0>()];
            let gateway = keep(gateway(upstream(vec![closes_after(cut)]).await, plugins));
            let mut client = gateway.client().await;
            client.send(GET).await;
            assert_eq!(status(&client.answer().await), "502", "{cut}");
            wait_for("log 502").await;
            assert_eq!(noted(), ["log 502"]);
            assert_eq!(gateway.body_memory(), 0);
        }
    });
}

/// A response that waits for a slow client counts against the memory until it was sent.
#[test]
fn the_memory_of_a_response_is_kept_until_a_slow_client_has_it() {
    const SIZE: usize = 12 * 1024 * 1024;
    run(async {
        let large = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"))
                .await;
            peer.send(vec![b'x'; SIZE]).await;
            peer.head_or_end().await;
        });
        let acts = Acts::new()
            .response(|_| {
                note("whole");
                Ok(Step::Continue)
            })
            .logs();
        let gateway = gateway(upstream(vec![large]).await, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        client.send(GET).await;
        wait_for("whole").await;
        client.head().await;
        assert!(gateway.body_memory() >= SIZE);
        assert_eq!(client.take(SIZE).await.len(), SIZE);
        wait_for("log 200").await;
        while gateway.body_memory() > 0 {
            tokio::task::yield_now().await;
        }
    });
}
