//! The program's settings under the names of Kong's `kong.conf`: read from file, environment and flags, converted to
//! types and cross-checked.
//!
//! There are two layers: [`raw::RawSettings`] has texts with their sources, and [`Settings`] has the values that the
//! program uses. All problems are collected and reported together. `commands` reads the environment and the settings
//! file, and passes them as [`Inputs`].

mod access_log;
mod admin;
mod certificates;
mod directives;
mod dns;
mod docs;
mod file;
mod headers;
mod listen;
mod raw;
mod shown;
mod table;
#[cfg(test)]
mod tests;
mod tls;
mod tokens;
mod values;

pub(crate) use access_log::AccessLogsSettings;
pub(crate) use admin::{AUTHORITIES, AdminSettings};
pub(crate) use certificates::PemSource;
pub(crate) use docs::{page, sample};
pub(crate) use net::listen::Listen;
pub(crate) use raw::{Inputs, Origins, Problem};
pub(crate) use tokens::TokenSettings;

use ::admin::control::LogLevel;
use certificates::{
    certificates, client_certificate, pem_source, pem_sources, warn_of_unused_certificates,
};
use listen::Purpose;
use model::schema::{EnabledPlugins, RouterFlavor};
use net::tls::ServerSettings;
use plugin::{LuaSettings, UntrustedLua};
use proxy::respond::Injection;
use proxy::session::{ConnectionLimits, MinRate, UpstreamLimits};
use raw::RawSettings;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::Retention;
use uuid::Uuid;

/// Settings files that are tried in this order if the flag `--conf` is missing.
pub(crate) const SEARCHED_FILES: [&str; 3] = [
    "/etc/silverback/silverback.conf",
    "/etc/kong/kong.conf",
    "/etc/kong.conf",
];

/// All settings, checked. They never change: a reload creates new ones.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) prefix: PathBuf,
    pub(crate) node_id: Option<Uuid>,
    pub(crate) workers: usize,
    pub(crate) metrics: MetricsSettings,
    pub(crate) drain: DrainSettings,
    pub(crate) log: LogSettings,
    pub(crate) access_logs: AccessLogsSettings,
    pub(crate) proxy_listen: Vec<Listen>,
    pub(crate) stream_listen: Vec<Listen>,
    pub(crate) admin_listen: Vec<Listen>,
    pub(crate) admin_certificates: Vec<(PemSource, PemSource)>,
    /// TLS settings of all listeners.
    pub(crate) tls: ServerSettings,
    pub(crate) status_listen: Vec<Listen>,
    pub(crate) status_certificates: Vec<(PemSource, PemSource)>,
    pub(crate) store: StoreSettings,
    pub(crate) model: ModelSettings,
    pub(crate) proxy: ProxySettings,
    pub(crate) dns: net::dns::DnsSettings,
    pub(crate) admin: AdminSettings,
    pub(crate) tokens: TokenSettings,
    /// Names and sources of the given settings, for messages.
    pub(crate) origins: Origins,
    /// All settings under their Kong names, for the Admin API. Sensitive values are masked, and references are shown in
    /// place of their values.
    pub(crate) shown: serde_json::Value,
}

/// Time limits of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrainSettings {
    /// Time between announcing the shutdown and closing the listeners.
    pub(crate) delay: Duration,
    /// Maximum time for requests in flight after the listeners are closed.
    pub(crate) timeout: Duration,
    /// Maximum time for requests in flight after an upgrade. `None` means no limit.
    pub(crate) upgrade_timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogSettings {
    pub(crate) level: LogLevel,
    pub(crate) format: LogFormat,
    pub(crate) target: LogTarget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogTarget {
    Stderr,
    Stdout,
    File(PathBuf),
    Off,
}

impl LogTarget {
    /// Parses `/dev/stderr`, `/dev/stdout`, `off`, or a file name relative to the prefix.
    fn parse(text: &str, prefix: &Path) -> Self {
        match text {
            "/dev/stderr" => Self::Stderr,
            "/dev/stdout" => Self::Stdout,
            "off" => Self::Off,
            path => Self::File(prefix.join(path)),
        }
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stderr => formatter.write_str("/dev/stderr"),
            Self::Stdout => formatter.write_str("/dev/stdout"),
            Self::Off => formatter.write_str("off"),
            Self::File(path) => path.display().fmt(formatter),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreSettings {
    pub(crate) database: Database,
    pub(crate) path: PathBuf,
    /// `None` means the store's default.
    pub(crate) max_size: Option<u64>,
    pub(crate) retention: Retention,
}

impl StoreSettings {
    pub(crate) fn options(&self) -> store::Options {
        let mut options = store::Options {
            retention: self.retention,
            ..store::Options::default()
        };
        if let Some(size) = self.max_size {
            options.max_size = usize::try_from(size).unwrap_or(options.max_size);
        }
        options
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Database {
    Lmdb,
    Off(Declarative),
}

/// Source of the declarative configuration in DB-less mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Declarative {
    File(PathBuf),
    Text(String),
    /// The configuration that the last run left in the store, or an empty one.
    Persisted,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct MetricsSettings {
    pub(crate) max_series: usize,
    /// Whether the latencies of Kong's metrics are native histograms too.
    pub(crate) native: bool,
    /// Whether `/metrics` offers OpenMetrics.
    pub(crate) openmetrics: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ModelSettings {
    pub(crate) flavor: RouterFlavor,
    pub(crate) plugins: EnabledPlugins,
    pub(crate) strict_calculation: bool,
    pub(crate) lua: LuaSettings,
    pub(crate) times_plugins: bool,
    pub(crate) records_reason: bool,
}

/// Settings of the proxy, not yet converted to the types of the data plane.
#[derive(Debug, Clone)]
pub(crate) struct ProxySettings {
    pub(crate) headers: Vec<String>,
    pub(crate) headers_upstream: Vec<String>,
    pub(crate) trusted_ips: Vec<String>,
    pub(crate) error_default_type: String,
    pub(crate) allow_debug_header: bool,
    pub(crate) keepalive_pool_size: usize,
    pub(crate) keepalive_max_requests: u64,
    pub(crate) keepalive_idle_timeout: Duration,
    pub(crate) client_max_body: u64,
    /// Number and size of the buffers for a request head.
    pub(crate) header_buffers: (usize, usize),
    pub(crate) header_lines: usize,
    /// Maximum size of a body that plugins can read.
    pub(crate) body_buffer: u64,
    pub(crate) max_headers: usize,
    pub(crate) max_arguments: usize,
    pub(crate) client_header_timeout: Duration,
    pub(crate) client_body_timeout: Duration,
    pub(crate) client_keepalive_timeout: Duration,
    pub(crate) client_send_timeout: Duration,
    pub(crate) client_max_requests: u32,
    pub(crate) ignore_client_abort: bool,
    /// Maximum number of response bytes that are read ahead of a slow client.
    pub(crate) read_ahead: usize,
    pub(crate) body_memory: u64,
    /// Maximum bytes of what plugins cache.
    pub(crate) cache_size: u64,
    pub(crate) connections: ConnectionLimits,
    pub(crate) min_rate: MinRate,
    pub(crate) upstream: UpstreamLimits,
    pub(crate) injections: Vec<Injection>,
    /// Whether text responses without a charset get one.
    pub(crate) charset: bool,
    pub(crate) real_ip_header: String,
    pub(crate) real_ip_recursive: bool,
    pub(crate) port_maps: Vec<(u16, u16)>,
    pub(crate) certificates: Vec<(PemSource, PemSource)>,
    /// Client certificate for upstreams that request one.
    pub(crate) client_certificate: Option<(PemSource, PemSource)>,
    /// Whether `nginx_proxy_proxy_http_version` is 2.
    pub(crate) upstream_http2: bool,
    pub(crate) http2_streams: u32,
    pub(crate) http2_stream_window: u32,
    pub(crate) verify_upstream: bool,
    pub(crate) verify_upstream_depth: u8,
    pub(crate) trusted_upstream: Option<PathBuf>,
    /// CA bundles that active health checks trust.
    pub(crate) trusted_bundles: Vec<PemSource>,
    pub(crate) trusted_bundles_depth: u8,
    pub(crate) upstream_common_name: bool,
    /// Files in the order of [`ERROR_TEMPLATES`].
    pub(crate) error_templates: [Option<PathBuf>; 4],
}

pub(crate) const ERROR_TEMPLATES: [&str; 4] = [
    "error_template_json",
    "error_template_html",
    "error_template_xml",
    "error_template_plain",
];

/// The settings or all problems with them, and the warnings in both cases.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) settings: Result<Settings, Vec<Problem>>,
    pub(crate) warnings: Vec<Problem>,
}

/// Converts the inputs to settings. `declarative` is the declarative file named on the command line.
pub(crate) fn resolve(inputs: Inputs, declarative: Option<&Path>) -> Resolved {
    let mut raw = RawSettings::gather(inputs);
    let settings = typed(&mut raw, declarative);
    let problems = std::mem::take(&mut raw.problems);
    Resolved {
        settings: if problems.is_empty() {
            Ok(settings)
        } else {
            Err(problems)
        },
        warnings: raw.warnings,
    }
}

/// The names of all settings, each under one name only.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let settings = table::table().iter();
    let own = settings.filter(|setting| setting.alias_of.is_none());
    own.map(|setting| setting.name.as_str())
}

/// Returns the name of the setting that an environment variable sets.
pub(crate) fn setting_of_variable(variable: &str) -> Option<String> {
    let (program, name) = variable.split_once('_')?;
    let name = name.to_ascii_lowercase();
    let is_setting = table::table().by_name(&name).is_some() || table::is_dynamic(&name);
    (matches!(program, "KONG" | "SILVERBACK") && is_setting).then_some(name)
}

fn typed(raw: &mut RawSettings, declarative: Option<&Path>) -> Settings {
    refuse_other_roles(raw);
    let prefix = PathBuf::from(raw.text("prefix").unwrap_or("/usr/local/kong/"));
    if raw.text("prefix").is_none() {
        raw.problem_without_value("prefix", "expected a directory");
    }
    let store = store_settings(raw, &prefix, declarative);
    warn_of_unused_certificates(raw);
    Settings {
        node_id: raw
            .text("node_id")
            .and_then(|text| Uuid::try_parse(text).ok()),
        workers: workers(raw),
        metrics: MetricsSettings {
            max_series: number(raw, "metrics_max_series") as usize,
            native: flag(raw, "metrics_native_histograms"),
            openmetrics: flag(raw, "metrics_openmetrics"),
        },
        drain: DrainSettings {
            delay: Duration::from_secs_f64(number(raw, "drain_delay")),
            timeout: Duration::from_secs_f64(number(raw, "drain_timeout")),
            upgrade_timeout: raw
                .text("nginx_main_worker_shutdown_timeout")
                .and_then(|text| values::duration(text).ok()),
        },
        log: log_settings(raw, &prefix),
        access_logs: access_log::settings(raw, &prefix),
        proxy_listen: listeners(raw, "proxy_listen", Purpose::Http),
        stream_listen: listeners(raw, "stream_listen", Purpose::Stream),
        admin_listen: listeners(raw, "admin_listen", Purpose::Control),
        admin_certificates: certificates(raw, "admin_ssl_cert", "admin_ssl_cert_key"),
        tls: tls::server(raw),
        status_listen: listeners(raw, "status_listen", Purpose::Control),
        status_certificates: certificates(raw, "status_ssl_cert", "status_ssl_cert_key"),
        model: model_settings(raw),
        proxy: proxy_settings(raw, &prefix),
        dns: dns::settings(raw),
        admin: admin::settings(raw, &prefix),
        tokens: tokens::settings(raw, &prefix),
        origins: raw.origins(),
        shown: shown::all(raw, &store.database),
        store,
        prefix,
    }
}

fn refuse_other_roles(raw: &mut RawSettings) {
    if let Some(role @ ("control_plane" | "data_plane")) = raw.text("role") {
        let message = format!("{role} is not available yet; traditional is");
        raw.problem("role", message);
    }
}

fn workers(raw: &RawSettings) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let text = raw.text("nginx_main_worker_processes").unwrap_or("auto");
    values::workers(text, processors).unwrap_or(processors)
}

fn log_settings(raw: &RawSettings, prefix: &Path) -> LogSettings {
    LogSettings {
        level: raw
            .text("log_level")
            .and_then(LogLevel::from_name)
            .unwrap_or(LogLevel::Notice),
        format: match raw.text("log_format") {
            Some("json") => LogFormat::Json,
            _ => LogFormat::Text,
        },
        target: match raw.text("proxy_error_log") {
            None => LogTarget::Stderr,
            Some(text) => LogTarget::parse(text, prefix),
        },
    }
}

fn listeners(raw: &mut RawSettings, name: &str, purpose: Purpose) -> Vec<Listen> {
    let Some(text) = raw.text(name) else {
        return Vec::new();
    };
    match listen::parse(text, purpose) {
        Ok(listeners) => listeners,
        Err(errors) => {
            for error in errors {
                raw.problem(name, error);
            }
            Vec::new()
        }
    }
}

/// Reads the limits of the history. In each setting, 0 means no limit.
fn retention(raw: &RawSettings) -> Retention {
    let limit = |limit: u64| if limit == 0 { u64::MAX } else { limit };
    let age = duration(raw, "history_max_age");
    Retention {
        revisions: limit(number(raw, "history_max_revisions") as u64),
        age: if age.is_zero() { Duration::MAX } else { age },
        bytes: limit(size(raw, "history_max_size")),
    }
}

fn store_settings(raw: &mut RawSettings, prefix: &Path, file: Option<&Path>) -> StoreSettings {
    let path = raw
        .text("lmdb_environment_path")
        .unwrap_or("silverback.lmdb");
    StoreSettings {
        path: prefix.join(path),
        max_size: raw
            .text("lmdb_map_size")
            .and_then(|text| values::size(text).ok()),
        retention: retention(raw),
        database: database(raw, file),
    }
}

/// Returns the `database` setting. If it is not set, the default is `off` with a declarative configuration and `lmdb`
/// without one.
fn database(raw: &mut RawSettings, file: Option<&Path>) -> Database {
    let declarative = declarative(raw, file);
    match raw.text("database") {
        None if declarative == Declarative::Persisted => Database::Lmdb,
        None | Some("off") => Database::Off(declarative),
        Some("lmdb") => {
            refuse_file_with_lmdb(raw, file);
            Database::Lmdb
        }
        Some(other) => {
            let message = format!("{other} is not available yet; lmdb and off are");
            raw.problem("database", message);
            Database::Lmdb
        }
    }
}

fn declarative(raw: &RawSettings, file: Option<&Path>) -> Declarative {
    if let Some(file) = file {
        return Declarative::File(file.to_owned());
    }
    // If both are set, the file wins, as in Kong.
    match (
        raw.text("declarative_config"),
        raw.text("declarative_config_string"),
    ) {
        (Some(path), _) => Declarative::File(path.into()),
        (None, Some(text)) => Declarative::Text(text.to_owned()),
        (None, None) => Declarative::Persisted,
    }
}

fn refuse_file_with_lmdb(raw: &mut RawSettings, file: Option<&Path>) {
    if file.is_some() {
        raw.problem_without_value(
            "database",
            "with lmdb the store holds the configuration: start without FILE, then run `silverback import FILE`. To serve \
             the file itself, use `database = off`",
        );
    }
    for name in ["declarative_config", "declarative_config_string"] {
        if raw.text(name).is_some() {
            raw.warn_without_value(name, "this setting has no effect here: `database = lmdb` keeps the configuration in its store");
        }
    }
}

fn model_settings(raw: &mut RawSettings) -> ModelSettings {
    let flavor = match raw.text("router_flavor") {
        Some("traditional") => RouterFlavor::Traditional,
        Some("expressions") => RouterFlavor::Expressions,
        _ => RouterFlavor::TraditionalCompatible,
    };
    ModelSettings {
        flavor,
        plugins: enabled_plugins(raw),
        strict_calculation: raw.text("route_match_calculation") == Some("strict"),
        lua: LuaSettings {
            untrusted: match raw.text("untrusted_lua") {
                Some("off") => UntrustedLua::Off,
                Some("on") => UntrustedLua::On,
                _ => UntrustedLua::Sandbox,
            },
            sandbox_requires: texts(raw, "untrusted_lua_sandbox_requires").into(),
            sandbox_environment: texts(raw, "untrusted_lua_sandbox_environment").into(),
        },
        times_plugins: flag(raw, "plugin_time_metrics"),
        records_reason: flag(raw, "log_record_reason"),
    }
}

fn enabled_plugins(raw: &mut RawSettings) -> EnabledPlugins {
    let mut names = texts(raw, "plugins");
    let bundled = names.iter().any(|name| name == "bundled");
    names.retain(|name| name != "off" && name != "bundled");
    for name in &names {
        if model::schema::registry().plugin(name).is_none() {
            let known = model::schema::registry().plugins();
            let known = known.map(|plugin| plugin.name);
            let message = match model::nearest(name, known) {
                Some(known) => format!("there is no plugin `{name}`; did you mean `{known}`?"),
                None => format!("there is no plugin `{name}` here"),
            };
            raw.problem("plugins", message);
        }
    }
    if bundled {
        EnabledPlugins::Bundled
    } else {
        EnabledPlugins::Only(names.into_iter().collect())
    }
}

fn proxy_settings(raw: &mut RawSettings, prefix: &Path) -> ProxySettings {
    ProxySettings {
        headers: response_headers(raw),
        headers_upstream: texts(raw, "headers_upstream"),
        trusted_ips: trusted_ips(raw),
        error_default_type: raw
            .text("error_default_type")
            .unwrap_or("text/plain")
            .to_owned(),
        allow_debug_header: flag(raw, "allow_debug_header"),
        keepalive_pool_size: number(raw, "upstream_keepalive_pool_size") as usize,
        keepalive_max_requests: number(raw, "upstream_keepalive_max_requests") as u64,
        keepalive_idle_timeout: Duration::from_secs_f64(number(
            raw,
            "upstream_keepalive_idle_timeout",
        )),
        client_max_body: size(raw, "nginx_http_client_max_body_size"),
        header_buffers: raw
            .text("nginx_http_large_client_header_buffers")
            .and_then(|text| values::buffers(text).ok())
            .unwrap_or((4, 8192)),
        header_lines: number(raw, "nginx_http_max_headers") as usize,
        body_buffer: size(raw, "nginx_http_client_body_buffer_size"),
        max_headers: number(raw, "lua_max_req_headers") as usize,
        max_arguments: number(raw, "lua_max_uri_args") as usize,
        client_header_timeout: duration(raw, "nginx_http_client_header_timeout"),
        client_body_timeout: duration(raw, "nginx_http_client_body_timeout"),
        client_keepalive_timeout: duration(raw, "nginx_http_keepalive_timeout"),
        client_send_timeout: duration(raw, "nginx_http_send_timeout"),
        client_max_requests: number(raw, "nginx_http_keepalive_requests") as u32,
        ignore_client_abort: flag(raw, "nginx_proxy_proxy_ignore_client_abort"),
        read_ahead: raw
            .text("nginx_proxy_proxy_buffers")
            .and_then(|text| values::buffers(text).ok())
            .map_or(0, |(number, size)| number * size),
        body_memory: size(raw, "body_memory"),
        cache_size: size(raw, "mem_cache_size"),
        connections: ConnectionLimits {
            all: number(raw, "max_connections") as usize,
            per_client: number(raw, "max_connections_per_client") as u32,
        },
        min_rate: MinRate {
            bytes: size(raw, "client_min_rate"),
            grace: duration(raw, "client_min_rate_grace"),
        },
        upstream: UpstreamLimits {
            requests: number(raw, "upstream_max_requests") as usize,
            queue: number(raw, "upstream_max_queue") as usize,
            wait: duration(raw, "upstream_queue_timeout"),
        },
        injections: headers::injections(raw),
        charset: charset(raw),
        real_ip_header: raw
            .text("nginx_proxy_real_ip_header")
            .unwrap_or("X-Real-IP")
            .to_owned(),
        real_ip_recursive: flag(raw, "nginx_proxy_real_ip_recursive"),
        port_maps: port_maps(raw),
        certificates: certificates(raw, "ssl_cert", "ssl_cert_key"),
        client_certificate: client_certificate(raw),
        upstream_http2: raw.text("nginx_proxy_proxy_http_version") == Some("2"),
        http2_streams: number(raw, "nginx_http_http2_max_concurrent_streams") as u32,
        http2_stream_window: u32::try_from(size(raw, "nginx_http_http2_body_preread_size"))
            .unwrap_or(u32::MAX),
        verify_upstream: flag(raw, "nginx_proxy_proxy_ssl_verify"),
        verify_upstream_depth: number(raw, "nginx_proxy_proxy_ssl_verify_depth") as u8,
        trusted_upstream: raw
            .text("nginx_proxy_proxy_ssl_trusted_certificate")
            .map(|path| prefix.join(path)),
        trusted_bundles: trusted_bundles(raw, &SYSTEM_BUNDLES),
        trusted_bundles_depth: number(raw, "lua_ssl_verify_depth") as u8,
        upstream_common_name: flag(raw, "upstream_tls_common_name"),
        error_templates: ERROR_TEMPLATES.map(|name| raw.text(name).map(PathBuf::from)),
    }
}

/// Names that `headers` may contain. Other names are refused, as in Kong.
const RESPONSE_HEADERS: [&str; 10] = [
    "server_tokens",
    "latency_tokens",
    "server",
    "via",
    "x-kong-proxy-latency",
    "x-kong-response-latency",
    "x-kong-upstream-latency",
    "x-kong-admin-latency",
    "x-kong-upstream-status",
    "x-kong-request-id",
];

/// Files in which operating systems keep trusted CA certificates. The first one that exists is used.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/cert.pem",
];

/// Returns the bundles that `lua_ssl_trusted_certificate` names. `system` names the first of `of_system` that exists. If
/// none exists, it is left out, as in Kong. There is a warning only if `system` was written, because the default matters
/// only to checks that verify certificates.
fn trusted_bundles(raw: &mut RawSettings, of_system: &[&str]) -> Vec<PemSource> {
    const SETTING: &str = "lua_ssl_trusted_certificate";
    let mut named = pem_sources(raw, SETTING);
    let of_system = of_system.iter().map(Path::new).find(|path| path.exists());
    let mut lacks_system = false;
    named.retain_mut(|source| match source {
        PemSource::File { path, reference } if path == Path::new("system") => {
            *reference = None;
            lacks_system = of_system.is_none();
            of_system.map(|found| found.clone_into(path)).is_some()
        }
        _ => true,
    });
    if lacks_system && raw.source(SETTING) != raw::Source::Default {
        raw.warn_without_value(
            SETTING,
            "the operating system has no CA bundle, so `system` names no authorities: name a file",
        );
    }
    named
}

fn response_headers(raw: &mut RawSettings) -> Vec<String> {
    let headers: Vec<String> = texts(raw, "headers")
        .into_iter()
        .map(|name| name.to_ascii_lowercase())
        .collect();
    for name in headers.iter().filter(|name| *name != "off") {
        if !RESPONSE_HEADERS.contains(&name.as_str()) {
            raw.problem(
                "headers",
                format!("no header `{name}` is added by the gateway"),
            );
        }
    }
    headers
}

/// Whether text responses without a charset get one. Only Kong's charset, UTF-8, is supported.
fn charset(raw: &mut RawSettings) -> bool {
    const SETTING: &str = "nginx_http_charset";
    match raw.text(SETTING) {
        None | Some("off") => false,
        Some(name) => {
            if !name.eq_ignore_ascii_case("utf-8") {
                raw.problem(SETTING, "expected UTF-8 or off");
            }
            true
        }
    }
}

fn trusted_ips(raw: &mut RawSettings) -> Vec<String> {
    let entries = texts(raw, "trusted_ips");
    for entry in &entries {
        if entry != "unix:" && !is_network(entry) {
            raw.problem(
                "trusted_ips",
                format!("`{entry}` is no address, CIDR or unix:"),
            );
        }
    }
    entries
}

fn is_network(text: &str) -> bool {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return false;
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    bits.is_none_or(|bits| bits.parse::<u8>().is_ok_and(|bits| bits <= most))
}

fn port_maps(raw: &mut RawSettings) -> Vec<(u16, u16)> {
    let mut maps = Vec::new();
    for entry in texts(raw, "port_maps") {
        let ports = entry
            .split_once(':')
            .and_then(|(public, actual)| Some((public.parse().ok()?, actual.parse().ok()?)));
        match ports {
            Some(ports) => maps.push(ports),
            None => raw.problem(
                "port_maps",
                format!("`{entry}`: expected `<published port>:<port>`"),
            ),
        }
    }
    maps
}

// === Reading values that the table has already checked ===

fn texts(raw: &RawSettings, name: &str) -> Vec<String> {
    let text = raw.text(name).unwrap_or_default();
    values::list(text).map(str::to_owned).collect()
}

fn number(raw: &RawSettings, name: &str) -> f64 {
    raw.text(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0)
}

fn flag(raw: &RawSettings, name: &str) -> bool {
    raw.text(name)
        .is_some_and(|text| matches!(text, "on" | "true"))
}

fn size(raw: &RawSettings, name: &str) -> u64 {
    raw.text(name)
        .and_then(|text| values::size(text).ok())
        .unwrap_or(0)
}

fn duration(raw: &RawSettings, name: &str) -> Duration {
    raw.text(name)
        .and_then(|text| values::duration(text).ok())
        .unwrap_or_default()
}
