//! One worker: its listeners, their connections, and the drain at the end.

use super::plane::DataPlane;
use super::worker;
use super::{Arrival, Connection};
use crate::forward::usual_forwarded;
use net::deadline::Deadline;
use net::listen::{Listen, accept_loop};
use net::outgoing::Outgoing;
use net::stream::Stream;
use net::tls::ServerTls;
use plugin::Scheme;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

/// What a worker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Serve,
    /// Take no more connections, let requests end within this time, then go.
    Drain(Duration),
}

/// How often a worker looks after what only time changes.
const TIDY_INTERVAL: Duration = Duration::from_secs(1);

/// Serves listeners on the current thread, until told to stop and drained. `number` is this worker's among those of the
/// plane. To be run on a current-thread runtime of its own.
pub async fn serve(
    plane: Arc<DataPlane>,
    number: usize,
    listeners: Vec<(Listen, std::net::TcpListener)>,
    tls: ServerTls,
    mut stop: watch::Receiver<Stop>,
) -> io::Result<()> {
    worker::with(|worker| worker.set_up(&plane, number));
    let mut accepting = JoinSet::new();
    for (listen, listener) in listeners {
        let listener = TcpListener::from_std(listener)?;
        let server = Server {
            plane: plane.clone(),
            tls: listen.ssl.then(|| tls.clone()),
            port: plane
                .settings
                .port_maps
                .get(&listen.address.port())
                .copied()
                .unwrap_or(listener.local_addr()?.port()),
        };
        accepting.spawn(async move {
            accept_loop(&listener, listen.keepalive, |stream, peer| {
                server.start(stream, peer);
            })
            .await;
        });
    }
    let mut tick = interval(TIDY_INTERVAL);
    let limit = loop {
        tokio::select! {
            _ = tick.tick() => worker::with(|worker| worker.tidy(&plane)),
            changed = stop.changed() => match (changed, *stop.borrow_and_update()) {
                (_, Stop::Drain(limit)) => break limit,
                (Err(_), Stop::Serve) => break Duration::ZERO,
                (Ok(()), Stop::Serve) => {}
            },
        }
    };
    accepting.shutdown().await;
    drain(limit).await;
    Ok(())
}

/// Ends connections that wait for a request at once, the others when they have their answer or time is up.
async fn drain(limit: Duration) {
    let (idle, drained) = worker::with(|worker| worker.start_draining());
    for handle in idle {
        handle.abort();
    }
    let none_left = async {
        while worker::with(|worker| worker.connections.count()) > 0 {
            drained.notified().await;
        }
    };
    if timeout(limit, none_left).await.is_err() {
        for handle in worker::with(|worker| worker.connections.handles(false)) {
            handle.abort();
        }
    }
}

/// A listener as its connections know it.
#[derive(Clone)]
struct Server {
    plane: Arc<DataPlane>,
    tls: Option<ServerTls>,
    port: u16,
}

impl Server {
    fn start(&self, stream: TcpStream, peer: SocketAddr) {
        let number = worker::with(|worker| worker.begin_connection(&self.plane));
        let ticket = Ticket {
            plane: self.plane.clone(),
            number,
        };
        let arrival = Arrival {
            peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
            port: self.port,
            scheme: Scheme::Http,
            sni: None,
            forwarded: Box::default(),
        };
        let task = match &self.tls {
            None => tokio::spawn(ticket.connection(Stream::Tcp(stream), arrival).run()),
            Some(tls) => tokio::spawn(serve_tls(ticket, tls.clone(), stream, arrival)),
        };
        let handle = task.abort_handle();
        worker::with(|worker| worker.connections.set_abort(number, handle));
    }
}

/// A counted connection; uncounts it when dropped.
pub(super) struct Ticket {
    pub(super) plane: Arc<DataPlane>,
    pub(super) number: usize,
}

impl Ticket {
    fn connection(self, stream: Stream, mut arrival: Arrival) -> Connection {
        arrival.forwarded = usual_forwarded(arrival.peer.ip(), arrival.scheme, arrival.port).into();
        let now = Instant::now();
        // A client that connects and says nothing gets as long as one that stops in the middle of a head.
        let deadline = Deadline::new(now + self.plane.settings.header_timeout);
        Connection {
            plane: self.plane.clone(),
            ticket: self,
            stream,
            arrival: Arc::new(arrival),
            carry: Vec::new(),
            out: Outgoing::default(),
            deadline,
            now,
            continued: false,
            request_body: super::RequestBodyAt::Carry,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        worker::with(|worker| worker.end_connection(self.number, &self.plane));
    }
}

async fn serve_tls(ticket: Ticket, tls: ServerTls, stream: TcpStream, mut arrival: Arrival) {
    let limit = ticket.plane.settings.header_timeout;
    let Ok(Ok(stream)) = timeout(limit, tls.accept(stream)).await else {
        return;
    };
    arrival.scheme = Scheme::Https;
    arrival.sni = stream.get_ref().1.server_name().map(Box::from);
    let stream = Stream::Tls(Box::new(stream.into()));
    ticket.connection(stream, arrival).run().await;
}

/// The task of a connection, to be measured.
#[cfg(test)]
pub(super) fn idle_connection(
    plane: &Arc<DataPlane>,
    stream: TcpStream,
) -> impl Future<Output = ()> {
    let ticket = Ticket {
        plane: plane.clone(),
        number: worker::with(|worker| worker.begin_connection(plane)),
    };
    let arrival = Arrival {
        peer: SocketAddr::from(([127, 0, 0, 1], 1)),
        port: 1,
        scheme: Scheme::Http,
        sni: None,
        forwarded: Box::default(),
    };
    ticket.connection(Stream::Tcp(stream), arrival).run()
}
