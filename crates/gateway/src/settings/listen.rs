//! The `*_listen` settings. `net` parses the listeners, and this module refuses those that the program does not
//! support.

use net::listen::Listen;
use std::collections::HashSet;
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
    #[error("`{entry}`: {option} is not for listeners of this kind")]
    Option { entry: String, option: &'static str },
    #[error("`off` cannot be combined with addresses")]
    Off,
    #[error("{0} is given twice")]
    Twice(SocketAddr),
}

/// Purpose of the listeners of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// `proxy_listen`.
    Http,
    /// `stream_listen`.
    Stream,
    /// `admin_listen` and other settings whose listeners are not for clients of the proxy.
    Control,
}

impl Purpose {
    /// Returns an option of the listener that does not fit its purpose.
    fn refuses(self, listen: &Listen) -> Option<&'static str> {
        let set = |option, is_set: bool| is_set.then_some(option);
        match self {
            Self::Http => set("udp", listen.udp),
            Self::Control => {
                set("udp", listen.udp).or_else(|| set("proxy_protocol", listen.proxy_protocol))
            }
            // nginx refuses these combinations too.
            Self::Stream => set("http2", listen.http2)
                .or_else(|| set("udp with ssl", listen.udp && listen.ssl))
                .or_else(|| {
                    set(
                        "udp with proxy_protocol",
                        listen.udp && listen.proxy_protocol,
                    )
                }),
        }
    }
}

/// Parses the whole setting and reports every wrong entry. `off` alone means no listener.
pub(crate) fn parse(text: &str, purpose: Purpose) -> Result<Vec<Listen>, Vec<ListenError>> {
    let entries: Vec<&str> = super::values::list(text).collect();
    if entries == ["off"] {
        return Ok(Vec::new());
    }
    let mut listeners: Vec<Listen> = Vec::new();
    let mut taken = HashSet::new();
    let mut errors = Vec::new();
    for entry in entries {
        match parse_entry(entry, purpose) {
            // Each port 0 is replaced by another free port, so it may occur several times.
            Ok(listen)
                if listen.address.port() != 0 && !taken.insert((listen.address, listen.udp)) =>
            {
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

fn parse_entry(entry: &str, purpose: Purpose) -> Result<Listen, ListenError> {
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
    match purpose.refuses(&listen) {
        Some(option) => Err(ListenError::Option {
            entry: entry.to_owned(),
            option,
        }),
        None => Ok(listen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_is_no_listener() {
        assert_eq!(parse("off", Purpose::Http), Ok(Vec::new()));
        let off = Err(vec![ListenError::Off]);
        assert_eq!(parse("off, 1.2.3.4:80", Purpose::Http), off);
    }

    #[test]
    fn every_wrong_entry_is_reported() {
        let errors = parse(
            "8000, 1.2.3.4:80 fast, unix:/run/s, 1.2.3.4:1 udp, 1.2.3.4:3, 1.2.3.4:3",
            Purpose::Http,
        )
        .expect_err("five wrong entries");
        assert_eq!(errors.len(), 5, "{errors:?}");
    }

    #[test]
    fn a_free_port_may_be_taken_twice() {
        assert_eq!(
            parse("127.0.0.1:0, 127.0.0.1:0 ssl", Purpose::Http).map(|list| list.len()),
            Ok(2)
        );
    }

    #[test]
    fn options_are_refused_where_they_mean_nothing() {
        let refused = |text, purpose| parse(text, purpose).is_err();
        assert!(refused("1.2.3.4:1 udp", Purpose::Http));
        assert!(refused("1.2.3.4:1 proxy_protocol", Purpose::Control));
        assert!(refused("1.2.3.4:1 http2", Purpose::Stream));
        assert!(refused("1.2.3.4:1 udp ssl", Purpose::Stream));
        assert!(refused("1.2.3.4:1 udp proxy_protocol", Purpose::Stream));
        assert!(!refused("1.2.3.4:1 proxy_protocol ssl", Purpose::Http));
        assert!(!refused("1.2.3.4:1 ssl proxy_protocol", Purpose::Stream));
    }

    #[test]
    fn a_port_serves_connections_and_datagrams_side_by_side() {
        let both = parse("1.2.3.4:53, 1.2.3.4:53 udp reuseport", Purpose::Stream);
        assert_eq!(both.map(|list| list.len()), Ok(2));
    }
}
