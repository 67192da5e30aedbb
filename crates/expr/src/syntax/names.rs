//! Resolves field names.

use super::Subsystem;
use super::error::{ErrorKind, Hint, Type};
use crate::field::{AddressField, NumberField, TextField};
use crate::nearest::difference;
use std::fmt;

const HEADERS: &str = "http.headers.";
const QUERIES: &str = "http.queries.";
const SEGMENTS: &str = "http.path.segments.";

pub(super) enum Field {
    Text(TextField),
    Number(NumberField),
    Address(AddressField),
}

impl Field {
    pub(super) fn of_type(&self) -> Type {
        match self {
            Self::Text(_) => Type::String,
            Self::Number(_) => Type::Int,
            Self::Address(_) => Type::IpAddr,
        }
    }
}

pub(super) fn resolve(name: &str, subsystem: Subsystem) -> Result<Field, ErrorKind> {
    let field = match name {
        "net.protocol" => Field::Text(TextField::Protocol),
        "tls.sni" => Field::Text(TextField::Sni),
        "net.src.ip" => Field::Address(AddressField::Source),
        "net.dst.ip" => Field::Address(AddressField::Destination),
        "net.src.port" => Field::Number(NumberField::SourcePort),
        "net.dst.port" => Field::Number(NumberField::DestinationPort),
        _ => match (http(name), subsystem) {
            (Some(Ok(_)), Subsystem::Stream) => {
                return Err(ErrorKind::UnknownField(Hint::HttpFieldInStream));
            }
            (Some(field), Subsystem::Http) => field?,
            _ => return Err(ErrorKind::UnknownField(hint(name, subsystem))),
        },
    };
    Ok(field)
}

fn http(name: &str) -> Option<Result<Field, ErrorKind>> {
    let field = match name {
        "http.method" => Field::Text(TextField::Method),
        "http.host" => Field::Text(TextField::Host),
        "http.path" => Field::Text(TextField::Path),
        "http.path.segments.len" => Field::Number(NumberField::SegmentCount),
        _ => {
            let dot = name.rfind('.')?;
            let (group, name) = name.split_at(dot + 1);
            match group {
                // OpenResty looks up headers by lower-case name, so every spelling means the same header.
                HEADERS => Field::Text(TextField::Header(name.to_ascii_lowercase().into())),
                QUERIES => Field::Text(TextField::Query(name.into())),
                SEGMENTS => {
                    let segments = segments(name).ok_or(ErrorKind::BadSegments);
                    return Some(segments.map(Field::Text));
                }
                _ => return None,
            }
        }
    };
    Some(Ok(field))
}

/// Parses `N` or `N_M`. Numbers above `u32::MAX` become `u32::MAX`, because no path has that many segments.
fn segments(range: &str) -> Option<TextField> {
    let (first, last) = match range.split_once('_') {
        Some((first, last)) => (first, Some(last)),
        None => (range, None),
    };
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_short = digits == "0" || !digits.starts_with('0');
        (is_number && is_short).then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let single = number(first)?;
    let Some(last) = last else {
        return Some(TextField::Segments {
            first: single,
            last: single,
        });
    };
    // Compares the digits and not the parsed numbers, because those may both be `u32::MAX`.
    let is_ascending = (first.len(), first) < (last.len(), last);
    is_ascending.then_some(TextField::Segments {
        first: single,
        last: number(last)?,
    })
}

fn hint(name: &str, subsystem: Subsystem) -> Hint {
    if name == "net.port" {
        return Hint::OldPort;
    }
    let is_http = subsystem == Subsystem::Http;
    if is_http && (name.starts_with(HEADERS) || name.starts_with(QUERIES)) {
        return Hint::DotInName;
    }
    let common = [
        "net.protocol",
        "tls.sni",
        "net.src.ip",
        "net.dst.ip",
        "net.src.port",
        "net.dst.port",
    ];
    let http = ["http.method", "http.host", "http.path"];
    let groups = ["http.headers.…", "http.queries.…", "http.path.segments.…"];
    let http_only = http.into_iter().chain(groups).filter(|_| is_http);
    let known = common.into_iter().chain(http_only);
    let similar = known.filter_map(|known| Some((difference_of_field(name, known)?, known)));
    let near = similar.min();
    match (near, subsystem) {
        (Some((_, nearest)), _) => Hint::Nearest(nearest),
        (None, Subsystem::Http) => Hint::HttpFields,
        (None, Subsystem::Stream) => Hint::StreamFields,
    }
}

/// Returns the number of letters in which a name differs from a known field, or `None` if too many differ. If the known
/// field ends in `…`, only the part before that is compared.
fn difference_of_field(name: &str, known: &str) -> Option<usize> {
    match known.strip_suffix('…') {
        Some(group) => {
            let end = name.rfind('.').map_or(name.len(), |dot| dot + 1);
            difference(&name[..end], group)
        }
        None => difference(name, known),
    }
}

impl fmt::Display for TextField {
    /// Prints the name of the field. Fields that the language lacks are printed as the field they are derived from.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol => formatter.write_str("net.protocol"),
            Self::Sni => formatter.write_str("tls.sni"),
            Self::Method => formatter.write_str("http.method"),
            Self::Host | Self::WildcardHost => formatter.write_str("http.host"),
            Self::SentHost => write!(formatter, "{HEADERS}host"),
            Self::Path => formatter.write_str("http.path"),
            Self::Segments { first, last } if first == last => {
                write!(formatter, "{SEGMENTS}{first}")
            }
            Self::Segments { first, last } => write!(formatter, "{SEGMENTS}{first}_{last}"),
            Self::Header(name) => write!(formatter, "{HEADERS}{}", name.replace('-', "_")),
            Self::Query(name) => write!(formatter, "{QUERIES}{name}"),
        }
    }
}

impl fmt::Display for NumberField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::SourcePort => "net.src.port",
            Self::DestinationPort => "net.dst.port",
            Self::SegmentCount => "http.path.segments.len",
        })
    }
}

impl fmt::Display for AddressField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Source => "net.src.ip",
            Self::Destination => "net.dst.ip",
        })
    }
}
