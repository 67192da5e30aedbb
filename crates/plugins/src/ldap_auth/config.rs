//! The configuration of ldap-auth, after its schema has set the defaults.

use compact_str::CompactString;
use serde::Deserialize;
use services::ldap::{Security, Settings};
use std::time::Duration;

/// A longer time counts as this one.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// The time limit for `timeout` = 0, which means nginx's default in Kong (`lua_socket_connect_timeout`).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(super) ldap_host: CompactString,
    /// Default: 389.
    pub(super) ldap_port: u16,
    /// Whether the connection uses TLS from the beginning. Default: false.
    pub(super) ldaps: bool,
    /// Whether the connection changes to TLS by the extended request StartTLS. Default: false.
    pub(super) start_tls: bool,
    /// Whether the certificate of the directory is verified. Default: false.
    pub(super) verify_ldap_host: bool,
    /// The distinguished name below which the users are.
    pub(super) base_dn: CompactString,
    /// The attribute that holds the username.
    pub(super) attribute: CompactString,
    /// Seconds for which results are kept; 0 keeps none. Default: 60.
    pub(super) cache_ttl: f64,
    /// Whether to remove the credentials from the request for the upstream. Default: false.
    pub(super) hide_credentials: bool,
    /// Maximum milliseconds of each step of a check. Default: 10000.
    #[serde(default)]
    pub(super) timeout: Option<f64>,
    /// Milliseconds for which an idle connection is kept; 0 has no limit. Default: 60000.
    #[serde(default)]
    pub(super) keepalive: Option<f64>,
    /// Id or username of the consumer for requests without valid credentials. Default: such requests are refused.
    pub(super) anonymous: Option<CompactString>,
    /// The authentication scheme of the header. Default: `ldap`.
    pub(super) header_type: Option<CompactString>,
    /// Realm in the WWW-Authenticate header. Default: none.
    pub(super) realm: Option<CompactString>,
}

impl Config {
    pub(super) fn header_type(&self) -> &str {
        self.header_type.as_deref().unwrap_or("ldap")
    }

    /// The value of the WWW-Authenticate header. Kong writes `ldap` in upper case, for old clients
    /// (kong/plugins/ldap-auth/access.lua, do_authentication).
    pub(super) fn challenge(&self) -> String {
        let scheme = match self.header_type() {
            "ldap" => "LDAP",
            other => other,
        };
        match &self.realm {
            Some(realm) => format!("{scheme} realm=\"{realm}\""),
            None => scheme.to_owned(),
        }
    }

    pub(super) fn settings(&self) -> Settings {
        let security = match (self.ldaps, self.start_tls) {
            (true, _) => Security::Tls,
            (false, true) => Security::StartTls,
            (false, false) => Security::Plain,
        };
        let timeout = match millis(self.timeout.unwrap_or(10_000.0)) {
            Duration::ZERO => DEFAULT_TIMEOUT,
            timeout => timeout,
        };
        let keepalive = match millis(self.keepalive.unwrap_or(60_000.0)) {
            Duration::ZERO => LONGEST,
            keepalive => keepalive,
        };
        Settings {
            host: self.ldap_host.as_str().into(),
            port: self.ldap_port,
            security,
            verify: self.verify_ldap_host,
            timeout,
            keepalive,
        }
    }

    /// How long results are kept.
    pub(super) fn ttl(&self) -> Duration {
        seconds(self.cache_ttl)
    }
}

fn millis(millis: f64) -> Duration {
    seconds(millis / 1000.0)
}

/// A negative number counts as zero.
fn seconds(seconds: f64) -> Duration {
    // YAML can write a number that is none (`.nan`).
    Duration::try_from_secs_f64(seconds.clamp(0.0, LONGEST.as_secs_f64())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_no_times_are_zero_or_the_longest() {
        assert_eq!(seconds(1.5), Duration::from_millis(1500));
        assert_eq!(seconds(-1.0), Duration::ZERO);
        assert_eq!(seconds(f64::NAN), Duration::ZERO);
        assert_eq!(seconds(f64::INFINITY), LONGEST);
    }
}
