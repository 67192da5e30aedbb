//! Plugins that lead requests elsewhere, or change the limits of the service.

use super::super::connections::One;
use super::*;
use net::tls::self_signed;
use plugin::{Scheme, TargetEdits};
use std::cell::Cell;
use std::time::Duration;

/// A plugin that edits the target.
fn leads(edit: impl Fn(&mut TargetEdits) + 'static) -> Acts {
    Acts::new()
        .access(move |cx, _| {
            edit(cx.request.upstream.target_mut());
            Ok(Step::Continue)
        })
        .log(|cx, _| note(format!("tries {}", cx.entry.tries.len())))
}

/// A service that leads nowhere, with this host.
fn nowhere(host: &str) -> Setup {
    let mut setup = Setup::new(SocketAddr::from(([127, 0, 0, 1], 1)));
    setup.service.host = host.into();
    setup.service.path = Some("/base".into());
    setup
}

/// Adds an upstream entity with one target.
fn add_upstream(setup: &mut Setup, name: &str, host_header: Option<&str>, targets: &[SocketAddr]) {
    let id = Uuid::from_u128(40);
    let upstream = json!({"id": id, "name": name, "host_header": host_header});
    setup
        .also
        .upstreams
        .push(serde_json::from_value(upstream).unwrap());
    for (address, number) in targets.iter().zip(41..) {
        let target =
            json!({"id": Uuid::from_u128(number), "upstream": id, "target": address.to_string()});
        setup
            .also
            .targets
            .push(serde_json::from_value(target).unwrap());
    }
}

/// An upstream with one connection, which notes what it receives.
async fn receives() -> SocketAddr {
    upstream(vec![script(|mut peer: Peer| async move {
        while let Some(head) = peer.head_or_end().await {
            let target = head.split(' ').nth(1).unwrap();
            note(format!("{target} {}", header(&head, "host").unwrap()));
            peer.send(OK).await;
        }
    })])
    .await
}

#[test]
fn a_request_is_led_to_an_address_on_a_connection_that_is_kept() {
    for preserve_host in [false, true] {
        run(async move {
            let address = receives().await;
            let mut setup = nowhere("127.0.0.1");
            setup.route.preserve_host = preserve_host;
            let acts = leads(move |target| target.set_address("127.0.0.1", address.port()));
            setup.plugins = vec![acts.define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            for _ in 0..3 {
                client
                    .send("GET /x HTTP/1.1\r\nHost: lua.test\r\n\r\n")
                    .await;
                assert_eq!(status(&client.answer().await), "200");
                wait_for("tries 1").await;
                assert_eq!(noted(), ["/base/x 127.0.0.1", "tries 1"]);
            }
        });
    }
}

#[test]
fn a_connection_is_shared_with_a_service_at_the_same_address() {
    run(async {
        let address = receives().await;
        let mut setup = Setup::new(address);
        let acts = Acts::new().access(move |cx, _| {
            if cx.request.header("x-lead").is_some() {
                let target = cx.request.upstream.target_mut();
                target.set_address("127.0.0.1", address.port());
            }
            Ok(Step::Continue)
        });
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        for lead in ["", "X-Lead: 1\r\n", ""] {
            client
                .send(format!("GET / HTTP/1.1\r\nHost: a\r\n{lead}\r\n"))
                .await;
            assert_eq!(status(&client.answer().await), "200");
        }
    });
}

#[test]
fn a_host_that_a_plugin_sets_is_sent_to_the_address() {
    run(async {
        let address = receives().await;
        let acts = Acts::new().access(move |cx, _| {
            cx.request.upstream.headers.set("Host", "mine.test");
            let target = cx.request.upstream.target_mut();
            target.set_address("127.0.0.1", address.port());
            Ok(Step::Continue)
        });
        let mut setup = nowhere("127.0.0.1");
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "200");
        assert_eq!(noted(), ["/base mine.test"]);
    });
}

#[test]
fn a_service_with_a_name_is_led_to_an_upstream() {
    for (preserve_host, host_header) in [(false, None), (true, None), (false, Some("hh.test"))] {
        run(async move {
            let address = receives().await;
            let mut setup = nowhere("placeholder.test");
            setup.route.preserve_host = preserve_host;
            // The first target refuses connections.
            let dead = SocketAddr::from(([127, 0, 0, 1], 1));
            add_upstream(&mut setup, "ups", host_header, &[dead, address]);
            let acts = leads(|target| target.set_upstream("ups"));
            let asks = Acts::new().access(|cx, _| {
                assert!(cx.configured.has_upstream("ups") && !cx.configured.has_upstream("nope"));
                Ok(Step::Continue)
            });
            setup.plugins = vec![acts.define::<0>(), asks.define::<1>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            let host = match (preserve_host, host_header) {
                (true, _) => "lua.test".to_owned(),
                (_, Some(name)) => format!("{name}:{}", address.port()),
                _ => address.to_string(),
            };
            for _ in 0..4 {
                client
                    .send("GET /x HTTP/1.1\r\nHost: lua.test\r\n\r\n")
                    .await;
                assert_eq!(status(&client.answer().await), "200");
                assert!(noted().contains(&format!("/base/x {host}")));
            }
        });
    }
}

#[test]
fn what_cannot_be_reached_gives_nginxs_error_500() {
    run(async {
        type Edit = fn(&mut TargetEdits);
        let cases: [(&str, Edit); 4] = [
            ("127.0.0.1", |target| {
                target.set_address("nosuch.invalid", 80)
            }),
            ("127.0.0.1", |target| target.set_upstream("ups")),
            ("placeholder.test", |target| target.set_upstream("nope")),
            ("placeholder.test", |target| {
                target.set_address("a\r\nX-Evil: 1", 80);
            }),
        ];
        for (host, edit) in cases {
            let mut setup = nowhere(host);
            add_upstream(&mut setup, "ups", None, &[]);
            setup.plugins = vec![leads(edit).define::<0>()];
            let gateway = keep(setup.start());
            let mut client = gateway.client().await;
            client.send(GET).await;
            let answer = client.answer().await;
            assert_eq!(status(&answer), "500");
            assert_eq!(
                header(&answer, "content-type"),
                Some("text/plain; charset=utf-8")
            );
            assert!(
                answer.contains("\r\n\r\nAn unexpected error occurred\n"),
                "{answer}"
            );
        }
    });
}

#[test]
fn an_upstream_without_targets_gives_status_503() {
    run(async {
        let mut setup = nowhere("placeholder.test");
        add_upstream(&mut setup, "ups", None, &[]);
        setup.plugins = vec![leads(|target| target.set_upstream("ups")).define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "503");
    });
}

#[test]
fn retries_are_those_of_the_plugin() {
    for (retries, tries) in [(None, 6), (Some(0), 1), (Some(2), 3)] {
        run(async move {
            let mut setup = nowhere("127.0.0.1");
            setup.plugins = vec![leads(move |target| target.retries = retries).define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            client.send(GET).await;
            assert_eq!(status(&client.answer().await), "502");
            wait_for(&format!("tries {tries}")).await;
        });
    }
}

#[test]
fn time_limits_are_those_of_the_plugin() {
    run_paused(async {
        let silent = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.rest().await;
        });
        let mut setup = Setup::new(upstream(vec![silent]).await);
        let acts = leads(|target| {
            target.retries = Some(0);
            target.read_timeout = Some(Duration::from_millis(60));
        });
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        let began = tokio::time::Instant::now();
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "504");
        assert!(began.elapsed() < Duration::from_secs(1));
    });
}

#[test]
fn the_scheme_is_that_of_the_plugin() {
    for (service, scheme, first) in [
        (Protocol::Http, Scheme::Https, 0x16),
        (Protocol::Https, Scheme::Http, b'G'),
    ] {
        run(async move {
            let address = upstream(vec![script(|mut peer: Peer| async move {
                note(format!("{}", peer.take(1).await[0]));
            })])
            .await;
            let mut setup = Setup::new(address);
            setup.service.protocol = service;
            let acts = leads(move |target| {
                target.scheme = Some(scheme);
                target.retries = Some(0);
            });
            setup.plugins = vec![acts.define::<0>()];
            let gateway = setup.start();
            let mut client = gateway.client().await;
            client.send(GET).await;
            assert_eq!(status(&client.answer().await), "502");
            wait_for(&first.to_string()).await;
        });
    }
}

#[test]
fn addresses_that_are_not_used_any_more_are_forgotten() {
    run_paused(async {
        let address = receives().await;
        let acts = leads(move |target| target.set_address("127.0.0.1", address.port()));
        let mut setup = nowhere("127.0.0.1");
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client.send(GET).await;
        client.answer().await;
        let places = || crate::session::worker::with(|worker| worker.places.len());
        assert_eq!(places(), 1);
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert_eq!(places(), 0);
    });
}

/// A TLS upstream with a certificate of its own, which keeps its connections.
async fn secured() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        let tls = ServerTls::new(Arc::new(One(Arc::new(self_signed().unwrap())))).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = tls.accept(stream).await else {
                continue;
            };
            note("connection".to_owned());
            tokio::task::spawn_local(async move {
                let mut head = Vec::new();
                while stream.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        stream.write_all(OK.as_bytes()).await.unwrap();
                        stream.flush().await.unwrap();
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_verified_request_does_not_use_a_connection_that_was_not_verified() {
    run(async {
        let mut setup = Setup::new(secured().await);
        setup.service.protocol = Protocol::Https;
        setup.service.host = "localhost".into();
        let request = Cell::new(0);
        let acts = leads(move |target| {
            target.tls_verify = [Some(false), Some(true), None, Some(false)][request.get()];
            target.retries = Some(0);
            request.set(request.get() + 1);
        });
        setup.plugins = vec![acts.define::<0>()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        for expected in ["200", "502", "200", "200"] {
            client.send(GET).await;
            assert_eq!(status(&client.answer().await), expected);
        }
        let opened = noted();
        let opened = opened.iter().filter(|event| *event == "connection");
        assert_eq!(opened.count(), 1, "requests without verification share one");
    });
}
