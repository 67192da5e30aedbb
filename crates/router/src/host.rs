//! Splits a Host header into host and port. The flavors agree only on the form `host:port`.

/// A Host header as the `traditional` flavor reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host<'a> {
    /// The host without port and without the brackets around an IPv6 address.
    pub(crate) name: &'a [u8],
    pub(crate) port: Option<i64>,
    /// Whether brackets were removed.
    pub(crate) bracketed: bool,
}

impl<'a> Host<'a> {
    pub(crate) fn parse(text: &'a [u8]) -> Self {
        if text.first() == Some(&b'[') {
            return Self::parse_bracketed(text);
        }
        let plain = |name, port| Self {
            name,
            port,
            bracketed: false,
        };
        match split_at_colon(text) {
            Some((name, b"")) => plain(name, None),
            Some((name, digits)) => match parse_written_port(digits) {
                Some(port) => plain(name, Some(port)),
                None => plain(text, None),
            },
            None => plain(text, None),
        }
    }

    /// Reads `[name]` or `[name]:port` without the brackets. In the second form the name ends at the first `]:`. A text
    /// of any other form is the name itself.
    fn parse_bracketed(text: &'a [u8]) -> Self {
        let peeled = |name, port| Self {
            name,
            port,
            bracketed: true,
        };
        if let [b'[', name @ .., b']'] = text {
            return peeled(name, None);
        }
        let inner = &text[1..];
        let end = memchr::memmem::find(inner, b"]:");
        match end.map(|end| (&inner[..end], &inner[end + 2..])) {
            Some((name, b"")) => peeled(name, None),
            Some((name, digits)) if parse_written_port(digits).is_some() => {
                peeled(name, parse_written_port(digits))
            }
            _ => Self {
                name: text,
                port: None,
                bracketed: false,
            },
        }
    }

    /// Returns the name if it can match a wildcard. Kong compares wildcards with the text `host:port`, in which it puts
    /// a name with a colon in brackets. Such a name never matches a wildcard.
    pub(crate) fn wildcard_name(&self) -> Option<&'a [u8]> {
        (!self.bracketed && !self.name.contains(&b':')).then_some(self.name)
    }
}

/// Splits host and port as the `traditional_compatible` flavor does, at the first colon. Brackets are kept. An IPv6
/// address in brackets never has a port, because it contains the first colon.
pub(crate) fn split(text: &[u8]) -> (&[u8], Option<i64>) {
    let with_port = split_at_colon(text)
        .and_then(|(name, digits)| parse_port(digits).map(|port| (name, Some(port))));
    with_port.unwrap_or((text, None))
}

fn split_at_colon(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', text)?;
    Some((&text[..colon], &text[colon + 1..]))
}

/// Reads a port for the `traditional` flavor, which compares ports as they are written: a port with a leading zero
/// differs from the same port without it. Ports with a leading zero therefore become negative numbers.
fn parse_written_port(digits: &[u8]) -> Option<i64> {
    let port = parse_port(digits)?;
    Some(match digits {
        [b'0', _, ..] => -1 - port,
        _ => port,
    })
}

/// Reads a number of any size. A number above 65535 is accepted, but no route has such a port.
fn parse_port(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0_i64, |number, digit| {
        number
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'))
    });
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (&str, Option<i64>) {
        let host = Host::parse(text.as_bytes());
        (std::str::from_utf8(host.name).unwrap(), host.port)
    }

    #[test]
    fn brackets_are_removed_at_the_end_or_before_a_port() {
        assert_eq!(parsed("[[::1]]"), ("[::1]", None));
        assert_eq!(parsed("[[::1]]:80"), ("[::1]", Some(80)));
        assert_eq!(parsed("[::1]x"), ("[::1]x", None));
        assert_eq!(parsed("["), ("[", None));
    }

    #[test]
    fn a_port_with_a_leading_zero_is_a_different_port() {
        for host in ["a.test:080", "[::1]:080"] {
            let (_, port) = parsed(host);
            assert!(port.is_some_and(|port| port != 80), "{host}");
        }
        assert_eq!(parsed("a.test:0"), ("a.test", Some(0)));
        assert_eq!(split(b"a.test:080"), (&b"a.test"[..], Some(80)));
    }
}
