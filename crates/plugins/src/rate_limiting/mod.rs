//! rate-limiting: refuses requests beyond a number per second, minute, hour, day, month or year. Source of the behaviour:
//! kong/plugins/rate-limiting/handler.lua.

mod batched;
mod checks;
mod config;
mod counter;
pub(crate) mod counters;
#[cfg(test)]
mod counters_tests;
pub(crate) mod direct;
mod leased;
mod leases;
pub(crate) mod names;
#[cfg(test)]
mod redis_tests;
mod remote;
mod sliding;
pub(crate) mod source;
mod tally;
#[cfg(test)]
mod tally_tests;
#[cfg(test)]
mod tests;
pub(crate) mod window;

use crate::limits::Ipv6Prefix;
use crate::number;
use compact_str::CompactString;
use config::{Config, LimitBy, Policy, WindowType};
use counters::{Allowance, Counters, Identifier, MAX_COUNTERS, Verdict};
use model::uri::{Slashes, normalize};
use plugin::{
    BuildCx, BuildError, Flow, HeaderEdits, HeaderLine, HeaderValue, LineValue, Node, Phases,
    Plugin, PluginDef, PluginError, RequestCx, Response, Scopes, Step,
};
use remote::Remote;
use services::Clock;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use window::{Moment, Period};

const NAME: &str = "rate-limiting";

/// Time between two removals of counters whose windows are over.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<RateLimiting>(NAME, 910, Phases::ACCESS, Scopes::ALL)
}

struct RateLimiting {
    identify: Identify,
    /// The configured limits, that of the shortest period first.
    limits: Vec<Limit>,
    /// The same limits, as the counters need them.
    allowances: Vec<Allowance>,
    /// Where requests are counted if not on this node.
    remote: Option<Remote>,
    is_sliding: bool,
    ipv6_prefix: Ipv6Prefix,
    hides_headers: bool,
    refusal: Response,
    counters: OnceLock<Arc<Counters>>,
}

/// The limit of one period.
struct Limit {
    period: Period,
    limit: f64,
    /// The limit, if it has no fraction.
    whole: Option<u64>,
    /// The header that tells the limit.
    line: HeaderLine,
    /// The header that tells the limit if this period has the fewest remaining requests.
    lowest_line: HeaderLine,
}

/// What identifies the client of a request. Requests without it are identified by the client's address.
pub(crate) enum Identify {
    Consumer,
    Credential,
    Address,
    Service,
    Header(Box<str>),
    Path(Box<str>),
}

impl Plugin for RateLimiting {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let limits = limits(&config);
        let allowances = limits.iter().map(Limit::allowance).collect();
        Ok(Self {
            identify: Identify::by(&config)?,
            limits,
            allowances,
            remote: match config.policy {
                Some(Policy::Redis) => Some(Remote::new(&config)?),
                Some(Policy::Local | Policy::Cluster) | None => None,
            },
            is_sliding: config.window_type == Some(WindowType::Sliding),
            ipv6_prefix: Ipv6Prefix::new(config.ipv6_prefix),
            hides_headers: config.hide_client_headers,
            refusal: refusal(&config),
            counters: OnceLock::new(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        self.counters.get_or_init(|| counters(node));
        if let Some(remote) = &self.remote {
            remote.start(node);
        }
    }

    fn access<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        let counters = self.counters.get_or_init(|| counters(cx.node));
        let scope = cx.configured.scope(cx.request);
        let scope = (
            scope.route.map(|route| route.0),
            scope.service.map(|service| service.0),
        );
        let identifier = self.identify.identifier(&cx);
        let identifier = self.ipv6_prefix.applied(identifier);
        let client = cx.request.client.ip;
        let identity = counters.identity(scope.0, scope.1, identifier, client);
        let moment = counters.moment(cx.node.clock.since_epoch().as_secs());
        if self.is_sliding {
            let now = cx.node.clock.since_epoch();
            let (verdict, moment) = counters.judge_sliding(identity, &self.allowances, now);
            return Ok(self.conclude(&mut cx, &verdict, &moment).into());
        }
        let Some(remote) = &self.remote else {
            let verdict = counters.judge(identity, &self.allowances, &moment);
            return Ok(self.conclude(&mut cx, &verdict, &moment).into());
        };
        let running = remote.running();
        let running = running.ok_or_else(|| PluginError::new("it was not started"))?;
        if let Some(leases) = running.leases() {
            let digest = || running.names(scope, identifier).digest(identifier);
            let judged = leases.judge(identity.hash(), digest, &self.allowances);
            let request = leased::Asked {
                cx,
                identity,
                moment,
            };
            return self.by_lease(request, remote, running, leases, judged);
        }
        let names = || running.names(scope, identifier);
        let verdict = running.judge_here(identity, names, &self.allowances, &moment);
        if let Some(verdict) = verdict {
            return Ok(self.conclude(&mut cx, &verdict, &moment).into());
        }
        let names = names();
        Ok(Step::wait(async move {
            let judged = running.judge(identity, &names, &self.allowances, &moment);
            let error = match judged.await {
                Ok(verdict) => return Ok(self.conclude(&mut cx, &verdict, &moment)),
                Err(error) => error,
            };
            let passes = remote.is_tolerant();
            running.note_uncounted(passes, identity, &names, &self.allowances, &moment);
            match passes {
                true => Ok(Flow::Continue),
                false => Err(PluginError::caused_by("a request cannot be counted", error)),
            }
        }))
    }

    fn needs(&self) -> Option<String> {
        let limit = |limit: &Limit| {
            let period = format!("{:?}", limit.period).to_lowercase();
            format!("{} requests per {period}", number::text(limit.limit))
        };
        let limits: Vec<String> = self.limits.iter().map(limit).collect();
        Some(format!(
            "at most {}, else {}",
            limits.join(" and "),
            self.refusal.status
        ))
    }
}

impl RateLimiting {
    fn conclude(&self, cx: &mut RequestCx<'_, '_>, verdict: &Verdict, moment: &Moment) -> Flow {
        if !self.hides_headers {
            self.show(verdict, moment, &mut cx.state.headers);
        }
        match verdict.passes {
            true => Flow::Continue,
            false => Flow::Respond(self.refusal.clone()),
        }
    }

    /// Writes the headers that tell clients their limits. The headers without a period in their name are about the
    /// period with the fewest remaining requests, and of these about the longest.
    fn show(&self, verdict: &Verdict, moment: &Moment, headers: &mut HeaderEdits) {
        let own = u64::from(verdict.passes);
        let mut lowest: Option<(&Limit, Remaining)> = None;
        for (limit, before) in self.limits.iter().zip(verdict.before) {
            let remaining = limit.remaining(before.saturating_add(own));
            headers.set_line(&limit.line);
            headers.set(limit.period.remaining_header(), remaining);
            if lowest.is_none_or(|lowest| remaining.number() <= lowest.1.number()) {
                lowest = Some((limit, remaining));
            }
        }
        let Some((limit, remaining)) = lowest else {
            return;
        };
        let reset = moment.reset(limit.period);
        headers.set_line(&limit.lowest_line);
        headers.set("RateLimit-Remaining", remaining);
        headers.set("RateLimit-Reset", reset);
        if !verdict.passes {
            headers.set("Retry-After", reset);
        }
    }
}

/// The number of requests that remain.
#[derive(Debug, Clone, Copy)]
enum Remaining {
    Whole(u64),
    /// The number for a limit with a fraction.
    Fraction(f64),
}

impl Remaining {
    fn number(self) -> f64 {
        match self {
            Self::Whole(number) => number as f64,
            Self::Fraction(number) => number,
        }
    }
}

impl LineValue for Remaining {
    #[inline]
    fn with_bytes(self, write: impl FnOnce(&[u8])) {
        match self {
            Self::Whole(number) => number::with_whole(number, write),
            Self::Fraction(number) => write(number::text(number).as_bytes()),
        }
    }
}

impl Limit {
    /// Returns what remains after this number of requests.
    fn remaining(&self, requests: u64) -> Remaining {
        match self.whole {
            Some(limit) => Remaining::Whole(limit.saturating_sub(requests)),
            None => Remaining::Fraction((self.limit - requests as f64).max(0.0)),
        }
    }

    /// Returns the number of requests that pass. A request passes while the earlier ones are fewer than the limit, so
    /// that a limit with a fraction lets one more pass.
    fn allowance(&self) -> Allowance {
        Allowance {
            period: self.period,
            // The cast keeps within the bounds of the type.
            requests: self.limit.ceil() as u64,
        }
    }
}

impl Identify {
    fn by(config: &Config) -> Result<Self, BuildError> {
        let named = |field: &'static str, value: &Option<CompactString>| {
            let value = value.as_deref().map(Box::from);
            value.ok_or_else(|| BuildError::field(field, "required field missing"))
        };
        Ok(match config.limit_by {
            Some(LimitBy::Consumer) => Self::Consumer,
            Some(LimitBy::Credential) => Self::Credential,
            Some(LimitBy::Ip) | None => Self::Address,
            Some(LimitBy::Service) => Self::Service,
            Some(LimitBy::Header) => Self::Header(named("header_name", &config.header_name)?),
            Some(LimitBy::Path) => Self::Path(named("path", &config.path)?),
        })
    }

    pub(crate) fn identifier<'c>(&'c self, cx: &'c RequestCx<'_, '_>) -> Identifier<'c> {
        let consumer = cx.state.consumer.as_ref();
        let consumer = consumer.map(|consumer| Identifier::Id(consumer.id.0));
        // Lua code may tell a credential without an id.
        let credential =
            (cx.state.credential.as_ref()).filter(|credential| !credential.id.is_nil());
        let credential = credential.map(|credential| match consumer {
            Some(_) if cx.state.told_credential().is_none() => Identifier::Id(credential.id),
            // It is no entity: ldap-auth and Lua code make it of the text that the client sends.
            _ => Identifier::Made(credential.id),
        });
        let found = match self {
            Self::Consumer => consumer.or(credential),
            Self::Credential => credential,
            Self::Address => None,
            Self::Service => cx.request.service.map(|service| Identifier::Id(service.id)),
            Self::Header(name) => cx.request.header(name).map(Identifier::Text),
            Self::Path(path) => {
                // Routing normalizes paths in the same way. So another spelling of the path has no counter of its own.
                let own = normalize(cx.request.head.path().as_bytes(), Slashes::Merge);
                (*own == *path.as_bytes()).then_some(Identifier::Text(path.as_bytes()))
            }
        };
        found.unwrap_or(Identifier::Address(cx.request.client.ip))
    }
}

fn limits(config: &Config) -> Vec<Limit> {
    let configured = [
        config.second,
        config.minute,
        config.hour,
        config.day,
        config.month,
        config.year,
    ];
    let limits = Period::ALL.into_iter().zip(configured);
    let limits = limits.filter_map(|(period, limit)| {
        let limit = limit?;
        Some(Limit {
            period,
            limit,
            // The cast is exact below 2^53.
            whole: (limit.fract() == 0.0 && limit < 9e15).then_some(limit as u64),
            line: HeaderLine::new(period.limit_header(), &shown(limit)),
            lowest_line: HeaderLine::new("RateLimit-Limit", &shown(limit)),
        })
    });
    limits.collect()
}

fn shown(number: f64) -> HeaderValue {
    HeaderValue::Text(number::text(number))
}

/// Builds the response to requests beyond a limit. The gateway turns it into status 500 if the configured status is not
/// one of an error, as Kong does.
fn refusal(config: &Config) -> Response {
    const MESSAGE: &str = "API rate limit exceeded";
    let message: Cow<'static, str> = match config.error_message.as_deref() {
        None | Some(MESSAGE) => MESSAGE.into(),
        Some(message) => message.to_owned().into(),
    };
    let code = config.error_code.unwrap_or(429.0);
    // The cast keeps within the bounds of the type.
    let status = if code.fract() == 0.0 { code as u16 } else { 0 };
    Response::error(status, message)
}

/// Returns the counters of the node. The first plugin that needs them also starts the removal of old ones.
pub(crate) fn counters(node: &Arc<Node>) -> Arc<Counters> {
    let counters = node
        .shared
        .get_or_insert(NAME, "counters", || Counters::new(MAX_COUNTERS));
    if counters.begin_sweeping() {
        let swept = sweep(Arc::clone(&counters), node.clock.clone());
        node.background.spawn_service(swept);
    }
    counters
}

/// Removes old counters now and then. It holds the counters until all their windows are over, so that a plugin that is
/// removed and configured again finds its counts, as in Kong.
async fn sweep(counters: Arc<Counters>, clock: Clock) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let now = clock.since_epoch().as_secs();
        let swept = Arc::clone(&counters);
        // A task of the background must not take long, and many counters do. An error means that the sweep panicked or
        // that the process ends.
        let _ = tokio::task::spawn_blocking(move || swept.sweep(now)).await;
        if !counters.is_empty() {
            continue;
        }
        // A plugin that takes the counters from here on starts another task.
        counters.end_sweeping();
        if Arc::strong_count(&counters) == 1 || !counters.begin_sweeping() {
            return;
        }
    }
}
