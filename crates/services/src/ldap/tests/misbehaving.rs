//! Tests with directories that hang, refuse, or say what they should not. Nothing that they do is a verdict, and no
//! connection to them is used again.

use super::*;

/// Returns the error of a bind whose request gets these bytes. The connection must be closed after it.
async fn error_after(bytes: &[u8]) -> LdapErrorKind {
    let directory = Played::new().await;
    let server = directory.server();
    let play = async {
        let mut stream = directory.accept().await;
        answer(&mut stream, bytes).await;
        stream
    };
    let (verdict, mut stream) = tokio::join!(bind(&server, "pw"), play);
    let error = verdict.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("pw"));
    assert_eq!(server.pool.idle_connections(), 0);
    closed(&mut stream).await;
    error.kind
}

#[tokio::test]
async fn garbage_is_an_error() {
    let nested = [0x30, 0x80].repeat(20_000);
    for bytes in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        &[0; 100],
        &[0x30, 3, 2, 1, 1],
        &[0x30, 0],
        &nested,
    ] {
        let kind = error_after(bytes).await;
        assert!(matches!(kind, LdapErrorKind::Malformed(_)), "{kind:?}");
    }
}

#[tokio::test]
async fn a_huge_message_is_refused_at_its_beginning() {
    let mut bytes = vec![0x30, 0x84, 0x7f, 0xff, 0xff, 0xff];
    bytes.resize(1 << 20, 0);
    let kind = error_after(&bytes).await;
    assert!(matches!(kind, LdapErrorKind::TooLong(_)), "{kind:?}");
}

#[tokio::test]
async fn answers_that_were_not_asked_for_are_errors() {
    let twice = response(1, BIND, 0, "").repeat(2);
    for bytes in [
        response(2, BIND, 0, ""),
        response(1, EXTENDED, 0, ""),
        twice,
    ] {
        let kind = error_after(&bytes).await;
        assert!(matches!(kind, LdapErrorKind::Unexpected), "{kind:?}");
    }
}

#[tokio::test]
async fn a_directory_that_hangs_costs_the_timeout() {
    let directory = Played::new().await;
    for security in [Security::Plain, Security::Tls, Security::StartTls] {
        let mut settings = settings(directory.address);
        settings.security = security;
        settings.timeout = Duration::from_millis(30);
        let server = client(Trust::Anyone).server(settings);
        let play = async {
            let mut stream = directory.accept().await;
            // One byte at a time does not help.
            let _ = stream.write_all(&[0x30]).await;
            stream
        };
        let (verdict, mut stream) = tokio::join!(bind(&server, "pw"), play);
        let error = verdict.unwrap_err().to_string();
        let within = "within 30ms";
        // In TLS the byte is no handshake.
        assert!(
            error.ends_with(within) || security == Security::Tls,
            "{error}"
        );
        closed(&mut stream).await;
    }
}

#[tokio::test]
async fn binds_beyond_the_maximum_wait_for_room() {
    let directory = Played::new().await;
    let server = directory.server();
    let binds = (0..=MAX_CONNECTIONS).map(|_| {
        let server = server.clone();
        tokio::spawn(async move { bind(&server, "pw").await })
    });
    let binds: Vec<_> = binds.collect();
    let mut streams = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        streams.push(directory.accept().await);
    }
    let more = tokio::time::timeout(Duration::from_millis(50), directory.accept());
    assert!(more.await.is_err());
    // The connection that becomes free is the one that the last bind gets.
    for id in [1, 2] {
        answer(&mut streams[0], &response(id, BIND, 0, "")).await;
    }
    drop(streams);
    let mut accepted = 0;
    for bind in binds {
        accepted += usize::from(bind.await.unwrap().is_ok());
    }
    assert_eq!(accepted, 2);
}

#[tokio::test]
async fn a_directory_that_is_away_is_an_error() {
    let directory = Played::new().await;
    let server = directory.server();
    drop(directory);
    let error = bind(&server, "pw").await.unwrap_err();
    assert!(matches!(
        error.kind,
        LdapErrorKind::Connect(ConnectError::Tcp(_))
    ));
}

#[tokio::test]
async fn an_empty_password_is_never_sent() {
    let directory = Played::new().await;
    let error = bind(&directory.server(), "").await.unwrap_err();
    assert!(matches!(error.kind, LdapErrorKind::EmptyPassword));
    let connection = tokio::time::timeout(Duration::from_millis(20), directory.accept());
    assert!(connection.await.is_err());
}

#[tokio::test]
async fn without_start_tls_no_password_is_sent() {
    let directory = Played::new().await;
    let mut settings = settings(directory.address);
    settings.security = Security::StartTls;
    let server = client(Trust::Anyone).server(settings);
    // A refusal, and an answer with bytes after it, which would count as protected.
    let injected = [response(1, EXTENDED, 0, ""), response(1, BIND, 0, "")].concat();
    for bytes in [response(1, EXTENDED, 2, "no"), injected] {
        let play = async {
            let mut stream = directory.accept().await;
            answer(&mut stream, &bytes).await;
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            rest
        };
        let (verdict, rest) = tokio::join!(bind(&server, "secret"), play);
        let kind = verdict.unwrap_err().kind;
        let expected = matches!(
            kind,
            LdapErrorKind::NoStartTls(2) | LdapErrorKind::Unexpected
        );
        assert!(expected, "{kind:?}");
        assert_eq!(rest, b"");
    }
}

#[tokio::test]
async fn a_bind_after_the_shutdown_is_an_error() {
    let directory = Played::new().await;
    let server = directory.server();
    server
        .background
        .shut_down(tokio::time::Instant::now())
        .await;
    let error = bind(&server, "pw").await.unwrap_err();
    assert!(matches!(error.kind, LdapErrorKind::Stopped));
}
