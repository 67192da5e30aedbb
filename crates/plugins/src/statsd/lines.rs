//! The lines of a request: names with the service, the consumer and so on, or tags.

use super::config::{Config, Metric, Name, ServiceIdentifier, TagStyle, WorkspaceIdentifier};
use crate::statistics::{
    ConsumerIdentifier, Facts, StatType, push_id, push_name, push_number, rate,
};
use plugin::BuildError;
use services::dict::ZONES;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

/// Seconds between two reports of the shared dictionaries.
const DICTIONARIES_EVERY: u64 = 60;
/// The only workspace.
const WORKSPACE_NAME: &str = "default";

/// What the names of all statistics have in common.
pub(super) struct Names {
    pub(super) prefix: String,
    /// The value of the tag `node`.
    pub(super) node: String,
    /// Start of the names of statistics of shared dictionaries, after the prefix.
    pub(super) dictionaries: String,
}

pub(super) struct Lines {
    names: Names,
    metrics: Vec<Statistic>,
    /// Status codes that are counted. `None`: all.
    allowed: Option<Vec<RangeInclusive<u16>>>,
    tag_style: Option<TagStyle>,
    /// Seconds since 1970 at which the shared dictionaries were last reported.
    dictionaries_at: AtomicU64,
}

struct Statistic {
    name: Name,
    kind: StatType,
    rate: String,
    consumer: ConsumerIdentifier,
    service: ServiceIdentifier,
    workspace: WorkspaceIdentifier,
}

#[derive(Clone, Copy)]
enum Shown<'a> {
    Number(u64),
    Text(&'a str),
}

/// A statistic without its name.
#[derive(Clone, Copy)]
struct Value<'a> {
    value: Shown<'a>,
    kind: StatType,
    rate: &'a str,
}

impl Lines {
    pub(super) fn new(config: &Config, names: Names) -> Result<Self, BuildError> {
        let allowed = config.allow_status_codes.as_ref();
        let allowed = allowed.map(|ranges| ranges.iter().map(|range| codes(range)).collect());
        let metrics = config.metrics.iter().flatten();
        Ok(Self {
            names,
            metrics: metrics
                .map(|metric| Statistic::new(metric, config))
                .collect(),
            allowed: allowed.transpose()?,
            tag_style: config.tag_style,
            dictionaries_at: AtomicU64::new(0),
        })
    }

    pub(super) fn write(&self, facts: &Facts<'_>, out: &mut String) {
        for metric in &self.metrics {
            match metric.name {
                Name::ShdictUsage => self.write_dictionaries(metric, facts, out),
                _ => match self.tag_style {
                    None => self.write_named(metric, facts, out),
                    Some(style) => self.write_tagged(metric, facts, style, out),
                },
            }
        }
    }

    /// Writes a statistic whose name says what it is about.
    fn write_named(&self, metric: &Statistic, facts: &Facts<'_>, out: &mut String) {
        let counts_status = matches!(
            metric.name,
            Name::StatusCount
                | Name::StatusCountPerUser
                | Name::StatusCountPerWorkspace
                | Name::StatusCountPerUserPerRoute
        );
        if counts_status && !self.counts(facts.status) {
            return;
        }
        let needs_user = matches!(
            metric.name,
            Name::UniqueUsers
                | Name::RequestPerUser
                | Name::StatusCountPerUser
                | Name::StatusCountPerUserPerRoute
        );
        let mut user = String::new();
        if needs_user {
            let Some(consumer) = metric.consumer.of(facts.consumer) else {
                return;
            };
            push_name(&consumer, &mut user);
        }
        let start = out.len();
        out.push_str(&self.names.prefix);
        out.push('.');
        if metric.name == Name::StatusCountPerUserPerRoute {
            let Some(route) = facts.route else {
                return out.truncate(start);
            };
            out.push_str("route.");
            push_id(route.id, out);
        } else {
            metric.push_scope(facts, out);
        }
        let counter = |out: &mut String| metric.end(1, StatType::Counter, out);
        match metric.name {
            Name::UniqueUsers => {
                out.push_str(".user.uniques");
                push_value(
                    Value {
                        value: Shown::Text(&user),
                        kind: StatType::Set,
                        rate: "",
                    },
                    out,
                );
            }
            Name::RequestPerUser => {
                out.push_str(".user.");
                out.push_str(&user);
                out.push_str(".request.count");
                counter(out);
            }
            Name::StatusCount => {
                push_status(facts, out);
                counter(out);
            }
            Name::StatusCountPerUser | Name::StatusCountPerUserPerRoute => {
                out.push_str(".user.");
                out.push_str(&user);
                push_status(facts, out);
                counter(out);
            }
            Name::StatusCountPerWorkspace => {
                out.push_str(".workspace.");
                metric.push_workspace(facts, out);
                push_status(facts, out);
                counter(out);
            }
            _ => match metric.basic(facts) {
                Some((name, value)) => {
                    out.push('.');
                    out.push_str(name);
                    metric.end(value, metric.kind, out);
                }
                None => return out.truncate(start),
            },
        }
        out.push('\n');
    }

    /// Writes one of the six statistics that exist with tags. As in Kong, a request without a service has no tags.
    fn write_tagged(
        &self,
        metric: &Statistic,
        facts: &Facts<'_>,
        style: TagStyle,
        out: &mut String,
    ) {
        let Some((name, value)) = metric.basic(facts) else {
            return;
        };
        let mut tags = Tags::new(style);
        if facts.service.is_some() {
            tags.push("service", |out| metric.push_service(facts, out));
            if let Some(route) = facts.route {
                tags.push("route", |out| match route.name {
                    Some(name) => push_name(name, out),
                    None => push_id(route.id, out),
                });
            }
            tags.push("workspace", |out| metric.push_workspace(facts, out));
            if let Some(consumer) = metric.consumer.of(facts.consumer) {
                tags.push("consumer", |out| push_name(&consumer, out));
            }
            tags.push("node", |out| out.push_str(&self.names.node));
            tags.push("status", |out| push_number(facts.status, out));
        }
        out.push_str(&self.names.prefix);
        out.push('.');
        out.push_str(name);
        let value = Value {
            value: Shown::Number(value),
            kind: metric.kind,
            rate: &metric.rate,
        };
        tags.end(value, out);
        out.push('\n');
    }

    /// Writes the sizes of the shared dictionaries, if a minute has passed.
    fn write_dictionaries(&self, metric: &Statistic, facts: &Facts<'_>, out: &mut String) {
        let now = facts
            .started_at
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let last = self.dictionaries_at.load(Ordering::Relaxed);
        if now < last.saturating_add(DICTIONARIES_EVERY) {
            return;
        }
        let claimed =
            self.dictionaries_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_err() {
            return;
        }
        for (number, (zone, _)) in ZONES.iter().enumerate() {
            let Some(dictionary) = facts.node.dicts.numbered(number) else {
                continue;
            };
            let sizes = [
                ("free_space", dictionary.free_space()),
                ("capacity", dictionary.capacity()),
            ];
            for (what, size) in sizes {
                out.push_str(&self.names.prefix);
                out.push('.');
                let value = Value {
                    value: Shown::Number(size as u64),
                    kind: StatType::Gauge,
                    rate: &metric.rate,
                };
                match self.tag_style {
                    None => {
                        out.push_str(&self.names.dictionaries);
                        for part in [".", zone, ".", what] {
                            out.push_str(part);
                        }
                        push_value(value, out);
                    }
                    Some(style) => {
                        out.push_str("shdict.");
                        out.push_str(what);
                        let mut tags = Tags::new(style);
                        tags.push("node", |out| out.push_str(&self.names.node));
                        tags.push("shdict", |out| out.push_str(zone));
                        tags.end(value, out);
                    }
                }
                out.push('\n');
            }
        }
    }

    fn counts(&self, status: u16) -> bool {
        let Some(allowed) = &self.allowed else {
            return true;
        };
        allowed.iter().any(|codes| codes.contains(&status))
    }
}

impl Statistic {
    fn new(metric: &Metric, config: &Config) -> Self {
        Self {
            name: metric.name,
            kind: metric.stat_type,
            rate: rate(metric.sample_rate),
            consumer: metric
                .consumer_identifier
                .unwrap_or(config.consumer_identifier_default),
            service: metric
                .service_identifier
                .unwrap_or(config.service_identifier_default),
            workspace: metric
                .workspace_identifier
                .unwrap_or(config.workspace_identifier_default),
        }
    }

    /// Returns the name and the value of a statistic of the request itself, if it has a value.
    fn basic(&self, facts: &Facts<'_>) -> Option<(&'static str, u64)> {
        match self.name {
            Name::RequestCount => Some(("request.count", 1)),
            Name::RequestSize => Some(("request.size", facts.request_size)),
            Name::ResponseSize => Some(("response.size", facts.response_size)),
            Name::Latency => Some(("latency", facts.latency)),
            Name::KongLatency => Some(("kong_latency", facts.kong_latency)),
            Name::UpstreamLatency => Some(("upstream_latency", facts.upstream_latency?)),
            _ => None,
        }
    }

    fn end(&self, value: u64, kind: StatType, out: &mut String) {
        let value = Shown::Number(value);
        let rate = &self.rate;
        push_value(Value { value, kind, rate }, out);
    }

    /// Writes the service in a name.
    fn push_scope(&self, facts: &Facts<'_>, out: &mut String) {
        if facts.service.is_none() {
            return out.push_str("global.unmatched");
        }
        out.push_str("service.");
        let start = out.len();
        self.push_service(facts, out);
        if out.len() == start {
            return out.push_str("unnamed");
        }
        let name = out.split_off(start);
        out.extend(
            name.chars()
                .map(|letter| if letter == '.' { '_' } else { letter }),
        );
    }

    /// Writes the identifier of the service, or nothing if it has none.
    fn push_service(&self, facts: &Facts<'_>, out: &mut String) {
        let Some(service) = facts.service else {
            return;
        };
        match (self.service, service.name) {
            (ServiceIdentifier::Id, _) => push_id(service.id, out),
            (ServiceIdentifier::Name | ServiceIdentifier::NameOrHost, Some(name)) => {
                push_name(name, out);
            }
            (ServiceIdentifier::Name, None) => {}
            (ServiceIdentifier::Host | ServiceIdentifier::NameOrHost, _) => {
                push_name(&facts.service_host().unwrap_or_default(), out);
            }
        }
    }

    fn push_workspace(&self, facts: &Facts<'_>, out: &mut String) {
        match self.workspace {
            WorkspaceIdentifier::WorkspaceId => push_id(facts.node.entities.workspace(), out),
            WorkspaceIdentifier::WorkspaceName => out.push_str(WORKSPACE_NAME),
        }
    }
}

fn push_status(facts: &Facts<'_>, out: &mut String) {
    out.push_str(".status.");
    push_number(facts.status, out);
}

/// Writes `:value|type`, and the rate.
fn push_value(value: Value<'_>, out: &mut String) {
    out.push(':');
    match value.value {
        Shown::Number(number) => push_number(number, out),
        Shown::Text(text) => out.push_str(text),
    }
    out.push('|');
    out.push_str(value.kind.letter());
    out.push_str(value.rate);
}

/// Tags that are being written.
struct Tags {
    style: TagStyle,
    text: String,
}

impl Tags {
    fn new(style: TagStyle) -> Self {
        Self {
            style,
            text: String::new(),
        }
    }

    fn push(&mut self, name: &str, value: impl FnOnce(&mut String)) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(name);
        self.text.push(match self.style {
            TagStyle::Dogstatsd => ':',
            TagStyle::Influxdb | TagStyle::Librato | TagStyle::Signalfx => '=',
        });
        value(&mut self.text);
    }

    /// Writes the tags and the value after the name.
    fn end(&self, value: Value<'_>, out: &mut String) {
        let (before, after) = match self.style {
            _ if self.text.is_empty() => return push_value(value, out),
            TagStyle::Dogstatsd => {
                push_value(value, out);
                out.push_str("|#");
                return out.push_str(&self.text);
            }
            TagStyle::Influxdb => (",", ""),
            TagStyle::Librato => ("#", ""),
            TagStyle::Signalfx => ("[", "]"),
        };
        out.push_str(before);
        out.push_str(&self.text);
        out.push_str(after);
        push_value(value, out);
    }
}

/// Parses a range of status codes. Codes that do not exist are in no range.
fn codes(range: &str) -> Result<RangeInclusive<u16>, BuildError> {
    let ends = range.split_once('-').map(|(first, last)| {
        let code = |text: &str| text.parse::<u16>().unwrap_or(u16::MAX);
        code(first)..=code(last)
    });
    ends.ok_or_else(|| BuildError::field("allow_status_codes", "it is not a range of codes"))
}
