//! Bundled plugins that come with later parts. Their schemas are complete, so that configurations naming them load and the
//! order of execution is right; they do nothing yet, and loading a configuration that names one says so (see
//! [`plugin::Implementation::Later`]). A plugin leaves this file when it is implemented.

use plugin::{Implementation, Lack, Phases, PluginDef, Scopes, Sharing};

const ALL: Phases = Phases::CERTIFICATE
    .with(Phases::REWRITE)
    .with(Phases::ACCESS)
    .with(Phases::HEADER_FILTER)
    .with(Phases::BODY_FILTER)
    .with(Phases::LOG);

const fn later(name: &'static str, priority: i32, phases: Phases, scopes: Scopes) -> PluginDef {
    PluginDef {
        name,
        priority,
        phases,
        scopes,
        sharing: Sharing::PerInstance,
        implementation: Implementation::Later(Lack::Feature),
    }
}

/// One that keeps requests out.
const fn later_guard(
    name: &'static str,
    priority: i32,
    phases: Phases,
    scopes: Scopes,
) -> PluginDef {
    PluginDef {
        implementation: Implementation::Later(Lack::Protection),
        ..later(name, priority, phases, scopes)
    }
}

pub(crate) static PRE_FUNCTION: PluginDef =
    later("pre-function", 1_000_000, ALL, Scopes::NO_CONSUMER);
pub(crate) static CORRELATION_ID: PluginDef = later(
    "correlation-id",
    100_001,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::ALL,
);
pub(crate) static ZIPKIN: PluginDef = later(
    "zipkin",
    100_000,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER)
        .with(Phases::LOG),
    Scopes::ALL,
);
pub(crate) static BOT_DETECTION: PluginDef =
    later_guard("bot-detection", 2_500, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static CORS: PluginDef = later(
    "cors",
    2_000,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::NO_CONSUMER,
);
pub(crate) static SESSION: PluginDef = later(
    "session",
    1_900,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::NO_CONSUMER,
);
pub(crate) static ACME: PluginDef = later(
    "acme",
    1_705,
    Phases::CERTIFICATE.with(Phases::ACCESS),
    Scopes::GLOBAL,
);
pub(crate) static JWT: PluginDef = later_guard("jwt", 1_450, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static OAUTH2: PluginDef =
    later_guard("oauth2", 1_400, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static LDAP_AUTH: PluginDef =
    later_guard("ldap-auth", 1_200, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static HMAC_AUTH: PluginDef =
    later_guard("hmac-auth", 1_030, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static GRPC_GATEWAY: PluginDef = later(
    "grpc-gateway",
    998,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
);
pub(crate) static IP_RESTRICTION: PluginDef =
    later_guard("ip-restriction", 990, Phases::ACCESS, Scopes::ALL);
pub(crate) static REQUEST_SIZE_LIMITING: PluginDef =
    later("request-size-limiting", 951, Phases::ACCESS, Scopes::ALL);
pub(crate) static ACL: PluginDef = later_guard("acl", 950, Phases::ACCESS, Scopes::NO_CONSUMER);
pub(crate) static RATE_LIMITING: PluginDef =
    later("rate-limiting", 910, Phases::ACCESS, Scopes::ALL);
pub(crate) static RESPONSE_RATELIMITING: PluginDef = later(
    "response-ratelimiting",
    900,
    Phases::ACCESS.with(Phases::HEADER_FILTER).with(Phases::LOG),
    Scopes::ALL,
);
pub(crate) static REQUEST_TRANSFORMER: PluginDef =
    later("request-transformer", 801, Phases::ACCESS, Scopes::ALL);
pub(crate) static RESPONSE_TRANSFORMER: PluginDef = later(
    "response-transformer",
    800,
    Phases::HEADER_FILTER.with(Phases::BODY_FILTER),
    Scopes::ALL,
);
pub(crate) static REDIRECT: PluginDef = later("redirect", 779, Phases::ACCESS, Scopes::ALL);
pub(crate) static AI_REQUEST_TRANSFORMER: PluginDef = later(
    "ai-request-transformer",
    777,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
);
pub(crate) static AI_PROMPT_TEMPLATE: PluginDef =
    later("ai-prompt-template", 773, Phases::ACCESS, Scopes::ALL);
pub(crate) static AI_PROMPT_DECORATOR: PluginDef =
    later("ai-prompt-decorator", 772, Phases::ACCESS, Scopes::ALL);
pub(crate) static AI_PROMPT_GUARD: PluginDef =
    later_guard("ai-prompt-guard", 771, Phases::ACCESS, Scopes::ALL);
pub(crate) static AI_PROXY: PluginDef = later(
    "ai-proxy",
    770,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
);
pub(crate) static AI_RESPONSE_TRANSFORMER: PluginDef =
    later("ai-response-transformer", 768, Phases::ACCESS, Scopes::ALL);
pub(crate) static STANDARD_WEBHOOKS: PluginDef = later_guard(
    "standard-webhooks",
    760,
    Phases::ACCESS,
    Scopes::NO_CONSUMER,
);
pub(crate) static AWS_LAMBDA: PluginDef = later(
    "aws-lambda",
    750,
    Phases::ACCESS.with(Phases::HEADER_FILTER),
    Scopes::ALL,
);
pub(crate) static AZURE_FUNCTIONS: PluginDef =
    later("azure-functions", 749, Phases::ACCESS, Scopes::ALL);
pub(crate) static PROXY_CACHE: PluginDef = later(
    "proxy-cache",
    100,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
);
pub(crate) static OPENTELEMETRY: PluginDef = later(
    "opentelemetry",
    14,
    Phases::ACCESS.with(Phases::HEADER_FILTER).with(Phases::LOG),
    Scopes::ALL,
);
pub(crate) static PROMETHEUS: PluginDef = later("prometheus", 13, Phases::LOG, Scopes::ALL);
pub(crate) static HTTP_LOG: PluginDef = later("http-log", 12, Phases::LOG, Scopes::ALL);
pub(crate) static STATSD: PluginDef = later("statsd", 11, Phases::LOG, Scopes::ALL);
pub(crate) static DATADOG: PluginDef = later("datadog", 10, Phases::LOG, Scopes::ALL);
pub(crate) static FILE_LOG: PluginDef = later("file-log", 9, Phases::LOG, Scopes::ALL);
pub(crate) static UDP_LOG: PluginDef = later("udp-log", 8, Phases::LOG, Scopes::ALL);
pub(crate) static TCP_LOG: PluginDef = later("tcp-log", 7, Phases::LOG, Scopes::ALL);
pub(crate) static LOGGLY: PluginDef = later("loggly", 6, Phases::LOG, Scopes::ALL);
pub(crate) static SYSLOG: PluginDef = later("syslog", 4, Phases::LOG, Scopes::ALL);
pub(crate) static GRPC_WEB: PluginDef = later(
    "grpc-web",
    3,
    Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER),
    Scopes::ALL,
);
pub(crate) static POST_FUNCTION: PluginDef =
    later("post-function", -1_000, ALL, Scopes::NO_CONSUMER);
