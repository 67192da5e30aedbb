//! Answers of which only a few chunks exist at a time: a thread writes them as the client takes them.

use axum::body::Body;
use bytes::Bytes;
use std::error::Error;
use std::io::{self, Write};
use tokio::sync::mpsc;

/// Bytes that are in memory at once: this many chunks of this size.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 8;

/// A body that `write` writes on a thread of its own. When it fails the answer breaks off, which every client sees.
pub(crate) fn body<E: Error + Send + Sync + 'static>(
    endpoint: &'static str,
    write: impl FnOnce(&mut Chunks) -> Result<(), E> + Send + 'static,
) -> Body {
    let (sender, receiver) = mpsc::channel(CHUNKS);
    tokio::task::spawn_blocking(move || {
        let mut chunks = Chunks {
            sender,
            buffer: Vec::with_capacity(CHUNK + 8192),
        };
        let written = write(&mut chunks).map_err(io::Error::other);
        match written.and_then(|()| chunks.flush()) {
            Ok(()) => {}
            Err(_) if chunks.sender.is_closed() => {
                tracing::info!(endpoint, "the client went away before the whole answer");
            }
            Err(error) => {
                tracing::error!(endpoint, %error, "the answer ends early");
                // A client that has gone since cannot be told.
                let _ = chunks.sender.blocking_send(Err(error));
            }
        }
    });
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|chunk| (chunk, receiver))
    });
    Body::from_stream(stream)
}

/// What has been written and not been taken yet.
pub(crate) struct Chunks {
    sender: mpsc::Sender<io::Result<Bytes>>,
    pub(crate) buffer: Vec<u8>,
}

impl Chunks {
    pub(crate) fn flush_when_full(&mut self) -> io::Result<()> {
        if self.buffer.len() < CHUNK {
            return Ok(());
        }
        self.flush()
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        self.flush_when_full()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let full = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK + 8192));
        let sent = self.sender.blocking_send(Ok(Bytes::from(full)));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client went away"))
    }
}
