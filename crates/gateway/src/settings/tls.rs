//! The `ssl_*` settings of listeners: predefined cipher suites, versions, ciphers and sessions.

use super::raw::RawSettings;
use super::{duration, flag, size};
use net::tls::{
    ServerSettings, SessionSettings, Versions, all_ciphers, read_ciphers, read_versions,
};

/// Number of sessions that nginx stores in a megabyte of `ssl_session_cache`.
const SESSIONS_PER_MEGABYTE: u64 = 4_000;

/// Settings that list TLS versions. All listeners offer only versions that are in every list.
const PROTOCOLS: [&str; 3] = [
    "ssl_protocols",
    "nginx_http_ssl_protocols",
    "nginx_stream_ssl_protocols",
];

/// Returns the TLS settings, which all listeners share. As in Kong, listeners of the Admin API use them too.
pub(super) fn server(raw: &mut RawSettings) -> ServerSettings {
    let named = raw.text("ssl_cipher_suite").unwrap_or("intermediate");
    let named = named.to_owned();
    let custom = named == "custom";
    let mut settings = predefined(&named);
    settings.sessions = sessions(raw);
    if named == "fips" {
        raw.warn(
            "ssl_cipher_suite",
            "fips chooses TLSv1.2 and AES-GCM; the cryptography is not a validated module",
        );
    }
    if named == "old" {
        let message = "old offers TLSv1.2 and TLSv1.3: older versions do not exist here";
        raw.warn("ssl_cipher_suite", message);
    }
    for name in PROTOCOLS {
        let allowed = settings.versions.and(versions(raw, name));
        if allowed.is_empty() {
            raw.problem_without_value(
                name,
                "no TLS version is in this list, in ssl_cipher_suite and in ssl_protocols",
            );
        } else {
            settings.versions = allowed;
        }
    }
    if custom {
        settings.prefer_own_order = flag(raw, "ssl_prefer_server_ciphers");
        custom_ciphers(raw, &mut settings);
    } else if raw.text("ssl_ciphers").is_some() {
        raw.warn_without_value(
            "ssl_ciphers",
            "this setting has no effect unless ssl_cipher_suite is custom",
        );
    }
    settings
}

/// Returns the settings of a predefined cipher suite. Source: kong/conf_loader/constants.lua CIPHER_SUITES.
fn predefined(name: &str) -> ServerSettings {
    let settings = ServerSettings::default();
    match name {
        "modern" => ServerSettings {
            versions: Versions {
                tls12: false,
                tls13: true,
            },
            ..settings
        },
        "fips" => ServerSettings {
            versions: Versions {
                tls12: true,
                tls13: false,
            },
            ciphers: read_ciphers("AESGCM").map_or_else(|_| all_ciphers(), |read| read.value),
            prefer_own_order: true,
            ..settings
        },
        "old" => ServerSettings {
            prefer_own_order: true,
            ..settings
        },
        _ => settings,
    }
}

fn versions(raw: &mut RawSettings, name: &str) -> Versions {
    let Some(text) = raw.text(name) else {
        return Versions::BOTH;
    };
    match read_versions(text) {
        Ok(read) => {
            for lacking in read.lacking {
                raw.warn(name, format!("{lacking} is not offered here"));
            }
            read.value
        }
        Err(error) => {
            raw.problem(name, error);
            Versions::BOTH
        }
    }
}

fn custom_ciphers(raw: &mut RawSettings, settings: &mut ServerSettings) {
    let Some(text) = raw.text("ssl_ciphers") else {
        raw.problem_without_value("ssl_ciphers", "needed when ssl_cipher_suite is custom");
        return;
    };
    match read_ciphers(text) {
        Ok(read) => {
            settings.ciphers = read.value;
            if !read.lacking.is_empty() {
                let message = format!("not offered here: {}", read.lacking.join(", "));
                raw.warn("ssl_ciphers", message);
            }
        }
        Err(error) => raw.problem("ssl_ciphers", error),
    }
}

fn sessions(raw: &RawSettings) -> SessionSettings {
    let cached = size(raw, "ssl_session_cache_size").saturating_mul(SESSIONS_PER_MEGABYTE) >> 20;
    SessionSettings {
        tickets: flag(raw, "ssl_session_tickets"),
        lifetime: duration(raw, "ssl_session_timeout"),
        cached: usize::try_from(cached).unwrap_or(usize::MAX),
    }
}
