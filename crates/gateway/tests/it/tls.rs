//! TLS with certificates from the configuration.

use crate::launch;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use testkit::{Client, Echo};

struct Issued {
    cert: String,
    key: String,
    der: CertificateDer<'static>,
}

fn issue(name: &str) -> Issued {
    let issued = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a valid name");
    Issued {
        cert: issued.cert.pem(),
        key: issued.signing_key.serialize_pem(),
        der: issued.cert.der().clone(),
    }
}

/// Returns a TLS client that trusts only the given certificate and requests the given server name.
fn connect(
    address: SocketAddr,
    name: &str,
    trusted: &CertificateDer<'static>,
) -> Client<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a valid certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).expect("a valid name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a valid setup");
    let stream = TcpStream::connect(address).expect("it listens");
    Client::over(StreamOwned::new(connection, stream))
}

fn indented(pem: &str) -> String {
    pem.lines().map(|line| format!("      {line}\n")).collect()
}

#[test]
fn a_name_gets_its_certificate() {
    let echo = Echo::start();
    let (shop, pets) = (issue("shop.test"), issue("pets.test"));
    let mut text = format!(
        "_format_version: '3.0'\nservices:\n- name: s\n  url: {}\n  routes: [{{name: r, paths: [/a]}}]\ncertificates:\n",
        echo.url()
    );
    for (name, issued) in [("shop.test", &shop), ("pets.test", &pets)] {
        text.push_str(&format!(
            "  - cert: |\n{}    key: |\n{}    snis: [{{name: {name}}}]\n",
            indented(&issued.cert),
            indented(&issued.key)
        ));
    }
    let gateway = launch()
        .set("proxy_listen", "127.0.0.1:0, 127.0.0.1:0 ssl http2")
        .configuration(&text)
        .start();
    let address = gateway.proxy_tls.expect("a TLS listener");
    for (name, issued) in [("shop.test", &shop), ("pets.test", &pets)] {
        let answer = connect(address, name, &issued.der).request("GET", "/a", &[], b"");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["headers"]["x-forwarded-proto"], "https");
    }
    let mut refused = connect(address, "shop.test", &pets.der);
    assert!(refused.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").is_err());
}

#[test]
fn a_default_certificate_of_the_settings_is_served() {
    let issued = issue("default.test");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (cert, key) = (
        directory.path().join("cert.pem"),
        directory.path().join("key.pem"),
    );
    std::fs::write(&cert, &issued.cert).expect("writable");
    std::fs::write(&key, &issued.key).expect("writable");
    let gateway = launch()
        .set("database", "off")
        .set("proxy_listen", "127.0.0.1:0, 127.0.0.1:0 ssl")
        .set("ssl_cert", cert.display().to_string())
        .set("ssl_cert_key", key.display().to_string())
        .start();
    let address = gateway.proxy_tls.expect("a TLS listener");
    let answer = connect(address, "default.test", &issued.der).request("GET", "/", &[], b"");
    assert_eq!(answer.status, 404);
}

#[test]
fn the_admin_api_is_served_over_tls_as_well() {
    let issued = issue("admin.test");
    let gateway = launch()
        .set("database", "off")
        .set("admin_listen", "127.0.0.1:0, 127.0.0.1:0 http2 ssl")
        .set("admin_ssl_cert", issued.cert.clone())
        .set("admin_ssl_cert_key", issued.key.clone())
        .start();
    let address = gateway.admin_tls.expect("a TLS listener");
    let answer = connect(address, "admin.test", &issued.der).request("GET", "/status", &[], b"");
    assert_eq!(answer.status, 200);
    assert_eq!(gateway.admin_get("/status").status, 200);
}

#[test]
fn a_certificate_and_key_that_do_not_match_are_refused() {
    let gateway = launch().set("database", "off").start();
    let (one, other) = (issue("a.test"), issue("b.test"));
    let text = format!(
        "_format_version: '3.0'\ncertificates:\n  - cert: |\n{}    key: |\n{}",
        indented(&one.cert),
        indented(&other.key)
    );
    let answer = gateway.post_config(&text);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(answer.json()["code"], 14);
}

/// Accepts any server certificate. It still checks that the server has the private key of its certificate.
#[derive(Debug)]
struct Unverified(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Client settings that accept any server certificate.
pub(crate) fn trusting_anyone(
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    trusting_anyone_by(rustls::crypto::aws_lc_rs::default_provider(), versions)
}

/// Client settings that accept any server certificate, with this cryptography of rustls.
pub(crate) fn trusting_anyone_by(
    provider: rustls::crypto::CryptoProvider,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let provider = Arc::new(provider);
    ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .expect("the provider has them")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified(provider)))
        .with_no_client_auth()
}

/// Client settings that accept any server certificate. The client sends `shown` as its certificate, if given.
pub(crate) fn trusting_anyone_as(
    shown: Option<(CertificateDer<'static>, PrivatePkcs8KeyDer<'static>)>,
) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified(provider)));
    match shown {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let config = builder.with_client_auth_cert(vec![certificate], key.into());
            config.expect("a valid pair")
        }
    }
}

/// Returns a client that speaks TLS on an open connection and accepts any server certificate.
pub(crate) fn over(
    stream: TcpStream,
    name: &str,
) -> Client<StreamOwned<ClientConnection, TcpStream>> {
    let config = Arc::new(trusting_anyone(rustls::ALL_VERSIONS));
    let name = ServerName::try_from(name.to_owned()).expect("a valid name");
    let connection = ClientConnection::new(config, name).expect("a valid setup");
    Client::over(StreamOwned::new(connection, stream))
}
