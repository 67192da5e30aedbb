//! Creates the candidates of the `traditional` flavor: one per path of a route, with separate candidates for hosts that
//! have a port.
//!
//! Before it searches all candidates of a category, Kong searches a smaller set, which depends on the attributes that
//! match the request. If it is the set for `host:port`, its candidates also rank first here. The other sets change
//! Kong's result only in collisions, for example if several regexes match one path (Kong/kong#14839). This router does
//! not reproduce these cases.

use crate::candidate::{Candidate, Precedence, Problem, Regexes, RouteIndex, sni_name};
use crate::host::Host;
use crate::priority::Traditional as Priority;
use compact_str::CompactString;
use expr::{
    Comparison, Dialect, Expression, NumberField, Quantifier, TextField, TextPredicate, TextTest,
    Transform,
};
use model::entities::Route;
use model::uri::{Slashes, normalize};
use std::sync::Arc;

pub(crate) struct Traditional<'r> {
    pub(crate) regexes: &'r Regexes,
}

impl Traditional<'_> {
    /// Calls `each` with every candidate of a route, or with the reason why the candidate cannot be created.
    pub(crate) fn compile(
        &self,
        index: RouteIndex,
        route: &Route,
        each: &mut dyn FnMut(Result<Candidate, Problem>),
    ) {
        let paths: Vec<_> = match &route.paths[..] {
            [] => vec![None],
            paths => paths.iter().map(|path| Some(path.as_str())).collect(),
        };
        let headers = counted_headers(route).count();
        let mut part = 0;
        for (hosts, with_port) in split_hosts(route) {
            for &path in &paths {
                let priority = Priority::new(route, path, headers, with_port);
                let expression = self.expression(route, &hosts, path);
                each(expression.map(|expression| {
                    let place = Precedence::Traditional(Arc::new(priority), route.id);
                    Candidate::new((index, route), (place, part), expression)
                }));
                part += 1;
            }
        }
    }

    fn expression(
        &self,
        route: &Route,
        hosts: &[&str],
        path: Option<&str>,
    ) -> Result<Expression, Problem> {
        let mut parts = Vec::new();
        if !hosts.is_empty() {
            parts.push(any(hosts.iter().map(|host| host_is(host))));
        }
        for (name, values) in counted_headers(route) {
            parts.push(self.header(name, values)?);
        }
        if let Some(path) = path {
            parts.push(self.path(path)?);
        }
        if !route.methods.is_empty() {
            let methods = route.methods.iter();
            parts.push(any(methods.map(|method| {
                let method = method.to_ascii_uppercase();
                equals(TextField::Method, &method)
            })));
        }
        if !route.snis.is_empty() {
            parts.push(sni_is_one_of(route));
        }
        if parts.is_empty() {
            return Err(Problem::NoAttributes);
        }
        Ok(Expression::all(parts))
    }

    fn path(&self, path: &str) -> Result<Expression, Problem> {
        let test = match path.strip_prefix('~') {
            Some(pattern) => self.regex(&format!(r"\A(?:{pattern})"))?,
            None => {
                let path = normalize(path.as_bytes(), Slashes::Merge);
                TextTest::StartsWith(String::from_utf8_lossy(&path).into())
            }
        };
        Ok(Expression::text(TextField::Path, test))
    }

    /// Returns the condition on one header. Only a list of exactly one value may contain a regex.
    fn header(&self, name: &str, values: &[CompactString]) -> Result<Expression, Problem> {
        let one_of = |test| {
            let field = TextField::Header(name.to_ascii_lowercase().into());
            Expression::from(TextPredicate {
                field,
                quantifier: Quantifier::Any,
                transform: Transform::LowerAscii,
                test,
            })
        };
        if let [only] = values
            && let Some(pattern) = only.strip_prefix("~*")
        {
            return Ok(one_of(self.regex(pattern)?));
        }
        let values = values.iter().map(|value| value.to_ascii_lowercase());
        Ok(any(
            values.map(|value| one_of(TextTest::Equals(value.into())))
        ))
    }

    fn regex(&self, pattern: &str) -> Result<TextTest, Problem> {
        self.regexes.test(pattern, Dialect::Pcre)
    }
}

/// Splits the hosts of a route into plain hosts with a port and all others, because Kong searches the first group
/// first. Returns one empty list if the route has no hosts.
fn split_hosts(route: &Route) -> Vec<(Vec<&str>, bool)> {
    let has_port = |host: &&str| !host.contains('*') && Host::parse(host.as_bytes()).port.is_some();
    let hosts = route.hosts.iter().map(|host| host.as_str());
    let (with_port, others): (Vec<_>, Vec<_>) = hosts.partition(has_port);
    let mut split = Vec::new();
    if !with_port.is_empty() {
        split.push((with_port, true));
    }
    if !others.is_empty() || split.is_empty() {
        split.push((others, false));
    }
    split
}

/// Returns the headers that are matched. `host` is excluded because hosts are an attribute of their own.
fn counted_headers(route: &Route) -> impl Iterator<Item = &(CompactString, Vec<CompactString>)> {
    route
        .headers
        .iter()
        .filter(|(name, _)| !name.eq_ignore_ascii_case("host"))
}

/// Returns the condition on one host. A plain host is compared with the header as it was sent and with the host in it.
/// Kong turns a wildcard into a regex that it searches in `host:port`; this expression matches the same hosts.
fn host_is(host: &str) -> Expression {
    if !host.contains('*') {
        return plain_host_is(host);
    }
    let parsed = Host::parse(host.as_bytes());
    let name = &host[..parsed.name.len()];
    let mut parts = Vec::new();
    if let Some(end) = name.strip_prefix('*') {
        parts.push(wildcard(TextTest::EndsWith(end.into())));
        // The asterisk must match at least one character.
        parts.push(wildcard(TextTest::Differs(end.into())));
    } else {
        let start = name.trim_end_matches('*');
        parts.push(wildcard(TextTest::StartsWith(start.into())));
        // The asterisk must match at least one character of `host:port`. If the wildcard has no port, it may match only
        // the port of the request and the colon before it.
        if parsed.port.is_some() {
            parts.push(wildcard(TextTest::Differs(start.into())));
        }
    }
    if let Some(port) = parsed.port {
        let field = NumberField::DestinationPort;
        parts.push(Expression::number(field, Comparison::Equal, port));
    }
    Expression::all(parts)
}

fn plain_host_is(host: &str) -> Expression {
    // If a header equals a host without port and brackets, the host in the header is equal too.
    let ordinary = !host.contains([':', '[']);
    let name = equals(TextField::Host, host);
    if ordinary {
        return name;
    }
    Expression::any(vec![equals(TextField::SentHost, host), name])
}

fn wildcard(test: TextTest) -> Expression {
    Expression::text(TextField::WildcardHost, test)
}

/// Returns the condition on the SNIs. Requests without TLS always pass.
fn sni_is_one_of(route: &Route) -> Expression {
    let without_tls = Expression::text(TextField::Protocol, TextTest::Differs("https".into()));
    let snis = route.snis.iter();
    let snis = snis.map(|sni| equals(TextField::Sni, sni_name(sni)));
    Expression::any(std::iter::once(without_tls).chain(snis).collect())
}

fn equals(field: TextField, text: &str) -> Expression {
    Expression::text(field, TextTest::Equals(text.into()))
}

fn any(parts: impl Iterator<Item = Expression>) -> Expression {
    Expression::any(parts.collect())
}
