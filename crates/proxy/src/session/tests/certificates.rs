//! Plugins in TLS handshakes: a handshake waits for the certificate phase, and ends with it if a plugin says so.

use super::streams::{Does, Seen, WAIT, watch};
use super::*;
use net::tls::{ClientTls, Offer, Trust};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A gateway for HTTP over TLS, with the test plugin.
async fn gateway(limit: Duration) -> Gateway {
    let mut setup = Setup::new(upstream(vec![answers(OK)]).await);
    setup.listen = "127.0.0.1:0 ssl http2";
    setup.settings.header_timeout = limit;
    setup.plugins = vec![watch()];
    setup.start()
}

const LIMIT: Duration = Duration::from_secs(7);

/// Shakes hands, and returns the response to a request.
async fn exchange(gateway: &Gateway) -> std::io::Result<String> {
    let stream = TcpStream::connect(gateway.address).await?;
    let tls = ClientTls::new(Trust::Anyone, None).unwrap();
    let mut stream = tls
        .connect_offering(stream, "a.test", Offer::Nothing)
        .await?;
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut got = String::new();
    stream.read_to_string(&mut got).await?;
    Ok(got)
}

#[test]
fn a_handshake_waits_for_the_certificate_phase_and_requests_know_their_tls() {
    run_paused(async {
        let mut seen = Seen::new(Does::Wait, Does::Continue);
        let gateway = gateway(LIMIT).await;
        let started = Instant::now();
        let answer = exchange(&gateway).await.unwrap();
        assert_eq!(status(&answer), "200");
        assert!(started.elapsed() >= WAIT);
        assert_eq!(seen.next().await, "certificate a.test");
        let tls = "request TLSv1.3 TLS_AES_256_GCM_SHA384 NONE";
        assert_eq!(seen.next().await, tls);
        seen.end(gateway).await;
    });
}

#[test]
fn the_certificate_phase_runs_once_per_connection() {
    run(async {
        let mut seen = Seen::new(Does::Continue, Does::Continue);
        let gateway = gateway(LIMIT).await;
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let tls = ClientTls::new(Trust::Anyone, None).unwrap();
        let mut stream = tls.connect(stream, "a.test").await.unwrap();
        assert_eq!(seen.next().await, "certificate a.test");
        for _ in 0..2 {
            let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let mut got = Vec::new();
            while !got.ends_with(b"ok") {
                assert!(stream.read_buf(&mut got).await.unwrap() > 0);
            }
            assert!(seen.next().await.starts_with("request "));
        }
        drop(stream);
        seen.end(gateway).await;
    });
}

#[test]
fn a_plugin_that_closes_or_fails_ends_the_handshake_with_an_alert() {
    for does in [Does::Close(403), Does::CloseLater(200), Does::Fail] {
        run_paused(async {
            let mut seen = Seen::new(does, Does::Continue);
            let gateway = gateway(LIMIT).await;
            let error = exchange(&gateway).await.unwrap_err().to_string();
            assert!(error.contains("InternalError"), "{does:?}: {error}");
            assert_eq!(seen.next().await, "certificate a.test");
            seen.end(gateway).await;
        });
    }
}

#[test]
fn a_handshake_that_a_plugin_holds_ends_with_its_time_limit() {
    run_paused(async {
        let mut seen = Seen::new(Does::WaitForever, Does::Continue);
        let gateway = gateway(LIMIT).await;
        let started = Instant::now();
        let ended = timeout(LIMIT * 2, exchange(&gateway)).await;
        ended.expect("the gateway closes").unwrap_err();
        assert!(started.elapsed() >= LIMIT);
        assert_eq!(seen.next().await, "certificate a.test");
        seen.end(gateway).await;
    });
}
