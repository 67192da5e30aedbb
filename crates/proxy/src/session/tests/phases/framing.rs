//! The framing of responses after filters, and errors of filters.

use super::*;
use crate::session::tests::http2;

fn changes_body(to: &'static str) -> Acts {
    Acts::new().body_filter(move |_, chunk| {
        chunk.data = if chunk.last { to.into() } else { "".into() };
        Ok(())
    })
}

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const IN_CHUNKS: &str =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n";

#[test]
fn the_length_stays_where_only_headers_change() {
    run(async {
        let acts = Acts::new().header_filter(|cx| {
            cx.answer.headers.set("X-A", "1");
            Ok(Filtered::Continue)
        });
        let gateway = gateway(always(HELLO).await, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        client.send(GET).await;
        let answer = client.answer().await;
        assert_eq!(header(&answer, "content-length"), Some("5"));
        assert!(answer.ends_with("hello"));
    });
}

#[test]
fn a_body_filter_that_keeps_the_length_keeps_the_header() {
    run(async {
        let gateway = gateway(
            always(HELLO).await,
            vec![changes_body("HELLO").define::<0>()],
        );
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(GET).await;
            assert!(client.answer().await.ends_with("\r\n\r\nHELLO"));
        }
    });
}

#[test]
fn a_body_filter_that_changes_the_length_without_removing_it_ends_the_connection() {
    for in_memory in [false, true] {
        for to in ["", "shor", "longer"] {
            run(async move {
                let acts = changes_body(to)
                    .access(move |cx, _| {
                        cx.request.upstream.buffer_response = in_memory;
                        Ok(Step::Continue)
                    })
                    .log(|_, _| note("log"));
                let gateway = gateway(always(HELLO).await, vec![acts.define::<0>()]);
                let mut client = gateway.client().await;
                client.send(format!("{GET}{GET}")).await;
                let got = client.rest().await;
                // Nothing that a client could take for a complete response.
                let body = got.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                assert!(body.len() < 5, "{got}");
                wait_for("log").await;
                assert_eq!(noted(), ["log"]);
            });
        }
    }
}

#[test]
fn a_body_filter_sees_each_chunk_as_it_arrives() {
    run(async {
        let address = upstream(vec![script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none \r\n")
                .await;
            wait_for("one , false").await;
            // The start of a chunk goes on with the chunk before it.
            peer.send("4\r\ntwo \r\n7\r\nth").await;
            wait_for("two th, false").await;
            peer.send("ree, \r\n").await;
            wait_for("ree, , false").await;
            peer.send("4\r\nfour\r\n0\r\n\r\n").await;
        })])
        .await;
        let acts = Acts::new().body_filter(|_, chunk| {
            let data = String::from_utf8_lossy(&chunk.data);
            note(format!("{data}, {}", chunk.last));
            Ok(())
        });
        let gateway = gateway(address, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        client.send(GET).await;
        wait_for(", true").await;
        let expected = [
            "one , false",
            "two th, false",
            "ree, , false",
            "four, false",
            ", true",
        ];
        assert_eq!(noted(), expected);
    });
}

#[test]
fn a_stated_length_without_a_body_filter_does_not_outlast_the_body() {
    run(async {
        for in_memory in [false, true] {
            let acts = Acts::new()
                .access(move |cx, _| {
                    cx.request.upstream.buffer_response = in_memory;
                    cx.request.upstream.method = Some("HEAD".into());
                    Ok(Step::Continue)
                })
                .header_filter(|cx| {
                    cx.answer.headers.set("Content-Length", "50");
                    Ok(Filtered::Continue)
                });
            let head_only = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
            let gateway = keep(gateway(always(head_only).await, vec![acts.define::<0>()]));
            let mut client = gateway.client().await;
            for _ in 0..2 {
                client.send(GET).await;
                let head = client.head().await;
                assert_eq!(header(&head, "content-length"), Some("0"), "{head}");
            }
        }
    });
}

#[test]
fn a_head_request_that_a_plugin_makes_a_get_has_no_body() {
    run(async {
        let acts = Acts::new().access(|cx, _| {
            cx.request.upstream.method = Some("GET".into());
            Ok(Step::Continue)
        });
        let gateway = gateway(always(HELLO).await, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            let head = client.head().await;
            assert_eq!(
                (status(&head), header(&head, "content-length")),
                ("200", Some("5"))
            );
        }
        client
            .send("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await;
        assert!(client.rest().await.ends_with("\r\n\r\n"));
    });
}

#[test]
fn a_removed_length_gives_chunks_or_the_end_of_the_connection() {
    run(async {
        let acts = changes_body("something else").header_filter(without_length);
        let gateway = gateway(always(HELLO).await, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(GET).await;
            let head = client.head().await;
            assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
            let body = client.until("0\r\n\r\n").await;
            assert_eq!(body, "e\r\nsomething else\r\n0\r\n\r\n");
        }
        let old = gateway.exchange("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
        let old = old.await;
        assert_eq!(header(&old, "connection"), Some("close"));
        assert!(old.ends_with("\r\n\r\nsomething else"), "{old}");
    });
}

#[test]
fn trailers_pass_filters_and_can_be_changed() {
    run(async {
        let acts = changes_body("else").header_filter(|cx| {
            note(format!("{}", cx.answer.trailers.len()));
            Ok(Filtered::Continue)
        });
        let later = Acts::new().body_filter(|cx, chunk| {
            if chunk.last {
                assert_eq!(cx.trailer("x-sum"), Some(&b"7"[..]));
                cx.answer.trailers.push(("X-More".into(), "8".into()));
            }
            Ok(())
        });
        let plugins = vec![acts.define::<0>(), later.define::<1>()];
        let mut setup = http2::gateway_to(always(IN_CHUNKS).await, Protocol::Http);
        setup.plugins = plugins;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(GET).await;
            client.head().await;
            let body = client.until("8\r\n\r\n").await;
            assert_eq!(body, "4\r\nelse\r\n0\r\nX-Sum: 7\r\nX-More: 8\r\n\r\n");
        }
        let mut client = http2::connect(&gateway).await;
        let (answer, _) = client.send_request(http2::get("/"), true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        while let Some(data) = body.data().await {
            assert_eq!(data.unwrap(), "else");
        }
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!(
            (&trailers["x-sum"], &trailers["x-more"]),
            (&"7".parse().unwrap(), &"8".parse().unwrap())
        );
    });
}

#[test]
fn an_error_of_a_filter_closes_the_connection_with_nothing_and_is_logged_once() {
    for (in_memory, in_body) in [(false, false), (false, true), (true, false), (true, true)] {
        run(async move {
            let acts = Acts::new()
                .access(move |cx, _| {
                    cx.request.upstream.buffer_response = in_memory;
                    Ok(Step::Continue)
                })
                .header_filter(move |cx| match in_body {
                    true => continues(cx),
                    false => Err(failed()),
                })
                .body_filter(|_, _| Err(failed()))
                .log(|_, _| note("log"));
            let gateway = gateway(always(HELLO).await, vec![acts.define::<0>()]);
            assert_eq!(gateway.exchange(GET).await, "");
            wait_for("log").await;
            assert_eq!(noted(), ["log"]);
            assert_eq!(gateway.body_memory(), 0);
        });
    }
}

#[test]
fn an_error_of_a_filter_resets_the_stream_of_an_http2_client() {
    run(async {
        let acts = Acts::new()
            .header_filter(|_| Err(failed()))
            .log(|_, _| note("log"));
        let mut setup = http2::gateway_to(always(HELLO).await, Protocol::Http);
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = http2::connect(&gateway).await;
        let (answer, _) = client.send_request(http2::get("/"), true).unwrap();
        assert!(answer.await.unwrap_err().is_reset());
        wait_for("log").await;
    });
}

#[test]
fn headers_that_access_sets_come_before_the_upstreams() {
    run(async {
        let acts = Acts::new().access(|cx, _| {
            let headers = &mut cx.state.headers;
            headers.set("X-A", "access");
            headers.set("X-Up", "kong");
            headers.set("Content-Type", "text/kong");
            headers.add("X-Many", "k");
            headers.set("X-Gone", "1");
            Ok(Step::Continue)
        });
        let later = Acts::new().header_filter(|cx| {
            assert_eq!(cx.header("x-up"), Some(&b"kong"[..]));
            assert_eq!(cx.header_lines("x-up").count(), 2);
            cx.answer.headers.remove("X-Gone");
            Ok(Filtered::Continue)
        });
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Up: up\r\nX-Many: u\r\nX-Gone: 2\r\n\
            Content-Length: 2\r\n\r\n{}";
        let gateway = gateway(
            always(answer).await,
            vec![acts.define::<0>(), later.define::<1>()],
        );
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(GET).await;
            let answer = client.answer().await;
            let lines = |name: &str| {
                let lines = answer.lines().filter_map(|line| line.strip_prefix(name));
                lines
                    .map(|value| value.trim_start_matches(": "))
                    .collect::<Vec<_>>()
            };
            assert_eq!(lines("X-A"), ["access"]);
            assert_eq!(lines("X-Up"), ["kong", "up"]);
            assert_eq!(lines("X-Many"), ["k", "u"]);
            assert_eq!(lines("Content-Type"), ["application/json"]);
            assert!(lines("X-Gone").is_empty());
        }
    });
}
