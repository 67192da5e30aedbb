//! Routes and routers for tests.

use crate::candidate::Candidate;
use crate::{Calculation, Conflicts, Flavor, Options, RouteIndex, Router, Scheme, Search};
use model::entities::{Route, RouteId};
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use uuid::Uuid;

pub(super) const ALL_OPTIONS: [Options; 3] = [
    options(Flavor::Traditional, Calculation::Original),
    options(Flavor::TraditionalCompatible, Calculation::Original),
    options(Flavor::TraditionalCompatible, Calculation::Strict),
];

const fn options(flavor: Flavor, calculation: Calculation) -> Options {
    Options {
        flavor,
        calculation,
        max_headers: 100,
        max_arguments: 100,
    }
}

/// Returns a route without attributes.
pub(super) fn route(number: u32) -> Route {
    Route::blank(RouteId(Uuid::from_u128(u128::from(number))))
}

/// Builds a router; panics if a route is unusable.
pub(super) fn router(routes: &[Route], options: Options) -> Router {
    let (router, errors) = Router::build(numbered(routes), options, None);
    assert!(errors.is_empty(), "{errors:?}");
    router
}

pub(super) fn numbered(routes: &[Route]) -> impl Iterator<Item = (RouteIndex, &Route)> {
    (0..).map(RouteIndex).zip(routes)
}

/// Returns a search that is never cancelled.
pub(super) fn search(limit: usize) -> Search<'static> {
    Search::new(limit, &|| false)
}

/// A request that owns its data.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) host: Option<String>,
    pub(super) scheme: Scheme,
    pub(super) sni: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) query: Option<String>,
    pub(super) source: Option<SocketAddr>,
    pub(super) destination: Option<IpAddr>,
}

impl Sample {
    pub(super) fn get(path: &str) -> Self {
        Self {
            method: "GET".to_owned(),
            path: path.to_owned(),
            host: None,
            scheme: Scheme::Http,
            sni: None,
            headers: Vec::new(),
            query: None,
            source: None,
            destination: None,
        }
    }

    pub(super) fn with_host(mut self, host: &str) -> Self {
        self.host = Some(host.to_owned());
        self
    }

    pub(super) fn request(&self) -> crate::Request<'_> {
        crate::Request {
            method: &self.method,
            path: self.path.as_bytes(),
            host: self.host.as_deref().map(str::as_bytes),
            scheme: self.scheme,
            sni: self.sni.as_deref(),
            query: self.query.as_deref().map(str::as_bytes),
            source: self.source,
            destination: self.destination,
            port: match self.scheme {
                Scheme::Http => 80,
                Scheme::Https => 443,
            },
            headers: &self.headers,
        }
    }
}

/// Takes candidates that match the same request or stream. Asserts that each pair of equal rank is reported as a tie,
/// unless the search could not decide some cases. Returns the number of such pairs.
pub(super) fn assert_ties_are_reported<W>(
    matching: &[&Candidate],
    conflicts: &Conflicts<W>,
    what: &dyn Debug,
) -> usize {
    let mut pairs = 0;
    for (at, first) in matching.iter().enumerate() {
        for second in &matching[at + 1..] {
            if first.route == second.route || !first.place.ranks_as(&second.place) {
                continue;
            }
            pairs += 1;
            let known = conflicts.ties.iter().any(|tie| {
                let pair = [tie.first, tie.second];
                pair.contains(&first.route) && pair.contains(&second.route)
            });
            assert!(
                known || conflicts.undecided > 0,
                "{what:?} {:?} {:?}",
                first.expression,
                second.expression
            );
        }
    }
    pairs
}
