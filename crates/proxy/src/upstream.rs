//! The destination of a service's requests, compiled when the snapshot is built: name, timeouts, TLS, and the slot in
//! every worker's connection pool. [`crate::balance`] chooses among several destinations.

use crate::snapshot::BuildSettings;
use model::entities::{
    CaCertificate, CaCertificateId, Certificate, CertificateId, CheckType, Protocol, Service,
    Upstream,
};
use net::dns::{Host, Resolver};
use net::pool::{Slot, SlotKey};
use net::tls::{CertificateError, ClientIdentity, ClientTls, CommonName, Trust};
use std::borrow::Cow;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The node's TLS settings for upstreams, used where a service has none.
#[derive(Debug, Clone)]
pub struct TlsDefaults {
    /// Whether to verify certificates (`nginx_proxy_proxy_ssl_verify`).
    pub verify: bool,
    /// Maximum chain depth (`nginx_proxy_proxy_ssl_verify_depth`).
    pub depth: u8,
    /// Content of the PEM file named by `nginx_proxy_proxy_ssl_trusted_certificate`.
    pub trusted: Option<String>,
    /// `client_ssl_cert` and its key, if `client_ssl` is on.
    pub identity: Option<ClientIdentity>,
    /// CA certificates that active health checks trust (`lua_ssl_trusted_certificate`).
    pub bundles: Vec<Bundle>,
    /// Maximum chain depth for active health checks (`lua_ssl_verify_depth`).
    pub bundles_depth: u8,
    /// Check of the certificate's common name (`upstream_tls_common_name`).
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

impl TlsDefaults {
    /// Returns the trust of the gateway's own connections: active health checks, and requests of plugins.
    pub fn trust_of_bundles(&self) -> Trust {
        Trust::Bundles {
            pems: read_bundles(&self.bundles),
            depth: self.bundles_depth,
            common_name: self.common_name,
        }
    }
}

/// CA certificates in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bundle {
    /// A file that is read when a snapshot is built. The name stands for the path in the log.
    File {
        path: PathBuf,
        name: String,
    },
    Text(String),
}

/// Whether to use HTTP/2 with an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http2 {
    Never,
    /// With TLS, HTTP/2 is used if the upstream agrees. Without TLS, it is always used.
    Preferred,
    /// HTTP/2 is always used, as gRPC requires.
    Always,
}

/// Finds the certificates that services and upstreams refer to.
pub trait CertificateLookup {
    fn certificate(&self, id: CertificateId) -> Option<&Certificate>;
    fn ca_certificate(&self, id: CaCertificateId) -> Option<&CaCertificate>;
}

/// Settings of a service for all its targets.
#[derive(Debug, Clone)]
pub struct Way {
    tls: Option<ClientTls>,
    http2: Http2,
    /// The default port of the protocol, which `Host` omits.
    usual_port: Option<u16>,
    connect_timeout: Duration,
    write_timeout: Duration,
    read_timeout: Duration,
    retries: u16,
    resolver: Resolver,
}

/// A destination of requests, with the settings of its service.
#[derive(Debug, Clone)]
pub struct Target {
    /// Name and addresses of the target.
    pub host: Arc<Host>,
    pub slot: Arc<Slot>,
    pub tls: Option<ClientTls>,
    pub http2: Http2,
    /// Value of the Host header, unless the route preserves the client's. Includes the port only if it is not the
    /// default one. The server name (SNI) is this value without its port.
    pub authority: Arc<str>,
    pub connect_timeout: Duration,
    pub write_timeout: Duration,
    pub read_timeout: Duration,
    /// Retries after the first attempt.
    pub retries: u16,
}

/// Comparison ignores the resolver, because a node has only one.
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
    /// `certificate` is the client certificate of the upstream that the service's host names. It is used if the service
    /// has none of its own.
    pub fn new(
        service: &Service,
        certificate: Option<CertificateId>,
        certificates: &dyn CertificateLookup,
        settings: &BuildSettings,
    ) -> Result<Self, CertificateError> {
        let defaults = &settings.tls;
        let tls = match service.protocol {
            Protocol::Https | Protocol::Grpcs | Protocol::Tls => {
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
                Protocol::Http | Protocol::Grpc => Some(80),
                Protocol::Https | Protocol::Grpcs => Some(443),
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

    pub fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }

    /// The target at a place that the caller has found.
    pub fn at(&self, host: Arc<Host>, slot: Arc<Slot>, authority: Arc<str>) -> Target {
        Target {
            host,
            slot,
            tls: self.tls.clone(),
            http2: self.http2,
            authority,
            connect_timeout: self.connect_timeout,
            write_timeout: self.write_timeout,
            read_timeout: self.read_timeout,
            retries: self.retries,
        }
    }

    /// The target at `host`, with `name` in Host and SNI.
    /// Source: kong/runloop/balancer/init.lua set_host_header().
    pub fn to(&self, host: &str, port: u16, name: &str) -> Target {
        let slot = Slot::of(SlotKey {
            host: host.to_ascii_lowercase(),
            port,
            tls: self.tls.as_ref().map(ClientTls::number),
        });
        let authority = if self.usual_port == Some(port) {
            in_authority(name).into()
        } else {
            format!("{}:{port}", in_authority(name)).into()
        };
        self.at(self.resolver.host(host, port), slot, authority)
    }
}

impl Target {
    /// Returns this target with another host, port and pool slot.
    pub fn at(&self, host: Arc<Host>, slot: Arc<Slot>, authority: Arc<str>) -> Target {
        Target {
            host,
            slot,
            authority,
            ..self.clone()
        }
    }
}

/// TLS with upstreams for services that have no settings of their own.
pub(crate) fn default_tls(defaults: &TlsDefaults) -> Result<ClientTls, CertificateError> {
    let authorities = defaults.trusted.iter().cloned().collect();
    let trust = service_trust(defaults.verify, authorities, defaults.depth, defaults);
    ClientTls::new(trust, defaults.identity.clone())
}

/// Returns a host as `Host` contains it: an IPv6 address is in brackets (RFC 9110 section 7.2).
pub(crate) fn in_authority(host: &str) -> Cow<'_, str> {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => Cow::Owned(format!("[{host}]")),
        Err(_) => Cow::Borrowed(host),
    }
}

/// TLS settings of active health checks, if their type uses TLS.
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
    let trust = if active.https_verify_certificate {
        defaults.trust_of_bundles()
    } else {
        Trust::Anyone
    };
    let own = identity(upstream.client_certificate, certificates);
    ClientTls::new(trust, own.or_else(|| defaults.identity.clone())).map(Some)
}

/// Reads CA bundles. A file that cannot be read is logged and skipped.
fn read_bundles(bundles: &[Bundle]) -> Vec<String> {
    if bundles.is_empty() {
        tracing::warn!(
            "health checks and plugins trust no authority: lua_ssl_trusted_certificate names none, or the operating system \
             has no CA bundle"
        );
    }
    let read = bundles.iter().filter_map(|bundle| match bundle {
        Bundle::Text(text) => Some(text.clone()),
        Bundle::File { path, name } => {
            let text = std::fs::read_to_string(path);
            text.inspect_err(
                |error| tracing::warn!(path = %name, %error, "cannot read trusted certificates"),
            )
            .ok()
        }
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
    let named = service.ca_certificates.iter().flatten();
    let mut authorities: Vec<String> = named
        .filter_map(|id| certificates.ca_certificate(*id))
        .map(|authority| authority.cert.clone())
        .collect();
    if service.ca_certificates.is_none() {
        authorities.extend(defaults.trusted.clone());
    }
    let verify = service.tls_verify.unwrap_or(defaults.verify);
    let depth = service.tls_verify_depth.unwrap_or(defaults.depth);
    let trust = service_trust(verify, authorities, depth, defaults);
    let own = identity(service.client_certificate.or(certificate), certificates);
    ClientTls::new(trust, own.or_else(|| defaults.identity.clone()))
}

fn service_trust(verify: bool, pems: Vec<String>, depth: u8, defaults: &TlsDefaults) -> Trust {
    let common_name = defaults.common_name;
    if verify {
        Trust::Authorities {
            pems,
            depth,
            common_name,
        }
    } else {
        Trust::Unverified {
            pems,
            depth,
            common_name,
        }
    }
}
