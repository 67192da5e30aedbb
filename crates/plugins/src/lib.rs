//! The bundled plugins, and their table. Each plugin is a directory with its configuration, its phases and its tests.
//! This crate does not depend on routes, snapshots or the store.

#![forbid(unsafe_code)]

mod basic_auth;
mod key_auth;
mod later;
mod request_termination;

use plugin::PluginDef;
use std::sync::{Arc, LazyLock};

/// Returns all bundled plugins in execution order: by descending priority, then by descending name. The order is the same in
/// all phases.
pub fn bundled() -> &'static [Arc<PluginDef>] {
    static BUNDLED: LazyLock<Vec<Arc<PluginDef>>> = LazyLock::new(load);
    &BUNDLED
}

fn load() -> Vec<Arc<PluginDef>> {
    let defs = [
        later::pre_function(),
        later::correlation_id(),
        later::zipkin(),
        later::bot_detection(),
        later::cors(),
        later::session(),
        later::acme(),
        later::jwt(),
        later::oauth2(),
        key_auth::def(),
        later::ldap_auth(),
        basic_auth::def(),
        later::hmac_auth(),
        later::grpc_gateway(),
        later::ip_restriction(),
        later::request_size_limiting(),
        later::acl(),
        later::rate_limiting(),
        later::response_ratelimiting(),
        later::request_transformer(),
        later::response_transformer(),
        later::redirect(),
        later::ai_request_transformer(),
        later::ai_prompt_template(),
        later::ai_prompt_decorator(),
        later::ai_prompt_guard(),
        later::ai_proxy(),
        later::ai_response_transformer(),
        later::standard_webhooks(),
        later::aws_lambda(),
        later::azure_functions(),
        later::proxy_cache(),
        later::opentelemetry(),
        later::prometheus(),
        later::http_log(),
        later::statsd(),
        later::datadog(),
        later::file_log(),
        later::udp_log(),
        later::tcp_log(),
        later::loggly(),
        later::syslog(),
        later::grpc_web(),
        request_termination::def(),
        later::post_function(),
    ];
    defs.into_iter().map(Arc::new).collect()
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
