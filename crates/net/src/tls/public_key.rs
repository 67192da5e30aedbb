//! The public key inside of a certificate. webpki, which reads certificates for rustls, refuses those of version 1; OpenSSL and
//! so Kong take them, and they are what `openssl x509 -req` makes unless told otherwise.

use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};

const SEQUENCE: u8 = 0x30;
/// `[0]`, which version 1 leaves out.
const VERSION: u8 = 0xa0;

/// `None` for what is no certificate. Nothing else in it is looked at.
pub(super) fn of<'a>(certificate: &'a CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'a>> {
    let mut input = certificate.as_ref();
    let mut signed = sequence(&mut input)?.content;
    let mut fields = sequence(&mut signed)?.content;
    let mut first = next(&mut fields)?;
    if first.tag == VERSION {
        first = next(&mut fields)?;
    }
    let _serial_number = first;
    let [_signature, _issuer, _validity, _subject, key] =
        std::array::from_fn(|_| sequence(&mut fields));
    Some(key?.whole.into())
}

struct Element<'a> {
    tag: u8,
    /// With tag and length.
    whole: &'a [u8],
    content: &'a [u8],
}

fn sequence<'a>(input: &mut &'a [u8]) -> Option<Element<'a>> {
    next(input).filter(|element| element.tag == SEQUENCE)
}

/// Takes an element of DER off the front.
fn next<'a>(input: &mut &'a [u8]) -> Option<Element<'a>> {
    let all = *input;
    let (&tag, rest) = all.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The number of octets that the length has.
        0x81..=0x84 => {
            let (octets, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = octets
                .iter()
                .fold(0, |length, &octet| length << 8 | usize::from(octet));
            (length, rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    *input = after;
    Some(Element {
        tag,
        whole: &all[..all.len() - after.len()],
        content,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_certificate_is_found_and_of_a_part_of_one_is_not() {
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
