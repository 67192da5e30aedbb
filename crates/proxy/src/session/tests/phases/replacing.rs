//! Header filters that replace the response, or its status.

use super::*;
use crate::session::tests::http2;
use crate::session::tests::websocket::{ASK, SWITCH};

fn replaces(response: fn() -> Response) -> Acts {
    Acts::new().header_filter(move |_| Ok(Filtered::Replace(response())))
}

fn other() -> Response {
    Response::new(418, "other body").with_header("X-New", "1")
}

/// A filter after the one that replaces, which sees the new head and the new body.
fn follows() -> Acts {
    Acts::new()
        .header_filter(|cx| {
            note(format!("head {}", cx.answer.status));
            cx.answer.headers.set("X-Later", "1");
            Ok(Filtered::Continue)
        })
        .body_filter(|_, chunk| {
            note_piece(chunk);
            Ok(())
        })
        .logs()
}

#[test]
fn the_upstreams_body_is_discarded_however_long_it_takes() {
    let slow = script(|mut peer: Peer| async move {
        peer.head().await;
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX-Up: 1\r\n\r\nabc")
            .await;
        peer.head_or_end().await;
    });
    let endless = script(|mut peer: Peer| async move {
        peer.head().await;
        peer.send("HTTP/1.1 200 OK\r\nX-Up: 1\r\n\r\n").await;
        while peer.stream.write_all(&[b'x'; 1000]).await.is_ok() {}
    });
    let whole = answers("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Up: 1\r\n\r\nabc");
    run(async {
        let plugins = vec![replaces(other).define::<0>(), follows().define::<1>()];
        let gateway = gateway(upstream(vec![slow, endless, whole]).await, plugins);
        let mut client = gateway.client().await;
        // The last connection of the upstream serves two requests.
        for _ in 0..4 {
            client.send(GET).await;
            let answer = client.answer().await;
            assert_eq!(status(&answer), "418");
            assert!(answer.ends_with("\r\n\r\nother body"), "{answer}");
            for name in ["x-up", "x-new", "x-later"] {
                assert_eq!(header(&answer, name), Some("1"), "{answer}");
            }
            assert_eq!(header(&answer, "connection"), Some("keep-alive"));
            wait_for("log 418").await;
            assert_eq!(noted(), ["head 418", "other body", " end", "log 418"]);
        }
    });
}

#[test]
fn a_head_request_gets_the_new_length_and_no_body() {
    run(async {
        let scripts = vec![answers("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n")];
        let plugins = vec![replaces(other).define::<0>(), follows().define::<1>()];
        let gateway = gateway(upstream(scripts).await, plugins);
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            let head = client.head().await;
            assert_eq!(
                (status(&head), header(&head, "content-length")),
                ("418", Some("10"))
            );
            wait_for("log 418").await;
            assert_eq!(noted(), ["head 418", "log 418"]);
        }
    });
}

#[test]
fn a_produced_response_can_be_replaced_too() {
    run(async {
        let first = replaces(|| Response::message(419, "again")).access(|_, _| {
            let produced = Response::new(401, "no").with_header("Content-Type", "text/plain");
            Ok(Step::Respond(produced.with_header("X-Old", "1")))
        });
        let gateway = gateway(
            always(OK).await,
            vec![first.define::<0>(), follows().define::<1>()],
        );
        let mut client = gateway.client().await;
        client.send(GET).await;
        let answer = client.answer().await;
        assert_eq!(status(&answer), "419");
        assert_eq!(header(&answer, "x-old"), Some("1"));
        assert_eq!(
            header(&answer, "content-type"),
            Some("application/json; charset=utf-8")
        );
        assert!(answer.ends_with("{\"message\":\"again\"}"), "{answer}");
    });
}

#[test]
fn the_type_of_the_content_is_that_of_the_new_body_unless_the_plugin_or_a_later_one_sets_it() {
    run(async {
        let json = || Response::message(418, "x");
        let typed = || Response::message(418, "x").with_header("Content-Type", "a/b");
        type Make = fn() -> Response;
        let cases = [
            (json as Make, false, "application/json; charset=utf-8"),
            (typed, false, "a/b"),
            (json, true, "c/d"),
        ];
        for (response, is_changed_later, expected) in cases {
            let later = Acts::new().header_filter(move |cx| {
                if is_changed_later {
                    cx.answer.headers.set("Content-Type", "c/d");
                }
                Ok(Filtered::Continue)
            });
            let upstream =
                always("HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 2\r\n\r\nok");
            let plugins = vec![replaces(response).define::<0>(), later.define::<1>()];
            let gateway = keep(gateway(upstream.await, plugins));
            let mut client = gateway.client().await;
            client.send(GET).await;
            let answer = client.answer().await;
            let types = answer.matches("Content-Type").count();
            assert_eq!(
                (header(&answer, "content-type"), types),
                (Some(expected), 1)
            );
        }
    });
}

#[test]
fn a_refused_switch_to_websocket_is_an_ordinary_response() {
    run(async {
        let switching = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send(format!("{SWITCH}first frame")).await;
            peer.rest().await;
        });
        let plugins = vec![replaces(other).logs().define::<0>()];
        let gateway = gateway(upstream(vec![switching]).await, plugins);
        let mut client = gateway.client().await;
        client.send(ASK).await;
        let answer = client.rest().await;
        assert_eq!(status(&answer), "418");
        assert_eq!(header(&answer, "connection"), Some("close"));
        assert_eq!(header(&answer, "content-length"), Some("10"));
        assert!(answer.ends_with("\r\n\r\nother body"), "{answer}");
        wait_for("log 418").await;
    });
}

#[test]
fn a_changed_status_never_changes_where_the_response_ends() {
    let cases = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 204, ""),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            404,
            "hello",
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", 200, ""),
        (
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            200,
            "",
        ),
        ("HTTP/1.1 304 Not Modified\r\n\r\n", 404, ""),
    ];
    for (answer, new, body) in cases {
        for in_memory in [false, true] {
            run(async move {
                let acts = Acts::new()
                    .access(move |cx, _| {
                        cx.request.upstream.buffer_response = in_memory;
                        Ok(Step::Continue)
                    })
                    .header_filter(move |cx| {
                        cx.answer.status = new;
                        Ok(Filtered::Continue)
                    });
                let gateway = gateway(always(answer).await, vec![acts.define::<0>()]);
                let mut client = gateway.client().await;
                for _ in 0..2 {
                    client.send(GET).await;
                    let got = client.answer().await;
                    assert_eq!(status(&got), new.to_string());
                    assert!(got.ends_with(&format!("\r\n\r\n{body}")), "{got}");
                    if new != 204 {
                        let length = body.len().to_string();
                        assert_eq!(header(&got, "content-length"), Some(&*length), "{got}");
                    }
                }
            });
        }
    }
}

#[test]
fn a_filter_that_sets_a_status_that_is_not_final_fails() {
    for (in_memory, new, replaces) in [
        (false, 103, false),
        (true, 103, false),
        (false, 0, false),
        (false, 600, false),
        (false, 101, true),
    ] {
        run(async move {
            let acts = Acts::new()
                .access(move |cx, _| {
                    cx.request.upstream.buffer_response = in_memory;
                    Ok(Step::Continue)
                })
                .header_filter(move |cx| {
                    if replaces {
                        return Ok(Filtered::Replace(Response::new(new, "")));
                    }
                    cx.answer.status = new;
                    Ok(Filtered::Continue)
                })
                .logs();
            let gateway = keep(gateway(always(OK).await, vec![acts.define::<0>()]));
            assert_eq!(gateway.exchange(GET).await, "", "{new}");
            wait_for("log 500").await;
        });
    }
}

#[test]
fn a_response_that_loses_its_body_by_its_status_ends_for_every_client() {
    const IN_CHUNKS: &str =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for (new, in_memory) in [(204, false), (204, true), (304, false), (304, true)] {
        run(async move {
            let acts = Acts::new()
                .access(move |cx, _| {
                    cx.request.upstream.buffer_response = in_memory;
                    Ok(Step::Continue)
                })
                .header_filter(move |cx| {
                    cx.answer.status = new;
                    Ok(Filtered::Continue)
                })
                .body_filter(|_, _| unreachable!("there is no body"));
            let mut setup = http2::gateway_to(always(IN_CHUNKS).await, Protocol::Http);
            setup.plugins = vec![acts.define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            for _ in 0..2 {
                client.send(GET).await;
                let head = client.head().await;
                assert_eq!(status(&head), new.to_string());
                assert_eq!(header(&head, "connection"), Some("keep-alive"));
            }
            let mut client = http2::connect(&gateway).await;
            for _ in 0..2 {
                let (answer, _) = client.send_request(http2::get("/"), true).unwrap();
                let answer = answer.await.unwrap();
                assert_eq!(answer.status(), new);
                let mut body = answer.into_body();
                assert_eq!(http2::body(&mut body).await.unwrap(), b"");
            }
        });
    }
}
