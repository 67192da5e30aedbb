//! `GET /router/conflicts`: routes that no request or stream can get, and pairs of routes whose order depends only on
//! ids or creation times.

use super::Named;
use crate::proposal::Preview;
use crate::request::Call;
use crate::respond::{ApiResult, Failure, json_bytes};
use axum::http::StatusCode;
use model::{Error, Object, Value};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use uuid::Uuid;

/// A search for conflicts.
#[derive(Debug, Clone)]
pub struct Search {
    pub among: Among,
    /// Maximum number of results of each kind.
    pub size: usize,
    /// The compiled configuration of a dry run. If it is empty, the live configuration is searched.
    pub preview: Preview,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Among {
    All,
    /// Only conflicts of the route with this id or name.
    Route(String),
    /// Only conflicts of the routes with these ids. Ids of routes that are not in the router are ignored.
    Routes(Vec<Uuid>),
}

#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Conflicts {
    pub revision: u64,
    pub never: Vec<Never>,
    pub ties: Vec<Tie>,
    /// Number of candidates and pairs that could not be decided.
    pub undecided: usize,
    /// Whether there are more results than requested, or not all pairs were checked because they are too many.
    pub truncated: bool,
    /// Whether all routes were compared. If not, the search has reached its step limit, and there may be more
    /// conflicts.
    pub complete: bool,
}

/// A route, or a part of it, that no request or stream gets.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Never {
    pub route: Named,
    pub subsystem: Subsystem,
    /// The conditions of the part, in the expression language.
    pub expression: String,
    /// Whether this holds for the whole route.
    pub whole: bool,
    pub reason: Cause,
    /// The routes that get its requests instead, in the order in which they are tried.
    pub by: Vec<Named>,
}

/// The kind of traffic that routes match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subsystem {
    /// HTTP requests.
    Http,
    /// TCP connections and UDP sessions.
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No request or stream can match it.
    Contradiction,
    /// Every match also matches a route that is tried before.
    Shadowed,
}

/// Two routes of equal priority that can both match the same request or stream.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Tie {
    /// The route that is tried first.
    pub first: Named,
    pub second: Named,
    pub subsystem: Subsystem,
    /// A request or stream that both match, in the format of `POST /router/explain`.
    pub example: Example,
}

/// A request or a stream.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Example {
    pub protocol: String,
    /// The method of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path of a request, with its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Vec<String>>,
    /// The server name; empty if the client sends none.
    pub sni: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub destination: String,
}

const SIZE: usize = 100;
const MOST: usize = 1000;

pub(crate) async fn list(call: &Call<'_>) -> ApiResult {
    let size = match call.query("size") {
        None => Some(SIZE),
        Some(text) => text.parse().ok().filter(|size| (1..=MOST).contains(size)),
    };
    let size = size.ok_or_else(|| {
        let problem = format!("expected an integer between 1 and {MOST}");
        Error::schema_violation(Object::from_iter([("size", Value::from(problem))]))
    })?;
    let search = Search {
        among: match call.query("route") {
            Some(route) => Among::Route(route.to_owned()),
            None => Among::All,
        },
        size,
        preview: Preview::default(),
    };
    let conflicts = call.control.conflicts(search).await?;
    let bytes = serde_json::to_vec(&conflicts).map_err(Failure::internal)?;
    Ok(json_bytes(StatusCode::OK, bytes))
}

const INCOMPLETE: &str = "not all routes were compared: there may be more conflicts";

/// Maximum number of warnings of each kind in the response to a write.
const WARNINGS: usize = 10;

/// Stores the conflicts that a write causes as warnings, if the client asked for them. If this fails, the write still
/// succeeds.
pub(crate) async fn warn(call: &Call<'_>, routes: Vec<Uuid>) {
    if !call.warns_of_conflicts() || routes.is_empty() {
        return;
    }
    let search = Search {
        among: Among::Routes(routes),
        size: WARNINGS,
        preview: call.preview.clone(),
    };
    let texts = match call.control.conflicts(search).await {
        Ok(found) => {
            let never = found.never.iter().map(ToString::to_string);
            let ties = found.ties.iter().map(ToString::to_string);
            let rest = (!found.complete).then(|| INCOMPLETE.to_owned());
            never.chain(ties).chain(rest).collect()
        }
        Err(error) => {
            tracing::warn!(?error, "conflicts of routes could not be determined");
            vec!["conflicts of routes could not be determined".to_owned()]
        }
    };
    call.warn(texts);
}

impl Subsystem {
    /// The unit of traffic that routes get.
    fn unit(self) -> &'static str {
        match self {
            Self::Http => "request",
            Self::Stream => "stream",
        }
    }
}

impl fmt::Display for Never {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.whole { "" } else { "a part of " };
        write!(
            formatter,
            "no {} can get {part}the route {}: ",
            self.subsystem.unit(),
            self.route
        )?;
        match self.reason {
            Cause::Contradiction => formatter.write_str("its conditions contradict each other"),
            Cause::Shadowed => {
                formatter.write_str("all of them get ")?;
                for (number, route) in self.by.iter().enumerate() {
                    let separator = if number == 0 { "" } else { ", " };
                    write!(formatter, "{separator}{route}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Tie {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second, .. } = self;
        let unit = self.subsystem.unit();
        write!(
            formatter,
            "the routes {first} and {second} have equal priority: {unit}s for both get {first}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Named {
        Named {
            id: Uuid::nil(),
            name: Some(name.to_owned()),
        }
    }

    #[test]
    fn warnings_say_whether_requests_or_streams_are_meant() {
        for (subsystem, nobody, many) in [
            (Subsystem::Http, "no request", "requests"),
            (Subsystem::Stream, "no stream", "streams"),
        ] {
            let never = Never {
                route: named("a"),
                subsystem,
                expression: String::new(),
                whole: false,
                reason: Cause::Shadowed,
                by: vec![named("b")],
            };
            let (a, b) = (named("a"), named("b"));
            assert_eq!(
                never.to_string(),
                format!("{nobody} can get a part of the route {a}: all of them get {b}")
            );
            let tie = Tie {
                first: named("a"),
                second: named("b"),
                subsystem,
                example: Example {
                    protocol: "http".to_owned(),
                    method: None,
                    path: None,
                    host: None,
                    headers: BTreeMap::new(),
                    sni: String::new(),
                    source: None,
                    destination: String::new(),
                },
            };
            assert_eq!(
                tie.to_string(),
                format!("the routes {a} and {b} have equal priority: {many} for both get {a}")
            );
        }
    }
}
