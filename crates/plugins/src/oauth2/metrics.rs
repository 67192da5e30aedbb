//! Counts tokens.

use plugin::Node;
use services::metrics::{Counter, Family, MetricError, NO_WORKER};
use std::array;

const GRANTS: [&str; 5] = [
    "authorization_code",
    "refresh_token",
    "client_credentials",
    "password",
    "implicit",
];
const REASONS: [&str; 6] = [
    "missing",
    "unknown",
    "expired",
    "other_service",
    "global",
    "deleted",
];

/// The counters, as one worker uses them.
pub(super) struct Counts {
    worker: usize,
    issued: [Counter; 5],
    found: Counter,
    refused: [Counter; 6],
    refused_requests: Family<Counter>,
}

impl Counts {
    pub(super) fn new(node: &Node) -> Result<Self, MetricError> {
        let counter = |name, help, labels: &[&str]| node.metrics.counter(name, help, labels);
        let issued = counter(
            "silverback_oauth2_tokens_issued_total",
            "OAuth2 access tokens that were issued, by grant",
            &["grant"],
        )?;
        let found = counter(
            "silverback_oauth2_tokens_found_total",
            "Requests with a valid OAuth2 access token",
            &[],
        )?;
        let refused = counter(
            "silverback_oauth2_tokens_refused_total",
            "Requests whose OAuth2 access token was missing or refused, by reason",
            &["reason"],
        )?;
        let refused_requests = counter(
            "silverback_oauth2_requests_refused_total",
            "Requests that the endpoints of oauth2 refused, by endpoint and error",
            &["endpoint", "error"],
        )?;
        Ok(Self {
            worker: node.workers.here().unwrap_or(NO_WORKER),
            issued: array::from_fn(|at| issued.with(&[GRANTS[at]])),
            found: found.with(&[]),
            refused: array::from_fn(|at| refused.with(&[REASONS[at]])),
            refused_requests,
        })
    }

    pub(super) fn issued(&self, grant: &str) {
        self.add(&GRANTS, &self.issued, grant);
    }

    pub(super) fn found(&self) {
        self.found.add(self.worker, 1);
    }

    pub(super) fn refused(&self, reason: &str) {
        self.add(&REASONS, &self.refused, reason);
    }

    pub(super) fn refused_request(&self, endpoint: &str, error: &str) {
        let series = self.refused_requests.with(&[endpoint, error]);
        series.add(self.worker, 1);
    }

    fn add(&self, names: &[&str], counters: &[Counter], name: &str) {
        let mut all = names.iter().zip(counters);
        if let Some((_, counter)) = all.find(|(one, _)| **one == name) {
            counter.add(self.worker, 1);
        }
    }
}
