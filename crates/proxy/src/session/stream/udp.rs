//! Sessions of datagrams: everything that one client sends to one address goes to one upstream, and everything that this answers
//! goes back, until neither has said anything for the service's `read_timeout`. The system gives all datagrams of a client to one worker,
//! so that sessions are no business of the others.

use super::{Attempts, Refusal, find};
use crate::balance::Stay;
use crate::session::access::{EndedStream, log_stream};
use crate::session::connect::ConnectError;
use crate::session::plane::DataPlane;
use crate::session::server::Ticket;
use crate::session::worker::{self, State};
use net::deadline::Deadline;
use net::udp::{Datagram, DatagramListener, MAX_DATAGRAM};
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
use tokio::time::{Instant, sleep};

/// Of one listener on one worker. As many as the web server under Kong has room for; each has a socket.
const MAX_SESSIONS: usize = 16_384;
/// Datagrams that wait while a new session finds its upstream. UDP may lose the others.
const MAX_WAITING: usize = 16;
/// After an error of the listener itself.
const PAUSE: Duration = Duration::from_millis(100);
/// Answers that one poll passes on at most, so that others get their turn.
const MAX_ANSWERS: usize = 64;

/// Who talks with whom.
type Key = (SocketAddr, IpAddr);

/// A listener with its sessions. The lock is this worker's alone, and nobody waits while holding it.
struct Sessions {
    plane: Arc<DataPlane>,
    listener: DatagramListener,
    /// Mapped by `port_maps`.
    port: u16,
    by_client: Mutex<HashMap<Key, Arc<Session>>>,
    /// Told once until there is room again.
    is_full_told: AtomicBool,
}

struct Session {
    /// Set once it is connected.
    upstream: OnceLock<UdpSocket>,
    waiting: mpsc::Sender<Box<[u8]>>,
    /// When the client has spoken last.
    heard: Mutex<Instant>,
    /// Bytes from the client, and to it.
    received: AtomicU64,
    sent: AtomicU64,
}

/// Serves a listener for ever.
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
    /// Gives a datagram to its session, which it may begin.
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
                        "no room for more sessions of datagrams: new clients are not served"
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
                    sent: AtomicU64::new(0),
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
        let sessions = self.clone();
        let task = tokio::spawn(async move {
            let started = Instant::now();
            let port = sessions.port;
            let registered = Registered { sessions, key };
            let status = registered.serve(&session, to_send).await;
            drop(registered);
            let ended = EndedStream {
                protocol: "UDP",
                client: key.0,
                port,
                status,
                received: session.received.load(Ordering::Relaxed),
                sent: session.sent.load(Ordering::Relaxed),
                took: started.elapsed(),
            };
            log_stream(&ticket.plane, &ended);
        });
        let handle = task.abort_handle();
        worker::with(|worker| {
            worker.connections.set_abort(number, handle);
            // Nothing tells when a session is over: a drain does not wait for it.
            worker.connections.set_state(number, State::Idle);
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<Session>>> {
        self.by_client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Sends a datagram of the client upstream, or keeps it until that is connected.
    fn pass_on(&self, bytes: &[u8]) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.received
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        match self.upstream.get() {
            // A full buffer loses datagrams as the network would; an error shows when answers are read.
            Some(upstream) => {
                let _ = upstream.try_send(bytes);
            }
            None => {
                let _ = self.waiting.try_send(bytes.into());
            }
        }
    }

    fn heard(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session by its place, which is free again when this is dropped.
struct Registered {
    sessions: Arc<Sessions>,
    key: Key,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.key);
        self.sessions.is_full_told.store(false, Ordering::Relaxed);
    }
}

/// What of the service outlives the snapshot.
struct Reached {
    socket: UdpSocket,
    idle: Duration,
    /// Counts the session at its peer.
    _stay: Option<Stay>,
}

impl Registered {
    /// Until nobody has said anything for too long; with the status for the log.
    async fn serve(&self, session: &Session, mut to_send: mpsc::Receiver<Box<[u8]>>) -> u16 {
        let client = self.key.0;
        let reached = match Box::pin(self.reach()).await {
            Ok(reached) => reached,
            Err(refusal) => {
                refusal.tell("session of datagrams", client);
                return refusal.status();
            }
        };
        let Reached {
            socket,
            idle,
            _stay,
        } = reached;
        let upstream = session.upstream.get_or_init(|| socket);
        // Those that came before; from here on the listener sends itself. What a new socket has no room for yet is waited for.
        while let Ok(datagram) = to_send.try_recv() {
            let _ = upstream.send(&datagram).await;
        }
        let mut deadline = Deadline::new(Instant::now() + idle);
        let mut answered = Instant::now();
        let ended = poll_fn(|cx| {
            if let Poll::Ready(ended) = self.poll_answers(cx, session, upstream, &mut answered) {
                return Poll::Ready(Err(ended));
            }
            let last = session.heard().max(answered);
            deadline.set(last + idle);
            deadline.poll_passed(cx).map(Ok)
        })
        .await;
        if let Err(error) = ended {
            tracing::debug!(%client, %error, "session of datagrams ended");
        }
        200
    }

    /// Passes answers on to the client; ready with what went wrong upstream.
    fn poll_answers(
        &self,
        cx: &mut Context<'_>,
        session: &Session,
        upstream: &UdpSocket,
        answered: &mut Instant,
    ) -> Poll<io::Error> {
        let (client, local) = self.key;
        for _ in 0..MAX_ANSWERS {
            let received = worker::with(|worker| {
                let mut buffer = ReadBuf::new(&mut worker.read);
                upstream.poll_recv(cx, &mut buffer).map_ok(|()| {
                    let length = buffer.filled().len() as u64;
                    session.sent.fetch_add(length, Ordering::Relaxed);
                    let listener = &self.sessions.listener;
                    listener.try_send(buffer.filled(), client, local)
                })
            });
            match received {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(sent)) => {
                    *answered = Instant::now();
                    // An answer that has no room is lost, as on the network.
                    if let Err(error) = sent.or_else(unless_full) {
                        tracing::debug!(%client, %error, "cannot answer a client");
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(error),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// A socket to the target whose turn it is. With datagrams there is nothing to fail but its name and the way there.
    async fn reach(&self) -> Result<Reached, Refusal> {
        let (client, local) = self.key;
        let sessions = &self.sessions;
        let view = worker::with(|worker| worker.view(&sessions.plane));
        let route = find(
            &view.snapshot,
            &StreamRequest {
                source: client,
                destination: SocketAddr::new(local, sessions.port),
                sni: None,
                datagrams: true,
            },
        )?;
        let service = view.snapshot.stream_service(route);
        let service = service.ok_or(Refusal::NoService)?;
        let mut attempts = Attempts::new(service, client.ip());
        loop {
            let (target, address) = attempts.next().await?;
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
                    attempts.failed(target, address, error)?;
                }
            }
        }
    }
}

fn unless_full(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock => Ok(()),
        _ => Err(error),
    }
}

/// A socket that hears nobody but this address.
async fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(address).await?;
    Ok(socket)
}
