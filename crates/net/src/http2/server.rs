//! A client's HTTP/2 connection: drives the `h2` connection, distributes its streams, and closes it when it is idle,
//! stuck, abusive, or draining.

use super::client_stream::{Accepted, ClientStream, Shared};
use super::text;
use super::wire::Wire;
use crate::deadline::Deadline;
use crate::stream::Stream;
use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, Connection, Handshake};
use http::{Response, StatusCode};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Large enough for one fast upload. The windows of all streams together exceed [`DEFAULT_CONNECTION_WINDOW`], which
/// limits the memory of a connection.
const DEFAULT_STREAM_WINDOW: u32 = 128 * 1024;
const DEFAULT_CONNECTION_WINDOW: u32 = 1024 * 1024;
/// nginx's `http2_max_concurrent_streams`.
const DEFAULT_STREAMS: u32 = 128;
/// Time for a client to close an idle connection after our GOAWAY, or to read the GOAWAY after abuse.
const FAREWELL: Duration = Duration::from_secs(5);
/// Within about [`RESET_WINDOW`], a client may reset this many streams before their responses are complete. Each of
/// them may have caused an upstream request.
const MAX_RESETS: usize = 1000;
const RESET_WINDOW: Duration = Duration::from_secs(30);
/// Limits frames without payload. A client may send eight times the sum of this number and the payload of its requests
/// and their responses. Responses count because a client answers them with frames without payload, such as
/// WINDOW_UPDATE. The formula is from nginx, on which Kong is based. Unlike here, nginx also counts all bytes that it
/// sends in the total.
const MAX_FRAMING: u64 = 1024 * 1024;

#[derive(Debug, Clone, Copy)]
pub struct ServerSettings {
    /// Maximum concurrent streams; further ones are refused.
    pub streams: u32,
    /// Bytes of a request body that a client may send before the gateway has read any of them.
    pub stream_window: u32,
    /// Like `stream_window`, for all streams of a connection together.
    pub connection_window: u32,
    /// Maximum size of a request head, counted as in RFC 9113 section 6.5.2.
    pub head: u32,
    /// Whether WebSocket over HTTP/2 (RFC 8441) is enabled.
    pub websocket: bool,
    /// Maximum time until the connection preface is complete.
    pub handshake_timeout: Duration,
    /// Maximum time without an open stream.
    pub idle_timeout: Duration,
    /// Maximum time for which a client may accept no bytes although some are waiting.
    pub send_timeout: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            streams: DEFAULT_STREAMS,
            stream_window: DEFAULT_STREAM_WINDOW,
            connection_window: DEFAULT_CONNECTION_WINDOW,
            head: 64 * 1024,
            websocket: true,
            handshake_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(75),
            send_timeout: Duration::from_secs(60),
        }
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client closed it, or it ended after our GOAWAY.
    Closed,
    /// A protocol or network error.
    Error,
    /// The gateway closed it, because the client accepted or sent nothing for too long.
    Timeout,
}

enum ConnectionPhase {
    Handshake(Box<Handshake<Wire, Bytes>>),
    Open(Box<Connection<Wire, Bytes>>),
}

/// The server's side of a connection, to be polled by a separate task.
pub struct Server {
    state: ConnectionPhase,
    wire: Wire,
    shared: Arc<Shared>,
    settings: ServerSettings,
    deadline: Deadline,
    /// When to check next whether the connection is idle.
    look_at: Instant,
    /// Whether our GOAWAY has been sent, for any reason.
    leaving: bool,
    /// Whether the connection was ended because of abuse. It then has until `deadline` to send what waits.
    thrown_out: bool,
    resets_counted: (usize, Instant),
}

impl Server {
    /// Creates the server side of a connection. `before` holds the bytes that were already read from it.
    pub fn new(stream: Stream, before: Vec<u8>, settings: ServerSettings) -> Self {
        let wire = Wire::new(stream, before, super::PREFACE.len());
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(settings.streams)
            .initial_window_size(settings.stream_window)
            .initial_connection_window_size(settings.connection_window)
            .max_header_list_size(settings.head)
            .max_send_buffer_size(super::SEND_BUFFER);
        if settings.websocket {
            builder.enable_connect_protocol();
        }
        let now = Instant::now();
        Self {
            state: ConnectionPhase::Handshake(Box::new(builder.handshake(wire.clone()))),
            shared: Arc::new(Shared::new(wire.watch())),
            wire,
            settings,
            deadline: Deadline::new(now + settings.handshake_timeout),
            look_at: now + settings.idle_timeout,
            leaving: false,
            thrown_out: false,
            resets_counted: (0, now),
        }
    }

    /// Whether no stream is open.
    pub fn is_idle(&self) -> bool {
        self.shared.state().active == 0
    }

    /// Whether there has been any stream.
    pub fn has_served(&self) -> bool {
        self.shared.has_served()
    }

    /// Stops accepting streams, lets the open ones finish, then closes (RFC 9113 section 6.8). Has no effect until the
    /// handshake is complete.
    pub fn leave(&mut self) {
        if let ConnectionPhase::Open(connection) = &mut self.state
            && !std::mem::replace(&mut self.leaving, true)
        {
            connection.graceful_shutdown();
            self.look_at = Instant::now() + FAREWELL;
        }
    }

    /// Ready when the connection has ended. Passes each new session to `start`.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut start: impl FnMut(ClientStream),
    ) -> Poll<Ended> {
        let driven = match self.poll_streams(cx, &mut start) {
            Poll::Pending => self.poll_limits(cx),
            ended => ended,
        };
        if driven.is_ready() {
            // Try once to send the GOAWAY that states the reason.
            let _ = self.wire.line().poll_flush(cx);
        }
        driven
    }

    fn poll_streams(
        &mut self,
        cx: &mut Context<'_>,
        start: &mut impl FnMut(ClientStream),
    ) -> Poll<Ended> {
        loop {
            let progress = match &mut self.state {
                ConnectionPhase::Handshake(handshake) => {
                    Pin::new(&mut **handshake).poll(cx).map(|connection| {
                        connection.map(|open| self.state = ConnectionPhase::Open(Box::new(open)))
                    })
                }
                ConnectionPhase::Open(connection) => match connection.poll_accept(cx) {
                    Poll::Ready(Some(Ok(accepted))) => {
                        if let Some(session) = offer(&self.shared, accepted) {
                            start(session);
                        }
                        continue;
                    }
                    Poll::Ready(Some(Err(error))) => Poll::Ready(Err(error)),
                    Poll::Ready(None) => return Poll::Ready(Ended::Closed),
                    Poll::Pending => Poll::Pending,
                },
            };
            match progress {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "an HTTP/2 connection failed");
                    return Poll::Ready(Ended::Error);
                }
                Poll::Pending => break,
            }
        }
        match self.wire.line().poll_flush(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(Ended::Error),
            _ => Poll::Pending,
        }
    }

    /// Applies the time limits and the limits against abuse.
    fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        if matches!(self.state, ConnectionPhase::Open(_)) {
            if !self.thrown_out && self.is_abusive() {
                self.throw_out();
            }
            if self.thrown_out {
                // Sending the GOAWAY waits for a client that does not read.
                return match self.poll_streams(cx, &mut drop) {
                    Poll::Pending => self.deadline.poll_passed(cx).map(|()| Ended::Timeout),
                    ended => ended,
                };
            }
            let blocked = self.wire.line().blocked_since;
            self.deadline.set(match blocked {
                Some(since) => self.look_at.min(since + self.settings.send_timeout),
                None => self.look_at,
            });
        }
        loop {
            ready!(self.deadline.poll_passed(cx));
            if matches!(self.state, ConnectionPhase::Handshake(_)) {
                return Poll::Ready(Ended::Timeout);
            }
            let now = Instant::now();
            let blocked = self.wire.line().blocked_since;
            if blocked.is_some_and(|since| since + self.settings.send_timeout <= now) {
                return Poll::Ready(Ended::Timeout);
            }
            let (active, quiet_since) = {
                let state = self.shared.state();
                (state.active, state.quiet_since)
            };
            let since = if active == 0 { quiet_since } else { now };
            if active > 0 || (!self.leaving && since + self.settings.idle_timeout > now) {
                self.look_at = since + self.settings.idle_timeout;
            } else if self.leaving {
                return Poll::Ready(Ended::Timeout);
            } else {
                self.leave();
                // This sends the GOAWAY and registers the task for the client's reaction.
                match self.poll_streams(cx, &mut drop) {
                    Poll::Pending => {}
                    ended => return ended,
                }
            }
            self.deadline.set(self.look_at);
        }
    }

    fn is_abusive(&mut self) -> bool {
        let (given_up, payload) = {
            let state = self.shared.state();
            (state.given_up, state.payload)
        };
        if self.wire.line().read / 8 > payload + MAX_FRAMING {
            return true;
        }
        let (counted, since) = self.resets_counted;
        if given_up < counted + MAX_RESETS {
            return false;
        }
        let now = Instant::now();
        self.resets_counted = (given_up, now);
        now.duration_since(since) < RESET_WINDOW
    }

    fn throw_out(&mut self) {
        tracing::debug!(
            "an HTTP/2 client sends too many frames without payload or too many resets"
        );
        if let ConnectionPhase::Open(connection) = &mut self.state {
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        self.leaving = true;
        self.thrown_out = true;
        self.deadline.set(Instant::now() + FAREWELL);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Refuses a request that cannot become HTTP/1.1 text. Passes any other request to a session. Returns the session if it
/// is new and the caller must start it.
fn offer(shared: &Arc<Shared>, (request, mut respond): Accepted) -> Option<ClientStream> {
    let (parts, body) = request.into_parts();
    if !text::is_well_formed(&parts) {
        respond.send_reset(Reason::PROTOCOL_ERROR);
        return None;
    }
    if parts.extensions.get::<h2::ext::Protocol>().is_some() && !text::is_websocket(&parts) {
        let mut answer = Response::new(());
        *answer.status_mut() = StatusCode::NOT_IMPLEMENTED;
        // Fails only if the client has reset the stream.
        let _ = respond.send_response(answer, true);
        return None;
    }
    shared.offer((http::Request::from_parts(parts, body), respond))
}
