//! Matches the host name with the common name of a certificate without subject alternative names, as OpenSSL and thus
//! Kong do. Public CAs no longer issue such certificates, but private networks still use them.

use rustls::pki_types::{CertificateDer, ServerName};
use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use webpki::VerifiedPath;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Whether the common name of a verified certificate counts and matches the host. It does not count if the certificate
/// has subject alternative names, or if a CA certificate of its path has name constraints.
pub(super) fn is_of(
    certificate: &CertificateDer<'_>,
    path: &VerifiedPath<'_>,
    host: &ServerName<'_>,
) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    if !matches!(parsed.subject_alternative_name(), Ok(None)) || is_constrained(path) {
        return false;
    }
    let host = host.to_str();
    let mut names = parsed.subject().iter_common_name();
    names.any(|name| name.as_str().is_ok_and(|name| covers(name, &host)))
}

/// Whether a CA certificate of the path has name constraints. webpki checks these only against subject alternative
/// names, which are missing here.
fn is_constrained(path: &VerifiedPath<'_>) -> bool {
    let constrains = |certificate: CertificateDer<'_>| {
        X509Certificate::from_der(&certificate).map_or(true, |(_, certificate)| {
            let mut extensions = certificate.extensions().iter();
            extensions
                .any(|one| matches!(one.parsed_extension(), ParsedExtension::NameConstraints(_)))
        })
    };
    let mut between = path.intermediate_certificates();
    path.anchor().name_constraints.is_some() || between.any(|one| constrains(one.der()))
}

/// Whether a name matches the host. A star matches exactly one label. It must be the whole first label of the name, and
/// at least two labels must follow it.
fn covers(name: &str, host: &str) -> bool {
    if name.eq_ignore_ascii_case(host) {
        return true;
    }
    let is_name = host.parse::<std::net::IpAddr>().is_err();
    let rest = name.strip_prefix("*.").filter(|rest| rest.contains('.'));
    let (Some(rest), Some((first, host))) = (rest, host.split_once('.')) else {
        return false;
    };
    is_name && !first.is_empty() && rest.eq_ignore_ascii_case(host)
}

/// Hosts for which the warning was already logged, so that it is logged only once per host.
#[derive(Default)]
pub(super) struct Warned(Mutex<HashSet<String>>);

/// Omits the hosts, so that the output depends only on the settings.
impl fmt::Debug for Warned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Warned")
    }
}

/// Maximum number of hosts to remember. For further hosts nothing is logged.
const MAX_WARNED: usize = 100;

impl Warned {
    pub(super) fn warn(&self, host: &ServerName<'_>) {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let host = host.to_str();
        if hosts.len() < MAX_WARNED && hosts.insert(host.to_string()) {
            drop(hosts);
            tracing::warn!(
                %host,
                "the certificate of an upstream has no subject alternative name; its common name was used instead: reissue it \
                 with one, or refuse such certificates with upstream_tls_common_name = off"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_name_is_of_one_host_or_of_those_under_its_star() {
        for (name, host, expected) in [
            ("a.example.com", "A.Example.com", true),
            ("example.com", "a.example.com", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.com", "example.com", false),
            ("*", "localhost", false),
            ("a*.example.com", "ab.example.com", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("*.0.0.1", "127.0.0.1", false),
            ("a.example.com\0", "a.example.com", false),
            ("", "a", false),
        ] {
            assert_eq!(covers(name, host), expected, "{name:?} {host:?}");
        }
    }
}
