//! Tests of the sinks with real sockets and files.

use super::rest::Unsent;
use super::{Sinks, Tcp, Udp};
use crate::background::Background;
use crate::queue::{Queue, QueueParams, Queues, Sender, Text};
use net::dns::Resolver;
use net::tls::{CommonName, Trust};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

fn sinks() -> Sinks {
    Sinks::new(Trust::Anyone, Resolver::default()).unwrap()
}

/// A queue whose batches are sent at once.
fn queue(sender: Sender<Text>) -> Arc<Queue<Text>> {
    limited(sender, QueueParams::default())
}

fn limited(sender: Sender<Text>, params: QueueParams) -> Arc<Queue<Text>> {
    let params = QueueParams {
        max_batch_size: 1000,
        max_coalescing_delay: Duration::ZERO,
        ..params
    };
    Queues::new(Background::here()).get("test-log", "queue", params, sender)
}

fn server(listener: &TcpListener) -> Tcp {
    Tcp {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
        tls: None,
        verify: false,
        timeout: Duration::from_secs(10),
        keepalive: Duration::from_secs(60),
    }
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

async fn accept(listener: &TcpListener) -> BufReader<TcpStream> {
    BufReader::new(listener.accept().await.unwrap().0)
}

async fn line(stream: &mut (impl AsyncBufReadExt + Unpin)) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line
}

/// Waits until the counters are as wanted.
async fn until(queue: &Queue<Text>, wanted: impl Fn(crate::queue::Counts) -> bool) {
    while !wanted(queue.counts()) {
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn ends(stream: &mut (impl AsyncRead + Unpin)) {
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn lines_go_over_one_connection_and_over_another_when_the_server_has_closed_it() {
    let listener = listen().await;
    let queue = queue(sinks().tcp(server(&listener)));
    queue.push_lines(b"<1>", b"one");
    let mut first = accept(&listener).await;
    assert_eq!(line(&mut first).await, "<1>one\n");
    queue.push_lines(b"", b"two");
    queue.push_lines(b"", b"three");
    assert_eq!(line(&mut first).await, "two\n");
    assert_eq!(line(&mut first).await, "three\n");
    until(&queue, |counts| counts.sent == 3).await;
    drop(first);
    queue.push_lines(b"", b"four");
    let mut second = accept(&listener).await;
    assert_eq!(line(&mut second).await, "four\n");
    until(&queue, |counts| counts.sent == 4).await;
    assert_eq!(queue.counts().retried, 0);
}

#[tokio::test]
async fn a_server_that_sends_without_end_gets_its_lines() {
    let listener = listen().await;
    let queue = queue(sinks().tcp(server(&listener)));
    queue.push_lines(b"", b"one");
    let mut stream = accept(&listener).await;
    assert_eq!(line(&mut stream).await, "one\n");
    let mut stream = stream.into_inner().into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    let mut flood = stream.try_clone().unwrap();
    std::thread::spawn(move || while flood.write_all(&[0; 64 * 1024]).is_ok() {});
    queue.push_lines(b"", b"two");
    let sent = until(&queue, |counts| counts.sent == 2);
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, sent).await.unwrap();
    let mut text = [0; 4];
    stream.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"two\n");
}

#[tokio::test]
async fn lines_wait_for_a_dead_server_within_their_limit() {
    let listener = listen().await;
    let server = server(&listener);
    let address = listener.local_addr().unwrap();
    drop(listener);
    let params = QueueParams {
        max_entries: 10,
        max_retry_delay: Duration::from_millis(10),
        ..QueueParams::default()
    };
    let queue = limited(sinks().tcp(server), params);
    queue.push_lines(b"", b"first");
    until(&queue, |counts| counts.retried > 2).await;
    for number in 0..100 {
        queue.push_lines(b"", format!("{number}").as_bytes());
    }
    let counts = queue.counts();
    assert_eq!((counts.waiting, counts.dropped_entries), (10, 90));
    let listener = TcpListener::bind(address).await.unwrap();
    let mut stream = accept(&listener).await;
    assert_eq!(line(&mut stream).await, "first\n");
    assert_eq!(line(&mut stream).await, "90\n");
}

#[tokio::test]
async fn a_server_that_reads_nothing_fails_after_the_timeout_and_gets_whole_lines_later() {
    let listener = listen().await;
    let server = Tcp {
        timeout: Duration::from_millis(50),
        ..server(&listener)
    };
    let queue = queue(sinks().tcp(server));
    // More than the buffers of both sockets.
    let text = "x".repeat(1024 * 1024);
    for number in 0..32 {
        queue.push_lines(format!("{number}:").as_bytes(), text.as_bytes());
    }
    let stuck = accept(&listener).await;
    let mut next = accept(&listener).await;
    // The second connection begins with a whole line that the first has not got completely.
    let first = line(&mut next).await;
    let (number, rest) = first.split_once(':').unwrap();
    assert!(number.parse::<u32>().unwrap() < 32);
    assert_eq!(rest.len(), text.len() + 1);
    drop(stuck);
}

#[tokio::test]
async fn an_unused_connection_is_closed_after_the_keepalive_time() {
    let listener = listen().await;
    let server = Tcp {
        keepalive: Duration::from_millis(20),
        ..server(&listener)
    };
    let queue = queue(sinks().tcp(server));
    for text in ["one\n", "two\n"] {
        queue.push_lines(b"", text.trim().as_bytes());
        let mut stream = accept(&listener).await;
        assert_eq!(line(&mut stream).await, text);
        ends(&mut stream).await;
    }
}

fn identity() -> (String, TlsAcceptor) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (cert.pem(), Arc::new(config).into())
}

#[tokio::test]
async fn certificates_are_verified_only_if_that_is_wanted() {
    let (pem, acceptor) = identity();
    let listener = listen().await;
    let trusting = Tcp {
        tls: Some("sink.test".to_owned()),
        ..server(&listener)
    };
    let queue = queue(sinks().tcp(trusting.clone()));
    queue.push_lines(b"", b"one");
    let stream = listener.accept().await.unwrap().0;
    let stream = acceptor.accept(stream).await.unwrap();
    assert_eq!(stream.get_ref().1.server_name(), Some("sink.test"));
    assert_eq!(line(&mut BufReader::new(stream)).await, "one\n");

    // The certificate is for another name.
    let authority = Trust::Authorities {
        pems: vec![pem],
        depth: 1,
        common_name: CommonName::default(),
    };
    let sinks = Sinks::new(authority, Resolver::default()).unwrap();
    let verifying = Tcp {
        verify: true,
        ..trusting
    };
    let refusing = self::queue(sinks.tcp(verifying.clone()));
    refusing.push_lines(b"", b"two");
    let stream = listener.accept().await.unwrap().0;
    assert!(acceptor.accept(stream).await.is_err());
    drop(refusing);

    let verified = Tcp {
        tls: Some("localhost".to_owned()),
        ..verifying
    };
    let verified = self::queue(sinks.tcp(verified));
    verified.push_lines(b"", b"three");
    let stream = loop {
        // The refused queue may try again meanwhile.
        let stream = listener.accept().await.unwrap().0;
        if let Ok(stream) = acceptor.accept(stream).await {
            break stream;
        }
    };
    assert_eq!(line(&mut BufReader::new(stream)).await, "three\n");
}

#[tokio::test]
async fn link_local_addresses_are_not_connected_to() {
    let listener = listen().await;
    let forbidden = Tcp {
        host: "169.254.169.254".to_owned(),
        ..server(&listener)
    };
    let udp = Udp {
        host: "fe80::1".to_owned(),
        port: 1,
        timeout: Duration::from_secs(1),
        packet_size: 0,
    };
    let params = || QueueParams {
        max_retry_time: None,
        ..QueueParams::default()
    };
    for sender in [sinks().tcp(forbidden), sinks().udp(&udp)] {
        let queue = limited(sender, params());
        queue.push_lines(b"", b"secret");
        until(&queue, |counts| counts.given_up == 1).await;
    }
}

async fn datagrams(packet_size: usize, lines: &[&str], expected: &[&str]) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = Udp {
        host: "127.0.0.1".to_owned(),
        port: socket.local_addr().unwrap().port(),
        timeout: Duration::from_secs(10),
        packet_size,
    };
    let queue = queue(sinks().udp(&server));
    queue.push_lines(b"", lines.join("\n").as_bytes());
    let mut buffer = vec![0; 70_000];
    for text in expected {
        let length = socket.recv(&mut buffer).await.unwrap();
        assert_eq!(std::str::from_utf8(&buffer[..length]).unwrap(), *text);
    }
}

#[tokio::test]
async fn lines_share_datagrams_up_to_the_size_of_a_packet() {
    let lines = ["a:1|c", "bb:2|c", "c:3|c"];
    datagrams(0, &lines, &lines).await;
    datagrams(12, &lines, &["a:1|c\nbb:2|c", "c:3|c"]).await;
    datagrams(11, &lines, &["a:1|c", "bb:2|c", "c:3|c"]).await;
    datagrams(1000, &lines, &["a:1|c\nbb:2|c\nc:3|c"]).await;
}

#[tokio::test]
async fn a_line_that_no_datagram_can_hold_is_lost_and_counted() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = Udp {
        host: "127.0.0.1".to_owned(),
        port: socket.local_addr().unwrap().port(),
        timeout: Duration::from_secs(10),
        packet_size: 0,
    };
    let queue = queue(sinks().udp(&server));
    queue.push_lines(b"", "x".repeat(70_000).as_bytes());
    queue.push_lines(b"", b"short");
    let mut buffer = [0; 10];
    let length = socket.recv(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..length], b"short");
    until(&queue, |counts| counts.sent + counts.refused == 2).await;
    assert_eq!(queue.counts().refused, 1);
}

#[tokio::test]
async fn datagrams_that_nobody_receives_are_sent_all_the_same() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = Udp {
        host: "127.0.0.1".to_owned(),
        port: socket.local_addr().unwrap().port(),
        timeout: Duration::from_secs(10),
        packet_size: 0,
    };
    drop(socket);
    let queue = queue(sinks().udp(&server));
    for sent in 1..20 {
        queue.push_lines(b"", b"x");
        until(&queue, |counts| counts.sent == sent).await;
    }
    assert_eq!(queue.counts().retried, 0);
}

#[tokio::test]
async fn lines_are_appended_and_a_renamed_file_is_made_again_when_asked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.log");
    fs::write(&path, "before\n").unwrap();
    let sinks = sinks();
    let queue = queue(sinks.file(&path, false));
    queue.push_lines(b"", b"one");
    until(&queue, |counts| counts.sent == 1).await;
    let renamed = directory.path().join("a.log.1");
    fs::rename(&path, &renamed).unwrap();
    queue.push_lines(b"", b"two");
    until(&queue, |counts| counts.sent == 2).await;
    sinks.reopen_files();
    queue.push_lines(b"", b"three");
    until(&queue, |counts| counts.sent == 3).await;
    assert_eq!(fs::read_to_string(&renamed).unwrap(), "before\none\ntwo\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o600, 0o600);
    assert_eq!(mode & 0o133, 0);
}

#[tokio::test]
async fn with_reopen_a_removed_file_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.log");
    let queue = queue(sinks().file(&path, true));
    for (sent, text) in [(1, "one\n"), (2, "two\n")] {
        queue.push_lines(b"", text.trim().as_bytes());
        until(&queue, |counts| counts.sent == sent).await;
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::remove_file(&path).unwrap();
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("later");
    let path = folder.join("a.log");
    let queue = queue(sinks().file(&path, false));
    queue.push_lines(b"", b"one");
    until(&queue, |counts| counts.retried > 1).await;
    fs::create_dir(&folder).unwrap();
    until(&queue, |counts| counts.sent == 1).await;
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
}

#[tokio::test]
async fn a_pipe_holds_up_only_its_own_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let queue = queue(sinks().file(&path, false));
    let text = "x".repeat(100_000);
    queue.push_lines(b"", text.as_bytes());
    // Nobody reads the pipe.
    until(&queue, |counts| counts.retried > 0).await;
    let mut options = fs::OpenOptions::new();
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut pipe = options.read(true).custom_flags(flags).open(&path).unwrap();
    let mut all = Vec::new();
    let mut buffer = vec![0; 10_000];
    while all.len() < text.len() + 1 {
        match pipe.read(&mut buffer) {
            Ok(length) => all.extend_from_slice(&buffer[..length]),
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(all, format!("{text}\n").as_bytes());
}

#[tokio::test]
async fn the_systems_log_gets_a_datagram_for_each_line_also_after_it_was_restarted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let queue = queue(sinks().syslog(path.clone()));
    queue.push_lines(b"<14>", b"early");
    until(&queue, |counts| counts.retried > 0).await;
    let mut buffer = [0; 100];
    for text in ["one", "two"] {
        let log = UnixDatagram::bind(&path).unwrap();
        if text == "one" {
            let length = log.recv(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..length], b"<14>early");
        }
        queue.push_lines(b"<14>", text.as_bytes());
        let length = log.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], format!("<14>{text}").as_bytes());
        drop(log);
        fs::remove_file(&path).unwrap();
    }
}

#[tokio::test]
async fn the_systems_log_can_have_a_socket_for_streams() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let queue = queue(sinks().syslog(path.clone()));
    for text in ["one", "two"] {
        let log = UnixListener::bind(&path).unwrap();
        queue.push_lines(b"<14>", text.as_bytes());
        queue.push_lines(b"<14>", b"more");
        let mut log = BufReader::new(log.accept().await.unwrap().0);
        for expected in [text, "more"] {
            let mut message = Vec::new();
            log.read_until(0, &mut message).await.unwrap();
            assert_eq!(message, format!("<14>{expected}\0").as_bytes());
        }
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(queue.counts().lost(), 0);
}

#[tokio::test]
async fn what_was_not_sent_of_a_batch_begins_with_a_whole_line() {
    let (send, mut taken) = tokio::sync::mpsc::unbounded_channel();
    let sender = Sender::of_texts(move |batch| {
        let _ = send.send(batch);
        std::future::ready(Ok(()))
    });
    let queue = queue(sender);
    queue.push_lines(b"", b"one");
    queue.push_lines(b"", b"two\nthree");
    let batch = taken.recv().await.unwrap();
    let mut unsent = Unsent::default();
    let mut rest = unsent.of(&batch);
    assert_eq!(rest.line(), Some(&b"one\n"[..]));
    rest.advance(6);
    rest.rewind();
    assert_eq!(rest.line(), Some(&b"two\n"[..]));
    unsent.keep(rest);
    let mut rest = unsent.of(&batch);
    assert_eq!(rest.bytes(), Some(&b"two\nthree\n"[..]));
    rest.advance(10);
    assert_eq!((rest.bytes(), rest.line()), (None, None));
    unsent.keep(rest);
    // Another batch begins at its start.
    let other = Arc::new(Vec::new());
    assert_eq!(unsent.of(&other).bytes(), None);
}
