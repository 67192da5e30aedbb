//! UDP sessions at the end of the process that serves them: their datagrams in both directions during a drain, and after
//! another process has taken over the listener.

use super::logging::{access_log, lines};
use super::*;
use crate::access_log::AccessLog;
use std::time::Duration;
use tokio::net::UdpSocket;

/// Less than the time that the drain allows.
const LIMIT: Duration = Duration::from_secs(30);

/// A gateway with one UDP service, its upstream, and a client.
async fn gateway(stream_log: Option<AccessLog>) -> (Gateway, UdpSocket, UdpSocket) {
    let upstream = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut setup = Setup::new(upstream.local_addr().unwrap());
    setup.listen = "127.0.0.1:0 udp";
    setup.settings.stream_log = stream_log;
    setup.service.protocol = Protocol::Udp;
    setup.route.protocols = vec![Protocol::Udp];
    setup.route.paths = Vec::new();
    setup.route.sources = vec![serde_json::from_value(json!({"ip": "127.0.0.1"})).unwrap()];
    let gateway = setup.start();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(gateway.address).await.unwrap();
    (gateway, upstream, client)
}

/// Receives the next datagram, and the address that it came from.
async fn next(socket: &UdpSocket) -> (String, SocketAddr) {
    let mut buffer = [0; 100];
    let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
    (String::from_utf8(buffer[..length].into()).unwrap(), from)
}

/// Sends a datagram through the gateway, and a response back. Returns the address of the session at the upstream.
async fn exchange(upstream: &UdpSocket, client: &UdpSocket) -> SocketAddr {
    client.send(b"question").await.unwrap();
    let (question, session) = next(upstream).await;
    assert_eq!(question, "question");
    upstream.send_to(b"answer", session).await.unwrap();
    assert_eq!(next(client).await.0, "answer");
    session
}

#[test]
fn after_a_hand_over_datagrams_go_to_the_new_process_and_responses_of_the_old_one_still_arrive() {
    run(async {
        let (mut gateway, upstream, client) = gateway(None).await;
        let session = exchange(&upstream, &client).await;
        let successor = gateway.datagrams.take().unwrap();
        gateway.stop.send(Stop::HandOver(None)).unwrap();
        successor.set_nonblocking(true).unwrap();
        let successor = UdpSocket::from_std(successor).unwrap();
        let (more, from) = loop {
            client.send(b"more").await.unwrap();
            tokio::select! {
                received = next(&successor) => break received,
                // The gateway has not stopped to receive yet.
                forwarded = next(&upstream) => assert_eq!(forwarded.1, session),
            }
        };
        assert_eq!((&*more, from), ("more", client.local_addr().unwrap()));
        upstream.send_to(b"late", session).await.unwrap();
        assert_eq!(next(&client).await.0, "late");
    });
}

#[test]
fn a_drain_ends_sessions_and_the_announcement_before_it_does_not() {
    run(async {
        let (log, lanes) = access_log("m '$protocol $status $bytes_received $bytes_sent'");
        let (mut gateway, upstream, client) = gateway(Some(log)).await;
        gateway.datagrams = None;
        let session = exchange(&upstream, &client).await;
        gateway.stop.send(Stop::Announce).unwrap();
        assert_eq!(exchange(&upstream, &client).await, session);
        let drained = tokio::time::timeout(LIMIT, lines(gateway, &lanes)).await;
        assert_eq!(drained.expect("the session ends"), "UDP 200 16 12\n");
        // The listener is closed: the system refuses the datagram, and the client sees it.
        client.send(b"more").await.unwrap();
        let refused = client.recv(&mut [0; 100]).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    });
}
