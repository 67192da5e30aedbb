//! The writer of sessions.

use super::SessionStoreError;
use super::tables::{Tables, Write};
use crate::writer::{Environment, Unwritten};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pause between two transactions that remove rows that have ended.
const BREAK: Duration = Duration::from_millis(50);

/// What the thread writes to.
pub(super) struct Sessions(pub(super) Arc<Tables>);

impl Environment for Sessions {
    const NAME: &'static str = "sessions";
    const IDLE: Duration = Duration::from_secs(30);

    type Write<'w> = Write<'w>;
    type Error = SessionStoreError;

    fn begin(&mut self) -> Result<Write<'_>, SessionStoreError> {
        self.0.write()
    }

    fn changes(write: &Write<'_>) -> u64 {
        write.changes()
    }

    fn commit(write: Write<'_>) -> Result<(), SessionStoreError> {
        write.commit()
    }

    fn tidy(&mut self) -> Duration {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        match self.0.tidy(since.unwrap_or_default().as_secs()) {
            Ok(true) => BREAK,
            Ok(false) => Self::IDLE,
            Err(error) => {
                tracing::error!(%error, "the store of sessions could not remove ended ones");
                Self::IDLE
            }
        }
    }
}

impl From<Unwritten> for SessionStoreError {
    fn from(unwritten: Unwritten) -> Self {
        match unwritten {
            Unwritten::Busy => Self::Busy,
            Unwritten::Closed => Self::Closed,
            Unwritten::Panicked => Self::Storage("an operation has panicked".to_owned()),
        }
    }
}
