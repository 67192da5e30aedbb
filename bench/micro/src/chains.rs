//! Whole requests through two chains of plugins as gateways in production have them, the ones that `bench gateway
//! --only chain` measures. Each prefix of a chain is an operation too, so that the share of a plugin is the difference
//! of two counts.

use crate::fixtures::{key, path, plugin, prefix_routes, route, service, spread};
use crate::operation::Operation;
use crate::requests::{Setup, exchange};
use crate::storage;
use aws_lc_rs::hmac;
use data_encoding::BASE64URL_NOPAD;
use model::entities::{Config, Plugin, Route};
use plugins::kinds::{ACLS, JWT_SECRETS};
use serde_json::{Value, json};
use std::sync::Arc;

const ROUTES: usize = 500;
const CONSUMERS: usize = 100;
const GROUP: &str = "bench";

#[derive(Clone, Copy)]
enum Chain {
    /// key-auth, cors, correlation-id, rate-limiting and request-transformer, on 500 routes.
    Keys,
    /// cors, jwt, acl, rate-limiting, request-transformer and correlation-id, on one route.
    Tokens,
}

/// Returns the two whole chains.
pub(crate) fn operations() -> Vec<Operation> {
    let whole =
        |chain: Chain| operation(format!("request/chain/{}", chain.name()), chain, usize::MAX);
    [Chain::Keys, Chain::Tokens].map(whole).into()
}

/// Returns an operation for each prefix of the chains, from none of its plugins to all.
pub(crate) fn shares() -> Vec<Operation> {
    let prefixes = [Chain::Keys, Chain::Tokens].into_iter().flat_map(|chain| {
        let plugins = chain.plugins();
        let prefix = move |count: usize| {
            let last = count.checked_sub(1).and_then(|last| plugins.get(last));
            let last = last.map_or("none", |plugin| &plugin.name);
            let name = format!("chain/{}/{count}-{last}", chain.name());
            operation(name, chain, count)
        };
        (0..=chain.plugins().len()).map(prefix)
    });
    prefixes.collect()
}

/// Returns the gateway of the chain with keys, and its plugins.
pub(crate) fn keys() -> (Setup, Vec<Plugin>) {
    (Chain::Keys.set_up(usize::MAX), Chain::Keys.plugins())
}

fn operation(name: String, chain: Chain, count: usize) -> Operation {
    exchange(&name, move || chain.set_up(count))
}

impl Chain {
    fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Tokens => "tokens",
        }
    }

    fn plugins(self) -> Vec<Plugin> {
        let all = match self {
            Self::Keys => vec![
                ("key-auth", key_auth()),
                ("cors", cors()),
                ("correlation-id", correlation_id()),
                ("rate-limiting", limit()),
                ("request-transformer", transform()),
            ],
            Self::Tokens => vec![
                ("cors", cors()),
                ("jwt", jwt()),
                ("acl", acl()),
                ("rate-limiting", limit()),
                ("request-transformer", transform()),
                ("correlation-id", correlation_id()),
            ],
        };
        let numbered = all.into_iter().enumerate();
        numbered
            .map(|(number, (name, config))| plugin(name, number, config))
            .collect()
    }

    /// Sets up a gateway with the first plugins of the chain.
    fn set_up(self, count: usize) -> Setup {
        let plugins: Vec<Plugin> = self.plugins().into_iter().take(count).collect();
        let people = (0..CONSUMERS).flat_map(|number| {
            let secret = [
                ("algorithm", "HS256".into()),
                ("key", issuer(number).into()),
                ("secret", key(number).into()),
            ];
            [
                storage::consumer(number),
                storage::credential(number),
                storage::owned(JWT_SECRETS, number, secret),
                storage::owned(ACLS, number, [("group", GROUP.into())]),
            ]
        });
        let (directory, entities) = storage::entities_of(people);
        Setup {
            config: Box::new(move |upstream| Config {
                services: vec![service(upstream)],
                routes: self.routes(),
                plugins: plugins.clone(),
                ..Config::default()
            }),
            entities: Some((directory, Arc::new(entities))),
            requests: self.requests(),
            ..Setup::one_route(Vec::new())
        }
    }

    fn routes(self) -> Vec<Route> {
        match self {
            Self::Keys => prefix_routes(ROUTES),
            Self::Tokens => vec![Route {
                paths: vec!["/".into()],
                ..route(0)
            }],
        }
    }

    fn requests(self) -> Vec<Vec<u8>> {
        let requests = spread(CONSUMERS, ROUTES).map(|number| match self {
            Self::Keys => request(&path(number), "apikey", &key(0)),
            Self::Tokens => request("/", "Authorization", &bearer(number % CONSUMERS)),
        });
        requests.collect()
    }
}

fn request(path: &str, name: &str, value: &str) -> Vec<u8> {
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: bench.test\r\nOrigin: https://app.test\r\n{name}: {value}\r\n\r\n"
    );
    head.into_bytes()
}

fn issuer(number: usize) -> String {
    format!("hs-user-{number}")
}

/// Returns the credentials of a consumer: a token without an end, whose `iss` names the credential.
fn bearer(number: usize) -> String {
    let part = |json: Value| BASE64URL_NOPAD.encode(json.to_string().as_bytes());
    let head = part(json!({"alg": "HS256", "typ": "JWT"}));
    let claims = part(json!({"iss": issuer(number), "sub": "bench"}));
    let text = format!("{head}.{claims}");
    let secret = hmac::Key::new(hmac::HMAC_SHA256, key(number).as_bytes());
    let signature = hmac::sign(&secret, text.as_bytes());
    format!(
        "Bearer {text}.{}",
        BASE64URL_NOPAD.encode(signature.as_ref())
    )
}

// The configurations as their schemas complete them.

fn key_auth() -> Value {
    json!({
        "key_names": ["apikey"], "key_in_header": true, "key_in_query": true, "key_in_body": false,
        "hide_credentials": false, "run_on_preflight": true,
    })
}

fn cors() -> Value {
    json!({
        "origins": ["https://app.test"], "credentials": true, "private_network": false, "preflight_continue": false,
        "methods": ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS", "TRACE", "CONNECT"],
    })
}

fn correlation_id() -> Value {
    json!({"header_name": "Kong-Request-ID", "generator": "uuid#counter", "echo_downstream": false})
}

fn limit() -> Value {
    json!({
        "minute": 1_000_000_000, "limit_by": "consumer", "policy": "local", "fault_tolerant": true, "redis": {},
        "hide_client_headers": false, "error_code": 429, "error_message": "API rate limit exceeded", "sync_rate": -1,
    })
}

fn transform() -> Value {
    let none = json!({"body": [], "headers": [], "querystring": []});
    let headers = |list: &[&str]| json!({"body": [], "headers": list, "querystring": []});
    json!({
        "add": headers(&["x-first:1", "x-second:2"]), "remove": headers(&["x-internal"]),
        "rename": none, "replace": none, "append": none,
    })
}

fn jwt() -> Value {
    json!({
        "uri_param_names": ["jwt"], "cookie_names": [], "header_names": ["authorization"], "key_claim_name": "iss",
        "secret_is_base64": false, "maximum_expiration": 0, "run_on_preflight": true,
    })
}

fn acl() -> Value {
    json!({"allow": [GROUP], "hide_groups_header": false, "always_use_authenticated_groups": false})
}
