//! TLS with clients: versions, ciphers, certificates with two key types, resumed sessions, and certificates that are
//! replaced while connections are open.

use crate::launch;
use crate::tls::trusting_anyone;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, SignatureScheme, StreamOwned};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use testkit::{Client, Gateway, Launch};

type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

const BOTH: &[&rustls::SupportedProtocolVersion] = &[&TLS13, &TLS12];

fn tls_launch() -> Launch {
    launch()
        .set("database", "off")
        .set("proxy_listen", "127.0.0.1:0 ssl")
}

fn address(gateway: &Gateway) -> SocketAddr {
    gateway.proxy_tls.expect("a TLS listener")
}

/// Connects and completes the handshake. To resume sessions of TLS 1.3, also call [`Shaken::get`]: rustls reads the
/// session tickets together with the first response.
fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<Shaken, std::io::Error> {
    let name = ServerName::try_from("shop.test").expect("a valid name");
    let mut connection = ClientConnection::new(Arc::clone(config), name).expect("a valid setup");
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60)))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    let shaken = Shaken {
        kind: connection.handshake_kind().expect("it is done"),
        version: connection.protocol_version().expect("it is done"),
        suite: connection
            .negotiated_cipher_suite()
            .expect("it is done")
            .suite(),
        client: Client::over(StreamOwned::new(connection, stream)),
    };
    Ok(shaken)
}

/// A connection after its handshake.
struct Shaken {
    kind: HandshakeKind,
    version: rustls::ProtocolVersion,
    suite: rustls::CipherSuite,
    client: TlsClient,
}

impl Shaken {
    fn get(&mut self) -> u16 {
        self.client.request("GET", "/", &[], b"").status
    }
}

fn config(versions: &[&'static rustls::SupportedProtocolVersion]) -> Arc<ClientConfig> {
    Arc::new(trusting_anyone(versions))
}

#[test]
fn only_the_versions_of_the_settings_are_accepted() {
    let gateway = tls_launch().set("ssl_protocols", "TLSv1.1 TLSv1.3").start();
    gateway.wait_for_log("TLSv1.1 is not offered here");
    assert!(connect(address(&gateway), &config(&[&TLS12])).is_err());
    let shaken = connect(address(&gateway), &config(BOTH)).expect("TLS 1.3");
    assert_eq!(shaken.version, rustls::ProtocolVersion::TLSv1_3);
    let gateway = tls_launch().set("ssl_cipher_suite", "fips").start();
    assert!(connect(address(&gateway), &config(&[&TLS13])).is_err());
    assert!(connect(address(&gateway), &config(&[&TLS12])).is_ok());
}

#[test]
fn custom_ciphers_are_offered_in_the_order_of_the_settings() {
    let gateway = tls_launch()
        .set("ssl_cipher_suite", "custom")
        .set(
            "ssl_ciphers",
            "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256:DHE-RSA-AES128-SHA",
        )
        .start();
    gateway.wait_for_log("not offered here: DHE-RSA-AES128-SHA");
    let shaken = connect(address(&gateway), &config(&[&TLS12])).expect("a cipher in common");
    let first = rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    assert_eq!(shaken.suite, first);
}

#[test]
fn the_apis_use_http2_on_listeners_with_that_flag() {
    let gateway = launch()
        .set("database", "off")
        .set("status_listen", "127.0.0.1:0 ssl http2")
        .set("admin_listen", "127.0.0.1:0 ssl")
        .start();
    let mut offering = trusting_anyone(BOTH);
    offering.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let offering = Arc::new(offering);
    let chosen = |address: Option<SocketAddr>| {
        let shaken = connect(address.expect("a TLS listener"), &offering).expect("a handshake");
        let stream = shaken.client.stream_ref();
        stream.conn.alpn_protocol().map(<[u8]>::to_vec)
    };
    assert_eq!(chosen(gateway.status_tls).as_deref(), Some(&b"h2"[..]));
    assert_ne!(chosen(gateway.admin_tls).as_deref(), Some(&b"h2"[..]));
}

#[test]
fn a_mismatched_certificate_and_key_are_reported_with_setting_and_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("writable");
        path.to_str().expect("a path in UTF-8").to_owned()
    };
    let [one, two] = ["one", "two"].map(|name| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]);
        let made = made.expect("a certificate");
        let cert = file(&format!("{name}.pem"), &made.cert.pem());
        let key = file(&format!("{name}.key"), &made.signing_key.serialize_pem());
        (cert, key)
    });
    let told = |cert: &str, key: &str| {
        let launch = launch().set("database", "off").set("ssl_cert", cert);
        let started = launch.set("ssl_cert_key", key).try_start();
        started.map(drop).expect_err("a wrong pair")
    };
    let log = told(&one.0, &two.1);
    let expected = format!(
        "setting ssl_cert_key (flag --set): {} does not match ssl_cert {}",
        two.1, one.0
    );
    assert!(log.contains(&expected), "{log}");
    let log = told(&one.0, &one.0);
    let expected = format!(
        "setting ssl_cert_key (flag --set): {}: not a PEM private key",
        one.0
    );
    assert!(log.contains(&expected), "{log}");
    let log = told(&one.1, &one.1);
    let expected = format!(
        "setting ssl_cert (flag --set): {}: not a PEM certificate",
        one.1
    );
    assert!(log.contains(&expected), "{log}");
}

#[test]
fn wrong_tls_settings_are_reported_at_start() {
    for (name, value, message) in [
        ("ssl_protocols", "TLSv1.4", "`TLSv1.4` is no TLS version"),
        ("ssl_protocols", "TLSv1.1", "no TLS version is left"),
        (
            "ssl_cipher_suite",
            "custom",
            "needed when ssl_cipher_suite is custom",
        ),
        ("ssl_session_timeout", "soon", "expected a time"),
    ] {
        let log = tls_launch().set(name, value).try_start().expect_err(name);
        assert!(log.contains(message), "{log}");
    }
    let log = tls_launch()
        .set("ssl_cipher_suite", "custom")
        .set("ssl_ciphers", "ECDHE-STRONG")
        .try_start()
        .expect_err("an unknown cipher");
    assert!(log.contains("`ECDHE-STRONG` is no cipher"), "{log}");
}

/// Whether every connection after the first one resumes the session. The kernel spreads the connections over the
/// workers, so a session is usually resumed by another worker.
fn resumes(gateway: &Gateway, config: &Arc<ClientConfig>) -> bool {
    for attempt in 0..12 {
        let mut shaken = connect(address(gateway), config).expect("a handshake");
        assert_eq!(shaken.get(), 404);
        if (shaken.kind == HandshakeKind::Resumed) != (attempt > 0) {
            return false;
        }
    }
    true
}

#[test]
fn sessions_are_resumed_by_every_worker() {
    let gateway = tls_launch().set("nginx_worker_processes", "4").start();
    assert!(resumes(&gateway, &config(&[&TLS13])));
    assert!(resumes(&gateway, &config(&[&TLS12])));
}

#[test]
fn sessions_are_resumed_by_their_ids_without_tickets() {
    let gateway = tls_launch()
        .set("nginx_worker_processes", "4")
        .set("ssl_session_tickets", "off")
        .start();
    let mut by_id = trusting_anyone(&[&TLS12]);
    by_id.resumption = rustls::client::Resumption::in_memory_sessions(8)
        .tls12_resumption(rustls::client::Tls12Resumption::SessionIdOnly);
    assert!(resumes(&gateway, &Arc::new(by_id)));
    assert!(resumes(&gateway, &config(&[&TLS13])));
}

/// Returns a new certificate and its key as PEM, and the certificate as DER. The key has the type of `algorithm`.
fn issue(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String, Vec<u8>) {
    let params = rcgen::CertificateParams::new(vec!["shop.test".to_owned()]).expect("a name");
    let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
    let made = params.self_signed(&key).expect("a certificate");
    (made.pem(), key.serialize_pem(), made.der().to_vec())
}

/// The certificate that the gateway sent, as DER.
fn shown(shaken: &mut Shaken) -> Vec<u8> {
    let stream = shaken.client.stream_ref();
    let certificates = stream
        .conn
        .peer_certificates()
        .expect("the gateway sent a certificate");
    certificates[0].to_vec()
}

fn with_certificate(pairs: &[&(String, String, Vec<u8>)]) -> String {
    let indented = |pem: &str| -> String {
        let lines = pem.lines().map(|line| format!("      {line}\n"));
        lines.collect()
    };
    let mut text =
        "_format_version: '3.0'\ncertificates:\n  - snis: [{name: shop.test}]\n".to_owned();
    for (suffix, (cert, key, _)) in ["", "_alt"].iter().zip(pairs) {
        text.push_str(&format!(
            "    cert{suffix}: |\n{}    key{suffix}: |\n{}",
            indented(cert),
            indented(key)
        ));
    }
    text
}

/// Client settings that can verify only these signature schemes.
fn checking(schemes: &'static [SignatureScheme]) -> Arc<ClientConfig> {
    let mut provider = default_provider();
    provider.cipher_suites = vec![
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_128_GCM_SHA256,
    ];
    let all = provider.signature_verification_algorithms;
    let wanted = all
        .mapping
        .iter()
        .filter(|(scheme, _)| schemes.contains(scheme));
    let mapping: Vec<_> = wanted.copied().collect();
    provider.signature_verification_algorithms.mapping = mapping.leak();
    Arc::new(crate::tls::trusting_anyone_by(provider, BOTH))
}

/// An RSA key for tests only. It is stored because generating one is slow.
const RSA_KEY: &str = include_str!("../data/rsa-key.pem");

/// Like [`issue`], but with [`RSA_KEY`].
fn issue_rsa() -> (String, String, Vec<u8>) {
    let params = rcgen::CertificateParams::new(vec!["shop.test".to_owned()]).expect("a name");
    let key = rcgen::KeyPair::from_pem_and_sign_algo(RSA_KEY, &rcgen::PKCS_RSA_SHA256);
    let made = params
        .self_signed(&key.expect("a key"))
        .expect("a certificate");
    (made.pem(), RSA_KEY.to_owned(), made.der().to_vec())
}

#[test]
fn each_client_gets_a_certificate_that_it_can_verify() {
    let (rsa, elliptic) = (issue_rsa(), issue(&rcgen::PKCS_ECDSA_P256_SHA256));
    let text = with_certificate(&[&rsa, &elliptic]);
    let gateway = tls_launch().configuration(&text).start();
    let address = address(&gateway);
    const ELLIPTIC: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP256_SHA256];
    const RSA: &[SignatureScheme] = &[
        SignatureScheme::RSA_PSS_SHA256,
        SignatureScheme::RSA_PKCS1_SHA256,
    ];
    let mut one = connect(address, &checking(ELLIPTIC)).expect("a handshake");
    assert_eq!(shown(&mut one), elliptic.2);
    let mut other = connect(address, &checking(RSA)).expect("a handshake");
    assert_eq!(shown(&mut other), rsa.2);
}

#[test]
fn a_certificate_changes_without_dropping_connections() {
    let (before, after) = (
        issue(&rcgen::PKCS_ECDSA_P256_SHA256),
        issue(&rcgen::PKCS_ECDSA_P256_SHA256),
    );
    let gateway = tls_launch()
        .configuration(&with_certificate(&[&before]))
        .start();
    let mut old = connect(address(&gateway), &config(BOTH)).expect("a handshake");
    assert_eq!(old.get(), 404);
    assert_eq!(shown(&mut old), before.2);
    assert_eq!(
        gateway.post_config(&with_certificate(&[&after])).status,
        201
    );
    assert_eq!(old.get(), 404, "the open connection still works");
    let mut new = connect(address(&gateway), &config(BOTH)).expect("a handshake");
    assert_eq!(shown(&mut new), after.2);
    assert_eq!(old.get(), 404);
}
