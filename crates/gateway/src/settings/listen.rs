//! `proxy_listen` and `admin_listen`: addresses with flags. Kong's rule for one entry is `<address>:<port> [flags]`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const DEFAULT_BACKLOG: u32 = 16384;

/// One address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) address: SocketAddr,
    pub(crate) tls: bool,
    pub(crate) http2: bool,
    pub(crate) backlog: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ListenError {
    #[error("`{0}`: expected `<address>:<port>` and flags, or off")]
    Address(String),
    #[error("`{0}`: unix sockets are not available yet")]
    Unix(String),
    #[error("`{0}`: host names are not resolved here, give an address")]
    HostName(String),
    #[error("`{entry}`: unknown flag `{flag}`")]
    Flag { entry: String, flag: String },
    #[error("`{0}`: proxy_protocol is not available yet")]
    ProxyProtocol(String),
    #[error("`off` cannot be combined with addresses")]
    Off,
    #[error("`{0}` is given twice")]
    Twice(SocketAddr),
}

/// Parses the whole setting; every wrong entry is reported. `off` alone is no listener.
pub(crate) fn parse(text: &str) -> Result<Vec<Listen>, Vec<ListenError>> {
    let entries: Vec<&str> = super::values::list(text).collect();
    if entries == ["off"] {
        return Ok(Vec::new());
    }
    let mut listeners: Vec<Listen> = Vec::new();
    let mut errors = Vec::new();
    for entry in entries {
        match parse_entry(entry) {
            Ok(listen) if listen.address.port() != 0 && taken(&listeners, &listen) => {
                errors.push(ListenError::Twice(listen.address));
            }
            Ok(listen) => listeners.push(listen),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        Ok(listeners)
    } else {
        Err(errors)
    }
}

fn taken(listeners: &[Listen], new: &Listen) -> bool {
    listeners
        .iter()
        .any(|listen| listen.address == new.address)
}

fn parse_entry(entry: &str) -> Result<Listen, ListenError> {
    let mut words = entry.split_whitespace();
    let address = words.next().unwrap_or_default();
    if address == "off" {
        return Err(ListenError::Off);
    }
    if address.starts_with("unix:") {
        return Err(ListenError::Unix(entry.to_owned()));
    }
    let mut listen = Listen {
        address: parse_address(address, entry)?,
        tls: false,
        http2: false,
        backlog: DEFAULT_BACKLOG,
    };
    for flag in words {
        apply_flag(&mut listen, flag, entry)?;
    }
    Ok(listen)
}

fn parse_address(text: &str, entry: &str) -> Result<SocketAddr, ListenError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = || ListenError::Address(entry.to_owned());
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    match host {
        "localhost" => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        _ if host.is_empty() || host.contains([':', '[', ']']) => Err(wrong()),
        _ => Err(ListenError::HostName(entry.to_owned())),
    }
}

fn apply_flag(listen: &mut Listen, flag: &str, entry: &str) -> Result<(), ListenError> {
    let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
    match (name, value) {
        ("ssl", None) => listen.tls = true,
        ("http2", None) => listen.http2 = true,
        // Every listener has its own socket in each worker, and accepts as soon as the kernel does.
        ("reuseport" | "bind" | "deferred", None) => {}
        ("ipv6only", Some("on" | "off")) | ("so_keepalive", Some(_)) => {}
        ("proxy_protocol", None) => return Err(ListenError::ProxyProtocol(entry.to_owned())),
        ("backlog", Some(number)) if number.parse::<u32>().is_ok_and(|number| number > 0) => {
            listen.backlog = number.parse().unwrap_or(DEFAULT_BACKLOG);
        }
        _ => {
            return Err(ListenError::Flag {
                entry: entry.to_owned(),
                flag: flag.to_owned(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kongs_default_is_understood() {
        let listeners = parse(
            "0.0.0.0:8000 reuseport backlog=1024, 0.0.0.0:8443 http2 ssl reuseport backlog=16384",
        )
        .expect("a valid value");
        assert_eq!(listeners.len(), 2);
        assert_eq!(listeners[0].address.to_string(), "0.0.0.0:8000");
        assert_eq!((listeners[0].tls, listeners[0].backlog), (false, 1024));
        assert!(listeners[1].tls && listeners[1].http2);
    }

    #[test]
    fn off_is_no_listener() {
        assert_eq!(parse("off"), Ok(Vec::new()));
        assert_eq!(parse("off, 1.2.3.4:80"), Err(vec![ListenError::Off]));
    }

    #[test]
    fn ipv6_and_localhost_are_addresses() {
        let listeners = parse("[::1]:8000, localhost:0").expect("a valid value");
        assert_eq!(listeners[0].address.to_string(), "[::1]:8000");
        assert_eq!(listeners[1].address.to_string(), "127.0.0.1:0");
    }

    #[test]
    fn every_wrong_entry_is_reported() {
        let errors = parse(
            "8000, 0.0.0.0:99999, example.org:80, 1.2.3.4:80 fast, unix:/run/s, 1.2.3.4:1 proxy_protocol, \
             1.2.3.4:2 backlog=0, 1.2.3.4:3, 1.2.3.4:3",
        )
        .expect_err("eight wrong entries");
        assert_eq!(errors.len(), 8, "{errors:?}");
    }

    #[test]
    fn a_free_port_may_be_taken_twice() {
        assert_eq!(parse("127.0.0.1:0, 127.0.0.1:0 ssl").map(|l| l.len()), Ok(2));
    }
}
