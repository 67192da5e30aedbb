//! `GET /router/conflicts`: routes that no request or no stream can get, and pairs of which only an id or an age says which
//! comes first.

use super::Named;
use crate::proposal::Preview;
use crate::request::Call;
use crate::respond::{Answer, Failure, json_bytes};
use axum::http::StatusCode;
use model::{Error, Object, Value};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use uuid::Uuid;

/// What is to be looked for.
#[derive(Debug, Clone)]
pub struct Search {
    pub among: Among,
    /// How many of each kind at most.
    pub size: usize,
    /// Where, if not in what is live.
    pub preview: Preview,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Among {
    All,
    /// Only conflicts of this one: its id or name.
    Route(String),
    /// Only conflicts of these. Those that are not served have none.
    Routes(Vec<Uuid>),
}

#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Conflicts {
    pub revision: u64,
    pub never: Vec<Never>,
    pub ties: Vec<Tie>,
    /// How many candidates and pairs there is no answer for.
    pub undecided: usize,
    /// Whether there are more than were asked for.
    pub truncated: bool,
    /// Whether all routes were compared. If not, the search has used up its steps, and there may be more.
    pub complete: bool,
}

/// A route, or a part of it, that no request gets, or no stream.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Never {
    pub route: Named,
    pub subsystem: Subsystem,
    /// What the part demands, in the expression language.
    pub expression: String,
    /// Whether the same is true of all of the route.
    pub whole: bool,
    pub reason: Cause,
    /// Where others are in its way, these, in the order they are tried.
    pub by: Vec<Named>,
}

/// What the routes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subsystem {
    /// Requests.
    Http,
    /// Connections and sessions of datagrams.
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No request, or no stream, can satisfy it.
    Contradiction,
    /// Whatever satisfies it satisfies one that is tried before.
    Shadowed,
}

/// Two routes that rank alike, and that one request or one stream satisfies.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Tie {
    /// The one that is tried first.
    pub first: Named,
    pub second: Named,
    pub subsystem: Subsystem,
    /// Such a request or stream, as `POST /router/explain` takes it.
    pub example: Option<Example>,
}

/// A request, or a stream.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Example {
    pub protocol: String,
    /// Of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Of a request, with its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Vec<String>>,
    /// Empty where none is sent.
    pub sni: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub destination: String,
}

const SIZE: usize = 100;
const MOST: usize = 1000;

pub(crate) async fn list(call: &Call<'_>) -> Answer {
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

/// How many warnings of each kind a write is answered with.
const WARNINGS: usize = 10;

/// Keeps what a write has made of conflicts, if it is to be told. A write is not answered otherwise because this fails.
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
            tracing::warn!(?error, "conflicts of routes cannot be told");
            vec!["conflicts of routes cannot be told".to_owned()]
        }
    };
    call.warn(texts);
}

impl Subsystem {
    /// What routes get there.
    fn unit(self) -> &'static str {
        match self {
            Self::Http => "request",
            Self::Stream => "stream",
        }
    }
}

impl fmt::Display for Never {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.whole {
            true => "",
            false => "a part of ",
        };
        write!(
            formatter,
            "no {} can get {part}the route {}: ",
            self.subsystem.unit(),
            self.route
        )?;
        match self.reason {
            Cause::Contradiction => formatter.write_str("its demands contradict each other"),
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
            "the routes {first} and {second} rank alike: {unit}s for both get {first}"
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
                example: None,
            };
            assert_eq!(
                tie.to_string(),
                format!("the routes {a} and {b} rank alike: {many} for both get {a}")
            );
        }
    }
}
