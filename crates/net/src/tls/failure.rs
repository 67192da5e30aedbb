//! The end of a handshake that failed: the client is told by an alert, and has the time to read it.

use rustls::{Error, InvalidMessage, PeerMisbehaved};
use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How much more a client may send before its connection is reset, and for how long.
const LINGER_BYTES: usize = 256 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(2);

const UNEXPECTED_MESSAGE: u8 = 10;
const DECODE_ERROR: u8 = 50;

/// Closes our side and takes in what the client still sends. Bytes that nobody reads would make the system reset the
/// connection, and the client would lose the alert.
pub(super) async fn end(error: &io::Error, mut stream: TcpStream) {
    if !matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::Other) {
        // The client has gone.
        return;
    }
    if let Some(description) = unsent_alert(error) {
        let alert = [21, 3, 3, 0, 2, 2, description];
        // There is room for so little, or nobody to read it.
        let _ = stream.try_write(&alert);
    }
    if stream.shutdown().await.is_ok() {
        let _ = timeout(LINGER_TIME, drain(&mut stream)).await;
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

/// The alert that an error calls for, where rustls sends none. It goes out unencrypted, as clients that fail like this have not
/// got any further than their first message.
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
