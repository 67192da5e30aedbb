//! Compiles log formats, which have nginx's syntax, to a list of pieces from which each line is built. The built-in
//! formats are `kong_log_format`, `combined`, `json` and, for streams, `basic`. The operator can define another one
//! with `nginx_http_log_format`.

use super::clock::Clock;
use super::escape;
use super::line::{Facts, RequestLine};
use plugin::{Reason, Try, TryEnd, base64, redact};
use std::io::Write;
use std::time::Duration;

/// Kong's format for HTTP. Source: kong/templates/nginx_kong.lua.
const KONG: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                    \"$http_referer\" \"$http_user_agent\" kong_request_id: \"$kong_request_id\"";
/// The format `combined`. Source: nginx src/http/modules/ngx_http_log_module.c.
const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                        \"$http_referer\" \"$http_user_agent\"";
/// Kong's format for streams. Source: kong/templates/nginx_kong_stream.lua.
const BASIC: &str =
    "$remote_addr [$time_local] $protocol $status $bytes_sent $bytes_received $session_time";
const JSON: &str = concat!(
    r#"{"time":"$time_iso8601","remote_addr":"$remote_addr","remote_user":"$remote_user","#,
    r#""request_id":"$kong_request_id","trace_id":"$kong_trace_id","method":"$request_method","host":"$host","#,
    r#""uri":"$request_uri","protocol":"$server_protocol","scheme":"$scheme","status":$status,"#,
    r#""request_length":$request_length,"bytes_sent":$bytes_sent,"#,
    r#""body_bytes_sent":$body_bytes_sent,"request_time":$request_time,"#,
    r#""upstream_addr":"$upstream_addr","upstream_status":"$upstream_status","#,
    r#""upstream_response_time":"$upstream_response_time","route":"$kong_route","#,
    r#""service":"$kong_service","consumer":"$kong_consumer","plugin":"$kong_plugin","#,
    r#""reason":"$kong_reason","#,
    r#""referer":"$http_referer","user_agent":"$http_user_agent"}"#,
);

/// Maximum number of variables without a value that are named.
const MAX_NAMED: usize = 16;

/// Starts of the names of variables that are about a header, a cookie or an argument.
const PREFIXES: [&str; 4] = ["http_", "sent_http_", "cookie_", "arg_"];

/// Method to escape values from clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escape {
    Default,
    Json,
}

/// A compiled format.
#[derive(Debug)]
pub struct Format {
    pieces: Vec<Piece>,
    escape: Escape,
    /// Whether credentials are hidden (`log_redact`).
    redacts: bool,
    /// Variables that have no value here.
    unknown: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(Variable),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Variable {
    RemoteAddr,
    RemotePort,
    PeerAddr,
    RemoteUser,
    TimeLocal,
    TimeIso,
    Msec,
    Request,
    Method,
    Target,
    Path,
    Query,
    Protocol,
    Status,
    BodyBytesSent,
    BytesSent,
    RequestLength,
    RequestTime,
    RequestId,
    Host,
    Port,
    Scheme,
    UpstreamAddr,
    UpstreamStatus,
    UpstreamResponseTime,
    Route,
    Service,
    Consumer,
    Plugin,
    Reason,
    ReasonFlag,
    TraceId,
    /// A request header, by its name in lower case.
    Header(String),
    /// A request header with a credential that is never shown.
    Secret(String),
    /// A header of the response, by its name in lower case.
    SentHeader(String),
    Cookie(String),
    Argument(String),
    IsArgs,
    Https,
    Http2,
    Completion,
    Pipe,
    ServerName,
    ServerAddr,
    Pid,
    ConnectionRequests,
    UpstreamHeaderTime,
    SslProtocol,
    SslCipher,
    SslClientVerify,
    SslServerName,
    /// A variable that has no value here.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error(
        "there is no log format `{0}`; use kong_log_format, combined, json, basic or the one that nginx_http_log_format defines"
    )]
    Unknown(String),
    #[error("`$` without the name of a variable")]
    NoName,
    #[error("expected `<name> [escape=default|json] '<format>'`")]
    Syntax,
}

impl Format {
    /// Returns a built-in format.
    pub fn named(name: &str) -> Result<Self, FormatError> {
        let (text, escape) = match name {
            "kong_log_format" => (KONG, Escape::Default),
            "combined" => (COMBINED, Escape::Default),
            "json" => (JSON, Escape::Json),
            "basic" => (BASIC, Escape::Default),
            _ => return Err(FormatError::Unknown(name.to_owned())),
        };
        Self::compile(text, escape)
    }

    /// Parses the arguments of nginx's directive `log_format`: `<name> [escape=…] '<text>' …`.
    pub fn directive(text: &str) -> Result<(String, Self), FormatError> {
        let mut words = words(text)?.into_iter();
        let name = words.next().ok_or(FormatError::Syntax)?;
        let (mut escape, mut format) = (Escape::Default, String::new());
        for (place, word) in words.enumerate() {
            match (place, word.strip_prefix("escape=")) {
                (0, Some("default")) => escape = Escape::Default,
                (0, Some("json")) => escape = Escape::Json,
                (0, Some(_)) => return Err(FormatError::Syntax),
                _ => format.push_str(&word),
            }
        }
        if format.is_empty() {
            return Err(FormatError::Syntax);
        }
        Ok((name, Self::compile(&format, escape)?))
    }

    /// Returns the same format, which hides credentials or not.
    #[must_use]
    pub fn redacting(self, redacts: bool) -> Self {
        Self { redacts, ..self }
    }

    /// Whether a variable is a header of the response (`$sent_http_…`).
    pub(super) fn reads_sent_head(&self) -> bool {
        let mut pieces = self.pieces.iter();
        pieces.any(|piece| matches!(piece, Piece::Value(Variable::SentHeader(_))))
    }

    /// Returns the names of the variables that have no value here, and of those that are never shown.
    pub fn without_value(&self) -> &[String] {
        &self.unknown
    }

    fn compile(text: &str, escape: Escape) -> Result<Self, FormatError> {
        let mut pieces = Vec::new();
        let mut unknown = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, after) = (&rest[..at], &rest[at + 1..]);
            let (name, behind) = variable_name(after);
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            if name.is_empty() {
                return Err(FormatError::NoName);
            }
            let variable = Variable::named(name);
            if matches!(variable, Variable::Unknown | Variable::Secret(_))
                && unknown.len() < MAX_NAMED
                && !unknown.iter().any(|other| other == name)
            {
                unknown.push(name.to_owned());
            }
            pieces.push(Piece::Value(variable));
            rest = behind;
        }
        pieces.push(Piece::Text(format!("{rest}\n")));
        Ok(Self {
            pieces,
            escape,
            redacts: true,
            unknown,
        })
    }

    /// Appends the line of a request, including the line break.
    pub(super) fn write(&self, facts: &Facts<'_>, clock: &Clock, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Value(variable) => self.write_value(variable, facts, clock, out),
            }
        }
    }

    /// Returns the line of a request that was served by a thread other than a worker.
    pub fn line(&self, facts: &Facts<'_>) -> Vec<u8> {
        let (mut clock, mut out) = (Clock::default(), Vec::new());
        clock.set(std::time::SystemTime::now());
        self.write(facts, &clock, &mut out);
        out
    }

    fn write_value(
        &self,
        variable: &Variable,
        facts: &Facts<'_>,
        clock: &Clock,
        out: &mut Vec<u8>,
    ) {
        let before = out.len();
        let mut text = |text: &[u8]| escape::write(self.escape, text, out);
        match variable {
            Variable::Header(name) => match facts.headers.first(name).unwrap_or_default() {
                b"" => {}
                _ if self.redacts && redact::is_secret_header(name.as_bytes()) => {
                    text(redact::REDACTED);
                }
                url if self.redacts && redact::is_url_header(name.as_bytes()) => {
                    redact::url(url, text);
                }
                value => text(value),
            },
            Variable::Secret(name) => {
                if facts.headers.first(name).is_some() {
                    text(redact::REDACTED);
                }
            }
            Variable::SentHeader(name) => match sent_header(facts.sent_head, name) {
                Some(_) if self.redacts && redact::is_secret_header(name.as_bytes()) => {
                    text(redact::REDACTED);
                }
                Some(url) if self.redacts && redact::is_url_header(name.as_bytes()) => {
                    redact::url(url, text);
                }
                value => text(value.unwrap_or_default()),
            },
            Variable::Cookie(name) => match cookie(facts, name) {
                Some(_) if self.redacts => text(redact::REDACTED),
                value => text(value.unwrap_or_default()),
            },
            Variable::Argument(name) => match argument(facts, name) {
                Some(_) if self.redacts && redact::is_secret_field(name.as_bytes()) => {
                    text(redact::REDACTED);
                }
                value => text(value.unwrap_or_default()),
            },
            Variable::IsArgs if query(facts).is_empty() => {}
            Variable::IsArgs => text(b"?"),
            Variable::SslServerName => text(facts.sni.as_bytes()),
            Variable::RemoteUser => text(&remote_user(facts).unwrap_or_default()),
            Variable::Request => write_request(facts, self.redacts, &mut text),
            Variable::Method => text(method(facts)),
            Variable::Target if self.redacts => redact::target(target(facts), text),
            Variable::Target => text(target(facts)),
            Variable::Path => text(
                target(facts)
                    .split(|byte| *byte == b'?')
                    .next()
                    .unwrap_or_default(),
            ),
            Variable::Query if self.redacts => redact::query(query(facts), text),
            Variable::Query => text(query(facts)),
            Variable::Protocol => text(protocol(facts).as_bytes()),
            Variable::Host => text(facts.host.as_bytes()),
            Variable::Route => text(facts.route.as_bytes()),
            Variable::Service => text(facts.service.as_bytes()),
            Variable::Consumer => text(facts.consumer.as_bytes()),
            Variable::Plugin => text(facts.plugin.as_bytes()),
            plain => write_plain(plain, facts, clock, out),
        }
        if out.len() == before && self.escape == Escape::Default {
            out.push(b'-');
        }
    }
}

/// Writes a value that the gateway produced, which needs no escaping.
fn write_plain(variable: &Variable, facts: &Facts<'_>, clock: &Clock, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = match variable {
        Variable::RemoteAddr => write!(out, "{}", facts.client.ip()),
        Variable::RemotePort => write!(out, "{}", facts.client.port()),
        Variable::PeerAddr => write!(out, "{}", facts.peer.ip()),
        Variable::TimeLocal => out.write_all(clock.local.as_bytes()),
        Variable::TimeIso => out.write_all(clock.iso.as_bytes()),
        Variable::Msec => write_seconds(clock.now, out),
        Variable::Status => write!(out, "{:03}", facts.status),
        Variable::BodyBytesSent => {
            write!(
                out,
                "{}",
                facts.response_size.saturating_sub(facts.response_head)
            )
        }
        Variable::BytesSent => write!(out, "{}", facts.response_size),
        Variable::RequestLength => write!(out, "{}", facts.request_size),
        Variable::RequestTime => write_seconds(facts.latencies.request, out),
        Variable::RequestId => out.write_all(facts.request_id.as_bytes()),
        Variable::Port => write!(out, "{}", facts.port),
        Variable::Scheme => out.write_all(facts.scheme.as_bytes()),
        Variable::Reason => out.write_all(facts.reason.map_or("", Reason::name).as_bytes()),
        Variable::TraceId => match facts.trace_id {
            Some(id) => out.write_all(&id.hex()),
            None => Ok(()),
        },
        Variable::ReasonFlag => out.write_all(facts.reason.map_or("", Reason::flag).as_bytes()),
        Variable::UpstreamAddr => write_tries(facts, out, |one, out| match one.address {
            Some(address) => write!(out, "{address}"),
            None => out.write_all(b"-"),
        }),
        Variable::UpstreamStatus => write_tries(facts, out, |one, out| match one.end {
            TryEnd::Answered(status) | TryEnd::Failed(status) => write!(out, "{status:03}"),
            TryEnd::Abandoned => out.write_all(b"-"),
        }),
        Variable::UpstreamResponseTime => {
            write_tries(facts, out, |one, out| write_seconds(one.took, out))
        }
        Variable::UpstreamHeaderTime => match facts.latencies.upstream {
            Some(time) => write_seconds(time, out),
            None => Ok(()),
        },
        Variable::Https if facts.scheme == "https" => out.write_all(b"on"),
        Variable::Http2 => out.write_all(match (protocol(facts), facts.scheme) {
            ("HTTP/2.0", "https") => b"h2",
            ("HTTP/2.0", _) => b"h2c",
            _ => b"",
        }),
        Variable::Completion if facts.status != 499 => out.write_all(b"OK"),
        // Whether a request was pipelined is not known.
        Variable::Pipe => out.write_all(b"."),
        Variable::ServerName => out.write_all(b"kong"),
        Variable::ServerAddr => match facts.local {
            Some(address) => write!(out, "{address}"),
            None => Ok(()),
        },
        Variable::Pid => write!(out, "{}", std::process::id()),
        Variable::ConnectionRequests => write!(out, "{}", facts.connection_requests),
        Variable::SslProtocol => out.write_all(facts.tls.map_or("", |tls| tls.version).as_bytes()),
        Variable::SslCipher => out.write_all(facts.tls.map_or("", |tls| tls.cipher).as_bytes()),
        Variable::SslClientVerify => {
            out.write_all(facts.tls.map_or("", |tls| tls.client_verify).as_bytes())
        }
        _ => Ok(()),
    };
}

/// Writes seconds with three decimals, as nginx does.
fn write_seconds(time: Duration, out: &mut Vec<u8>) -> std::io::Result<()> {
    write!(out, "{}.{:03}", time.as_secs(), time.subsec_millis())
}

fn write_tries(
    facts: &Facts<'_>,
    out: &mut Vec<u8>,
    write: impl Fn(&Try, &mut Vec<u8>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    for (number, one) in facts.tries.iter().enumerate() {
        if number > 0 {
            out.extend_from_slice(b", ");
        }
        write(one, out)?;
    }
    Ok(())
}

fn write_request(facts: &Facts<'_>, redacts: bool, text: &mut impl FnMut(&[u8])) {
    match facts.request {
        RequestLine::Raw(line) if redacts => redact::target(line, text),
        RequestLine::Raw(line) => text(line),
        RequestLine::Stream { .. } => {}
        RequestLine::Parsed {
            method,
            target,
            version,
        } => {
            text(method);
            text(b" ");
            match redacts {
                true => redact::target(target, &mut *text),
                false => text(target),
            }
            text(b" ");
            text(version.as_bytes());
        }
    }
}

fn method<'a>(facts: &Facts<'a>) -> &'a [u8] {
    match facts.request {
        RequestLine::Parsed { method, .. } => method,
        RequestLine::Raw(_) | RequestLine::Stream { .. } => b"",
    }
}

fn target<'a>(facts: &Facts<'a>) -> &'a [u8] {
    match facts.request {
        RequestLine::Parsed { target, .. } => target,
        RequestLine::Raw(_) | RequestLine::Stream { .. } => b"",
    }
}

fn query<'a>(facts: &Facts<'a>) -> &'a [u8] {
    let target = target(facts);
    let at = target.iter().position(|byte| *byte == b'?');
    at.map_or(b"", |at| &target[at + 1..])
}

/// Returns the first value of an argument of the query.
fn argument<'a>(facts: &Facts<'a>, name: &str) -> Option<&'a [u8]> {
    let mut pairs = query(facts).split(|byte| *byte == b'&');
    pairs.find_map(|pair| {
        let equals = memchr::memchr(b'=', pair)?;
        let is_it = pair[..equals].eq_ignore_ascii_case(name.as_bytes());
        is_it.then_some(&pair[equals + 1..])
    })
}

fn cookie<'a>(facts: &Facts<'a>, name: &str) -> Option<&'a [u8]> {
    let mut pairs = facts.headers.first("cookie")?.split(|byte| *byte == b';');
    pairs.find_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=")
    })
}

/// Returns a header of a response head.
fn sent_header<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut lines = head.split(|byte| *byte == b'\n').skip(1);
    lines.find_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        let is_it = line[..colon].eq_ignore_ascii_case(name.as_bytes());
        is_it.then(|| line[colon + 1..].trim_ascii())
    })
}

fn protocol(facts: &Facts<'_>) -> &'static str {
    match facts.request {
        RequestLine::Parsed { version, .. } => version,
        RequestLine::Raw(_) => "",
        RequestLine::Stream { protocol } => protocol,
    }
}

/// Returns the user name in `Authorization: Basic`, never the password.
fn remote_user(facts: &Facts<'_>) -> Option<Vec<u8>> {
    let value = facts.headers.first("authorization")?;
    let (scheme, encoded) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut decoded = base64::decode(encoded.trim_ascii())?;
    let end = memchr::memchr(b':', &decoded)?;
    decoded.truncate(end);
    Some(decoded)
}

/// Splits the text after a `$` into the name of the variable, with or without braces, and the rest.
fn variable_name(text: &str) -> (&str, &str) {
    if let Some((name, rest)) = text.strip_prefix('{').and_then(|text| text.split_once('}')) {
        return (name, rest);
    }
    let is_end = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

impl Variable {
    fn named(name: &str) -> Self {
        match name {
            "remote_addr" => Self::RemoteAddr,
            "remote_port" => Self::RemotePort,
            "realip_remote_addr" => Self::PeerAddr,
            "remote_user" => Self::RemoteUser,
            "time_local" => Self::TimeLocal,
            "time_iso8601" => Self::TimeIso,
            "msec" => Self::Msec,
            "request" => Self::Request,
            "request_method" => Self::Method,
            "request_uri" => Self::Target,
            "uri" | "document_uri" => Self::Path,
            "args" | "query_string" => Self::Query,
            "server_protocol" | "protocol" => Self::Protocol,
            "status" => Self::Status,
            "body_bytes_sent" => Self::BodyBytesSent,
            "bytes_sent" => Self::BytesSent,
            "request_length" | "bytes_received" => Self::RequestLength,
            "request_time" | "session_time" => Self::RequestTime,
            "request_id" | "kong_request_id" => Self::RequestId,
            "host" => Self::Host,
            "server_port" => Self::Port,
            "scheme" => Self::Scheme,
            "upstream_addr" => Self::UpstreamAddr,
            "upstream_status" => Self::UpstreamStatus,
            "upstream_response_time" => Self::UpstreamResponseTime,
            "kong_route" => Self::Route,
            "kong_service" => Self::Service,
            "kong_consumer" => Self::Consumer,
            "kong_plugin" => Self::Plugin,
            "kong_reason" => Self::Reason,
            "kong_reason_flag" => Self::ReasonFlag,
            "kong_trace_id" => Self::TraceId,
            "is_args" => Self::IsArgs,
            "https" => Self::Https,
            "http2" => Self::Http2,
            "request_completion" => Self::Completion,
            "pipe" => Self::Pipe,
            "server_name" => Self::ServerName,
            "server_addr" => Self::ServerAddr,
            "pid" => Self::Pid,
            "connection_requests" => Self::ConnectionRequests,
            "upstream_header_time" => Self::UpstreamHeaderTime,
            "ssl_protocol" => Self::SslProtocol,
            "ssl_cipher" => Self::SslCipher,
            "ssl_client_verify" => Self::SslClientVerify,
            "ssl_server_name" | "ssl_preread_server_name" => Self::SslServerName,
            "content_type" | "content_length" => Self::Header(name.replace('_', "-")),
            "http_authorization" => Self::Secret("authorization".to_owned()),
            "http_proxy_authorization" => Self::Secret("proxy-authorization".to_owned()),
            _ => Self::prefixed(name),
        }
    }

    /// Returns a variable whose name has a prefix and the name of a header, a cookie or an argument.
    fn prefixed(name: &str) -> Self {
        let Some((prefix, rest)) = PREFIXES.iter().find_map(|prefix| {
            let rest = name.strip_prefix(prefix).filter(|rest| !rest.is_empty())?;
            Some((*prefix, rest))
        }) else {
            return Self::Unknown;
        };
        match prefix {
            "http_" => Self::Header(rest.replace('_', "-")),
            "sent_http_" => Self::SentHeader(rest.replace('_', "-")),
            "cookie_" => Self::Cookie(rest.to_owned()),
            _ => Self::Argument(rest.to_owned()),
        }
    }
}

/// Splits a directive into words. Words that contain blanks are quoted. A backslash escapes a quote or another
/// backslash.
fn words(text: &str) -> Result<Vec<String>, FormatError> {
    let mut words = Vec::new();
    let mut letters = text.chars().peekable();
    loop {
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        let Some(&first) = letters.peek() else {
            return Ok(words);
        };
        let quote = matches!(first, '\'' | '"').then_some(first);
        if quote.is_some() {
            letters.next();
        }
        let mut word = String::new();
        loop {
            match letters.next() {
                None if quote.is_some() => return Err(FormatError::Syntax),
                None => break,
                Some('\\')
                    if letters
                        .peek()
                        .is_some_and(|next| matches!(next, '\'' | '"' | '\\')) =>
                {
                    word.extend(letters.next());
                }
                Some(letter) if Some(letter) == quote => break,
                Some(letter) if quote.is_none() && letter.is_whitespace() => break,
                Some(letter) => word.push(letter),
            }
        }
        words.push(word);
    }
}
