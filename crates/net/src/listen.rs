//! Listening sockets: the syntax of the `*_listen` settings, binding with clear errors, and a worker's accept loop.

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// Default listen backlog. The kernel reduces it to `net.core.somaxconn`.
const DEFAULT_BACKLOG: u32 = 16_384;
/// Pause after a failed accept, so that other connections can close and free descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// One entry of a `*_listen` setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    pub address: SocketAddr,
    pub ssl: bool,
    pub http2: bool,
    pub reuse_port: bool,
    pub backlog: u32,
    pub keepalive: Keepalive,
    pub proxy_protocol: bool,
    /// Whether the entry is for UDP datagrams instead of TCP connections.
    pub udp: bool,
    /// `ipv6only`: whether a socket with an IPv6 address accepts IPv6 clients only. If `false`, `[::]` accepts IPv4
    /// clients as well.
    pub ipv6_only: bool,
}

/// Value of the `so_keepalive` option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keepalive {
    /// The system's default applies.
    Unset,
    Off,
    On {
        idle: Option<Duration>,
        interval: Option<Duration>,
        count: Option<u32>,
    },
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    #[error("expected ADDRESS:PORT, such as 0.0.0.0:8000")]
    Address,
    #[error("{0} is not a port: ports are numbers from 0 to 65535")]
    Port(String),
    #[error("`{0}` is not an option of a listener")]
    Option(String),
}

impl Listen {
    /// Parses a whole setting: entries separated by commas, or `off`.
    pub fn parse_list(setting: &str) -> Result<Vec<Self>, ListenError> {
        match setting.trim() {
            "" | "off" => Ok(Vec::new()),
            entries => entries.split(',').map(str::parse).collect(),
        }
    }

    fn set_option(&mut self, option: &str) -> Result<(), ListenError> {
        let unknown = || ListenError::Option(option.to_owned());
        match option.split_once('=') {
            None => match option {
                "ssl" => self.ssl = true,
                "http2" => self.http2 = true,
                "reuseport" => self.reuse_port = true,
                "proxy_protocol" => self.proxy_protocol = true,
                "udp" => self.udp = true,
                // Ignored: `bind` is the only behaviour here, because every address gets its own socket, and `deferred`
                // only tells nginx to accept a connection after its first bytes.
                "deferred" | "bind" => {}
                _ => return Err(unknown()),
            },
            Some(("backlog", number)) => self.backlog = number.parse().map_err(|_| unknown())?,
            Some(("so_keepalive", value)) => {
                self.keepalive = parse_keepalive(value).ok_or_else(unknown)?;
            }
            Some(("ipv6only", "on")) => self.ipv6_only = true,
            Some(("ipv6only", "off")) => self.ipv6_only = false,
            Some(_) => return Err(unknown()),
        }
        Ok(())
    }
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(entry: &str) -> Result<Self, ListenError> {
        let mut words = entry.split_whitespace();
        let address = words.next().unwrap_or_default();
        let mut listen = Self {
            address: parse_address(address)?,
            ssl: false,
            http2: false,
            reuse_port: false,
            backlog: DEFAULT_BACKLOG,
            keepalive: Keepalive::Unset,
            proxy_protocol: false,
            udp: false,
            ipv6_only: true,
        };
        for option in words {
            listen.set_option(option)?;
        }
        Ok(listen)
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, ListenError> {
    let (host, port) = text.rsplit_once(':').ok_or(ListenError::Address)?;
    let ip = match host {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        "*" => IpAddr::from([0, 0, 0, 0]),
        host => crate::dns::parse_ip(host).ok_or(ListenError::Address)?,
    };
    match port.parse() {
        Ok(port) => Ok(SocketAddr::new(ip, port)),
        Err(_) if port.is_empty() => Err(ListenError::Address),
        Err(_) => Err(ListenError::Port(port.to_owned())),
    }
}

/// Parses `on`, `off`, or `idle:interval:count`, whose parts may be empty.
fn parse_keepalive(value: &str) -> Option<Keepalive> {
    match value {
        "off" => return Some(Keepalive::Off),
        "on" => {
            return Some(Keepalive::On {
                idle: None,
                interval: None,
                count: None,
            });
        }
        _ => {}
    }
    let mut parts = value.split(':').map(str::trim);
    let (idle, interval, count) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Keepalive::On {
        idle: optional(idle, parse_time)?,
        interval: optional(interval, parse_time)?,
        count: optional(count, |text| text.parse().ok())?,
    })
}

/// Parses an optional part: `Some(None)` if it is empty, `None` if it is malformed.
fn optional<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    if text.is_empty() {
        Some(None)
    } else {
        parse(text).map(Some)
    }
}

fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.as_bytes()[number.len()]),
        None => (text, b's'),
    };
    let seconds: u64 = number.parse().ok()?;
    let factor = match unit {
        b'h' => 3600,
        b'm' => 60,
        _ => 1,
    };
    seconds.checked_mul(factor).map(Duration::from_secs)
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}: another program listens there already")]
    InUse { address: SocketAddr },
    #[error("cannot listen on {address}: permission denied")]
    Denied { address: SocketAddr },
    #[error(
        "cannot listen on {address}: permission denied; ports below 1024 need root or the capability CAP_NET_BIND_SERVICE"
    )]
    Privileged { address: SocketAddr },
    #[error(
        "cannot listen on {address}: too many open files; raise the limit of the process (`ulimit -n`, or LimitNOFILE of systemd)"
    )]
    NoDescriptor { address: SocketAddr },
    #[error("cannot listen on {address}: it is not an address of this machine")]
    NotLocal { address: SocketAddr },
    #[error("cannot listen on {address}: {source}")]
    Other {
        address: SocketAddr,
        source: io::Error,
    },
}

/// Binds one socket per worker. All have the same port (`SO_REUSEPORT`), and the kernel distributes connections among
/// them. Even a single socket has `SO_REUSEPORT`, so that a new process can add sockets during an upgrade. Before that,
/// a probe socket without `SO_REUSEPORT` is bound: unlike the others, it fails if another program uses the port.
pub fn bind(listen: &Listen, workers: usize) -> Result<Vec<std::net::TcpListener>, BindError> {
    let named = |error: io::Error| name_error(listen.address, error);
    let probe = open(listen, listen.address, Sharing::Alone).map_err(named)?;
    // If the setting has port 0, all sockets use the port that the system gave to the probe.
    let address = probe.local_addr().map_err(named)?;
    let address = address.as_socket().unwrap_or(listen.address);
    drop(probe);
    bind_more(listen, address, workers)
}

/// Binds more sockets to an address that this program has already bound.
pub fn bind_more(
    listen: &Listen,
    address: SocketAddr,
    sockets: usize,
) -> Result<Vec<std::net::TcpListener>, BindError> {
    (0..sockets)
        .map(|_| open(listen, address, Sharing::Workers).map(Into::into))
        .collect::<Result<_, _>>()
        .map_err(|error| name_error(address, error))
}

/// Binds one UDP socket per worker, with a probe like [`bind`].
pub fn bind_datagrams(
    listen: &Listen,
    workers: usize,
) -> Result<Vec<std::net::UdpSocket>, BindError> {
    let named = |error: io::Error| name_error(listen.address, error);
    let probe = open_datagrams(listen, listen.address, Sharing::Alone).map_err(named)?;
    let address = probe.local_addr().map_err(named)?;
    let address = address.as_socket().unwrap_or(listen.address);
    drop(probe);
    bind_more_datagrams(listen, address, workers)
}

/// Binds more UDP sockets to an address that this program has already bound.
pub fn bind_more_datagrams(
    listen: &Listen,
    address: SocketAddr,
    sockets: usize,
) -> Result<Vec<std::net::UdpSocket>, BindError> {
    (0..sockets)
        .map(|_| open_datagrams(listen, address, Sharing::Workers).map(Into::into))
        .collect::<Result<_, _>>()
        .map_err(|error| name_error(address, error))
}

/// Opens a UDP socket. It does not set `SO_REUSEADDR`, which would let a later socket receive the datagrams of an
/// earlier one.
fn open_datagrams(listen: &Listen, address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(sharing == Sharing::Workers)?;
    if address.is_ipv6() {
        socket.set_only_v6(listen.ipv6_only)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Whether other sockets may have the same port (`SO_REUSEPORT`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// No other socket may have the port.
    Alone,
    /// The sockets of all workers share the port.
    Workers,
}

fn open(listen: &Listen, address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(sharing == Sharing::Workers)?;
    if address.is_ipv6() {
        socket.set_only_v6(listen.ipv6_only)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(listen.backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

fn name_error(address: SocketAddr, source: io::Error) -> BindError {
    match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address },
        io::ErrorKind::PermissionDenied if address.port() < 1024 => {
            BindError::Privileged { address }
        }
        io::ErrorKind::PermissionDenied => BindError::Denied { address },
        io::ErrorKind::AddrNotAvailable => BindError::NotLocal { address },
        _ if source.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
            BindError::NoDescriptor { address }
        }
        _ => BindError::Other { address, source },
    }
}

/// Accepts connections for ever and passes each to `serve` with the client's address. An IPv4 client of an IPv6 socket
/// appears with its IPv4 address. If accepting fails, usually because descriptors or memory are exhausted, calls
/// `refused`, which can free some, and pauses.
pub async fn accept_loop(
    listener: &TcpListener,
    keepalive: Keepalive,
    mut serve: impl FnMut(TcpStream, SocketAddr),
    mut refused: impl FnMut(&io::Error),
) {
    let mut told = AcceptFailures::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => serve(prepared(stream, keepalive), canonical(peer)),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                refused(&error);
                told.note(&error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Accepts the connections in the backlog and passes them to `serve`. It calls `accept` directly, because tokio may not
/// have been notified of the newest connections yet.
pub fn accept_queued(
    listener: &TcpListener,
    keepalive: Keepalive,
    mut serve: impl FnMut(TcpStream, SocketAddr),
) {
    let socket = SockRef::from(listener);
    // The number of connections is limited, so that the loop ends even if new ones arrive faster than it accepts them.
    for _ in 0..DEFAULT_BACKLOG {
        match socket.accept() {
            Ok((stream, peer)) => {
                if let (Ok(stream), Some(peer)) = (nonblocking(stream), peer.as_socket()) {
                    serve(prepared(stream, keepalive), canonical(peer));
                }
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => break,
        }
    }
}

fn nonblocking(stream: Socket) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream.into())
}

/// Converts an IPv4-mapped address such as `::ffff:192.0.2.1` to IPv4. A socket for both families reports IPv4 clients
/// so.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn prepared(stream: TcpStream, keepalive: Keepalive) -> TcpStream {
    // Errors are ignored: they mean that the connection is already closed, and the next read reports that.
    let _ = stream.set_nodelay(true);
    let _ = set_keepalive(&stream, keepalive);
    stream
}

/// Limits the log lines about failed accepts to one per `LOG_INTERVAL`. Accepts can fail ten times a second.
#[derive(Default)]
struct AcceptFailures {
    at: Option<Instant>,
    since: u64,
}

impl AcceptFailures {
    fn note(&mut self, error: &io::Error) {
        self.since += 1;
        if self.at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            let times = self.since;
            tracing::warn!(%error, times, "cannot accept connections; new ones wait, and idle upstream connections are closed");
            *self = Self {
                at: Some(Instant::now()),
                since: 0,
            };
        }
    }
}

/// Whether the process or the system has no descriptor left (EMFILE, ENFILE).
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Whether an accept failed only because of the client's connection, so that the next accept can succeed.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

fn set_keepalive(stream: &TcpStream, keepalive: Keepalive) -> io::Result<()> {
    let socket = SockRef::from(stream);
    match keepalive {
        Keepalive::Unset => Ok(()),
        Keepalive::Off => socket.set_keepalive(false),
        Keepalive::On {
            idle,
            interval,
            count,
        } => {
            socket.set_keepalive(true)?;
            let mut options = TcpKeepalive::new();
            if let Some(idle) = idle {
                options = options.with_time(idle);
            }
            if let Some(interval) = interval {
                options = options.with_interval(interval);
            }
            if let Some(count) = count {
                options = options.with_retries(count);
            }
            socket.set_tcp_keepalive(&options)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_setting_is_read() {
        let setting =
            "0.0.0.0:8000 reuseport backlog=16384, 0.0.0.0:8443 http2 ssl reuseport backlog=1";
        let entries = Listen::parse_list(setting).unwrap();
        assert_eq!(entries[0].address, SocketAddr::from(([0, 0, 0, 0], 8000)));
        assert!(entries[0].reuse_port && !entries[0].ssl && !entries[0].http2);
        assert!(entries[1].ssl && entries[1].http2);
        assert_eq!(entries[1].backlog, 1);
        assert_eq!(Listen::parse_list("off"), Ok(Vec::new()));
    }

    #[test]
    fn keepalive_times_are_read() {
        let entry: Listen = "[::1]:80 so_keepalive=30m::10".parse().unwrap();
        let expected = Keepalive::On {
            idle: Some(Duration::from_secs(1800)),
            interval: None,
            count: Some(10),
        };
        assert_eq!(entry.keepalive, expected);
    }

    #[test]
    fn an_error_of_the_system_says_what_to_do() {
        let said = |address: &str, errno: Errno| {
            let address = address.parse().unwrap();
            name_error(address, errno.into()).to_string()
        };
        let refused = said("1.2.3.4:80", Errno::ACCESS);
        assert!(refused.contains("CAP_NET_BIND_SERVICE"), "{refused}");
        let refused = said("1.2.3.4:8000", Errno::ACCESS);
        assert!(refused.ends_with("permission denied"), "{refused}");
        let refused = said("1.2.3.4:8000", Errno::MFILE);
        assert!(refused.contains("`ulimit -n`"), "{refused}");
    }

    #[test]
    fn invalid_settings_are_named_in_the_error() {
        let refused = |text: &str| Listen::parse_list(text).unwrap_err().to_string();
        for text in ["nowhere", "8000", "1.2.3.4:", "nowhere:99999"] {
            let expected = "expected ADDRESS:PORT, such as 0.0.0.0:8000";
            assert_eq!(refused(text), expected, "{text}");
        }
        assert_eq!(
            refused("1.2.3.4:99999"),
            "99999 is not a port: ports are numbers from 0 to 65535"
        );
        assert_eq!(
            refused("1.2.3.4:80 fast"),
            "`fast` is not an option of a listener"
        );
        assert!(Listen::parse_list("1.2.3.4:80 so_keepalive=x:y:z").is_err());
    }

    /// Connects from `127.0.0.1` to a listener with this setting. Returns the client's address if it was accepted.
    async fn ipv4_client_of(setting: &str) -> Option<SocketAddr> {
        let listen: Listen = setting.parse().unwrap();
        let listener = bind(&listen, 1).unwrap().remove(0);
        let port = listener.local_addr().unwrap().port();
        let _client = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        let listener = TcpListener::from_std(listener).unwrap();
        let mut told = None;
        accept_queued(&listener, Keepalive::Unset, |_, peer| told = Some(peer));
        told
    }

    #[tokio::test]
    async fn both_families_share_a_port_unless_it_is_for_ipv6_only() {
        if std::net::TcpListener::bind("[::1]:0").is_err() {
            eprintln!("NOTE: this machine has no IPv6: this test is skipped");
            return;
        }
        let told = ipv4_client_of("[::]:0 ipv6only=off").await;
        assert!(told.unwrap().is_ipv4());
        assert_eq!(ipv4_client_of("[::]:0 ipv6only=on").await, None);
        // nginx has the same default.
        assert_eq!(ipv4_client_of("[::]:0").await, None);
    }

    #[tokio::test]
    async fn connections_unknown_to_the_runtime_are_accepted() {
        let any: Listen = "127.0.0.1:0".parse().unwrap();
        let listener = TcpListener::from_std(bind(&any, 1).unwrap().remove(0)).unwrap();
        let address = listener.local_addr().unwrap();
        // No `await` between connecting and accepting, so the runtime does not run.
        let clients: Vec<_> = (0..3)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect();
        let mut taken = Vec::new();
        accept_queued(&listener, Keepalive::Unset, |_, peer| taken.push(peer));
        let expected: Vec<_> = clients
            .iter()
            .map(|client| client.local_addr().unwrap())
            .collect();
        assert_eq!(taken, expected);
    }

    #[test]
    fn a_port_in_use_is_named_even_when_workers_share_it() {
        let any: Listen = "127.0.0.1:0".parse().unwrap();
        let bound = bind(&any, 2).unwrap();
        assert_eq!(bound.len(), 2);
        let address = bound[0].local_addr().unwrap();
        let taken = Listen { address, ..any };
        for workers in [1, 2] {
            let error = bind(&taken, workers).unwrap_err().to_string();
            assert!(
                error.ends_with("another program listens there already"),
                "{error}"
            );
        }
    }
}
