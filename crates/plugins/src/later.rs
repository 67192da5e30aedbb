//! Kong's bundled plugins that are not implemented yet. Their schemas are complete, so that configurations with them
//! load; a warning is logged then (see [`plugin::Implementation::Later`]). A plugin leaves this file when it is
//! implemented.
//!
//! Plugins that only observe (logs, metrics, traces, ids) or only save work (`acme`, `proxy-cache`) are ignored until
//! then: see [`ignored`]. All others refuse, limit or change requests or responses, or run the user's code. Without
//! them, a request could reach a protected service, or a response could show protected data. So all requests in their
//! scope are refused: see [`closed`].

use plugin::{Implementation, Lack, Phases, PluginDef, Scopes, Sharing};

const ALL: Phases = Phases::CERTIFICATE
    .with(Phases::REWRITE)
    .with(Phases::ACCESS)
    .with(Phases::HEADER_FILTER)
    .with(Phases::BODY_FILTER)
    .with(Phases::LOG);

const fn ignored(name: &'static str, priority: i32, phases: Phases, scopes: Scopes) -> PluginDef {
    later(name, priority, phases, scopes, Lack::Feature)
}

const fn closed(name: &'static str, priority: i32, phases: Phases, scopes: Scopes) -> PluginDef {
    later(name, priority, phases, scopes, Lack::Protection)
}

const fn later(
    name: &'static str,
    priority: i32,
    phases: Phases,
    scopes: Scopes,
    lack: Lack,
) -> PluginDef {
    PluginDef {
        name,
        priority,
        phases,
        scopes,
        sharing: Sharing::PerInstance,
        implementation: Implementation::Later(lack),
    }
}

pub(crate) static PRE_FUNCTION: PluginDef =
    closed("pre-function", 1_000_000, ALL, Scopes::NO_CONSUMER);
pub(crate) static CORRELATION_ID: PluginDef = ignored(
    "correlation-id",
    100_001,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::ALL,
);
pub(crate) static ZIPKIN: PluginDef = ignored(
    "zipkin",
    100_000,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER)
        .with(Phases::LOG),
    Scopes::ALL,
);
pub(crate) static BOT_DETECTION: PluginDef =
    closed("bot-detection", 2_500, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static CORS: PluginDef = closed(
    "cors",
    2_000,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::NO_CONSUMER,
);
pub(crate) static SESSION: PluginDef = closed(
    "session",
    1_900,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::NO_CONSUMER,
);
pub(crate) static ACME: PluginDef = ignored(
    "acme",
    1_705,
    Phases::CERTIFICATE.with(Phases::ACCESS),
    Scopes::GLOBAL,
);
pub(crate) static JWT: PluginDef = closed("jwt", 1_450, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static OAUTH2: PluginDef = closed("oauth2", 1_400, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static LDAP_AUTH: PluginDef =
    closed("ldap-auth", 1_200, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static HMAC_AUTH: PluginDef =
    closed("hmac-auth", 1_030, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static GRPC_GATEWAY: PluginDef = closed(
    "grpc-gateway",
    998,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
);
pub(crate) static IP_RESTRICTION: PluginDef =
    closed("ip-restriction", 990, Phases::ACCESS, Scopes::ALL);
pub(crate) static REQUEST_SIZE_LIMITING: PluginDef =
    closed("request-size-limiting", 951, Phases::ACCESS, Scopes::ALL);
pub(crate) static ACL: PluginDef = closed("acl", 950, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static RATE_LIMITING: PluginDef =
    closed("rate-limiting", 910, Phases::ACCESS, Scopes::ALL);
pub(crate) static RESPONSE_RATELIMITING: PluginDef = closed(
    "response-ratelimiting",
    900,
    Phases::ACCESS.with(Phases::HEADER_FILTER).with(Phases::LOG),
    Scopes::ALL,
);
pub(crate) static REQUEST_TRANSFORMER: PluginDef =
    closed("request-transformer", 801, Phases::ACCESS, Scopes::ALL);
pub(crate) static RESPONSE_TRANSFORMER: PluginDef = closed(
    "response-transformer",
    800,
    Phases::HEADER_FILTER.with(Phases::BODY_FILTER),
    Scopes::ALL,
);
pub(crate) static REDIRECT: PluginDef = closed("redirect", 779, Phases::ACCESS, Scopes::ALL);
pub(crate) static AI_REQUEST_TRANSFORMER: PluginDef = closed(
    "ai-request-transformer",
    777,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
);
pub(crate) static AI_PROMPT_TEMPLATE: PluginDef =
    closed("ai-prompt-template", 773, Phases::ACCESS, Scopes::ALL);
pub(crate) static AI_PROMPT_DECORATOR: PluginDef =
    closed("ai-prompt-decorator", 772, Phases::ACCESS, Scopes::ALL);
pub(crate) static AI_PROMPT_GUARD: PluginDef =
    closed("ai-prompt-guard", 771, Phases::ACCESS, Scopes::ALL);
pub(crate) static AI_PROXY: PluginDef = closed(
    "ai-proxy",
    770,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
);
pub(crate) static AI_RESPONSE_TRANSFORMER: PluginDef =
    closed("ai-response-transformer", 768, Phases::ACCESS, Scopes::ALL);
pub(crate) static STANDARD_WEBHOOKS: PluginDef = closed(
    "standard-webhooks",
    760,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
);
pub(crate) static AWS_LAMBDA: PluginDef = closed(
    "aws-lambda",
    750,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::ALL,
);
pub(crate) static AZURE_FUNCTIONS: PluginDef =
    closed("azure-functions", 749, Phases::ACCESS, Scopes::ALL);
pub(crate) static PROXY_CACHE: PluginDef = ignored(
    "proxy-cache",
    100,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
);
pub(crate) static OPENTELEMETRY: PluginDef = ignored(
    "opentelemetry",
    14,
    Phases::ACCESS.with(Phases::HEADER_FILTER).with(Phases::LOG),
    Scopes::ALL,
);
pub(crate) static PROMETHEUS: PluginDef = ignored("prometheus", 13, Phases::LOG, Scopes::ALL);
pub(crate) static HTTP_LOG: PluginDef = ignored("http-log", 12, Phases::LOG, Scopes::ALL);
pub(crate) static STATSD: PluginDef = ignored("statsd", 11, Phases::LOG, Scopes::ALL);
pub(crate) static DATADOG: PluginDef = ignored("datadog", 10, Phases::LOG, Scopes::ALL);
pub(crate) static FILE_LOG: PluginDef = ignored("file-log", 9, Phases::LOG, Scopes::ALL);
pub(crate) static UDP_LOG: PluginDef = ignored("udp-log", 8, Phases::LOG, Scopes::ALL);
pub(crate) static TCP_LOG: PluginDef = ignored("tcp-log", 7, Phases::LOG, Scopes::ALL);
pub(crate) static LOGGLY: PluginDef = ignored("loggly", 6, Phases::LOG, Scopes::ALL);
pub(crate) static SYSLOG: PluginDef = ignored("syslog", 4, Phases::LOG, Scopes::ALL);
pub(crate) static GRPC_WEB: PluginDef = closed(
    "grpc-web",
    3,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
);
pub(crate) static POST_FUNCTION: PluginDef =
    closed("post-function", -1_000, ALL, Scopes::NO_CONSUMER);
