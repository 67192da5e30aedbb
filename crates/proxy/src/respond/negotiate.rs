//! Formats of error bodies: chooses the one that the client asked for, and writes it.
//! Sources: kong/tools/http.lua get_response_type(), get_error_template().

/// The formats of an error body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Html,
    Xml,
    Plain,
    /// A gRPC status in headers, without a body.
    Grpc,
}

/// The settings `error_template_*`. Each is a text with two `%s`, one for the message and one for the request id.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    pub json: Option<String>,
    pub html: Option<String>,
    pub xml: Option<String>,
    pub plain: Option<String>,
}

impl Format {
    /// Returns the format of the first media range with the highest quality. Unknown media ranges count as JSON. Items
    /// that are not media ranges are ignored.
    pub fn accepted(accept: Option<&[u8]>) -> Self {
        let mut chosen = Self::Json;
        let mut best = 0.0;
        for item in accept.unwrap_or_default().split(|&byte| byte == b',') {
            let mut pieces = item.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let Some(format) = pieces.next().and_then(Self::of_range) else {
                continue;
            };
            let quality = pieces.find_map(quality).unwrap_or(1.0);
            if quality > best {
                chosen = format;
                best = quality;
            }
        }
        chosen
    }

    /// Returns the format for errors that nginx reports in Kong, such as 502. Without an Accept header, the request's
    /// content type decides. Without both, the default of the settings applies.
    pub fn accepted_or(
        accept: Option<&[u8]>,
        content_type: Option<&[u8]>,
        default: Format,
    ) -> Self {
        match accept.or(content_type) {
            None => default,
            Some(types) => Self::accepted(Some(types)),
        }
    }

    /// Returns the format of a media range. The comparison is case-sensitive, as in Kong.
    fn of_range(range: &[u8]) -> Option<Self> {
        memchr::memchr(b'/', range)?;
        Some(match range {
            b"text/html" => Self::Html,
            b"text/plain" | b"text/*" => Self::Plain,
            b"application/xml" => Self::Xml,
            _ if range.starts_with(b"application/grpc") => Self::Grpc,
            _ => Self::Json,
        })
    }

    /// Returns the content type, or `None` for gRPC, which has no body.
    pub fn content_type(self) -> Option<&'static str> {
        match self {
            Self::Json => Some("application/json; charset=utf-8"),
            Self::Html => Some("text/html; charset=utf-8"),
            Self::Xml => Some("application/xml; charset=utf-8"),
            Self::Plain => Some("text/plain; charset=utf-8"),
            Self::Grpc => None,
        }
    }

    /// Returns the body. The message is inserted without escaping, as in Kong.
    pub fn body(self, templates: &Templates, message: &str, request_id: &str) -> String {
        let (custom, builtin) = match self {
            Self::Json => (&templates.json, JSON),
            Self::Html => (&templates.html, HTML),
            Self::Xml => (&templates.xml, XML),
            Self::Plain => (&templates.plain, PLAIN),
            Self::Grpc => return String::new(),
        };
        let mut pieces = custom.as_deref().unwrap_or(builtin).splitn(3, "%s");
        let mut body = String::from(pieces.next().unwrap_or_default());
        for (piece, value) in pieces.zip([message, request_id]) {
            body.push_str(value);
            body.push_str(piece);
        }
        body
    }
}

fn quality(parameter: &[u8]) -> Option<f64> {
    let value = parameter.strip_prefix(b"q=")?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

const JSON: &str = "{\n  \"message\":\"%s\",\n  \"request_id\":\"%s\"\n}";

const HTML: &str = "<!doctype html>
<html>
  <head>
    <meta charset=\"utf-8\">
    <title>Error</title>
  </head>
  <body>
    <h1>Error</h1>
    <p>%s.</p>
    <p>request_id: %s</p>
  </body>
</html>
";

const XML: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<error>
  <message>%s</message>
  <requestid>%s</requestid>
</error>
";

const PLAIN: &str = "%s\nrequest_id: %s\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_type_costs_as_much_as_its_header_is_long() {
        let shapes = [
            "text/html;q=0.1,",
            "a/b;",
            ",",
            ";",
            " /",
            "application/grpc;q=0.00000001;q=1,",
        ];
        testkit::cost::assert_linear(
            2000,
            |size| shapes.map(|shape| shape.repeat(size)),
            |headers: [String; 6]| {
                for header in &headers {
                    std::hint::black_box(Format::accepted(Some(header.as_bytes())));
                }
            },
        );
    }
}
