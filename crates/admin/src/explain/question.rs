//! Parses the request to be explained from the body of `POST /router/explain`. All errors are reported together, each
//! under the name of its field.

use model::{Error, Object, Value};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A request or connection to be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub protocol: Protocol,
    pub method: String,
    /// The Host header of the request.
    pub host: Option<String>,
    /// The path before the `?`, as the client sends it.
    pub path: String,
    /// The query after the `?`, as the client sends it.
    pub query: Option<String>,
    /// Headers except Host, one entry per header line.
    pub headers: Vec<(String, String)>,
    /// Server name in the TLS handshake, in lower case.
    pub sni: Option<String>,
    /// Address of the client. Behind trusted proxies, this is the address that they report.
    pub source: Option<SocketAddr>,
    /// Address of the listener.
    pub destination: Option<IpAddr>,
    /// Port of the listener, as clients see it.
    pub port: u16,
    /// Id or name of a route that is explained even if it is not a candidate.
    pub route: Option<String>,
    /// Id or username of the consumer that the plugins would find.
    pub consumer: Option<String>,
    /// Maximum number of reported routes that almost match.
    pub closest: usize,
    /// Maximum number of reported candidates.
    pub limit: usize,
}

/// The protocol of a request or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http,
    Https,
    Tcp,
    Tls,
    Udp,
}

impl Protocol {
    pub(crate) const ALL: [Self; 5] = [Self::Http, Self::Https, Self::Tcp, Self::Tls, Self::Udp];

    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Udp => "udp",
        }
    }

    /// Whether this is a TCP, TLS or UDP stream. The gateway reads nothing of a stream except the server name.
    pub fn is_stream(self) -> bool {
        !matches!(self, Self::Http | Self::Https)
    }

    fn usual_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https | Self::Tls => 443,
            Self::Tcp | Self::Udp => 0,
        }
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.name() == text);
        known.ok_or_else(|| "expected one of: http, https, tcp, tls, udp".to_owned())
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Maximum number of reported unknown fields or invalid headers.
const MAX_REPORTED: usize = 100;

/// Maximum number of header lines of a request.
const MAX_HEADERS: usize = 1000;

/// Default of `closest`.
pub(crate) const CLOSEST: usize = 5;
/// Default of `limit`.
pub(crate) const LIMIT: usize = 100;
/// Maximum of `closest` and `limit`, because nobody reads more results.
pub(crate) const MOST: i64 = 1000;

impl Question {
    pub fn read(body: Object) -> Result<Self, Error> {
        let mut reader = Reader {
            body,
            problems: Object::new(),
        };
        let question = reader.read();
        let Reader { body, mut problems } = reader;
        // The reader removes the fields that it knows, so no problem has one of these names yet.
        for (name, _) in body.into_iter().take(MAX_REPORTED) {
            problems.push(name, Value::from("unknown field"));
        }
        if problems.is_empty() {
            Ok(question)
        } else {
            Err(Error::schema_violation(problems))
        }
    }
}

/// The fields that are not read yet, and the problems found so far.
struct Reader {
    body: Object,
    problems: Object,
}

/// Scheme, authority and target of a URL, or of the fields that are given instead of one.
#[derive(Default)]
struct UrlParts {
    protocol: Option<Protocol>,
    authority: Option<String>,
    target: Option<String>,
}

impl Reader {
    fn read(&mut self) -> Question {
        let place = self.place();
        let (sent_host, headers) = self.headers();
        let protocol = place.protocol.unwrap_or(Protocol::Http);
        let authority = place.authority.as_deref();
        let destination = self.parsed("destination", endpoint).unwrap_or_default();
        let port = destination.1.or_else(|| authority.and_then(port_of));
        let sni = self.parsed("sni", |text| match text {
            "" => Ok(None),
            name => host(name).map(|name| Some(name.to_ascii_lowercase())),
        });
        let sni = match (sni, protocol) {
            (Some(given), _) => given,
            (None, Protocol::Https | Protocol::Tls) => authority.and_then(server_name),
            (None, _) => None,
        };
        let (path, query) = split_target(place.target.as_deref().unwrap_or("/"));
        Question {
            protocol,
            method: self
                .parsed("method", method)
                .unwrap_or_else(|| "GET".to_owned()),
            host: sent_host.or(place.authority),
            path,
            query,
            headers,
            sni,
            source: self.parsed("source", endpoint).map(|(address, port)| {
                let address = address.unwrap_or(IpAddr::from([0, 0, 0, 0]));
                SocketAddr::new(address, port.unwrap_or(0))
            }),
            destination: destination.0,
            port: port.unwrap_or(protocol.usual_port()),
            route: self.text("route"),
            consumer: self.text("consumer"),
            closest: self.number("closest", 0).unwrap_or(CLOSEST),
            limit: self.number("limit", 1).unwrap_or(LIMIT),
        }
    }

    fn place(&mut self) -> UrlParts {
        let url = self.parsed("url", read_url);
        let is_url = url.is_some() || self.problems.contains("url");
        let place = UrlParts {
            protocol: self.parsed("protocol", Protocol::from_str),
            authority: self.parsed("host", |text| host(text).map(str::to_owned)),
            target: self.parsed("path", |text| target(text).map(str::to_owned)),
        };
        if !is_url {
            return place;
        }
        for (name, given) in [
            ("protocol", place.protocol.is_some()),
            ("host", place.authority.is_some()),
            ("path", place.target.is_some()),
        ] {
            if given {
                self.refuse(name, "cannot be combined with `url`");
            }
        }
        url.unwrap_or_default()
    }

    /// Reads the headers; returns the Host header separately.
    fn headers(&mut self) -> (Option<String>, Vec<(String, String)>) {
        let mut headers = Vec::new();
        let mut problems = Object::new();
        match self.body.remove("headers") {
            None | Some(Value::Null) => {}
            Some(Value::Object(given)) => {
                for (name, values) in given {
                    match header(&name, &values) {
                        Ok(values) => headers.extend(
                            values
                                .into_iter()
                                .map(|value| (name.to_string(), value.to_owned())),
                        ),
                        // A name occurs only once in an object, so this adds no duplicate.
                        Err(problem) => problems.push(name, Value::from(problem)),
                    }
                    if problems.len() == MAX_REPORTED || headers.len() > MAX_HEADERS {
                        break;
                    }
                }
            }
            Some(_) => self.refuse("headers", "expected an object of names and values"),
        }
        if headers.len() > MAX_HEADERS {
            self.refuse("headers", format!("at most {MAX_HEADERS} lines"));
        } else if !problems.is_empty() {
            self.problems.insert("headers", Value::Object(problems));
        }
        let is_host = |(name, _): &(String, String)| name.eq_ignore_ascii_case("host");
        let host = headers.iter().find(|header| is_host(header)).cloned();
        headers.retain(|header| !is_host(header));
        (host.map(|(_, value)| value), headers)
    }

    fn refuse(&mut self, name: &str, problem: impl Into<String>) {
        let problem: String = problem.into();
        self.problems.insert(name, Value::from(problem));
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.parsed(name, |text| match text {
            "" => Err("length must be at least 1"),
            text => Ok(text.to_owned()),
        })
    }

    fn parsed<T, E: Into<String>>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = match self.body.remove(name)? {
            Value::Null => return None,
            Value::String(text) => parse(&text).map_err(Into::into),
            // An object in the format that routes use: `{"ip": …, "port": …}`.
            Value::Object(end) if matches!(name, "source" | "destination") => {
                written_endpoint(&end).and_then(|text| parse(&text).map_err(Into::into))
            }
            _ => Err("expected a string".to_owned()),
        };
        match parsed {
            Ok(value) => Some(value),
            Err(problem) => {
                self.refuse(name, problem);
                None
            }
        }
    }

    fn number(&mut self, name: &str, least: i64) -> Option<usize> {
        let value = self.body.remove(name)?;
        if value.is_null() {
            return None;
        }
        let number = value
            .as_int()
            .filter(|number| (least..=MOST).contains(number));
        if number.is_none() {
            self.refuse(
                name,
                format!("expected an integer between {least} and {MOST}"),
            );
        }
        usize::try_from(number?).ok()
    }
}

fn is_token(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_fine)
}

fn method(text: &str) -> Result<String, &'static str> {
    if is_token(text) {
        Ok(text.to_owned())
    } else {
        Err("expected the name of a method")
    }
}

fn host(text: &str) -> Result<&str, &'static str> {
    let is_fine = |byte: u8| byte > b' ' && byte != 0x7f && !b"/?#@\\".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_fine) {
        Ok(text)
    } else {
        Err("expected a host, with its port if it is not the usual one")
    }
}

fn target(text: &str) -> Result<&str, &'static str> {
    if !text.starts_with('/') {
        return Err("should start with: /");
    }
    if text.bytes().all(|byte| byte > b' ' && byte != 0x7f) {
        Ok(text)
    } else {
        Err("blanks and control characters must be written as %XX")
    }
}

fn read_url(text: &str) -> Result<UrlParts, String> {
    let Some((protocol, rest)) = text.split_once("://") else {
        // The most frequent mistake is a path without a host, so the example contains that path.
        let path = match target(text) {
            Ok(path) if path.len() <= 100 => path,
            _ => "/users",
        };
        return Err(format!("not a full URL; example: http://HOST{path}"));
    };
    let protocol = Protocol::from_str(&protocol.to_ascii_lowercase())?;
    let rest = rest.split('#').next().unwrap_or_default();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    Ok(UrlParts {
        protocol: Some(protocol),
        authority: Some(host(authority)?.to_owned()),
        target: Some(target(&path)?.to_owned()),
    })
}

/// Splits a target into path and query, like the data plane does.
fn split_target(target: &str) -> (String, Option<String>) {
    match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target.to_owned(), None),
    }
}

fn header<'v>(name: &str, values: &'v Value) -> Result<Vec<&'v str>, &'static str> {
    if !is_token(name) {
        return Err("this is not the name of a header");
    }
    let values = match values {
        Value::Array(values) => values.iter().map(Value::as_str).collect(),
        value => value.as_str().map(|value| vec![value]),
    };
    let values: Vec<&str> = values.ok_or("expected a string or an array of strings")?;
    let is_fine = |value: &&str| !value.contains(['\r', '\n', '\0']);
    if values.iter().all(is_fine) {
        Ok(values)
    } else {
        Err("a value cannot have a line break in it")
    }
}

/// Parses `1.2.3.4:5`, `[::1]:5`, an address alone, or `:5`.
fn endpoint(text: &str) -> Result<(Option<IpAddr>, Option<u16>), &'static str> {
    if let Ok(both) = text.parse::<SocketAddr>() {
        return Ok((Some(both.ip()), Some(both.port())));
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    if let Ok(address) = bare.unwrap_or(text).parse() {
        return Ok((Some(address), None));
    }
    let port = text.strip_prefix(':').and_then(|port| port.parse().ok());
    match port {
        Some(port) => Ok((None, Some(port))),
        None => Err("expected an address with or without port, such as 1.2.3.4:5, or :5"),
    }
}

fn written_endpoint(end: &Object) -> Result<String, String> {
    if let Some((name, _)) = end.iter().find(|(name, _)| !["ip", "port"].contains(name)) {
        return Err(format!("{name}: unknown field"));
    }
    let given = |name| end.get(name).filter(|value| !value.is_null());
    let ip = given("ip").map(|ip| ip.as_str().ok_or("ip: expected a string"));
    let ip: Option<IpAddr> = match ip.transpose()? {
        Some(ip) => Some(ip.parse().map_err(|_| "ip: expected an address")?),
        None => None,
    };
    let port = given("port").map(|port| {
        let port = port.as_int().and_then(|port| u16::try_from(port).ok());
        port.ok_or("port: expected a number between 0 and 65535")
    });
    Ok(match (ip, port.transpose()?) {
        (Some(ip), Some(port)) => SocketAddr::new(ip, port).to_string(),
        (Some(ip), None) => ip.to_string(),
        (None, Some(port)) => format!(":{port}"),
        (None, None) => return Err("expected ip, port, or both".to_owned()),
    })
}

fn port_of(authority: &str) -> Option<u16> {
    let (host, port) = authority.rsplit_once(':')?;
    // Colons inside an address in brackets do not introduce a port.
    let is_port = !host.contains(':') || host.ends_with(']');
    port.parse().ok().filter(|_| is_port)
}

/// The server name that a client would send in its handshake; clients send none for IP addresses.
fn server_name(authority: &str) -> Option<String> {
    let name = match port_of(authority) {
        Some(_) => authority.rsplit_once(':')?.0,
        None => authority,
    };
    let is_address = name.starts_with('[') || name.parse::<IpAddr>().is_ok();
    (!is_address).then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: serde_json::Value) -> Result<Question, Error> {
        let body = serde_json::from_value::<Value>(body).expect("JSON converts to a model value");
        let Value::Object(body) = body else {
            panic!("the body must be an object")
        };
        Question::read(body)
    }

    fn problems(body: serde_json::Value) -> serde_json::Value {
        read(body).expect_err("the body is invalid").to_json()["fields"].clone()
    }

    #[test]
    fn errors_of_many_wrong_fields_are_bounded() {
        let many = |count: usize, value: serde_json::Value| {
            let fields = (0..count).map(|number| (format!("x{number}"), value.clone()));
            serde_json::Value::Object(fields.collect())
        };
        let told = problems(many(80_000, json!(1)));
        assert_eq!(
            told.as_object().map(serde_json::Map::len),
            Some(MAX_REPORTED)
        );
        let told = problems(json!({ "headers": many(80_000, json!(1)) }));
        let told = told["headers"].as_object().map(serde_json::Map::len);
        assert_eq!(told, Some(MAX_REPORTED));
        let told = problems(json!({ "headers": many(1001, json!("v")) }));
        assert_eq!(told["headers"], "at most 1000 lines");
        let told = problems(json!({ "headers": { "a": vec!["v"; 1001] } }));
        assert_eq!(told["headers"], "at most 1000 lines");
        assert!(read(json!({ "headers": many(1000, json!("v")) })).is_ok());
    }

    #[test]
    fn a_question_costs_as_much_as_it_is_long() {
        let many = |size: usize, value: serde_json::Value| {
            let fields = (0..size).map(|number| (format!("x{number}"), value.clone()));
            serde_json::Value::Object(fields.collect())
        };
        testkit::cost::assert_linear(
            800,
            |size| {
                let text = |part: &str| part.repeat(size);
                let bodies = [
                    many(size, json!(1)),
                    json!({ "headers": many(size, json!("v")) }),
                    json!({ "headers": many(size, json!(1)) }),
                    json!({ "headers": { "a": vec!["v"; size] } }),
                    json!({ "url": format!("https://{}/{}?{}", text("a."), text("%2e/"), text("a=&")) }),
                    json!({ "host": text("a."), "path": text("/."), "source": text("1:") }),
                ];
                bodies.map(|body| {
                    serde_json::from_value::<Value>(body).expect("JSON converts to a model value")
                })
            },
            |bodies| {
                for body in bodies {
                    if let Value::Object(body) = body {
                        let _ = Question::read(body);
                    }
                }
            },
        );
    }

    #[test]
    fn a_url_sets_protocol_host_path_query_port_and_sni() {
        let question = read(json!({"url": "https://Shop.example:8443/a%20b?c=d&e#f"})).unwrap();
        assert_eq!(question.protocol, Protocol::Https);
        assert_eq!(question.method, "GET");
        assert_eq!(question.host.as_deref(), Some("Shop.example:8443"));
        assert_eq!(question.path, "/a%20b");
        assert_eq!(question.query.as_deref(), Some("c=d&e"));
        assert_eq!(question.port, 8443);
        assert_eq!(question.sni.as_deref(), Some("shop.example"));
        let plain = read(json!({"url": "http://a?b"})).unwrap();
        assert_eq!((plain.path.as_str(), plain.port), ("/", 80));
        assert_eq!(plain.query.as_deref(), Some("b"));
        assert_eq!(plain.sni, None);
        let stream = read(json!({"url": "tls://Shop.example:9443"})).unwrap();
        assert_eq!(stream.sni.as_deref(), Some("shop.example"));
        let stream = read(json!({"protocol": "tcp", "host": "shop.example:9443"})).unwrap();
        assert_eq!(stream.sni, None);
    }

    #[test]
    fn ip_addresses_give_no_server_name() {
        for url in [
            "https://1.2.3.4:8443/",
            "https://[::1]:8443/",
            "https://[::1]/",
        ] {
            assert_eq!(read(json!({"url": url})).unwrap().sni, None, "{url}");
        }
        let named = read(json!({"url": "https://a/", "sni": "B.example"})).unwrap();
        assert_eq!(named.sni.as_deref(), Some("b.example"));
        let none = read(json!({"url": "https://a/", "sni": ""})).unwrap();
        assert_eq!(none.sni, None);
    }

    #[test]
    fn the_host_header_overrides_the_host_of_the_url() {
        let question = read(json!({
            "url": "http://127.0.0.1:8000/",
            "headers": {"Host": "shop.example", "X": ["1", "2"]},
        }))
        .unwrap();
        assert_eq!(question.host.as_deref(), Some("shop.example"));
        assert_eq!(question.port, 8000);
        let pair = |value: &str| ("X".to_owned(), value.to_owned());
        assert_eq!(question.headers, [pair("1"), pair("2")]);
    }

    #[test]
    fn endpoints_are_texts_or_objects_with_either_part() {
        for end in [json!("10.0.0.1:9"), json!({"ip": "10.0.0.1", "port": 9})] {
            let question = read(json!({"source": end, "destination": end})).unwrap();
            assert_eq!(question.source, Some("10.0.0.1:9".parse().unwrap()));
            assert_eq!(question.destination, Some("10.0.0.1".parse().unwrap()));
            assert_eq!(question.port, 9);
        }
        let partly = read(json!({"source": "::1", "destination": {"port": 5}})).unwrap();
        assert_eq!(partly.source, Some("[::1]:0".parse().unwrap()));
        assert_eq!((partly.destination, partly.port), (None, 5));
    }

    #[test]
    fn all_errors_are_reported_by_field() {
        let told = problems(json!({
            "method": "G T", "protocol": "ftp", "host": "a/b", "path": "a", "headers": {"a b": "1", "c": 1},
            "source": "x", "destination": {"port": 70000}, "sni": 1, "route": "", "closest": -1,
            "limit": "1", "more": true,
        }));
        let told = told.as_object().unwrap();
        let names: Vec<&str> = told.keys().map(String::as_str).collect();
        let mut wanted = vec![
            "method",
            "protocol",
            "host",
            "path",
            "headers",
            "source",
            "destination",
            "sni",
            "route",
            "closest",
            "limit",
            "more",
        ];
        wanted.sort_unstable();
        let mut names = names;
        names.sort_unstable();
        assert_eq!(names, wanted);
        assert_eq!(told["headers"].as_object().unwrap().len(), 2);
        assert_eq!(
            told["destination"],
            "port: expected a number between 0 and 65535"
        );
    }

    #[test]
    fn a_path_in_place_of_a_url_is_told_with_an_example() {
        let told = |url: &str| problems(json!({ "url": url }))["url"].clone();
        let example = "not a full URL; example: http://HOST";
        assert_eq!(told("/orders"), format!("{example}/orders"));
        for url in ["orders", "", &"/a".repeat(1000)] {
            assert_eq!(told(url), format!("{example}/users"));
        }
    }

    #[test]
    fn a_url_cannot_be_combined_with_its_parts() {
        let told = problems(json!({"url": "http://a/", "path": "/b", "host": "c"}));
        assert_eq!(told["path"], "cannot be combined with `url`");
        assert_eq!(told["host"], told["path"]);
        for url in [
            "a/b",
            "ftp://a/",
            "http:///a",
            "http://a/b c",
            "http://u@a/",
        ] {
            assert!(!problems(json!({"url": url}))["url"].is_null(), "{url}");
        }
    }
}
