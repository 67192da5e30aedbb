//! The normal form of a target: `host:port`, port 8000 when none is given, IPv4 without leading zeros, IPv6 expanded in
//! brackets. Source: kong/db/schema/entities/targets.lua, kong/tools/ip.lua.

use crate::entities::find::DEFAULT_TARGET_PORT;
use model::{Object, Value};
use std::net::Ipv6Addr;

pub(crate) fn normalise(target: &mut Object) {
    if let Some(normal) = target.str("target").map(normal_form) {
        target.insert("target", Value::from(normal));
    }
}

/// For a target that its schema has accepted.
fn normal_form(text: &str) -> String {
    let default = &DEFAULT_TARGET_PORT[1..];
    if let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let port = rest.strip_prefix(':').unwrap_or(default);
        return format!("{}:{port}", expanded(address));
    }
    match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => format!("{}:{default}", expanded(text)),
        Some((host, port)) => format!("{}:{port}", without_leading_zeros(host)),
        None => format!("{}:{default}", without_leading_zeros(text)),
    }
}

/// What is shown of a target that a declarative configuration gave without a port.
pub(crate) fn with_port(text: &str) -> String {
    let has_port = match text.rsplit_once(']') {
        Some((_, rest)) => rest.starts_with(':'),
        None => text.matches(':').count() == 1,
    };
    if has_port {
        text.to_owned()
    } else {
        normal_form(text)
    }
}

fn expanded(address: &str) -> String {
    let Ok(address) = address.parse::<Ipv6Addr>() else {
        return format!("[{address}]");
    };
    let groups = address.segments().map(|group| format!("{group:04x}"));
    format!("[{}]", groups.join(":"))
}

fn without_leading_zeros(host: &str) -> String {
    let parts: Vec<&str> = host.split('.').collect();
    let is_address = parts.len() == 4
        && parts
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_address {
        return host.to_owned();
    }
    let short = parts.iter().map(|part| match part.trim_start_matches('0') {
        "" => "0",
        short => short,
    });
    short.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_take_their_normal_form() {
        for (given, normal) in [
            ("a.test", "a.test:8000"),
            ("a.test:80", "a.test:80"),
            ("001.2.3.040:80", "1.2.3.40:80"),
            ("0.0.0.0", "0.0.0.0:8000"),
            ("[::1]:80", "[0000:0000:0000:0000:0000:0000:0000:0001]:80"),
            ("::1", "[0000:0000:0000:0000:0000:0000:0000:0001]:8000"),
        ] {
            assert_eq!(normal_form(given), normal, "{given}");
        }
    }

    #[test]
    fn a_port_is_added_where_there_is_none() {
        assert_eq!(with_port("a.test"), "a.test:8000");
        assert_eq!(with_port("a.test:1"), "a.test:1");
        assert_eq!(with_port("[::1]:1"), "[::1]:1");
    }
}
