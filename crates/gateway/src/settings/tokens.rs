//! Settings of the store of OAuth2 tokens.

use super::raw::RawSettings;
use super::values;
use std::path::{Path, PathBuf};
use tokens::Storage;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenSettings {
    pub(crate) storage: Storage,
    pub(crate) key_file: PathBuf,
    /// Largest size of the store in bytes.
    pub(crate) max_size: u64,
}

pub(super) fn settings(raw: &mut RawSettings, prefix: &Path) -> TokenSettings {
    let key_file = raw.text("token_key_file").map(|path| prefix.join(path));
    if key_file.is_none() {
        raw.problem_without_value("token_key_file", "expected the name of a file");
    }
    let size = raw.text("token_store_size");
    TokenSettings {
        storage: match raw.text("token_storage") {
            Some("hashed") => Storage::Hashed,
            _ => Storage::Sealed,
        },
        key_file: key_file.unwrap_or_default(),
        max_size: size
            .and_then(|text| values::size(text).ok())
            .unwrap_or_default(),
    }
}
