//! Responses that may be too large for memory. A response is first written completely, to an unnamed temporary file
//! next to the store, and then sent from this file. So a slow client occupies a file, but no snapshot of the store and
//! no thread. Small responses stay in memory.

use crate::peer::Permit;
use crate::request::Call;
use crate::respond::Failure;
use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use std::error::Error;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
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
    pub(crate) async fn answer<E: Error + Send + Sync + 'static>(
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
            let written = write(&mut chunks).map_err(io::Error::other);
            (written.and_then(|()| chunks.finish()), permit)
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

fn unwritten(endpoint: &str, error: &io::Error) -> Failure {
    tracing::error!(endpoint, %error, "a response cannot be written");
    Failure::Message(
        StatusCode::INSUFFICIENT_STORAGE,
        "the response cannot be written to a temporary file: the disk is full or failing".into(),
    )
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
