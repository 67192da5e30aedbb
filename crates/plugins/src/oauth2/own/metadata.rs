//! The documents that anyone may read: metadata of the authorization server (RFC 8414) and public keys (RFC 7517).

use crate::oauth2::config::Config;
use bytes::Bytes;
use plugin::{Response, ResponseBody};
use serde::Serialize;

const WELL_KNOWN: &str = "/.well-known/oauth-authorization-server";

/// Whether this is the path of the metadata: the well-known part comes before the path of the issuer (section 3.1).
pub(in crate::oauth2) fn is_at(path: &[u8], config: &Config) -> bool {
    let Some(issuer) = config.issuer.as_deref() else {
        return false;
    };
    let rest = path.strip_prefix(WELL_KNOWN.as_bytes());
    rest == Some(issuer_path(issuer).as_bytes())
}

/// The path of the issuer, without a slash at the end.
fn issuer_path(issuer: &str) -> &str {
    let after_scheme = issuer.strip_prefix("https://").unwrap_or(issuer);
    let path = after_scheme.find('/').and_then(|at| after_scheme.get(at..));
    path.unwrap_or_default().trim_end_matches('/')
}

#[derive(Serialize)]
struct Metadata<'a> {
    issuer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    authorization_endpoint: Option<&'a str>,
    token_endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwks_uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scopes_supported: Option<Vec<&'a str>>,
    response_types_supported: Vec<&'static str>,
    grant_types_supported: Vec<&'static str>,
    token_endpoint_auth_methods_supported: [&'static str; 3],
    #[serde(skip_serializing_if = "Option::is_none")]
    revocation_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revocation_endpoint_auth_methods_supported: Option<[&'static str; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    introspection_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    introspection_endpoint_auth_methods_supported: Option<[&'static str; 2]>,
    code_challenge_methods_supported: [&'static str; 1],
    authorization_response_iss_parameter_supported: bool,
}

/// How clients, public ones included, name themselves. Clients would take an absent list for the first one alone.
const ALL_METHODS: [&str; 3] = ["client_secret_basic", "client_secret_post", "none"];

/// Writes the metadata of a configuration.
pub(in crate::oauth2) fn write(config: &Config, has_keys: bool) -> Bytes {
    let issuer = config.issuer.as_deref().unwrap_or_default();
    let base = issuer.trim_end_matches('/');
    let endpoint = |is_there: bool, name: &str| is_there.then(|| format!("{base}/oauth2/{name}"));
    let chosen = |all: &[(bool, &'static str)]| -> Vec<&'static str> {
        let chosen = all.iter().filter(|(is_there, _)| *is_there);
        chosen.map(|(_, name)| *name).collect()
    };
    let scopes = config.scopes.as_deref();
    let metadata = Metadata {
        issuer,
        authorization_endpoint: config.authorization_endpoint.as_deref(),
        token_endpoint: format!("{base}/oauth2/token"),
        jwks_uri: endpoint(has_keys, "jwks"),
        scopes_supported: scopes.map(|scopes| scopes.iter().map(|scope| &**scope).collect()),
        response_types_supported: chosen(&[
            (config.enable_authorization_code, "code"),
            (config.allows_implicit(), "token"),
        ]),
        grant_types_supported: chosen(&[
            (config.enable_authorization_code, "authorization_code"),
            (config.allows_implicit(), "implicit"),
            (config.enable_client_credentials, "client_credentials"),
            (config.allows_password(), "password"),
            (true, "refresh_token"),
        ]),
        token_endpoint_auth_methods_supported: ALL_METHODS,
        revocation_endpoint: endpoint(config.revocation == Some(true), "revoke"),
        revocation_endpoint_auth_methods_supported: (config.revocation == Some(true))
            .then_some(ALL_METHODS),
        introspection_endpoint_auth_methods_supported: (config.introspection == Some(true))
            .then_some(["client_secret_basic", "client_secret_post"]),
        introspection_endpoint: endpoint(config.introspection == Some(true), "introspect"),
        code_challenge_methods_supported: ["S256"],
        authorization_response_iss_parameter_supported: config.is_strict(),
    };
    serde_json::to_vec(&metadata).unwrap_or_default().into()
}

/// A document in JSON that changes only with the configuration.
pub(in crate::oauth2) fn document(text: Bytes) -> Response {
    let response = Response::new(200, Bytes::new());
    let response = Response {
        body: ResponseBody::Json(text),
        ..response
    };
    response.with_header("cache-control", "public, max-age=300")
}
