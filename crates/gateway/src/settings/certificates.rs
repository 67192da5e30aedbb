//! Settings that name certificates and keys: as the path of a file, as PEM, or as PEM in base64.

use super::raw::RawSettings;
use super::{flag, values};
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A certificate or key, given as text or as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PemSource {
    File {
        path: PathBuf,
        /// The reference that the path comes from, if there is one.
        reference: Option<Arc<str>>,
    },
    Text(String),
}

impl PemSource {
    /// Parses a value as Kong does: PEM, PEM in base64, or the name of a file. `reference` is the reference that the value
    /// comes from, if there is one.
    pub(super) fn parse(text: &str, reference: Option<&Arc<str>>) -> Self {
        /// The dashes at the beginning of PEM, in base64.
        const DASHES: &str = "LS0tLS1";
        if is_pem(text) {
            return Self::Text(text.to_owned());
        }
        let unwrapped: String = text.split_whitespace().collect();
        let decoded = plugin::base64::decode(unwrapped.as_bytes());
        match decoded.and_then(|decoded| String::from_utf8(decoded).ok()) {
            Some(decoded) if is_pem(&decoded) => Self::Text(decoded),
            // The base64 is damaged. As the name of a file, it would be shown in the error.
            _ if unwrapped.starts_with(DASHES) => Self::Text(unwrapped),
            _ => Self::File {
                path: text.into(),
                reference: reference.cloned(),
            },
        }
    }

    /// Makes the name of a file relative to a directory.
    pub(super) fn within(self, directory: &Path) -> Self {
        match self {
            Self::File { path, reference } => Self::File {
                path: directory.join(path),
                reference,
            },
            text @ Self::Text(_) => text,
        }
    }
}

fn is_pem(text: &str) -> bool {
    text.contains("-----BEGIN ")
}

impl fmt::Display for PemSource {
    /// Writes the name of the file or its reference. A text may be secret, so it is not shown.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File {
                reference: Some(reference),
                ..
            } => formatter.write_str(reference),
            Self::File { path, .. } => path.display().fmt(formatter),
            Self::Text(_) => formatter.write_str("(the text in the setting)"),
        }
    }
}

pub(super) fn certificates(
    raw: &mut RawSettings,
    cert: &str,
    key: &str,
) -> Vec<(PemSource, PemSource)> {
    let (certs, keys) = (pem_sources(raw, cert), pem_sources(raw, key));
    if certs.len() != keys.len() {
        let message = format!(
            "{cert} names {} and {key} {}: each certificate needs its key, in the same order",
            counted(certs.len(), "certificate"),
            counted(keys.len(), "key"),
        );
        raw.problem_without_value(cert, message);
    }
    certs.into_iter().zip(keys).collect()
}

/// Warns of each certificate that no listener can use.
pub(super) fn warn_of_unused_certificates(raw: &mut RawSettings) {
    let certificates: [(&str, &[&str]); 3] = [
        ("ssl_cert", &["proxy_listen", "stream_listen"]),
        ("admin_ssl_cert", &["admin_listen"]),
        ("status_ssl_cert", &["status_listen"]),
    ];
    for (certificate, listeners) in certificates {
        let has_tls = |name: &&str| {
            let mut entries = values::list(raw.text(name).unwrap_or_default());
            entries.any(|entry| {
                entry
                    .split_whitespace()
                    .skip(1)
                    .any(|option| option == "ssl")
            })
        };
        if raw.text(certificate).is_some() && !listeners.iter().any(has_tls) {
            let message = format!(
                "this setting has no effect: no listener of {} has the option `ssl`",
                listeners.join(" or ")
            );
            raw.warn(certificate, message);
        }
    }
}

fn counted(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

pub(super) fn client_certificate(raw: &mut RawSettings) -> Option<(PemSource, PemSource)> {
    if !flag(raw, "client_ssl") {
        return None;
    }
    match (
        pem_source(raw, "client_ssl_cert"),
        pem_source(raw, "client_ssl_cert_key"),
    ) {
        (Some(cert), Some(key)) => Some((cert, key)),
        _ => {
            raw.problem_without_value(
                "client_ssl",
                "client_ssl_cert and client_ssl_cert_key are needed",
            );
            None
        }
    }
}

pub(super) fn pem_source(raw: &RawSettings, name: &str) -> Option<PemSource> {
    let text = raw.text(name)?;
    let reference = raw.reference(name).map(|reference| &reference.names);
    Some(PemSource::parse(text, reference))
}

pub(super) fn pem_sources(raw: &RawSettings, name: &str) -> Vec<PemSource> {
    let texts = values::list(raw.text(name).unwrap_or_default());
    let Some(reference) = raw.reference(name) else {
        return texts.map(|text| PemSource::parse(text, None)).collect();
    };
    let written: HashSet<&str> = values::list(&reference.written).collect();
    let sources = texts.map(|text| {
        let from_reference = !written.contains(text);
        PemSource::parse(text, from_reference.then_some(&reference.names))
    });
    sources.collect()
}
