//! Limits on clients and upstreams: connections, requests per connection, minimum client rate, and concurrent requests
//! per target.

use super::*;
use crate::session::{ConnectionLimits, MinRate, UpstreamLimits};
use std::time::Duration;
use tokio::time::Instant;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn connections_beyond_the_limit_are_closed_until_others_have_gone() {
    run(async {
        for limits in [
            ConnectionLimits {
                all: 2,
                per_client: 0,
            },
            ConnectionLimits {
                all: 0,
                per_client: 2,
            },
        ] {
            let upstream = upstream(vec![answers(OK), answers(OK), answers(OK)]).await;
            let mut setup = Setup::new(upstream);
            setup.settings.connections = limits;
            let gateway = keep(setup.start());
            let (mut one, mut two) = (gateway.client().await, gateway.client().await);
            for client in [&mut one, &mut two] {
                client.send(GET).await;
                assert_eq!(status(&client.answer().await), "200");
            }
            assert_eq!(gateway.client().await.rest().await, "");
            assert_eq!(gateway.plane.totals().refused, 1);
            drop(one);
            while gateway.plane.totals().active() > 1 {
                tokio::task::yield_now().await;
            }
            let mut three = gateway.client().await;
            three.send(GET).await;
            assert_eq!(status(&three.answer().await), "200");
        }
    });
}

#[test]
fn a_connection_carries_at_most_max_requests() {
    run(async {
        for (limit, expected) in [
            (3, ["keep-alive", "keep-alive", "close"]),
            (0, ["keep-alive"; 3]),
        ] {
            let mut setup = Setup::new(upstream(vec![answers(OK)]).await);
            setup.settings.max_requests = limit;
            let gateway = keep(setup.start());
            let mut client = gateway.client().await;
            for expected in expected {
                client.send(GET).await;
                let answer = client.answer().await;
                assert_eq!(header(&answer, "connection"), Some(expected));
            }
        }
    });
}

#[test]
fn a_body_that_comes_too_slowly_is_refused_and_one_that_comes_fast_enough_is_not() {
    run_paused(async {
        for (buffering, rate, expected, seconds) in [
            (true, 10, "408", 4),
            (false, 10, "408", 4),
            (true, 1, "200", 20),
            (false, 1, "200", 20),
            (true, 0, "200", 20),
        ] {
            let mut setup = Setup::new(upstream(vec![answers(OK)]).await);
            setup.route.request_buffering = buffering;
            setup.settings.min_rate = MinRate {
                bytes: rate,
                grace: Duration::from_secs(4),
            };
            let gateway = keep(setup.start());
            let start = Instant::now();
            let client = gateway.client().await;
            let (mut reading, mut writing) = client.stream.into_split();
            let sending = tokio::task::spawn_local(async move {
                let _ = writing
                    .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n")
                    .await;
                // Sends two bytes per second for twenty seconds.
                for _ in 0..20 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    if writing.write_all(b"xy").await.is_err() {
                        return;
                    }
                }
                std::future::pending::<()>().await;
            });
            let mut answer = Vec::new();
            reading.read_buf(&mut answer).await.unwrap();
            let answer = String::from_utf8(answer).unwrap();
            let case = format!("{buffering} {rate}: {answer}");
            assert_eq!(status(&answer), expected, "{case}");
            assert_eq!(start.elapsed().as_secs(), seconds, "{case}");
            sending.abort();
        }
    });
}

#[test]
fn a_client_that_receives_too_slowly_is_disconnected() {
    run_paused(async {
        let large = script(|mut peer: Peer| async move {
            peer.head().await;
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
                .await;
            let _ = peer.stream.write_all(&vec![0; 100_000_000]).await;
        });
        let mut setup = Setup::new(upstream(vec![large]).await);
        setup.settings.send_timeout = Duration::from_secs(1000);
        setup.settings.min_rate = MinRate {
            bytes: 1_000_000,
            grace: Duration::from_secs(10),
        };
        let gateway = setup.start();
        let start = Instant::now();
        let mut client = gateway.client().await;
        client.send(GET).await;
        client.head().await;
        while gateway.plane.totals().active() > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!((10..=11).contains(&start.elapsed().as_secs()));
    });
}

/// Upstream scripts that count concurrent requests, and respond after some time.
fn counting(scripts: usize, seconds: u64) -> (Vec<Script>, Rc<RefCell<(usize, usize)>>) {
    let counts = Rc::new(RefCell::new((0, 0)));
    let scripts = (0..scripts).map(|_| {
        let counts = counts.clone();
        script(move |mut peer: Peer| async move {
            while peer.head_or_end().await.is_some() {
                {
                    let (now, most) = &mut *counts.borrow_mut();
                    *now += 1;
                    *most = (*most).max(*now);
                }
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                counts.borrow_mut().0 -= 1;
                peer.send(OK).await;
            }
        })
    });
    (scripts.collect(), counts)
}

#[test]
fn requests_wait_for_their_turn_at_a_target_and_no_longer_than_allowed() {
    run_paused(async {
        let (scripts, counts) = counting(10, 2);
        let mut setup = Setup::new(upstream(scripts).await);
        setup.service.retries = 0;
        setup.settings.upstream = UpstreamLimits {
            requests: 2,
            queue: 4,
            wait: Duration::from_secs(3),
        };
        let gateway = Rc::new(setup.start());
        // Two requests are sent at once, four wait, and two find the queue full. Two of the waiting ones get a slot in
        // time.
        let clients = (0..8).map(|_| {
            let gateway = gateway.clone();
            tokio::task::spawn_local(async move {
                let mut client = gateway.client().await;
                client.send(GET).await;
                let answer = client.answer().await;
                if status(&answer) == "503" {
                    let message = "The upstream server is currently unavailable";
                    assert!(answer.contains(message), "{answer}");
                    assert_eq!(header(&answer, "connection"), Some("keep-alive"));
                }
                status(&answer).to_owned()
            })
        });
        let clients: Vec<_> = clients.collect();
        let start = Instant::now();
        let mut statuses = Vec::new();
        for client in clients {
            statuses.push(client.await.unwrap());
        }
        statuses.sort();
        assert_eq!(
            statuses,
            ["200", "200", "200", "200", "503", "503", "503", "503"]
        );
        assert_eq!((start.elapsed().as_secs(), counts.borrow().1), (4, 2));
        // All slots are free again.
        let mut client = gateway.client().await;
        client.send(GET).await;
        assert_eq!(status(&client.answer().await), "200");
    });
}

#[test]
fn a_client_that_left_the_queue_does_not_delay_others() {
    run_paused(async {
        let (scripts, _) = counting(3, 2);
        let mut setup = Setup::new(upstream(scripts).await);
        setup.settings.upstream.requests = 1;
        let gateway = setup.start();
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = gateway.client().await;
            client.send(GET).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            clients.push(client);
        }
        drop(clients.remove(1));
        for mut client in clients {
            assert_eq!(status(&client.answer().await), "200");
        }
    });
}
