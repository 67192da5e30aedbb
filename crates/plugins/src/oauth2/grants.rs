//! The grants that use up something: codes and refresh tokens. Source of the behaviour: kong/plugins/oauth2/access.lua
//! issue_token().

use super::answer::Refusal;
use super::check::is_of_service;
use super::issue::{Failed, Grant, service_of};
use super::token::{Asked, Granted};
use super::{pkce, scope};
use tokens::{Issued, NewCode, NewToken, RefreshOutcome, State, StoreError, Token, TokenStore};
use uuid::Uuid;

/// Exchanges a code. An attempt that fails does not use it up.
pub(super) async fn code(asked: &Asked<'_, '_, '_>) -> Result<Granted, Failed> {
    let Asked { plugin, cx, .. } = asked;
    let config = &plugin.config;
    let service = service_of(cx.node, cx.request, config.global_credentials)?;
    let given = asked.parameters.get("code");
    let Some(text) = given.text() else {
        return Ok(Err(Refusal::new("invalid_request", "Invalid code")));
    };
    let store = plugin.store(cx.node)?;
    let found = store.find_code(text, asked.now).get().await?;
    let (userid, scope) = match &found {
        Some(found) => (
            found.code.authenticated_userid.clone(),
            found.code.scope.clone(),
        ),
        None => (None, None),
    };
    let grant = Grant {
        client: asked.client,
        service,
        userid,
        scope,
        refreshes: true,
    };
    let take = || store.take_code(text, grant.token(plugin), config.is_strict(), asked.now);
    let Some(found) = found else {
        if config.is_strict() {
            // A code that this client has taken already ends its tokens (RFC 9700 section 2.1.1).
            take().get().await?;
        }
        return Ok(Err(Refusal::invalid_code(config)));
    };
    if let Err(refusal) = check_code(asked, &found.code, &grant) {
        return Ok(Err(refusal));
    }
    match take().get().await? {
        Some(issued) => Ok(Ok(grant.body(plugin, Some(issued), asked.now).await?)),
        None => Ok(Err(Refusal::invalid_code(config))),
    }
}

fn check_code(asked: &Asked<'_, '_, '_>, code: &NewCode, grant: &Grant<'_>) -> Result<(), Refusal> {
    let Asked { plugin, cx, .. } = asked;
    let config = &plugin.config;
    let is_for_service = grant.service.is_none() || code.service == grant.service;
    if !is_for_service || code.credential != asked.client.owner {
        return Err(Refusal::invalid_code(config));
    }
    pkce::verify(asked.parameters, code, &asked.client.credential, config)?;
    let instance = cx.instance();
    if config.global_credentials && code.plugin.is_some() && code.plugin != instance {
        return Err(Refusal::invalid_code(config));
    }
    if config.is_strict() {
        check_redirect_uri(asked, code)?;
    }
    Ok(())
}

/// A code counts only with the redirect URI that it was issued for (RFC 6749 section 4.1.3).
fn check_redirect_uri(asked: &Asked<'_, '_, '_>, code: &NewCode) -> Result<(), Refusal> {
    let given = asked.parameters.get("redirect_uri");
    let is_right = match &code.redirect_uri {
        Some(bound) => given.is(bound),
        None => {
            let registered = asked.client.credential.redirect_uris.as_deref();
            let first = registered.and_then(<[_]>::first);
            !given.is_given() || first.is_some_and(|first| given.is(first))
        }
    };
    match is_right {
        true => Ok(()),
        false => Err(Refusal::new("invalid_grant", "Invalid redirect_uri")),
    }
}

/// Issues a token for a refresh token.
pub(super) async fn refresh(asked: &Asked<'_, '_, '_>) -> Result<Granted, Failed> {
    let Asked { plugin, cx, .. } = asked;
    let config = &plugin.config;
    let service = service_of(cx.node, cx.request, config.global_credentials)?;
    let given = asked.parameters.get("refresh_token");
    let Some(text) = given.text() else {
        return Ok(Err(Refusal::new(
            "invalid_request",
            "Invalid refresh_token",
        )));
    };
    let store = plugin.store(cx.node)?;
    let found = store.find_by_refresh_token(text, asked.now).get().await?;
    // What was revoked is as good as unknown. What was used before may be one of the cases of `replayed`.
    let Some(found) = found.filter(|found| found.state != State::Revoked) else {
        return Ok(Err(Refusal::invalid_refresh_token(config)));
    };
    // In Kong, a plugin with global_credentials makes a global token of any other.
    let is_for_service = found.service == service || (service.is_none() && !config.is_strict());
    let refusal = match is_for_service && is_of_service(cx.node, &found)? {
        true => check_refresh(asked, &found).err(),
        false => Some(Refusal::invalid_refresh_token(config)),
    };
    if let Some(refusal) = refusal {
        // A replay ends the grant, whatever else is wrong with it.
        let is_replay = found.state == State::Superseded && found.credential == asked.client.owner;
        if is_replay && config.revokes_on_replay() {
            store.revoke_successor(found.id, asked.now).get().await?;
        }
        return Ok(Err(refusal));
    }
    let grant = Grant {
        client: asked.client,
        service,
        userid: found.authenticated_userid.clone(),
        scope: found.scope.clone(),
        refreshes: true,
    };
    let token = grant.token(plugin);
    // A public client's refresh token that stayed the same would be usable by whoever has read it (RFC 9700 section 2.2.2).
    let rotates =
        !config.reuse_refresh_token || (config.is_strict() && asked.client.credential.is_public());
    let issued = match (found.state, rotates) {
        (State::Superseded, _) => replayed(asked, store, found.id, token).await?,
        (_, true) => match store.refresh(text, token.clone(), asked.now).get().await? {
            RefreshOutcome::Issued(issued) => Some(issued),
            RefreshOutcome::Replayed(id) => replayed(asked, store, id, token).await?,
            RefreshOutcome::Unknown => None,
        },
        (_, false) => {
            let renewed = store.renew(text, token.expires_in, token.ttl, asked.now);
            renewed.get().await?
        }
    };
    match issued {
        Some(issued) => Ok(Ok(grant.body(plugin, Some(issued), asked.now).await?)),
        None => Ok(Err(Refusal::invalid_refresh_token(config))),
    }
}

fn check_refresh(asked: &Asked<'_, '_, '_>, found: &Token) -> Result<(), Refusal> {
    let config = &asked.plugin.config;
    if found.credential != asked.client.owner {
        let is_other_client = found.credential.id != asked.client.owner.id;
        let is_kong = !config.is_strict();
        return Err(
            match is_kong && is_other_client && found.state == State::Live {
                true => Refusal::invalid_client(),
                false => Refusal::invalid_refresh_token(config),
            },
        );
    }
    match scope::are_allowed(found.scope.as_deref(), config) {
        true => Ok(()),
        false if found.state == State::Live => Err(Refusal::new("invalid_scope", "Scope mismatch")),
        false => Err(Refusal::invalid_refresh_token(config)),
    }
}

/// Decides about a refresh token that was used before: the client did not get the answer, or somebody has stolen it.
async fn replayed(
    asked: &Asked<'_, '_, '_>,
    store: &dyn TokenStore,
    id: Uuid,
    token: NewToken,
) -> Result<Option<Issued>, StoreError> {
    let config = &asked.plugin.config;
    if let Some(grace) = config.refresh_grace.filter(|grace| *grace > 0) {
        let issued = store
            .refresh_again(id, token, grace, asked.now)
            .get()
            .await?;
        if issued.is_some() {
            return Ok(issued);
        }
    }
    if config.revokes_on_replay() {
        store.revoke_successor(id, asked.now).get().await?;
    }
    Ok(None)
}
