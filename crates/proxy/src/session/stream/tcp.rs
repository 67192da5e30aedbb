//! A connection of a stream listener, from its first byte to its byte relay.

use super::record::Record;
use super::relay::Relay;
use super::{Attempts, Refusal, Termination, termination};
use crate::balance::Stay;
use crate::session::connect::{Name, dedicated};
use crate::session::handshake::{
    Caller, HandshakeError, count_handshake, handshake, is_held, tls_info,
};
use crate::session::server::{Server, Ticket};
use crate::session::worker;
use crate::snapshot::{ServiceRef, Snapshot, StreamRoute};
use net::client_hello::Opening;
use net::outgoing::Outgoing;
use net::peek;
use net::pool;
use net::stream::Stream;
use net::tls::ServerTls;
use plugin::StreamProtocol;
use router::StreamRequest;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// An upstream connection and the parts of its service that must outlive the snapshot, since a relay may run for days.
struct Reached {
    upstream: Box<pool::Connection>,
    idle: Duration,
    stay: Option<Stay>,
}

impl Server {
    /// Gathers the facts that routing needs: reads the PROXY protocol header, and peeks at the client hello. Returns
    /// the address that the client has connected to.
    async fn arrive(
        &self,
        stream: &mut TcpStream,
        record: &mut Record,
    ) -> Result<SocketAddr, Refusal> {
        if self.proxy_protocol {
            let header = peek::take_proxy_header(stream).await?;
            // The header of an untrusted peer is read but not used, as in nginx.
            let trusted = self.plane.settings.real_ip.trusts(record.peer.ip());
            if let Some(client) = header.client().filter(|_| trusted) {
                record.client = client;
            }
        }
        if self.tls.is_some() {
            record.sni = match peek::opening(stream).await? {
                Opening::Hello { server_name } => server_name,
                // The stream is not refused and has no server name, like in nginx: a passthrough route that matches by
                // address may carry other protocols.
                Opening::NotTls => None,
            };
        }
        let local = stream.local_addr()?;
        Ok(SocketAddr::new(local.ip().to_canonical(), self.port))
    }

    /// Finds the route of a client connection, terminates TLS if the route says so, runs the plugins, and connects to
    /// the upstream.
    async fn open(&self, mut stream: TcpStream, record: &mut Record) -> Result<Relay, Refusal> {
        let limit = self.plane.settings.header_timeout;
        let arrived = timeout(limit, self.arrive(&mut stream, record)).await;
        let destination = arrived.map_err(|_| Refusal::TooSlow)??;
        let view = worker::with(|worker| worker.view(&self.plane));
        let snapshot = &*view.snapshot;
        let route = snapshot.stream_route(&StreamRequest {
            source: record.client,
            destination,
            sni: record.sni.as_deref(),
            datagrams: false,
        });
        let route = route.ok_or(Refusal::NoRoute)?;
        let client = match &self.tls {
            Some(tls) => match termination(route)? {
                Termination::Here => {
                    record.protocol = StreamProtocol::Tls;
                    let shaken = self.shake_hands(tls, stream, snapshot, record);
                    let began = Instant::now();
                    let shaken = timeout(limit, shaken).await;
                    count_handshake(&self.plane, began, shaken.as_ref().ok());
                    shaken.map_err(|_| Refusal::TooSlow)??
                }
                Termination::Upstream => {
                    record.protocol = StreamProtocol::TlsPassthrough;
                    Stream::Tcp(stream)
                }
            },
            None => Stream::Tcp(stream),
        };
        let service = snapshot.stream_service(route);
        if let Err(refusal) = record.preread(snapshot, route, service).await {
            let message = refusal.message();
            if !message.is_empty() {
                let limit = self.plane.settings.send_timeout;
                record.moved.sent = Box::pin(say(client, message, limit)).await;
            }
            return Err(refusal);
        }
        let service = service.ok_or(Refusal::NoService)?;
        let reached = reach(route, service, record).await?;
        record.forwarded();
        Ok(Relay::new(
            client,
            reached.upstream,
            reached.idle,
            reached.stay,
        ))
    }

    async fn shake_hands(
        &self,
        tls: &ServerTls,
        stream: TcpStream,
        snapshot: &Snapshot,
        record: &mut Record,
    ) -> Result<Stream, HandshakeError> {
        let globals = snapshot.stream_globals();
        let stream = if is_held(globals) {
            let caller = Caller {
                client: record.client,
                peer: record.peer,
                port: record.port,
            };
            let plugins = snapshot.installed(&self.plane.node, self.plane.doing());
            Box::pin(handshake(tls, stream, globals, plugins, caller)).await?
        } else {
            tls.accept(stream).await?
        };
        record.tls = Some(tls_info(&stream));
        Ok(Stream::Tls(Box::new(stream.into())))
    }
}

/// Serves a connection from its acceptance to its end.
pub(in crate::session) async fn serve_stream(
    server: Server,
    ticket: Ticket,
    stream: TcpStream,
    peer: SocketAddr,
) {
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let mut record = Record::new(&ticket.plane, StreamProtocol::Tcp, peer, server.port);
    // The future is boxed because opening needs more memory than the relay, which runs much longer.
    let opened = Box::pin(server.open(stream, &mut record)).await;
    match opened {
        Ok(relay) => {
            let reason = Box::pin(relay.run(&mut record.moved)).await;
            record.ended(reason);
            tracing::debug!(
                client = %record.client,
                status = 200,
                received = record.moved.received,
                sent = record.moved.sent,
                milliseconds = record.elapsed().as_millis(),
                "stream ended"
            );
        }
        Err(refusal) => {
            record.refused(&refusal);
            refusal.tell("stream", record.client);
        }
    }
    // Writes the log before the connection is no longer counted.
    drop(record);
    drop(ticket);
}

/// Sends the last words of a session, and then reads what the client still sends: unread bytes would make the system
/// reset the connection, and the client would lose the message. Returns the number of bytes sent.
async fn say(mut client: Stream, message: &str, limit: Duration) -> u64 {
    /// Maximum bytes that the client may still send, and the maximum time for it.
    const LINGER_BYTES: usize = 256 * 1024;
    const LINGER_TIME: Duration = Duration::from_secs(2);
    let mut out = Outgoing::default();
    out.push(message.as_bytes());
    let sending = poll_fn(|cx| {
        ready!(out.poll_flush(&mut client, cx))?;
        client.poll_shutdown(cx)
    });
    let sent = timeout(limit, sending).await;
    if let Ok(Ok(())) = sent {
        let mut taken = 0;
        let lingering = poll_fn(|cx| {
            loop {
                let read = worker::with(|worker| client.poll_read(cx, &mut worker.read));
                match ready!(read) {
                    Ok(read) if read > 0 && taken < LINGER_BYTES => taken += read,
                    _ => return Poll::Ready(()),
                }
            }
        });
        let _ = timeout(LINGER_TIME, lingering).await;
    }
    out.sent()
}

/// Tries the service's targets until a connection succeeds.
async fn reach(
    route: &StreamRoute,
    service: ServiceRef<'_>,
    record: &mut Record,
) -> Result<Reached, Refusal> {
    let client = record.client;
    let mut attempts = Attempts::new(service, client.ip());
    loop {
        let (target, address) = attempts.next(record).await?;
        let name = match record.sni.as_deref() {
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
                attempts.failed(target, address, error, record)?;
            }
        }
    }
}
