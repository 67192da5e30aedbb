//! The connections of a directory. Each idle connection is kept by a task, which closes it when its time is over or when
//! the directory closes it. So there is no connection that nobody watches.

use super::connection::{Connection, Opener};
use super::{LdapErrorKind, MAX_CONNECTIONS, Settings, Verdict};
use crate::background::Background;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// Maximum number of idle connections.
const MAX_IDLE: usize = 64;
/// Maximum time for closing a connection in order.
const GOODBYE: Duration = Duration::from_secs(1);

pub(super) struct Pool {
    opener: Opener,
    background: Background,
    /// Limits the binds at a time.
    room: Semaphore,
    /// The idle connections. The last one was used last.
    idle: Mutex<Vec<Idle>>,
}

/// An idle connection: the means to get it from its keeper.
type Idle = oneshot::Sender<oneshot::Sender<Connection>>;

impl Pool {
    pub(super) fn new(opener: Opener, background: Background) -> Self {
        Self {
            opener,
            background,
            room: Semaphore::new(MAX_CONNECTIONS),
            idle: Mutex::default(),
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.opener.settings
    }

    /// Checks a name and a password, on an idle connection if there is one. If the directory has closed that connection
    /// meanwhile, it is asked again on a new one.
    pub(super) async fn bind(&self, name: &str, password: &[u8]) -> Result<Verdict, LdapErrorKind> {
        let limit = self.settings().timeout;
        let _room = match timeout(limit, self.room.acquire()).await {
            Ok(room) => room.map_err(|_| LdapErrorKind::Stopped)?,
            Err(_) => return Err(LdapErrorKind::Busy(limit)),
        };
        if let Some(connection) = self.take().await {
            match self.bind_on(connection, name, password).await {
                Err(LdapErrorKind::Closed) => {}
                verdict => return verdict,
            }
        }
        let connection = self.opener.open().await?;
        self.bind_on(connection, name, password).await
    }

    async fn bind_on(
        &self,
        mut connection: Connection,
        name: &str,
        password: &[u8],
    ) -> Result<Verdict, LdapErrorKind> {
        let verdict = self.opener.bind(&mut connection, name, password).await?;
        self.put(connection);
        Ok(verdict)
    }

    async fn take(&self) -> Option<Connection> {
        loop {
            let idle = self.idle().pop()?;
            let (give, connection) = oneshot::channel();
            if idle.send(give).is_ok()
                && let Ok(connection) = connection.await
            {
                return Some(connection);
            }
        }
    }

    fn put(&self, connection: Connection) {
        let (idle, wanted) = oneshot::channel();
        // What makes room is dropped after the lock.
        let _oldest;
        {
            let mut all = self.idle();
            all.retain(|idle| !idle.is_closed());
            _oldest = (all.len() >= MAX_IDLE).then(|| all.remove(0));
            all.push(idle);
        }
        let keepalive = self.settings().keepalive;
        self.background
            .spawn_service(keep(connection, keepalive, wanted));
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn idle_connections(&self) -> usize {
        self.idle().iter().filter(|idle| !idle.is_closed()).count()
    }
}

/// Keeps an idle connection until it is wanted.
async fn keep(
    mut connection: Connection,
    keepalive: Duration,
    mut wanted: oneshot::Receiver<oneshot::Sender<Connection>>,
) {
    tokio::select! {
        // First, so that a connection that was closed is not given away.
        biased;
        () = connection.disturbed() => return,
        wanted = &mut wanted => if let Ok(give) = wanted {
            let _ = give.send(connection);
            return;
        },
        () = tokio::time::sleep(keepalive) => {}
    }
    // The pool may have asked at this moment. It then looks for another connection.
    drop(wanted);
    let _ = timeout(GOODBYE, connection.unbind()).await;
}
