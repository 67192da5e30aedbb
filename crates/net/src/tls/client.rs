//! TLS with upstreams. When a snapshot is built, each service with TLS gets a rustls configuration. Services with equal
//! settings share one configuration, and thus also TLS sessions and pooled connections.

use super::certificate::{CertificateError, Certificates, read_certificates};
use super::common_name::Warned;
use super::refused::RefusedCertificate;
use super::verify::{NotVerified, Verified};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, ClientConfig, RootCertStore, SignatureScheme};
use std::collections::HashMap;
use std::io;
use std::net::Ipv6Addr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use tokio::net::TcpStream;

/// The upstream certificates to trust.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Upstream certificates are not verified.
    Anyone,
    /// Kong's default for services: upstream certificates are not verified, unless a plugin asks for it
    /// ([`ClientTls::edited`]). The other fields are those of `Authorities`.
    Unverified {
        pems: Vec<String>,
        depth: u8,
        common_name: CommonName,
    },
    /// Upstream certificates must be issued by one of these CAs. If the list is empty, all are refused.
    Authorities {
        /// CA certificates, as PEM.
        pems: Vec<String>,
        /// `tls_verify_depth`: maximum number of certificates between the upstream's and the CA's.
        depth: u8,
        common_name: CommonName,
    },
    /// Like `Authorities`, with bundles of PEM certificates such as the operating system's. Certificates that webpki
    /// cannot use are skipped; a bundle that is not PEM is an error.
    Bundles {
        pems: Vec<String>,
        depth: u8,
        common_name: CommonName,
    },
}

/// Whether the common name of a certificate without a subject alternative name counts as its host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CommonName {
    /// The common name counts as the host name, as in OpenSSL.
    #[default]
    Taken,
    Ignored,
}

/// The client certificate that upstreams may request: a certificate entity, identified by its PEM.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientIdentity {
    pub cert: String,
    pub key: String,
}

impl Trust {
    fn verifies(&self) -> bool {
        !matches!(self, Self::Anyone | Self::Unverified { .. })
    }

    /// Returns this trust with other values of `tls_verify` and `tls_verify_depth`.
    fn edited(&self, verify: Option<bool>, depth: Option<u8>) -> Self {
        let (pems, own_depth, common_name) = match self.clone() {
            Self::Anyone => (Vec::new(), 0, CommonName::default()),
            Self::Unverified {
                pems,
                depth,
                common_name,
            }
            | Self::Authorities {
                pems,
                depth,
                common_name,
            }
            | Self::Bundles {
                pems,
                depth,
                common_name,
            } => (pems, depth, common_name),
        };
        let depth = depth.unwrap_or(own_depth);
        if verify.unwrap_or(self.verifies()) {
            Self::Authorities {
                pems,
                depth,
                common_name,
            }
        } else {
            Self::Unverified {
                pems,
                depth,
                common_name,
            }
        }
    }
}

type ConfigKey = (Trust, Option<ClientIdentity>);

#[derive(Debug)]
struct Shared {
    settings: Arc<ConfigKey>,
    /// One configuration per [`Offer`], in the order of its variants.
    configs: [Arc<ClientConfig>; 3],
    number: usize,
}

#[derive(Debug, Default)]
struct SharedConfigs {
    by_settings: HashMap<Arc<ConfigKey>, Weak<Shared>>,
    made: usize,
}

static KNOWN: LazyLock<Mutex<SharedConfigs>> = LazyLock::new(Mutex::default);

/// Protocols that the gateway offers to an upstream (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The handshake offers no protocols.
    Nothing,
    Http2,
    /// HTTP/2 or HTTP/1.1.
    Either,
}

impl Offer {
    fn protocols(self) -> Vec<Vec<u8>> {
        let http2 = || crate::http2::ALPN.to_vec();
        match self {
            Self::Nothing => Vec::new(),
            Self::Http2 => vec![http2()],
            Self::Either => vec![http2(), b"http/1.1".to_vec()],
        }
    }
}

/// The client side of TLS for a service.
#[derive(Debug, Clone)]
pub struct ClientTls(Arc<Shared>);

/// Equal settings share one configuration, so comparing pointers suffices.
impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientTls {}

impl ClientTls {
    /// Returns the configuration for the settings. This takes a global lock, so call it when building snapshots, not
    /// per request.
    pub fn new(trust: Trust, identity: Option<ClientIdentity>) -> Result<Self, CertificateError> {
        let settings = Arc::new((trust, identity));
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = known.by_settings.get(&settings).and_then(Weak::upgrade) {
            return Ok(Self(shared));
        }
        let config = build(&settings.0, settings.1.as_ref())?;
        let configs = [Offer::Nothing, Offer::Http2, Offer::Either].map(|offer| {
            let mut config = config.clone();
            config.alpn_protocols = offer.protocols();
            Arc::new(config)
        });
        known.made += 1;
        let shared = Arc::new(Shared {
            settings: settings.clone(),
            configs,
            number: known.made,
        });
        known
            .by_settings
            .retain(|_, shared| shared.strong_count() > 0);
        known.by_settings.insert(settings, Arc::downgrade(&shared));
        Ok(Self(shared))
    }

    /// Returns these settings with other values of `tls_verify` and `tls_verify_depth`. Like [`Self::new`], this takes a
    /// global lock.
    pub fn edited(
        &self,
        verify: Option<bool>,
        depth: Option<u8>,
    ) -> Result<Self, CertificateError> {
        let (trust, identity) = &*self.0.settings;
        Self::new(trust.edited(verify, depth), identity.clone())
    }

    /// Returns a number that identifies the settings, for [`SlotKey`](crate::pool::SlotKey).
    pub fn number(&self) -> usize {
        self.0.number
    }

    /// Performs the handshake and sends `name`, the value of the Host header, as the server name (SNI). A port in
    /// `name` is not sent, because RFC 6066 allows only host names. No server name is sent if `name` is an IP address
    /// or not a valid host name. If `name` is not valid and certificates are verified, the handshake fails: no
    /// certificate can match.
    pub async fn connect(
        &self,
        stream: TcpStream,
        name: &str,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        self.connect_offering(stream, name, Offer::Nothing).await
    }

    /// Like [`Self::connect`], and offers protocols.
    pub async fn connect_offering(
        &self,
        stream: TcpStream,
        name: &str,
        offer: Offer,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let name = match ServerName::try_from(host(name).to_owned()) {
            Ok(name) => name,
            Err(_) if !self.0.settings.0.verifies() => stream.peer_addr()?.ip().into(),
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidInput, error)),
        };
        tokio_rustls::TlsConnector::from(self.0.configs[offer as usize].clone())
            .connect(name, stream)
            .await
            .map_err(RefusedCertificate::describe)
    }
}

/// Returns the host in an authority, without the port and without the brackets of an IPv6 address.
fn host(authority: &str) -> &str {
    if authority.parse::<Ipv6Addr>().is_ok() {
        return authority;
    }
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether a handshake failed because of the host name: the name is invalid, the certificate is for other names, or the
/// upstream reports an unknown name.
pub fn is_about_name(error: &io::Error) -> bool {
    let Some(cause) = error.get_ref() else {
        return false;
    };
    if let Some(RefusedCertificate(reason)) = cause.downcast_ref() {
        return matches!(
            reason,
            rustls::CertificateError::NotValidForName
                | rustls::CertificateError::NotValidForNameContext { .. }
        );
    }
    match cause.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::AlertReceived(alert)) => *alert == AlertDescription::UnrecognisedName,
        Some(_) => false,
        None => cause.is::<InvalidDnsNameError>(),
    }
}

fn build(
    trust: &Trust,
    identity: Option<&ClientIdentity>,
) -> Result<ClientConfig, CertificateError> {
    let builder = ClientConfig::builder_with_provider(super::provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier(trust)?);
    Ok(match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let pair = Certificates::from_pem(&identity.cert, &identity.key)?;
            builder.with_client_cert_resolver(Arc::new(Always(pair.main().clone())))
        }
    })
}

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesClientCert for Always {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn verifier(trust: &Trust) -> Result<Arc<dyn ServerCertVerifier>, CertificateError> {
    let mut authorities = RootCertStore::empty();
    let (depth, common_name) = match trust {
        Trust::Anyone | Trust::Unverified { .. } => return Ok(Arc::new(NotVerified)),
        Trust::Authorities {
            pems,
            depth,
            common_name,
        } => {
            for pem in pems {
                for certificate in read_certificates(pem)? {
                    authorities.add(certificate)?;
                }
            }
            (depth, common_name)
        }
        Trust::Bundles {
            pems,
            depth,
            common_name,
        } => {
            for pem in pems {
                authorities.add_parsable_certificates(read_certificates(pem)?);
            }
            (depth, common_name)
        }
    };
    Ok(Arc::new(Verified {
        authorities,
        depth: usize::from(*depth),
        common_name: *common_name,
        warned: Warned::default(),
    }))
}
