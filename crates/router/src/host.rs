//! Splitting a Host header into host and port. The flavours disagree about everything but `host:port`.

/// A Host header as the `traditional` flavour reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host<'a> {
    /// Without port, and without the brackets around an IPv6 address.
    pub(crate) name: &'a [u8],
    pub(crate) port: Option<i64>,
    /// Whether brackets were peeled off.
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
            Some((name, digits)) => match parse_port(digits) {
                Some(port) => plain(name, Some(port)),
                None => plain(text, None),
            },
            None => plain(text, None),
        }
    }

    fn parse_bracketed(text: &'a [u8]) -> Self {
        let inner = &text[1..];
        let (name, port) = match inner.iter().position(|&byte| byte == b']') {
            Some(end) => (&inner[..end], &inner[end + 1..]),
            None => (text, &b"?"[..]),
        };
        let peeled = |port| Self {
            name,
            port,
            bracketed: true,
        };
        match port {
            b"" | b":" => peeled(None),
            [b':', digits @ ..] if parse_port(digits).is_some() => peeled(parse_port(digits)),
            _ => Self {
                name: text,
                port: None,
                bracketed: false,
            },
        }
    }

    /// The name, if it can match a wildcard: those are compared with a text that has brackets around any name with a
    /// colon.
    pub(crate) fn wildcard_name(&self) -> Option<&'a [u8]> {
        (!self.bracketed && !self.name.contains(&b':')).then_some(self.name)
    }
}

/// Host and port as the `traditional_compatible` flavour reads them. Brackets stay, and hide the port.
pub(crate) fn split(text: &[u8]) -> (&[u8], Option<i64>) {
    let with_port = split_at_colon(text)
        .and_then(|(name, digits)| parse_port(digits).map(|port| (name, Some(port))));
    with_port.unwrap_or((text, None))
}

fn split_at_colon(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', text)?;
    Some((&text[..colon], &text[colon + 1..]))
}

/// A number of any size: what is no port equals no port.
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
