//! The store of OAuth2 tokens of this node, and its keys, which are in a file beside it.

use crate::commands::Failure;
use crate::settings::Settings;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use tokens::embedded::Embedded;
use tokens::{Keys, Storage, TokenStore};

/// The directory of the store, in the prefix.
const DIRECTORY: &str = "tokens.lmdb";
/// The file with the keys, in the prefix.
const KEYS: &str = "tokens.key";
/// Address space for the store, and so the largest size of its file.
const MAX_SIZE: usize = 1 << 40;

pub(crate) fn open(settings: &Settings) -> Result<Arc<dyn TokenStore>, Failure> {
    let path = settings.prefix.join(KEYS);
    let secret = persisted_secret(&path).map_err(|error| {
        Failure::new(format!("cannot read or write {}: {error}", path.display()))
    })?;
    let keys = Keys::new(&secret, 0);
    let directory = settings.prefix.join(DIRECTORY);
    let store = Embedded::open(&directory, MAX_SIZE, keys, Storage::Sealed);
    Ok(Arc::new(
        store.map_err(Failure::of("open the store of tokens"))?,
    ))
}

/// Returns the secret of the last run with this prefix, or makes a new one.
fn persisted_secret(path: &Path) -> io::Result<[u8; 64]> {
    match fs::read(path) {
        Ok(bytes) => {
            let secret = bytes.try_into();
            secret.map_err(|_| io::Error::other("it does not have 64 bytes"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret = Keys::generate().map_err(io::Error::other)?;
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let mut file = options.open(path)?;
            file.write_all(&secret)?;
            file.sync_all()?;
            Ok(secret)
        }
        Err(error) => Err(error),
    }
}
