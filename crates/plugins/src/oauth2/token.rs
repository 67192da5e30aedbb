//! The token endpoint (RFC 6749 section 3.2). Source of the behaviour: kong/plugins/oauth2/access.lua issue_token().

use super::Oauth2;
use super::answer::{Refusal, uncached};
use super::authorize::userid;
use super::client::{self, Claimed, Client};
use super::endpoint::{Endpoint, Scene, check_https, now};
use super::issue::{Failed, Grant, TokenBody, service_of};
use super::parameters::Parameters;
use super::{grants, scope};
use plugin::{HeaderValue, Response};

/// The challenge for clients that have sent wrong credentials in the header.
pub(super) const BASIC: HeaderValue = HeaderValue::from_static("Basic realm=\"OAuth2.0\"");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrantType {
    Code,
    Refresh,
    ClientCredentials,
    Password,
}

impl GrantType {
    /// Returns the grant with this name, if it is enabled. As in Kong, codes and refresh tokens that exist are accepted
    /// whatever is enabled.
    fn of(name: Option<&str>, plugin: &Oauth2) -> Option<Self> {
        match name? {
            "authorization_code" => Some(Self::Code),
            "refresh_token" => Some(Self::Refresh),
            "client_credentials" if plugin.config.enable_client_credentials => {
                Some(Self::ClientCredentials)
            }
            "password" if plugin.config.allows_password() => Some(Self::Password),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Code => "authorization_code",
            Self::Refresh => "refresh_token",
            Self::ClientCredentials => "client_credentials",
            Self::Password => "password",
        }
    }
}

/// A request for a token whose client has proved itself.
pub(super) struct Asked<'a, 'c, 'r> {
    pub(super) plugin: &'a Oauth2,
    pub(super) cx: &'a Scene<'c, 'r>,
    pub(super) parameters: &'a Parameters<'a>,
    pub(super) client: &'a Client,
    pub(super) now: i64,
}

/// A token, or the reason for none.
pub(super) type Granted = Result<TokenBody, Refusal>;

pub(super) async fn answer(plugin: &Oauth2, cx: &Scene<'_, '_>) -> Result<Response, Failed> {
    let parameters = Parameters::of(cx.request, plugin.config.is_strict());
    let state = parameters.value("state");
    let mut status = 400;
    let granted = match check_https(cx.request, cx.node, &plugin.config) {
        Ok(()) => grant(plugin, cx, &parameters, &mut status).await?,
        Err(refusal) => Err(refusal),
    };
    Ok(match granted {
        Ok(body) => uncached(200, &TokenBody { state, ..body }),
        Err(refusal) => {
            let response = refusal.answer(status, state.as_ref());
            let response = match status {
                401 => response.with_header("WWW-Authenticate", BASIC),
                _ => response,
            };
            plugin.refuse(cx.node, Endpoint::Token, &refusal, response)
        }
    })
}

async fn grant(
    plugin: &Oauth2,
    cx: &Scene<'_, '_>,
    parameters: &Parameters<'_>,
    status: &mut u16,
) -> Result<Granted, Failed> {
    let grant_type = GrantType::of(parameters.get("grant_type").text(), plugin);
    let claimed = client::claimed(parameters, cx.request, &plugin.config);
    let client = client::named(cx.node, &claimed)?;
    let refusal = check(
        plugin,
        cx,
        parameters,
        grant_type,
        &claimed,
        client.as_ref(),
        status,
    )
    .await?;
    if let Some(refusal) = refusal {
        return Ok(Err(refusal));
    }
    let Some(grant_type) = grant_type else {
        return Ok(Err(unsupported()));
    };
    let Some(client) = client else {
        return Ok(Err(match missing_provision_key(plugin, parameters) {
            Some(refusal) => refusal,
            None => Refusal::invalid_client(),
        }));
    };
    let asked = Asked {
        plugin,
        cx,
        parameters,
        client: &client,
        now: now(cx.node),
    };
    let granted = match grant_type {
        GrantType::Code => grants::code(&asked).await?,
        GrantType::Refresh => grants::refresh(&asked).await?,
        GrantType::ClientCredentials => client_credentials(&asked).await?,
        GrantType::Password => password(&asked).await?,
    };
    if granted.is_ok() {
        plugin.count(cx.node, |counts| counts.issued(grant_type.name()));
    }
    Ok(granted)
}

fn unsupported() -> Refusal {
    Refusal::new("unsupported_grant_type", "Invalid grant_type")
}

/// Checks what all grants need. All checks are made, and the last one that fails decides.
async fn check(
    plugin: &Oauth2,
    cx: &Scene<'_, '_>,
    parameters: &Parameters<'_>,
    grant_type: Option<GrantType>,
    claimed: &Claimed,
    client: Option<&Client>,
    status: &mut u16,
) -> Result<Option<Refusal>, Failed> {
    let mut refusal = grant_type.is_none().then(unsupported);
    let mut refuse_client = || {
        if claimed.from_header {
            *status = 401;
        }
        Refusal::invalid_client()
    };
    if grant_type != Some(GrantType::ClientCredentials) {
        let registered = client.and_then(|client| client.credential.redirect_uris.as_deref());
        let wanted = parameters.get("redirect_uri");
        match registered {
            None => refusal = Some(refuse_client()),
            Some(registered) => {
                let is_known = match wanted.is_given() {
                    true => registered.iter().any(|known| wanted.is(known)),
                    false => !registered.is_empty(),
                };
                if !is_known {
                    refusal = Some(Refusal::unknown_redirect_uri());
                }
            }
        }
    }
    match client {
        Some(client) if client.credential.is_public() => {
            if claimed
                .secret
                .as_deref()
                .is_some_and(|secret| !secret.trim().is_empty())
            {
                let description = "client_secret is disallowed for public clients";
                refusal = Some(Refusal::new("invalid_request", description));
            }
        }
        client => {
            let is_right = plugin.has_secret(cx.request, claimed, client).await?;
            // An unknown client is refused later, and then without a challenge, as in Kong.
            if !is_right && (client.is_some() || plugin.config.is_strict()) {
                refusal = Some(refuse_client());
            }
        }
    }
    Ok(refusal)
}

/// A client that names a user must prove that it is the operator's back end.
fn missing_provision_key(plugin: &Oauth2, parameters: &Parameters<'_>) -> Option<Refusal> {
    let names_user = parameters.get("authenticated_userid").is_given();
    names_user
        .then(|| plugin.check_provision_key(parameters).err())
        .flatten()
}

async fn client_credentials(asked: &Asked<'_, '_, '_>) -> Result<Granted, Failed> {
    let Asked {
        plugin, parameters, ..
    } = asked;
    // A client without a secret has proved nothing (RFC 6749 section 4.4).
    if plugin.config.is_strict() && asked.client.credential.is_public() {
        let description = "Public clients have no client credentials";
        return Ok(Err(Refusal::new("unauthorized_client", description)));
    }
    if let Some(refusal) = missing_provision_key(plugin, parameters) {
        return Ok(Err(refusal));
    }
    let user = parameters.get("authenticated_userid");
    let userid = user.text().map(str::to_owned);
    issue(asked, userid, false).await
}

async fn password(asked: &Asked<'_, '_, '_>) -> Result<Granted, Failed> {
    if let Err(refusal) = asked.plugin.check_provision_key(asked.parameters) {
        return Ok(Err(refusal));
    }
    match userid(asked.parameters) {
        Ok(userid) => issue(asked, Some(userid), true).await,
        Err(refusal) => Ok(Err(refusal)),
    }
}

async fn issue(
    asked: &Asked<'_, '_, '_>,
    userid: Option<String>,
    refreshes: bool,
) -> Result<Granted, Failed> {
    let Asked { plugin, cx, .. } = asked;
    let scope = match scope::granted(&asked.parameters.get("scope"), &plugin.config) {
        Ok(scope) => scope,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let service = service_of(cx.node, cx.request, plugin.config.global_credentials)?;
    let grant = Grant {
        client: asked.client,
        service,
        userid,
        scope,
        refreshes,
    };
    Ok(Ok(grant.issue(plugin, cx.node, asked.now).await?))
}
