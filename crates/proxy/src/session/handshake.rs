//! TLS handshakes with clients, and the plugins that run in them. A handshake without such plugins is not held.

use super::counts::Handshake;
use super::plane::DataPlane;
use super::worker;
use crate::plugins::Plan;
use crate::plugins::streams::{Closed, Installed};
use net::tls::{ServerTls, ServerTlsStream, cipher_name, version_name};
use plugin::{CertificateCx, Client, Phases, TlsInfo};
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;
use tokio::time::Instant;

#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("handshake failed: {0}")]
    Tls(#[from] io::Error),
    #[error(transparent)]
    Plugin(#[from] Closed),
}

/// The client of a handshake, and the port that it has connected to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) client: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) port: u16,
}

/// Whether a global plugin runs in handshakes.
pub(super) fn is_held(globals: &Plan) -> bool {
    globals.has(Phases::CERTIFICATE)
}

/// Performs a handshake, and holds it for the plugins when the client hello has arrived. The caller must set a time
/// limit. If a plugin ends the handshake, the client receives an alert.
pub(super) async fn handshake(
    tls: &ServerTls,
    stream: TcpStream,
    globals: &Plan,
    plugins: Installed<'_>,
    caller: Caller,
) -> Result<ServerTlsStream<TcpStream>, HandshakeError> {
    let held = tls.hold(stream).await?;
    let cx = |configured| CertificateCx {
        client: Client {
            ip: caller.client.ip(),
            port: caller.client.port(),
        },
        peer: caller.peer,
        port: caller.port,
        sni: held.server_name(),
        offers_http2: held.offers_http2(),
        configured,
        node: plugins.node,
    };
    match plugins.certificate(globals, cx).await {
        Ok(()) => Ok(held.go_on().await?),
        Err(closed) => {
            held.refuse().await;
            Err(closed.into())
        }
    }
}

/// Counts a handshake. `shaken` is `None` if it was not complete in time.
pub(super) fn count_handshake<T>(
    plane: &DataPlane,
    began: Instant,
    shaken: Option<&Result<T, HandshakeError>>,
) {
    let outcome = match shaken {
        Some(Ok(_)) => Handshake::Completed,
        Some(Err(HandshakeError::Tls(_))) => Handshake::Failed,
        Some(Err(HandshakeError::Plugin(_))) => Handshake::Refused,
        None => Handshake::TimedOut,
    };
    let counters = worker::with(|worker| worker.counters(plane));
    counters.count_handshake(outcome, began.elapsed());
}

/// Returns what plugins see of the TLS of a connection.
pub(super) fn tls_info(stream: &ServerTlsStream<TcpStream>) -> TlsInfo {
    let (_, connection) = stream.get_ref();
    // The handshake fails if the client's certificate is not valid.
    let has_certificate = connection.peer_certificates().is_some();
    TlsInfo {
        version: version_name(connection),
        cipher: cipher_name(connection),
        client_verify: if has_certificate { "SUCCESS" } else { "NONE" },
    }
}
