//! Decides which peers are trusted (`trusted_ips`), and reads the client's address from their requests
//! (`real_ip_header`, `real_ip_recursive`).

use net::http1::RequestHead;
use router::Block;
use std::net::{IpAddr, SocketAddr};

#[derive(Debug, Clone)]
pub struct RealIp {
    pub trusted: Vec<Block>,
    pub source: Source,
    pub recursive: bool,
}

/// The part of a request in which a trusted peer gives the client's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// This request header; `X-Real-IP` by default.
    Header(String),
    /// The PROXY protocol header (`real_ip_header = proxy_protocol`).
    ProxyProtocol,
}

impl Source {
    /// Parses the value of `real_ip_header`.
    pub fn from_name(name: &str) -> Self {
        match name {
            "proxy_protocol" => Self::ProxyProtocol,
            header => Self::Header(header.to_owned()),
        }
    }
}

impl Default for RealIp {
    fn default() -> Self {
        Self {
            trusted: Vec::new(),
            source: Source::Header("X-Real-IP".to_owned()),
            recursive: false,
        }
    }
}

impl RealIp {
    #[inline]
    pub fn trusts(&self, address: IpAddr) -> bool {
        !self.trusted.is_empty()
            && (self.trusted.iter()).any(|block| block.contains(address.to_canonical()))
    }

    /// The client's address as a trusted peer gives it: the last address of the header or, with `recursive`, the last
    /// untrusted one. `told` is the address from the PROXY protocol, used only with [`Source::ProxyProtocol`].
    pub fn client(
        &self,
        peer: SocketAddr,
        told: Option<SocketAddr>,
        head: &RequestHead,
    ) -> SocketAddr {
        match &self.source {
            Source::ProxyProtocol => told.unwrap_or(peer),
            Source::Header(name) => self.of_header(peer, name, head),
        }
    }

    /// Reads all lines of the header as one list, as nginx reads X-Forwarded-For.
    fn of_header(&self, peer: SocketAddr, name: &str, head: &RequestHead) -> SocketAddr {
        let mut client = peer;
        for value in head.header_values(name).rev() {
            let separates = |byte: &u8| matches!(byte, b',' | b' ');
            for item in value.rsplit(separates).filter(|item| !item.is_empty()) {
                let Some(address) = std::str::from_utf8(item).ok().and_then(parse_address) else {
                    return client;
                };
                client = address;
                if !self.recursive || !self.trusts(address.ip()) {
                    return client;
                }
            }
        }
        client
    }
}

/// Parses an address, optionally in brackets and with a port. The port is 0 if there is none. An IPv4-mapped IPv6
/// address becomes IPv4, as the addresses of connections do.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = match bare {
        Some(literal) => literal.parse().map(IpAddr::V6).ok(),
        None => text.parse().ok(),
    };
    let address = address
        .map(|address| SocketAddr::new(address, 0))
        .or_else(|| text.parse().ok())?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::http1::Limits;

    fn client(trusted: &[&str], recursive: bool, header: &str) -> String {
        let real_ip = RealIp {
            trusted: trusted.iter().map(|text| text.parse().unwrap()).collect(),
            source: Source::Header("X-Forwarded-For".into()),
            recursive,
        };
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {header}\r\n\r\n");
        let (head, _) = RequestHead::parse(text.as_bytes(), &Limits::default())
            .unwrap()
            .unwrap();
        let peer = SocketAddr::from(([10, 0, 0, 1], 5));
        let told = Some(SocketAddr::from(([1, 2, 3, 4], 6)));
        real_ip.client(peer, told, &head).ip().to_string()
    }

    #[test]
    fn addresses_come_in_every_form_and_in_several_lines() {
        let real_ip = RealIp {
            trusted: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            source: Source::Header("X-Forwarded-For".into()),
            recursive: true,
        };
        for (lines, expected) in [
            ("X-Forwarded-For: 1.2.3.4:567", "1.2.3.4:567"),
            ("X-Forwarded-For: 1.2.3.4", "1.2.3.4:0"),
            ("X-Forwarded-For: [2001:db8::1]:567", "[2001:db8::1]:567"),
            ("X-Forwarded-For: [2001:db8::1]", "[2001:db8::1]:0"),
            ("X-Forwarded-For: 2001:db8::1", "[2001:db8::1]:0"),
            ("X-Forwarded-For: ::ffff:1.2.3.4", "1.2.3.4:0"),
            ("X-Forwarded-For: [::ffff:1.2.3.4]", "1.2.3.4:0"),
            ("X-Forwarded-For: [::ffff:1.2.3.4]:567", "1.2.3.4:567"),
            ("X-Forwarded-For: 1.2.3.4, ::ffff:10.0.0.9", "1.2.3.4:0"),
            ("X-Forwarded-For: 1.2.3.4 10.0.0.9", "1.2.3.4:0"),
            ("X-Forwarded-For: 1.2.3.4, , 10.0.0.9,", "1.2.3.4:0"),
            (
                "X-Forwarded-For: 6.6.6.6, 1.2.3.4\r\nX-Forwarded-For: fd00::1, 10.0.0.2",
                "1.2.3.4:0",
            ),
            // An unreadable item ends the search.
            ("X-Forwarded-For: 1.2.3.4, unknown, 10.0.0.2", "10.0.0.2:0"),
            (
                "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: unix:",
                "10.0.0.1:5",
            ),
            (
                "X-Forwarded-For: 10.0.0.3\r\nX-Forwarded-For: 10.0.0.2",
                "10.0.0.3:0",
            ),
            ("X-Other: 1.2.3.4", "10.0.0.1:5"),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n");
            let (head, _) = RequestHead::parse(text.as_bytes(), &Limits::default())
                .unwrap()
                .unwrap();
            let peer = SocketAddr::from(([10, 0, 0, 1], 5));
            let got = real_ip.client(peer, None, &head).to_string();
            assert_eq!(got, expected, "{lines}");
        }
    }

    #[test]
    fn the_proxy_protocol_counts_only_if_configured() {
        let real_ip = RealIp {
            source: Source::from_name("proxy_protocol"),
            ..RealIp::default()
        };
        let text = b"GET / HTTP/1.1\r\nHost: a\r\nX-Real-IP: 9.9.9.9\r\n\r\n";
        let (head, _) = RequestHead::parse(text, &Limits::default())
            .unwrap()
            .unwrap();
        let peer = SocketAddr::from(([10, 0, 0, 1], 5));
        let told = SocketAddr::from(([1, 2, 3, 4], 6));
        assert_eq!(real_ip.client(peer, Some(told), &head), told);
        assert_eq!(real_ip.client(peer, None, &head), peer);
    }

    #[test]
    fn the_last_address_counts_and_recursively_the_last_untrusted() {
        assert_eq!(
            client(&["10.0.0.0/8"], false, "1.1.1.1, 10.0.0.2"),
            "10.0.0.2"
        );
        assert_eq!(
            client(&["10.0.0.0/8"], true, "1.1.1.1, 10.0.0.2"),
            "1.1.1.1"
        );
        assert_eq!(
            client(&["10.0.0.0/8"], true, "10.0.0.3, 10.0.0.2"),
            "10.0.0.3"
        );
        assert_eq!(client(&["10.0.0.0/8"], false, "nonsense"), "10.0.0.1");
        assert_eq!(client(&["10.0.0.0/8"], false, "[::2]:80"), "::2");
    }

    #[test]
    fn an_address_costs_as_much_as_its_header_is_long() {
        let real_ip = RealIp {
            trusted: vec!["10.0.0.0/8".parse().unwrap()],
            source: Source::Header("X-Forwarded-For".into()),
            recursive: true,
        };
        let wide = Limits {
            line: 1 << 20,
            head: 1 << 20,
            lines: 1 << 16,
        };
        testkit::cost::assert_linear(
            400,
            |size| {
                let lines = "X-Forwarded-For: 10.0.0.1\r\n".repeat(size);
                let empty = "X-Forwarded-For: ,\r\n".repeat(size);
                let list = format!("X-Forwarded-For: {}10.0.0.1\r\n", "10.0.0.2, ".repeat(size));
                let blanks = format!("X-Forwarded-For: {}10.0.0.1\r\n", ", ".repeat(size));
                let long = format!("X-Forwarded-For: {}\r\n", "[1:".repeat(size));
                [lines, empty, list, blanks, long].map(|lines| {
                    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
                    RequestHead::parse(text.as_bytes(), &wide)
                        .unwrap()
                        .unwrap()
                        .0
                })
            },
            |heads: [RequestHead; 5]| {
                let peer = SocketAddr::from(([10, 0, 0, 1], 5));
                for head in &heads {
                    std::hint::black_box(real_ip.client(peer, None, head));
                }
            },
        );
    }
}
