//! The certificates shown to clients, and the server names (SNIs) that select them.

use super::build::{BuildError, BuildSettings};
use super::delta::{Delta, Edit};
use crate::upstream::CertificateLookup;
use compact_str::CompactString;
use model::entities::{Certificate, CertificateId, Sni, SniId};
use net::tls::{CertificateError, Certificates, SniTable};
use std::collections::BTreeSet;
use std::sync::Arc;
use tables::Sorted;
use uuid::Uuid;

#[derive(Clone)]
pub(super) struct CertificateTables {
    pairs: Sorted<CertificateId, Arc<Certificates>>,
    /// The server names in lower case. If several SNIs differ only in case, the one with the largest id counts.
    names: Sorted<(CompactString, SniId), CertificateId>,
    pub(super) by_name: SniTable,
}

impl CertificateTables {
    pub(super) fn new(settings: &BuildSettings) -> Self {
        Self {
            pairs: Sorted::default(),
            names: Sorted::default(),
            by_name: SniTable::new(settings.default_certificate.clone()),
        }
    }

    /// Applies a change and returns the number of names and certificates that were rebuilt.
    pub(super) fn apply(&mut self, delta: &Delta, errors: &mut Vec<BuildError>) -> usize {
        for id in &delta.certificates {
            let Some(certificate) = delta.lookup.certificate(*id) else {
                self.pairs.remove(id);
                continue;
            };
            match read(certificate) {
                Ok(pair) => drop(self.pairs.insert(*id, Arc::new(pair))),
                Err(source) => errors.push(refusal(certificate, source)),
            }
        }
        let mut names = BTreeSet::new();
        for Edit { old, new } in &delta.snis {
            if let Some(old) = old {
                let key = key(old);
                self.names.remove(&key);
                names.insert(key.0);
            }
            if let Some(new) = new {
                let key = key(new);
                names.insert(key.0.clone());
                self.names.insert(key, new.certificate);
            }
        }
        for name in &names {
            self.settle(name);
        }
        names.len() + delta.certificates.len()
    }

    /// Updates `by_name` for a name. If several SNIs have the name, the last one whose certificate exists counts.
    fn settle(&mut self, name: &CompactString) {
        let first = (name.clone(), SniId(Uuid::nil()));
        let own = self.names.starting_at(&first);
        let own = own.take_while(|((known, _), _)| known == name);
        let pairs = own.filter_map(|(_, certificate)| self.pairs.get(certificate));
        match pairs.last() {
            Some(pair) => self.by_name.insert(name, pair.clone()),
            None => self.by_name.remove(name),
        }
    }

    /// Every certificate with its id.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (CertificateId, &Arc<Certificates>)> {
        self.pairs.iter().map(|(id, pair)| (*id, pair))
    }

    /// Every server name with the id of its certificate.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, CertificateId)> {
        let names = self.names.iter();
        names.map(|((name, _), certificate)| (name.as_str(), *certificate))
    }
}

fn key(sni: &Sni) -> (CompactString, SniId) {
    (sni.name.to_ascii_lowercase(), sni.id)
}

/// Returns the error of a certificate that cannot be read. If a field is a vault reference, the error says so, because
/// vault references are not resolved yet.
fn refusal(certificate: &Certificate, source: CertificateError) -> BuildError {
    let Certificate {
        id,
        cert,
        key,
        cert_alt,
        key_alt,
    } = certificate;
    let fields = [
        ("cert", Some(cert)),
        ("key", Some(key)),
        ("cert_alt", cert_alt.as_ref()),
        ("key_alt", key_alt.as_ref()),
    ];
    let is_reference =
        |(_, text): &(_, Option<&String>)| text.is_some_and(|text| text.starts_with("{vault://"));
    match fields.into_iter().find(is_reference) {
        Some((field, _)) => BuildError::VaultReference { id: *id, field },
        None => BuildError::Certificate { id: *id, source },
    }
}

fn read(certificate: &Certificate) -> Result<Certificates, CertificateError> {
    let pair = Certificates::from_pem(&certificate.cert, &certificate.key)?;
    match (&certificate.cert_alt, &certificate.key_alt) {
        (Some(cert), Some(key)) => pair.with_alternative(cert, key),
        _ => Ok(pair),
    }
}
