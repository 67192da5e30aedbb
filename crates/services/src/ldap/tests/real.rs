//! Tests with OpenLDAP's server, where it is installed.

use super::*;
use testkit::slapd::{Identity, Slapd};

const TREE: &str = "\
dn: dc=case,dc=test
objectClass: dcObject
objectClass: organization
dc: case
o: case

dn: cn=nora,dc=case,dc=test
objectClass: person
cn: nora
sn: Berg
userPassword: nora-pw
";

const NORA: &str = "cn=nora,dc=case,dc=test";

async fn verdict(server: &Server, name: &str, password: &str) -> Result<Verdict, LdapError> {
    server.bind(name.to_owned(), password.into()).await
}

fn code(verdict: Result<Verdict, LdapError>) -> u32 {
    match verdict.unwrap() {
        Verdict::Accepted => 0,
        Verdict::Refused(refusal) => refusal.code,
    }
}

/// A client that trusts this certificate.
fn trusting(pem: &str) -> Client {
    client(Trust::Authorities {
        pems: vec![pem.to_owned()],
        depth: 1,
        common_name: net::tls::CommonName::Ignored,
    })
}

#[tokio::test]
async fn a_real_directory_is_asked_with_and_without_tls() {
    let names = ["127.0.0.1".to_owned()];
    let identity = rcgen::generate_simple_self_signed(names).unwrap();
    let (certificate, key) = (identity.cert.pem(), identity.signing_key.serialize_pem());
    let served = Identity {
        certificate: &certificate,
        key: &key,
    };
    let Some(slapd) = Slapd::start(TREE, Some(served)) else {
        return;
    };
    for (address, security) in [
        (slapd.address, Security::Plain),
        (slapd.address, Security::StartTls),
        (slapd.tls, Security::Tls),
    ] {
        let mut settings = settings(address);
        settings.security = security;
        settings.verify = true;
        let server = trusting(&certificate).server(settings.clone());
        assert_eq!(code(verdict(&server, NORA, "nora-pw").await), 0);
        assert_eq!(code(verdict(&server, NORA, "wrong").await), 49);
        let other = "cn=otto,dc=case,dc=test";
        assert_eq!(code(verdict(&server, other, "nora-pw").await), 49);
        // invalidDNSyntax
        assert_eq!(code(verdict(&server, "nora", "nora-pw").await), 34);
        assert_eq!(code(verdict(&server, NORA, "nora-pw").await), 0);
        assert_eq!(server.pool.idle_connections(), 1);
        if security == Security::Plain {
            continue;
        }
        // A certificate of nobody that is trusted.
        let stranger = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let server = trusting(&stranger.cert.pem()).server(settings.clone());
        let error = verdict(&server, NORA, "nora-pw").await.unwrap_err();
        let refused = matches!(error.kind, LdapErrorKind::Connect(ConnectError::Tls(_)));
        assert!(refused, "{error:?}");
        settings.verify = false;
        let server = trusting(&stranger.cert.pem()).server(settings);
        assert_eq!(code(verdict(&server, NORA, "nora-pw").await), 0);
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let identity = rcgen::generate_simple_self_signed(["ldap.test".to_owned()]).unwrap();
    let (certificate, key) = (identity.cert.pem(), identity.signing_key.serialize_pem());
    let served = Identity {
        certificate: &certificate,
        key: &key,
    };
    let Some(slapd) = Slapd::start(TREE, Some(served)) else {
        return;
    };
    let mut settings = settings(slapd.tls);
    settings.security = Security::Tls;
    settings.verify = true;
    let server = trusting(&certificate).server(settings);
    let error = verdict(&server, NORA, "nora-pw").await.unwrap_err();
    assert!(matches!(
        error.kind,
        LdapErrorKind::Connect(ConnectError::Tls(_))
    ));
}
