//! Listening sockets: the `proxy_listen` syntax, binding with clear errors, and the accept loop of one worker.

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// The kernel cuts it to `net.core.somaxconn`.
const DEFAULT_BACKLOG: u32 = 16_384;
/// After an accept failed for want of descriptors or memory: long enough for some to be freed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
}

/// `so_keepalive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keepalive {
    /// As the system has it.
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
    #[error("`{0}` is not an address and port")]
    Address(String),
    #[error("`{0}` is not known as an option of a listener")]
    Option(String),
}

impl Listen {
    /// Reads a whole setting: entries separated by commas, or `off`.
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
                // Both say how nginx creates the socket; here every address is bound as it is written.
                "deferred" | "bind" => {}
                _ => return Err(unknown()),
            },
            Some(("backlog", number)) => self.backlog = number.parse().map_err(|_| unknown())?,
            Some(("so_keepalive", value)) => {
                self.keepalive = parse_keepalive(value).ok_or_else(unknown)?;
            }
            Some(("ipv6only", "on" | "off")) => {}
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
            address: parse_address(address)
                .ok_or_else(|| ListenError::Address(entry.trim().to_owned()))?,
            ssl: false,
            http2: false,
            reuse_port: false,
            backlog: DEFAULT_BACKLOG,
            keepalive: Keepalive::Unset,
            proxy_protocol: false,
        };
        for option in words {
            listen.set_option(option)?;
        }
        Ok(listen)
    }
}

fn parse_address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let ip = match host {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        "*" => IpAddr::from([0, 0, 0, 0]),
        host => crate::resolve::parse_ip(host)?,
    };
    Some(SocketAddr::new(ip, port))
}

/// `on`, `off`, or `idle:interval:count` with parts left out.
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

/// Empty: `Some(None)`; malformed: `None`.
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
    #[error("cannot listen on {address}: it is not an address of this machine")]
    NotLocal { address: SocketAddr },
    #[error("cannot listen on {address}: {source}")]
    Other {
        address: SocketAddr,
        source: io::Error,
    },
}

/// Binds one socket per worker. With several they share the port and the kernel spreads connections over them; a first
/// socket that does not share makes sure that no other program has the port, which sharing would hide.
pub fn bind(listen: &Listen, workers: usize) -> Result<Vec<std::net::TcpListener>, BindError> {
    let named = |error: io::Error| name_error(listen.address, error);
    let probe = open(listen, listen.address, Sharing::Alone).map_err(named)?;
    if workers == 1 {
        return Ok(vec![probe.into()]);
    }
    // Port 0 becomes the number that the first one got.
    let address = probe.local_addr().map_err(named)?;
    let address = address.as_socket().unwrap_or(listen.address);
    drop(probe);
    (0..workers)
        .map(|_| open(listen, address, Sharing::Workers).map(Into::into))
        .collect::<Result<_, _>>()
        .map_err(named)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
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
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(listen.backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

fn name_error(address: SocketAddr, source: io::Error) -> BindError {
    match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address },
        io::ErrorKind::PermissionDenied => BindError::Denied { address },
        io::ErrorKind::AddrNotAvailable => BindError::NotLocal { address },
        _ => BindError::Other { address, source },
    }
}

/// Gives every new connection to `serve`, for ever. Waits a little when the system has no room for more.
pub async fn accept_loop(
    listener: &TcpListener,
    keepalive: Keepalive,
    mut serve: impl FnMut(TcpStream, SocketAddr),
) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // A connection that is gone already is found out when it is read.
                let _ = stream.set_nodelay(true);
                let _ = set_keepalive(&stream, keepalive);
                serve(stream, peer);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections, waiting");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

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
    fn what_is_not_understood_is_refused_by_name() {
        let refused = |text: &str| Listen::parse_list(text).unwrap_err().to_string();
        assert_eq!(refused("nowhere"), "`nowhere` is not an address and port");
        assert_eq!(
            refused("1.2.3.4:99999"),
            "`1.2.3.4:99999` is not an address and port"
        );
        assert_eq!(
            refused("1.2.3.4:80 fast"),
            "`fast` is not known as an option of a listener"
        );
        assert!(Listen::parse_list("1.2.3.4:80 so_keepalive=x:y:z").is_err());
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
