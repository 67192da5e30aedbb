//! Finds conflicts between the routes of the live router. The results have the types of the Admin API.

use super::explain::{http_route, named, named_stream, stream_route};
use admin::explain::{
    Among, Cause, Conflicts, Example, Named, Never, Protocol, Search, Subsystem, Tie, unknown,
};
use model::Error;
use proxy::snapshot::Snapshot;
use router::{RouteIndex, StreamWitness, Witness};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Searches for conflicts, first between HTTP routes, then between stream routes. The search stops when `is_cancelled`
/// returns true. Both parts share the limits on results and on steps.
pub(super) fn of(
    snapshot: &Snapshot,
    search: &Search,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Conflicts, Error> {
    let bounds = router::Search::new(search.size, is_cancelled);
    let (requests, streams) = (&snapshot.router, snapshot.stream_router());
    let (of_requests, of_streams) = match chosen(snapshot, &search.among)? {
        None => (requests.conflicts(&bounds), streams.conflicts(&bounds)),
        Some(chosen) => (
            requests.conflicts_of(&chosen.of_requests, &bounds),
            streams.conflicts_of(&chosen.of_streams, &bounds),
        ),
    };
    let mut all = Conflicts {
        revision: snapshot.revision,
        complete: true,
        ..Conflicts::default()
    };
    let name = |index| named(snapshot.route(index));
    add(&mut all, of_requests, Subsystem::Http, &name, example);
    let name = |index| named_stream(snapshot, index);
    add(
        &mut all,
        of_streams,
        Subsystem::Stream,
        &name,
        stream_example,
    );
    Ok(all)
}

/// The routes whose conflicts are searched for.
struct Chosen {
    of_requests: Vec<RouteIndex>,
    of_streams: Vec<RouteIndex>,
}

/// Returns the chosen routes, or `None` to search for conflicts of all routes.
fn chosen(snapshot: &Snapshot, among: &Among) -> Result<Option<Chosen>, Error> {
    Ok(match among {
        Among::All => None,
        Among::Route(key) => match (http_route(snapshot, key), stream_route(snapshot, key)) {
            (None, None) => return Err(unknown("route", key)),
            (of_requests, of_streams) => Some(Chosen {
                of_requests: of_requests.into_iter().collect(),
                of_streams: of_streams.into_iter().collect(),
            }),
        },
        Among::Routes(ids) => {
            let of_requests = snapshot.indexed_routes();
            let of_requests = of_requests.filter(|(_, route)| ids.contains(&route.id.0));
            let of_streams = (0..).map(RouteIndex).zip(snapshot.stream_routes());
            let of_streams = of_streams.filter(|(_, route)| ids.contains(&route.id.0));
            Some(Chosen {
                of_requests: of_requests.map(|(index, _)| index).collect(),
                of_streams: of_streams.map(|(index, _)| index).collect(),
            })
        }
    })
}

/// Converts the conflicts that one router has found, and adds them to the result.
fn add<W>(
    all: &mut Conflicts,
    found: router::Conflicts<W>,
    subsystem: Subsystem,
    name: &dyn Fn(RouteIndex) -> Named,
    example: fn(W) -> Example,
) {
    let never = found.never.into_iter().map(|never| {
        let (reason, by) = match never.reason {
            router::Reason::Contradiction => (Cause::Contradiction, Vec::new()),
            router::Reason::Shadowed { by } => (Cause::Shadowed, by),
        };
        Never {
            route: name(never.route),
            subsystem,
            expression: never.part.to_string(),
            whole: never.whole,
            reason,
            by: by.into_iter().map(name).collect(),
        }
    });
    let ties = found.ties.into_iter().map(|tie| Tie {
        first: name(tie.first),
        second: name(tie.second),
        subsystem,
        example: example(tie.witness),
    });
    all.never.extend(never);
    all.ties.extend(ties);
    all.undecided += found.undecided;
    all.truncated |= found.truncated;
    all.complete &= found.complete;
}

fn stream_example(witness: StreamWitness) -> Example {
    let protocol = match &witness.sni {
        _ if witness.datagrams => Protocol::Udp,
        Some(_) => Protocol::Tls,
        None => Protocol::Tcp,
    };
    Example {
        protocol: protocol.to_string(),
        method: None,
        path: None,
        host: None,
        headers: BTreeMap::new(),
        sni: witness.sni.unwrap_or_default(),
        source: Some(witness.source.to_string()),
        destination: witness.destination.to_string(),
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
        method: Some(witness.method),
        path: Some(match witness.query {
            Some(query) => format!("{}?{query}", witness.path),
            None => witness.path,
        }),
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
