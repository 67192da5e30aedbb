//! response-ratelimiting: limits what upstreams report in a header of their responses. Sources of the behaviour:
//! kong/plugins/response-ratelimiting/{access,header_filter,log}.lua.

mod checks;
mod config;
mod header;
mod source;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use source::SOURCE;

use crate::limits::Ipv6Prefix;
use crate::number;
use crate::rate_limiting::counters::Counters;
use crate::rate_limiting::window::{Moment, Period};
use crate::rate_limiting::{Identify, counters};
use compact_str::{CompactString, format_compact};
use config::{Config, LimitBy, Limits};
use plugin::{
    BuildCx, BuildError, Filtered, Flow, HeaderValue, LogCx, Node, Phases, Plugin, PluginDef,
    PluginError, RequestCx, Response, ResponseCx, Scopes, Step,
};
use std::sync::{Arc, OnceLock};
use store::{Client, Running, Store};

const NAME: &str = "response-ratelimiting";

pub(crate) fn def() -> PluginDef {
    let phases = Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::LOG_WITHOUT_HEAD);
    PluginDef::bundled::<ResponseRateLimiting>(NAME, 900, phases, Scopes::ALL)
}

struct ResponseRateLimiting {
    header_name: CompactString,
    identify: Identify,
    ipv6_prefix: Ipv6Prefix,
    blocks: bool,
    hides_headers: bool,
    is_tolerant: bool,
    named: Vec<Named>,
    store: Store,
    counters: OnceLock<Arc<Counters>>,
    running: OnceLock<Running>,
}

/// The limits of one name.
struct Named {
    name: CompactString,
    /// The header that shows the lowest of the remaining numbers before the upstream is asked.
    remaining_header: CompactString,
    limits: Vec<Limit>,
}

struct Limit {
    period: Period,
    limit: f64,
    shown: HeaderValue,
    limit_header: CompactString,
    remaining_header: CompactString,
}

/// The state of a request whose counters were read.
struct Seen {
    client: Client,
    moment: Moment,
    /// What has been used up, for each limit of each name.
    used: Vec<u64>,
    /// What the response uses up, for each name.
    increments: Vec<i64>,
}

#[derive(Default)]
struct Own(Option<Seen>);

impl Plugin for ResponseRateLimiting {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        Ok(Self {
            identify: match config.limit_by {
                Some(LimitBy::Consumer) | None => Identify::Consumer,
                Some(LimitBy::Credential) => Identify::Credential,
                Some(LimitBy::Ip) => Identify::Address,
            },
            ipv6_prefix: Ipv6Prefix::new(config.ipv6_prefix),
            blocks: config.block_on_first_violation,
            hides_headers: config.hide_client_headers,
            is_tolerant: config.fault_tolerant,
            store: Store::new(&config)?,
            named: named(&config)?,
            header_name: config.header_name.unwrap_or_else(|| "x-kong-limit".into()),
            counters: OnceLock::new(),
            running: OnceLock::new(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        let counters = self.counters.get_or_init(|| counters(node));
        self.running
            .get_or_init(|| self.store.start(node, counters));
    }

    fn access<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        let (Some(running), Some(counters)) = (self.running.get(), self.counters.get()) else {
            return Err(PluginError::new("it was not started"));
        };
        let moment = counters.moment(cx.node.clock.since_epoch().as_secs());
        let scope = cx.configured.scope(cx.request);
        let identifier = self.ipv6_prefix.applied(self.identify.identifier(&cx));
        let client = running.client(
            counters,
            scope.route.map(|route| route.0),
            scope.service.map(|service| service.0),
            identifier,
            cx.request.client.ip,
        );
        if let Some(used) = running.used_here(&client, &self.named, &moment) {
            return Ok(self.proceed(&mut cx, own, client, moment, used).into());
        }
        Ok(Step::wait(async move {
            match running.used(&client, &self.named, &moment).await {
                Ok(used) => Ok(self.proceed(&mut cx, own, client, moment, used)),
                // As in Kong, the plugin then does nothing for this request.
                Err(_) if self.is_tolerant => Ok(Flow::Continue),
                Err(error) => Err(PluginError::caused_by("the counters cannot be read", error)),
            }
        }))
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
    ) -> Result<Filtered, PluginError> {
        let Some(seen) = &mut own.0 else {
            return Ok(Filtered::Continue);
        };
        let names: Vec<&str> = self.named.iter().map(|named| named.name.as_str()).collect();
        seen.increments = header::increments(cx.header_lines(&self.header_name), &names);
        cx.answer.headers.remove(&self.header_name);
        let mut stops = false;
        let mut used = seen.used.iter();
        for (named, increment) in self.named.iter().zip(&seen.increments) {
            for (limit, used) in named.limits.iter().zip(&mut used) {
                let remaining = limit.limit - *used as f64;
                stops |= *increment > 0 && remaining <= 0.0;
                if !self.hides_headers {
                    let after = (remaining - *increment as f64).max(0.0);
                    let headers = &mut cx.answer.headers;
                    headers.set(&limit.limit_header, &limit.shown);
                    headers.set(&limit.remaining_header, shown(after));
                }
            }
        }
        if !stops {
            return Ok(Filtered::Continue);
        }
        // What the response would have used up is not counted.
        seen.increments.clear();
        Ok(Filtered::Replace(Response::new(429, "")))
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, own: &mut Own) {
        // The state stays: a request that goes on without its client filters another response.
        let (Some(seen), Some(running)) = (&own.0, self.running.get()) else {
            return;
        };
        let increments = self.named.iter().zip(&seen.increments);
        let increments = increments.filter(|(_, increment)| **increment != 0);
        let increments: Vec<(&str, i64)> = increments
            .map(|(named, increment)| (named.name.as_str(), *increment))
            .collect();
        if !increments.is_empty() {
            running.add(cx.node, &seen.client, &increments, &seen.moment);
        }
    }
}

impl ResponseRateLimiting {
    /// Shows what remains, and decides whether the request is forwarded.
    fn proceed(
        &self,
        cx: &mut RequestCx<'_, '_>,
        own: &mut Own,
        client: Client,
        moment: Moment,
        used: Vec<u64>,
    ) -> Flow {
        let mut all_used = used.iter();
        for named in &self.named {
            let mut lowest = f64::INFINITY;
            for (limit, used) in named.limits.iter().zip(&mut all_used) {
                let remaining = limit.limit - *used as f64;
                // As in Kong, a number that has become negative does not block.
                if self.blocks && remaining == 0.0 {
                    let message = format!("API rate limit exceeded for '{}'", named.name);
                    return Flow::Respond(Response::error(429, message));
                }
                lowest = lowest.min(remaining);
            }
            let name = named.remaining_header.clone();
            cx.state.headers.set(name, shown(lowest));
        }
        own.0 = Some(Seen {
            client,
            moment,
            used,
            increments: Vec::new(),
        });
        Flow::Continue
    }
}

fn named(config: &Config) -> Result<Vec<Named>, BuildError> {
    let named = config.limits.iter().map(|(name, limits)| {
        // It becomes a part of header names.
        if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            let reason = format!("\"{name}\" cannot be a part of a header name");
            return Err(BuildError::field("limits", reason));
        }
        Ok(Named::new(name, limits))
    });
    named.collect()
}

impl Named {
    fn new(name: &CompactString, limits: &Limits) -> Self {
        let configured = [
            limits.second,
            limits.minute,
            limits.hour,
            limits.day,
            limits.month,
            limits.year,
        ];
        let limits = Period::ALL.into_iter().zip(configured);
        let limits = limits.filter_map(|(period, limit)| {
            let (limit, text) = (limit?, period.name());
            Some(Limit {
                period,
                limit,
                shown: shown(limit),
                limit_header: format_compact!("X-RateLimit-Limit-{name}-{text}"),
                remaining_header: format_compact!("X-RateLimit-Remaining-{name}-{text}"),
            })
        });
        Self {
            name: name.clone(),
            remaining_header: format_compact!("X-RateLimit-Remaining-{name}"),
            limits: limits.collect(),
        }
    }
}

fn shown(number: f64) -> HeaderValue {
    HeaderValue::Text(number::text(number))
}
