//! Where the requests of a service go, compiled when the snapshot is built: name, timeouts, TLS, and the place of its
//! connections in every worker's pool. [`crate::balance`] chooses among several of these.

use crate::snapshot::BuildSettings;
use model::entities::{
    CaCertificate, CaCertificateId, Certificate, CertificateId, CheckType, Protocol, Service,
    Upstream,
};
use net::dns::{Host, Resolver};
use net::pool::{Slot, SlotKey};
use net::tls::{CertificateError, ClientIdentity, ClientTls, CommonName, Trust};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The node's settings for TLS with upstreams, where a service says nothing.
#[derive(Debug, Clone)]
pub struct TlsDefaults {
    /// `nginx_proxy_proxy_ssl_verify`.
    pub verify: bool,
    /// `nginx_proxy_proxy_ssl_verify_depth`, where a service has no `tls_verify_depth`.
    pub depth: u8,
    /// What `nginx_proxy_proxy_ssl_trusted_certificate` names, as PEM.
    pub trusted: Option<String>,
    /// `client_ssl_cert` and its key when `client_ssl` is on.
    pub identity: Option<ClientIdentity>,
    /// The files that `lua_ssl_trusted_certificate` names: whom active health checks believe.
    pub bundles: Vec<PathBuf>,
    /// `lua_ssl_verify_depth`.
    pub bundles_depth: u8,
    /// `upstream_tls_common_name`.
    pub common_name: CommonName,
}

impl Default for TlsDefaults {
    fn default() -> Self {
        Self {
            verify: false,
            depth: 1,
            trusted: None,
            identity: None,
            bundles: Vec::new(),
            bundles_depth: 1,
            common_name: CommonName::default(),
        }
    }
}

/// Whether an upstream is spoken to over HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http2 {
    Never,
    /// Over TLS if it agrees; without TLS it is known to.
    Preferred,
    /// gRPC.
    Always,
}

/// Finds the certificates that a service names.
pub trait CertificateLookup {
    fn certificate(&self, id: CertificateId) -> Option<&Certificate>;
    fn ca_certificate(&self, id: CaCertificateId) -> Option<&CaCertificate>;
}

/// How a service talks with whatever its requests go to.
#[derive(Debug, Clone)]
pub struct Way {
    tls: Option<ClientTls>,
    http2: Http2,
    /// The port that `Host` does not name.
    usual_port: Option<u16>,
    connect_timeout: Duration,
    write_timeout: Duration,
    read_timeout: Duration,
    retries: u16,
    resolver: Resolver,
}

/// A place that requests go to, in the way of a service.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its addresses.
    pub host: Arc<Host>,
    pub slot: Arc<Slot>,
    pub tls: Option<ClientTls>,
    pub http2: Http2,
    /// What Host and SNI say unless the route preserves the client's: the port only where it is not the usual one.
    pub authority: Arc<str>,
    pub connect_timeout: Duration,
    pub write_timeout: Duration,
    pub read_timeout: Duration,
    /// Tries after the first.
    pub retries: u16,
}

/// There is one resolver.
impl PartialEq for Way {
    fn eq(&self, other: &Self) -> bool {
        self.tls == other.tls
            && self.http2 == other.http2
            && self.usual_port == other.usual_port
            && self.connect_timeout == other.connect_timeout
            && self.write_timeout == other.write_timeout
            && self.read_timeout == other.read_timeout
            && self.retries == other.retries
    }
}

impl Way {
    /// `certificate` is shown where the service has none of its own.
    pub fn new(
        service: &Service,
        certificate: Option<CertificateId>,
        certificates: &dyn CertificateLookup,
        settings: &BuildSettings,
    ) -> Result<Self, CertificateError> {
        let defaults = &settings.tls;
        let tls = match service.protocol {
            Protocol::Https | Protocol::Grpcs | Protocol::Tls | Protocol::Wss => {
                Some(client_tls(service, certificate, certificates, defaults)?)
            }
            _ => None,
        };
        Ok(Self {
            tls,
            http2: match service.protocol {
                Protocol::Grpc | Protocol::Grpcs => Http2::Always,
                Protocol::Http | Protocol::Https if settings.upstream_http2 => Http2::Preferred,
                _ => Http2::Never,
            },
            usual_port: match service.protocol {
                Protocol::Http | Protocol::Grpc | Protocol::Ws => Some(80),
                Protocol::Https | Protocol::Grpcs | Protocol::Wss => Some(443),
                _ => None,
            },
            connect_timeout: Duration::from_millis(service.connect_timeout.into()),
            write_timeout: Duration::from_millis(service.write_timeout.into()),
            read_timeout: Duration::from_millis(service.read_timeout.into()),
            retries: service.retries,
            resolver: settings.resolver.clone(),
        })
    }

    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// To a host, under the name that `Host` and SNI give it.
    /// Source: kong/runloop/balancer/init.lua set_host_header().
    pub fn to(&self, host: &str, port: u16, name: &str) -> Target {
        let slot = Slot::of(SlotKey {
            host: host.to_ascii_lowercase(),
            port,
            tls: self.tls.as_ref().map(ClientTls::number),
        });
        Target {
            host: self.resolver.host(host, port),
            slot,
            tls: self.tls.clone(),
            http2: self.http2,
            authority: match self.usual_port == Some(port) {
                true => name.into(),
                false => format!("{name}:{port}").into(),
            },
            connect_timeout: self.connect_timeout,
            write_timeout: self.write_timeout,
            read_timeout: self.read_timeout,
            retries: self.retries,
        }
    }
}

/// TLS of active health checks, where their type has any.
/// Source: kong/runloop/balancer/healthcheckers.lua create_healthchecker().
pub(crate) fn probe_tls(
    upstream: &Upstream,
    certificates: &dyn CertificateLookup,
    defaults: &TlsDefaults,
) -> Result<Option<ClientTls>, CertificateError> {
    let active = &upstream.healthchecks.active;
    if !matches!(active.kind, CheckType::Https | CheckType::Grpcs) {
        return Ok(None);
    }
    let trust = match active.https_verify_certificate {
        true => Trust::Bundles {
            pems: read_bundles(&defaults.bundles),
            depth: defaults.bundles_depth,
            common_name: defaults.common_name,
        },
        false => Trust::Anyone,
    };
    let own = identity(upstream.client_certificate, certificates);
    ClientTls::new(trust, own.or_else(|| defaults.identity.clone())).map(Some)
}

/// A bundle that cannot be read any more is as good as empty.
fn read_bundles(paths: &[PathBuf]) -> Vec<String> {
    let read = paths.iter().filter_map(|path| {
        let text = std::fs::read_to_string(path);
        text.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "cannot read trusted certificates"))
            .ok()
    });
    read.collect()
}

fn identity(
    id: Option<CertificateId>,
    certificates: &dyn CertificateLookup,
) -> Option<ClientIdentity> {
    let certificate = certificates.certificate(id?)?;
    Some(ClientIdentity {
        cert: certificate.cert.clone(),
        key: certificate.key.clone(),
    })
}

fn client_tls(
    service: &Service,
    certificate: Option<CertificateId>,
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
        Trust::Authorities {
            pems: authorities,
            depth: service.tls_verify_depth.unwrap_or(defaults.depth),
            common_name: defaults.common_name,
        }
    } else {
        Trust::Anyone
    };
    let own = identity(service.client_certificate.or(certificate), certificates);
    ClientTls::new(trust, own.or_else(|| defaults.identity.clone()))
}
