//! Tests of the generated configurations, and of every installed peer with every workload.

use super::*;
use crate::certificate;
use crate::upstream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

const BIG: usize = 64 * 1024;
/// A number above 1,000, the number of requests after which servers close connections by default.
const MANY: usize = 1_100;

fn options(words: &[&str]) -> Result<Options, String> {
    use clap::Parser;
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }
    Line::try_parse_from([&["bench"], words].concat())
        .map(|line| line.options)
        .map_err(|error| error.to_string())
}

/// Returns every file that a peer writes for a workload, by name, and the peer's command line.
fn written(
    definition: &Definition,
    workload: &Workload<'_>,
) -> Option<(BTreeMap<String, String>, Plan)> {
    let directory = tempfile::tempdir().unwrap();
    let address = "127.0.0.1:4321".parse().unwrap();
    let plan = (definition.prepare)(workload, address, directory.path()).unwrap()?;
    let files = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    Some((files, plan))
}

fn workload(routes: usize, keys: usize) -> Workload<'static> {
    Workload {
        upstream: "127.0.0.1:8765".parse().unwrap(),
        tls: None,
        http2: Http2::Off,
        routes,
        keys,
    }
}

fn all() -> impl Iterator<Item = &'static Definition> {
    DEFINITIONS.into_iter().chain([&kong::DEFINITION])
}

#[test]
fn configurations_name_the_upstream_and_every_route() {
    for definition in all() {
        let (files, _) = written(definition, &workload(120, 0)).unwrap();
        let text = files.into_values().collect::<String>();
        let name = definition.name;
        assert!(text.contains("8765"), "{name}");
        for number in 0..120 {
            assert!(
                text.contains(&configuration::path(number)),
                "{name}, route {number}"
            );
        }
        for placeholder in ["@routes", "@credentials", "@endpoints"] {
            assert!(!text.contains(placeholder), "{name} leaves {placeholder}");
        }
    }
}

#[test]
fn configurations_name_every_key_or_there_is_none() {
    for definition in all() {
        let name = definition.name;
        let Some((files, _)) = written(definition, &workload(1, 3_000)) else {
            assert!(["traefik", "krakend"].contains(&name), "{name}");
            continue;
        };
        let text = files.into_values().collect::<String>();
        for number in 0..3_000 {
            assert!(
                text.contains(&configuration::key(number)),
                "{name}, key {number}"
            );
        }
        assert!(!text.contains(&configuration::key(3_000)), "{name}");
    }
}

#[test]
fn configurations_with_tls_name_the_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let certificate = certificate::self_signed(directory.path()).unwrap();
    for definition in all() {
        let workload = Workload {
            tls: Some(&certificate),
            http2: Http2::Off,
            ..workload(1, 0)
        };
        let (files, plan) = written(definition, &workload).unwrap();
        let settings = plan.environment.into_iter().map(|(_, value)| value);
        let text = files.into_values().chain(settings).collect::<String>();
        let pem = fs::read_to_string(&certificate.certificate).unwrap();
        let named = text.contains(&certificate.certificate.display().to_string());
        assert!(named || text.contains(&pem), "{}", definition.name);
    }
}

#[test]
fn configurations_in_json_are_json() {
    let directory = tempfile::tempdir().unwrap();
    let certificate = certificate::self_signed(directory.path()).unwrap();
    for (routes, keys) in [(1, 0), (3, 0), (1, 1), (3, 7)] {
        for definition in all() {
            let workload = Workload {
                tls: Some(&certificate),
                http2: Http2::Off,
                ..workload(routes, keys)
            };
            let Some((files, _)) = written(definition, &workload) else {
                continue;
            };
            for (file, text) in files.iter().filter(|(file, _)| file.ends_with(".json")) {
                let parsed = serde_json::from_str::<serde_json::Value>(text);
                assert!(parsed.is_ok(), "{file}: {parsed:?}");
            }
        }
    }
}

#[test]
fn nginx_gets_its_locations_sorted() {
    let (files, _) = written(&nginx::DEFINITION, &workload(300, 0)).unwrap();
    let locations: Vec<&str> = files["nginx.conf"]
        .lines()
        .filter_map(|line| line.trim().strip_prefix("location /service"))
        .collect();
    assert_eq!(locations.len(), 300);
    assert!(locations.is_sorted());
}

#[test]
fn caddy_tries_longer_paths_first() {
    let (files, _) = written(&caddy::DEFINITION, &workload(300, 0)).unwrap();
    let text = &files["caddy.json"];
    let position = |path: &str| text.find(&format!("\"{path}*\"")).unwrap();
    assert!(position("/service-1/route-101") < position("/service-1/route-1"));
}

#[test]
fn caddy_has_no_equivalent_of_a_million_keys() {
    assert!(written(&caddy::DEFINITION, &workload(1, 10_001)).is_none());
}

#[test]
fn kong_gets_its_settings_by_the_environment() {
    let (files, plan) = written(&kong::DEFINITION, &workload(2, 2)).unwrap();
    let setting = |wanted: &str| {
        let found = plan.environment.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(setting("KONG_PROXY_LISTEN"), Some("127.0.0.1:4321"));
    assert_eq!(setting("KONG_DATABASE"), Some("off"));
    assert!(
        setting("KONG_DECLARATIVE_CONFIG")
            .unwrap()
            .ends_with("/kong.json")
    );
    assert!(files["kong.json"].contains("key-auth"));
    let (files, _) = written(&kong::DEFINITION, &workload(2, 0)).unwrap();
    assert!(!files["kong.json"].contains("key-auth"));
}

#[test]
fn the_version_of_kong_is_what_its_script_prints() {
    // `echo version` prints its argument; `false` prints nothing.
    assert_eq!(kong::peer(Path::new("/bin/echo")).version, "version");
    assert_eq!(kong::peer(Path::new("/bin/false")).version, "unknown");
}

#[test]
fn commands_say_nothing_that_differs_from_run_to_run() {
    let plan = Plan {
        ready: Some("127.0.0.1:2".parse().unwrap()),
        ..Plan::go([
            "-c",
            "/run/x/a.conf",
            "--listen",
            "127.0.0.1:1",
            "127.0.0.1:2",
            "/run/x",
        ])
    };
    let command = plan.command(
        Path::new("/usr/sbin/peer"),
        "127.0.0.1:1".parse().unwrap(),
        Path::new("/run/x"),
    );
    assert_eq!(
        command,
        "GOMAXPROCS=1 peer -c a.conf --listen ADDRESS READY ."
    );
}

#[test]
fn a_peer_that_is_missing_is_named_with_how_to_install_it() {
    let options = options(&["--peer", "caddy=/nowhere/caddy", "--without", "nginx"]).unwrap();
    let found = find(&options);
    assert!(
        found
            .peers
            .iter()
            .all(|peer| !["caddy", "nginx", "kong"].contains(&peer.name))
    );
    let missing = found.missing.join("\n");
    for sentence in [
        "caddy is not at /nowhere/caddy.",
        "nginx was left out",
        "--kong PATH",
    ] {
        assert!(missing.contains(sentence), "{missing}");
    }
}

#[test]
fn every_peer_is_found_or_named() {
    let found = find(&Options::default());
    assert_eq!(found.peers.len() + found.missing.len(), all().count());
}

#[test]
fn a_name_that_no_peer_has_is_refused() {
    assert!(
        options(&["--peer", "apache=/bin/true"])
            .unwrap_err()
            .contains("unknown peer apache")
    );
    assert!(
        options(&["--peer", "nginx"])
            .unwrap_err()
            .contains("NAME=PATH")
    );
    assert!(options(&["--without", "apache"]).is_err());
    assert_eq!(options(&["--without", "kong"]).unwrap().without, ["kong"]);
}

/// A connection to a peer, with or without TLS.
struct Connection(Box<dyn Stream>);

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

struct Answer {
    status: u16,
    length: usize,
}

impl Connection {
    fn open(address: SocketAddr, tls: Option<&Certificate>) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(ANSWER_LIMIT)).unwrap();
        let Some(certificate) = tls else {
            return Self(Box::new(stream));
        };
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(&certificate.certificate).unwrap())
            .unwrap();
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(certificate::NAME).unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        Self(Box::new(StreamOwned::new(session, stream)))
    }

    fn get(&mut self, path: &str, key: Option<&str>) -> Answer {
        let key = key.map_or(String::new(), |key| format!("apikey: {key}\r\n"));
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench.test\r\n{key}\r\n");
        self.0.write_all(request.as_bytes()).unwrap();
        self.0.flush().unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .unwrap_or_else(|| panic!("no Content-Length for {path}: {head}"));
        let length = length.trim().parse().unwrap();
        self.0.read_exact(&mut vec![0; length]).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, length }
    }
}

fn start_upstream() -> SocketAddr {
    let address = process::free_address().unwrap();
    // The upstream never stops. If it fails, its panic message in the test's output shows the reason.
    std::thread::spawn(move || upstream::run(address).unwrap());
    let started = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(
            started.elapsed() < ANSWER_LIMIT,
            "the upstream does not listen"
        );
        std::thread::yield_now();
    }
    address
}

/// Starts an upstream that also sends each request head to a channel, with the number of the connection.
fn start_recorder() -> (SocketAddr, Receiver<(usize, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let sender = sender.clone();
            std::thread::spawn(move || record(stream.unwrap(), number, &sender));
        }
    });
    (address, receiver)
}

fn record(mut stream: TcpStream, number: usize, heads: &Sender<(usize, String)>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while let Ok(1) = stream.read(&mut byte) {
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
            let answered = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            if answered.is_err() || heads.send((number, text)).is_err() {
                return;
            }
            head.clear();
        }
    }
}

/// Runs `check` with every installed peer that has an equivalent of the workload.
fn with_each_peer(shape: (usize, usize, bool), check: impl Fn(&str, &dyn Fn() -> Connection)) {
    with_each_peer_before(start_upstream(), shape, check);
}

fn with_each_peer_before(
    upstream: SocketAddr,
    (routes, keys, tls): (usize, usize, bool),
    check: impl Fn(&str, &dyn Fn() -> Connection),
) {
    let files = tempfile::tempdir().unwrap();
    let certificate = certificate::self_signed(files.path()).unwrap();
    let workload = Workload {
        upstream,
        tls: tls.then_some(&certificate),
        http2: Http2::Off,
        routes,
        keys,
    };
    let core = process::cores().unwrap()[0];
    for peer in find(&Options::default()).peers {
        let directory = tempfile::tempdir().unwrap();
        let started = peer.start(&workload, core, directory.path()).unwrap();
        if let Some(started) = started {
            check(peer.name, &|| {
                Connection::open(started.address, workload.tls)
            });
        }
    }
}

fn proxies_everything(name: &str, open: &dyn Fn() -> Connection) {
    let mut connection = open();
    for _ in 0..MANY {
        let answer = connection.get("/", None);
        assert_eq!((answer.status, answer.length), (200, 512), "{name}");
    }
    let answer = connection.get("/big", None);
    assert_eq!((answer.status, answer.length), (200, BIG), "{name}");
}

#[test]
fn installed_peers_proxy_on_one_connection_without_end() {
    with_each_peer((1, 0, false), proxies_everything);
}

#[test]
fn installed_peers_proxy_over_tls_on_one_connection_without_end() {
    with_each_peer((1, 0, true), proxies_everything);
}

#[test]
fn installed_peers_tell_the_upstream_who_the_client_is_on_connections_they_keep() {
    let (upstream, heads) = start_recorder();
    with_each_peer_before(upstream, (1, 0, false), |name, open| {
        // Discard the requests that the peer sent while it started.
        while heads.try_recv().is_ok() {}
        let mut used = BTreeSet::new();
        for _ in 0..50 {
            assert_eq!(open().get("/", None).status, 200, "{name}");
            let (connection, head) = heads.recv_timeout(ANSWER_LIMIT).unwrap();
            // Envoy treats a client on loopback as internal and sends its own address.
            assert!(head.contains("x-forwarded-for: "), "{name}: {head}");
            assert!(!head.contains("connection: close"), "{name}: {head}");
            used.insert(connection);
        }
        // The peer may use more than one connection: a response may reach the client shortly before the peer's upstream
        // connection becomes idle.
        assert!(used.len() < 10, "{name} used {} connections", used.len());
    });
}

#[test]
fn installed_peers_answer_404_off_their_routes() {
    for tls in [false, true] {
        with_each_peer((250, 0, tls), |name, open| {
            let mut connection = open();
            for number in 0..250 {
                let answer = connection.get(&configuration::path(number), None);
                assert_eq!(answer.status, 200, "{name}, route {number}");
            }
            for path in [
                "/",
                "/service-1",
                "/service-1/other",
                "/service-500/route-1",
            ] {
                assert_eq!(open().get(path, None).status, 404, "{name}, {path}");
            }
        });
    }
}

#[test]
fn installed_peers_answer_401_without_a_key_they_know() {
    for (routes, keys) in [(1, 1), (1, 6_000), (250, 100)] {
        with_each_peer((routes, keys, false), |name, open| {
            let path = configuration::path(0);
            let mut connection = open();
            for number in [0, keys / 2, keys - 1] {
                let key = configuration::key(number);
                assert_eq!(
                    connection.get(&path, Some(&key)).status,
                    200,
                    "{name}, key {number}"
                );
            }
            let stranger = configuration::key(keys);
            assert_eq!(open().get(&path, Some(&stranger)).status, 401, "{name}");
            assert_eq!(open().get(&path, None).status, 401, "{name}");
        });
    }
}

#[test]
fn over_http2_nginx_and_haproxy_take_requests_without_end_unless_left_as_they_are() {
    let Some(h2load) = crate::h2load::H2load::find() else {
        return;
    };
    let files = tempfile::tempdir().unwrap();
    let certificate = certificate::self_signed(files.path()).unwrap();
    let upstream = start_upstream();
    let load = crate::h2load::Load {
        requests: 3_000,
        connections: 1,
        streams: 100,
    };
    let core = process::cores().unwrap()[0];
    let peers = find(&Options::default()).peers;
    for peer in peers
        .iter()
        .filter(|peer| ["nginx", "haproxy"].contains(&peer.name))
    {
        for http2 in [Http2::Unlimited, Http2::UsualLimits] {
            let workload = Workload {
                upstream,
                tls: Some(&certificate),
                http2,
                routes: 1,
                keys: 0,
            };
            let directory = tempfile::tempdir().unwrap();
            let started = peer
                .start(&workload, core, directory.path())
                .unwrap()
                .unwrap();
            let outcome = h2load.run(started.address, load).unwrap();
            let limited = peer.name == "nginx" && http2 == Http2::UsualLimits;
            assert!(outcome.http2, "{}", peer.name);
            assert_eq!(
                outcome.succeeded < 3_000.0,
                limited,
                "{}: {outcome:?}",
                peer.name
            );
        }
    }
}
