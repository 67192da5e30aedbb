//! Conversions of given values to the stored form, for entities of this crate. Plugins bring those of their own
//! entities.

use super::source::Transformation;
use super::{Problems, single};
use crate::value::Object;
use aws_lc_rs::digest;
use std::fmt::Write;

pub(super) const TRANSFORMATIONS: &[Transformation] = &[Transformation {
    name: "cert_digest",
    input: "cert",
    replaces_input: false,
    staleness: |_, _| None,
    apply: digest_certificate,
}];

/// Sets `cert_digest` to the SHA-256 of the certificate.
fn digest_certificate(entity: &mut Object) -> Result<(), Problems> {
    let Some(certificate) = entity.str("cert") else {
        return Ok(());
    };
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes())
        .map_err(|error| single("cert", format!("invalid certificate: {error}")))?;
    let digest = hex(digest::digest(&digest::SHA256, &pem.contents).as_ref());
    entity.insert("cert_digest", digest.into());
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
