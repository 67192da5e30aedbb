//! Creates the candidates of the `expressions` flavor: routes with an expression and a priority, and classic routes.
//! Both also check the protocol of the request. Source: kong/router/expressions.lua, kong/router/transform.lua.

use crate::Calculation;
use crate::candidate::{Candidate, Precedence, Problem, Regexes, RouteIndex};
use crate::compatible::Compatible;
use expr::{Dialect, Expression, Regex, RegexError, Subsystem, TextField, TextTest};
use model::entities::{Protocol, Route};
use std::cmp::Reverse;

/// The lowest priority word of a route with an expression. It is above the words of all classic routes.
pub(crate) const EXPRESSION: u64 = 0xFF << 56;

pub(crate) struct Expressions<'r> {
    pub(crate) calculation: Calculation,
    pub(crate) regexes: &'r Regexes,
}

impl Expressions<'_> {
    /// Calls `each` with every candidate of a route, or with the reason why there is none.
    pub(crate) fn compile(
        &self,
        index: RouteIndex,
        route: &Route,
        each: &mut dyn FnMut(Result<Candidate, Problem>),
    ) {
        let Some(text) = &route.expression else {
            let classic = Compatible {
                calculation: self.calculation,
                protocols: serves(route, Subsystem::Http),
                regexes: self.regexes,
            };
            return classic.compile(index, route, each);
        };
        let mut regex = |pattern: &str| self.regexes.get(pattern, Dialect::Rust);
        let expression = read(route, text, Subsystem::Http, &mut regex);
        let place = place(route);
        each(expression.map(|expression| Candidate::new((index, route), (place, 0), expression)));
    }
}

/// Returns the position of a route with an expression.
pub(crate) fn place(route: &Route) -> Precedence {
    Precedence::Compatible(Reverse(word(route)), Reverse(route.id.0))
}

/// Returns the priority word of a route with an expression.
pub(crate) fn word(route: &Route) -> u64 {
    EXPRESSION | route.priority.unwrap_or(0)
}

/// Reads the expression of a route and adds the condition on its protocols.
pub(crate) fn read(
    route: &Route,
    text: &str,
    subsystem: Subsystem,
    regexes: &mut dyn FnMut(&str) -> Result<Regex, RegexError>,
) -> Result<Expression, Problem> {
    let modernized = expr::modernized(text);
    let text = modernized.as_deref().unwrap_or(text);
    let expression = expr::read(text, subsystem, regexes)?;
    Ok(match serves(route, subsystem) {
        None => expression,
        Some(protocols) => match expression {
            Expression::All(parts) => {
                let mut parts = parts.into_vec();
                parts.push(protocols);
                Expression::all(parts)
            }
            other => Expression::all(vec![other, protocols]),
        },
    })
}

/// Returns the condition that a request has a protocol of the route, or `None` if every request of the subsystem
/// passes. As in Kong, every request also passes if the only protocol of the route is `https`, `tls` or
/// `tls_passthrough`. An `https` route can then answer unencrypted requests with a redirect.
pub(crate) fn serves(route: &Route, subsystem: Subsystem) -> Option<Expression> {
    if let [Protocol::Https | Protocol::Tls | Protocol::TlsPassthrough] = route.protocols[..] {
        return None;
    }
    let possible = protocols(subsystem);
    let is_served = |name: &&&str| {
        let mut protocols = route.protocols.iter();
        protocols.any(|&protocol| name_of(protocol) == **name)
    };
    let served: Vec<_> = possible.iter().filter(is_served).collect();
    let is = |name: &&str| Expression::text(TextField::Protocol, TextTest::Equals((*name).into()));
    (served.len() < possible.len()).then(|| Expression::any(served.into_iter().map(is).collect()))
}

/// Returns the possible values of `net.protocol`.
pub(crate) fn protocols(subsystem: Subsystem) -> &'static [&'static str] {
    match subsystem {
        Subsystem::Http => &["http", "https"],
        Subsystem::Stream => &["tcp", "tls", "udp"],
    }
}

/// Returns the value of `net.protocol` for a protocol.
fn name_of(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http | Protocol::Grpc => "http",
        Protocol::Https | Protocol::Grpcs => "https",
        Protocol::Tcp | Protocol::TlsPassthrough => "tcp",
        Protocol::Tls => "tls",
        Protocol::Udp => "udp",
    }
}
