//! Rule sets for tests and benchmarks of the router: real ones from the route tables of public APIs, generated ones of
//! any size, and adversarial ones. Their rules are texts, as an operator would write them. Tests and benchmarks turn
//! these texts into routes of any router flavor, a configuration, or expressions for another router.

mod apis;
mod hostile;
mod sets;

pub use apis::{Api, Endpoint, Part, Template};
pub use hostile::{Hostile, hostile};
pub use sets::Kind;

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A route, given either by attributes or by an expression.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    pub methods: Vec<&'static str>,
    pub hosts: Vec<String>,
    /// A path prefix, or a regex after `~`, as in Kong's routes.
    pub path: Option<String>,
    pub headers: Vec<(String, String)>,
    /// The rule's expression. If it is set, the attributes are empty.
    pub expression: Option<String>,
    /// Priority of the regex or of the expression. Higher priorities are tried first.
    pub priority: u16,
}

/// A sample request for a rule set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub method: &'static str,
    pub host: String,
    pub path: String,
    /// All headers, including `Host`.
    pub headers: Vec<(String, String)>,
    pub source: SocketAddr,
    pub destination: IpAddr,
    /// Port of the listener.
    pub port: u16,
}

/// Rules, and sample requests spread over all rules.
#[derive(Debug, Clone)]
pub struct RuleSet {
    pub rules: Vec<Rule>,
    /// Requests that match, each with the index of its rule.
    pub hits: Vec<(Sample, usize)>,
    /// Requests that match no rule.
    pub misses: Vec<Sample>,
}

impl Rule {
    /// Returns the rule in Kong's expression language: its own expression, or the equivalent of its attributes.
    pub fn text(&self) -> String {
        if let Some(expression) = &self.expression {
            return expression.clone();
        }
        let mut parts = Vec::new();
        parts.extend(one_of("http.method ==", self.methods.iter().copied()));
        let hosts = self.hosts.iter().map(|host| match host.strip_prefix('*') {
            Some(end) => format!(r#"http.host =^ "{end}""#),
            None => match host.strip_suffix('*') {
                Some(start) => format!(r#"http.host ^= "{start}""#),
                None => format!(r#"http.host == "{host}""#),
            },
        });
        parts.extend(any(hosts.collect()));
        parts.extend(self.path.iter().map(|path| match path.strip_prefix('~') {
            Some(regex) => format!(r##"http.path ~ r#"^{regex}"#"##),
            None => format!(r#"http.path ^= "{path}""#),
        }));
        for (name, value) in &self.headers {
            let (name, value) = (
                name.to_ascii_lowercase().replace('-', "_"),
                value.to_ascii_lowercase(),
            );
            parts.push(format!(r#"any(lower(http.headers.{name})) == "{value}""#));
        }
        parts.join(" && ")
    }
}

impl Sample {
    /// Creates a `GET` request with the headers that curl sends and an API key.
    pub fn get(path: impl Into<String>) -> Self {
        const HOST: &str = "gateway.test:8000";
        let headers = [
            ("Host", HOST),
            ("User-Agent", "curl/8.5.0"),
            ("Accept", "*/*"),
            ("apikey", "0123456789abcdef0123456789abcdef"),
        ];
        Self {
            method: "GET",
            host: HOST.to_owned(),
            path: path.into(),
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            source: SocketAddr::from(([192, 0, 2, 7], 50_123)),
            destination: IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
            port: 8000,
        }
    }

    pub fn with_method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    pub fn with_host(mut self, host: String) -> Self {
        for (name, value) in &mut self.headers {
            if name == "Host" {
                value.clone_from(&host);
            }
        }
        self.host = host;
        self
    }

    pub fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

/// Returns `(field op "a" || field op "b")`, or `None` if there are no values.
fn one_of<'v>(test: &str, values: impl Iterator<Item = &'v str>) -> Option<String> {
    any(values.map(|value| format!(r#"{test} "{value}""#)).collect())
}

/// Joins alternatives with `||`, in parentheses if there are several.
fn any(parts: Vec<String>) -> Option<String> {
    match &parts[..] {
        [] => None,
        [only] => Some(only.clone()),
        several => Some(format!("({})", several.join(" || "))),
    }
}

/// Returns `count` of the numbers below `of`, spread over the whole range and not in order.
fn spread(count: usize, of: usize) -> impl Iterator<Item = usize> {
    // The prime divides no `of` in use, so every number comes once before a number comes twice.
    (0..count).map(move |number| number * 7919 % of)
}

/// Repeats `part` to a text of exactly this many bytes.
fn repeated(part: &str, bytes: usize) -> String {
    let mut text = part.repeat(bytes.div_ceil(part.len()));
    text.truncate(bytes);
    text
}

/// Returns `kind-number`, such as `v-7`.
fn named(kind: &str, number: usize) -> String {
    let mut text = String::with_capacity(kind.len() + 8);
    write!(text, "{kind}-{number}").expect("writing to a String cannot fail");
    text
}
