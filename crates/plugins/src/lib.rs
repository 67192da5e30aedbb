//! The bundled plugins, and the lists of all. Each plugin is a directory with its schema (`schema.json`), its entities,
//! its checks, its configuration, its code and its tests. This crate does not depend on routes, snapshots or the store.

#![forbid(unsafe_code)]

mod acl;
mod acme;
mod ai_prompt_decorator;
mod ai_prompt_guard;
mod ai_prompt_template;
mod ai_proxy;
mod ai_request_transformer;
mod ai_response_transformer;
mod aws_lambda;
mod azure_functions;
mod basic_auth;
mod bot_detection;
mod correlation_id;
mod cors;
mod custom_fields;
mod datadog;
mod exporter;
mod file_log;
mod functions;
mod grpc_gateway;
mod grpc_web;
mod headers;
mod hmac_auth;
mod http_log;
mod ip_restriction;
mod json_text;
mod jwt;
mod key_auth;
mod later;
mod ldap_auth;
mod limits;
mod line_log;
mod llm;
mod loggly;
mod number;
mod oauth2;
mod opentelemetry;
mod patterns;
mod post_function;
mod pre_function;
mod prometheus;
mod propagation;
mod protobuf;
mod proxy_cache;
mod queue_config;
mod rate_limiting;
mod redirect;
mod redis;
mod request_size_limiting;
mod request_termination;
mod request_transformer;
mod response_ratelimiting;
mod response_transformer;
mod session;
mod standard_webhooks;
mod statistics;
mod statsd;
mod syslog;
mod tcp_log;
mod udp_log;
mod zipkin;

use model::schema::{PluginSource, Registry};
use plugin::{Endpoint, PluginDef};
use std::sync::{Arc, LazyLock};

pub use prometheus::shows_upstream_health;

/// The kinds of the plugins' entities.
pub mod kinds {
    pub use crate::acl::source::ACLS;
    pub use crate::acme::ACME_STORAGE;
    pub use crate::basic_auth::source::BASICAUTH_CREDENTIALS;
    pub use crate::hmac_auth::source::HMACAUTH_CREDENTIALS;
    pub use crate::jwt::source::JWT_SECRETS;
    pub use crate::key_auth::source::KEYAUTH_CREDENTIALS;
    pub use crate::oauth2::source::{
        OAUTH2_AUTHORIZATION_CODES, OAUTH2_CREDENTIALS, OAUTH2_TOKENS,
    };
    pub use crate::rate_limiting::source::RATELIMITING_METRICS;
    pub use crate::session::source::SESSIONS;
}

/// The credentials of plugins, as the plugins read them.
pub mod credentials {
    pub use crate::basic_auth::credential::BasicauthCredential;
    pub use crate::jwt::credential::JwtSecret;
    pub use crate::key_auth::credential::KeyauthCredential;
}

/// The reading of cookies of the plugin session, for its fuzz target.
pub mod session_cookies {
    pub use crate::session::reading::{encode_again, open, seal};
}

/// Parsers of what clients send, for fuzzing.
pub mod parsers {
    pub use crate::basic_auth::username_and_password as basic_auth_credentials;
    pub use crate::hmac_auth::header::{SignatureParams, parse as hmac_signature_params};
    pub use crate::jwt::token::{BadToken, Key, Token, decode};
    pub use crate::ldap_auth::given::{
        Given as LdapCredentials, distinguished_name, parse as ldap_credentials,
    };
    pub use crate::oauth2::client::{
        Claimed as Oauth2Client, basic as oauth2_basic, encoded_basic as oauth2_encoded_basic,
    };
    pub use crate::oauth2::own::signed::{Claims, Header, Parts, split as signed_token_parts};
    pub use crate::oauth2::redirect::with_state as oauth2_redirect;
    pub use crate::oauth2::search::bearer as oauth2_bearer;
    pub use crate::propagation::{
        Config as TracePropagationConfig, Outgoing as TraceOutgoing,
        Propagation as TracePropagation,
    };
}

/// What the bundled plugins bring to the registry of schemas, by name.
pub fn sources() -> &'static [PluginSource] {
    static SOURCES: [PluginSource; 45] = [
        acl::source::SOURCE,
        acme::SOURCE,
        ai_prompt_decorator::SOURCE,
        ai_prompt_guard::SOURCE,
        ai_prompt_template::SOURCE,
        ai_proxy::SOURCE,
        ai_request_transformer::SOURCE,
        ai_response_transformer::SOURCE,
        aws_lambda::SOURCE,
        azure_functions::SOURCE,
        basic_auth::source::SOURCE,
        bot_detection::SOURCE,
        correlation_id::SOURCE,
        cors::SOURCE,
        datadog::SOURCE,
        file_log::source::SOURCE,
        grpc_gateway::SOURCE,
        grpc_web::source::SOURCE,
        hmac_auth::source::SOURCE,
        http_log::source::SOURCE,
        ip_restriction::SOURCE,
        jwt::source::SOURCE,
        key_auth::source::SOURCE,
        ldap_auth::source::SOURCE,
        loggly::source::SOURCE,
        oauth2::source::SOURCE,
        opentelemetry::SOURCE,
        post_function::source::SOURCE,
        pre_function::source::SOURCE,
        prometheus::SOURCE,
        proxy_cache::source::SOURCE,
        rate_limiting::source::SOURCE,
        redirect::SOURCE,
        request_size_limiting::SOURCE,
        request_termination::source::SOURCE,
        request_transformer::source::SOURCE,
        response_ratelimiting::SOURCE,
        response_transformer::SOURCE,
        session::source::SOURCE,
        standard_webhooks::SOURCE,
        statsd::SOURCE,
        syslog::source::SOURCE,
        tcp_log::source::SOURCE,
        udp_log::source::SOURCE,
        zipkin::SOURCE,
    ];
    &SOURCES
}

/// The endpoints of the Admin API that bundled plugins serve. A plugin adds its own here.
pub fn endpoints() -> Vec<Endpoint> {
    let all = proxy_cache::endpoints().into_iter();
    all.chain(session::endpoints::endpoints()).collect()
}

/// Installs the registry with the schemas of all bundled plugins, unless it is installed. Panics if another one is.
pub fn install() -> &'static Registry {
    model::schema::install(sources()).expect("the bundled schemas are right, and the only ones")
}

/// Returns all bundled plugins in execution order: by descending priority, then by descending name. The order is the
/// same in all phases.
pub fn bundled() -> &'static [Arc<PluginDef>] {
    static BUNDLED: LazyLock<Vec<Arc<PluginDef>>> = LazyLock::new(load);
    &BUNDLED
}

fn load() -> Vec<Arc<PluginDef>> {
    let defs = [
        pre_function::def(),
        correlation_id::def(),
        zipkin::def(),
        bot_detection::def(),
        cors::def(),
        session::def(),
        later::acme(),
        jwt::def(),
        oauth2::def(),
        key_auth::def(),
        ldap_auth::def(),
        basic_auth::def(),
        hmac_auth::def(),
        later::grpc_gateway(),
        ip_restriction::def(),
        request_size_limiting::def(),
        acl::def(),
        rate_limiting::def().with_shortcoming(limits::shortcoming),
        response_ratelimiting::def().with_shortcoming(limits::shortcoming),
        request_transformer::def(),
        response_transformer::def(),
        redirect::def(),
        later::ai_request_transformer(),
        later::ai_prompt_template(),
        later::ai_prompt_decorator(),
        later::ai_prompt_guard(),
        later::ai_proxy(),
        later::ai_response_transformer(),
        standard_webhooks::def(),
        later::aws_lambda(),
        later::azure_functions(),
        proxy_cache::def(),
        opentelemetry::def(),
        prometheus::def(),
        http_log::def(),
        statsd::def(),
        datadog::def(),
        file_log::def(),
        udp_log::def(),
        tcp_log::def(),
        loggly::def(),
        syslog::def(),
        grpc_web::def(),
        request_termination::def(),
        post_function::def(),
    ];
    defs.into_iter().map(Arc::new).collect()
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
