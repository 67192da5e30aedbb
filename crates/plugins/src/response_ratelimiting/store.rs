//! The counters of response-ratelimiting: on this node, with those of rate-limiting and their bounds, or in Redis.

use super::Named;
use super::config::{Config, Policy};
use crate::rate_limiting::counters::{Counters, Identifier, Identity};
use crate::rate_limiting::direct::{COUNT, CountError};
use crate::rate_limiting::names::{self, Names};
use crate::rate_limiting::window::{Moment, Period};
use plugin::{BuildError, Node};
use services::redis::{Call, Server, Settings, Value};
use std::net::IpAddr;
use std::str;
use std::sync::Arc;
use uuid::Uuid;

/// Where the counters are, by configuration.
pub(super) enum Store {
    Local,
    Redis(Box<Settings>),
}

/// Where the counters are, from the start of the plugin on.
pub(super) enum Running {
    Local(Arc<Counters>),
    Redis(Server),
}

/// The counters of a client.
pub(super) enum Client {
    Local(Identity),
    Redis(Names),
}

impl Store {
    pub(super) fn new(config: &Config) -> Result<Self, BuildError> {
        Ok(match config.policy {
            Some(Policy::Redis) => Self::Redis(Box::new(config.redis.settings()?)),
            Some(Policy::Local | Policy::Cluster) | None => Self::Local,
        })
    }

    pub(super) fn start(&self, node: &Node, counters: &Arc<Counters>) -> Running {
        match self {
            Self::Local => Running::Local(counters.clone()),
            Self::Redis(settings) => Running::Redis(node.redis.server((**settings).clone())),
        }
    }
}

impl Running {
    pub(super) fn client(
        &self,
        counters: &Counters,
        route: Option<Uuid>,
        service: Option<Uuid>,
        identifier: Identifier<'_>,
        client: IpAddr,
    ) -> Client {
        match self {
            Self::Local(_) => Client::Local(counters.identity(route, service, identifier, client)),
            Self::Redis(server) => {
                let in_cluster = server.is_cluster();
                let plugin = "response-ratelimit";
                Client::Redis(Names::new(plugin, route, service, identifier, in_cluster))
            }
        }
    }

    /// Returns what has been used up, for each limit of each name. `None` if Redis must be asked.
    pub(super) fn used_here(
        &self,
        client: &Client,
        named: &[Named],
        moment: &Moment,
    ) -> Option<Vec<u64>> {
        let (Self::Local(counters), Client::Local(identity)) = (self, client) else {
            return None;
        };
        let used = named.iter().flat_map(|named| {
            let identity = counters.named(*identity, &named.name);
            let limits = named.limits.iter();
            limits.map(move |limit| counters.counted(identity, limit.period, moment))
        });
        Some(used.collect())
    }

    pub(super) async fn used(
        &self,
        client: &Client,
        named: &[Named],
        moment: &Moment,
    ) -> Result<Vec<u64>, CountError> {
        let (Self::Redis(server), Client::Redis(names)) = (self, client) else {
            return Ok(self.used_here(client, named, moment).unwrap_or_default());
        };
        let keys = named.iter().flat_map(|named| {
            let what = format!("{}:", named.name);
            let limits = named.limits.iter();
            limits.map(move |limit| names.current(&what, limit.period, moment))
        });
        let call = Call::command("MGET", keys.collect(), Vec::new());
        let Value::Array(values) = server.run(call).await? else {
            return Err(CountError::NoNumber);
        };
        values
            .iter()
            .map(|value| number(value).ok_or(CountError::NoNumber))
            .collect()
    }

    /// Counts in the windows of all periods, as Kong does: a limit for another period then begins with what was used up
    /// before.
    pub(super) fn add(
        &self,
        node: &Node,
        client: &Client,
        increments: &[(&str, i64)],
        moment: &Moment,
    ) {
        match (self, client) {
            (Self::Local(counters), Client::Local(identity)) => {
                for (name, by) in increments {
                    let identity = counters.named(*identity, name);
                    for period in Period::ALL {
                        counters.add(identity, period, *by, moment);
                    }
                }
            }
            (Self::Redis(server), Client::Redis(names)) => {
                let (mut keys, mut arguments) = (Vec::new(), Vec::new());
                for (name, by) in increments {
                    let what = format!("{name}:");
                    for period in Period::ALL {
                        keys.push(names.current(&what, period, moment));
                        arguments.push(by.to_string().into_bytes());
                        arguments.push(names::lifetime(period));
                    }
                }
                let call = Call::script(&COUNT, keys, arguments);
                let server = server.clone();
                node.background.spawn(async move {
                    // The metrics of the client count the failure, and it logs when Redis cannot be reached.
                    if let Err(error) = server.run(call).await {
                        tracing::debug!(plugin = super::NAME, %error, "a response is not counted");
                    }
                });
            }
            // A client is made by the same store.
            (Self::Local(_), Client::Redis(_)) | (Self::Redis(_), Client::Local(_)) => {}
        }
    }
}

/// Reads a counter. One that does not exist is 0, and so is one below it.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Nil => Some(0),
        Value::BulkString(text) => {
            let number: i64 = str::from_utf8(text).ok()?.parse().ok()?;
            Some(u64::try_from(number).unwrap_or(0))
        }
        _ => None,
    }
}
