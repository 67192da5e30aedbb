use super::*;

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
    assert_eq!(found("example.com"), None, "two labels have no `*.com`");
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

fn trusted(pems: &[&str]) -> Trust {
    Trust::Authorities {
        pems: pems.iter().map(|&pem| pem.to_owned()).collect(),
        depth: 1,
    }
}

#[derive(Debug)]
struct One(Arc<Certificates>);

impl CertificateSource for One {
    fn certificates(&self, _: Option<&str>) -> Option<Arc<Certificates>> {
        Some(self.0.clone())
    }
}

/// Whether a client with this trust completes a handshake with a server of this certificate.
async fn shakes_hands(certificates: Certificates, trust: Trust, name: &str) -> bool {
    shakes_hands_by(Versions::BOTH, certificates, trust, name).await
}

async fn shakes_hands_by(
    versions: Versions,
    certificates: Certificates,
    trust: Trust,
    name: &str,
) -> bool {
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
        tls.connect(stream, name).await.is_ok()
    };
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        server.accept(stream).await.is_ok()
    };
    tokio::join!(client, server).0
}

#[tokio::test]
async fn verification_is_what_the_service_says() {
    let made = rcgen::generate_simple_self_signed(vec!["up.example.com".into()]).unwrap();
    let pem = made.cert.pem();
    let pair = || Certificates::from_pem(&pem, &made.signing_key.serialize_pem()).unwrap();
    assert!(shakes_hands(pair(), Trust::Anyone, "other:8443").await);
    assert!(!shakes_hands(pair(), trusted(&[]), "up.example.com").await);
    assert!(shakes_hands(pair(), trusted(&[&pem]), "up.example.com").await);
    assert!(!shakes_hands(pair(), trusted(&[&pem]), "other.example.com").await);
}

/// Of version 1, as `openssl x509 -req` makes them.
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
    assert!(!shakes_hands(pair(), trusted(&[OLD_CERTIFICATE]), "old:8443").await);
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let mismatch = Certificates::from_pem(OLD_CERTIFICATE, &other);
    assert!(matches!(mismatch, Err(CertificateError::Unusable(_))));
}

/// An authority, or what one has issued.
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
        };
        let done = shakes_hands(pair, trust, "up.example.com").await;
        assert_eq!(done, expected, "{depth}");
    }
    // An authority between counts as one once it is trusted itself.
    let pair = Certificates::from_pem(&chain, &key).unwrap();
    let trust = Trust::Authorities {
        pems: vec![second.pem.clone()],
        depth: 0,
    };
    assert!(shakes_hands(pair, trust, "up.example.com").await);
}
