//! The rewrite phase: what it changes, how it ends requests, and what runs afterwards.

use super::*;
use crate::session::tests::http2;
use plugin::Flow;

/// A route for a header, with a service of its own, beside the usual one.
fn other_route(setup: &mut Setup, upstream: SocketAddr) {
    let mut service = service(upstream);
    service.id = ServiceId(Uuid::from_u128(21));
    let mut route = route();
    route.id = RouteId(Uuid::from_u128(22));
    route.service = Some(service.id);
    route.headers = [("x-way".into(), vec!["other".into()])]
        .into_iter()
        .collect();
    setup.also.services.push(service);
    setup.also.routes.push(route);
}

#[test]
fn a_changed_header_changes_the_route() {
    run(async {
        let usual = always(OK).await;
        let other = always("HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r\nother").await;
        let mut setup = http2::gateway_to(usual, Protocol::Http);
        other_route(&mut setup, other);
        let acts = Acts::new().rewrite(|cx, _| {
            assert!(cx.request.route.is_none());
            if cx.request.header("x-tenant") == Some(b"b") {
                cx.request.upstream.headers.set("X-Way", "other");
            }
            Ok(Step::Continue)
        });
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "200");
        client
            .send("GET / HTTP/1.1\r\nHost: a\r\nX-Tenant: b\r\n\r\n")
            .await;
        assert_eq!(status(&client.answer().await), "202");
        let mut client = http2::connect(&gateway).await;
        let mut request = http2::get("/");
        let headers = request.headers_mut();
        headers.insert("x-tenant", http::HeaderValue::from_static("b"));
        let (answer, _) = client.send_request(request, true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 202);
    });
}

/// The plugin `first` is global, and `second` belongs to the route. Returns the answer and the notes.
fn ends_in_rewrite(
    path: &'static str,
    step: fn() -> Result<Step<'static>, PluginError>,
) -> (String, Vec<String>) {
    let (send, receive) = std::sync::mpsc::channel();
    run(async move {
        let mut setup = Setup::new(always(OK).await);
        setup.route.paths = vec!["/known".into()];
        let global = Acts::new()
            .rewrite(move |_, _| step())
            .access(|_, _| {
                note("access");
                Ok(Step::Continue)
            })
            .header_filter(|cx| {
                note(format!("global head {}", cx.answer.status));
                continues(cx)
            })
            .logs();
        let of_route = Acts::new()
            .header_filter(|cx| {
                note("head of the route");
                continues(cx)
            })
            .log(|_, _| note("log of the route"));
        setup.plugins = vec![global.define::<0>(), of_route.define::<1>()];
        setup.on_route = vec!["second"];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client
            .send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .await;
        let answer = client.answer().await;
        wait_for(&format!("log {}", status(&answer))).await;
        send.send((answer, noted())).unwrap();
    });
    receive.recv().unwrap()
}

#[test]
fn what_ends_a_request_in_rewrite_ends_it_at_once_with_and_without_a_route() {
    for path in ["/known", "/unknown"] {
        for step in [
            || Ok(Step::Respond(Response::message(418, "tea"))),
            || Ok(Step::Exit(Response::message(418, "tea"))),
            || {
                Ok(Step::wait(async {
                    tokio::task::yield_now().await;
                    Ok(Flow::Exit(Response::message(418, "tea")))
                }))
            },
        ] {
            let (answer, notes) = ends_in_rewrite(path, step);
            assert!(answer.ends_with("{\"message\":\"tea\"}"), "{answer}");
            assert_eq!(notes, ["global head 418", "log 418"], "{path}");
        }
    }
}

#[test]
fn an_error_in_rewrite_ends_the_request_with_status_500() {
    for step in [
        || Err(failed()),
        || Ok(Step::ReadBody),
        || Ok(Step::wait(async { Err(failed()) })),
    ] {
        let (answer, notes) = ends_in_rewrite("/known", step);
        assert_eq!(status(&answer), "500");
        assert!(answer.contains("An unexpected error occurred"), "{answer}");
        assert_eq!(notes, ["global head 500", "log 500"]);
    }
}

#[test]
fn a_body_that_a_rewrite_reads_is_that_of_later_plugins_and_of_the_upstream() {
    run(async {
        let address = upstream(vec![script(|mut peer| async move {
            let head = peer.head().await;
            assert_eq!(header(&head, "content-length"), Some("5"));
            assert_eq!(peer.take(5).await, b"hello");
            peer.send(OK).await;
        })])
        .await;
        let mut setup = Setup::new(address);
        let read = |name: &'static str| {
            move |request: &plugin::Request<'_>| match &request.body {
                plugin::RequestBody::Unread => Ok(Step::ReadBody),
                _ => {
                    let size = request.body_bytes().map_or(0, |body| body.len());
                    note(format!("{name} {size}"));
                    Ok(Step::Continue)
                }
            }
        };
        let (rewrite, access) = (read("rewrite"), read("access"));
        let acts = Acts::new()
            .rewrite(move |cx, _| rewrite(cx.request))
            .access(move |cx, _| access(cx.request));
        // The walk goes on with the plugin that has asked, and then with the next one.
        let next = Acts::new().rewrite(|_, _| {
            note("next");
            Ok(Step::Continue)
        });
        setup.plugins = vec![acts.define::<0>(), next.define::<1>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")
            .await;
        client.send("lo\r\n0\r\n\r\n").await;
        assert_eq!(status(&client.answer().await), "200");
        assert_eq!(noted(), ["rewrite 5", "next", "access 5"]);
    });
}

#[test]
fn a_body_over_the_limit_is_refused_when_a_rewrite_reads_it() {
    run(async {
        let mut setup = Setup::new(always(OK).await);
        setup.settings.max_body = 4;
        let acts = Acts::new().rewrite(|_, _| Ok(Step::ReadBody)).logs();
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        for body in [
            "Content-Length: 5\r\n\r\nhello",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ] {
            let mut client = gateway.client().await;
            client
                .send(format!("POST / HTTP/1.1\r\nHost: a\r\n{body}"))
                .await;
            assert_eq!(status(&client.answer().await), "413", "{body}");
            wait_for("log 413").await;
            noted();
        }
    });
}

#[test]
fn after_a_rewrite_that_continues_all_phases_of_all_plugins_run() {
    let (answer, notes) = ends_in_rewrite("/known", || Ok(Step::Continue));
    assert_eq!(status(&answer), "200");
    let expected = ["access", "global head 200", "head of the route", "log 200"];
    assert_eq!(notes[..4], expected);
}

#[test]
fn filters_know_the_servers_that_were_tried() {
    run(async {
        let mut setup = Setup::new(([127, 0, 0, 1], 1).into());
        let acts = Acts::new()
            .header_filter(|cx| {
                note(format!("head {}", cx.state.tried.len()));
                continues(cx)
            })
            .log(|cx, _| note(format!("log {}", cx.entry.tries.len())));
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(GET).await;
            assert_eq!(status(&client.answer().await), "502");
            wait_for("log 6").await;
            assert_eq!(noted(), ["head 6", "log 6"]);
        }
    });
}

#[test]
fn a_global_rewrite_and_the_access_of_a_route_share_the_own_state_of_the_plugin() {
    run(async {
        let mut setup = Setup::new(always(OK).await);
        let acts = Acts::new()
            .rewrite(|_, own| {
                *own += 1;
                Ok(Step::Continue)
            })
            .access(|_, own| {
                *own += 10;
                Ok(Step::Continue)
            })
            .log(|cx, own| {
                note(format!(
                    "{own} {:?}",
                    cx.configured.scopes.contains(plugin::ScopeSet::ROUTE)
                ))
            });
        setup.plugins = vec![acts.define::<0>()];
        let of_route = configured("first", 30, Some(setup.route.id));
        setup.also.plugins.push(of_route);
        let gateway = setup.start();
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(GET).await;
            client.answer().await;
            // The state is new for each request.
            wait_for("11 true").await;
            assert_eq!(noted(), ["11 true"]);
        }
    });
}
