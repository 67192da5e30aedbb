//! Accepting connections for the Admin API, on the runtime that calls [`serve`]: the program gives it one of its own, so
//! that no request of an administrator takes time from a worker.

use crate::control::Control;
use axum::Router;
use axum::serve::ListenerExt;
use net::tls::ServerTls;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;

/// How long a client may take for its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Handshakes under way at once for one listener; further connections wait in the kernel.
const MAX_HANDSHAKES: usize = 64;

/// Where the Admin API listens.
#[derive(Debug)]
pub enum Listener {
    Plain(TcpListener),
    Tls(TcpListener, ServerTls),
}

/// Serves until `stop` is ready, then lets requests under way finish.
pub async fn serve<F>(
    listeners: Vec<Listener>,
    control: Arc<dyn Control>,
    stop: F,
) -> io::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let router = crate::router(control);
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
    let stop = async move {
        // An error means that the sender is gone, which is a stop as well.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    match listener {
        Listener::Plain(listener) => {
            // Without this the last small packet of a long answer waits for an acknowledgement.
            let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
            axum::serve(listener, router)
                .with_graceful_shutdown(stop)
                .await
        }
        Listener::Tls(listener, tls) => {
            axum::serve(TlsListener::new(listener, tls)?, router)
                .with_graceful_shutdown(stop)
                .await
        }
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
    fn new(listener: TcpListener, tls: ServerTls) -> io::Result<Self> {
        let address = listener.local_addr()?;
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

async fn accept_all(mut listener: TcpListener, tls: ServerTls, sender: mpsc::Sender<Accepted>) {
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
