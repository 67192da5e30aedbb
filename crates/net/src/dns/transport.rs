//! Sends queries to name servers over UDP, and over TCP if a response does not fit. The hickory crates choose ids and
//! ports, match responses and encode messages. The order of the servers and the number of attempts follow
//! resolv.conf(5), except that servers that did not respond come last for a while.

use super::answer::ResolveError;
use super::resolv_conf::ResolvConf;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::xfer::DnsHandle;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{DnsRequestOptions, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, Record, RecordType};
use hickory_resolver::{NameServerPool, PoolContext, TlsConfig};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time for which a name server that did not respond is tried after the others.
const SET_BACK: Duration = Duration::from_secs(30);
/// Size of a UDP payload that fits into one packet on every network (DNS flag day 2020).
const UDP_PAYLOAD: u16 = 1232;

/// Response of a name server. If `answers` is empty, the name does not exist or has no records of the queried type.
#[derive(Debug, Clone, Default)]
pub(super) struct Reply {
    /// Whether the name exists.
    pub(super) exists: bool,
    pub(super) answers: Vec<Record>,
    pub(super) additionals: Vec<Record>,
}

/// Sends queries: to name servers, or to a script in tests.
pub(super) trait Transport: Send + Sync {
    fn ask(&self, name: Name, kind: RecordType) -> BoxFuture<'_, Result<Reply, ResolveError>>;
}

/// The configured name servers.
pub(super) struct Servers {
    servers: Vec<Server>,
    attempts: usize,
    rotate: bool,
    turn: AtomicUsize,
}

struct Server {
    address: SocketAddr,
    pool: NameServerPool<TokioRuntimeProvider>,
    set_back_until: Mutex<Option<Instant>>,
}

impl Servers {
    pub(super) fn new(conf: &ResolvConf) -> Self {
        let servers = conf.servers.iter();
        Self {
            servers: servers
                .map(|address| Server::new(*address, conf.timeout))
                .collect(),
            attempts: conf.attempts.max(1),
            rotate: conf.rotate,
            turn: AtomicUsize::new(0),
        }
    }

    /// Returns the servers in the order in which to query them. Servers that recently did not respond come last. Apart
    /// from that, the order is the configured one. If `rotate` is set, each query begins at the next server.
    fn in_order(&self) -> Vec<&Server> {
        let mut servers: Vec<&Server> = self.servers.iter().collect();
        if self.rotate && !servers.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            servers.rotate_left(turn % self.servers.len());
        }
        let now = Instant::now();
        servers.sort_by_key(|server| server.is_set_back(now));
        servers
    }

    async fn ask_all(&self, name: Name, kind: RecordType) -> Result<Reply, ResolveError> {
        let mut last = ResolveError::NoServers;
        let mut refused = Vec::new();
        for _ in 0..self.attempts {
            for server in self.in_order() {
                if refused.contains(&server.address) {
                    continue;
                }
                match server.ask(name.clone(), kind).await {
                    Ok(reply) => return Ok(reply),
                    Err(error) => {
                        let address = server.address;
                        tracing::debug!(%name, %kind, %address, %error, "a name server did not answer");
                        // A server that responded with an error would do so again, so it is not queried again.
                        if matches!(error, ResolveError::Server(..)) {
                            refused.push(server.address);
                        }
                        last = error;
                    }
                }
            }
        }
        Err(last)
    }
}

impl Transport for Servers {
    fn ask(&self, name: Name, kind: RecordType) -> BoxFuture<'_, Result<Reply, ResolveError>> {
        Box::pin(self.ask_all(name, kind))
    }
}

impl Server {
    fn new(address: SocketAddr, timeout: Duration) -> Self {
        let mut options = ResolverOpts::default();
        options.timeout = timeout;
        options.edns_payload_len = UDP_PAYLOAD;
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
        let connections = connections.map(|mut connection| {
            connection.port = address.port();
            connection
        });
        let config = NameServerConfig::new(address.ip(), true, connections.into());
        // The pool requires a TLS configuration, but uses it only for encrypted transports, which are not compiled in.
        let tls = TlsConfig::new().expect("an empty configuration");
        let context = Arc::new(PoolContext::new(options, tls));
        Self {
            address,
            pool: NameServerPool::from_config([config], context, TokioRuntimeProvider::default()),
            set_back_until: Mutex::default(),
        }
    }

    fn is_set_back(&self, now: Instant) -> bool {
        let until = *self
            .set_back_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| now < until)
    }

    async fn ask(&self, name: Name, kind: RecordType) -> Result<Reply, ResolveError> {
        let mut asked = self.ask_once(&name, kind, true).await;
        if let Err(ResolveError::Server(FORMAT_ERROR | NOT_IMPLEMENTED, _)) = asked {
            // An old server may not know EDNS (RFC 6891 §7).
            asked = self.ask_once(&name, kind, false).await;
        }
        // Only a server that does not respond is tried after the others. An error response may concern this name only,
        // and it arrives at once.
        let silent = matches!(
            asked,
            Err(ResolveError::Timeout | ResolveError::Unreachable)
        );
        let set_back = silent.then(|| Instant::now() + SET_BACK);
        *self
            .set_back_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = set_back;
        asked
    }

    async fn ask_once(
        &self,
        name: &Name,
        kind: RecordType,
        edns: bool,
    ) -> Result<Reply, ResolveError> {
        let mut options = DnsRequestOptions::default();
        options.use_edns = edns;
        options.edns_payload_len = UDP_PAYLOAD;
        let mut answers = self.pool.lookup(Query::query(name.clone(), kind), options);
        match answers.next().await {
            Some(Ok(response)) => match response.response_code {
                ResponseCode::NoError | ResponseCode::NXDomain => {
                    let message = response.into_message();
                    Ok(Reply {
                        exists: message.response_code == ResponseCode::NoError,
                        answers: message.answers,
                        additionals: message.additionals,
                    })
                }
                code => Err(server_error(code)),
            },
            Some(Err(error)) => classify(error),
            None => Err(ResolveError::Unreachable),
        }
    }
}

const FORMAT_ERROR: u16 = 1;
const NOT_IMPLEMENTED: u16 = 4;

fn classify(error: NetError) -> Result<Reply, ResolveError> {
    Err(match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            code @ (ResponseCode::NoError | ResponseCode::NXDomain) => {
                return Ok(Reply {
                    exists: code == ResponseCode::NoError,
                    ..Reply::default()
                });
            }
            code => server_error(code),
        },
        NetError::Dns(DnsError::ResponseCode(code)) => server_error(code),
        NetError::Timeout => ResolveError::Timeout,
        NetError::Io(_) | NetError::NoConnections | NetError::Busy => ResolveError::Unreachable,
        _ => ResolveError::Malformed,
    })
}

/// Returns the error in the words of lua-resty-dns, which Kong reports.
fn server_error(code: ResponseCode) -> ResolveError {
    let number = u16::from(code);
    let text = match number {
        1 => "format error",
        2 => "server failure",
        3 => "name error",
        4 => "not implemented",
        5 => "refused",
        _ => "unknown",
    };
    ResolveError::Server(number, text)
}
