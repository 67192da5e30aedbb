//! HTTP/2 connections of clients. `net::http2` makes each stream look like a kept-alive HTTP/1.1 connection, served by
//! the same [`Connection`]. Streams are not counted as connections of the worker.

use super::plane::{DataPlane, SessionSettings};
use super::server::Ticket;
use super::worker::{self, Phase};
use super::{Arrival, Connection};
use net::http2::{ClientStream, PREFACE, Server, ServerSettings};
use net::stream::Stream;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Time for which a session without a stream is kept for the next stream. It is short, because a new session costs less
/// than a microsecond.
pub(super) const SESSION_IDLE: Duration = Duration::from_secs(5);

/// Overhead that the `h2` crate counts for each header line (RFC 9113 section 10.5.1).
const LINE_OVERHEAD: usize = 32;

/// Serves an HTTP/2 connection to its end. `before` holds the bytes that have already been read.
pub(super) async fn serve_http2(
    mut ticket: Ticket,
    stream: Stream,
    before: Vec<u8>,
    mut arrival: Arrival,
) {
    let plane = ticket.plane.clone();
    arrival.http2 = true;
    // Caches the local address, because streams have no socket of their own.
    arrival.local(&stream);
    arrival.write_usual_forwarded();
    let arrival = Arc::new(arrival);
    let mut server = Server::new(stream, before, server_settings(&plane.settings));
    let ended = poll_fn(|cx| {
        let leaves = worker::with(|worker| {
            worker.connections.set_waker(ticket.number, cx.waker());
            // A new connection may still send its first request.
            worker.draining && (server.has_served() || worker.ends_waiting)
        });
        if leaves {
            server.leave();
        }
        let ended = server.poll(cx, |served| {
            tokio::spawn(session(&plane, &arrival, served).run());
        });
        let phase = if server.is_idle() {
            Phase::Waiting
        } else {
            Phase::Starting
        };
        if ticket.phase != phase {
            worker::with(|worker| worker.count_phase(&plane, &mut ticket.phase, phase));
        }
        ended
    })
    .await;
    tracing::trace!(peer = %arrival.peer, ?ended, "HTTP/2 connection ended");
}

fn session(plane: &Arc<DataPlane>, arrival: &Arc<Arrival>, served: ClientStream) -> Connection {
    let stream = Stream::Served(Box::new(served));
    let until = Instant::now() + SESSION_IDLE;
    Connection::new(plane.clone(), None, stream, arrival.clone(), until)
}

fn server_settings(settings: &SessionSettings) -> ServerSettings {
    // `h2` accepts larger heads than the gateway, so that the gateway can send an error response for a head that
    // exceeds its own limit.
    let head = settings.limits.head * 2 + settings.limits.lines * LINE_OVERHEAD;
    ServerSettings {
        head: u32::try_from(head).unwrap_or(u32::MAX),
        handshake_timeout: settings.header_timeout,
        idle_timeout: settings.idle_timeout,
        send_timeout: settings.send_timeout,
        ..settings.http2
    }
}

/// Serves a plaintext connection on a listener with `http2`. Its first bytes show whether the client speaks HTTP/2 with
/// prior knowledge (RFC 9113 section 3.3) or HTTP/1.1.
pub(super) async fn serve_either(ticket: Ticket, stream: TcpStream, arrival: Arrival) {
    let mut stream = Stream::Tcp(stream);
    let limit = ticket.plane.settings.header_timeout;
    let Ok(Some(read)) = timeout(limit, read_opening(&mut stream)).await else {
        return;
    };
    if read.starts_with(PREFACE) {
        // Boxed, because it would enlarge the task of an HTTP/1.1 connection.
        return Box::pin(serve_http2(ticket, stream, read, arrival)).await;
    }
    if is_neither(&read) {
        // The client may speak malformed HTTP/2, and would read an HTTP/1.1 response as frames.
        return;
    }
    let mut connection = ticket.connection(stream, arrival);
    connection.carry = read;
    connection.run().await;
}

/// Whether the first line is complete and cannot be an HTTP/1 request. Even a malformed request has a target or a
/// version, and so a slash.
fn is_neither(opening: &[u8]) -> bool {
    let line_end = memchr::memchr(b'\n', opening);
    line_end.is_some_and(|end| end > 1 && memchr::memchr(b'/', &opening[..end]).is_none())
}

/// Reads enough bytes to recognize the protocol. Returns `None` if the client disconnects before.
async fn read_opening(stream: &mut Stream) -> Option<Vec<u8>> {
    let mut opening = Vec::new();
    poll_fn(|cx| {
        loop {
            let read = ready!(worker::with(|worker| {
                let read = stream.poll_read(cx, &mut worker.read);
                read.map_ok(|read| {
                    opening.extend_from_slice(&worker.read[..read]);
                    read
                })
            }));
            match read {
                Ok(read) if read > 0 => {}
                _ => return Poll::Ready(None),
            }
            let compared = opening.len().min(PREFACE.len());
            if compared == PREFACE.len() || opening[..compared] != PREFACE[..compared] {
                return Poll::Ready(Some(std::mem::take(&mut opening)));
            }
        }
    })
    .await
}
