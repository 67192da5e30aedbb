//! `proxy_listen` and `admin_listen`: what this program can do with the listeners that `net` parses.

use net::listen::Listen;
use std::net::SocketAddr;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ListenError {
    #[error("`{entry}`: {error}")]
    Syntax {
        entry: String,
        error: net::listen::ListenError,
    },
    #[error("`{0}`: unix sockets are not available yet")]
    Unix(String),
    #[error("`{0}`: proxy_protocol is not available yet")]
    ProxyProtocol(String),
    #[error("`off` cannot be combined with addresses")]
    Off,
    #[error("{0} is given twice")]
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
            Ok(listen) if is_taken(&listeners, listen.address) => {
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

/// Port 0 is a free one each time.
fn is_taken(listeners: &[Listen], address: SocketAddr) -> bool {
    let mut addresses = listeners.iter().map(|listen| listen.address);
    address.port() != 0 && addresses.any(|taken| taken == address)
}

fn parse_entry(entry: &str) -> Result<Listen, ListenError> {
    if entry.split_whitespace().next() == Some("off") {
        return Err(ListenError::Off);
    }
    if entry.starts_with("unix:") {
        return Err(ListenError::Unix(entry.to_owned()));
    }
    let listen: Listen = entry.parse().map_err(|error| ListenError::Syntax {
        entry: entry.to_owned(),
        error,
    })?;
    // Left to itself it would make every client's first line a bad request.
    if listen.proxy_protocol {
        return Err(ListenError::ProxyProtocol(entry.to_owned()));
    }
    Ok(listen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_is_no_listener() {
        assert_eq!(parse("off"), Ok(Vec::new()));
        assert_eq!(parse("off, 1.2.3.4:80"), Err(vec![ListenError::Off]));
    }

    #[test]
    fn every_wrong_entry_is_reported() {
        let errors = parse(
            "8000, 1.2.3.4:80 fast, unix:/run/s, 1.2.3.4:1 proxy_protocol, 1.2.3.4:3, 1.2.3.4:3",
        )
        .expect_err("five wrong entries");
        assert_eq!(errors.len(), 5, "{errors:?}");
    }

    #[test]
    fn a_free_port_may_be_taken_twice() {
        assert_eq!(
            parse("127.0.0.1:0, 127.0.0.1:0 ssl").map(|list| list.len()),
            Ok(2)
        );
    }
}
