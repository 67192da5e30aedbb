//! The formats that are read and written: the field `propagation`, and the deprecated ones that it replaces.

use super::fields::{self, Fields};
use super::inject::TraceParent;
use super::{Format, Incoming, Outgoing, formats};
use compact_str::CompactString;
use plugin::{HeaderEdits, Request, Trace};
use serde::Deserialize;

/// The field `propagation`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    extract: Option<Vec<Format>>,
    clear: Option<Vec<CompactString>>,
    inject: Option<Vec<Inject>>,
    default_format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inject {
    /// The format of the incoming context.
    Preserve,
    As(Format),
}

impl<'de> Deserialize<'de> for Inject {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::IntoDeserializer;
        let name = CompactString::deserialize(deserializer)?;
        if name == "preserve" {
            return Ok(Self::Preserve);
        }
        Format::deserialize(name.as_str().into_deserializer()).map(Self::As)
    }
}

/// The deprecated field `header_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderType {
    Preserve,
    Ignore,
    As(Format),
}

impl<'de> Deserialize<'de> for HeaderType {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::IntoDeserializer;
        let name = CompactString::deserialize(deserializer)?;
        match name.as_str() {
            "preserve" => Ok(Self::Preserve),
            "ignore" => Ok(Self::Ignore),
            name => Format::deserialize(name.into_deserializer()).map(Self::As),
        }
    }
}

/// How contexts are read and written.
#[derive(Debug)]
pub struct Propagation {
    extract: Box<[Format]>,
    clear: Box<[CompactString]>,
    inject: Box<[Inject]>,
    default: Format,
    trace_parent: TraceParent,
}

/// The formats that are read if nothing else is said, in this order.
const ALL: [Format; 7] = [
    Format::B3,
    Format::W3c,
    Format::Jaeger,
    Format::Ot,
    Format::Datadog,
    Format::Aws,
    Format::Gcp,
];

impl Propagation {
    /// `propagation` counts alone if any of its lists is set. Otherwise the deprecated fields decide. Empty lists count
    /// as lists.
    pub fn new(
        config: Config,
        header_type: Option<HeaderType>,
        default_header_type: Option<Format>,
    ) -> Self {
        let Config {
            extract,
            clear,
            inject,
            default_format,
        } = config;
        if extract.is_some() || clear.is_some() || inject.is_some() {
            return Self {
                extract: extract.unwrap_or_default().into(),
                clear: clear.unwrap_or_default().into(),
                inject: inject.unwrap_or_default().into(),
                default: default_format,
                trace_parent: TraceParent::new(),
            };
        }
        let default = default_header_type.unwrap_or(default_format);
        let inject = match header_type.unwrap_or(HeaderType::Preserve) {
            HeaderType::Preserve => vec![Inject::Preserve],
            HeaderType::Ignore => vec![Inject::As(default)],
            HeaderType::As(format) => vec![Inject::Preserve, Inject::As(format)],
        };
        let reads = header_type != Some(HeaderType::Ignore);
        Self {
            extract: if reads { ALL.into() } else { Box::default() },
            clear: Box::default(),
            inject: inject.into(),
            default,
            trace_parent: TraceParent::new(),
        }
    }

    /// Returns the context of a request as the upstream would get it. Like all plugins of Kong's, it sees the first hundred
    /// lines.
    #[inline]
    pub fn of_request(&self, request: &Request<'_>) -> Option<Incoming> {
        match fields::are_present(request) {
            true => self.read(request),
            false => None,
        }
    }

    #[inline(never)]
    fn read(&self, request: &Request<'_>) -> Option<Incoming> {
        self.extract(request.first_header_pairs())
    }

    /// Returns the context of the first format that the headers have one of.
    #[inline]
    pub fn extract<'h, N: AsRef<[u8]>>(
        &self,
        headers: impl Iterator<Item = (N, &'h [u8])>,
    ) -> Option<Incoming> {
        self.extract_from(&Fields::collect(headers)?)
    }

    #[inline(never)]
    fn extract_from(&self, fields: &Fields<'_>) -> Option<Incoming> {
        let mut formats = self.extract.iter();
        formats.find_map(|format| formats::extract(*format, fields))
    }

    /// Removes the headers to clear and writes the context. `incoming` is the format of the incoming context, if there
    /// is one. The log record shows the trace id in each format.
    #[inline]
    pub fn inject(
        &self,
        outgoing: &Outgoing,
        incoming: Option<Format>,
        headers: &mut HeaderEdits,
        trace: &mut Trace,
    ) {
        for name in &self.clear {
            headers.remove(name);
        }
        for inject in &self.inject {
            let format = match inject {
                Inject::Preserve => incoming.unwrap_or(self.default),
                Inject::As(format) => *format,
            };
            outgoing.write(format, &self.trace_parent, headers);
            trace.show(format.id_form());
        }
    }
}
