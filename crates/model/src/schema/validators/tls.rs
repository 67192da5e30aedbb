//! Validates the encoding of certificates and keys. Also checks whether a key belongs to its certificate and whether a
//! CA certificate may be used. Whether a key is usable is checked when it is loaded for a listener.

use super::Verdict;
use crate::value::Value;
use x509_parser::asn1_rs::{Any, FromDer, Sequence, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::X509Version;

pub(super) fn certificate(text: &str) -> Result<(), String> {
    let pem = first_pem(text).ok_or("invalid certificate: no PEM block found")?;
    X509Certificate::from_der(&pem.contents)
        .map(drop)
        .map_err(|error| format!("invalid certificate: {error}"))
}

pub(super) fn key(text: &str) -> Result<(), String> {
    match private_key(text) {
        Some(_) => Ok(()),
        None => Err("invalid key: not a private key in PEM".to_owned()),
    }
}

/// Validates a public key that verifies JSON Web Tokens. Source: kong/plugins/jwt/daos.lua.
pub(super) fn public_key(text: &str) -> Result<(), String> {
    if is_public_key(text) {
        return Ok(());
    }
    Err("invalid key".to_owned())
}

/// Validates the `pem` field of a `keys` entity.
pub(super) fn pem(value: &Value) -> Verdict {
    let Some(pem) = value.as_object() else {
        return Ok(());
    };
    let given = |name: &str| {
        let text = pem.get(name)?;
        if crate::schema::engine::is_vault_reference(text) {
            return None;
        }
        text.as_str()
    };
    if given("private_key").is_some_and(|text| private_key(text).is_none()) {
        return Err("could not load private key".into());
    }
    if given("public_key").is_some_and(|text| !is_public_key(text)) {
        return Err("could not load public key".into());
    }
    Ok(())
}

/// Checks that a JSON Web Key has the members that its type requires. Source: kong/db/schema/entities/keys.lua (RFC
/// 7518).
pub(super) fn jwk(jwk: &serde_json::Map<String, serde_json::Value>) -> Result<(), String> {
    let needed: &[&str] = match jwk.get("kty").and_then(serde_json::Value::as_str) {
        Some("RSA") => &["n", "e"],
        Some("EC") => &["crv", "x", "y"],
        Some("OKP") => &["crv", "x"],
        Some("oct") => &["k"],
        _ => return Err(BAD_JWK.to_owned()),
    };
    let is_text = |name: &&str| jwk.get(*name).is_some_and(serde_json::Value::is_string);
    if needed.iter().all(is_text) {
        return Ok(());
    }
    Err(BAD_JWK.to_owned())
}

const BAD_JWK: &str = "could not load JWK, likely not a valid key";

/// Checks that there is exactly one certificate, and that it is an unexpired CA certificate. Source:
/// kong/db/schema/entities/ca_certificates.lua.
pub(super) fn ca_certificate(text: &str, now: i64) -> Result<(), String> {
    if text.matches("-----BEGIN CERTIFICATE-----").count() > 1 {
        return Err("please submit only one certificate at a time".to_owned());
    }
    let invalid = || "invalid certificate".to_owned();
    let pem = first_pem(text).ok_or_else(invalid)?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).map_err(|_| invalid())?;
    if certificate.validity().not_after.timestamp() < now {
        return Err("certificate expired, \"Not After\" time is in the past".to_owned());
    }
    if certificate.is_ca() {
        return Ok(());
    }
    let hint = match certificate.version() {
        X509Version::V3 => "",
        _ => OLD_VERSION,
    };
    Err(format!(
        "certificate does not appear to be a CA because it is missing the \"CA\" basic constraint{hint}"
    ))
}

/// Hint for certificates of an old version, which is appended to Kong's text.
const OLD_VERSION: &str = ": a certificate of X.509 version 1 or 2 cannot have it, so reissue it as version 3, for \
                           example with `openssl x509 -req -extfile`";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyType {
    Rsa,
    Ec,
    Other,
}

pub(super) fn key_type(certificate: &str) -> Option<KeyType> {
    let pem = first_pem(certificate)?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    Some(match certificate.public_key().parsed().ok()? {
        PublicKey::RSA(_) => KeyType::Rsa,
        PublicKey::EC(_) => KeyType::Ec,
        _ => KeyType::Other,
    })
}

/// Whether the key may belong to the certificate. A key that does not contain its public part cannot be compared here.
/// It is checked when it is loaded for a listener.
pub(super) fn is_pair(certificate: &str, key: &str) -> bool {
    let (Some(pem), Some(key)) = (first_pem(certificate), private_key(key)) else {
        return true;
    };
    let Ok((_, certificate)) = X509Certificate::from_der(&pem.contents) else {
        return true;
    };
    match (certificate.public_key().parsed(), key) {
        (Ok(PublicKey::RSA(public)), PrivateKey::Rsa { modulus }) => {
            without_zeros(public.modulus) == without_zeros(&modulus)
        }
        (
            Ok(PublicKey::EC(point)),
            PrivateKey::Ec {
                public: Some(public),
            },
        ) => point.data() == public,
        (Ok(PublicKey::EC(_)), PrivateKey::Ec { public: None }) => true,
        (Ok(PublicKey::RSA(_)), _) | (Ok(PublicKey::EC(_)), _) | (_, PrivateKey::Rsa { .. }) => {
            false
        }
        _ => true,
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let start = number.iter().position(|byte| *byte != 0);
    &number[start.unwrap_or(number.len())..]
}

fn first_pem(text: &str) -> Option<Pem> {
    Pem::iter_from_buffer(text.as_bytes()).next()?.ok()
}

fn is_public_key(text: &str) -> bool {
    let Some(pem) = first_pem(text) else {
        return false;
    };
    match pem.label.as_str() {
        "PUBLIC KEY" => x509_parser::x509::SubjectPublicKeyInfo::from_der(&pem.contents).is_ok(),
        "RSA PUBLIC KEY" => Sequence::from_der(&pem.contents).is_ok(),
        "CERTIFICATE" => X509Certificate::from_der(&pem.contents).is_ok(),
        _ => false,
    }
}

/// The type of a private key, and the public part that it contains.
enum PrivateKey {
    Rsa { modulus: Vec<u8> },
    Ec { public: Option<Vec<u8>> },
    Other,
}

fn private_key(text: &str) -> Option<PrivateKey> {
    // An `EC PARAMETERS` block with the curve may precede an elliptic curve key.
    let pem = Pem::iter_from_buffer(text.as_bytes())
        .filter_map(Result::ok)
        .find(|pem| pem.label.ends_with("PRIVATE KEY"))?;
    match pem.label.as_str() {
        "RSA PRIVATE KEY" => rsa_key(&pem.contents),
        "EC PRIVATE KEY" => ec_key(&pem.contents),
        "PRIVATE KEY" => pkcs8_key(&pem.contents),
        _ => None,
    }
}

/// Parses an RSAPrivateKey (RFC 8017), which consists of version, modulus and more.
fn rsa_key(der: &[u8]) -> Option<PrivateKey> {
    let (_, sequence) = Sequence::from_der(der).ok()?;
    let (rest, _) = Any::from_der(sequence.content.as_ref()).ok()?;
    let (_, modulus) = Any::from_der(rest).ok()?;
    (modulus.tag() == Tag::Integer).then(|| PrivateKey::Rsa {
        modulus: modulus.data.to_vec(),
    })
}

/// Parses an ECPrivateKey (RFC 5915), which consists of version, key, `[0]` curve and `[1]` public key.
fn ec_key(der: &[u8]) -> Option<PrivateKey> {
    let (_, sequence) = Sequence::from_der(der).ok()?;
    let (rest, _) = Any::from_der(sequence.content.as_ref()).ok()?;
    let (mut rest, key) = Any::from_der(rest).ok()?;
    if key.tag() != Tag::OctetString {
        return None;
    }
    let mut public = None;
    while !rest.is_empty() {
        let (after, field) = Any::from_der(rest).ok()?;
        rest = after;
        if field.tag().0 == 1 {
            let (_, bits) = Any::from_der(field.data).ok()?;
            // The first byte of a bit string is its number of unused bits.
            public = bits.data.get(1..).map(<[u8]>::to_vec);
        }
    }
    Some(PrivateKey::Ec { public })
}

/// Parses a PrivateKeyInfo (RFC 5958), which consists of version, algorithm and key.
fn pkcs8_key(der: &[u8]) -> Option<PrivateKey> {
    let (_, sequence) = Sequence::from_der(der).ok()?;
    let (rest, _) = Any::from_der(sequence.content.as_ref()).ok()?;
    let (rest, algorithm) = Any::from_der(rest).ok()?;
    let (_, key) = Any::from_der(rest).ok()?;
    let (_, name) = Any::from_der(algorithm.data).ok()?;
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    match name.data {
        RSA => rsa_key(key.data),
        EC => ec_key(key.data),
        _ => Some(PrivateKey::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "-----BEGIN CERTIFICATE-----\n";
    const END: &str = "-----END CERTIFICATE-----\n";

    /// Returns PEM texts of about `size` bytes. They contain complete and unclosed blocks, empty lines, and DER that is
    /// too deep or too long.
    fn texts(size: usize) -> Vec<String> {
        let repeated = |begin: &str, again: &str, end: &str| {
            [begin, &again.repeat(size / again.len()), end].concat()
        };
        let key = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
        let public = "-----BEGIN PUBLIC KEY-----\n";
        vec![
            repeated("", &format!("{BEGIN}MAA=\n{END}"), ""),
            repeated("", BEGIN, ""),
            repeated("", END, ""),
            repeated("", "\n", ""),
            repeated("nonsense", "-", ""),
            repeated("", "-----BEGIN ", ""),
            repeated("", "-----BEGIN A-----\nnonsense\n-----END A-----\n", ""),
            repeated(
                "",
                key,
                "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n",
            ),
            repeated(BEGIN, "AAAA", END),
            repeated(BEGIN, "MIAwgDCA\n", END),
            repeated(BEGIN, "MIIQADCCEAAwghAA\n", END),
            repeated(public, "MIAwgDCA\n", "-----END PUBLIC KEY-----\n"),
            repeated(
                "-----BEGIN RSA PRIVATE KEY-----\n",
                "MIIQAAIC\n",
                "-----END RSA PRIVATE KEY-----\n",
            ),
            repeated(
                "-----BEGIN PRIVATE KEY-----\n",
                "MIIQAAIC\n",
                "-----END PRIVATE KEY-----\n",
            ),
        ]
    }

    #[test]
    fn certificates_and_keys_cost_as_much_as_they_are_long() {
        testkit::cost::assert_linear(8 * 1024, texts, |texts: Vec<String>| {
            for text in &texts {
                std::hint::black_box(
                    (certificate(text), ca_certificate(text, 0), key(text))
                        .0
                        .ok(),
                );
                std::hint::black_box((public_key(text), key_type(text), is_pair(text, text)).1);
            }
        });
    }
}
