//! TLS with clients and with upstreams, using rustls and aws-lc-rs. Configurations are built in advance; a handshake only
//! selects one.

mod certificate;
mod client;
mod client_auth;
mod common_name;
mod failure;
mod public_key;
mod refused;
mod server;
mod sessions;
mod suites;
#[cfg(test)]
mod tests;
mod verify;

pub use certificate::{CertificateError, Certificates, self_signed};
pub use client::{ClientIdentity, ClientTls, CommonName, Offer, Trust, is_about_name};
pub use client_auth::{ClientAuth, WithoutCertificate, client_subject};
pub use server::{Alpn, CertificateSource, Held, ServerSettings, ServerTls, SniTable};
pub use sessions::SessionSettings;
pub use suites::{
    Read, SuiteError, Versions, all_ciphers, cipher_name, read_ciphers, read_versions, version_name,
};
pub use tokio_rustls::server::TlsStream as ServerTlsStream;

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, LazyLock};

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));

/// Body of the response to an HTTP request without TLS on a port with TLS. It is nginx's page
/// (ngx_http_special_response.c) without the server name at its end.
pub const PLAIN_HTTP_PAGE: &str = "<html>\r\n\
    <head><title>400 The plain HTTP request was sent to HTTPS port</title></head>\r\n\
    <body>\r\n<center><h1>400 Bad Request</h1></center>\r\n\
    <center>The plain HTTP request was sent to HTTPS port</center>\r\n</body>\r\n</html>\r\n";

/// Returns a verifier that accepts any server certificate.
#[cfg(test)]
pub(crate) fn unverified() -> Arc<dyn rustls::client::danger::ServerCertVerifier> {
    Arc::new(verify::NotVerified)
}

fn provider() -> Arc<CryptoProvider> {
    PROVIDER.clone()
}
