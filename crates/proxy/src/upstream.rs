//! Where the requests of a service go, compiled when the snapshot is built: name, timeouts, TLS, and the place of its
//! connections in every worker's pool. Balancing over the targets of an upstream entity will choose among several of these.

use model::entities::{
    CaCertificate, CaCertificateId, Certificate, CertificateId, Protocol, Service,
};
use net::pool::{Slot, SlotKey};
use net::tls::{CertificateError, ClientIdentity, ClientTls, Trust};
use std::sync::Arc;
use std::time::Duration;

/// The node's settings for TLS with upstreams, where a service says nothing.
#[derive(Debug, Clone, Default)]
pub struct TlsDefaults {
    /// `nginx_proxy_proxy_ssl_verify`.
    pub verify: bool,
    /// What `nginx_proxy_proxy_ssl_trusted_certificate` names, as PEM.
    pub trusted: Option<String>,
    /// `client_ssl_cert` and its key when `client_ssl` is on.
    pub identity: Option<ClientIdentity>,
}

/// Finds the certificates that a service names.
pub trait CertificateLookup {
    fn certificate(&self, id: CertificateId) -> Option<&Certificate>;
    fn ca_certificate(&self, id: CaCertificateId) -> Option<&CaCertificate>;
}

#[derive(Debug)]
pub struct Target {
    pub slot: Arc<Slot>,
    pub tls: Option<ClientTls>,
    /// What Host and SNI say unless the route preserves the client's: the port only where it is not the usual one.
    pub authority: Box<str>,
    pub connect_timeout: Duration,
    pub write_timeout: Duration,
    pub read_timeout: Duration,
    /// Tries after the first.
    pub retries: u16,
}

impl Target {
    pub fn new(
        service: &Service,
        certificates: &dyn CertificateLookup,
        defaults: &TlsDefaults,
    ) -> Result<Self, CertificateError> {
        let tls = match service.protocol {
            Protocol::Https | Protocol::Grpcs | Protocol::Tls | Protocol::Wss => {
                Some(client_tls(service, certificates, defaults)?)
            }
            _ => None,
        };
        let slot = Slot::of(SlotKey {
            host: service.host.to_ascii_lowercase().into(),
            port: service.port,
            tls: tls.as_ref().map(ClientTls::number),
        });
        Ok(Self {
            slot,
            tls,
            authority: authority(service).into(),
            connect_timeout: Duration::from_millis(service.connect_timeout.into()),
            write_timeout: Duration::from_millis(service.write_timeout.into()),
            read_timeout: Duration::from_millis(service.read_timeout.into()),
            retries: service.retries,
        })
    }
}

/// Source: kong/runloop/balancer/init.lua set_host_header().
pub(crate) fn authority(service: &Service) -> String {
    let usual = match service.protocol {
        Protocol::Http | Protocol::Grpc | Protocol::Ws => 80,
        Protocol::Https | Protocol::Grpcs | Protocol::Wss => 443,
        _ => 0,
    };
    if service.port == usual {
        service.host.to_string()
    } else {
        format!("{}:{}", service.host, service.port)
    }
}

fn client_tls(
    service: &Service,
    certificates: &dyn CertificateLookup,
    defaults: &TlsDefaults,
) -> Result<ClientTls, CertificateError> {
    let trust = if service.tls_verify.unwrap_or(defaults.verify) {
        let named = service.ca_certificates.iter().flatten();
        let mut authorities: Vec<String> = named
            .filter_map(|id| certificates.ca_certificate(*id))
            .map(|authority| authority.cert.clone())
            .collect();
        if service.ca_certificates.is_none() {
            authorities.extend(defaults.trusted.clone());
        }
        Trust::Authorities(authorities)
    } else {
        Trust::Anyone
    };
    let own = service
        .client_certificate
        .and_then(|id| certificates.certificate(id))
        .map(|certificate| ClientIdentity {
            cert: certificate.cert.clone(),
            key: certificate.key.clone(),
        });
    ClientTls::new(trust, own.or_else(|| defaults.identity.clone()))
}
