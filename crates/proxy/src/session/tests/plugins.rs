//! Tests that the right plugins run for requests that end early, and that a body is read only when a plugin needs it.

use super::acts::Acts;
use super::*;
use plugin::{BodyLimit, Filtered, RequestBody, Response, Step};
use std::sync::atomic::Ordering;

/// Marks every response that it filters.
fn mark() -> Arc<PluginDef> {
    let acts = Acts::new().header_filter(|cx| {
        cx.answer.headers.set("X-Mark", "seen");
        Ok(Filtered::Continue)
    });
    acts.define::<0>()
}

/// Accepts only requests with the header `x-known`.
fn gate() -> Arc<PluginDef> {
    let acts = Acts::new().access(|cx, _| {
        Ok(match cx.request.header("x-known") {
            Some(_) => Step::Continue,
            None => Step::Respond(Response::message(401, "who are you")),
        })
    });
    acts.define::<0>()
}

/// Responds with the request's body.
fn reader() -> Arc<PluginDef> {
    let acts = Acts::new().access(|cx, _| {
        let body = match &cx.request.body {
            RequestBody::Unread => return Ok(Step::ReadBody),
            RequestBody::Whole(body) => body.clone(),
            RequestBody::TooLarge | RequestBody::Streamed => "no body".into(),
        };
        Ok(Step::Respond(Response::new(200, body)))
    });
    acts.define::<1>()
}

/// Returns the response to a request that is refused for its length, sent after a request on which the plugins ran.
fn refused_for_its_length(plugins_on_route: bool) -> String {
    let (send, receive) = std::sync::mpsc::channel();
    run(async move {
        let mut setup = Setup::new(upstream(vec![answers(OK)]).await);
        setup.plugins = vec![mark()];
        setup.plugins_on_route = plugins_on_route;
        setup.settings.max_body = 10;
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let answer = client.answer().await;
        assert_eq!(header(&answer, "x-mark"), Some("seen"));
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n")
            .await;
        send.send(client.answer().await).unwrap();
    });
    receive.recv().unwrap()
}

#[test]
fn a_request_refused_before_its_access_phase_runs_no_filters_of_the_request_before() {
    let refused = refused_for_its_length(true);
    assert_eq!(status(&refused), "413");
    assert_eq!(header(&refused, "x-mark"), None);
}

/// Kong also runs only global plugins here, because it has not yet collected the plugins of the route.
#[test]
fn a_request_refused_before_its_access_phase_is_filtered_by_global_plugins() {
    let refused = refused_for_its_length(false);
    assert_eq!(status(&refused), "413");
    assert_eq!(header(&refused, "x-mark"), Some("seen"));
}

/// Limits bodies to four bytes.
fn limiter() -> Arc<PluginDef> {
    let acts = Acts::new().access(|cx, _| {
        let refusal = Response::message(417, "limited");
        cx.state.body_limit = Some(Box::new(BodyLimit { most: 4, refusal }));
        Ok(Step::Continue)
    });
    acts.define::<0>()
}

#[test]
fn the_limit_of_a_plugin_ends_a_body_before_it_has_arrived() {
    const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    run(async {
        for buffering in [true, false] {
            let address = upstream(vec![
                script(|mut peer: Peer| async move {
                    peer.rest().await;
                }),
                answers(OK),
            ]);
            let mut setup = Setup::new(address.await);
            setup.plugins = vec![limiter()];
            setup.route.request_buffering = buffering;
            let gateway = setup.start();
            let whole = format!("{HEAD}5\r\n12345\r\n0\r\n\r\n");
            let whole = gateway.exchange(&whole).await;
            assert_eq!(status(&whole), "417");
            assert!(whole.contains("limited"), "{whole}");
            // The rest of this body never comes.
            let mut client = gateway.client().await;
            client.send(&format!("{HEAD}3\r\n123\r\n")).await;
            client.send("2\r\n45\r\n").await;
            let streamed = client.answer().await;
            assert_eq!(status(&streamed), "417");
            assert!(streamed.contains("limited"), "{streamed}");
        }
    });
}

#[test]
fn a_body_within_the_limit_of_a_plugin_passes() {
    run(async {
        for buffering in [true, false] {
            let mut setup = Setup::new(upstream(vec![answers(OK)]).await);
            setup.plugins = vec![limiter()];
            setup.route.request_buffering = buffering;
            let body = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n0\r\n\r\n";
            let gateway = setup.start();
            let mut client = gateway.client().await;
            client.send(body).await;
            assert_eq!(status(&client.answer().await), "200");
        }
    });
}

#[test]
fn a_client_that_a_plugin_refuses_costs_no_memory_for_its_body() {
    run_paused(async {
        let mut setup = Setup::new(upstream(vec![]).await);
        setup.plugins = vec![gate(), reader()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhal")
            .await;
        // The gateway does not wait for the rest of the body.
        assert_eq!(status(&client.answer().await), "401");
        assert_eq!(gateway.plane.body_memory.load(Ordering::Relaxed), 0);
        let mut known = gateway.client().await;
        known
            .send("POST / HTTP/1.1\r\nHost: a\r\nX-Known: 1\r\nContent-Length: 11\r\n\r\nhal")
            .await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_ne!(gateway.plane.body_memory.load(Ordering::Relaxed), 0);
        known.send("f a body").await;
        let answer = known.answer().await;
        assert!(answer.ends_with("\r\n\r\nhalf a body"), "{answer}");
        assert_eq!(gateway.plane.body_memory.load(Ordering::Relaxed), 0);
    });
}
