//! Plugins and upstreams that speak HTTP/2, among them gRPC services.

use super::*;
use crate::session::tests::http2::{
    body, call, connect, gateway_to, grpc_head, send, status_of, upstream_of,
};

/// An upstream for gRPC that sends back each message as it arrives.
async fn echo() -> SocketAddr {
    upstream_of(|_, (request, mut respond)| async move {
        let mut stream = respond.send_response(grpc_head(), false).unwrap();
        let mut messages = request.into_body();
        while let Some(data) = messages.data().await {
            let data = data.unwrap();
            messages
                .flow_control()
                .release_capacity(data.len())
                .unwrap();
            stream.send_data(data, false).unwrap();
        }
        stream.send_trailers(status_of("0")).unwrap();
    })
    .await
}

/// The messages must pass before the call ends, so the response is not read into memory.
#[test]
fn a_grpc_call_is_not_read_into_memory_although_a_plugin_asks_for_it() {
    run(async {
        let acts = Acts::new()
            .access(|cx, _| {
                cx.request.upstream.buffer_response = true;
                Ok(Step::Continue)
            })
            .response(|_| {
                note("response");
                Ok(Step::Continue)
            });
        let mut setup = gateway_to(echo().await, Protocol::Grpc);
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = connect(&gateway).await;
        let (answer, mut messages) = client.send_request(call(), false).unwrap();
        send(&mut messages, "first", false);
        let mut answers = answer.await.unwrap().into_body();
        assert_eq!(answers.data().await.unwrap().unwrap(), "first");
        send(&mut messages, "second", true);
        assert_eq!(answers.data().await.unwrap().unwrap(), "second");
        let trailers = answers.trailers().await.unwrap().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert!(noted().is_empty());
    });
}

#[test]
fn a_filtered_grpc_call_keeps_its_trailers() {
    run(async {
        let acts = Acts::new()
            .request_body(|chunk| {
                chunk.data = chunk.data.to_ascii_uppercase().into();
                Ok(())
            })
            .body_filter(|cx, chunk| {
                if chunk.last {
                    note(format!("{:?}", cx.trailer("grpc-status").map(<[u8]>::len)));
                    chunk.data = "!".into();
                }
                Ok(())
            });
        let mut setup = gateway_to(echo().await, Protocol::Grpc);
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = connect(&gateway).await;
        for _ in 0..2 {
            let (answer, mut messages) = client.send_request(call(), false).unwrap();
            send(&mut messages, "first", false);
            let mut answers = answer.await.unwrap().into_body();
            assert_eq!(answers.data().await.unwrap().unwrap(), "FIRST");
            send(&mut messages, "second", true);
            assert_eq!(body(&mut answers).await.unwrap(), b"SECOND!");
            let trailers = answers.trailers().await.unwrap().unwrap();
            assert_eq!(trailers["grpc-status"], "0");
            assert_eq!(noted(), ["Some(1)"]);
        }
    });
}

#[test]
fn an_upstream_over_http2_gets_the_filtered_body() {
    for request_buffering in [true, false] {
        run(async move {
            let upstream = upstream_of(|_, (request, mut respond)| async move {
                let length = request.headers().get("content-length").is_some();
                let received = body(&mut request.into_body()).await.unwrap();
                note(format!("{length} {}", String::from_utf8(received).unwrap()));
                let head = http::Response::new(());
                respond.send_response(head, true).unwrap();
            });
            let mut setup = gateway_to(upstream.await, Protocol::Http);
            setup.upstream_http2 = true;
            setup.route.request_buffering = request_buffering;
            let acts = Acts::new().request_body(|chunk| {
                if chunk.last {
                    chunk.data = "!".into();
                }
                Ok(())
            });
            setup.plugins = vec![acts.define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            client
                .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
                .await;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            client.send("llo").await;
            assert_eq!(status(&client.answer().await), "200");
            assert_eq!(noted(), [format!("{request_buffering} hello!")]);
        });
    }
}

/// An answer of gRPC that is a head with trailers in it, and no body.
#[test]
fn a_grpc_answer_without_a_body_passes_filters() {
    run(async {
        let upstream = upstream_of(|_, (_, mut respond)| async move {
            let mut head = grpc_head();
            head.headers_mut().extend(status_of("12"));
            respond.send_response(head, true).unwrap();
        });
        let acts = Acts::new()
            .header_filter(without_length)
            .body_filter(|_, chunk| {
                note_piece(chunk);
                Ok(())
            });
        let mut setup = gateway_to(upstream.await, Protocol::Grpc);
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = connect(&gateway).await;
        let (answer, _) = client.send_request(call(), true).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "12");
        assert_eq!(body(&mut answer.into_body()).await.unwrap(), b"");
        assert_eq!(noted(), [" end"]);
    });
}
