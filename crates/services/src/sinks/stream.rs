//! Sends lines to a TCP server on one connection, which is opened when there are lines.

use super::rest::{Rest, Unsent};
use crate::http::ConnectError;
use crate::http::connect::{Transport, connect_tcp};
use crate::queue::{SendError, Sender, Text};
use net::dns::Host;
use net::tls::ClientTls;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

/// Longer times are cut, because adding them to the current time could overflow.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A TCP server.
#[derive(Debug, Clone)]
pub struct Tcp {
    pub host: String,
    pub port: u16,
    /// The name that TLS asks for, or `None` without TLS.
    pub tls: Option<String>,
    /// Whether the server's certificate is verified.
    pub verify: bool,
    /// Maximum time to connect, and to send a part of a batch.
    pub timeout: Duration,
    /// Time without lines after which the connection is closed.
    pub keepalive: Duration,
}

struct Link {
    host: Arc<Host>,
    tls: Option<(ClientTls, String)>,
    timeout: Duration,
    keepalive: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Transport>,
    /// When lines were last sent.
    used: Option<Instant>,
    /// Whether [`close_when_idle`] runs.
    watched: bool,
    unsent: Unsent,
}

pub(super) fn sender(server: Tcp, host: Arc<Host>, tls: ClientTls) -> Sender<Text> {
    let link = Arc::new(Link {
        host,
        tls: server.tls.map(|name| (tls, name)),
        timeout: server.timeout.min(LONGEST),
        keepalive: server.keepalive.min(LONGEST),
        state: Mutex::default(),
    });
    Sender::of_texts(move |batch| {
        let link = link.clone();
        async move { link.send(&batch).await }
    })
}

impl Link {
    async fn send(self: &Arc<Self>, batch: &Arc<Vec<Text>>) -> Result<(), SendError> {
        let mut state = self.state.lock().await;
        let mut rest = state.unsent.of(batch);
        let sent = self.deliver(&mut state, &mut rest).await;
        if let Err(error) = sent {
            state.connection = None;
            rest.rewind();
            state.unsent.keep(rest);
            let place = format!("{}:{}", self.host.name(), self.host.port());
            return Err(SendError::new(format!("cannot send to {place}: {error}")));
        }
        state.used = Some(Instant::now());
        if self.keepalive.is_zero() {
            close(state.connection.take()).await;
        }
        Ok(())
    }

    async fn deliver(self: &Arc<Self>, state: &mut State, rest: &mut Rest) -> Result<(), Failure> {
        let State {
            connection,
            watched,
            ..
        } = state;
        if let Some(open) = connection
            && has_ended(open).await
        {
            *connection = None;
        }
        let open = match connection {
            Some(open) => open,
            None => {
                let opened = timeout(self.timeout, self.connect()).await;
                let opened = opened.map_err(|_| Failure::Timeout(self.timeout))??;
                if !self.keepalive.is_zero() && !std::mem::replace(watched, true) {
                    tokio::spawn(close_when_idle(Arc::downgrade(self)));
                }
                connection.insert(opened)
            }
        };
        while let Some(bytes) = rest.bytes() {
            let written = timeout(self.timeout, open.write(bytes)).await;
            let written = written.map_err(|_| Failure::Timeout(self.timeout))??;
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            rest.advance(written);
        }
        let flushed = timeout(self.timeout, open.flush()).await;
        Ok(flushed.map_err(|_| Failure::Timeout(self.timeout))??)
    }

    async fn connect(&self) -> Result<Transport, ConnectError> {
        let stream = connect_tcp(&self.host, self.timeout).await?;
        let Some((tls, name)) = &self.tls else {
            return Ok(Transport::Plain(stream));
        };
        let stream = tls.connect(stream, name).await;
        let stream = stream.map_err(|error| ConnectError::Tls(Arc::new(error)))?;
        Ok(Transport::Tls(Box::new(stream)))
    }
}

/// Why a batch was not sent.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("nothing was accepted within {0:?}")]
    Timeout(Duration),
}

/// Whether the server has closed the connection. What it sends is ignored.
async fn has_ended(open: &mut Transport) -> bool {
    const PATIENCE: Duration = Duration::from_millis(10);
    /// Maximum number of reads, so that a server that sends without end does not keep the lines from being sent. Together
    /// they are more than the system buffers (8 MiB): what is left after them was sent in the meantime.
    const READS: usize = 2048;
    let mut bytes = [0; 4096];
    for _ in 0..READS {
        // The system is asked, because tokio may not have been told yet.
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(open.tcp(), &mut [0; 1][..], flags) {
            Ok((_, 0)) => return true,
            Ok(_) => match timeout(PATIENCE, open.read(&mut bytes)).await {
                Ok(Ok(1..)) => {}
                Ok(_) => return true,
                // A part of a TLS record. What follows it is looked at before the next lines.
                Err(_) => return false,
            },
            Err(Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
    false
}

/// Closes the connection when no lines have come for the keepalive time.
async fn close_when_idle(link: Weak<Link>) {
    let mut until = Instant::now();
    loop {
        sleep_until(until).await;
        let Some(link) = link.upgrade() else {
            return;
        };
        let mut state = link.state.lock().await;
        let now = Instant::now();
        until = state.used.unwrap_or(now) + link.keepalive;
        if state.connection.is_none() {
            state.watched = false;
            return;
        }
        if until <= now {
            state.watched = false;
            let connection = state.connection.take();
            drop(state);
            return close(connection).await;
        }
    }
}

/// Ends a connection in an orderly way, if the server takes part in it.
async fn close(connection: Option<Transport>) {
    const GOODBYE: Duration = Duration::from_secs(1);
    if let Some(mut connection) = connection {
        let _ = timeout(GOODBYE, connection.shutdown()).await;
    }
}
