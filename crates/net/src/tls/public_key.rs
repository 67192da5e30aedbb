//! Reads the public key of a certificate, also of X.509 version 1. webpki, which parses certificates for rustls,
//! refuses version 1. OpenSSL and thus Kong accept it, and `openssl x509 -req` creates such certificates by default.

use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use x509_parser::der_parser::asn1_rs::{Any, Class, FromDer, Tag};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Tag of the version field, `[0]`. Certificates of version 1 do not have this field.
const VERSION: Tag = Tag(0);

/// Returns the public key, or `None` if it cannot be found. The other fields of the certificate are not checked.
pub(super) fn of<'a>(certificate: &'a CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'a>> {
    let mut signed = sequence(&mut certificate.as_ref())?;
    let mut fields = sequence(&mut signed)?;
    let first = next(&mut fields)?;
    let has_version = first.class() == Class::ContextSpecific && first.tag() == VERSION;
    let _serial_number = if has_version {
        next(&mut fields)?
    } else {
        first
    };
    let [_signature, _issuer, _validity, _subject] = std::array::from_fn(|_| sequence(&mut fields));
    let from_key = fields;
    sequence(&mut fields)?;
    Some(from_key[..from_key.len() - fields.len()].into())
}

/// Returns the type of a certificate's key if rustls cannot sign with that type.
pub(super) fn unusable_kind(certificate: &CertificateDer<'_>) -> Option<String> {
    let key = of(certificate)?;
    let (_, key) = SubjectPublicKeyInfo::from_der(&key).ok()?;
    let algorithm = key.algorithm.algorithm.to_id_string();
    match &*algorithm {
        "1.2.840.113549.1.1.1" => match key.parsed().ok()? {
            PublicKey::RSA(rsa) if (2048..=8192).contains(&rsa.key_size()) => None,
            PublicKey::RSA(rsa) => Some(format!("RSA of {} bits", rsa.key_size())),
            _ => None,
        },
        "1.2.840.10045.2.1" => {
            let curve = key.algorithm.parameters.as_ref().map(Any::as_oid)?;
            let curve = curve.ok()?.to_id_string();
            let name = match &*curve {
                "1.2.840.10045.3.1.7" | "1.3.132.0.34" | "1.3.132.0.35" => return None,
                "1.3.132.0.10" => "secp256k1",
                other => other,
            };
            Some(format!("ECDSA on {name}"))
        }
        "1.3.101.112" => None,
        "1.3.101.113" => Some("Ed448".to_owned()),
        other => Some(format!("of the algorithm {other}")),
    }
}

/// Returns the first DER element of the input and removes it from the input.
fn next<'a>(input: &mut &'a [u8]) -> Option<Any<'a>> {
    let (rest, element) = Any::from_der(input).ok()?;
    *input = rest;
    Some(element)
}

fn sequence<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let element = next(input)?;
    (element.tag() == Tag::Sequence).then_some(element.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_found_in_a_certificate_but_not_in_a_part_of_one() {
        let made = rcgen::generate_simple_self_signed(vec!["a.example.com".into()]).unwrap();
        let key = rcgen::PublicKeyData::subject_public_key_info(&made.signing_key);
        let certificate = made.cert.der();
        assert_eq!(of(certificate).unwrap().as_ref(), key);
        for length in 0..certificate.len() {
            let part = CertificateDer::from(&certificate[..length]);
            assert!(of(&part).is_none(), "{length}");
        }
    }
}
