//! Settings of the resolver: `dns_*`, or `resolver_*` with `new_dns_client`.

use super::raw::RawSettings;
use super::{flag, number, values};
use net::dns::{DnsSettings, LookupKind, parse_server};
use std::net::SocketAddr;
use std::time::Duration;

/// Kong's maximum, about 136 years.
const MAX_SECONDS: f64 = 4_294_967_295.0;

pub(super) fn settings(raw: &mut RawSettings) -> DnsSettings {
    if flag(raw, "new_dns_client") {
        newer(raw)
    } else {
        legacy(raw)
    }
}

fn legacy(raw: &mut RawSettings) -> DnsSettings {
    DnsSettings {
        servers: servers(raw, "dns_resolver"),
        hosts_file: raw.text("dns_hostsfile").unwrap_or("/etc/hosts").into(),
        order: order(raw),
        valid_ttl: valid_ttl(raw, "dns_valid_ttl"),
        stale_ttl: seconds(number(raw, "dns_stale_ttl")),
        not_found_ttl: seconds(number(raw, "dns_not_found_ttl")),
        error_ttl: seconds(number(raw, "dns_error_ttl")),
        cache_size: number(raw, "dns_cache_size") as usize,
        ..DnsSettings::default()
    }
}

/// Reads the `resolver_*` settings. No setting changes how long it is cached that a name does not exist. It is 30
/// seconds, as in Kong (kong/dns/client.lua DEFAULT_EMPTY_TTL).
fn newer(raw: &mut RawSettings) -> DnsSettings {
    DnsSettings {
        servers: servers(raw, "resolver_address"),
        hosts_file: raw
            .text("resolver_hosts_file")
            .unwrap_or("/etc/hosts")
            .into(),
        order: families(raw),
        valid_ttl: valid_ttl(raw, "resolver_valid_ttl"),
        stale_ttl: seconds(number(raw, "resolver_stale_ttl")),
        error_ttl: seconds(number(raw, "resolver_error_ttl")),
        cache_size: number(raw, "resolver_lru_cache_size") as usize,
        ..DnsSettings::default()
    }
}

fn servers(raw: &mut RawSettings, name: &str) -> Vec<SocketAddr> {
    let listed: Vec<String> = list(raw, name);
    let mut servers = Vec::new();
    for text in listed {
        match parse_server(&text) {
            Some(server) => servers.push(server),
            None => {
                let message = format!("expected an address with or without a port, not `{text}`");
                raw.problem(name, message);
            }
        }
    }
    servers
}

fn order(raw: &mut RawSettings) -> Vec<LookupKind> {
    let all = [
        LookupKind::Last,
        LookupKind::Srv,
        LookupKind::A,
        LookupKind::Aaaa,
        LookupKind::Cname,
    ];
    kinds(raw, "dns_order", &all)
}

/// Returns the record types in the fixed order of the newer client (kong/dns/client.lua resolve_query_types()).
fn families(raw: &mut RawSettings) -> Vec<LookupKind> {
    let all = [LookupKind::Srv, LookupKind::A, LookupKind::Aaaa];
    let chosen = kinds(raw, "resolver_family", &all);
    all.into_iter()
        .filter(|kind| chosen.contains(kind))
        .collect()
}

fn kinds(raw: &mut RawSettings, name: &str, known: &[LookupKind]) -> Vec<LookupKind> {
    let mut kinds = Vec::new();
    for text in list(raw, name) {
        match LookupKind::from_name(&text).filter(|kind| known.contains(kind)) {
            Some(kind) => kinds.push(kind),
            None => {
                let names: Vec<&str> = known.iter().map(|kind| kind.name()).collect();
                let names = names.join(", ");
                raw.problem(name, format!("expected some of {names}, not `{text}`"));
            }
        }
    }
    kinds
}

fn list(raw: &RawSettings, name: &str) -> Vec<String> {
    let text = raw.text(name).unwrap_or_default();
    values::list(text).map(str::to_owned).collect()
}

fn valid_ttl(raw: &mut RawSettings, name: &str) -> Option<Duration> {
    raw.text(name)?;
    let ttl = number(raw, name);
    if ttl < 0.0 {
        raw.problem_without_value(name, "expected a number of seconds from 0");
    }
    Some(seconds(ttl))
}

fn seconds(number: f64) -> Duration {
    Duration::from_secs_f64(number.clamp(0.0, MAX_SECONDS))
}
