//! Tests with a directory that behaves well.

use super::*;

#[tokio::test]
async fn a_verdict_is_the_result_code() {
    let directory = Played::new().await;
    let server = directory.server();
    let mut stream = None;
    for (id, code) in [(1, 0), (2, 49), (3, 10), (4, 51)] {
        let play = async {
            let mut stream = match stream.take() {
                Some(stream) => stream,
                None => directory.accept().await,
            };
            let request = answer(&mut stream, &response(id, BIND, code, "text")).await;
            assert!(request.ends_with(b"\x80\x02pw"), "{request:?}");
            stream
        };
        let (verdict, played) = tokio::join!(bind(&server, "pw"), play);
        stream = Some(played);
        let expected = match code {
            0 => Verdict::Accepted,
            code => Verdict::Refused(Refusal {
                code: code.into(),
                diagnostic: "text".into(),
            }),
        };
        assert_eq!(verdict.unwrap(), expected);
    }
}

#[test]
fn only_refusals_that_can_pass_are_passing() {
    for (code, passes) in [
        (49, false),
        (53, false),
        (10, false),
        (51, true),
        (80, true),
    ] {
        let diagnostic = "".into();
        assert_eq!(Refusal { code, diagnostic }.is_passing(), passes, "{code}");
    }
}

#[tokio::test]
async fn binds_at_the_same_time_have_connections_of_their_own() {
    let directory = Played::new().await;
    let server = directory.server();
    let play = async {
        let (mut first, mut second) = (directory.accept().await, directory.accept().await);
        let requests = [request(&mut first).await, request(&mut second).await];
        // Each gets the verdict about its own password.
        for (stream, request) in [(&mut second, &requests[1]), (&mut first, &requests[0])] {
            let code = if request.ends_with(b"good") { 0 } else { 49 };
            let bytes = response(1, BIND, code, "");
            stream.write_all(&bytes).await.unwrap();
        }
        (first, second)
    };
    let (good, bad, _streams) = tokio::join!(bind(&server, "good"), bind(&server, "bad"), play);
    assert_eq!(good.unwrap(), Verdict::Accepted);
    assert!(matches!(bad.unwrap(), Verdict::Refused(_)));
    assert_eq!(server.pool.idle_connections(), 2);
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_order_after_its_time() {
    let directory = Played::new().await;
    let mut settings = settings(directory.address);
    settings.keepalive = Duration::from_millis(20);
    let server = client(Trust::Anyone).server(settings);
    let play = async {
        let mut stream = directory.accept().await;
        answer(&mut stream, &response(1, BIND, 0, "")).await;
        let unbind = request(&mut stream).await;
        assert_eq!(unbind, [0x30, 5, 2, 1, 2, 0x42, 0]);
        closed(&mut stream).await;
    };
    let (verdict, ()) = tokio::join!(bind(&server, "pw"), play);
    assert_eq!(verdict.unwrap(), Verdict::Accepted);
    assert_eq!(server.pool.idle_connections(), 0);
}

#[tokio::test]
async fn dropping_the_server_closes_its_idle_connections() {
    let directory = Played::new().await;
    let server = directory.server();
    let play = async {
        let mut stream = directory.accept().await;
        answer(&mut stream, &response(1, BIND, 0, "")).await;
        stream
    };
    let (verdict, mut stream) = tokio::join!(bind(&server, "pw"), play);
    verdict.unwrap();
    drop(server);
    closed(&mut stream).await;
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_replaced() {
    let directory = Played::new().await;
    let server = directory.server();
    let once = async |code| {
        let mut stream = directory.accept().await;
        answer(&mut stream, &response(1, BIND, code, "")).await;
    };
    let (first, ()) = tokio::join!(bind(&server, "pw"), once(0));
    first.unwrap();
    let (second, ()) = tokio::join!(bind(&server, "pw"), once(49));
    assert!(matches!(second.unwrap(), Verdict::Refused(_)));
}

#[tokio::test]
async fn a_notice_of_disconnection_leads_to_another_connection() {
    let directory = Played::new().await;
    let server = directory.server();
    let play = async {
        let mut stream = directory.accept().await;
        answer(&mut stream, &response(1, BIND, 0, "")).await;
        answer(&mut stream, &response(0, EXTENDED, 52, "restart")).await;
        let mut stream = directory.accept().await;
        answer(&mut stream, &response(1, BIND, 0, "")).await;
    };
    let binds = async { (bind(&server, "a").await, bind(&server, "b").await) };
    let ((first, second), ()) = tokio::join!(binds, play);
    assert_eq!(
        (first.unwrap(), second.unwrap()),
        (Verdict::Accepted, Verdict::Accepted)
    );
}

#[tokio::test]
async fn dropping_the_future_closes_the_connection() {
    let directory = Played::new().await;
    let server = directory.server();
    let binding = tokio::spawn({
        let server = server.clone();
        async move { bind(&server, "pw").await }
    });
    let mut stream = directory.accept().await;
    request(&mut stream).await;
    binding.abort();
    closed(&mut stream).await;
    assert_eq!(server.pool.idle_connections(), 0);
}
