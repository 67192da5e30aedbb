//! Requests to gRPC services, as HTTP/2 streams from end to end.

use super::*;
use bytes::Bytes;
use http::{Request, Response};

/// A script that responds with the first bytes of a request as soon as they arrive, and then echoes the rest.
fn echo_at_once() -> Script {
    script(|peer: Peer| async move {
        let mut connection = h2::server::handshake(peer.stream).await.unwrap();
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            tokio::task::spawn_local(async move {
                let mut received = request.into_body();
                let first = received.data().await.unwrap().unwrap();
                let mut sent = answer.send_response(Response::new(()), false).unwrap();
                sent.send_data(first, false).unwrap();
                while let Some(Ok(data)) = received.data().await {
                    sent.send_data(data, false).unwrap();
                }
                sent.send_data(Bytes::new(), true).unwrap();
            });
        }
    })
}

/// Requests to a gRPC service are not buffered, whatever their content type: clients of gRPC-Web and Connect may also
/// wait for a message before they send the next one.
#[test]
fn a_request_for_a_grpc_service_streams_though_its_route_buffers() {
    run(async {
        let mut setup = Setup::new(upstream(vec![echo_at_once()]).await);
        setup.listen = "127.0.0.1:0 http2";
        setup.service.protocol = Protocol::Grpc;
        assert!(setup.route.request_buffering);
        let gateway = setup.start();
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::task::spawn_local(connection);
        let request =
            Request::post("http://a/call").header("content-type", "application/connect+proto");
        let (answer, mut sending) = client
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        sending
            .send_data(Bytes::from_static(b"one"), false)
            .unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut receiving = answer.into_body();
        assert_eq!(receiving.data().await.unwrap().unwrap(), "one");
        sending.send_data(Bytes::from_static(b"two"), true).unwrap();
        assert_eq!(receiving.data().await.unwrap().unwrap(), "two");
        assert!(
            receiving
                .data()
                .await
                .is_none_or(|data| data.unwrap().is_empty())
        );
    });
}
