//! Closes a connection after a failed handshake, so that the client receives an alert and can read it.

use rustls::{Error, InvalidMessage, PeerMisbehaved};
use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum number of bytes to discard before the connection is closed. [`LINGER_TIME`] is the maximum time for it.
const LINGER_BYTES: usize = 256 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(2);

const UNEXPECTED_MESSAGE: u8 = 10;
const DECODE_ERROR: u8 = 50;
const INTERNAL_ERROR: u8 = 80;

/// Closes the sending direction and discards what the client still sends. If bytes stayed unread, the system would
/// reset the connection, and the client would lose the alert.
pub(super) async fn end(error: &io::Error, stream: TcpStream) {
    end_with(unsent_alert(error), error, stream).await;
}

/// Does the same for a handshake that has failed before a configuration was chosen. rustls then leaves one more alert
/// to the caller.
pub(super) async fn end_of_hello(error: &io::Error, stream: TcpStream) {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let alert = match cause {
        Some(Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. }) => {
            Some(UNEXPECTED_MESSAGE)
        }
        _ => unsent_alert(error),
    };
    end_with(alert, error, stream).await;
}

async fn end_with(alert: Option<u8>, error: &io::Error, mut stream: TcpStream) {
    if !matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::Other) {
        // The connection is already closed or reset, so no alert can be sent.
        return;
    }
    if let Some(description) = alert {
        send_alert(&stream, description);
    }
    close(&mut stream).await;
}

/// Refuses a client whose first message has arrived, with the alert that OpenSSL sends when a callback for the
/// certificate fails.
pub(super) async fn refuse(mut stream: TcpStream) {
    send_alert(&stream, INTERNAL_ERROR);
    close(&mut stream).await;
}

/// Sends an alert unencrypted, which is possible until the server's first message.
fn send_alert(stream: &TcpStream, description: u8) {
    let alert = [21, 3, 3, 0, 2, 2, description];
    // The result is ignored: these few bytes fit into the socket's buffer unless the client has disconnected.
    let _ = stream.try_write(&alert);
}

async fn close(stream: &mut TcpStream) {
    if stream.shutdown().await.is_ok() {
        let _ = timeout(LINGER_TIME, drain(stream)).await;
    }
}

async fn drain(stream: &mut TcpStream) {
    let mut buffer = vec![0; 4096];
    let mut taken = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        taken += read;
        if taken > LINGER_BYTES {
            return;
        }
    }
}

/// Returns the alert for an error, if rustls does not send one itself. The caller can send it unencrypted, because
/// these errors occur in a client's first message.
fn unsent_alert(error: &io::Error) -> Option<u8> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    match error {
        Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge) => Some(DECODE_ERROR),
        Error::PeerMisbehaved(
            PeerMisbehaved::MessageInterleavedWithHandshakeMessage
            | PeerMisbehaved::TooManyEmptyFragments,
        ) => Some(UNEXPECTED_MESSAGE),
        _ => None,
    }
}
