//! How routes get in each other's way: from the live router to the words of the Admin API.

use super::explain::{http_route, named};
use admin::explain::{Among, Cause, Conflicts, Example, Never, Search, Tie};
use model::Error;
use proxy::snapshot::Snapshot;
use router::{Extent, RouteIndex, Witness};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Looks for conflicts until `is_cancelled` says yes.
pub(super) fn of(
    snapshot: &Snapshot,
    search: &Search,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Conflicts, Error> {
    let router = &snapshot.router;
    let extent = Extent {
        limit: search.size,
        is_cancelled,
    };
    let found = match &search.among {
        Among::All => router.conflicts(extent),
        Among::Route(key) => router.conflicts_of(&[http_route(snapshot, key)?], extent),
        Among::Routes(ids) => {
            let served = snapshot.indexed_routes();
            let served = served.filter(|(_, route)| ids.contains(&route.id.0));
            let indexes: Vec<RouteIndex> = served.map(|(index, _)| index).collect();
            router.conflicts_of(&indexes, extent)
        }
    };
    Ok(describe(snapshot, found))
}

fn describe(snapshot: &Snapshot, found: router::Conflicts) -> Conflicts {
    let name = |index: RouteIndex| named(snapshot.route(index));
    let never = found.never.into_iter().map(|never| {
        let (reason, by) = match never.reason {
            router::Reason::Contradiction => (Cause::Contradiction, Vec::new()),
            router::Reason::Shadowed { by } => (Cause::Shadowed, by),
        };
        Never {
            route: name(never.route),
            expression: never.part.to_string(),
            whole: never.whole,
            reason,
            by: by.into_iter().map(name).collect(),
        }
    });
    let ties = found.ties.into_iter().map(|tie| Tie {
        first: name(tie.first),
        second: name(tie.second),
        example: tie.witness.map(example),
    });
    Conflicts {
        revision: snapshot.revision,
        never: never.collect(),
        ties: ties.collect(),
        undecided: found.undecided,
        truncated: found.truncated,
        complete: found.complete,
    }
}

fn example(witness: Witness) -> Example {
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in witness.headers {
        headers.entry(name).or_default().push(value);
    }
    Example {
        protocol: match witness.scheme {
            router::Scheme::Http => "http".to_owned(),
            router::Scheme::Https => "https".to_owned(),
        },
        method: witness.method,
        path: match witness.query {
            Some(query) => format!("{}?{query}", witness.path),
            None => witness.path,
        },
        host: witness.host,
        headers,
        sni: witness.sni.unwrap_or_default(),
        source: witness.source.map(|source| source.to_string()),
        destination: match witness.destination {
            Some(address) => SocketAddr::new(address, witness.port).to_string(),
            None => format!(":{}", witness.port),
        },
    }
}
