//! Plugins in TCP, TLS and UDP sessions: what `preread` decides, and the log of each session, which is written once.

use super::logging::access_log;
use super::*;
use net::tls::{ClientTls, Trust};
use plugin::{
    CertificateCx, EndedStreamCx, LogCx, PluginError, StreamCx, StreamEnd, StreamFlow,
    StreamProtocol, StreamStep, TryEnd,
};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

/// Time that a handler waits.
pub(super) const WAIT: Duration = Duration::from_millis(50);

/// What the test plugin does in `preread` and `certificate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Continue,
    Wait,
    WaitForever,
    /// Closes with this status and the message `bye`.
    Close(u16),
    CloseLater(u16),
    Fail,
}

thread_local! {
    static ORDERS: RefCell<Option<Orders>> = const { RefCell::new(None) };
}

/// What the test plugins on this thread do, and where they write down what they see.
#[derive(Clone)]
struct Orders {
    certificate: Does,
    preread: Does,
    seen: UnboundedSender<String>,
}

fn orders() -> Orders {
    ORDERS.with_borrow(|orders| orders.clone().expect("the test has given orders"))
}

/// What the test plugins have seen.
pub(super) struct Seen(UnboundedReceiver<String>);

impl Seen {
    pub(super) fn new(certificate: Does, preread: Does) -> Self {
        let (seen, receiver) = unbounded_channel();
        let orders = Orders {
            certificate,
            preread,
            seen,
        };
        ORDERS.set(Some(orders));
        Self(receiver)
    }

    pub(super) async fn next(&mut self) -> String {
        self.0.recv().await.expect("the sender lives")
    }

    /// Ends the gateway, and checks that the plugins see nothing more.
    pub(super) async fn end(mut self, mut gateway: Gateway) {
        gateway.datagrams = None;
        // It may have ended already.
        let _ = gateway.stop.send(Stop::Drain(Duration::ZERO));
        gateway.done.await.unwrap().unwrap();
        tokio::task::yield_now().await;
        assert_eq!(self.0.try_recv().ok(), None);
    }
}

/// Writes down what it sees, and does what the test says.
struct Watch;

pub(super) fn watch() -> Arc<PluginDef> {
    let phases = Phases::CERTIFICATE | Phases::PREREAD | Phases::LOG;
    define::<Watch>("watch", 1, phases)
}

fn note(text: String) {
    // The test may have ended.
    let _ = orders().seen.send(text);
}

fn step(does: Does) -> Result<StreamStep<'static>, PluginError> {
    let end = |status| StreamEnd {
        status,
        message: "bye".to_owned(),
    };
    match does {
        Does::Continue => Ok(StreamStep::Continue),
        Does::Wait => Ok(StreamStep::wait(async {
            sleep(WAIT).await;
            Ok(StreamFlow::Continue)
        })),
        Does::WaitForever => Ok(StreamStep::wait(std::future::pending())),
        Does::Close(status) => Ok(StreamStep::Close(end(status))),
        Does::CloseLater(status) => Ok(StreamStep::wait(async move {
            sleep(WAIT).await;
            Ok(StreamFlow::Close(end(status)))
        })),
        Does::Fail => Err(PluginError::new("the test wants it")),
    }
}

impl plugin::Plugin for Watch {
    type Own = ();

    without_config!();

    fn certificate<'a>(&'a self, cx: CertificateCx<'a>) -> Result<StreamStep<'a>, PluginError> {
        assert!(cx.configured.global_name().is_some());
        note(format!("certificate {}", cx.sni.unwrap_or_default()));
        step(orders().certificate)
    }

    fn preread<'a>(&'a self, cx: StreamCx<'a>) -> Result<StreamStep<'a>, PluginError> {
        let session = cx.session;
        assert!(session.route.is_some());
        assert!(cx.configured.name.is_some());
        assert_eq!(
            session.tls.is_some(),
            session.protocol == StreamProtocol::Tls
        );
        note(format!("preread {:?}", session.protocol));
        step(orders().preread)
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        let tls = cx.request.tls.expect("a connection with TLS");
        note(format!(
            "request {} {} {}",
            tls.version, tls.cipher, tls.client_verify
        ));
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        let (session, entry) = (cx.session, cx.entry);
        let tls = session.tls.map_or("", |tls| tls.version);
        let tries: Vec<TryEnd> = entry.tries.iter().map(|one| one.end).collect();
        let bytes = [
            entry.received,
            entry.sent,
            entry.upstream_received,
            entry.upstream_sent,
        ];
        let routed = session.route.is_some();
        note(format!(
            "log {:?} {} {tries:?} {bytes:?} {routed} {tls}",
            session.protocol, entry.status
        ));
    }
}

/// A gateway for streams of this protocol, with the test plugin.
fn gateway(protocol: Protocol, upstream: SocketAddr) -> Gateway {
    setup(protocol, upstream).start()
}

fn setup(protocol: Protocol, upstream: SocketAddr) -> Setup {
    let mut setup = Setup::new(upstream);
    setup.listen = match protocol {
        Protocol::Tcp => "127.0.0.1:0",
        Protocol::Udp => "127.0.0.1:0 udp",
        _ => "127.0.0.1:0 ssl",
    };
    setup.service.protocol = match protocol {
        Protocol::Udp => Protocol::Udp,
        _ => Protocol::Tcp,
    };
    setup.route.protocols = vec![protocol];
    setup.route.paths = Vec::new();
    setup.route.sources = vec![serde_json::from_value(json!({"ip": "127.0.0.1"})).unwrap()];
    setup.plugins = vec![watch()];
    setup
}

/// An upstream that sends everything back.
async fn echo() -> SocketAddr {
    upstream(vec![script(|mut peer| async move {
        let (mut from, mut to) = peer.stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })])
    .await
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// Connects as a client of a TCP, TLS or passthrough listener.
async fn connect(gateway: &Gateway, protocol: Protocol) -> std::io::Result<Box<dyn Duplex>> {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    match protocol {
        Protocol::Tls => {
            let tls = ClientTls::new(Trust::Anyone, None).unwrap();
            Ok(Box::new(tls.connect(stream, "a.test").await?))
        }
        _ => Ok(Box::new(stream)),
    }
}

/// Sends `hi` and returns what comes back, up to the end of the connection.
async fn exchange(gateway: &Gateway, protocol: Protocol) -> String {
    let mut client = connect(gateway, protocol).await.unwrap();
    client.write_all(b"hi").await.unwrap();
    // A TLS session that was closed by the gateway may already be broken.
    let _ = client.shutdown().await;
    let mut got = String::new();
    let _ = client.read_to_string(&mut got).await;
    got
}

/// The record of a session, up to its count of bytes.
fn logged(protocol: &str, status: u16, tries: &str, bytes: [u64; 4]) -> String {
    let tls = match protocol {
        "Tls" => "TLSv1.3",
        _ => "",
    };
    format!("log {protocol} {status} {tries} {bytes:?} true {tls}")
}

const KINDS: [(Protocol, &str); 2] = [(Protocol::Tcp, "Tcp"), (Protocol::Tls, "Tls")];

#[test]
fn a_session_waits_for_preread_and_is_logged_after_its_end() {
    for (protocol, name) in KINDS {
        run_paused(async {
            let mut seen = Seen::new(Does::Continue, Does::Wait);
            let gateway = gateway(protocol, echo().await);
            let started = Instant::now();
            assert_eq!(exchange(&gateway, protocol).await, "hi");
            assert!(started.elapsed() >= WAIT);
            if protocol == Protocol::Tls {
                assert_eq!(seen.next().await, "certificate a.test");
            }
            assert_eq!(seen.next().await, format!("preread {name}"));
            let record = logged(name, 200, "[Answered(200)]", [2, 2, 2, 2]);
            assert_eq!(seen.next().await, record);
            seen.end(gateway).await;
        });
    }
}

#[test]
fn passthrough_sessions_have_preread_and_log_and_no_certificate_phase() {
    run(async {
        let mut seen = Seen::new(Does::Fail, Does::Continue);
        let gateway = gateway(Protocol::TlsPassthrough, echo().await);
        assert_eq!(exchange(&gateway, Protocol::TlsPassthrough).await, "hi");
        assert_eq!(seen.next().await, "preread TlsPassthrough");
        let record = logged("TlsPassthrough", 200, "[Answered(200)]", [2, 2, 2, 2]);
        assert_eq!(seen.next().await, record);
        seen.end(gateway).await;
    });
}

#[test]
fn preread_closes_a_session_with_a_message_if_the_status_is_no_error() {
    for (protocol, name) in KINDS {
        for (does, status, message) in [
            (Does::Close(200), 200, "bye"),
            (Does::CloseLater(200), 200, "bye"),
            (Does::Close(403), 403, ""),
            (Does::Fail, 500, ""),
        ] {
            run_paused(async {
                let mut seen = Seen::new(Does::Continue, does);
                // Nothing listens at the upstream, so a try would be logged.
                let gateway = gateway(protocol, ([127, 0, 0, 1], 1).into());
                assert_eq!(exchange(&gateway, protocol).await, message, "{does:?}");
                if protocol == Protocol::Tls {
                    assert_eq!(seen.next().await, "certificate a.test");
                }
                assert_eq!(seen.next().await, format!("preread {name}"));
                let bytes = [0, message.len() as u64, 0, 0];
                assert_eq!(seen.next().await, logged(name, status, "[]", bytes));
                seen.end(gateway).await;
            });
        }
    }
}

#[test]
fn the_access_log_names_the_plugin_that_ends_a_session_and_the_reason() {
    for (certificate, preread, reason) in [
        (Does::Continue, Does::Close(403), "plugin"),
        (Does::Continue, Does::Fail, "plugin_failed"),
        (Does::CloseLater(200), Does::Continue, "plugin"),
        (Does::Fail, Does::Continue, "plugin_failed"),
    ] {
        run_paused(async {
            let mut seen = Seen::new(certificate, preread);
            let (log, lanes) = access_log("m '$kong_plugin $kong_reason'");
            let mut setup = setup(Protocol::Tls, echo().await);
            setup.settings.stream_log = Some(log);
            let gateway = setup.start();
            if let Ok(mut client) = connect(&gateway, Protocol::Tls).await {
                let _ = client.read_to_end(&mut Vec::new()).await;
            }
            while !seen.next().await.starts_with("log") {}
            seen.end(gateway).await;
            let lines = String::from_utf8(lanes[0].take(Vec::new())).unwrap();
            assert_eq!(lines, format!("watch {reason}\n"));
        });
    }
}

#[test]
fn a_session_whose_upstream_refuses_is_logged_with_its_tries() {
    run(async {
        let mut seen = Seen::new(Does::Continue, Does::Continue);
        let mut setup = setup(Protocol::Tcp, ([127, 0, 0, 1], 1).into());
        setup.service.retries = 1;
        let gateway = setup.start();
        assert_eq!(exchange(&gateway, Protocol::Tcp).await, "");
        assert_eq!(seen.next().await, "preread Tcp");
        let record = logged("Tcp", 502, "[Failed(502), Failed(502)]", [0; 4]);
        assert_eq!(seen.next().await, record);
        seen.end(gateway).await;
    });
}

#[test]
fn preread_runs_before_a_missing_service_is_noticed() {
    run(async {
        let mut seen = Seen::new(Does::Continue, Does::Continue);
        let mut setup = setup(Protocol::Tcp, ([127, 0, 0, 1], 1).into());
        setup.route.service = None;
        let gateway = setup.start();
        assert_eq!(exchange(&gateway, Protocol::Tcp).await, "");
        assert_eq!(seen.next().await, "preread Tcp");
        assert_eq!(seen.next().await, logged("Tcp", 503, "[]", [0; 4]));
        seen.end(gateway).await;
    });
}

#[test]
fn a_session_without_a_route_is_logged_by_global_plugins_only() {
    for on_route in [false, true] {
        run(async {
            let mut seen = Seen::new(Does::Continue, Does::Continue);
            let mut setup = setup(Protocol::Tcp, ([127, 0, 0, 1], 1).into());
            setup.route.sources = vec![serde_json::from_value(json!({"ip": "10.0.0.1"})).unwrap()];
            setup.plugins_on_route = on_route;
            let gateway = setup.start();
            assert_eq!(exchange(&gateway, Protocol::Tcp).await, "");
            if !on_route {
                assert_eq!(seen.next().await, "log Tcp 500 [] [0, 0, 0, 0] false ");
            }
            seen.end(gateway).await;
        });
    }
}

#[test]
fn a_client_that_leaves_during_preread_is_logged_once() {
    for (protocol, name) in KINDS {
        run_paused(async {
            let mut seen = Seen::new(Does::Continue, Does::Wait);
            let gateway = gateway(protocol, echo().await);
            let client = connect(&gateway, protocol).await.unwrap();
            if protocol == Protocol::Tls {
                assert_eq!(seen.next().await, "certificate a.test");
            }
            assert_eq!(seen.next().await, format!("preread {name}"));
            drop(client);
            let record = logged(name, 200, "[Answered(200)]", [0; 4]);
            assert_eq!(seen.next().await, record);
            seen.end(gateway).await;
        });
    }
}

#[test]
fn a_client_that_leaves_during_the_handshake_is_logged_once() {
    run_paused(async {
        let mut seen = Seen::new(Does::Wait, Does::Continue);
        let gateway = keep(gateway(Protocol::Tls, echo().await));
        let client = tokio::task::spawn_local(connect(gateway, Protocol::Tls));
        assert_eq!(seen.next().await, "certificate a.test");
        client.abort();
        assert_eq!(seen.next().await, "log Tls 400 [] [0, 0, 0, 0] false ");
        assert_eq!(seen.0.try_recv().ok(), None);
    });
}

#[test]
fn a_plugin_that_ends_the_handshake_of_a_session_gives_its_log_the_status() {
    for (does, status) in [
        (Does::Close(403), 403),
        (Does::CloseLater(200), 200),
        (Does::Fail, 500),
    ] {
        run_paused(async {
            let mut seen = Seen::new(does, Does::Continue);
            let gateway = gateway(Protocol::Tls, echo().await);
            let connected = connect(&gateway, Protocol::Tls).await;
            let error = connected.err().expect("the handshake fails").to_string();
            assert!(error.contains("InternalError"), "{does:?}: {error}");
            assert_eq!(seen.next().await, "certificate a.test");
            let record = format!("log Tls {status} [] [0, 0, 0, 0] false ");
            assert_eq!(seen.next().await, record);
            seen.end(gateway).await;
        });
    }
}

#[test]
fn a_session_whose_handshake_is_held_too_long_ends_with_the_time_limit() {
    run_paused(async {
        let mut seen = Seen::new(Does::WaitForever, Does::Continue);
        let mut setup = setup(Protocol::Tls, echo().await);
        setup.settings.header_timeout = Duration::from_secs(7);
        let gateway = setup.start();
        let started = Instant::now();
        assert!(connect(&gateway, Protocol::Tls).await.is_err());
        assert!(started.elapsed() >= Duration::from_secs(7));
        assert_eq!(seen.next().await, "certificate a.test");
        assert_eq!(seen.next().await, "log Tls 400 [] [0, 0, 0, 0] false ");
        seen.end(gateway).await;
    });
}

#[test]
fn an_aborted_task_is_logged_once() {
    for (protocol, name) in KINDS {
        run(async {
            let mut seen = Seen::new(Does::Continue, Does::WaitForever);
            let (log, lanes) =
                access_log("m '$protocol $status $bytes_received $bytes_sent $kong_reason'");
            let mut setup = setup(protocol, echo().await);
            setup.settings.stream_log = Some(log);
            let gateway = setup.start();
            let _client = connect(&gateway, protocol).await.unwrap();
            if protocol == Protocol::Tls {
                assert_eq!(seen.next().await, "certificate a.test");
            }
            assert_eq!(seen.next().await, format!("preread {name}"));
            gateway.stop.send(Stop::Drain(Duration::ZERO)).unwrap();
            assert_eq!(seen.next().await, logged(name, 500, "[]", [0; 4]));
            seen.end(gateway).await;
            let lines = String::from_utf8(lanes[0].take(Vec::new())).unwrap();
            assert_eq!(lines, "TCP 500 0 0 draining\n");
        });
    }
}

#[test]
fn a_udp_session_whose_preread_takes_too_long_ends_with_the_time_limit() {
    run_paused(async {
        let mut seen = Seen::new(Does::Continue, Does::WaitForever);
        let mut setup = setup(Protocol::Udp, echo().await);
        setup.settings.header_timeout = Duration::from_secs(7);
        let gateway = setup.start();
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(gateway.address).await.unwrap();
        let started = Instant::now();
        client.send(b"hi").await.unwrap();
        assert_eq!(seen.next().await, "preread Udp");
        assert_eq!(seen.next().await, logged("Udp", 500, "[]", [2, 0, 0, 0]));
        assert!(started.elapsed() >= Duration::from_secs(7));
        seen.end(gateway).await;
    });
}

/// Returns a client of a UDP gateway, and an upstream.
async fn datagrams() -> (Gateway, UdpSocket, UdpSocket) {
    let upstream = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut setup = setup(Protocol::Udp, upstream.local_addr().unwrap());
    setup.service.read_timeout = 1000;
    let gateway = setup.start();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(gateway.address).await.unwrap();
    (gateway, upstream, client)
}

async fn received(socket: &UdpSocket) -> (String, SocketAddr) {
    let mut buffer = [0; 100];
    let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
    (String::from_utf8(buffer[..length].into()).unwrap(), from)
}

#[test]
fn datagrams_wait_for_preread_and_their_session_is_logged_after_its_end() {
    run_paused(async {
        let mut seen = Seen::new(Does::Continue, Does::Wait);
        let (gateway, upstream, client) = datagrams().await;
        let started = Instant::now();
        client.send(b"one").await.unwrap();
        client.send(b"two").await.unwrap();
        let (one, session) = received(&upstream).await;
        assert!(started.elapsed() >= WAIT);
        assert_eq!((&*one, &*received(&upstream).await.0), ("one", "two"));
        upstream.send_to(b"back", session).await.unwrap();
        assert_eq!(received(&client).await.0, "back");
        assert_eq!(seen.next().await, "preread Udp");
        let record = logged("Udp", 200, "[Answered(200)]", [6, 4, 4, 6]);
        assert_eq!(seen.next().await, record);
        seen.end(gateway).await;
    });
}

#[test]
fn preread_closes_a_udp_session_with_a_message_if_the_status_is_no_error() {
    for (does, status, message) in [
        (Does::Close(200), 200, "bye"),
        (Does::CloseLater(403), 403, ""),
        (Does::Fail, 500, ""),
    ] {
        run_paused(async {
            let mut seen = Seen::new(Does::Continue, does);
            let (gateway, upstream, client) = datagrams().await;
            client.send(b"hi").await.unwrap();
            assert_eq!(seen.next().await, "preread Udp");
            let bytes = [2, message.len() as u64, 0, 0];
            assert_eq!(seen.next().await, logged("Udp", status, "[]", bytes));
            if !message.is_empty() {
                assert_eq!(received(&client).await.0, message);
            }
            let nothing = timeout(Duration::from_secs(1), received(&upstream)).await;
            assert!(nothing.is_err(), "{does:?}");
            seen.end(gateway).await;
        });
    }
}

#[test]
fn an_aborted_udp_session_is_logged_once() {
    run(async {
        let mut seen = Seen::new(Does::Continue, Does::WaitForever);
        let (mut gateway, _upstream, client) = datagrams().await;
        client.send(b"hi").await.unwrap();
        assert_eq!(seen.next().await, "preread Udp");
        gateway.datagrams = None;
        gateway.stop.send(Stop::Drain(Duration::ZERO)).unwrap();
        assert_eq!(seen.next().await, logged("Udp", 500, "[]", [2, 0, 0, 0]));
        seen.end(gateway).await;
    });
}
