//! Kong's bundled plugins that are not implemented yet. Their schemas are complete, so that configurations with them
//! load; a warning is logged then (see [`plugin::Implementation::Later`]). A plugin leaves this file when it is
//! implemented.
//!
//! Plugins that only observe (logs, metrics, traces, ids) or only save work (`acme`, `proxy-cache`) are ignored until
//! then: see [`ignored`]. All others refuse, limit or change requests or responses, or run the user's code. Without
//! them, a request could reach a protected service, or a response could show protected data. So all requests in their
//! scope are refused: see [`closed`].

use plugin::{BUNDLED_VERSION, Implementation, Lack, Phases, PluginDef, Scopes};

fn ignored(
    name: &'static str,
    priority: i32,
    phases: Phases,
    scopes: Scopes,
    without: &'static str,
) -> PluginDef {
    later(name, priority, phases, scopes, Lack::Feature, without)
}

fn closed(
    name: &'static str,
    priority: i32,
    phases: Phases,
    scopes: Scopes,
    without: &'static str,
) -> PluginDef {
    later(name, priority, phases, scopes, Lack::Protection, without)
}

fn later(
    name: &'static str,
    priority: i32,
    phases: Phases,
    scopes: Scopes,
    lack: Lack,
    without: &'static str,
) -> PluginDef {
    PluginDef {
        name: name.into(),
        version: BUNDLED_VERSION.into(),
        priority,
        phases,
        scopes,
        implementation: Implementation::Later { lack, without },
        shortcoming: None,
        risk: None,
    }
}

pub(crate) fn zipkin() -> PluginDef {
    ignored(
        "zipkin",
        100_000,
        Phases::ACCESS
            .with(Phases::HEADER_FILTER)
            .with(Phases::BODY_FILTER)
            .with(Phases::LOG),
        Scopes::ALL,
        "No traces are sent to Zipkin.",
    )
}
pub(crate) fn acme() -> PluginDef {
    ignored(
        "acme",
        1_705,
        Phases::CERTIFICATE.with(Phases::ACCESS),
        Scopes::GLOBAL,
        "No certificates are requested or renewed.",
    )
}
pub(crate) fn grpc_gateway() -> PluginDef {
    closed(
        "grpc-gateway",
        998,
        Phases::ACCESS
            .with(Phases::HEADER_FILTER)
            .with(Phases::BODY_FILTER),
        Scopes::ALL,
        "JSON requests are not converted to gRPC.",
    )
}
pub(crate) fn ai_request_transformer() -> PluginDef {
    closed(
        "ai-request-transformer",
        777,
        Phases::ACCESS,
        Scopes::NO_CONSUMER,
        "Requests are not changed by a language model.",
    )
}
pub(crate) fn ai_prompt_template() -> PluginDef {
    closed(
        "ai-prompt-template",
        773,
        Phases::ACCESS,
        Scopes::ALL,
        "Prompts are not made from templates.",
    )
}
pub(crate) fn ai_prompt_decorator() -> PluginDef {
    closed(
        "ai-prompt-decorator",
        772,
        Phases::ACCESS,
        Scopes::ALL,
        "No messages are added to prompts.",
    )
}
pub(crate) fn ai_prompt_guard() -> PluginDef {
    closed(
        "ai-prompt-guard",
        771,
        Phases::ACCESS,
        Scopes::ALL,
        "Prompts are not checked.",
    )
}
pub(crate) fn ai_proxy() -> PluginDef {
    closed(
        "ai-proxy",
        770,
        Phases::ACCESS
            .with(Phases::HEADER_FILTER)
            .with(Phases::BODY_FILTER),
        Scopes::ALL,
        "Requests are not converted for providers of language models.",
    )
}
pub(crate) fn ai_response_transformer() -> PluginDef {
    closed(
        "ai-response-transformer",
        768,
        Phases::ACCESS,
        Scopes::ALL,
        "Responses are not changed by a language model.",
    )
}
pub(crate) fn aws_lambda() -> PluginDef {
    closed(
        "aws-lambda",
        750,
        Phases::ACCESS.with(Phases::HEADER_FILTER),
        Scopes::ALL,
        "AWS Lambda functions are not called.",
    )
}
pub(crate) fn azure_functions() -> PluginDef {
    closed(
        "azure-functions",
        749,
        Phases::ACCESS,
        Scopes::ALL,
        "Azure Functions are not called.",
    )
}
pub(crate) fn opentelemetry() -> PluginDef {
    ignored(
        "opentelemetry",
        14,
        Phases::ACCESS.with(Phases::HEADER_FILTER).with(Phases::LOG),
        Scopes::ALL,
        "No traces and no logs are sent to OpenTelemetry.",
    )
}
pub(crate) fn statsd() -> PluginDef {
    ignored(
        "statsd",
        11,
        Phases::LOG,
        Scopes::ALL,
        "No metrics are sent to StatsD.",
    )
}
pub(crate) fn datadog() -> PluginDef {
    ignored(
        "datadog",
        10,
        Phases::LOG,
        Scopes::ALL,
        "No metrics are sent to Datadog.",
    )
}
pub(crate) fn file_log() -> PluginDef {
    ignored(
        "file-log",
        9,
        Phases::LOG,
        Scopes::ALL,
        "No log is written to the file.",
    )
}
pub(crate) fn udp_log() -> PluginDef {
    ignored(
        "udp-log",
        8,
        Phases::LOG,
        Scopes::ALL,
        "No log is sent over UDP.",
    )
}
pub(crate) fn tcp_log() -> PluginDef {
    ignored(
        "tcp-log",
        7,
        Phases::LOG,
        Scopes::ALL,
        "No log is sent over TCP.",
    )
}
pub(crate) fn loggly() -> PluginDef {
    ignored(
        "loggly",
        6,
        Phases::LOG,
        Scopes::ALL,
        "No log is sent to Loggly.",
    )
}
pub(crate) fn syslog() -> PluginDef {
    ignored(
        "syslog",
        4,
        Phases::LOG,
        Scopes::ALL,
        "No log is sent to syslog.",
    )
}
