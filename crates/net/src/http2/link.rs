//! Connections to upstreams that speak HTTP/2: a few per address, each with many streams. Which one a request goes on is
//! settled here; the connection itself is driven by a task of its own.

use super::called::Called;
use super::wire::Wire;
use crate::deadline::Deadline;
use crate::stream::Stream;
use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Bytes of an answer that an upstream may send before the client has taken any.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Streams of one connection before another is opened, if the upstream allows as many.
const COMFORTABLE_STREAMS: usize = 100;
/// Connections per address and worker; with all of them full, requests wait for a stream.
const MOST_LINKS: usize = 16;
/// After so long without a sign of life, a ping goes out with the next request. Not more often, and not without a request:
/// gRPC servers take that for an attack.
const SILENCE: Duration = Duration::from_secs(10);
/// An upstream that does not answer a ping for so long is gone.
const PONG_TIMEOUT: Duration = Duration::from_secs(15);

/// Kong's `upstream_keepalive_*`, as far as they mean something for connections that are shared.
#[derive(Debug, Clone, Copy)]
pub struct LinkSettings {
    /// Requests per connection; zero: no limit.
    pub max_requests: u32,
    /// Without a stream; zero: no limit.
    pub idle: Duration,
}

/// Who shares a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkKey {
    /// The identity of the TLS settings.
    pub tls: Option<usize>,
    pub sni: Option<Arc<str>>,
}

/// What a connection's handle and its task tell each other.
#[derive(Debug, Default)]
struct State {
    streams: AtomicUsize,
    wants_ping: AtomicBool,
    over: AtomicBool,
}

/// A stream in use.
#[derive(Debug)]
pub(super) struct Use(Arc<State>);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection to an upstream.
#[derive(Debug)]
pub struct Link {
    request: SendRequest<Bytes>,
    state: Arc<State>,
    wire: Wire,
    key: LinkKey,
    requests: u32,
    quiet_since: Option<Instant>,
}

impl Link {
    /// Begins HTTP/2 on a connection. The second is to be polled until it ends, by a task of its own.
    pub async fn open(stream: Stream, key: LinkKey, head: u32) -> io::Result<(Self, Driver)> {
        let wire = Wire::new(stream, Vec::new());
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(head)
            .max_send_buffer_size(super::SEND_BUFFER);
        let opened = builder.handshake(wire.clone()).await;
        let (request, mut connection) = opened.map_err(super::to_io)?;
        let state = Arc::<State>::default();
        let driver = Driver {
            pings: connection.ping_pong(),
            connection,
            state: Arc::clone(&state),
            wire: wire.clone(),
            pinged: None,
        };
        let link = Self {
            request,
            state,
            wire,
            key,
            requests: 0,
            quiet_since: None,
        };
        Ok((link, driver))
    }

    /// Streams that it has room for; none when it takes no more at all.
    fn room(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        if self.state.over.load(Ordering::Relaxed) {
            return None;
        }
        match self.request.poll_ready(cx) {
            Poll::Ready(Err(_)) => None,
            _ => {
                let most = self.request.current_max_send_streams();
                let used = self.state.streams.load(Ordering::Relaxed);
                Some(most.min(COMFORTABLE_STREAMS).saturating_sub(used))
            }
        }
    }

    /// A stream of this connection.
    pub fn call(&mut self) -> Called {
        if self.wire.line().last_read.elapsed() > SILENCE {
            self.state.wants_ping.store(true, Ordering::Relaxed);
        }
        self.requests = self.requests.saturating_add(1);
        self.quiet_since = None;
        self.state.streams.fetch_add(1, Ordering::Relaxed);
        let counted = Use(Arc::clone(&self.state));
        Called::new(self.request.clone(), self.key.tls.is_some(), counted)
    }

    fn is_worn(&self, settings: &LinkSettings) -> bool {
        settings.max_requests != 0 && self.requests >= settings.max_requests
    }

    /// Whether it is worth keeping.
    fn tidy(&mut self, now: Instant, idle: Duration) -> bool {
        if self.state.over.load(Ordering::Relaxed) {
            return false;
        }
        if self.state.streams.load(Ordering::Relaxed) > 0 {
            self.quiet_since = None;
            return true;
        }
        let since = *self.quiet_since.get_or_insert(now);
        idle.is_zero() || now < since + idle
    }
}

/// The task of a connection to an upstream. Ends when the connection does: by itself when nobody holds it any more.
#[derive(Debug)]
pub struct Driver {
    connection: Connection<Wire, Bytes>,
    pings: Option<PingPong>,
    state: Arc<State>,
    wire: Wire,
    pinged: Option<Box<Deadline>>,
}

impl Driver {
    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.state.wants_ping.swap(false, Ordering::Relaxed)
            && self.pinged.is_none()
            && let Some(pings) = &mut self.pings
            && pings.send_ping(Ping::opaque()).is_ok()
        {
            self.pinged = Some(Box::new(Deadline::new(Instant::now() + PONG_TIMEOUT)));
        }
        if let Poll::Ready(ended) = Pin::new(&mut self.connection).poll(cx) {
            if let Err(error) = ended {
                tracing::debug!(%error, "an HTTP/2 connection to an upstream ended");
            }
            return Poll::Ready(());
        }
        if let Poll::Ready(Err(_)) = self.wire.line().poll_flush(cx) {
            return Poll::Ready(());
        }
        self.poll_pong(cx)
    }

    fn poll_pong(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(deadline), Some(pings)) = (&mut self.pinged, &mut self.pings) else {
            return Poll::Pending;
        };
        match pings.poll_pong(cx) {
            Poll::Ready(Ok(_)) => {
                self.pinged = None;
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Pending => {
                ready!(deadline.poll_passed(cx));
                tracing::info!("an upstream does not answer pings, its connection is closed");
                Poll::Ready(())
            }
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let ended = self.poll_connection(cx);
        if ended.is_ready() {
            self.state.over.store(true, Ordering::Relaxed);
        }
        ended
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
    }
}

/// What a request finds of connections to its address.
#[derive(Debug)]
pub enum Found {
    Call(Box<Called>),
    /// Another request is connecting: worth waiting for.
    Dialing(Arc<Dial>),
    /// Nobody is; the caller is to connect, and to say how it went.
    Dial(Arc<Dial>),
}

/// A connection in the making.
#[derive(Debug, Default)]
pub struct Dial {
    done: Notify,
    failed: AtomicBool,
}

impl Dial {
    /// Waits for the end; false when there is no connection.
    pub async fn wait(&self) -> bool {
        self.done.notified().await;
        !self.failed.load(Ordering::Relaxed)
    }
}

/// Ends a [`Dial`], also when the request that was connecting is gone.
#[derive(Debug)]
pub struct Dialer {
    dial: Arc<Dial>,
    connected: bool,
}

impl Dialer {
    pub fn new(dial: Arc<Dial>) -> Self {
        Self {
            dial,
            connected: false,
        }
    }

    pub fn connected(&mut self) {
        self.connected = true;
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        self.dial.failed.store(!self.connected, Ordering::Relaxed);
        self.dial.done.notify_waiters();
    }
}

/// The HTTP/2 connections of one worker to upstreams.
#[derive(Debug, Default)]
pub struct Links {
    by_address: HashMap<SocketAddr, Vec<Link>>,
    dials: Vec<(SocketAddr, LinkKey, std::sync::Weak<Dial>)>,
}

impl Links {
    /// A stream to an address: on the connection with the most room, or on a new one while there are few.
    pub fn take(
        &mut self,
        address: SocketAddr,
        key: &LinkKey,
        settings: &LinkSettings,
        cx: &mut Context<'_>,
    ) -> Found {
        let links = self.by_address.entry(address).or_default();
        let mut best: Option<(usize, usize)> = None;
        let mut count = 0;
        let mut at = 0;
        while at < links.len() {
            let link = &mut links[at];
            if link.key != *key {
                at += 1;
                continue;
            }
            match link.room(cx) {
                Some(room) if !link.is_worn(settings) => {
                    count += 1;
                    if best.is_none_or(|(_, most)| room > most) {
                        best = Some((at, room));
                    }
                    at += 1;
                }
                _ => drop(links.swap_remove(at)),
            }
        }
        let at = match best {
            Some((at, room)) if room > 0 || count >= MOST_LINKS => at,
            _ => return self.dial(address, key),
        };
        Found::Call(Box::new(links[at].call()))
    }

    fn dial(&mut self, address: SocketAddr, key: &LinkKey) -> Found {
        self.dials.retain(|(_, _, dial)| dial.strong_count() > 0);
        let same = |dial: &&(SocketAddr, LinkKey, std::sync::Weak<Dial>)| {
            dial.0 == address && dial.1 == *key
        };
        if let Some(dial) = self
            .dials
            .iter()
            .find(same)
            .and_then(|dial| dial.2.upgrade())
        {
            return Found::Dialing(dial);
        }
        let dial = Arc::<Dial>::default();
        let entry = (address, key.clone(), Arc::downgrade(&dial));
        self.dials.push(entry);
        Found::Dial(dial)
    }

    pub fn add(&mut self, address: SocketAddr, link: Link) {
        self.by_address.entry(address).or_default().push(link);
    }

    /// Lets go of connections that have been without a stream for too long, or are over.
    pub fn sweep(&mut self, now: Instant, settings: &LinkSettings) {
        self.by_address.retain(|_, links| {
            links.retain_mut(|link| link.tidy(now, settings.idle));
            !links.is_empty()
        });
    }

    pub fn count(&self) -> usize {
        self.by_address.values().map(Vec::len).sum()
    }
}
