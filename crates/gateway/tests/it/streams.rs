//! Streams (TCP, TLS and UDP) with the real binary, for every kind of stream route. The upstreams run in the test
//! process.

use crate::launch;
use crate::tls::trusting_anyone;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use testkit::{Client, Gateway, Launch, Scripted};

/// Read timeout of all clients in these tests.
const LIMIT: Duration = Duration::from_secs(30);

/// An upstream that sends its name and then echoes everything until the gateway closes its sending side.
fn named_echo(name: &'static str) -> Scripted {
    Scripted::start(move |mut stream| {
        let _ = stream.write_all(name.as_bytes());
        let _ = io::copy(&mut stream.try_clone().expect("a socket"), &mut stream);
        let _ = stream.shutdown(Shutdown::Write);
    })
}

/// Returns a service with one route, as YAML. `route` contains the fields of the route besides its name.
fn service(name: &str, protocol: &str, address: SocketAddr, route: &str) -> String {
    format!(
        "- name: {name}\n  protocol: {protocol}\n  host: {}\n  port: {}\n  read_timeout: 20000\n  connect_timeout: 2000\n  \
         routes: [{{name: {name}, {route}}}]\n",
        address.ip(),
        address.port()
    )
}

fn configuration(services: &[String]) -> String {
    format!("_format_version: '3.0'\nservices:\n{}", services.concat())
}

fn stream_launch(listen: &str) -> Launch {
    launch()
        .set("log_level", "debug")
        .set("proxy_listen", "127.0.0.1:0")
        .set("stream_listen", listen)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    stream
}

/// Sends a text, closes the sending side of the connection, and reads the whole response.
fn ask(mut stream: TcpStream, question: &str) -> String {
    stream.write_all(question.as_bytes()).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn is_closed(stream: TcpStream) -> bool {
    Client::over(stream).is_closed()
}

#[test]
fn connections_are_routed_by_addresses_and_pass_both_ways() {
    let (one, two) = (named_echo("one:"), named_echo("two:"));
    let gateway = stream_launch("127.0.0.1:0, 127.0.0.2:0")
        .configuration(&configuration(&[
            service(
                "one",
                "tcp",
                one.address,
                "protocols: [tcp], destinations: [{ip: 127.0.0.1}]",
            ),
            service(
                "two",
                "tcp",
                two.address,
                "protocols: [tcp], destinations: [{ip: 127.0.0.0/8}]",
            ),
        ]))
        .start();
    let listening = gateway.listening("stream");
    // `ask` closes its sending side before it reads. The gateway must forward that and still deliver the response.
    assert_eq!(ask(connect(listening[0]), "hello"), "one:hello");
    assert_eq!(ask(connect(listening[1]), "hello"), "two:hello");
    let large = "x".repeat(3_000_000);
    let mut stream = connect(listening[0]);
    let mut writing = stream.try_clone().expect("a socket");
    let sent = large.clone();
    let writer = thread::spawn(move || {
        writing.write_all(sent.as_bytes()).expect("it reads");
        writing.shutdown(Shutdown::Write).expect("it is open");
    });
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    writer.join().expect("it writes");
    assert!(answer == format!("one:{large}"), "{} bytes", answer.len());
    gateway.wait_for_log("stream ended");
}

#[test]
fn streams_are_routed_by_expressions() {
    let (one, two) = (named_echo("one:"), named_echo("two:"));
    let gateway = stream_launch("127.0.0.1:0, 127.0.0.2:0")
        .set("router_flavor", "expressions")
        .configuration(&configuration(&[
            service(
                "one",
                "tcp",
                one.address,
                "protocols: [tcp], expression: 'net.dst.ip == 127.0.0.1 && net.src.ip in 127.0.0.0/8'",
            ),
            service(
                "two",
                "tcp",
                two.address,
                "protocols: [tcp], destinations: [{ip: 127.0.0.0/8}]",
            ),
        ]))
        .start();
    let listening = gateway.listening("stream");
    assert_eq!(ask(connect(listening[0]), "hello"), "one:hello");
    assert_eq!(ask(connect(listening[1]), "hello"), "two:hello");
}

#[test]
fn routes_of_streams_and_of_http_do_not_see_each_other() {
    let upstream = named_echo("s:");
    let gateway = stream_launch("127.0.0.1:0")
        .configuration(&configuration(&[service(
            "s",
            "tcp",
            upstream.address,
            "protocols: [tcp], sources: [{ip: 127.0.0.1}]",
        )]))
        .start();
    assert_eq!(gateway.get("/", &[]).status, 404);
    // This changes the stream route into an HTTP route. It must no longer match streams, but HTTP requests.
    let http = "_format_version: '3.0'\nservices:\n- {name: s, url: 'http://127.0.0.1:9', routes: [{name: s, paths: [/]}]}\n";
    assert_eq!(gateway.post_config(http).status, 201);
    assert!(is_closed(connect(gateway.listening("stream")[0])));
    gateway.wait_for_log("no Route found with those values");
    assert_eq!(gateway.get("/", &[]).status, 502);
}

#[test]
fn a_connection_that_cannot_be_forwarded_is_closed_and_logged() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nowhere = closed.local_addr().expect("a bound address");
    drop(closed);
    let refused = service(
        "r",
        "tcp",
        nowhere,
        "protocols: [tcp], sources: [{ip: 127.0.0.1}]",
    );
    let gateway = stream_launch("127.0.0.1:0")
        .configuration(&configuration(&[refused]))
        .start();
    let address = gateway.listening("stream")[0];
    assert!(is_closed(connect(address)));
    gateway.wait_for_log("cannot connect");
    let without_service = "_format_version: '3.0'\nroutes: [{name: r, protocols: [tcp], sources: [{ip: 127.0.0.1}]}]\n";
    assert_eq!(gateway.post_config(without_service).status, 201);
    assert!(is_closed(connect(address)));
    gateway.wait_for_log("no Service found with those values");
}

#[test]
fn addresses_are_restricted_on_streams() {
    let echo = named_echo("up:");
    let gateway = stream_launch("127.0.0.1:0").set("database", "off").start();
    let address = gateway.listening("stream")[0];
    let restrict = |config: &str| {
        let route = format!(
            "protocols: [tcp], sources: [{{ip: 127.0.0.1}}], plugins: [{{name: ip-restriction, config: {config}}}]"
        );
        let text = configuration(&[service("g", "tcp", echo.address, &route)]);
        assert_eq!(gateway.post_config(&text).status, 201);
    };
    for config in ["{deny: [127.0.0.0/8]}", "{allow: [10.0.0.1], status: 451}"] {
        restrict(config);
        assert!(is_closed(connect(address)), "{config}");
    }
    for config in ["{deny: [10.0.0.1]}", "{allow: [127.0.0.1]}"] {
        restrict(config);
        assert_eq!(ask(connect(address), "a"), "up:a", "{config}");
    }
}

#[test]
fn plugins_of_http_are_refused_on_streams() {
    let gateway = stream_launch("127.0.0.1:0").set("database", "off").start();
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    let text = configuration(&[service(
        "k",
        "tcp",
        address,
        "protocols: [tcp], sources: [{ip: 127.0.0.1}], plugins: [{name: key-auth, protocols: [tcp]}]",
    )]);
    assert_eq!(gateway.post_config(&text).status, 400);
}

#[test]
fn another_target_is_tried_when_one_refuses() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nowhere = closed.local_addr().expect("a bound address");
    drop(closed);
    let upstream = named_echo("up:");
    let text = format!(
        "_format_version: '3.0'\nupstreams:\n- name: pool\n  targets: [{{target: '{nowhere}'}}, {{target: '{}'}}]\n\
         services:\n- name: s\n  protocol: tcp\n  host: pool\n  port: 80\n  \
         routes: [{{name: r, protocols: [tcp], sources: [{{ip: 127.0.0.1}}]}}]\n",
        upstream.address
    );
    let gateway = stream_launch("127.0.0.1:0").configuration(&text).start();
    for _ in 0..4 {
        assert_eq!(ask(connect(gateway.listening("stream")[0]), "x"), "up:x");
    }
}

#[test]
fn an_idle_connection_ends_after_the_read_timeout() {
    let upstream = named_echo("i:");
    let text = configuration(&[service(
        "i",
        "tcp",
        upstream.address,
        "protocols: [tcp], sources: [{ip: 127.0.0.1}]",
    )]);
    let text = text.replace("read_timeout: 20000", "read_timeout: 200");
    let gateway = stream_launch("127.0.0.1:0").configuration(&text).start();
    let mut stream = connect(gateway.listening("stream")[0]);
    let mut all = String::new();
    stream
        .read_to_string(&mut all)
        .expect("an end, not a reset");
    assert_eq!(all, "i:");
}

#[test]
fn a_drain_keeps_open_connections() {
    let upstream = named_echo("d:");
    let gateway = stream_launch("127.0.0.1:0")
        .configuration(&configuration(&[service(
            "d",
            "tcp",
            upstream.address,
            "protocols: [tcp], sources: [{ip: 127.0.0.1}]",
        )]))
        .start();
    let mut stream = connect(gateway.listening("stream")[0]);
    let mut name = [0; 2];
    stream.read_exact(&mut name).expect("the upstream speaks");
    gateway.signal("TERM");
    gateway.wait_for_log("stopping");
    assert_eq!(ask(stream, "still here"), "still here");
    let mut gateway = gateway;
    assert!(gateway.wait().success());
}

#[test]
fn the_proxy_protocol_tells_the_source_of_a_connection() {
    let (inner, outer) = (named_echo("inner:"), named_echo("outer:"));
    let start = |trusted| {
        stream_launch("127.0.0.1:0 proxy_protocol")
            .set("trusted_ips", trusted)
            .configuration(&configuration(&[
                service(
                    "i",
                    "tcp",
                    inner.address,
                    "protocols: [tcp], sources: [{ip: 127.0.0.1}]",
                ),
                service(
                    "o",
                    "tcp",
                    outer.address,
                    "protocols: [tcp], sources: [{ip: 192.0.2.0/24}]",
                ),
            ]))
            .start()
    };
    let header = "PROXY TCP4 192.0.2.9 127.0.0.1 1234 80\r\n";
    let gateway = start("127.0.0.1");
    let address = gateway.listening("stream")[0];
    let asked = |address, question: &str| ask(connect(address), &format!("{header}{question}"));
    assert_eq!(asked(address, "x"), "outer:x");
    gateway.wait_for_log("stream ended client=192.0.2.9:1234");
    let mut without_route = connect(address);
    without_route
        .write_all(b"PROXY TCP4 198.51.100.7 127.0.0.1 1234 80\r\n")
        .expect("it reads");
    assert!(is_closed(without_route));
    gateway.wait_for_log("client=198.51.100.7:1234");
    let mut malformed = connect(address);
    malformed.write_all(b"hello\r\n").expect("it reads");
    assert!(is_closed(malformed));
    let untrusting = start("10.0.0.0/8");
    assert_eq!(asked(untrusting.listening("stream")[0], "x"), "inner:x");
}

// === TLS ===

struct TlsEcho {
    address: SocketAddr,
}

/// A TLS server that sends its name and the requested server name, then echoes everything.
fn tls_echo(name: &'static str) -> TlsEcho {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a valid name");
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .expect("a valid pair");
    let config = Arc::new(config);
    let upstream = Scripted::start(move |mut stream| {
        let mut tls = ServerConnection::new(config.clone()).expect("a valid setup");
        while tls.is_handshaking() {
            if tls.complete_io(&mut stream).is_err() {
                return;
            }
        }
        let asked = tls.server_name().unwrap_or("nobody").to_owned();
        let mut tls = StreamOwned::new(tls, stream);
        let _ = tls.write_all(format!("{name}({asked}):").as_bytes());
        // Read to the end. Closing a socket with unread data resets the connection, and the sent data would be lost.
        let mut heard = Vec::new();
        let _ = tls.read_to_end(&mut heard);
        let _ = tls.write_all(&heard);
        tls.conn.send_close_notify();
        let _ = tls.flush();
    });
    TlsEcho {
        address: upstream.address,
    }
}

/// Sends five bytes over TLS and returns the whole response.
fn ask_tls(address: SocketAddr, name: &str) -> io::Result<String> {
    ask_tls_over(connect(address), name)
}

fn ask_tls_over(stream: TcpStream, name: &str) -> io::Result<String> {
    let config = Arc::new(trusting_anyone(rustls::ALL_VERSIONS));
    let name = ServerName::try_from(name.to_owned()).expect("a valid name");
    let tls = ClientConnection::new(config, name).expect("a valid setup");
    let mut tls = StreamOwned::new(tls, stream);
    tls.write_all(b"hello")?;
    tls.conn.send_close_notify();
    tls.flush()?;
    let mut answer = String::new();
    tls.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn handshakes_are_passed_to_the_upstream_of_their_name() {
    let (shop, pets) = (tls_echo("shop.test"), tls_echo("pets.test"));
    let gateway = stream_launch("127.0.0.1:0 ssl")
        .configuration(&configuration(&[
            service(
                "shop",
                "tcp",
                shop.address,
                "protocols: [tls_passthrough], snis: [shop.test]",
            ),
            service(
                "pets",
                "tcp",
                pets.address,
                "protocols: [tls_passthrough], snis: ['*.pets.test']",
            ),
        ]))
        .start();
    let address = gateway.listening("stream_tls")[0];
    assert_eq!(
        ask_tls(address, "shop.test").expect("an answer"),
        "shop.test(shop.test):hello"
    );
    assert_eq!(
        ask_tls(address, "cats.pets.test").expect("an answer"),
        "pets.test(cats.pets.test):hello"
    );
    assert!(ask_tls(address, "other.test").is_err());
    gateway.wait_for_log("no Route found with those values");
}

#[test]
fn tls_is_terminated_and_may_be_used_again_towards_the_upstream() {
    let (plain, secure) = (named_echo("plain:"), tls_echo("secure.test"));
    let text = configuration(&[
        service(
            "plain",
            "tcp",
            plain.address,
            "protocols: [tls], snis: [plain.test]",
        ),
        service(
            "named",
            "tls",
            secure.address,
            "protocols: [tls], snis: [named.test], preserve_host: true",
        ),
        service(
            "host",
            "tls",
            secure.address,
            "protocols: [tls], snis: [host.test]",
        ),
    ]);
    // A host name instead of an address makes the gateway send a server name to the upstream.
    let text = text.replace(
        "- name: host\n  protocol: tls\n  host: 127.0.0.1",
        "- name: host\n  protocol: tls\n  host: localhost",
    );
    let gateway = stream_launch("127.0.0.1:0 ssl")
        .configuration(&text)
        .start();
    let address = gateway.listening("stream_tls")[0];
    assert_eq!(
        ask_tls(address, "plain.test").expect("an answer"),
        "plain:hello"
    );
    assert_eq!(
        ask_tls(address, "named.test").expect("an answer"),
        "secure.test(named.test):hello",
        "the gateway forwards the server name of the client"
    );
    assert_eq!(
        ask_tls(address, "host.test").expect("an answer"),
        "secure.test(localhost):hello"
    );
}

#[test]
fn an_upstream_that_resets_is_no_proper_end_of_tls() {
    let upstream = Scripted::start(|mut stream| {
        let _ = stream.write_all(b"half of");
        let mut byte = [0];
        // Leave the other bytes unread, because closing a socket with unread data resets the connection.
        let _ = stream.read_exact(&mut byte);
    });
    let gateway = stream_launch("127.0.0.1:0 ssl")
        .configuration(&configuration(&[service(
            "half",
            "tcp",
            upstream.address,
            "protocols: [tls], snis: [half.test]",
        )]))
        .start();
    let lost = ask_tls(gateway.listening("stream_tls")[0], "half.test");
    // The client gets a reset instead of an EOF if it still sends after the gateway has closed the connection.
    let kind = lost.expect_err("no end").kind();
    assert!(
        matches!(
            kind,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
        ),
        "{kind}"
    );
}

#[test]
fn a_hello_may_come_in_pieces_and_behind_a_proxy_header() {
    let shop = tls_echo("shop.test");
    let gateway = stream_launch("127.0.0.1:0 ssl proxy_protocol")
        .configuration(&configuration(&[service(
            "shop",
            "tcp",
            shop.address,
            "protocols: [tls_passthrough], snis: [shop.test]",
        )]))
        .start();
    let address = gateway.listening("stream_tls")[0];
    let mut stream = connect(address);
    stream
        .set_nodelay(true)
        .expect("a TCP socket has the option");
    stream
        .write_all(b"PROXY TCP4 192.0.2.9 127.0.0.1 1234 80\r\n")
        .expect("it reads");
    // This relay in front of the gateway sends every byte separately.
    let between = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let near = connect(between.local_addr().expect("a bound address"));
    let (mut far, _) = between.accept().expect("a connection");
    let mut back = stream.try_clone().expect("a socket");
    let mut far_back = far.try_clone().expect("a socket");
    thread::spawn(move || io::copy(&mut back, &mut far_back));
    thread::spawn(move || {
        let mut byte = [0];
        while matches!(far.read(&mut byte), Ok(1)) {
            if stream.write_all(&byte).is_err() {
                return;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
    });
    let answer = ask_tls_over(near, "shop.test");
    assert_eq!(answer.expect("an answer"), "shop.test(shop.test):hello");
}

#[test]
fn a_route_of_another_protocol_does_not_get_a_handshake() {
    let upstream = named_echo("t:");
    let gateway = stream_launch("127.0.0.1:0 ssl")
        .configuration(&configuration(&[service(
            "t",
            "tcp",
            upstream.address,
            "protocols: [tcp], sources: [{ip: 127.0.0.1}]",
        )]))
        .start();
    assert!(ask_tls(gateway.listening("stream_tls")[0], "a.test").is_err());
    gateway.wait_for_log("unexpected protocols in matched Route");
    assert_eq!(upstream.connections(), 0);
}

// === Datagrams ===

/// An upstream that answers each datagram with two datagrams, which contain its name and the received text.
fn udp_echo(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("a bound address");
    thread::spawn(move || {
        let mut buffer = [0; 65_535];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let answer = [name.as_bytes(), &buffer[..length]].concat();
            let _ = socket.send_to(&answer, from);
            let _ = socket.send_to(&answer, from);
        }
    });
    address
}

fn udp_client(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    // A connected socket receives responses from this address only.
    socket.connect(address).expect("a route to it");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    socket
}

fn ask_udp(client: &UdpSocket, question: &[u8]) -> Vec<u8> {
    client.send(question).expect("it can be sent");
    let mut buffer = vec![0; 65_535];
    let length = client.recv(&mut buffer).expect("an answer");
    let again = client.recv(&mut buffer).expect("a second answer");
    assert_eq!(length, again);
    buffer.truncate(length);
    buffer
}

fn udp_gateway(workers: &str) -> Gateway {
    stream_launch("0.0.0.0:0 udp reuseport")
        .set("nginx_worker_processes", workers)
        .configuration(&configuration(&[service(
            "u",
            "udp",
            udp_echo("u:"),
            "protocols: [udp], sources: [{ip: 127.0.0.1}]",
        )]))
        .start()
}

#[test]
fn datagrams_of_several_clients_are_kept_apart() {
    let gateway = udp_gateway("3");
    let port = gateway.listening("stream_udp")[0].port();
    let clients: Vec<_> = (1..=8)
        .map(|last| udp_client(SocketAddr::from(([127, 0, 0, last], port))))
        .collect();
    for round in 0..3 {
        for (number, client) in clients.iter().enumerate() {
            let question = format!("{round} of {number}");
            let answer = ask_udp(client, question.as_bytes());
            assert_eq!(String::from_utf8_lossy(&answer), format!("u:{question}"));
        }
    }
}

#[test]
fn large_and_empty_datagrams_pass() {
    let gateway = udp_gateway("1");
    let port = gateway.listening("stream_udp")[0].port();
    let client = udp_client(SocketAddr::from(([127, 0, 0, 1], port)));
    for length in [0, 1, 1_500, 9_000, 60_000] {
        let question = vec![b'x'; length];
        let answer = ask_udp(&client, &question);
        assert!(answer == [b"u:", &question[..]].concat(), "{length}");
    }
}

#[test]
fn datagrams_without_a_route_are_logged_and_dropped() {
    let gateway = stream_launch("127.0.0.1:0 udp")
        .set("database", "off")
        .start();
    let client = udp_client(gateway.listening("stream_udp")[0]);
    client.send(b"hello").expect("it can be sent");
    gateway.wait_for_log("UDP session closed: no Route found");
}

#[test]
fn a_port_in_use_is_reported_for_datagrams_too() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound address");
    let log = stream_launch(&format!("{address} udp"))
        .set("database", "off")
        .try_start()
        .expect_err("the port is taken");
    assert!(log.contains("setting stream_listen"), "{log}");
    assert!(
        log.contains("another program listens there already"),
        "{log}"
    );
}

#[test]
fn an_upgrade_keeps_streams_and_datagram_service() {
    let upstream = named_echo("s:");
    let mut gateway = stream_launch("127.0.0.1:0, 127.0.0.1:0 udp")
        .set("nginx_worker_processes", "2")
        .configuration(&configuration(&[
            service(
                "s",
                "tcp",
                upstream.address,
                "protocols: [tcp, udp], sources: [{ip: 127.0.0.1}]",
            ),
            service(
                "u",
                "udp",
                udp_echo("u:"),
                "protocols: [udp], sources: [{ip: 127.0.0.9}]",
            ),
        ]))
        .start();
    let (address, datagrams) = (
        gateway.listening("stream")[0],
        gateway.listening("stream_udp")[0],
    );
    let socket = UdpSocket::bind("127.0.0.9:0").expect("a free port");
    socket.connect(datagrams).expect("a route to it");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    assert_eq!(ask_udp(&socket, b"before"), b"u:before");
    let mut old = connect(address);
    let mut name = [0; 2];
    old.read_exact(&mut name).expect("the upstream speaks");
    gateway.upgrade().expect("it takes over");
    assert_eq!(ask(old, "still here"), "still here");
    for _ in 0..10 {
        assert_eq!(ask(connect(address), "new"), "s:new");
        assert_eq!(ask_udp(&socket, b"after"), b"u:after");
    }
}

#[test]
fn sessions_of_datagrams_have_lines_in_the_access_log() {
    let text = configuration(&[service(
        "u",
        "udp",
        udp_echo("u:"),
        "protocols: [udp], sources: [{ip: 127.0.0.1}]",
    )]);
    let gateway = stream_launch("127.0.0.1:0 udp")
        .set("proxy_stream_access_log", "streams.log basic")
        .configuration(&text.replace("read_timeout: 20000", "read_timeout: 200"))
        .start();
    let client = udp_client(gateway.listening("stream_udp")[0]);
    assert_eq!(ask_udp(&client, b"abc"), b"u:abc");
    let path = gateway.launch().prefix().join("streams.log");
    let deadline = std::time::Instant::now() + LIMIT;
    let line = loop {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Some((line, "")) = text.split_once('\n') {
            break line.to_owned();
        }
        assert!(std::time::Instant::now() < deadline, "no line: {text}");
        thread::sleep(Duration::from_millis(5));
    };
    assert!(line.starts_with("127.0.0.1 ["), "{line}");
    assert!(line.contains("] UDP 200 10 3 0."), "{line}");
}
