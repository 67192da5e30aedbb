//! Responses that may be too large for memory. A response is first written completely, to an unnamed temporary file
//! next to the store, and then sent from this file. So a slow client occupies a file, but no snapshot of the store and
//! no thread. Small responses stay in memory.

use crate::peer::Permit;
use crate::request::Call;
use crate::respond::{Failure, UNREADABLE_STORE};
use crate::transfer::Unreadable;
use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use model::declarative::ExportError;
use model::schema::Malformed;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use store::StoreError;
use tempfile::{SpooledData, SpooledTempFile, spooled_tempfile_in};
use tokio::task::spawn_blocking;

/// Size of the chunks that are written to the file or read from it.
const CHUNK: usize = 64 << 10;

/// Maximum size of a response that is kept in memory.
const IN_MEMORY: usize = 1 << 20;

/// The right to send a large response. The number of slots is limited, because each response may use as much disk space
/// as the store.
pub(crate) struct Slot {
    endpoint: &'static str,
    permit: Option<Permit>,
}

impl Slot {
    /// Takes a slot, or refuses the request if all slots are in use. Call this before any other work for the request.
    pub(crate) fn take(call: &Call<'_>, endpoint: &'static str) -> Result<Self, Failure> {
        let permit = match call.permits {
            None => None,
            Some(permits) => Some(permits.large_answer().ok_or_else(too_many)?),
        };
        Ok(Self { endpoint, permit })
    }

    /// Returns the response that `write` produces on another thread.
    pub(crate) async fn answer<E: Into<Interrupted>>(
        self,
        directory: &Path,
        content_type: HeaderValue,
        write: impl FnOnce(&mut Chunks) -> Result<(), E> + Send + 'static,
    ) -> Result<Response, Failure> {
        let mut chunks = Chunks {
            spool: spooled_tempfile_in(IN_MEMORY, directory),
            buffer: Vec::with_capacity(CHUNK + 8192),
        };
        let Self { endpoint, permit } = self;
        // The slot moves into the task, which continues when the client disconnects.
        let written = spawn_blocking(move || {
            let written = write(&mut chunks).map_err(Into::into);
            let finished = written.and_then(|()| chunks.finish().map_err(Interrupted::Write));
            (finished, permit)
        });
        let (written, permit) = written.await.map_err(Failure::internal)?;
        let written = written.map_err(|error| unwritten(endpoint, &error))?;
        let mut response = match written {
            Written::InMemory(bytes) => Body::from(bytes).into_response(),
            Written::InFile(file, length) => {
                let mut response = sent_from(file, permit).into_response();
                response.headers_mut().insert(CONTENT_LENGTH, length.into());
                response
            }
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        Ok(response)
    }
}

fn too_many() -> Failure {
    let text = "too many large responses are being sent; try again later";
    Failure::Message(StatusCode::SERVICE_UNAVAILABLE, text.into())
}

/// The reason why a response could not be written completely.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Interrupted {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Export(ExportError),
    #[error(transparent)]
    Tokens(#[from] tokens::StoreError),
    #[error("{0}")]
    TooMany(String),
    #[error(transparent)]
    Write(#[from] io::Error),
}

impl From<Unreadable> for Interrupted {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::Store(error) => Self::Store(error),
            Unreadable::Tokens(error) => Self::Tokens(error),
            Unreadable::TooManyTokens => Self::TooMany(error.to_string()),
            Unreadable::Export(ExportError::Write(error)) => Self::Write(error),
            Unreadable::Export(error) => Self::Export(error),
        }
    }
}

fn unwritten(endpoint: &str, error: &Interrupted) -> Failure {
    tracing::error!(endpoint, %error, "a response cannot be written");
    let (status, text) = match error {
        Interrupted::TooMany(text) => {
            return Failure::Message(StatusCode::PAYLOAD_TOO_LARGE, text.clone().into());
        }
        Interrupted::Write(_) => (
            StatusCode::INSUFFICIENT_STORAGE,
            "the response cannot be written to a temporary file: the disk is full or failing",
        ),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, UNREADABLE_STORE),
    };
    Failure::Message(status, text.into())
}

/// A response that is being written. Full buffers are moved to the file.
pub(crate) struct Chunks {
    spool: SpooledTempFile,
    pub(crate) buffer: Vec<u8>,
}

enum Written {
    InMemory(Vec<u8>),
    InFile(SpooledTempFile, u64),
}

impl Chunks {
    pub(crate) fn flush_when_full(&mut self) -> io::Result<()> {
        if self.buffer.len() < CHUNK {
            return Ok(());
        }
        self.flush()
    }

    fn finish(mut self) -> io::Result<Written> {
        self.flush()?;
        let length = self.spool.stream_position()?;
        if self.spool.is_rolled() {
            self.spool.rewind()?;
            return Ok(Written::InFile(self.spool, length));
        }
        match self.spool.into_inner() {
            SpooledData::InMemory(bytes) => Ok(Written::InMemory(bytes.into_inner())),
            SpooledData::OnDisk(_) => Err(io::Error::other("a response in memory is on the disk")),
        }
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        self.flush_when_full()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.spool.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// A body that is read from the file as fast as the client receives it.
fn sent_from(file: SpooledTempFile, permit: Option<Permit>) -> Body {
    let pieces = futures_util::stream::try_unfold((file, permit), |(mut file, permit)| async {
        let read = spawn_blocking(move || {
            let mut piece = vec![0; CHUNK];
            let length = file.read(&mut piece)?;
            piece.truncate(length);
            Ok::<_, io::Error>((file, piece))
        });
        let (file, piece) = read.await.map_err(io::Error::other)??;
        let next = (!piece.is_empty()).then(|| (Bytes::from(piece), (file, permit)));
        Ok::<_, io::Error>(next)
    });
    Body::from_stream(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Damage;

    fn status_and_text(error: Interrupted) -> (StatusCode, String) {
        match unwritten("/export", &error) {
            Failure::Message(status, text) => (status, text.into_owned()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_unreadable_store_is_no_full_disk() {
        let (status, text) = status_and_text(StoreError::Damaged(Damage::Header).into());
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(text, UNREADABLE_STORE);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let (status, text) = status_and_text(Unreadable::Export(ExportError::Write(full)).into());
        assert_eq!(status, StatusCode::INSUFFICIENT_STORAGE);
        assert!(text.contains("the disk is full"), "{text}");
    }
}
