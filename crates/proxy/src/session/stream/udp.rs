//! UDP sessions. All datagrams that one client sends to one address go to one upstream, and its responses go back,
//! until neither has sent anything for the service's `read_timeout`. The operating system gives all datagrams of a
//! client to the same worker, so workers share no sessions.

use super::record::Record;
use super::{Attempts, Refusal};
use crate::balance::Stay;
use crate::session::connect::ConnectError;
use crate::session::plane::DataPlane;
use crate::session::server::Ticket;
use crate::session::worker::{self, ConnectionState};
use net::deadline::Deadline;
use net::udp::{Datagram, DatagramListener, MAX_DATAGRAM};
use plugin::{Reason, StreamProtocol};
use router::StreamRequest;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

/// Maximum sessions per listener and worker. Each session has a socket. Kong's nginx has the same limit
/// (`worker_connections`).
const MAX_SESSIONS: usize = 16_384;
/// Maximum datagrams that wait while a new session connects to its upstream. Further ones are dropped.
const MAX_WAITING: usize = 16;
/// Pause after the listener's socket has reported an error.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum responses forwarded per poll, so that other tasks can run.
const MAX_ANSWERS: usize = 64;

/// The client's address and the local address that it sends to.
type Key = (SocketAddr, IpAddr);

/// A listener with its sessions. Only this worker uses the lock, and nothing waits while holding it.
struct Sessions {
    plane: Arc<DataPlane>,
    listener: DatagramListener,
    /// Port of the listener, mapped by `port_maps`.
    port: u16,
    by_client: Mutex<HashMap<Key, Arc<Session>>>,
    /// Whether it has been logged that the table of sessions is full. Reset when a session ends.
    is_full_told: AtomicBool,
}

struct Session {
    /// Set once the socket is connected.
    upstream: OnceLock<UdpSocket>,
    waiting: mpsc::Sender<Box<[u8]>>,
    /// When the client last sent a datagram.
    heard: Mutex<Instant>,
    /// Bytes received from the client, and those of them that were sent upstream.
    received: AtomicU64,
    upstream_sent: AtomicU64,
}

/// Serves a listener; never returns.
pub(in crate::session) async fn serve_datagrams(
    plane: Arc<DataPlane>,
    listener: DatagramListener,
    port: u16,
) {
    let sessions = Arc::new(Sessions {
        plane,
        listener,
        port,
        by_client: Mutex::default(),
        is_full_told: AtomicBool::new(false),
    });
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        match sessions.listener.receive(&mut buffer).await {
            Ok(datagram) => sessions.take(datagram, &buffer[..datagram.length]),
            Err(error) => {
                tracing::warn!(%error, "cannot receive datagrams, waiting");
                sleep(PAUSE).await;
            }
        }
    }
}

impl Sessions {
    /// Passes a datagram to its session. Creates the session if necessary.
    fn take(self: &Arc<Self>, datagram: Datagram, bytes: &[u8]) {
        let key = (datagram.client, datagram.local);
        let mut by_client = self.lock();
        let is_full = by_client.len() >= MAX_SESSIONS;
        let session = match by_client.entry(key) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(_) if is_full => {
                drop(by_client);
                if !self.is_full_told.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        port = self.port,
                        sessions = MAX_SESSIONS,
                        "too many UDP sessions: new clients are not served"
                    );
                }
                return;
            }
            Entry::Vacant(free) => {
                let (waiting, to_send) = mpsc::channel(MAX_WAITING);
                let session = free.insert(Arc::new(Session {
                    upstream: OnceLock::new(),
                    waiting,
                    heard: Mutex::new(Instant::now()),
                    received: AtomicU64::new(0),
                    upstream_sent: AtomicU64::new(0),
                }));
                let session = session.clone();
                self.start(key, session.clone(), to_send);
                session
            }
        };
        drop(by_client);
        session.pass_on(bytes);
    }

    fn start(
        self: &Arc<Self>,
        key: Key,
        session: Arc<Session>,
        to_send: mpsc::Receiver<Box<[u8]>>,
    ) {
        let ticket = Ticket::begin(&self.plane);
        let number = ticket.number;
        let record = Record::new(&self.plane, StreamProtocol::Udp, key.0, self.port);
        let mut registered = Registered {
            sessions: self.clone(),
            key,
            session,
            record,
        };
        let task = tokio::spawn(async move {
            registered.serve(to_send).await;
            drop(registered);
            drop(ticket);
        });
        let handle = task.abort_handle();
        worker::with(|worker| {
            worker.connections.set_abort(number, handle);
            // The end of a session cannot be predicted, so a drain does not wait for it.
            worker.connections.set_state(number, ConnectionState::Idle);
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<Session>>> {
        self.by_client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Sends a client's datagram upstream, or keeps it until the upstream is connected.
    fn pass_on(&self, bytes: &[u8]) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.received
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        match self.upstream.get() {
            // If the socket's buffer is full, the datagram is dropped, as the network would do. Errors are ignored
            // here, because `poll_answers` usually receives them.
            Some(upstream) => self.sent_upstream(upstream.try_send(bytes)),
            None => {
                let _ = self.waiting.try_send(bytes.into());
            }
        }
    }

    fn sent_upstream(&self, sent: io::Result<usize>) {
        if let Ok(length) = sent {
            self.upstream_sent
                .fetch_add(length as u64, Ordering::Relaxed);
        }
    }

    fn heard(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session's entry in the table. When this is dropped, also by a drain, the entry is removed and the session is
/// logged.
struct Registered {
    sessions: Arc<Sessions>,
    key: Key,
    session: Arc<Session>,
    record: Record,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.key);
        self.sessions.is_full_told.store(false, Ordering::Relaxed);
        let Session {
            received,
            upstream_sent,
            ..
        } = &*self.session;
        // The record writes the log when it is dropped, right after this.
        self.record.moved.received = received.load(Ordering::Relaxed);
        self.record.moved.upstream_sent = upstream_sent.load(Ordering::Relaxed);
    }
}

/// The upstream socket and the parts of the service that must outlive the snapshot.
struct Reached {
    socket: UdpSocket,
    idle: Duration,
    /// Counts the session at its target.
    _stay: Option<Stay>,
}

impl Registered {
    /// Serves the session until its idle limit.
    async fn serve(&mut self, mut to_send: mpsc::Receiver<Box<[u8]>>) {
        let (client, session) = (self.key.0, self.session.clone());
        let reached = match Box::pin(self.reach()).await {
            Ok(reached) => reached,
            Err(refusal) => {
                self.record.refused(&refusal);
                self.say(refusal.message());
                refusal.tell("UDP session", client);
                return;
            }
        };
        self.record.forwarded();
        let Reached {
            socket,
            idle,
            _stay,
        } = reached;
        let upstream = session.upstream.get_or_init(|| socket);
        // Sends the datagrams that arrived before the socket was connected. Waits while the socket's buffer is full.
        // `pass_on` sends later datagrams directly.
        while let Ok(datagram) = to_send.try_recv() {
            session.sent_upstream(upstream.send(&datagram).await);
        }
        let mut deadline = Deadline::new(Instant::now() + idle);
        let mut answered = Instant::now();
        let ended = poll_fn(|cx| {
            if let Poll::Ready(ended) = self.poll_answers(cx, upstream, &mut answered) {
                return Poll::Ready(Err(ended));
            }
            let last = session.heard().max(answered);
            deadline.set(last + idle);
            deadline.poll_passed(cx).map(Ok)
        })
        .await;
        // A session of datagrams has no other end than silence.
        let mut reason = None;
        if let Err(error) = ended {
            tracing::debug!(%client, %error, "UDP session ended");
            reason = Some(Reason::ConnectFailed);
        }
        self.record.ended(reason);
    }

    /// Sends the last words of a session.
    fn say(&mut self, message: &str) {
        if message.is_empty() {
            return;
        }
        let (client, local) = self.key;
        let listener = &self.sessions.listener;
        match listener.try_send(message.as_bytes(), client, local) {
            Ok(()) => self.record.moved.sent += message.len() as u64,
            Err(error) => tracing::debug!(%client, %error, "cannot send a message to the client"),
        }
    }

    /// Forwards responses to the client. Ready only when the upstream's socket reports an error.
    fn poll_answers(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &UdpSocket,
        answered: &mut Instant,
    ) -> Poll<io::Error> {
        let (client, local) = self.key;
        for _ in 0..MAX_ANSWERS {
            let received = worker::with(|worker| {
                let mut buffer = ReadBuf::new(&mut worker.read);
                upstream.poll_recv(cx, &mut buffer).map_ok(|()| {
                    let length = buffer.filled().len() as u64;
                    let listener = &self.sessions.listener;
                    let sent = listener.try_send(buffer.filled(), client, local);
                    let moved = &mut self.record.moved;
                    moved.upstream_received += length;
                    moved.sent += if sent.is_ok() { length } else { 0 };
                    sent
                })
            });
            match received {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(sent)) => {
                    *answered = Instant::now();
                    // If the socket's buffer is full, the response is dropped, as the network would do.
                    if let Err(error) = sent.or_else(unless_full) {
                        tracing::debug!(%client, %error, "cannot send a datagram to the client");
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(error),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Runs the plugins, and connects a socket to the next target. Only name resolution and local errors can fail, since UDP has no
    /// handshake.
    async fn reach(&mut self) -> Result<Reached, Refusal> {
        let (client, local) = self.key;
        let sessions = &self.sessions;
        let view = worker::with(|worker| worker.view(&sessions.plane));
        let snapshot = &*view.snapshot;
        let route = snapshot.stream_route(&StreamRequest {
            source: client,
            destination: SocketAddr::new(local, sessions.port),
            sni: None,
            datagrams: true,
        });
        let route = route.ok_or(Refusal::NoRoute)?;
        let service = snapshot.stream_service(route);
        let record = &mut self.record;
        // A client that is gone cannot be noticed, and a session takes one of the places in the table.
        let limit = sessions.plane.settings.header_timeout;
        let preread = timeout(limit, record.preread(snapshot, route, service)).await;
        preread.map_err(|_| Refusal::PluginTooSlow)??;
        let service = service.ok_or(Refusal::NoService)?;
        let mut attempts = Attempts::new(service, client.ip());
        loop {
            let (target, address) = attempts.next(record).await?;
            match connected(address).await {
                Ok(socket) => {
                    return Ok(Reached {
                        socket,
                        idle: target.read_timeout,
                        _stay: target.into_stay(),
                    });
                }
                Err(error) => {
                    let error = ConnectError::Refused(Arc::new(error));
                    attempts.failed(target, address, error, record)?;
                }
            }
        }
    }
}

/// Ignores the error of a full socket buffer.
fn unless_full(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock => Ok(()),
        _ => Err(error),
    }
}

/// Opens a socket that receives datagrams only from this address.
async fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(address).await?;
    Ok(socket)
}
