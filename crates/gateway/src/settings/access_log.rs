//! Settings of access logs, such as `proxy_access_log`. A value has the form of nginx's directive: `off`, or a target
//! and the name of a format.

use super::LogTarget;
use super::raw::RawSettings;
use proxy::access_log::Format;
use std::path::Path;
use std::sync::Arc;

/// Settings of all access logs. `None` means that nothing is logged.
#[derive(Debug, Clone)]
pub(crate) struct AccessLogsSettings {
    pub(crate) proxy: Option<AccessLogSettings>,
    pub(crate) stream: Option<AccessLogSettings>,
    pub(crate) admin: Option<AccessLogSettings>,
    pub(crate) status: Option<AccessLogSettings>,
}

#[derive(Debug, Clone)]
pub(crate) struct AccessLogSettings {
    pub(crate) target: LogTarget,
    pub(crate) format: Arc<Format>,
}

/// Setting with a log format that the operator defines.
const DIRECTIVE: &str = "nginx_http_log_format";

pub(super) fn settings(raw: &mut RawSettings, prefix: &Path) -> AccessLogsSettings {
    let own = match raw.text(DIRECTIVE).map(Format::directive) {
        None => None,
        Some(Ok((name, format))) => Some((name, format)),
        Some(Err(error)) => {
            raw.problem(DIRECTIVE, error);
            None
        }
    };
    for name in own.iter().flat_map(|(_, format)| format.without_value()) {
        let known = match name.as_str() {
            "http_authorization" | "http_proxy_authorization" => {
                "shows only whether there are credentials"
            }
            _ => "has no value here, and `-` is logged",
        };
        raw.warn(DIRECTIVE, format_args!("`${name}` {known}"));
    }
    let redacts = raw.text("log_redact") != Some("off");
    let own = own.map(|(name, format)| (name, Arc::new(format.redacting(redacts))));
    let mut log = |setting, usual| {
        let own = own.as_ref();
        log_settings(raw, setting, usual, (own, redacts), prefix)
    };
    AccessLogsSettings {
        // The first two formats are Kong's (kong/templates/nginx_kong.lua), the other two are nginx's default.
        proxy: log("proxy_access_log", "kong_log_format"),
        stream: log("proxy_stream_access_log", "basic"),
        admin: log("admin_access_log", "combined"),
        status: log("status_access_log", "combined"),
    }
}

fn log_settings(
    raw: &mut RawSettings,
    setting: &str,
    usual: &str,
    (own, redacts): (Option<&(String, Arc<Format>)>, bool),
    prefix: &Path,
) -> Option<AccessLogSettings> {
    let text = raw.text(setting)?.to_owned();
    let mut words = text.split_whitespace();
    let target = LogTarget::parse(words.next()?, prefix);
    let name = words.next().unwrap_or(usual);
    if let Some(more) = words.next() {
        raw.problem(
            setting,
            format!("`{more}` is not known: expected a target and the name of a format"),
        );
        return None;
    }
    if matches!(&target, LogTarget::File(_)) && text.starts_with("syslog:") {
        raw.problem(
            setting,
            "syslog is not available; a file, /dev/stdout and /dev/stderr are",
        );
        return None;
    }
    let format = match own.filter(|(own, _)| own == name) {
        Some((_, format)) => Ok(Arc::clone(format)),
        None => Format::named(name).map(|format| Arc::new(format.redacting(redacts))),
    };
    match format {
        Ok(_) if target == LogTarget::Off => None,
        Ok(format) => Some(AccessLogSettings { target, format }),
        Err(error) => {
            raw.problem(setting, error);
            None
        }
    }
}
