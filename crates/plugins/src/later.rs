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

const fn ignored(
    name: &'static str,
    priority: i32,
    phases: Phases,
    scopes: Scopes,
    without: &'static str,
) -> PluginDef {
    later(name, priority, phases, scopes, Lack::Feature, without)
}

const fn closed(
    name: &'static str,
    priority: i32,
    phases: Phases,
    scopes: Scopes,
    without: &'static str,
) -> PluginDef {
    later(name, priority, phases, scopes, Lack::Protection, without)
}

const fn later(
    name: &'static str,
    priority: i32,
    phases: Phases,
    scopes: Scopes,
    lack: Lack,
    without: &'static str,
) -> PluginDef {
    PluginDef {
        name,
        priority,
        phases,
        scopes,
        sharing: Sharing::PerInstance,
        implementation: Implementation::Later { lack, without },
    }
}

pub(crate) static PRE_FUNCTION: PluginDef = closed(
    "pre-function",
    1_000_000,
    ALL,
    Scopes::NO_CONSUMER,
    "The user's Lua code does not run before other plugins.",
);
pub(crate) static CORRELATION_ID: PluginDef = ignored(
    "correlation-id",
    100_001,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::ALL,
    "No header with an id is added to requests and responses.",
);
pub(crate) static ZIPKIN: PluginDef = ignored(
    "zipkin",
    100_000,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER)
        .with(Phases::LOG),
    Scopes::ALL,
    "No traces are sent to Zipkin.",
);
pub(crate) static BOT_DETECTION: PluginDef = closed(
    "bot-detection",
    2_500,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
    "Clients are not checked by their User-Agent header.",
);
pub(crate) static CORS: PluginDef = closed(
    "cors",
    2_000,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::NO_CONSUMER,
    "No CORS headers are added, and preflight requests are not answered.",
);
pub(crate) static SESSION: PluginDef = closed(
    "session",
    1_900,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::NO_CONSUMER,
    "No session cookies are set or accepted.",
);
pub(crate) static ACME: PluginDef = ignored(
    "acme",
    1_705,
    Phases::CERTIFICATE.with(Phases::ACCESS),
    Scopes::GLOBAL,
    "No certificates are requested or renewed.",
);
pub(crate) static JWT: PluginDef = closed(
    "jwt",
    1_450,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
    "Tokens are not verified.",
);
pub(crate) static OAUTH2: PluginDef = closed(
    "oauth2",
    1_400,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
    "Tokens are neither issued nor verified.",
);
pub(crate) static LDAP_AUTH: PluginDef = closed(
    "ldap-auth",
    1_200,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
    "Credentials are not checked with an LDAP server.",
);
pub(crate) static HMAC_AUTH: PluginDef = closed(
    "hmac-auth",
    1_030,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
    "Signatures of requests are not verified.",
);
pub(crate) static GRPC_GATEWAY: PluginDef = closed(
    "grpc-gateway",
    998,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
    "JSON requests are not converted to gRPC.",
);
pub(crate) static IP_RESTRICTION: PluginDef = closed(
    "ip-restriction",
    990,
    Phases::ACCESS,
    Scopes::ALL,
    "Clients are not checked by their address.",
);
pub(crate) static REQUEST_SIZE_LIMITING: PluginDef = closed(
    "request-size-limiting",
    951,
    Phases::ACCESS,
    Scopes::ALL,
    "The size of request bodies is not limited by the plugin.",
);
pub(crate) static ACL: PluginDef = closed(
    "acl",
    950,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
    "Consumers are not checked by their groups.",
);
pub(crate) static RATE_LIMITING: PluginDef = closed(
    "rate-limiting",
    910,
    Phases::ACCESS,
    Scopes::ALL,
    "Requests are not counted or limited.",
);
pub(crate) static RESPONSE_RATELIMITING: PluginDef = closed(
    "response-ratelimiting",
    900,
    Phases::ACCESS.with(Phases::HEADER_FILTER).with(Phases::LOG),
    Scopes::ALL,
    "Responses are not counted or limited by their headers.",
);
pub(crate) static REQUEST_TRANSFORMER: PluginDef = closed(
    "request-transformer",
    801,
    Phases::ACCESS,
    Scopes::ALL,
    "Requests are not changed.",
);
pub(crate) static RESPONSE_TRANSFORMER: PluginDef = closed(
    "response-transformer",
    800,
    Phases::HEADER_FILTER.with(Phases::BODY_FILTER),
    Scopes::ALL,
    "Responses are not changed.",
);
pub(crate) static REDIRECT: PluginDef = closed(
    "redirect",
    779,
    Phases::ACCESS,
    Scopes::ALL,
    "Clients are not redirected.",
);
pub(crate) static AI_REQUEST_TRANSFORMER: PluginDef = closed(
    "ai-request-transformer",
    777,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
    "Requests are not changed by a language model.",
);
pub(crate) static AI_PROMPT_TEMPLATE: PluginDef = closed(
    "ai-prompt-template",
    773,
    Phases::ACCESS,
    Scopes::ALL,
    "Prompts are not made from templates.",
);
pub(crate) static AI_PROMPT_DECORATOR: PluginDef = closed(
    "ai-prompt-decorator",
    772,
    Phases::ACCESS,
    Scopes::ALL,
    "No messages are added to prompts.",
);
pub(crate) static AI_PROMPT_GUARD: PluginDef = closed(
    "ai-prompt-guard",
    771,
    Phases::ACCESS,
    Scopes::ALL,
    "Prompts are not checked.",
);
pub(crate) static AI_PROXY: PluginDef = closed(
    "ai-proxy",
    770,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
    "Requests are not converted for providers of language models.",
);
pub(crate) static AI_RESPONSE_TRANSFORMER: PluginDef = closed(
    "ai-response-transformer",
    768,
    Phases::ACCESS,
    Scopes::ALL,
    "Responses are not changed by a language model.",
);
pub(crate) static STANDARD_WEBHOOKS: PluginDef = closed(
    "standard-webhooks",
    760,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
    "Signatures of webhooks are not verified.",
);
pub(crate) static AWS_LAMBDA: PluginDef = closed(
    "aws-lambda",
    750,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::ALL,
    "AWS Lambda functions are not called.",
);
pub(crate) static AZURE_FUNCTIONS: PluginDef = closed(
    "azure-functions",
    749,
    Phases::ACCESS,
    Scopes::ALL,
    "Azure Functions are not called.",
);
pub(crate) static PROXY_CACHE: PluginDef = ignored(
    "proxy-cache",
    100,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
    "Nothing is cached: every request goes to the upstream.",
);
pub(crate) static OPENTELEMETRY: PluginDef = ignored(
    "opentelemetry",
    14,
    Phases::ACCESS.with(Phases::HEADER_FILTER).with(Phases::LOG),
    Scopes::ALL,
    "No traces and no logs are sent to OpenTelemetry.",
);
pub(crate) static PROMETHEUS: PluginDef = ignored(
    "prometheus",
    13,
    Phases::LOG,
    Scopes::ALL,
    "`/metrics` has no metrics of Kong's.",
);
pub(crate) static HTTP_LOG: PluginDef = ignored(
    "http-log",
    12,
    Phases::LOG,
    Scopes::ALL,
    "No log is sent over HTTP.",
);
pub(crate) static STATSD: PluginDef = ignored(
    "statsd",
    11,
    Phases::LOG,
    Scopes::ALL,
    "No metrics are sent to StatsD.",
);
pub(crate) static DATADOG: PluginDef = ignored(
    "datadog",
    10,
    Phases::LOG,
    Scopes::ALL,
    "No metrics are sent to Datadog.",
);
pub(crate) static FILE_LOG: PluginDef = ignored(
    "file-log",
    9,
    Phases::LOG,
    Scopes::ALL,
    "No log is written to the file.",
);
pub(crate) static UDP_LOG: PluginDef = ignored(
    "udp-log",
    8,
    Phases::LOG,
    Scopes::ALL,
    "No log is sent over UDP.",
);
pub(crate) static TCP_LOG: PluginDef = ignored(
    "tcp-log",
    7,
    Phases::LOG,
    Scopes::ALL,
    "No log is sent over TCP.",
);
pub(crate) static LOGGLY: PluginDef = ignored(
    "loggly",
    6,
    Phases::LOG,
    Scopes::ALL,
    "No log is sent to Loggly.",
);
pub(crate) static SYSLOG: PluginDef = ignored(
    "syslog",
    4,
    Phases::LOG,
    Scopes::ALL,
    "No log is sent to syslog.",
);
pub(crate) static GRPC_WEB: PluginDef = closed(
    "grpc-web",
    3,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
    "Requests of gRPC-Web clients are not converted to gRPC.",
);
pub(crate) static POST_FUNCTION: PluginDef = closed(
    "post-function",
    -1_000,
    ALL,
    Scopes::NO_CONSUMER,
    "The user's Lua code does not run after other plugins.",
);
