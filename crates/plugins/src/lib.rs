//! The bundled plugins, and their table. Each plugin is a directory with its configuration, its phases and its tests.
//! This crate does not depend on routes, snapshots or the store.

#![forbid(unsafe_code)]

mod basic_auth;
mod grpc_web;
mod key_auth;
mod later;
mod protobuf;
mod request_termination;
mod request_transformer;

use plugin::PluginDef;

/// All bundled plugins in execution order: by descending priority, then by descending name. The order is the same in
/// all phases.
pub static BUNDLED: &[&PluginDef] = &[
    &later::PRE_FUNCTION,
    &later::CORRELATION_ID,
    &later::ZIPKIN,
    &later::BOT_DETECTION,
    &later::CORS,
    &later::SESSION,
    &later::ACME,
    &later::JWT,
    &later::OAUTH2,
    &key_auth::DEF,
    &later::LDAP_AUTH,
    &basic_auth::DEF,
    &later::HMAC_AUTH,
    &later::GRPC_GATEWAY,
    &later::IP_RESTRICTION,
    &later::REQUEST_SIZE_LIMITING,
    &later::ACL,
    &later::RATE_LIMITING,
    &later::RESPONSE_RATELIMITING,
    &later::REQUEST_TRANSFORMER,
    &later::RESPONSE_TRANSFORMER,
    &later::REDIRECT,
    &later::AI_REQUEST_TRANSFORMER,
    &later::AI_PROMPT_TEMPLATE,
    &later::AI_PROMPT_DECORATOR,
    &later::AI_PROMPT_GUARD,
    &later::AI_PROXY,
    &later::AI_RESPONSE_TRANSFORMER,
    &later::STANDARD_WEBHOOKS,
    &later::AWS_LAMBDA,
    &later::AZURE_FUNCTIONS,
    &later::PROXY_CACHE,
    &later::OPENTELEMETRY,
    &later::PROMETHEUS,
    &later::HTTP_LOG,
    &later::STATSD,
    &later::DATADOG,
    &later::FILE_LOG,
    &later::UDP_LOG,
    &later::TCP_LOG,
    &later::LOGGLY,
    &later::SYSLOG,
    &later::GRPC_WEB,
    &request_termination::DEF,
    &later::POST_FUNCTION,
];

#[cfg(test)]
mod tests;
