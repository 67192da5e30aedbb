//! The authorization endpoint. It is not that of RFC 6749: the back end of the operator asks it, proved by the
//! `provision_key`, when it has authenticated the user. Source of the behaviour: kong/plugins/oauth2/access.lua
//! authorize().

use super::Oauth2;
use super::answer::{Refusal, uncached};
use super::client::{self, Client};
use super::endpoint::{Endpoint, Scene, check_https, now};
use super::issue::{Failed, Grant, service_of};
use super::parameters::Parameters;
use super::pkce::{self, Challenge};
use super::redirect::{Part, is_short, with_appended, with_parameters};
use super::scope;
use model::Value;
use plugin::Response;
use serde::Serialize;
use subtle::ConstantTimeEq;
use tokens::NewCode;

/// Seconds that a code lives.
const CODE_TTL: i64 = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    /// The implicit grant.
    Token,
}

/// The checks of a request, of which the last that fails decides.
struct Checked {
    /// Where the client expects the answer. `None` if the client is not known.
    redirect_uri: Option<String>,
    granted: Result<Wanted, Refusal>,
}

struct Wanted {
    kind: Kind,
    client: Client,
    scope: Option<String>,
    challenge: Challenge,
    userid: String,
    /// Whether the request names its redirect URI.
    names_redirect_uri: bool,
}

pub(super) async fn answer(plugin: &Oauth2, cx: &Scene<'_, '_>) -> Result<Response, Failed> {
    let parameters = Parameters::of(cx.request, plugin.config.is_strict());
    let state = parameters.value("state");
    let refused = |refusal: &Refusal, response| {
        plugin.refuse(cx.node, Endpoint::Authorize, refusal, response)
    };
    let userid = match caller(plugin, cx, &parameters) {
        Ok(userid) => userid,
        Err(refusal) => return Ok(refused(&refusal, refusal.answer(400, state.as_ref()))),
    };
    if state.as_ref().is_some_and(|state| !is_short(state)) {
        let refusal = Refusal::new("invalid_request", "state is too long");
        return Ok(refused(&refusal, refusal.answer(400, None)));
    }
    let Checked {
        redirect_uri,
        granted,
    } = check(plugin, cx, &parameters, userid)?;
    let issuer = plugin.config.issuer.as_deref();
    let (mut pairs, part, status, refusal): (Vec<(&str, Value)>, _, _, _) = match granted {
        Err(refusal) => {
            let description = Value::from(&*refusal.description);
            let pairs = vec![
                ("error", refusal.error.into()),
                ("error_description", description),
            ];
            (pairs, Part::Query, 400, Some(refusal))
        }
        Ok(wanted) => {
            let part = match wanted.kind {
                Kind::Code => Part::Query,
                Kind::Token => Part::Fragment,
            };
            let pairs = grant(plugin, cx, wanted, redirect_uri.as_deref()).await?;
            (pairs, part, 200, None)
        }
    };
    let Some(uri) = redirect_uri else {
        // A request without a redirect URI was refused.
        let refusal = refusal.unwrap_or_else(Refusal::invalid_client);
        return Ok(refused(&refusal, refusal.answer(400, state.as_ref())));
    };
    if let Some(state) = state {
        pairs.push(("state", state));
    }
    if let (true, Some(issuer)) = (plugin.config.is_strict(), issuer) {
        pairs.push(("iss", issuer.into()));
    }
    #[derive(Serialize)]
    struct Body {
        redirect_uri: String,
    }
    let redirect_uri = match plugin.config.is_strict() {
        // There is no answer in the fragment.
        true => with_appended(&uri, &pairs),
        false => with_parameters(&uri, part, &pairs),
    };
    let response = uncached(status, &Body { redirect_uri });
    Ok(match refusal {
        Some(refusal) => refused(&refusal, response),
        None => response,
    })
}

/// Checks that the operator's back end asks, and returns the user that it has authenticated.
fn caller(
    plugin: &Oauth2,
    cx: &Scene<'_, '_>,
    parameters: &Parameters<'_>,
) -> Result<String, Refusal> {
    check_https(cx.request, cx.node, &plugin.config)?;
    plugin.check_provision_key(parameters)?;
    userid(parameters)
}

impl Oauth2 {
    pub(super) fn check_provision_key(&self, parameters: &Parameters<'_>) -> Result<(), Refusal> {
        let given = parameters.get("provision_key");
        let given = given.text().unwrap_or_default().as_bytes();
        match bool::from(self.config.provision_key.as_bytes().ct_eq(given)) {
            true => Ok(()),
            false => Err(Refusal::invalid_provision_key()),
        }
    }
}

/// Returns the user that the operator's back end has authenticated.
pub(super) fn userid(parameters: &Parameters<'_>) -> Result<String, Refusal> {
    let given = parameters.get("authenticated_userid");
    match given.text() {
        Some(userid) if !userid.trim().is_empty() => Ok(userid.to_owned()),
        _ => Err(Refusal::missing_userid()),
    }
}

fn check(
    plugin: &Oauth2,
    cx: &Scene<'_, '_>,
    parameters: &Parameters<'_>,
    userid: String,
) -> Result<Checked, Failed> {
    let config = &plugin.config;
    let mut refusal = None;
    let response_type = parameters.get("response_type");
    let kind = match response_type.text() {
        Some("code") if config.enable_authorization_code => Some(Kind::Code),
        Some("token") if config.allows_implicit() => Some(Kind::Token),
        _ => None,
    };
    if kind.is_none() {
        refusal = Some(Refusal::new(
            "unsupported_response_type",
            "Invalid response_type",
        ));
    }
    let scope = scope::granted(&parameters.get("scope"), config).unwrap_or_else(|problem| {
        refusal = Some(problem);
        None
    });
    let client_id = parameters.get("client_id");
    let client = client::find(cx.node, client_id.text().unwrap_or_default())?;
    let registered = client
        .as_ref()
        .and_then(|client| client.credential.redirect_uris.as_deref());
    let wanted_uri = parameters.get("redirect_uri");
    let redirect_uri = match registered {
        None => {
            refusal = Some(Refusal::invalid_client());
            None
        }
        Some(registered) => {
            let known = match wanted_uri.is_given() {
                true => registered.iter().find(|known| wanted_uri.is(known)),
                // RFC 6749 section 3.1.2.3: a client with several must say which.
                false if config.is_strict() && registered.len() > 1 => None,
                false => registered.first(),
            };
            if known.is_none() {
                refusal = Some(Refusal::unknown_redirect_uri());
            }
            known.or(registered.first()).map(|uri| uri.to_string())
        }
    };
    let credential = client.as_ref().map(|client| &*client.credential);
    let credential = credential.filter(|_| registered.is_some());
    // A challenge belongs to a code. In Kong it is missed whatever the client wants.
    let challenge = match kind {
        None if config.is_strict() => Challenge::default(),
        _ => pkce::challenge(parameters, credential, config).unwrap_or_else(|problem| {
            refusal = Some(problem);
            Challenge::default()
        }),
    };
    let granted = match (refusal, kind, client) {
        (None, Some(kind), Some(client)) => Ok(Wanted {
            kind,
            client,
            scope,
            challenge,
            userid,
            names_redirect_uri: wanted_uri.is_given(),
        }),
        (refusal, _, _) => Err(refusal.unwrap_or_else(Refusal::invalid_client)),
    };
    Ok(Checked {
        redirect_uri,
        granted,
    })
}

/// Issues the code or the token, and returns the parameters for the redirect URI.
async fn grant(
    plugin: &Oauth2,
    cx: &Scene<'_, '_>,
    wanted: Wanted,
    redirect_uri: Option<&str>,
) -> Result<Vec<(&'static str, Value)>, Failed> {
    let service = service_of(cx.node, cx.request, plugin.config.global_credentials)?;
    let now = now(cx.node);
    if wanted.kind == Kind::Token {
        let grant = Grant {
            client: &wanted.client,
            service,
            userid: Some(wanted.userid),
            scope: wanted.scope,
            refreshes: false,
        };
        let body = grant.issue(plugin, cx.node, now).await?;
        plugin.count(cx.node, |counts| counts.issued("implicit"));
        let mut pairs = vec![
            ("access_token", Value::from(&*body.access_token)),
            ("token_type", Value::from("bearer")),
        ];
        pairs.extend(
            body.expires_in
                .map(|seconds| ("expires_in", Value::Int(seconds))),
        );
        return Ok(pairs);
    }
    let code = NewCode {
        credential: wanted.client.owner,
        service,
        plugin: cx.instance(),
        redirect_uri: redirect_uri
            .filter(|_| wanted.names_redirect_uri)
            .map(str::to_owned),
        scope: wanted.scope,
        authenticated_userid: Some(wanted.userid),
        challenge: wanted.challenge.challenge,
        challenge_method: wanted.challenge.method,
        ttl: CODE_TTL,
    };
    let made = plugin.store(cx.node)?.issue_code(code, now).get().await?;
    Ok(vec![("code", Value::from(&*made.0))])
}
