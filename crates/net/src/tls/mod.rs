//! TLS on both sides, by rustls with ring. Configurations are built with the snapshot; a handshake only picks from them.

mod certificate;
mod client;
mod server;
#[cfg(test)]
mod tests;

pub use certificate::{CertificateError, Certificates, self_signed};
pub use client::{ClientIdentity, ClientTls, Trust};
pub use server::{CertificateSource, ServerTls, SniTable};

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, LazyLock};

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));

fn provider() -> Arc<CryptoProvider> {
    PROVIDER.clone()
}
