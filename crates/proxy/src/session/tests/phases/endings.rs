//! The ways in which `access` ends a request.

use super::*;
use plugin::{Flow, Origin};

/// Three plugins, of which the second ends the request. Returns the answer and the notes.
fn ended_by(step: fn() -> Step<'static>) -> (String, Vec<String>) {
    let (send, receive) = std::sync::mpsc::channel();
    run(async move {
        let beside = |name: &'static str| {
            Acts::new()
                .access(move |_, _| {
                    note(format!("access of {name}"));
                    Ok(Step::Continue)
                })
                .header_filter(move |cx| {
                    note(format!("{name} {:?}", cx.answer.origin));
                    continues(cx)
                })
                .log(move |cx, _| {
                    note(format!("log of {name}"));
                    let is_produced = cx.entry.origin != Origin::Upstream;
                    assert!(is_produced && cx.entry.upstream_status.is_none());
                })
        };
        let ends = Acts::new().access(move |_, _| Ok(step()));
        let plugins = vec![
            beside("first").define::<0>(),
            ends.define::<1>(),
            beside("third").define::<2>(),
        ];
        let gateway = gateway(always(OK).await, plugins);
        let mut client = gateway.client().await;
        client.send(GET).await;
        let answer = client.answer().await;
        wait_for("log of first").await;
        tokio::task::yield_now().await;
        send.send((answer, noted())).unwrap();
    });
    receive.recv().unwrap()
}

#[test]
fn after_a_delayed_response_the_later_phases_of_all_plugins_run() {
    let waits = || Step::wait(async { Ok(Flow::Respond(Response::new(401, "no"))) });
    for step in [|| Step::Respond(Response::new(401, "no")), waits] {
        let (answer, notes) = ended_by(step);
        assert_eq!(status(&answer), "401");
        let expected = [
            "access of first",
            "first Plugin",
            "third Plugin",
            "log of first",
            "log of third",
        ];
        assert_eq!(notes, expected);
    }
}

#[test]
fn after_an_exit_only_the_plugins_before_it_run() {
    let waits = || Step::wait(async { Ok(Flow::Exit(Response::new(401, "no"))) });
    for step in [|| Step::Exit(Response::new(401, "no")), waits] {
        let (answer, notes) = ended_by(step);
        assert_eq!(status(&answer), "401");
        assert_eq!(notes, ["access of first", "first Gateway", "log of first"]);
    }
}

/// Clients would take such a response for one that announces another.
#[test]
fn a_response_that_is_not_final_becomes_500() {
    let ends = [
        |acts: Acts, step: fn() -> Step<'static>| acts.rewrite(move |_, _| Ok(step())),
        |acts: Acts, step: fn() -> Step<'static>| acts.access(move |_, _| Ok(step())),
        |acts: Acts, step: fn() -> Step<'static>| acts.response(move |_| Ok(step())),
    ];
    for end in ends {
        for step in [
            || Step::Respond(Response::new(100, "no")),
            || Step::Exit(Response::new(101, "no")),
            || Step::wait(async { Ok(Flow::Respond(Response::new(199, "no"))) }),
        ] {
            run(async move {
                let plugins = vec![end(Acts::new(), step).logs().define::<0>()];
                let gateway = gateway(always(OK).await, plugins);
                let mut client = gateway.client().await;
                // The connection stays usable.
                for _ in 0..2 {
                    client.send(GET).await;
                    let answer = client.answer().await;
                    assert_eq!(status(&answer), "500");
                    assert!(answer.contains("An unexpected error occurred"), "{answer}");
                    wait_for("log 500").await;
                    assert_eq!(noted(), ["log 500"]);
                }
            });
        }
    }
}

/// The time limits of the body and of the response begin after the wait.
#[test]
fn a_long_wait_takes_nothing_of_the_clients_time() {
    run_paused(async {
        let hour = || async {
            tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
        };
        let acts = Acts::new()
            .rewrite(move |_, _| {
                Ok(Step::wait(async move {
                    hour().await;
                    Ok(Flow::Continue)
                }))
            })
            .access(move |cx, own| {
                if cx.request.body_bytes().is_some() {
                    return Ok(Step::Continue);
                }
                assert_eq!(*own, 0);
                *own = 1;
                Ok(Step::wait(async move {
                    hour().await;
                    Ok(Flow::ReadBody)
                }))
            })
            .response(move |_| {
                Ok(Step::wait(async move {
                    hour().await;
                    Ok(Flow::Continue)
                }))
            });
        let gateway = gateway(always(OK).await, vec![acts.define::<0>()]);
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
            .await;
        tokio::time::sleep(std::time::Duration::from_secs(7200 + 10)).await;
        client.send("llo").await;
        assert_eq!(status(&client.answer().await), "200");
    });
}

/// The others go on as if it was not there.
#[test]
fn a_plugin_that_leaves_a_request_has_no_later_phase() {
    run(async {
        let named = |name: &'static str, access: fn(bool) -> Step<'static>| {
            Acts::new()
                .access(move |cx, _| {
                    note(format!("access of {name}"));
                    Ok(access(cx.request.body_bytes().is_some()))
                })
                .header_filter(move |cx| {
                    note(format!("header filter of {name}"));
                    continues(cx)
                })
                .log(move |_, _| note(format!("log of {name}")))
        };
        let plugins = vec![
            named("first", |_| Step::Continue).define::<0>(),
            named("second", |has_body| match has_body {
                true => Step::Leave,
                false => Step::ReadBody,
            })
            .define::<1>(),
            named("third", |_| Step::Leave).define::<2>(),
        ];
        let gateway = gateway(always(OK).await, plugins);
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
            .await;
        assert_eq!(status(&client.answer().await), "200");
        wait_for("log of first").await;
        tokio::task::yield_now().await;
        let expected = [
            "access of first",
            "access of second",
            "access of second",
            "access of third",
            "header filter of first",
            "log of first",
        ];
        assert_eq!(noted(), expected);
    });
}
