//! What the configurations of rate-limiting and response-ratelimiting have in common: limits per period, and the place
//! of the counters.

use crate::rate_limiting::counters::Identifier;
use model::schema::Context;
use model::{Object, Value};
use plugin::Shortcoming;
use std::net::{IpAddr, Ipv6Addr};

const PERIODS: [&str; 6] = ["second", "minute", "hour", "day", "month", "year"];

/// Two periods of which the longer one has the lower limit.
pub(crate) struct Inverted {
    pub(crate) upper: &'static str,
    pub(crate) upper_limit: f64,
    pub(crate) lower: &'static str,
    pub(crate) lower_limit: f64,
}

/// Finds the first pair of periods in which the longer one has the lower limit.
pub(crate) fn inverted(config: &Object) -> Option<Inverted> {
    for (index, lower) in PERIODS.iter().enumerate() {
        let Some(lower_limit) = number(config, lower) else {
            continue;
        };
        for upper in &PERIODS[index + 1..] {
            if let Some(upper_limit) = number(config, upper)
                && upper_limit < lower_limit
            {
                return Some(Inverted {
                    upper,
                    upper_limit,
                    lower,
                    lower_limit,
                });
            }
        }
    }
    None
}

pub(crate) fn number(config: &Object, field: &str) -> Option<f64> {
    match config.get(field)? {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

/// Refuses counters shared through the database if there is none.
pub(crate) fn policy(value: &Value, context: &Context) -> Result<(), Value> {
    if context.dbless && value.as_str() == Some("cluster") {
        return Err("expected one of: local, redis".into());
    }
    Ok(())
}

/// The part of IPv6 addresses that identifies clients. A client often has a whole network of addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ipv6Prefix(u128);

impl Ipv6Prefix {
    /// Default: the whole address.
    pub(crate) fn new(bits: Option<u8>) -> Self {
        let bits = u32::from(bits.unwrap_or(128)).min(128);
        Self(u128::MAX.checked_shl(128 - bits).unwrap_or(0))
    }

    pub(crate) fn applied(self, identifier: Identifier<'_>) -> Identifier<'_> {
        match identifier {
            Identifier::Address(IpAddr::V6(address)) => {
                Identifier::Address(Ipv6Addr::from_bits(address.to_bits() & self.0).into())
            }
            other => other,
        }
    }
}

/// Finds the policies that are not implemented.
pub(crate) fn shortcoming(config: &Value) -> Option<Shortcoming> {
    match config.as_object()?.str("policy")? {
        "cluster" => Some(Shortcoming {
            setting: "the policy cluster",
            instead: Some("it counts on each node as the policy local does"),
        }),
        _ => None,
    }
}
