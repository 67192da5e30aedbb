//! TLS with clients: which certificate a name gets (kong/runloop/certificate.lua), and the handshake.

use super::certificate::Certificates;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Certificates by server name. Built with the snapshot.
#[derive(Debug, Default)]
pub struct SniTable {
    /// Exact names, `*.rest`, `prefix.*` and `*`, all as configured: wildcards are looked up as the text that would match.
    names: HashMap<String, Arc<Certificates>>,
    default: Option<Arc<Certificates>>,
}

impl SniTable {
    pub fn new(default: Option<Arc<Certificates>>) -> Self {
        Self {
            names: HashMap::new(),
            default,
        }
    }

    /// Gives a name its certificate; the name is compared in lower case.
    pub fn insert(&mut self, name: &str, certificates: Arc<Certificates>) {
        self.names.insert(name.to_ascii_lowercase(), certificates);
    }

    /// Exact name, `*.rest`, `prefix.*`, `*`, default.
    pub fn find(&self, name: Option<&str>) -> Option<&Arc<Certificates>> {
        name.and_then(|name| self.find_name(&name.to_ascii_lowercase()))
            .or_else(|| self.names.get("*"))
            .or(self.default.as_ref())
    }

    fn find_name(&self, name: &str) -> Option<&Arc<Certificates>> {
        let exact = self.names.get(name);
        if exact.is_some() {
            return exact;
        }
        // The first label is replaced only when at least two others follow it.
        let suffix = name.split_once('.').filter(|(_, rest)| rest.contains('.'));
        let prefix = name.rsplit_once('.');
        suffix
            .and_then(|(_, rest)| self.names.get(&format!("*.{rest}")))
            .or_else(|| prefix.and_then(|(start, _)| self.names.get(&format!("{start}.*"))))
    }
}

/// Where handshakes find the certificates of the current configuration.
pub trait CertificateSource: fmt::Debug + Send + Sync {
    fn certificates(&self, name: Option<&str>) -> Option<Arc<Certificates>>;
}

#[derive(Debug)]
struct Resolver(Arc<dyn CertificateSource>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = self.0.certificates(hello.server_name())?;
        Some(found.choose(hello.signature_schemes()))
    }
}

/// The server side of TLS 1.2 and 1.3.
#[derive(Debug, Clone)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    pub fn new(source: Arc<dyn CertificateSource>) -> Result<Self, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(super::provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Resolver(source)));
        // h2 is offered when there is an engine for it; until then a client that prefers it gets HTTP/1.1.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
        tokio_rustls::TlsAcceptor::from(self.0.clone())
            .accept(stream)
            .await
    }
}
