//! Client certificates for the Admin API, with and without tokens, and wrong settings for them.

use crate::launch;
use crate::tls::trusting_anyone_as;
use crate::upstream_tls::Issued;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::net::TcpStream;
use std::sync::Arc;
use testkit::{Client, Gateway, HttpResponse, Launch};

const CERTIFICATE: &str = "nginx_admin_ssl_client_certificate";
const VERIFY: &str = "nginx_admin_ssl_verify_client";

/// A gateway to start. Its Admin API listens with and without TLS and trusts client certificates of this CA.
fn trusting(authority: &Issued) -> Launch {
    launch()
        .set("admin_listen", "127.0.0.1:0, 127.0.0.1:0 ssl")
        .set(CERTIFICATE, authority.pem())
}

/// Sends one request over TLS, with the client certificate `shown` if there is one. Returns `None` if the handshake
/// fails or no response arrives.
fn ask(
    gateway: &Gateway,
    shown: Option<&Issued>,
    method: &str,
    headers: &[(&str, &str)],
) -> Option<HttpResponse> {
    let config = Arc::new(trusting_anyone_as(shown.map(Issued::pair)));
    let name = ServerName::try_from("admin.test").expect("a valid name");
    let connection = ClientConnection::new(config, name).expect("a valid setup");
    let stream =
        TcpStream::connect(gateway.admin_tls.expect("a TLS listener")).expect("it listens");
    let mut client = Client::over(StreamOwned::new(connection, stream));
    let headers = [&[("Content-Type", "application/json")], headers].concat();
    let body = br#"{"url": "http://a.test"}"#;
    client
        .send(testkit::http::encode(method, "/services", &headers, body))
        .ok()?;
    client.receive(method).ok()
}

fn status(gateway: &Gateway, shown: Option<&Issued>, headers: &[(&str, &str)]) -> Option<u16> {
    ask(gateway, shown, "POST", headers).map(|answer| answer.status)
}

#[test]
fn a_certificate_of_the_trusted_ca_replaces_a_token() {
    let authority = Issued::new("authority", true, None);
    let operator = Issued::new("operator", false, Some(&authority));
    let stranger = Issued::new("stranger", false, Some(&Issued::new("other", true, None)));
    let mut gateway = trusting(&authority).start();
    assert_eq!(status(&gateway, Some(&operator), &[]), Some(201));
    assert_eq!(status(&gateway, Some(&stranger), &[]), None, "no handshake");
    assert_eq!(status(&gateway, None, &[]), Some(401));
    let plain = testkit::get(gateway.admin, "/services", &[]);
    assert_eq!(
        plain.status, 401,
        "a client can send no certificate without TLS"
    );
    let token = gateway
        .launch()
        .other(&["tokens", "create", "eyes", "--role", "read-only"])
        .output();
    let token = String::from_utf8(token.expect("it runs").stdout).expect("text");
    let bearer = format!("Bearer {}", token.trim());
    let header = [("Authorization", &*bearer)];
    let read = ask(&gateway, None, "GET", &header).map(|answer| answer.status);
    assert_eq!(read, Some(200));
    // If a client sends a certificate and a token, the role of the token applies.
    assert_eq!(status(&gateway, Some(&operator), &header), Some(403));
    let audit = gateway.launch().prefix().join("logs/admin_audit.log");
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let audit = std::fs::read_to_string(audit).expect("it is written");
    assert!(audit.contains(r#""actor":"CN=operator""#), "{audit}");
}

#[test]
fn certificates_have_a_role_of_their_own() {
    let authority = Issued::new("authority", true, None);
    let viewer = Issued::new("viewer", false, Some(&authority));
    let gateway = trusting(&authority)
        .set("admin_ssl_client_role", "read-only")
        .start();
    let read = ask(&gateway, Some(&viewer), "GET", &[]).map(|answer| answer.status);
    assert_eq!(read, Some(200));
    assert_eq!(status(&gateway, Some(&viewer), &[]), Some(403));
}

#[test]
fn a_certificate_can_be_required() {
    let authority = Issued::new("authority", true, None);
    let operator = Issued::new("operator", false, Some(&authority));
    // Required client certificates are enough for a listener that other machines can reach.
    let gateway = trusting(&authority)
        .set("admin_listen", "0.0.0.0:0 ssl")
        .set(VERIFY, "on")
        .start();
    assert_eq!(status(&gateway, Some(&operator), &[]), Some(201));
    assert_eq!(status(&gateway, None, &[]), None, "no handshake");
}

#[test]
fn wrong_certificate_settings_are_reported_at_start() {
    let failure = |launch: Launch| launch.try_start().map(drop).expect_err("it started");
    let log = failure(launch().set(VERIFY, "on"));
    assert!(log.contains(CERTIFICATE), "{log}");
    for wrong in ["/nowhere.pem", "-----BEGIN CERTIFICATE-----\n"] {
        let log = failure(launch().set(CERTIFICATE, wrong));
        assert!(log.contains(&format!("setting {CERTIFICATE}")), "{log}");
    }
}
