//! The cost of connections, and limits on the size of bodies.

use super::*;

#[test]
fn many_slow_connections_do_not_delay_others() {
    run(async {
        const SLOW: usize = 400;
        let scripts = (0..=SLOW).map(|_| answers(OK)).collect();
        let gateway = Setup::new(upstream(scripts).await).start();
        let mut slow = Vec::new();
        for _ in 0..SLOW {
            let mut client = gateway.client().await;
            client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ").await;
            slow.push(client);
        }
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(status(&client.answer().await), "200");
        while gateway.plane.totals().reading < SLOW as u64 {
            tokio::task::yield_now().await;
        }
        for client in &mut slow {
            client.send("1\r\nConnection: close\r\n\r\n").await;
        }
        for client in &mut slow {
            assert_eq!(status(&client.rest().await), "200");
        }
    });
}

#[test]
fn a_body_that_is_longer_than_allowed_is_refused() {
    run(async {
        let address = upstream(vec![script(|mut peer: Peer| async move {
            peer.rest().await;
        })])
        .await;
        let mut setup = Setup::new(address);
        setup.settings.max_body = 10;
        setup.route.request_buffering = false;
        let gateway = setup.start();
        let long = gateway
            .exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n")
            .await;
        assert_eq!(status(&long), "413");
        assert!(long.contains("Payload too large"), "{long}");
        let mut client = gateway.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        client.send("14\r\n01234567890123456789\r\n").await;
        assert_eq!(status(&client.answer().await), "413");
    });
}

#[test]
fn malformed_chunks_are_refused() {
    run(async {
        for buffering in [true, false] {
            let address = upstream(vec![script(|mut peer: Peer| async move {
                peer.rest().await;
            })])
            .await;
            let mut setup = Setup::new(address);
            setup.route.request_buffering = buffering;
            let gateway = keep(setup.start());
            let got = gateway
                .exchange("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n")
                .await;
            assert_eq!(
                (status(&got), header(&got, "connection")),
                ("400", Some("close"))
            );
        }
    });
}

/// Limits the size of a connection's task. The size counts for every idle connection, and each `.await` that is added
/// to request handling can enlarge it.
#[test]
fn a_connection_is_small() {
    run(async {
        let gateway = Setup::new(([127, 0, 0, 1], 1).into()).start();
        let client = gateway.client().await;
        let stream = net::stream::Stream::Tcp(client.stream);
        let connection = crate::session::server::connection_over(&gateway.plane, stream);
        let size = std::mem::size_of_val(&connection);
        assert!(size < 2850, "{size} bytes");
    });
}
