//! Settings of the Admin API: who may use it, and what its clients may cost.

use super::raw::RawSettings;
use super::{duration, flag, number, size};
use ::admin::Limits;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub(crate) struct AdminSettings {
    pub(crate) max_body: u64,
    /// Of the Status API, too.
    pub(crate) limits: Limits,
    pub(crate) tokens_file: PathBuf,
    /// Whoever reaches a listener may ask, from other machines as well.
    pub(crate) allow_unauthenticated: bool,
}

pub(super) fn settings(raw: &mut RawSettings, prefix: &Path) -> AdminSettings {
    let tokens_file = raw.text("admin_tokens_file").map(|path| prefix.join(path));
    if tokens_file.is_none() {
        raw.problem("admin_tokens_file", "expected the name of a file");
    }
    AdminSettings {
        max_body: size(raw, "nginx_admin_client_max_body_size"),
        limits: limits(raw),
        tokens_file: tokens_file.unwrap_or_default(),
        allow_unauthenticated: flag(raw, "admin_allow_unauthenticated"),
    }
}

fn limits(raw: &RawSettings) -> Limits {
    Limits {
        head: duration(raw, "nginx_admin_client_header_timeout"),
        body: duration(raw, "nginx_admin_client_body_timeout"),
        idle: duration(raw, "nginx_admin_keepalive_timeout"),
        send: duration(raw, "nginx_admin_send_timeout"),
        connections: number(raw, "admin_max_connections") as usize,
        requests: number(raw, "admin_max_requests") as usize,
    }
}
