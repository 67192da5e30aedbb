//! TLS with upstreams: verification of their certificates, client certificates, and resumed sessions.

use crate::launch;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use testkit::{Gateway, Scripted};

/// A CA certificate, or a certificate that a CA has issued.
pub(crate) struct Issued {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

impl Issued {
    pub(crate) fn new(name: &str, is_authority: bool, by: Option<&Self>) -> Self {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a valid name");
        params.distinguished_name.push(DnType::CommonName, name);
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        Self::of(params, by)
    }

    /// A certificate with a common name and no alternative names.
    fn without_alternative_name(name: &str, by: &Self) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        Self::of(params, Some(by))
    }

    fn of(params: CertificateParams, by: Option<&Self>) -> Self {
        let key = KeyPair::generate().expect("a key");
        let certificate = match by {
            None => params.self_signed(&key),
            Some(by) => params.signed_by(&key, &by.issuer),
        };
        Self {
            certificate: certificate.expect("a certificate"),
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn pair(&self) -> (CertificateDer<'static>, PrivatePkcs8KeyDer<'static>) {
        let key = PrivatePkcs8KeyDer::from(self.issuer.key().serialize_der());
        (self.certificate.der().clone(), key)
    }

    fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }
}

/// The upstream's record of a handshake.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    kind: Option<HandshakeKind>,
    /// The client certificate of the gateway, as DER.
    shown: Option<Vec<u8>>,
}

struct Upstream {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// Starts an HTTPS server with this certificate chain. It closes every connection after one response. If `clients` is
/// given, it requires a client certificate of this CA.
fn upstream(chain: &[&Issued], clients: Option<&Issued>) -> Upstream {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has them");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let trusted = authority.certificate.der().clone();
            roots.add(trusted).expect("a valid authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().expect("a valid setup"))
        }
    };
    let key = PrivatePkcs8KeyDer::from(chain[0].issuer.key().serialize_der());
    let chain = chain.iter().map(|one| one.certificate.der().clone());
    let config = builder.with_single_cert(chain.collect(), key.into());
    let config = Arc::new(config.expect("a valid pair"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let scripted = Scripted::start(move |mut stream| {
        let mut tls = ServerConnection::new(config.clone()).expect("a valid setup");
        while tls.is_handshaking() {
            if tls.complete_io(&mut stream).is_err() {
                return;
            }
        }
        let certificates = tls.peer_certificates();
        told.lock().expect("no panic").push(Seen {
            kind: tls.handshake_kind(),
            shown: certificates.map(|shown| shown[0].to_vec()),
        });
        let mut reader = BufReader::new(StreamOwned::new(tls, stream));
        let mut line = String::new();
        while matches!(reader.read_line(&mut line), Ok(1..)) && line != "\r\n" {
            line.clear();
        }
        let tls = reader.get_mut();
        let _ =
            tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        tls.conn.send_close_notify();
        let _ = tls.flush();
    });
    Upstream {
        address: scripted.address,
        seen,
    }
}

fn indented(pem: &str) -> String {
    let lines = pem.lines().map(|line| format!("    {line}\n"));
    lines.collect()
}

const AUTHORITY_ID: &str = "6f1b0f0e-5c1f-4a52-9d2a-000000000001";
const CERTIFICATE_ID: &str = "6f1b0f0e-5c1f-4a52-9d2a-000000000002";

/// A configuration with a service `s` at `/`, a CA certificate and a client certificate. `lines` are additional fields
/// of the service.
fn configuration(upstream: &Upstream, lines: &str, authority: &Issued, own: &Issued) -> String {
    let lines: String = lines.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "_format_version: '3.0'\nservices:\n- name: s\n  url: https://localhost:{}\n  retries: 0\n{lines}  \
         routes: [{{name: r, paths: [/]}}]\n\
         ca_certificates:\n- id: {AUTHORITY_ID}\n  cert: |\n{}\
         certificates:\n- id: {CERTIFICATE_ID}\n  cert: |\n{}  key: |\n{}",
        upstream.address.port(),
        indented(&authority.pem()),
        indented(&own.pem()),
        indented(&own.key()),
    )
}

fn status(gateway: &Gateway, text: &str) -> u16 {
    let posted = gateway.post_config(text);
    assert_eq!(posted.status, 201, "{}", posted.text());
    gateway.get("/", &[]).status
}

#[test]
fn an_upstream_is_verified_by_the_settings_of_its_service() {
    let root = Issued::new("root", true, None);
    let between = Issued::new("between", true, Some(&root));
    let lower = Issued::new("lower", true, Some(&between));
    let leaf = Issued::new("localhost", false, Some(&lower));
    let stranger = Issued::new("stranger", true, None);
    let upstream = upstream(&[&leaf, &lower, &between], None);
    let gateway = launch().set("database", "off").start();
    let trusts = format!("tls_verify: true\nca_certificates: [{AUTHORITY_ID}]");
    let check = |lines: &str, authority| {
        let text = configuration(&upstream, lines, authority, &leaf);
        status(&gateway, &text)
    };
    assert_eq!(check("tls_verify: false", &stranger), 200);
    assert_eq!(check("tls_verify: true", &root), 502, "no CA is trusted");
    assert_eq!(check(&trusts, &stranger), 502);
    assert_eq!(check(&format!("{trusts}\ntls_verify_depth: 1"), &root), 502);
    assert_eq!(check(&format!("{trusts}\ntls_verify_depth: 2"), &root), 200);
    assert_eq!(
        check(&trusts, &root),
        502,
        "by default at most one intermediate CA is allowed"
    );
    assert_eq!(check(&trusts, &between), 200);
    let gateway = launch()
        .set("database", "off")
        .set("nginx_proxy_proxy_ssl_verify_depth", "2")
        .start();
    let text = configuration(&upstream, &trusts, &root, &leaf);
    assert_eq!(status(&gateway, &text), 200);
}

#[test]
fn lua_code_chooses_the_verification_of_the_upstream_for_a_request() {
    let root = Issued::new("root", true, None);
    let between = Issued::new("between", true, Some(&root));
    let lower = Issued::new("lower", true, Some(&between));
    let leaf = Issued::new("localhost", false, Some(&lower));
    let upstream = upstream(&[&leaf, &lower, &between], None);
    let gateway = launch().set("database", "off").start();
    let snippet = "local verify, depth = kong.request.get_header('verify'), kong.request.get_header('depth') \
                   if verify then assert(kong.service.set_tls_verify(verify == 'on')) end \
                   if depth then assert(kong.service.set_tls_verify_depth(tonumber(depth))) end";
    let check = |lines: &str, authority: &Issued| {
        let text = configuration(&upstream, lines, authority, &leaf);
        let text = format!(
            "{text}plugins:\n- name: pre-function\n  config: {{access: [\"{snippet}\"]}}\n"
        );
        let statuses = [
            &[][..],
            &[("verify", "off")],
            &[("verify", "on")],
            &[("verify", "on"), ("depth", "2")],
            &[("verify", "on"), ("depth", "-1")],
            &[("depth", "1")],
            &[("depth", "2")],
        ];
        let plain = status(&gateway, &text);
        let statuses = statuses.map(|headers| gateway.get("/", headers).status);
        assert_eq!(plain, statuses[0]);
        statuses
    };
    let trusts = format!("ca_certificates: [{AUTHORITY_ID}]");
    let (on, off) = (
        format!("{trusts}\ntls_verify: true"),
        format!("{trusts}\ntls_verify: false"),
    );
    // The chain has two certificates between the upstream's and the root. The default depth is 1.
    assert_eq!(check(&off, &root), [200, 200, 502, 200, 502, 200, 200]);
    assert_eq!(check(&on, &root), [502, 200, 502, 200, 502, 502, 200]);
    assert_eq!(check(&on, &between), [200, 200, 200, 200, 502, 200, 200]);
    assert_eq!(
        check("tls_verify: false", &root),
        [200, 200, 502, 502, 502, 200, 200],
        "no CA is trusted"
    );
}

#[test]
fn a_common_name_is_accepted_with_a_warning_unless_settings_forbid_it() {
    let root = Issued::new("root", true, None);
    let leaf = Issued::without_alternative_name("localhost", &root);
    let upstream = upstream(&[&leaf], None);
    let trusts = format!("tls_verify: true\nca_certificates: [{AUTHORITY_ID}]");
    let text = configuration(&upstream, &trusts, &root, &leaf);
    let gateway = launch().set("database", "off").start();
    assert_eq!(status(&gateway, &text), 200);
    gateway.wait_for_log("has no subject alternative name");
    let gateway = launch()
        .set("database", "off")
        .set("upstream_tls_common_name", "off")
        .start();
    assert_eq!(status(&gateway, &text), 502);
}

#[test]
fn an_upstream_that_asks_for_a_certificate_gets_that_of_the_service() {
    let authority = Issued::new("authority", true, None);
    let server = Issued::new("localhost", false, Some(&authority));
    let own = Issued::new("gateway", false, Some(&authority));
    let upstream = upstream(&[&server], Some(&authority));
    let gateway = launch().set("database", "off").start();
    let without = configuration(&upstream, "", &authority, &own);
    assert_eq!(status(&gateway, &without), 502);
    let shown = format!("client_certificate: {CERTIFICATE_ID}");
    let text = configuration(&upstream, &shown, &authority, &own);
    assert_eq!(status(&gateway, &text), 200);
    let seen = upstream.seen.lock().expect("no panic").clone();
    let expected = Some(own.certificate.der().to_vec());
    assert_eq!(seen.last().expect("a handshake").shown, expected);
}

#[test]
fn the_certificate_of_the_settings_is_sent_if_a_service_has_none() {
    let authority = Issued::new("authority", true, None);
    let server = Issued::new("localhost", false, Some(&authority));
    let own = Issued::new("gateway", false, Some(&authority));
    let upstream = upstream(&[&server], Some(&authority));
    let gateway = launch()
        .set("database", "off")
        .set("client_ssl", "on")
        .set("client_ssl_cert", own.pem())
        .set("client_ssl_cert_key", own.key())
        .start();
    let text = configuration(&upstream, "", &authority, &own);
    assert_eq!(status(&gateway, &text), 200);
}

#[test]
fn sessions_with_an_upstream_are_resumed() {
    let authority = Issued::new("authority", true, None);
    let server = Issued::new("localhost", false, Some(&authority));
    let upstream = upstream(&[&server], None);
    let gateway = launch()
        .set("database", "off")
        .set("nginx_worker_processes", "3")
        .start();
    let text = configuration(&upstream, "", &authority, &server);
    assert_eq!(status(&gateway, &text), 200);
    for _ in 0..5 {
        assert_eq!(gateway.get("/", &[]).status, 200);
    }
    let seen = upstream.seen.lock().expect("no panic").clone();
    let resumed = seen
        .iter()
        .map(|one| one.kind == Some(HandshakeKind::Resumed));
    assert_eq!(
        resumed.collect::<Vec<_>>(),
        [false, true, true, true, true, true]
    );
}
