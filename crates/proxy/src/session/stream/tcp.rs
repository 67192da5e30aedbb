//! A connection of a stream listener, from its first byte to its byte relay.

use super::relay::Relay;
use super::{Attempts, Refusal, Termination, find, termination};
use crate::balance::Stay;
use crate::session::connect::{Name, dedicated};
use crate::session::log_entries::{EndedStream, log_stream};
use crate::session::server::{Server, Ticket};
use crate::session::worker;
use crate::snapshot::{ServiceRef, StreamRoute};
use net::client_hello::Opening;
use net::peek;
use net::pool;
use net::stream::Stream;
use router::StreamRequest;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// A connection and the facts about it that routing needs.
struct Arrived {
    stream: TcpStream,
    client: SocketAddr,
    destination: SocketAddr,
    sni: Option<Box<str>>,
}

/// An upstream connection and the parts of its service that must outlive the snapshot, since a relay may run for days.
struct Reached {
    upstream: Box<pool::Connection>,
    idle: Duration,
    stay: Option<Stay>,
}

impl Server {
    /// Gathers the facts that routing needs: reads the PROXY protocol header, and peeks at the client hello.
    async fn arrive(&self, mut stream: TcpStream, peer: SocketAddr) -> Result<Arrived, Refusal> {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let mut client = peer;
        if self.proxy_protocol {
            let header = peek::take_proxy_header(&mut stream).await?;
            // The header of an untrusted peer is read but not used, as in nginx.
            let trusted = self.plane.settings.real_ip.trusts(peer.ip());
            client = header.client().filter(|_| trusted).unwrap_or(peer);
        }
        let sni = match &self.tls {
            None => None,
            Some(_) => match peek::opening(&stream).await? {
                Opening::Hello { server_name } => server_name,
                // The stream is not refused and has no server name, like in nginx: a passthrough route that matches by
                // address may carry other protocols.
                Opening::NotTls => None,
            },
        };
        let local = stream.local_addr()?;
        Ok(Arrived {
            destination: SocketAddr::new(local.ip().to_canonical(), self.port),
            stream,
            client,
            sni,
        })
    }

    /// Finds the route of a client connection, terminates TLS if the route says so, and connects to the upstream. Sets
    /// `client` to the address in a trusted PROXY protocol header.
    async fn open(&self, stream: TcpStream, client: &mut SocketAddr) -> Result<Relay, Refusal> {
        let limit = self.plane.settings.header_timeout;
        let arrived = timeout(limit, self.arrive(stream, *client)).await;
        let arrived = arrived.map_err(|_| Refusal::TooSlow)??;
        *client = arrived.client;
        let view = worker::with(|worker| worker.view(&self.plane));
        let route = find(
            &view.snapshot,
            &StreamRequest {
                source: arrived.client,
                destination: arrived.destination,
                sni: arrived.sni.as_deref(),
                datagrams: false,
            },
        )?;
        let service = view.snapshot.stream_service(route);
        let service = service.ok_or(Refusal::NoService)?;
        let client = match &self.tls {
            Some(tls) if termination(route)? == Termination::Here => {
                let shaken = timeout(limit, tls.accept(arrived.stream)).await;
                let stream = shaken.map_err(|_| Refusal::TooSlow)?;
                let stream = stream.map_err(Refusal::Handshake)?;
                Stream::Tls(Box::new(stream.into()))
            }
            _ => Stream::Tcp(arrived.stream),
        };
        let reached = reach(route, service, arrived.client, arrived.sni.as_deref()).await?;
        Ok(Relay::new(
            client,
            reached.upstream,
            reached.idle,
            reached.stay,
        ))
    }
}

/// Serves a connection from its acceptance to its end.
pub(in crate::session) async fn serve_stream(
    server: Server,
    ticket: Ticket,
    stream: TcpStream,
    peer: SocketAddr,
) {
    let started = Instant::now();
    let mut ended = EndedStream {
        protocol: "TCP",
        client: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
        port: server.port,
        status: 200,
        received: 0,
        sent: 0,
        took: Duration::ZERO,
    };
    // The future is boxed because opening needs more memory than the relay, which runs much longer.
    let opened = Box::pin(server.open(stream, &mut ended.client)).await;
    match opened {
        Ok(relay) => {
            let moved = Box::pin(relay.run()).await;
            (ended.received, ended.sent) = (moved.received, moved.sent);
            tracing::debug!(
                client = %ended.client,
                status = 200,
                received = moved.received,
                sent = moved.sent,
                milliseconds = started.elapsed().as_millis(),
                "stream ended"
            );
        }
        Err(refusal) => {
            ended.status = refusal.status();
            refusal.tell("stream", ended.client);
        }
    }
    ended.took = started.elapsed();
    log_stream(&ticket.plane, &ended);
    drop(ticket);
}

/// Tries the service's targets until a connection succeeds.
async fn reach(
    route: &StreamRoute,
    service: ServiceRef<'_>,
    client: SocketAddr,
    sni: Option<&str>,
) -> Result<Reached, Refusal> {
    let mut attempts = Attempts::new(service, client.ip());
    loop {
        let (target, address) = attempts.next().await?;
        let name = match sni {
            Some(sni) if route.preserve_host => Name {
                text: sni.as_bytes(),
                is_of_client: true,
            },
            _ => Name {
                text: target.authority.as_bytes(),
                is_of_client: false,
            },
        };
        match dedicated(&target, address, name, &mut attempts.now).await {
            Ok(upstream) => {
                target.report(crate::health::Outcome::Connected);
                return Ok(Reached {
                    upstream,
                    idle: target.read_timeout,
                    stay: target.into_stay(),
                });
            }
            Err(error) => {
                tracing::debug!(%client, %error, "cannot connect to upstream target");
                attempts.failed(target, address, error)?;
            }
        }
    }
}
