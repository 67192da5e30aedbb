//! The certificate of every TLS listener in the benchmark. Each run creates a new self-signed one.

use anyhow::{Context, Result};
use rcgen::CertifiedKey;
use std::fs;
use std::path::{Path, PathBuf};

/// The server name that clients request.
pub const NAME: &str = "bench.test";

/// Paths of PEM files.
#[derive(Debug, Clone)]
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Writes `cert.pem` and `key.pem` into `directory`. The key is ECDSA P-256: all servers support this type, and it
/// costs them the least.
pub fn self_signed(directory: &Path) -> Result<Certificate> {
    let names = [NAME, "127.0.0.1"].map(str::to_owned);
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(names).context("cannot create a certificate")?;
    let files = Certificate {
        certificate: directory.join("cert.pem"),
        key: directory.join("key.pem"),
    };
    for (path, text) in [
        (&files.certificate, cert.pem()),
        (&files.key, signing_key.serialize_pem()),
    ] {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::ServerConfig;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    #[test]
    fn a_server_can_use_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let files = self_signed(directory.path()).unwrap();
        let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
        ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
    }
}
