//! Creates the candidates of the `traditional_compatible` flavor. A route becomes one expression, or several if its
//! paths have different priorities.

use crate::Calculation;
use crate::candidate::{Candidate, Precedence, Problem, Regexes, RouteIndex, sni_name};
use crate::ends::{self, End, Side};
use crate::host;
use crate::priority::Weight;
use expr::{
    Comparison, Dialect, Expression, NumberField, Quantifier, TextField, TextPredicate, TextTest,
    Transform,
};
use model::entities::{Protocol, Route};
use std::cmp::Reverse;
use uuid::Uuid;

/// Kong's UUID namespace for the parts of a split route. The resulting ids order the parts.
const SPLIT_NAMESPACE: Uuid = Uuid::from_u128(0x7f14_5bf9_0dce_4f91_98eb_debb_ce4b_9f6b);

pub(crate) struct Compatible<'r> {
    pub(crate) calculation: Calculation,
    /// A condition on the protocol that is added to every candidate.
    pub(crate) protocols: Option<Expression>,
    pub(crate) regexes: &'r Regexes,
}

impl Compatible<'_> {
    /// Calls `each` with every candidate of a route, or with the reason why the candidate cannot be created.
    pub(crate) fn compile(
        &self,
        index: RouteIndex,
        route: &Route,
        each: &mut dyn FnMut(Result<Candidate, Problem>),
    ) {
        let groups = group_paths(route);
        for (number, paths) in (0..).zip(&groups) {
            let id = match groups.len() {
                1 => route.id.0,
                _ => split_id(route.id.0, number as usize + 1),
            };
            let word = Weight::new(route, paths).word(self.calculation);
            let place = Precedence::Compatible(Reverse(word), Reverse(id));
            let expression = self.expression(route, paths);
            each(
                expression
                    .map(|expression| Candidate::new((index, route), (place, number), expression)),
            );
        }
    }

    /// Returns the condition of a candidate. Its parts have the same order as in Kong, because the order decides which
    /// of several regexes provides the captures.
    fn expression(&self, route: &Route, paths: &[&str]) -> Result<Expression, Problem> {
        let mut parts = Vec::new();
        if !route.snis.is_empty() {
            parts.push(self.snis(route));
        }
        let (sources, destinations) = (&route.sources, &route.destinations);
        for (entries, side) in [(sources, Side::Source), (destinations, Side::Destination)] {
            if !entries.is_empty() {
                parts.push(ends::any_of(&End::read_all(entries)?, side));
            }
        }
        if !route.methods.is_empty() {
            let methods = route.methods.iter();
            parts.push(any(methods.map(|method| {
                Expression::text(TextField::Method, TextTest::Equals(method.as_str().into()))
            })));
        }
        if !route.hosts.is_empty() {
            parts.push(any(route.hosts.iter().map(|host| host_is(host))));
        }
        if !paths.is_empty() {
            let paths: Result<Vec<_>, _> = paths.iter().map(|path| self.path(path)).collect();
            parts.push(Expression::any(paths?));
        }
        for (name, values) in &route.headers {
            let values: Result<Vec<_>, _> = values
                .iter()
                .map(|value| self.header(name, value))
                .collect();
            parts.push(Expression::any(values?));
        }
        if parts.is_empty() {
            return Err(Problem::NoAttributes);
        }
        parts.extend(self.protocols.clone());
        Ok(Expression::all(parts))
    }

    /// Returns the condition on the SNIs. A request without TLS passes, so that an https route can answer it with a
    /// redirect. The exception is `Strict`: such a request then passes only if the route accepts unencrypted requests.
    fn snis(&self, route: &Route) -> Expression {
        let snis = any(route.snis.iter().map(|sni| sni_is(sni_name(sni))));
        let plain = [Protocol::Http, Protocol::Grpc];
        let serves_plain = route.protocols.iter().any(|own| plain.contains(own));
        if self.calculation == Calculation::Strict && !serves_plain {
            return snis;
        }
        let without_tls = Expression::text(TextField::Protocol, TextTest::Differs("https".into()));
        Expression::any(vec![without_tls, snis])
    }

    fn path(&self, path: &str) -> Result<Expression, Problem> {
        let test = match path.strip_prefix('~') {
            Some(pattern) => self.regex(&format!("^{pattern}"))?,
            None => TextTest::StartsWith(path.into()),
        };
        Ok(Expression::text(TextField::Path, test))
    }

    fn header(&self, name: &str, value: &str) -> Result<Expression, Problem> {
        let value = value.to_ascii_lowercase();
        let test = match value.strip_prefix("~*") {
            Some(pattern) => self.regex(pattern)?,
            None => TextTest::Equals(value.into()),
        };
        Ok(TextPredicate {
            field: TextField::Header(name.to_ascii_lowercase().replace('-', "_").into()),
            quantifier: Quantifier::Any,
            transform: Transform::Lower,
            test,
        }
        .into())
    }

    fn regex(&self, pattern: &str) -> Result<TextTest, Problem> {
        self.regexes.test(pattern, Dialect::Rust)
    }
}

/// Groups paths of equal priority: all regexes, and plain paths by length. Groups are in the order of first appearance.
/// Returns one empty group if the route has no paths.
fn group_paths(route: &Route) -> Vec<Vec<&str>> {
    let mut groups: Vec<Vec<&str>> = Vec::new();
    let rank = |path: &str| (!path.starts_with('~')).then_some(path.len());
    for path in &route.paths {
        let path = path.as_str();
        let group = groups
            .iter_mut()
            .find(|group| group.first().is_some_and(|first| rank(first) == rank(path)));
        match group {
            Some(group) => group.push(path),
            None => groups.push(vec![path]),
        }
    }
    if groups.is_empty() {
        groups.push(Vec::new());
    }
    groups
}

fn split_id(route: Uuid, number: usize) -> Uuid {
    Uuid::new_v5(&SPLIT_NAMESPACE, format!("{route}#{number}").as_bytes())
}

fn sni_is(sni: &str) -> Expression {
    Expression::text(TextField::Sni, wildcard_test(sni))
}

fn host_is(host: &str) -> Expression {
    let (name, port) = host::split(host.as_bytes());
    let name = Expression::text(TextField::Host, wildcard_test(&host[..name.len()]));
    let Some(port) = port else {
        return name;
    };
    let port = Expression::number(NumberField::DestinationPort, Comparison::Equal, port);
    Expression::all(vec![name, port])
}

/// Returns the test for a name that may begin or end with an asterisk. The dot next to the asterisk must match too.
pub(crate) fn wildcard_test(name: &str) -> TextTest {
    if let Some(end) = name.strip_prefix('*') {
        TextTest::EndsWith(end.into())
    } else if let Some(start) = name.strip_suffix('*') {
        TextTest::StartsWith(start.into())
    } else {
        TextTest::Equals(name.into())
    }
}

fn any(parts: impl Iterator<Item = Expression>) -> Expression {
    Expression::any(parts.collect())
}
