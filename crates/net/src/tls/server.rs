//! TLS with clients: selects the certificate for a server name, as in Kong (kong/runloop/certificate.lua), and performs
//! the handshake.

use super::certificate::Certificates;
use super::client_auth::ClientAuth;
use super::failure;
use super::sessions::{SessionSettings, Sessions, Tickets};
use super::suites::{Versions, all_ciphers, suites};
use rustls::crypto::CryptoProvider;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ServerConfig};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, LazyConfigAcceptor, StartHandshake};

/// Certificates by server name, as part of a snapshot. A clone shares the names with its original; a change then copies
/// only a small part of them.
#[derive(Debug, Clone)]
pub struct SniTable {
    /// Configured names in lower case: exact names, `*.rest`, `prefix.*` and `*`. To match a wildcard, the lookup
    /// replaces the first or last label of the name by `*` and looks up the result.
    parts: [Arc<Names>; PARTS],
    hasher: RandomState,
    default: Option<Arc<Certificates>>,
}

type Names = HashMap<String, Arc<Certificates>>;

/// Number of parts of the table; a name's hash selects its part. In a table of ten thousand names, a change copies
/// about forty.
const PARTS: usize = 256;

impl SniTable {
    pub fn new(default: Option<Arc<Certificates>>) -> Self {
        let none: Arc<Names> = Arc::default();
        Self {
            parts: std::array::from_fn(|_| none.clone()),
            hasher: RandomState::new(),
            default,
        }
    }

    /// Sets the certificate for a name. The case of the name does not matter.
    pub fn insert(&mut self, name: &str, certificates: Arc<Certificates>) {
        let name = name.to_ascii_lowercase();
        let part = self.part(&name);
        Arc::make_mut(&mut self.parts[part]).insert(name, certificates);
    }

    pub fn remove(&mut self, name: &str) {
        let name = name.to_ascii_lowercase();
        let part = self.part(&name);
        if self.parts[part].contains_key(&name) {
            Arc::make_mut(&mut self.parts[part]).remove(&name);
        }
    }

    fn part(&self, name: &str) -> usize {
        self.hasher.hash_one(name) as usize % PARTS
    }

    fn get(&self, name: &str) -> Option<&Arc<Certificates>> {
        self.parts[self.part(name)].get(name)
    }

    /// Returns the certificate for a server name. The order of precedence is: exact name, `*.rest`, `prefix.*`, `*`,
    /// default.
    pub fn find(&self, name: Option<&str>) -> Option<&Arc<Certificates>> {
        name.and_then(|name| self.find_name(&name.to_ascii_lowercase()))
            .or_else(|| self.get("*"))
            .or(self.default.as_ref())
    }

    fn find_name(&self, name: &str) -> Option<&Arc<Certificates>> {
        let exact = self.get(name);
        if exact.is_some() {
            return exact;
        }
        // `*.rest` matches only if `rest` has at least two labels.
        let suffix = name.split_once('.').filter(|(_, rest)| rest.contains('.'));
        let prefix = name.rsplit_once('.');
        suffix
            .and_then(|(_, rest)| self.get(&format!("*.{rest}")))
            .or_else(|| prefix.and_then(|(start, _)| self.get(&format!("{start}.*"))))
    }
}

/// Finds certificates for handshakes in the current configuration.
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

/// Settings of TLS with clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// `ssl_protocols`: the offered versions.
    pub versions: Versions,
    /// Ciphers for TLS 1.2, in order of preference. All ciphers of TLS 1.3 are always offered.
    pub ciphers: Vec<CipherSuite>,
    /// `ssl_prefer_server_ciphers`: whether the order of `ciphers` applies instead of the client's.
    pub prefer_own_order: bool,
    pub sessions: SessionSettings,
}

impl Default for ServerSettings {
    /// Returns the settings of `ssl_cipher_suite = intermediate`, Kong's default.
    fn default() -> Self {
        Self {
            versions: Versions::BOTH,
            ciphers: all_ciphers(),
            prefer_own_order: false,
            sessions: SessionSettings::default(),
        }
    }
}

/// Protocols that the handshake offers to clients (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alpn {
    Http,
    /// No protocols, because the gateway does not know which protocol is used inside TLS.
    Stream,
}

/// The server side of TLS 1.2 and 1.3. Cheap to clone; clones share sessions.
#[derive(Debug, Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// Configuration for listeners that offer HTTP/2.
    http2: Arc<ServerConfig>,
}

impl ServerTls {
    /// Creates a configuration for HTTP, with the default settings.
    pub fn new(source: Arc<dyn CertificateSource>) -> Result<Self, rustls::Error> {
        Self::with_settings(source, Alpn::Http, &ServerSettings::default())
    }

    pub fn with_settings(
        source: Arc<dyn CertificateSource>,
        alpn: Alpn,
        settings: &ServerSettings,
    ) -> Result<Self, rustls::Error> {
        Self::asking(source, alpn, settings, None)
    }

    /// Like [`Self::with_settings`], and requests client certificates if `clients` is given.
    pub fn asking(
        source: Arc<dyn CertificateSource>,
        alpn: Alpn,
        settings: &ServerSettings,
        clients: Option<ClientAuth>,
    ) -> Result<Self, rustls::Error> {
        let provider = CryptoProvider {
            cipher_suites: suites(&settings.ciphers),
            ..(*super::provider()).clone()
        };
        let builder = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&settings.versions.supported())?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(ClientAuth(verifier)) => builder.with_client_cert_verifier(verifier),
        };
        let mut config = builder.with_cert_resolver(Arc::new(Resolver(source)));
        config.ignore_client_order = settings.prefer_own_order;
        config.session_storage = Arc::new(Sessions::new(&settings.sessions));
        if settings.sessions.tickets {
            config.ticketer = Arc::new(Tickets::new(settings.sessions.lifetime)?);
        }
        config.alpn_protocols = match alpn {
            Alpn::Http => vec![b"http/1.1".to_vec()],
            Alpn::Stream => Vec::new(),
        };
        let mut http2 = config.clone();
        http2.alpn_protocols.insert(0, crate::http2::ALPN.to_vec());
        Ok(Self {
            config: Arc::new(config),
            http2: Arc::new(http2),
        })
    }

    /// Returns a clone for an HTTP listener. `http2` says whether the listener offers HTTP/2.
    pub fn offering(&self, http2: bool) -> Self {
        let config = if http2 { &self.http2 } else { &self.config };
        Self {
            config: config.clone(),
            http2: self.http2.clone(),
        }
    }

    /// Performs the handshake. If it fails, the client receives an alert with the reason.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = tokio_rustls::TlsAcceptor::from(self.config.clone());
        complete(acceptor.accept(stream)).await
    }

    /// Begins the handshake: waits for the client hello. The handshake is then held until the caller continues it. No
    /// certificate has been selected yet.
    pub async fn hold(&self, stream: TcpStream) -> io::Result<Held> {
        let mut acceptor = LazyConfigAcceptor::new(Acceptor::default(), stream);
        match (&mut acceptor).await {
            Ok(begun) => {
                let (server_name, offers_http2) = read(&begun.client_hello());
                Ok(Held {
                    begun,
                    server_name,
                    offers_http2,
                    config: self.config.clone(),
                })
            }
            Err(error) => {
                if let Some(stream) = acceptor.take_io() {
                    failure::end_of_hello(&error, stream).await;
                }
                Err(error)
            }
        }
    }
}

/// A handshake whose client hello has arrived.
pub struct Held {
    begun: StartHandshake<TcpStream>,
    server_name: Option<Box<str>>,
    offers_http2: bool,
    config: Arc<ServerConfig>,
}

impl Held {
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    pub fn offers_http2(&self) -> bool {
        self.offers_http2
    }

    /// Performs the rest of the handshake. If it fails, the client receives an alert with the reason.
    pub async fn go_on(self) -> io::Result<TlsStream<TcpStream>> {
        complete(self.begun.into_stream(self.config)).await
    }

    /// Ends the handshake with an alert that says that the server has failed.
    pub async fn refuse(self) {
        failure::refuse(self.begun.io).await;
    }
}

/// Returns the server name of a client hello, and whether it offers HTTP/2.
fn read(hello: &ClientHello<'_>) -> (Option<Box<str>>, bool) {
    let mut offered = hello.alpn().into_iter().flatten();
    let offers_http2 = offered.any(|protocol| protocol == crate::http2::ALPN);
    (hello.server_name().map(Box::from), offers_http2)
}

async fn complete(handshake: Accept<TcpStream>) -> io::Result<TlsStream<TcpStream>> {
    match handshake.into_fallible().await {
        Ok(stream) => Ok(stream),
        Err((error, stream)) => {
            // Boxed, because failures are rare and every handshake would otherwise reserve memory for this future.
            Box::pin(failure::end(&error, stream)).await;
            Err(error)
        }
    }
}
