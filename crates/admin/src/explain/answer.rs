//! The explanation of a request: the candidate routes with their verdicts, and how the request would be handled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use uuid::Uuid;

/// The explanation of how the gateway handles a request.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The revision whose routes were used.
    pub revision: u64,
    /// The setting `router_flavor`.
    pub flavor: String,
    pub request: Seen,
    /// The route that the request gets.
    pub matched: Option<Named>,
    /// Candidates that could match the request, in the order in which they are tried.
    pub candidates: Vec<Candidate>,
    /// Number of candidates that are not listed.
    pub omitted: usize,
    /// Other candidates, those with the fewest false parts first.
    pub closest: Vec<Candidate>,
    /// The route that the body of the call names in `route`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Asked>,
    /// The plugins, in the order in which they run.
    pub plugins: Vec<Plugin>,
    pub service: Option<Service>,
    pub upstream: Option<Upstream>,
    /// The values of the route's regex groups, by number and by name.
    pub captures: BTreeMap<String, String>,
    /// The gateway's own response, if the request does not reach an upstream.
    pub answer: Option<GatewayAnswer>,
}

/// The request as routes see it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Seen {
    pub protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The host without its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The normalised path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
}

/// An entity's id and name.
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

/// A candidate: one way to reach a route. A route with several paths may have several candidates.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    pub route: Named,
    /// Its position among all candidates of the router, from 0.
    pub place: usize,
    /// The values that determine the position, most important first.
    pub rank: Vec<String>,
    /// Its conditions, in the expression language.
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
    /// The candidate matches, but another matching candidate was tried before it and chosen.
    ComesLater,
    Fails,
}

/// A part of an expression that is false.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// The part, in the expression language.
    pub part: String,
    /// The alternatives of the part, if one of several would have been enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<String>,
    /// The fields that the part uses, with their values in the request.
    pub found: BTreeMap<String, Vec<String>>,
}

/// The route that the body of the call names in `route`, with all of its candidates.
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
    /// The phases in which it runs, such as `access`, `header_filter`, `body_filter` and `log`; for a stream `preread`
    /// and `log`.
    pub phases: Vec<String>,
    /// The scope of its configuration: `route`, `service`, `consumer`, several of them, or `global`. Null if it runs
    /// only for some consumers.
    pub scope: Option<String>,
    /// The names of the entities in `scope`, in its order; the id of an entity without a name. Empty for `global`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scope_names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_name: Option<String>,
    /// The requirement that a request must meet to pass the plugin, and the status that it gets otherwise. Only
    /// authentication plugins say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// Number of consumers that have their own instance here.
    pub consumers: usize,
    /// Whether it is an access-control plugin that is not implemented, so that all requests get status 500.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuses: bool,
    /// Whether it is not implemented and ignored, so that requests pass as if it were absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Service {
    #[serde(flatten)]
    pub named: Named,
    pub protocol: String,
    /// The host of the service, or the name of its upstream.
    pub host: String,
    /// Absent if the targets have their own ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Named>,
}

/// The request to the upstream, unless plugins change it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Upstream {
    pub uri: String,
    /// The Host header; null if each target has its own.
    pub host: Option<String>,
    /// The prefix that the route removes from the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripped: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct GatewayAnswer {
    pub status: u16,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Whether plugins run in the access phase before this response.
    pub after_plugins: bool,
}
