//! Filters of the client's body on its way to the upstream.

use super::*;
use plugin::RequestBody;

/// Converts the body to capitals, and adds an exclamation mark.
fn shouts() -> Acts {
    Acts::new().request_body(|chunk| {
        let mut data = chunk.data.to_ascii_uppercase();
        if chunk.last {
            note("end");
            data.push(b'!');
        }
        chunk.data = data.into();
        Ok(())
    })
}

/// An upstream that notes the body of each request.
fn receives() -> Script {
    script(|mut peer: Peer| async move {
        while let Some(head) = peer.head_or_end().await {
            let body = match header(&head, "content-length") {
                Some(length) => {
                    let body = peer.take(length.parse().unwrap()).await;
                    String::from_utf8(body).unwrap()
                }
                None => {
                    let mut payload = String::new();
                    loop {
                        let size = peer.until("\r\n").await;
                        let size = usize::from_str_radix(size.trim(), 16).unwrap();
                        if size == 0 {
                            while let Some(trailer) = trailer(&mut peer).await {
                                payload += &format!("[{trailer}]");
                            }
                            break payload;
                        }
                        payload += std::str::from_utf8(&peer.take(size).await).unwrap();
                        peer.until("\r\n").await;
                    }
                }
            };
            note(body);
            peer.send(OK).await;
        }
    })
}

/// The next line after the last chunk, unless it is the end.
async fn trailer(peer: &mut Peer) -> Option<String> {
    let line = peer.until("\r\n").await;
    Some(line.trim().to_owned()).filter(|line| !line.is_empty())
}

const SIZED: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n";
const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn bodies_are_filtered_in_every_framing_whether_they_are_buffered_or_not() {
    for request_buffering in [true, false] {
        run(async move {
            let mut setup = Setup::new(upstream(vec![receives()]).await);
            setup.route.request_buffering = request_buffering;
            setup.plugins = vec![shouts().define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            for pieces in [
                [SIZED, "hello", " world"],
                [CHUNKED, "5\r\nhello\r\n", "6\r\n world\r\n0\r\n\r\n"],
            ] {
                // Once as a whole and once in pieces.
                client.send(pieces.concat()).await;
                assert_eq!(status(&client.answer().await), "200");
                assert_eq!(noted(), ["end", "HELLO WORLD!"]);
                for piece in pieces {
                    client.send(piece).await;
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                }
                assert_eq!(status(&client.answer().await), "200");
                assert_eq!(noted(), ["end", "HELLO WORLD!"]);
            }
        });
    }
}

/// The memory for a body in chunks also holds the framing, which does not count as a part of the body.
#[test]
fn the_limit_for_bodies_that_plugins_read_counts_payload_only() {
    run(async {
        let mut setup = Setup::new(always(OK).await);
        setup.settings.plugin_body = 1000;
        setup.settings.body_memory = 16 * 8 * 1000;
        let reads = Acts::new().access(|cx, _| {
            match &cx.request.body {
                RequestBody::Unread => return Ok(Step::ReadBody),
                RequestBody::Whole(body) => note(body.len().to_string()),
                other => note(format!("{other:?}")),
            }
            Ok(Step::Respond(Response::new(200, "")))
        });
        setup.plugins = vec![reads.define::<0>()];
        let gateway = keep(setup.start());
        // At most 8000 bytes of memory are there for one body. The chunk size may have leading zeros.
        for (payload, chunk, zeros, read) in [
            (1000, 7, 0, "1000"),
            (1000, 1, 0, "1000"),
            (1001, 7, 0, "TooLarge"),
            (1000, 1000, 0, "1000"),
            (1001, 1001, 0, "TooLarge"),
            (1000, 1, 8, "TooLarge"),
        ] {
            let mut text = CHUNKED.to_owned();
            for from in (0..payload).step_by(chunk) {
                let data = "x".repeat(chunk.min(payload - from));
                text += &format!("{}{:x}\r\n{data}\r\n", "0".repeat(zeros), data.len());
            }
            let mut client = gateway.client().await;
            client.send(text).await;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            client.send("0\r\n\r\n").await;
            assert_eq!(status(&client.answer().await), "200");
            assert_eq!(noted(), [read], "{payload} in chunks of {chunk}");
        }
        assert_eq!(gateway.body_memory(), 0);
    });
}

#[test]
fn trailers_follow_a_filtered_body_wherever_it_is_cut() {
    const BODY: &str = "5\r\nhello\r\n0\r\nX-Sum: 7\r\nX-More: 8\r\n\r\n";
    for cut in 1..BODY.len() {
        run(async move {
            let mut setup = Setup::new(upstream(vec![receives()]).await);
            setup.route.request_buffering = false;
            setup.plugins = vec![shouts().define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            let (first, second) = BODY.split_at(cut);
            client.send(format!("{CHUNKED}{first}")).await;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            client.send(second).await;
            assert_eq!(status(&client.answer().await), "200");
            assert_eq!(noted(), ["end", "HELLO![X-Sum: 7][X-More: 8]"], "{cut}");
        });
    }
}

#[test]
fn an_error_after_the_response_has_begun_breaks_both_connections_off() {
    run(async {
        let acts = Acts::new()
            .request_body(|chunk| match &*chunk.data {
                b" world" => Err(failed()),
                _ => Ok(()),
            })
            .logs();
        let begins = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
                .await;
            note(format!("got {:?}", peer.rest().await));
        });
        let mut setup = Setup::new(upstream(vec![begins]).await);
        setup.route.request_buffering = false;
        setup.route.response_buffering = false;
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send(format!("{SIZED}hello")).await;
        client.until("hi").await;
        client.send(" world").await;
        let rest = client.rest().await;
        assert!(!rest.contains("0\r\n\r\n"), "{rest}");
        wait_for("log 500").await;
        wait_for("got \"5\\r\\nhello\\r\\n\"").await;
    });
}

#[test]
fn an_error_leaves_nothing_of_the_body_for_the_next_request() {
    run(async {
        let acts = Acts::new().request_body(|_| Err(failed()));
        let mut setup = Setup::new(upstream(vec![receives()]).await);
        setup.route.request_buffering = false;
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
        let length = hidden.len() + 5;
        let mut client = gateway.client().await;
        client
            .send(format!(
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nhello"
            ))
            .await;
        let answer = client.answer().await;
        assert_eq!(
            (status(&answer), header(&answer, "connection")),
            ("500", Some("close"))
        );
        client.send(hidden).await;
        assert_eq!(client.rest().await, "");
    });
}

#[test]
fn a_body_that_is_sent_again_is_filtered_once() {
    run(async {
        let silent = || {
            script(|mut peer: Peer| async move {
                peer.head().await;
            })
        };
        let upstream = upstream(vec![silent(), silent(), receives()]).await;
        let gateway = gateway(upstream, vec![shouts().define::<0>()]);
        let mut client = gateway.client().await;
        client
            .send(SIZED.replace("POST", "PUT") + "hello world")
            .await;
        assert_eq!(status(&client.answer().await), "200");
        assert_eq!(noted(), ["end", "HELLO WORLD!"]);
    });
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    for request_buffering in [true, false] {
        run(async move {
            let mut setup = Setup::new(upstream(vec![receives()]).await);
            setup.route.request_buffering = request_buffering;
            setup.plugins = vec![shouts().define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            client
                .send(SIZED.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n"))
                .await;
            assert_eq!(status(&client.head().await), "100");
            client.send("hello world").await;
            assert_eq!(status(&client.answer().await), "200");
            assert_eq!(noted(), ["end", "HELLO WORLD!"]);
        });
    }
}

#[test]
fn an_error_gives_status_500_as_long_as_the_response_has_not_begun() {
    for (request_buffering, pieces) in [(true, 1), (true, 2), (false, 1), (false, 2)] {
        run(async move {
            let acts = Acts::new().request_body(|_| Err(failed())).logs();
            let mut setup = Setup::new(upstream(vec![receives()]).await);
            setup.route.request_buffering = request_buffering;
            setup.plugins = vec![acts.define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            if pieces == 1 {
                client.send(format!("{SIZED}hello world")).await;
            } else {
                client.send(SIZED).await;
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                client.send("hello world").await;
            }
            let answer = client.answer().await;
            assert_eq!(status(&answer), "500", "{request_buffering} {pieces}");
            wait_for("log 500").await;
            assert_eq!(noted(), ["log 500"]);
        });
    }
}

#[test]
fn the_body_that_a_plugin_gives_a_request_is_filtered() {
    run(async {
        let acts = shouts().access(|cx, _| {
            cx.request.set_upstream_body("new");
            Ok(Step::Continue)
        });
        let gateway = gateway(upstream(vec![receives()]).await, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        client.send(format!("{SIZED}hello world")).await;
        assert_eq!(status(&client.answer().await), "200");
        assert_eq!(noted(), ["end", "NEW!"]);
    });
}
