//! What Kong does not have: introspection (RFC 7662), revocation (RFC 7009), metadata (RFC 8414), signed access tokens
//! (RFC 9068). Each is off unless a field of the configuration sets it.

pub(super) mod introspect;
pub(super) mod keys;
pub(super) mod metadata;
mod pem;
pub(super) mod revoke;
pub(crate) mod signed;

use super::Oauth2;
use super::answer::Refusal;
use super::client::{self, Client};
use super::endpoint::{Endpoint, Scene, check_https};
use super::issue::Failed;
use super::parameters::Parameters;
use super::token::BASIC;
use plugin::Response;

/// Returns the client that asks an endpoint. It must prove itself by its secret. A public client has none, so that it may
/// only revoke, for which its id is enough (RFC 7009 section 2.1).
async fn caller(
    plugin: &Oauth2,
    cx: &Scene<'_, '_>,
    parameters: &Parameters<'_>,
    endpoint: Endpoint,
) -> Result<Result<Client, Response>, Failed> {
    if let Err(refusal) = check_https(cx.request, cx.node, &plugin.config) {
        let answer = refusal.answer(400, None);
        return Ok(Err(plugin.refuse(cx.node, endpoint, &refusal, answer)));
    }
    let claimed = client::claimed(parameters, cx.request, &plugin.config);
    let client = client::named(cx.node, &claimed)?;
    let is_public = client
        .as_ref()
        .is_some_and(|client| client.credential.is_public());
    let is_right = match is_public {
        // A public client that sends a secret is not what it says. Some libraries send an empty one.
        true => {
            let secret = claimed.secret.as_deref().unwrap_or_default();
            secret.trim().is_empty() && endpoint == Endpoint::Revoke
        }
        false => {
            plugin
                .has_secret(cx.request, &claimed, client.as_ref())
                .await?
        }
    };
    match client.filter(|_| is_right) {
        Some(client) => Ok(Ok(client)),
        None => {
            let refusal = Refusal::invalid_client();
            let answer = refusal
                .answer(401, None)
                .with_header("WWW-Authenticate", BASIC);
            Ok(Err(plugin.refuse(cx.node, endpoint, &refusal, answer)))
        }
    }
}

/// Returns the client that asks an endpoint, and the token that it asks about. There is no token in a parameter that is not
/// a text.
async fn question(
    plugin: &Oauth2,
    cx: &Scene<'_, '_>,
    endpoint: Endpoint,
) -> Result<Result<(Client, Option<String>), Response>, Failed> {
    let parameters = Parameters::of(cx.request, true);
    let client = match caller(plugin, cx, &parameters, endpoint).await? {
        Ok(client) => client,
        Err(refused) => return Ok(Err(refused)),
    };
    let given = parameters.get("token");
    if !given.is_given() {
        let refusal = Refusal::new("invalid_request", "Missing token parameter");
        let answer = refusal.answer(400, None);
        return Ok(Err(plugin.refuse(cx.node, endpoint, &refusal, answer)));
    }
    Ok(Ok((client, given.text().map(str::to_owned))))
}

/// The id of a public key in PEM.
#[cfg(test)]
pub(super) fn key_id(pem: &str) -> Option<String> {
    pem::PublicKey::read(pem).map(|key| key.jwk.kid)
}
