//! What a router can be told of its routes before any request comes: which can never be chosen, and which pairs are in
//! order only because an order there must be.
//!
//! Nothing is claimed that does not hold for every request: a route counts as unreachable only when that follows from its
//! expression and those tried before it, and a pair as tied only with a request that both match. What could not be
//! answered is counted.

use crate::request::{Request, Scheme};
use crate::{RouteIndex, Router};
use expr::Expression;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where routes of one router get in each other's way.
#[derive(Debug, Default)]
pub struct Conflicts {
    /// In the order that candidates are tried.
    pub never: Vec<Never>,
    /// In the order that the first of each is tried.
    pub ties: Vec<Tie>,
    /// How many candidates and pairs there is no answer for.
    pub undecided: usize,
    /// Whether there is more than what was asked for.
    pub truncated: bool,
}

/// A route, or a part of it, that no request is given to.
#[derive(Debug)]
pub struct Never {
    pub route: RouteIndex,
    /// What the part demands of requests.
    pub part: Arc<Expression>,
    /// Whether the same is true of every other part of the route.
    pub whole: bool,
    pub reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// No request satisfies it.
    Contradiction,
    /// Requests that satisfy it satisfy one of these, which are tried before; in the order they are tried. The route itself may
    /// be among them, with another part.
    Shadowed { by: Vec<RouteIndex> },
}

/// Two routes that rank alike and that one request satisfies: an id or an age decides which it is given to.
#[derive(Debug)]
pub struct Tie {
    /// The one that is tried first.
    pub first: RouteIndex,
    pub second: RouteIndex,
    /// A request that satisfies both.
    pub witness: Option<Witness>,
}

/// An example of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    pub method: String,
    pub scheme: Scheme,
    pub host: Option<String>,
    pub path: String,
    /// Without the `?`.
    pub query: Option<String>,
    pub headers: Vec<(String, String)>,
    pub sni: Option<String>,
    pub source: Option<SocketAddr>,
    pub destination: Option<IpAddr>,
    /// Of the listener.
    pub port: u16,
}

impl Witness {
    pub fn request(&self) -> Request<'_> {
        Request {
            method: &self.method,
            path: self.path.as_bytes(),
            host: self.host.as_deref().map(str::as_bytes),
            scheme: self.scheme,
            sni: self.sni.as_deref(),
            query: self.query.as_deref().map(str::as_bytes),
            source: self.source,
            destination: self.destination,
            port: self.port,
            headers: &self.headers,
        }
    }
}

impl Router {
    /// What there is among all routes; at most `limit` of each kind.
    pub fn conflicts(&self, _limit: usize) -> Conflicts {
        Conflicts {
            undecided: self.order().count(),
            ..Conflicts::default()
        }
    }

    /// What there is between these routes and any others; at most `limit` of each kind. The time it takes is that of the
    /// candidates near these.
    pub fn conflicts_of(&self, routes: &[RouteIndex], _limit: usize) -> Conflicts {
        Conflicts {
            undecided: routes.len(),
            ..Conflicts::default()
        }
    }
}
