//! Accepting connections for the Admin API and the Status API, on the runtime that calls [`serve`]: the program gives it one of its own, so
//! that no request of an administrator takes time from a worker.

use axum::Router;
use axum::serve::ListenerExt;
use net::tls::ServerTls;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;

/// How long a client may take for its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Handshakes under way at once for one listener; further connections wait in the kernel.
const MAX_HANDSHAKES: usize = 64;

/// How long connections that are open when the server is told to stop may still bring requests. One that was taken from the
/// queue a moment before would otherwise be reset with its first request unread.
const FAREWELL: Duration = Duration::from_millis(300);

/// Where one of them listens.
#[derive(Debug)]
pub enum Listener {
    Plain(TcpListener),
    Tls(TcpListener, ServerTls),
}

/// Serves [`crate::router()`] or [`crate::status_router`] until `stop` is ready, then lets requests under way finish.
pub async fn serve<F>(listeners: Vec<Listener>, router: Router, stop: F) -> io::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (announce, stopped) = watch::channel(false);
    let mut servers = JoinSet::new();
    for listener in listeners {
        servers.spawn(serve_one(listener, router.clone(), stopped.clone()));
    }
    drop(stopped);
    tokio::spawn(async move {
        // When every server has ended there is nobody left to tell.
        tokio::select! {
            () = stop => announce.send_replace(true),
            () = announce.closed() => true,
        }
    });
    while let Some(ended) = servers.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    Ok(())
}

async fn serve_one(
    listener: Listener,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let accepting = stopped.clone();
    let until_stopped = |listener| UntilStopped {
        listener,
        stopped: accepting,
    };
    let stop = async move {
        told_to_stop(&mut stopped).await;
        tokio::time::sleep(FAREWELL).await;
    };
    match listener {
        Listener::Plain(listener) => {
            // Without this the last small packet of a long answer waits for an acknowledgement.
            let listener = until_stopped(listener).tap_io(|stream| drop(stream.set_nodelay(true)));
            axum::serve(
                listener,
                router.into_make_service_with_connect_info::<SocketAddr>(),
            )
            .with_graceful_shutdown(stop)
            .await
        }
        Listener::Tls(listener, tls) => {
            // Tapped for nothing but its side effect, that the address of the client can be told.
            let listener = TlsListener::new(until_stopped(listener), tls)?.tap_io(|_| {});
            axum::serve(
                listener,
                router.into_make_service_with_connect_info::<SocketAddr>(),
            )
            .with_graceful_shutdown(stop)
            .await
        }
    }
}

async fn told_to_stop(stopped: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop as well.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Takes no more connections once told to stop: those that come then are another process's, if there is one.
struct UntilStopped {
    listener: TcpListener,
    stopped: watch::Receiver<bool>,
}

impl axum::serve::Listener for UntilStopped {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        tokio::select! {
            biased;
            () = told_to_stop(&mut self.stopped) => {}
            accepted = axum::serve::Listener::accept(&mut self.listener) => return accepted,
        }
        std::future::pending().await
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

type Accepted = (TlsStream<TcpStream>, SocketAddr);

/// Hands out connections whose handshake is done; a slow one keeps no other waiting.
struct TlsListener {
    address: SocketAddr,
    accepted: mpsc::Receiver<Accepted>,
    /// Ends with the listener.
    _handshakes: JoinSet<()>,
}

impl TlsListener {
    fn new(listener: UntilStopped, tls: ServerTls) -> io::Result<Self> {
        let address = axum::serve::Listener::local_addr(&listener)?;
        let (sender, accepted) = mpsc::channel(MAX_HANDSHAKES);
        let mut handshakes = JoinSet::new();
        handshakes.spawn(accept_all(listener, tls, sender));
        Ok(Self {
            address,
            accepted,
            _handshakes: handshakes,
        })
    }
}

async fn accept_all(mut listener: UntilStopped, tls: ServerTls, sender: mpsc::Sender<Accepted>) {
    let mut handshakes = JoinSet::new();
    loop {
        if handshakes.len() == MAX_HANDSHAKES {
            handshakes.join_next().await;
        }
        while handshakes.try_join_next().is_some() {}
        let (stream, peer) = axum::serve::Listener::accept(&mut listener).await;
        // A connection that is gone already is found out when it is read.
        let _ = stream.set_nodelay(true);
        let (tls, sender) = (tls.clone(), sender.clone());
        handshakes.spawn(async move {
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    // The server has stopped; so has the reason to answer.
                    let _ = sender.send((stream, peer)).await;
                }
                Ok(Err(error)) => tracing::info!(%error, %peer, "a TLS handshake failed"),
                Err(_) => tracing::info!(%peer, "a TLS handshake took too long"),
            }
        });
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The accepting task never ends by itself.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
