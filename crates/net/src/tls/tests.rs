use super::*;
use std::io;

fn table(names: &[&str]) -> (SniTable, Vec<Arc<Certificates>>) {
    let mut table = SniTable::new(Some(Arc::new(self_signed().unwrap())));
    let made: Vec<_> = names
        .iter()
        .map(|name| {
            let certificates = Arc::new(self_signed().unwrap());
            table.insert(name, certificates.clone());
            certificates
        })
        .collect();
    (table, made)
}

#[test]
fn a_name_gets_the_most_specific_certificate() {
    let names = ["a.example.com", "*.example.com", "www.example.*", "*.com"];
    let (table, made) = table(&names);
    let found = |name: &str| {
        let found = table.find(Some(name)).unwrap();
        made.iter().position(|other| Arc::ptr_eq(found, other))
    };
    assert_eq!(found("A.example.com"), Some(0));
    assert_eq!(found("b.example.com"), Some(1));
    assert_eq!(found("www.example.org"), Some(2));
    assert_eq!(found("a.b.example.com"), None);
    assert_eq!(
        found("example.com"),
        None,
        "a star needs two labels after it"
    );
    assert!(table.find(None).is_some());
}

#[test]
fn the_lone_star_comes_before_the_default() {
    let (table, made) = table(&["*"]);
    assert!(Arc::ptr_eq(table.find(Some("x")).unwrap(), &made[0]));
    assert!(Arc::ptr_eq(table.find(None).unwrap(), &made[0]));
}

#[test]
fn unreadable_certificates_and_keys_are_refused() {
    assert!(matches!(
        Certificates::from_pem("", ""),
        Err(CertificateError::Certificate)
    ));
    assert!(matches!(
        ClientTls::new(trusted(&["nonsense"]), None),
        Err(CertificateError::Certificate)
    ));
}

#[test]
fn a_certificate_that_was_made_here_says_so() {
    let made = self_signed().unwrap();
    let holds = |text: &str| {
        let mut windows = made.main().cert[0].windows(text.len());
        windows.any(|window| window == text.as_bytes())
    };
    assert!(holds("localhost") && holds("Silverback") && !holds("rcgen"));
}

fn trusted(pems: &[&str]) -> Trust {
    Trust::Authorities {
        pems: pems.iter().map(|&pem| pem.to_owned()).collect(),
        depth: 1,
        common_name: CommonName::Taken,
    }
}

#[derive(Debug)]
struct One(Arc<Certificates>);

impl CertificateSource for One {
    fn certificates(&self, _: Option<&str>) -> Option<Arc<Certificates>> {
        Some(self.0.clone())
    }
}

/// Whether a client with this trust completes a handshake with a server that has these certificates.
async fn shakes_hands(certificates: Certificates, trust: Trust, name: &str) -> bool {
    shakes_hands_by(Versions::BOTH, certificates, trust, name).await
}

async fn shakes_hands_by(
    versions: Versions,
    certificates: Certificates,
    trust: Trust,
    name: &str,
) -> bool {
    shake_hands(versions, certificates, trust, name)
        .await
        .is_ok()
}

/// Returns the group of the key exchange.
async fn shake_hands(
    versions: Versions,
    certificates: Certificates,
    trust: Trust,
    name: &str,
) -> io::Result<rustls::NamedGroup> {
    let settings = ServerSettings {
        versions,
        ..ServerSettings::default()
    };
    let source = Arc::new(One(Arc::new(certificates)));
    let server = ServerTls::with_settings(source, Alpn::Http, &settings).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let tls = ClientTls::new(trust, None).unwrap();
        let stream = tls.connect(stream, name).await?;
        let group = stream.get_ref().1.negotiated_key_exchange_group();
        Ok(group.unwrap().name())
    };
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        server.accept(stream).await.is_ok()
    };
    tokio::join!(client, server).0
}

#[tokio::test]
async fn clients_and_upstreams_are_offered_a_post_quantum_key_exchange() {
    use rustls::NamedGroup;
    for (versions, expected) in [
        (Versions::BOTH, NamedGroup::X25519MLKEM768),
        // TLS 1.2 has no such groups.
        (
            Versions {
                tls13: false,
                ..Versions::BOTH
            },
            NamedGroup::X25519,
        ),
    ] {
        let certificates = self_signed().unwrap();
        let group = shake_hands(versions, certificates, Trust::Anyone, "up.test").await;
        assert_eq!(group.unwrap(), expected);
    }
}

#[tokio::test]
async fn certificates_on_p521_work() {
    let pem = include_str!("data/p521.pem");
    let certificates = Certificates::from_pem(pem, pem).unwrap();
    assert!(shakes_hands(certificates, Trust::Anyone, "localhost").await);
}

#[tokio::test]
async fn verification_follows_the_trust_settings() {
    let made = rcgen::generate_simple_self_signed(vec!["up.example.com".into()]).unwrap();
    let pem = made.cert.pem();
    let pair = || Certificates::from_pem(&pem, &made.signing_key.serialize_pem()).unwrap();
    assert!(shakes_hands(pair(), Trust::Anyone, "other:8443").await);
    assert!(!shakes_hands(pair(), trusted(&[]), "up.example.com").await);
    assert!(shakes_hands(pair(), trusted(&[&pem]), "up.example.com").await);
    assert!(!shakes_hands(pair(), trusted(&[&pem]), "other.example.com").await);
}

#[tokio::test]
async fn a_name_that_is_no_host_name_is_not_sent_and_cannot_be_verified() {
    let made = rcgen::generate_simple_self_signed(vec!["up.example.com".into()]).unwrap();
    let pem = made.cert.pem();
    let pair = || Certificates::from_pem(&pem, &made.signing_key.serialize_pem()).unwrap();
    let long = "a".repeat(300);
    for name in ["a!b", "a!b:8443", "", "[", "a..b", &long] {
        assert!(shakes_hands(pair(), Trust::Anyone, name).await, "{name:?}");
        let verified = shake_hands(Versions::BOTH, pair(), trusted(&[&pem]), name).await;
        assert!(is_about_name(&verified.unwrap_err()), "{name:?}");
    }
    let other = shake_hands(Versions::BOTH, pair(), trusted(&[&pem]), "other.test").await;
    assert!(is_about_name(&other.unwrap_err()));
    let distrusted = shake_hands(Versions::BOTH, pair(), trusted(&[]), "up.example.com").await;
    assert!(!is_about_name(&distrusted.unwrap_err()));
}

#[tokio::test]
async fn the_name_may_be_an_ipv6_address_with_or_without_port_and_brackets() {
    let made = rcgen::generate_simple_self_signed(vec!["::1".into()]).unwrap();
    let pem = made.cert.pem();
    let pair = || Certificates::from_pem(&pem, &made.signing_key.serialize_pem()).unwrap();
    for name in ["[::1]", "[::1]:8443", "::1"] {
        let verified = shake_hands(Versions::BOTH, pair(), trusted(&[&pem]), name).await;
        assert!(verified.is_ok(), "{name}: {verified:?}");
    }
    assert!(!shakes_hands(pair(), trusted(&[&pem]), "[::2]").await);
}

/// Certificate of version 1, as created by `openssl x509 -req`.
const OLD_CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBFjCBvQIUPRUMFh3Yvji8cB+Gu4pUmegbHj4wCgYIKoZIzj0EAwIwDjEMMAoG
A1UEAwwDb2xkMB4XDTI2MTEyMjA3MDYwMloXDTQ2MTExNzA3MDYwMlowDjEMMAoG
A1UEAwwDb2xkMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEzFZ1BDvGhPRvxu+W
zrOtoL+iqgFzqk2KtvDA7PCvbqe1wSVfxju7ximsdPBlnSnoPOLiV3Ne5A/PIgRP
QSb26jAKBggqhkjOPQQDAgNIADBFAiEAxulv7oyw9hXrv/M6rMGU6PbFQQzNlxZp
h0ZMcRYSx44CIGj/1G5npkz/WOYs9pfOMOMHDF2iBDuPrQ+BxXelu46h
-----END CERTIFICATE-----";
const OLD_KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg+bb88b33A4WrWRfE
tlWR20rFm9Oc8QLcHkKmDmrxpZShRANCAATMVnUEO8aE9G/G75bOs62gv6KqAXOq
TYq28MDs8K9up7XBJV/GO7vGKax08GWdKeg84uJXc17kD88iBE9BJvbq
-----END PRIVATE KEY-----";

#[tokio::test]
async fn a_certificate_of_version_1_serves_those_who_do_not_verify() {
    let pair = || Certificates::from_pem(OLD_CERTIFICATE, OLD_KEY).unwrap();
    for tls13 in [false, true] {
        let versions = Versions {
            tls12: !tls13,
            tls13,
        };
        let done = shakes_hands_by(versions, pair(), Trust::Anyone, "old:8443").await;
        assert!(done, "{versions:?}");
    }
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let mismatch = Certificates::from_pem(OLD_CERTIFICATE, &other);
    assert!(matches!(mismatch, Err(CertificateError::Mismatch)));
}

#[tokio::test]
async fn a_certificate_of_version_1_is_not_verified_and_the_error_says_what_to_do() {
    let pair = Certificates::from_pem(OLD_CERTIFICATE, OLD_KEY).unwrap();
    let trust = trusted(&[OLD_CERTIFICATE]);
    let shaken = shake_hands(Versions::BOTH, pair, trust, "old:8443").await;
    let error = shaken.unwrap_err();
    assert!(!is_about_name(&error));
    let text = error.to_string();
    assert!(
        text.contains("reissue it as version 3") && text.contains("tls_verify"),
        "{text}"
    );
}

#[tokio::test]
async fn a_client_certificate_of_version_1_is_refused_and_the_error_says_what_to_do() {
    for authorities in [&*issue("root", true, None).pem, OLD_CERTIFICATE] {
        let clients = ClientAuth::new(authorities, WithoutCertificate::Continue).unwrap();
        let source = Arc::new(One(Arc::new(self_signed().unwrap())));
        let settings = ServerSettings::default();
        let server = ServerTls::asking(source, Alpn::Http, &settings, Some(clients)).unwrap();
        let identity = ClientIdentity {
            cert: OLD_CERTIFICATE.to_owned(),
            key: OLD_KEY.to_owned(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let tls = ClientTls::new(Trust::Anyone, Some(identity)).unwrap();
            tls.connect(stream, "localhost").await.map(drop)
        };
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            server.accept(stream).await.map(drop)
        };
        let (_, accepted) = tokio::join!(client, server);
        let text = accepted.unwrap_err().to_string();
        assert!(text.contains("issue it anew as version 3"), "{text}");
    }
}

/// A CA certificate, or a certificate issued by a CA.
struct Issued {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

fn issue(name: &str, is_authority: bool, by: Option<&Issued>) -> Issued {
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    if is_authority {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    }
    issue_as(params, by)
}

fn issue_as(params: rcgen::CertificateParams, by: Option<&Issued>) -> Issued {
    let key = rcgen::KeyPair::generate().unwrap();
    let made = match by {
        None => params.self_signed(&key).unwrap(),
        Some(by) => params.signed_by(&key, &by.issuer).unwrap(),
    };
    Issued {
        pem: made.pem(),
        issuer: rcgen::Issuer::new(params, key),
    }
}

#[tokio::test]
async fn a_chain_may_be_as_long_as_the_depth_says() {
    let root = issue("root", true, None);
    let first = issue("first", true, Some(&root));
    let second = issue("second", true, Some(&first));
    let leaf = issue("up.example.com", false, Some(&second));
    let chain = [&*leaf.pem, &second.pem, &first.pem].concat();
    let key = leaf.issuer.key().serialize_pem();
    for (depth, expected) in [(0, false), (1, false), (2, true), (9, true)] {
        let pair = Certificates::from_pem(&chain, &key).unwrap();
        let trust = Trust::Authorities {
            pems: vec![root.pem.clone()],
            depth,
            common_name: CommonName::Taken,
        };
        let done = shakes_hands(pair, trust, "up.example.com").await;
        assert_eq!(done, expected, "{depth}");
    }
    // An intermediate CA certificate counts as a root if it is trusted itself.
    let pair = Certificates::from_pem(&chain, &key).unwrap();
    let trust = Trust::Authorities {
        pems: vec![second.pem.clone()],
        depth: 0,
        common_name: CommonName::Taken,
    };
    assert!(shakes_hands(pair, trust, "up.example.com").await);
}

/// Creates a certificate with this common name and these alternative names.
fn named_as(common: &str, others: &[&str], by: &Issued) -> Certificates {
    let others: Vec<String> = others.iter().map(|&name| name.to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(others).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, common);
    let leaf = issue_as(params, Some(by));
    Certificates::from_pem(&leaf.pem, &leaf.issuer.key().serialize_pem()).unwrap()
}

#[tokio::test]
async fn a_common_name_counts_only_where_there_is_no_other_name() {
    let root = issue("root", true, None);
    let trust = |common_name| Trust::Authorities {
        pems: vec![root.pem.clone()],
        depth: 1,
        common_name,
    };
    let taken = || trust(CommonName::Taken);
    let pair = |common, others: &[&str]| named_as(common, others, &root);
    assert!(shakes_hands(pair("up.test", &[]), taken(), "up.test:8443").await);
    assert!(shakes_hands(pair("*.up.test", &[]), taken(), "a.up.test").await);
    assert!(shakes_hands(pair("127.0.0.1", &[]), taken(), "127.0.0.1").await);
    assert!(!shakes_hands(pair("up.test", &[]), taken(), "other.test").await);
    assert!(!shakes_hands(pair("up.test", &["other.test"]), taken(), "up.test").await);
    let ignored = trust(CommonName::Ignored);
    assert!(!shakes_hands(pair("up.test", &[]), ignored, "up.test").await);
    // The issuer is verified even if only the common name matches.
    let stranger = issue("stranger", true, None);
    let signed = named_as("up.test", &[], &stranger);
    assert!(!shakes_hands(signed, taken(), "up.test").await);
}

#[tokio::test]
async fn the_common_name_of_an_authority_for_some_names_does_not_count() {
    let mut params = rcgen::CertificateParams::new(vec!["root".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.name_constraints = Some(rcgen::NameConstraints {
        permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("inner.test".into())],
        excluded_subtrees: Vec::new(),
    });
    let root = issue_as(params, None);
    let inside = named_as("other", &["a.inner.test"], &root);
    assert!(shakes_hands(inside, trusted(&[&root.pem]), "a.inner.test").await);
    for name in ["up.test", "a.inner.test"] {
        let common = named_as(name, &[], &root);
        assert!(!shakes_hands(common, trusted(&[&root.pem]), name).await);
    }
}

#[test]
fn keys_that_cannot_sign_are_refused_by_their_kind() {
    for (pem, kind) in [
        (include_str!("data/secp256k1.pem"), "ECDSA on secp256k1"),
        (include_str!("data/rsa1024.pem"), "RSA of 1024 bits"),
        (include_str!("data/ed448.pem"), "Ed448"),
    ] {
        let refused = Certificates::from_pem(pem, pem).unwrap_err().to_string();
        let expected =
            format!("the private key is {kind}, which this gateway cannot sign with: use");
        assert!(refused.starts_with(&expected), "{refused}");
    }
    // If only the key is unsupported, but not the certificate, the error is a different one.
    let made = rcgen::generate_simple_self_signed(vec!["a.test".into()]).unwrap();
    let refused = Certificates::from_pem(&made.cert.pem(), include_str!("data/secp256k1.pem"));
    assert!(matches!(refused, Err(CertificateError::Unusable(_))));
}

/// Sends these bytes as a client. Returns the response, and whether the connection closed without a reset. `held` says
/// whether the server holds the handshake.
async fn answer_to(sent: Vec<u8>, held: bool) -> (Vec<u8>, std::io::Result<usize>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let source = Arc::new(One(Arc::new(self_signed().unwrap())));
    let server = ServerTls::new(source).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(&sent).await.unwrap();
        let mut read = Vec::new();
        let end = stream.read_to_end(&mut read).await;
        (read, end)
    };
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        let accepted = match held {
            false => server.accept(stream).await,
            true => match server.hold(stream).await {
                Ok(held) => held.go_on().await,
                Err(error) => Err(error),
            },
        };
        assert!(accepted.is_err());
    };
    tokio::join!(client, server).0
}

#[tokio::test]
async fn a_failed_handshake_ends_with_an_alert_that_the_client_can_read() {
    // The server fails before it reads all of these bytes. If it closed without reading them, a reset would discard the
    // alert.
    let behind = vec![0; 50_000];
    let mut large = vec![22, 3, 1, 0x40, 0, 1, 1, 0, 0];
    large.extend(vec![7; 0x4000 - 4]);
    let hello = crate::client_hello::tests::real_hello("a.test", true);
    // A hello in two records, with another record between them.
    let mut interleaved = vec![22, 3, 1, 0, 20];
    interleaved.extend(&hello[5..25]);
    interleaved.extend([23, 3, 3, 0, 1, 0]);
    let mut misnamed = hello.clone();
    let at = memchr::memmem::find(&misnamed, b"a.test").unwrap();
    misnamed[at + 1] = b':';
    for (what, opening) in [
        ("data without any", vec![23, 3, 3, 0, 0]),
        ("data", vec![23, 3, 3, 0, 1, 0]),
        ("an unknown type", vec![99, 3, 3, 0, 1, 0]),
        ("an empty handshake", vec![22, 3, 3, 0, 0]),
        ("an unknown version", vec![22, 9, 3, 0, 1, 0]),
        ("a large record", vec![22, 3, 3, 0xff, 0xff]),
        ("a large hello", large),
        ("a message in another", interleaved),
        ("a name that is none", misnamed),
    ] {
        for held in [false, true] {
            let sent = [&*opening, &*behind].concat();
            let (read, end) = answer_to(sent, held).await;
            assert!(end.is_ok(), "{what}: {end:?}");
            assert!(
                matches!(read[..], [21, 3, _, 0, 2, 2, _]),
                "{what}: {read:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_held_handshake_goes_on_or_ends_with_an_alert() {
    let source = Arc::new(One(Arc::new(self_signed().unwrap())));
    let server = ServerTls::new(source).unwrap().offering(true);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for (offer, refuses) in [
        (Offer::Nothing, false),
        (Offer::Either, false),
        (Offer::Either, true),
    ] {
        let client = async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let tls = ClientTls::new(Trust::Anyone, None).unwrap();
            tls.connect_offering(stream, "a.test", offer).await
        };
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let held = server.hold(stream).await.unwrap();
            assert_eq!(held.server_name(), Some("a.test"));
            assert_eq!(held.offers_http2(), offer != Offer::Nothing);
            if refuses {
                held.refuse().await;
                return None;
            }
            let stream = held.go_on().await.unwrap();
            let (_, connection) = stream.get_ref();
            Some((version_name(connection), cipher_name(connection)))
        };
        let (client, told) = tokio::join!(client, server);
        if refuses {
            let error = client.unwrap_err().to_string();
            assert!(error.contains("InternalError"), "{error}");
        } else {
            client.unwrap();
            assert_eq!(told, Some(("TLSv1.3", "TLS_AES_256_GCM_SHA384")));
        }
    }
}
