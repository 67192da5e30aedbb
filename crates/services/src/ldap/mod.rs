//! An LDAP client of the gateway's own, which checks names and passwords with a directory by simple binds (RFC 4511).
//!
//! The contract:
//!
//! - Binds run in the background, so a bind can be asked for from any thread. Dropping the future of [`Server::bind`]
//!   cancels the bind and closes its connection.
//! - A connection serves one bind at a time. It is used again only if the directory has answered in order, so no answer
//!   can be taken for that of another bind.
//! - Idle connections are closed after the keepalive time, or as soon as the directory closes them or says something
//!   that it was not asked for. At most [`MAX_CONNECTIONS`] binds run at a time for each server; further ones wait.
//! - [`Settings::timeout`] limits each step: waiting for a connection to be free, the connection, StartTLS, the TLS
//!   handshake, the bind. So a directory that hangs costs bounded time. Messages have a maximum size, so it also costs
//!   bounded memory.
//! - An empty password is never sent: a directory takes such a bind for an anonymous one and accepts it (RFC 4513,
//!   section 5.1.2).
//! - Referrals are not followed. A referral is a refusal.
//! - Names are resolved by the gateway's resolver. TLS is the gateway's.
//! - Neither errors nor logs contain passwords.
//!
//! The crate `ldap3` (0.12) is not used. What a directory sends can end the process there: its parser (`lber`) recurses
//! for each level of nesting, so that an answer of 96 KB overflows the stack. It panics on answers that lack a part, and
//! its buffer has no maximum. `ldap3_proto` has limits, but `deny.toml` does not allow its licence (MPL-2.0).

mod connection;
mod message;
mod pool;
pub mod reading;
#[cfg(test)]
mod tests;

pub use message::{Malformed, MessageTooLong};

use crate::background::Background;
use crate::http::ConnectError;
use connection::Opener;
use net::dns::Resolver;
use net::tls::{CertificateError, ClientTls, Trust};
use pool::Pool;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Maximum number of binds at a time for each server.
pub const MAX_CONNECTIONS: usize = 256;

/// Makes [`Server`]s.
pub struct Client {
    resolver: Resolver,
    /// TLS that verifies certificates.
    verifying: ClientTls,
    /// TLS that accepts any certificate.
    trusting: ClientTls,
    background: Background,
}

/// A directory and how to talk to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Name or address. With TLS, it is also the server name.
    pub host: Box<str>,
    pub port: u16,
    pub security: Security,
    /// Whether the server's certificate is verified.
    pub verify: bool,
    /// Maximum time of each step of a bind.
    pub timeout: Duration,
    /// Maximum time that a connection waits for the next bind.
    pub keepalive: Duration,
}

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Security {
    /// Passwords are sent in clear text.
    Plain,
    /// TLS from the beginning (`ldaps`).
    Tls,
    /// TLS after the extended request StartTLS. If the directory refuses it, nothing is sent.
    StartTls,
}

/// A directory. Its connections are closed when it is dropped. Clones share them.
#[derive(Clone)]
pub struct Server {
    pool: Arc<Pool>,
    background: Background,
}

/// What a directory says about a name and a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    Refused(Refusal),
}

/// A result code other than success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `resultCode` of RFC 4511, section 4.1.9.
    pub code: u32,
    /// The beginning of the directory's own text.
    pub diagnostic: Box<str>,
}

impl Refusal {
    /// Whether the refusal is about a state of the directory that can pass at any time, and not about the name and the
    /// password: operationsError, timeLimitExceeded, adminLimitExceeded, busy, unavailable and other.
    pub fn is_passing(&self) -> bool {
        matches!(self.code, 1 | 3 | 11 | 51 | 52 | 80)
    }
}

/// Why a directory has said nothing about a name and a password.
#[derive(Debug, thiserror::Error)]
#[error("LDAP server {place}: {kind}")]
pub struct LdapError {
    /// The host and the port.
    place: Box<str>,
    #[source]
    pub kind: LdapErrorKind,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LdapErrorKind {
    /// The name cannot be resolved, or there is no connection.
    #[error(transparent)]
    Connect(ConnectError),
    #[error("it refuses StartTLS with result code {0}")]
    NoStartTls(u32),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("no connection was free within {0:?}")]
    Busy(Duration),
    #[error("it closed the connection")]
    Closed,
    #[error("the connection failed: {0}")]
    Failed(io::Error),
    #[error("its answer is malformed: {0}")]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    TooLong(#[from] MessageTooLong),
    /// The directory has sent an answer to another request, or one of another kind.
    #[error("it sent something that it was not asked for")]
    Unexpected,
    #[error("an empty password is never sent")]
    EmptyPassword,
    #[error("the gateway is shutting down")]
    Stopped,
}

impl Client {
    /// Makes a client that trusts the certificates of these authorities. Fails if they cannot be read.
    pub fn new(
        trust: Trust,
        resolver: Resolver,
        background: Background,
    ) -> Result<Self, CertificateError> {
        Ok(Self {
            resolver,
            verifying: ClientTls::new(trust, None)?,
            trusting: ClientTls::new(Trust::Anyone, None)?,
            background,
        })
    }

    /// Returns a directory, to which there is no connection yet.
    pub fn server(&self, settings: Settings) -> Server {
        let tls = if settings.verify {
            &self.verifying
        } else {
            &self.trusting
        };
        let opener = Opener {
            host: self.resolver.host(&settings.host, settings.port),
            tls: tls.clone(),
            settings,
        };
        Server {
            pool: Arc::new(Pool::new(opener, self.background.clone())),
            background: self.background.clone(),
        }
    }
}

impl Server {
    /// Checks a name and a password. `name` is a distinguished name in the form of RFC 4514.
    pub async fn bind(&self, name: String, password: Vec<u8>) -> Result<Verdict, LdapError> {
        let verdict = self.run(name, password).await;
        let Settings { host, port, .. } = self.pool.settings();
        let place = || format!("{host}:{port}").into();
        verdict.map_err(|kind| LdapError {
            place: place(),
            kind,
        })
    }

    async fn run(&self, name: String, password: Vec<u8>) -> Result<Verdict, LdapErrorKind> {
        if password.is_empty() {
            return Err(LdapErrorKind::EmptyPassword);
        }
        let (mut report, verdict) = oneshot::channel();
        let pool = self.pool.clone();
        self.background.spawn(async move {
            tokio::select! {
                verdict = pool.bind(&name, &password) => {
                    let _ = report.send(verdict);
                }
                // The caller no longer waits.
                () = report.closed() => {}
            }
        });
        verdict.await.unwrap_or(Err(LdapErrorKind::Stopped))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.pool.settings();
        formatter.debug_tuple("Server").field(settings).finish()
    }
}
