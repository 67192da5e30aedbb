//! Receivers of lines: TCP and UDP servers, files, and the system's log. Log plugins push lines into a
//! [queue](crate::queue), and a sink sends them.
//!
//! The contract:
//!
//! - Sinks work in the background. A slow or dead receiver costs a request nothing: its lines wait in the queue within
//!   the limits of the queue, and then they are dropped and counted.
//! - After a failure, a sink begins again with the first line that was not given to the system. So no line is sent twice,
//!   except to a receiver that has got a line and has not acknowledged it when its connection failed.
//! - A line that the receiver can never accept, such as one longer than a datagram, is dropped and counted.

mod datagrams;
mod file;
mod rest;
mod stream;
mod syslog;
#[cfg(test)]
mod tests;

pub use datagrams::Udp;
pub use stream::Tcp;
pub use syslog::{Facility, Severity};

use crate::queue::{QueueParams, Sender, Text};
use net::dns::Resolver;
use net::tls::{CertificateError, ClientTls, Trust};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Makes sinks. Clones share their state.
#[derive(Clone)]
pub struct Sinks(Arc<Inner>);

struct Inner {
    resolver: Resolver,
    verifying: ClientTls,
    trusting: ClientTls,
    /// Incremented when files are to be opened again.
    reopened: Arc<AtomicU64>,
}

/// The socket of the system's log.
pub const SYSLOG: &str = "/dev/log";

impl Sinks {
    /// Makes sinks that verify certificates with these authorities. Fails if they cannot be read.
    pub fn new(trust: Trust, resolver: Resolver) -> Result<Self, CertificateError> {
        Ok(Self(Arc::new(Inner {
            resolver,
            verifying: ClientTls::new(trust, None)?,
            trusting: ClientTls::new(Trust::Anyone, None)?,
            reopened: Arc::default(),
        })))
    }

    /// Sends lines to a TCP server, with TLS or without, on one connection.
    pub fn tcp(&self, server: Tcp) -> Sender<Text> {
        let tls = match server.verify {
            true => self.0.verifying.clone(),
            false => self.0.trusting.clone(),
        };
        let host = self.0.resolver.host(&server.host, server.port);
        stream::sender(server, host, tls)
    }

    /// Sends lines to a UDP server.
    pub fn udp(&self, server: &Udp) -> Sender<Text> {
        let host = self.0.resolver.host(&server.host, server.port);
        datagrams::sender(server, host)
    }

    /// Appends lines to a file, each by one write. With `reopen`, the file is opened again for each line. Relative paths
    /// begin at the working directory of the process.
    pub fn file(&self, path: &Path, reopen: bool) -> Sender<Text> {
        file::sender(path, reopen, &self.0.reopened)
    }

    /// Sends lines to the system's log at this socket. A line begins with its priority in angle brackets.
    pub fn syslog(&self, socket: PathBuf) -> Sender<Text> {
        syslog::sender(socket)
    }

    /// Opens all files again before their next line, because they may have been renamed.
    pub fn reopen_files(&self) {
        self.0.reopened.fetch_add(1, Ordering::Relaxed);
    }

    /// The parameters of a queue to a sink, for plugins whose configuration has none.
    pub fn queue_params() -> QueueParams {
        QueueParams {
            max_entries: 100_000,
            max_bytes: Some(64 * 1024 * 1024),
            max_retry_delay: Duration::from_secs(5),
            ..QueueParams::default().collecting()
        }
    }
}
