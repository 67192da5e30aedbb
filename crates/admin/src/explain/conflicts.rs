//! `GET /router/conflicts`: routes that no request can get, and pairs of which only an id or an age says which comes first.

use super::Named;
use crate::request::Call;
use crate::respond::{Answer, Failure, json_bytes};
use axum::http::StatusCode;
use model::{Error, Object, Value};
use serde::Serialize;
use std::collections::BTreeMap;

/// What is to be looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// Only conflicts of this one: its id or name.
    pub route: Option<String>,
    /// How many of each kind at most.
    pub size: usize,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Conflicts {
    pub revision: u64,
    pub never: Vec<Never>,
    pub ties: Vec<Tie>,
    /// How many candidates and pairs there is no answer for.
    pub undecided: usize,
    /// Whether there are more than were asked for.
    pub truncated: bool,
}

/// A route, or a part of it, that no request gets.
#[derive(Debug, Clone, Serialize)]
pub struct Never {
    pub route: Named,
    /// What the part demands, in the expression language.
    pub expression: String,
    /// Whether the same is true of all of the route.
    pub whole: bool,
    pub reason: Cause,
    /// Where others are in its way, these, in the order they are tried.
    pub by: Vec<Named>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No request can satisfy it.
    Contradiction,
    /// Whatever satisfies it satisfies one that is tried before.
    Shadowed,
}

/// Two routes that rank alike, and that one request satisfies.
#[derive(Debug, Clone, Serialize)]
pub struct Tie {
    /// The one that such a request gets.
    pub first: Named,
    pub second: Named,
    /// Such a request, as `POST /router/explain` takes it.
    pub example: Option<Example>,
}

/// A request.
#[derive(Debug, Clone, Serialize)]
pub struct Example {
    pub protocol: String,
    pub method: String,
    pub path: String,
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
        route: call.query("route").map(str::to_owned),
        size,
    };
    let conflicts = call.control.conflicts(search).await?;
    let bytes = serde_json::to_vec(&conflicts).map_err(Failure::internal)?;
    Ok(json_bytes(StatusCode::OK, bytes))
}
