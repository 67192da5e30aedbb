//! Settings of the Admin API: access to it, and limits for its clients.

use super::raw::RawSettings;
use super::{LogTarget, PemSource, duration, flag, number, pem_source, size, texts};
use ::admin::Limits;
use ::admin::tokens::Role;
use net::tls::WithoutCertificate;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub(crate) struct AdminSettings {
    pub(crate) max_body: u64,
    /// Limits for clients of the Admin API and of the Status API.
    pub(crate) limits: Limits,
    pub(crate) tokens_file: PathBuf,
    pub(crate) audit_log: Option<LogTarget>,
    /// `None` means that no client certificates are requested.
    pub(crate) clients: Option<ClientCertificates>,
    /// Whether clients need no authentication, not even from other machines.
    pub(crate) allow_unauthenticated: bool,
    /// Origins from which browsers may call the Admin API. Empty means any origin.
    pub(crate) gui_origins: Vec<String>,
}

/// Settings for client certificates.
#[derive(Debug, Clone)]
pub(crate) struct ClientCertificates {
    pub(crate) authorities: PemSource,
    pub(crate) without: WithoutCertificate,
    pub(crate) role: Role,
}

/// Name of the setting for [`ClientCertificates::authorities`].
pub(crate) const AUTHORITIES: &str = "nginx_admin_ssl_client_certificate";

pub(super) fn settings(raw: &mut RawSettings, prefix: &Path) -> AdminSettings {
    let tokens_file = raw.text("admin_tokens_file").map(|path| prefix.join(path));
    if tokens_file.is_none() {
        raw.problem_without_value("admin_tokens_file", "expected the name of a file");
    }
    AdminSettings {
        max_body: size(raw, "nginx_admin_client_max_body_size"),
        limits: limits(raw),
        tokens_file: tokens_file.unwrap_or_default(),
        audit_log: (raw.text("admin_audit_log"))
            .map(|text| LogTarget::parse(text, prefix))
            .filter(|target| *target != LogTarget::Off),
        clients: client_certificates(raw, prefix),
        allow_unauthenticated: flag(raw, "admin_allow_unauthenticated"),
        gui_origins: gui_origins(raw),
    }
}

/// Returns the origins of Kong Manager's URLs. A URL may have a path, which is dropped. Source:
/// kong/conf_loader/init.lua (admin_gui_origin).
fn gui_origins(raw: &mut RawSettings) -> Vec<String> {
    const URLS: &str = "admin_gui_url";
    let mut origins = Vec::new();
    for url in texts(raw, URLS) {
        match origin(&url) {
            Some(origin) => origins.push(origin),
            None => raw.problem(URLS, format!("'{url}' is no URL with a scheme and a host")),
        }
    }
    origins
}

fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let is_fine = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    (is_fine(scheme) && is_fine(authority)).then(|| format!("{scheme}://{authority}"))
}

fn client_certificates(raw: &mut RawSettings, prefix: &Path) -> Option<ClientCertificates> {
    const VERIFY: &str = "nginx_admin_ssl_verify_client";
    let authorities = pem_source(raw, AUTHORITIES).map(|source| source.within(prefix));
    let without = match raw.text(VERIFY) {
        Some("on") => WithoutCertificate::Fail,
        Some("off") => return None,
        _ => WithoutCertificate::Continue,
    };
    if authorities.is_none() && without == WithoutCertificate::Fail {
        raw.problem_without_value(VERIFY, format!("{AUTHORITIES} is needed"));
    }
    let role = raw.text("admin_ssl_client_role");
    Some(ClientCertificates {
        authorities: authorities?,
        without,
        role: role
            .and_then(|role| role.parse().ok())
            .unwrap_or(Role::ReadOnly),
    })
}

/// Minimum memory for request bodies. With less, the Admin API could not accept ordinary changes.
const LEAST_BODY_MEMORY: u64 = 1 << 20;

fn limits(raw: &mut RawSettings) -> Limits {
    const BODY_MEMORY: &str = "admin_body_memory";
    let body_memory = size(raw, BODY_MEMORY);
    if body_memory < LEAST_BODY_MEMORY {
        raw.problem_without_value(BODY_MEMORY, "expected at least 1m");
    }
    Limits {
        head: duration(raw, "nginx_admin_client_header_timeout"),
        body: duration(raw, "nginx_admin_client_body_timeout"),
        idle: duration(raw, "nginx_admin_keepalive_timeout"),
        send: duration(raw, "nginx_admin_send_timeout"),
        connections: number(raw, "admin_max_connections") as usize,
        requests: number(raw, "admin_max_requests") as usize,
        body_memory: usize::try_from(body_memory).unwrap_or(usize::MAX),
    }
}
