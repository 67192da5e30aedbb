//! What is told of a request: the routes that were tried and why, and what would happen then.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use uuid::Uuid;

/// The answer of `POST /router/explain`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// What was asked: this revision's routes.
    pub revision: u64,
    /// `router_flavor`.
    pub flavor: String,
    pub request: Seen,
    /// The route that the request gets.
    pub matched: Option<Named>,
    /// Those that the request could reach, in the order they are tried.
    pub candidates: Vec<Candidate>,
    /// How many more candidates there are than are told.
    pub omitted: usize,
    /// Others, those first that fail in the fewest parts.
    pub closest: Vec<Candidate>,
    /// The route that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Asked>,
    /// In the order they run.
    pub plugins: Vec<Plugin>,
    pub service: Option<Service>,
    pub upstream: Option<Upstream>,
    /// What the groups of the route's regexes have captured, by number and by name.
    pub captures: BTreeMap<String, String>,
    /// What the gateway answers itself, where nothing goes to an upstream.
    pub answer: Option<GatewayAnswer>,
}

/// The request as routes look at it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Seen {
    pub protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Without its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Normalised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
}

/// An entity by what people call it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    pub id: Uuid,
    pub name: Option<String>,
}

impl fmt::Display for Named {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => formatter.write_str(name),
            None => self.id.fmt(formatter),
        }
    }
}

/// One way to reach a route: a route with several paths may have several.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    pub route: Named,
    /// Where it stands among all candidates of the router, from 0.
    pub place: usize,
    /// What has put it there, the most important first.
    pub rank: Vec<String>,
    /// What it demands, in the expression language.
    pub expression: String,
    pub verdict: Verdict,
    /// The parts of the expression that are false, in their order.
    pub reasons: Vec<Reason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The request gets this route.
    Matches,
    /// It would, but for one that is tried before.
    ComesLater,
    Fails,
}

/// A part that is false.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// In the expression language.
    pub part: String,
    /// Where any of several would have been enough, these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<String>,
    /// The fields that it asks for, with the values that the request has of them.
    pub found: BTreeMap<String, Vec<String>>,
}

/// The route that was asked about, as all of its candidates.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Asked {
    #[serde(flatten)]
    pub named: Named,
    pub candidates: Vec<Candidate>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Plugin {
    pub name: String,
    pub priority: i32,
    /// Those of `access`, `header_filter`, `body_filter` and `log` that it runs in.
    pub phases: Vec<String>,
    /// What it is configured for: `route`, `service`, `consumer`, several of them, or `global`. None where it runs for some
    /// consumers alone.
    pub scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_name: Option<String>,
    /// How many consumers have an instance of their own here.
    pub consumers: usize,
    /// It is not implemented: every request that it applies to gets 500.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuses: bool,
    /// It is not implemented and ignored: requests pass as if it were absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Service {
    #[serde(flatten)]
    pub named: Named,
    pub protocol: String,
    /// Where it leads: its host, or the upstream that has its name.
    pub host: String,
    /// None where targets have ports of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Named>,
}

/// What goes to the upstream, unless plugins change it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Upstream {
    pub uri: String,
    /// The Host header; none where each target gives its own.
    pub host: Option<String>,
    /// What the route has cut off the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripped: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct GatewayAnswer {
    pub status: u16,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Whether plugins run in the access phase before.
    pub after_plugins: bool,
}
