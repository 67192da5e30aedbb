//! A span in Zipkin's JSON, version 2.

use plugin::trace::{TraceId, short_hex};
use serde::{Serialize, Serializer};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use uuid::Uuid;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span<'a> {
    #[serde(serialize_with = "trace_id")]
    pub(super) trace_id: TraceId,
    #[serde(serialize_with = "span_id")]
    pub(super) id: u64,
    #[serde(serialize_with = "parent_id", skip_serializing_if = "Option::is_none")]
    pub(super) parent_id: Option<u64>,
    pub(super) name: Cow<'a, str>,
    pub(super) kind: &'static str,
    /// Microseconds since 1970.
    pub(super) timestamp: u64,
    /// Microseconds.
    pub(super) duration: u64,
    pub(super) local_endpoint: Endpoint<'a>,
    pub(super) remote_endpoint: Option<Endpoint<'a>>,
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub(super) tags: Tags<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) annotations: Vec<Annotation>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Endpoint<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ipv4: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ipv6: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) port: Option<u16>,
}

/// A moment within a span.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Annotation {
    pub(super) value: &'static str,
    pub(super) timestamp: u64,
}

/// The tags of a span. A name occurs once, and empty values are left out. They are searched one by one: a span has few,
/// and those of a client are limited in number.
#[derive(Debug, Default)]
pub(super) struct Tags<'a>(SmallVec<[(Cow<'a, str>, Tag<'a>); 12]>);

/// The value of a tag, which becomes a text only when it is written.
#[derive(Debug)]
pub(super) enum Tag<'a> {
    Text(Cow<'a, str>),
    Id(Uuid),
    Number(u64),
}

impl<'a> From<Cow<'a, str>> for Tag<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a str> for Tag<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl Serialize for Tag<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Id(id) => {
                let mut text = [0; 36];
                serializer.serialize_str(id.hyphenated().encode_lower(&mut text))
            }
            Self::Number(number) => serializer.serialize_str(itoa::Buffer::new().format(*number)),
        }
    }
}

impl Serialize for Tags<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'a> Tags<'a> {
    pub(super) fn set(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Tag<'a>>) {
        let (name, value) = (name.into(), value.into());
        if matches!(&value, Tag::Text(text) if text.is_empty()) {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Endpoint<'a> {
    pub(super) fn named(name: &'a str) -> Self {
        Self {
            service_name: Some(name),
            ipv4: None,
            ipv6: None,
            port: None,
        }
    }

    /// Returns the endpoint of a server or a client. As in Kong, it has a name or a port.
    pub(super) fn of(name: Option<&'a str>, socket: Option<SocketAddr>) -> Option<Self> {
        let port = socket.map(|socket| socket.port()).filter(|port| *port != 0);
        if name.is_none() && port.is_none() {
            return None;
        }
        let ip = socket.map(|socket| socket.ip().to_canonical());
        Some(Self {
            service_name: name,
            ipv4: ip.filter(IpAddr::is_ipv4),
            ipv6: ip.filter(IpAddr::is_ipv6),
            port,
        })
    }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn trace_id<S: Serializer>(id: &TraceId, serializer: S) -> Result<S::Ok, S::Error> {
    let digits = id.hex();
    let shown = if id.is_short { digits.get(16..) } else { None };
    let shown = std::str::from_utf8(shown.unwrap_or(&digits));
    serializer.serialize_str(shown.unwrap_or_default())
}

fn span_id<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    let digits = short_hex(*id);
    serializer.serialize_str(std::str::from_utf8(&digits).unwrap_or_default())
}

fn parent_id<S: Serializer>(id: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => span_id(id, serializer),
        None => serializer.serialize_none(),
    }
}
