//! The fields of a request that expressions can test, as the reference defines them. For simplicity all fields are
//! computed in advance and copied.

use crate::requests::Sample;
use expr::{AddressField, NumberField, TextField};
use model::uri::{Slashes, normalize};
use router::{Flavor, Options, Scheme, StreamRequest};
use std::net::IpAddr;

pub(crate) struct Facts {
    method: Vec<u8>,
    protocol: Vec<u8>,
    pub(crate) path: Vec<u8>,
    segments: Vec<Vec<u8>>,
    sent_host: Option<Vec<u8>>,
    host: Option<Vec<u8>>,
    wildcard_host: Option<Vec<u8>>,
    sni: Option<Vec<u8>>,
    /// Names are in lower case. Except in the `traditional` flavor, underscores replace their dashes.
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    queries: Vec<(Vec<u8>, Vec<u8>)>,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    source_port: Option<i64>,
    port: i64,
}

impl Facts {
    pub(crate) fn new(sample: &Sample, options: Options) -> Self {
        let traditional = options.flavor == Flavor::Traditional;
        let path = normalize(&sample.path, Slashes::Merge).into_owned();
        let host = sample.host.as_ref().map(|sent| {
            if traditional {
                Host::peeled(sent)
            } else {
                Host::split(sent)
            }
        });
        let (name, default_port) = match sample.scheme {
            Scheme::Http => ("http", 80),
            Scheme::Https => ("https", 443),
        };
        let own_port = if traditional {
            default_port
        } else {
            sample.port
        };
        let port = host.as_ref().and_then(|host| host.port);
        let headers = sample.headers.iter().take(options.max_headers);
        let spelt = |name: &[u8]| -> Vec<u8> {
            let lowered = name.iter().map(u8::to_ascii_lowercase);
            let spelt = lowered.map(|byte| match byte {
                b'-' if !traditional => b'_',
                _ => byte,
            });
            spelt.collect()
        };
        Self {
            method: sample.method.clone().into_bytes(),
            protocol: name.as_bytes().to_vec(),
            segments: segments(&path),
            path,
            sent_host: sample.host.clone(),
            wildcard_host: host.as_ref().and_then(Host::for_wildcards),
            host: host.map(|host| host.name),
            sni: sample.sni.clone().map(String::into_bytes),
            headers: headers
                .map(|(name, value)| (spelt(name), value.clone()))
                .collect(),
            queries: arguments(
                sample.query.as_deref().unwrap_or(b""),
                options.max_arguments,
            ),
            source: sample.source.map(|source| source.ip().to_canonical()),
            destination: sample.destination.map(|address| address.to_canonical()),
            source_port: sample.source.map(|source| source.port().into()),
            port: port.unwrap_or(own_port.into()),
        }
    }

    pub(crate) fn of_stream(request: &StreamRequest<'_>) -> Self {
        let blank = Self::new(&Sample::get(b"/"), Options::default());
        let protocol: &[u8] = match request.sni {
            _ if request.datagrams => b"udp",
            Some(_) => b"tls",
            None => b"tcp",
        };
        Self {
            protocol: protocol.to_vec(),
            sni: request.sni.map(|name| name.as_bytes().to_vec()),
            source: Some(request.source.ip().to_canonical()),
            destination: Some(request.destination.ip().to_canonical()),
            source_port: Some(request.source.port().into()),
            port: request.destination.port().into(),
            ..blank
        }
    }

    pub(crate) fn texts(&self, field: &TextField) -> Vec<Vec<u8>> {
        let one = |value: &Option<Vec<u8>>| value.iter().cloned().collect();
        let named = |list: &[(Vec<u8>, Vec<u8>)], wanted: &str| {
            let own = list.iter().filter(|(name, _)| name == wanted.as_bytes());
            own.map(|(_, value)| value.clone()).collect()
        };
        match field {
            TextField::Protocol => vec![self.protocol.clone()],
            TextField::Method => vec![self.method.clone()],
            TextField::Path => vec![self.path.clone()],
            TextField::Sni => one(&self.sni),
            TextField::Host => one(&self.host),
            TextField::SentHost => one(&self.sent_host),
            TextField::WildcardHost => one(&self.wildcard_host),
            TextField::Header(name) => named(&self.headers, name),
            TextField::Query(name) => named(&self.queries, name),
            TextField::Segments { first, last } => {
                let range = *first as usize..=*last as usize;
                one(&self.segments.get(range).map(|some| some.join(&b'/')))
            }
        }
    }

    pub(crate) fn number(&self, field: NumberField) -> Option<i64> {
        match field {
            NumberField::SourcePort => self.source_port,
            NumberField::DestinationPort => Some(self.port),
            NumberField::SegmentCount => i64::try_from(self.segments.len()).ok(),
        }
    }

    pub(crate) fn address(&self, field: AddressField) -> Option<IpAddr> {
        match field {
            AddressField::Source => self.source,
            AddressField::Destination => self.destination,
        }
    }
}

/// Returns the segments of a path, which start at its second byte. A trailing slash adds no segment.
fn segments(path: &[u8]) -> Vec<Vec<u8>> {
    let inner = path.get(1..).unwrap_or(b"");
    let mut segments: Vec<Vec<u8>> = inner
        .split(|byte| *byte == b'/')
        .map(<[u8]>::to_vec)
        .collect();
    while segments.last().is_some_and(Vec::is_empty) {
        segments.pop();
    }
    segments
}

/// Returns the decoded names and values of a query. A name without a value has an empty value; a value without a name
/// is skipped.
fn arguments(query: &[u8], most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let parts = query.split(|byte| *byte == b'&');
    let pairs = parts.map(|part| match part.iter().position(|byte| *byte == b'=') {
        Some(at) => (decoded(&part[..at]), decoded(&part[at + 1..])),
        None => (decoded(part), Vec::new()),
    });
    pairs
        .filter(|(name, _)| !name.is_empty())
        .take(most)
        .collect()
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| {
        let byte = text.get(at)?;
        char::from(*byte).to_digit(16)
    };
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = text.get(at) {
        let escape = digit(at + 1).zip(digit(at + 2)).filter(|_| *byte == b'%');
        match (byte, escape) {
            (_, Some((high, low))) => {
                out.push(u8::try_from(high << 4 | low).unwrap_or(0));
                at += 2;
            }
            (b'+', None) => out.push(b' '),
            (byte, None) => out.push(*byte),
        }
        at += 1;
    }
    out
}

struct Host {
    name: Vec<u8>,
    port: Option<i64>,
    bracketed: bool,
}

impl Host {
    /// Splits a host for the flavors other than `traditional`. The text after the colon is a port if the host contains
    /// only one colon and a number follows it.
    fn split(sent: &[u8]) -> Self {
        let (name, port) = match without_port(sent) {
            Some((name, Some(port))) => (name, Some(port)),
            _ => (sent, None),
        };
        Self {
            name: name.to_vec(),
            port,
            bracketed: false,
        }
    }

    /// Splits a host for the `traditional` flavor. Removes brackets around an address, and a colon at the end of the
    /// host.
    fn peeled(sent: &[u8]) -> Self {
        let whole = |bracketed| Self {
            name: sent.to_vec(),
            port: None,
            bracketed,
        };
        let Some(inner) = sent.strip_prefix(b"[") else {
            return match without_port(sent) {
                Some((name, port)) => Self {
                    name: name.to_vec(),
                    port: port.map(|port| as_written(port, &sent[name.len() + 1..])),
                    bracketed: false,
                },
                None => whole(false),
            };
        };
        let peeled = |name: &[u8], port| Self {
            name: name.to_vec(),
            port,
            bracketed: true,
        };
        if let Some(name) = inner.strip_suffix(b"]") {
            return peeled(name, None);
        }
        let end = inner.windows(2).position(|pair| pair == b"]:");
        match end.and_then(|end| Some((end, without_port(&inner[end + 1..])?.1))) {
            Some((end, port)) => {
                let port = port.map(|port| as_written(port, &inner[end + 2..]));
                peeled(&inner[..end], port)
            }
            None => whole(false),
        }
    }

    /// Returns the host that wildcards are compared with. Kong puts a host that contains a colon in brackets, so it
    /// never matches a wildcard.
    fn for_wildcards(&self) -> Option<Vec<u8>> {
        let plain = !self.bracketed && !self.name.contains(&b':');
        plain.then(|| self.name.clone())
    }
}

/// Returns the port, or a negative number if it has a leading zero. In the `traditional` flavor, Kong compares ports as
/// text, so `080` must differ from `80`.
fn as_written(port: i64, digits: &[u8]) -> i64 {
    match digits {
        [b'0', _, ..] => -1 - port,
        _ => port,
    }
}

/// Returns the text before the first colon, and the port after it. If nothing follows the colon, the port is `None`.
/// Returns `None` if there is no colon, or if the text after it is not a number.
fn without_port(sent: &[u8]) -> Option<(&[u8], Option<i64>)> {
    let colon = sent.iter().position(|byte| *byte == b':')?;
    let digits = &sent[colon + 1..];
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    let port = (!digits.is_empty()).then(|| digits.parse().unwrap_or(i64::MAX));
    Some((&sent[..colon], port))
}
