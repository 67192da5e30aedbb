//! Certificates and keys in entities. The files in `data/tls` were created with openssl: `rsa` is a server certificate,
//! `ec` a CA certificate.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use model::schema::Context;
use model::{Object, Value};
use plugins::install as registry;
use std::time::Duration;

fn pem(name: &str) -> String {
    let path = format!("tests/data/tls/{name}");
    std::fs::read_to_string(path).unwrap()
}

fn complete(entity: &str, fields: &[(&str, &str)]) -> Result<Object, String> {
    let input = fields
        .iter()
        .map(|(name, text)| (*name, Value::from(*text)))
        .collect();
    registry()
        .by_name(entity)
        .unwrap()
        .complete(input, &Context::at(Duration::from_secs(1_790_000_000)))
        .map_err(|error| error.message)
}

fn pair(certificate: &str, key: &str) -> Result<Object, String> {
    complete(
        "certificates",
        &[("cert", &pem(certificate)), ("key", &pem(key))],
    )
}

#[test]
fn keys_of_every_encoding_fit_their_certificate() {
    for (certificate, key) in [
        ("rsa.crt", "rsa.key"),
        ("rsa.crt", "rsa-pkcs1.key"),
        ("ec.crt", "ec.key"),
        ("ec.crt", "ec-sec1.key"),
    ] {
        pair(certificate, key).unwrap();
    }
}

#[test]
fn key_of_another_certificate_is_refused() {
    let message = "schema violation (certificate does not match key)";
    assert_eq!(pair("rsa.crt", "ec.key").unwrap_err(), message);
    assert_eq!(pair("ec.crt", "rsa.key").unwrap_err(), message);
}

#[test]
fn alternative_certificate_has_another_type_of_key() {
    let (rsa, rsa_key) = (pem("rsa.crt"), pem("rsa.key"));
    let (ec, ec_key) = (pem("ec.crt"), pem("ec.key"));
    let with = |cert_alt: &str, key_alt: &str| {
        let fields = [
            ("cert", rsa.as_str()),
            ("key", &rsa_key),
            ("cert_alt", cert_alt),
            ("key_alt", key_alt),
        ];
        complete("certificates", &fields)
    };
    with(&ec, &ec_key).unwrap();
    assert_eq!(
        with(&ec, &rsa_key).unwrap_err(),
        "schema violation (alternative certificate does not match key)"
    );
    assert!(with(&rsa, &rsa_key).unwrap_err().contains("different type"));
}

#[test]
fn digest_of_an_authority_with_tags_has_its_place_in_the_schema() {
    let mut input = Object::new();
    input.push("cert", pem("ec.crt").as_str().into());
    input.push("tags", vec!["a".into()].into());
    let context = Context::at(Duration::from_secs(1));
    let schema = registry().by_name("ca_certificates").unwrap();
    let authority = schema.complete(input, &context).unwrap();
    let names: Vec<&str> = authority.iter().map(|(name, _)| name).collect();
    let wanted = [
        "id",
        "created_at",
        "updated_at",
        "cert",
        "cert_digest",
        "tags",
    ];
    assert_eq!(names, wanted);
}

#[test]
fn json_web_keys_have_the_members_of_their_type() {
    let key = |jwk: &str| complete("keys", &[("kid", "k"), ("jwk", jwk)]);
    key(r#"{"kid":"k","kty":"oct","k":"AA"}"#).unwrap();
    for jwk in [
        r#"{"kid":"k"}"#,
        r#"{"kid":"k","kty":"RSA","n":"AQ"}"#,
        r#"{"kid":"k","kty":"none"}"#,
    ] {
        assert_eq!(
            key(jwk).unwrap_err(),
            "schema violation (could not load JWK, likely not a valid key)"
        );
    }
}

#[test]
fn authority_is_told_from_server() {
    let authority = complete("ca_certificates", &[("cert", &pem("ec.crt"))]).unwrap();
    assert_eq!(authority.str("cert_digest").unwrap().len(), 64);
    let server = complete("ca_certificates", &[("cert", &pem("rsa.crt"))]);
    assert!(
        server
            .unwrap_err()
            .contains("missing the \"CA\" basic constraint")
    );
    let old = complete("ca_certificates", &[("cert", &pem("version1.crt"))]).unwrap_err();
    assert!(
        old.contains("missing the \"CA\" basic constraint")
            && old.contains("reissue it as version 3"),
        "{old}"
    );
    let two = pem("ec.crt") + &pem("ec.crt");
    let two = complete("ca_certificates", &[("cert", &two)]);
    assert_eq!(
        two.unwrap_err(),
        "schema violation (please submit only one certificate at a time)"
    );
}

#[test]
fn damaged_certificates_and_keys_are_refused() {
    let damaged = pem("rsa.crt").replace('A', "B");
    let error = complete("certificates", &[("cert", &damaged), ("key", "")]).unwrap_err();
    assert!(error.contains("cert: invalid certificate:"), "{error}");
    assert!(error.contains("key: length must be at least 1"), "{error}");
    for text in [
        "x",
        "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
    ] {
        let error = complete("certificates", &[("cert", &pem("rsa.crt")), ("key", text)]);
        assert!(error.unwrap_err().contains("key: invalid key:"), "{text}");
    }
}

#[test]
fn public_key_of_tokens_must_load() {
    let consumer = Object::from_iter([("id", Value::from("4bf92f3d-0000-4000-8000-00000000abcd"))]);
    let secret = |key: &str| {
        let input = Object::from_iter([
            ("consumer", Value::Object(consumer.clone())),
            ("algorithm", "RS256".into()),
            ("rsa_public_key", key.into()),
        ]);
        registry()
            .by_name("jwt_secrets")
            .unwrap()
            .complete(input, &Context::at(Duration::from_secs(1_790_000_000)))
    };
    secret(&pem("ec.pub")).unwrap();
    let fields = secret("x").unwrap_err().fields.unwrap();
    assert_eq!(
        fields.get("rsa_public_key"),
        Some(&Value::from("invalid key"))
    );
}
