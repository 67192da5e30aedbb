//! Accepting connections for the Admin API, on the runtime that calls [`serve`]: the program gives it one of its own, so
//! that no request of an administrator takes time from a worker.

use crate::control::Control;
use axum::Router;
use std::io;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Where the Admin API listens.
#[derive(Debug)]
pub enum Listener {
    Plain(TcpListener),
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
    let (announce, stopped) = tokio::sync::watch::channel(false);
    let mut servers = tokio::task::JoinSet::new();
    for listener in listeners {
        let stopped = stopped.clone();
        servers.spawn(serve_one(listener, router.clone(), stopped));
    }
    tokio::spawn(async move {
        stop.await;
        // Nobody left to tell is fine: every server has ended already.
        let _ = announce.send(true);
    });
    while let Some(ended) = servers.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    Ok(())
}

async fn serve_one(
    listener: Listener,
    router: Router,
    mut stopped: tokio::sync::watch::Receiver<bool>,
) -> io::Result<()> {
    let stop = async move {
        // An error means that the sender is gone, which is a stop as well.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    match listener {
        Listener::Plain(listener) => {
            axum::serve(listener, router)
                .with_graceful_shutdown(stop)
                .await
        }
    }
}
