//! Settings of the Admin API: what its clients may cost. They hold for the Status API as well.

use super::raw::RawSettings;
use super::{duration, number};
use ::admin::Limits;

pub(super) fn limits(raw: &RawSettings) -> Limits {
    Limits {
        head: duration(raw, "nginx_admin_client_header_timeout"),
        body: duration(raw, "nginx_admin_client_body_timeout"),
        idle: duration(raw, "nginx_admin_keepalive_timeout"),
        send: duration(raw, "nginx_admin_send_timeout"),
        connections: number(raw, "admin_max_connections") as usize,
        requests: number(raw, "admin_max_requests") as usize,
    }
}
