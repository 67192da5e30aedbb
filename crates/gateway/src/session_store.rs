//! The store of sessions of this node (`storage: kong` of the plugin session).

use crate::commands::Failure;
use crate::settings::Settings;
use std::sync::Arc;
use tokens::sessions::{Bounds, EmbeddedSessions, SessionStore};

/// The directory of the store, in the prefix.
const DIRECTORY: &str = "sessions.lmdb";
/// Address space for the store, and so the largest size of its file.
const MAX_SIZE: usize = 1 << 36;

pub(crate) fn open(settings: &Settings) -> Result<Arc<dyn SessionStore>, Failure> {
    let directory = settings.prefix.join(DIRECTORY);
    let store = EmbeddedSessions::open(&directory, MAX_SIZE, Bounds::default());
    Ok(Arc::new(
        store.map_err(Failure::of("open the store of sessions"))?,
    ))
}
