//! Token introspection (RFC 7662): a client asks about a token that was issued to it.

use crate::oauth2::Oauth2;
use crate::oauth2::answer::uncached;
use crate::oauth2::endpoint::{Endpoint, Scene, now};
use crate::oauth2::issue::Failed;
use plugin::Response;
use serde::Serialize;
use tokens::{State, Token};
use uuid::Uuid;

/// What is said about a token. One that is not active has nothing but that (RFC 7662 section 2.2).
#[derive(Debug, Default, Serialize)]
struct Body {
    active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    username: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iat: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
}

/// The two kinds of tokens in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Access,
    Refresh,
}

pub(in crate::oauth2) async fn answer(
    plugin: &Oauth2,
    cx: &Scene<'_, '_>,
) -> Result<Response, Failed> {
    let (client, token) = match super::question(plugin, cx, Endpoint::Introspect).await? {
        Ok(question) => question,
        Err(refused) => return Ok(refused),
    };
    let id = &client.credential.client_id;
    let body = match token {
        Some(text) => describe(plugin, cx, &text).await?,
        None => None,
    };
    let body = body.filter(|body| body.client_id.as_deref() == Some(&**id));
    Ok(uncached(200, &body.unwrap_or_default()))
}

/// Describes an active token.
async fn describe(plugin: &Oauth2, cx: &Scene<'_, '_>, text: &str) -> Result<Option<Body>, Failed> {
    if let Some(claims) = plugin.keys.as_ref().and_then(|keys| keys.verify(text)) {
        let judged = plugin.judge_signed(cx.node, cx.request, claims.clone())?;
        if judged.is_err() || has_ended(plugin, cx, &claims.jti).await? {
            return Ok(None);
        }
        return Ok(Some(Body {
            active: true,
            scope: claims.scope,
            username: (claims.sub != claims.client_id).then(|| claims.sub.clone()),
            client_id: Some(claims.client_id),
            token_type: Some("bearer"),
            exp: Some(claims.exp),
            iat: Some(claims.iat),
            sub: Some(claims.sub),
            aud: Some(claims.aud),
            iss: Some(claims.iss),
            jti: Some(claims.jti),
        }));
    }
    let store = plugin.store(cx.node)?;
    let now = now(cx.node);
    if let Some(token) = store.find_by_access_token(text, now).get().await? {
        return body_of(plugin, cx, token, Kind::Access);
    }
    match store.find_by_refresh_token(text, now).get().await? {
        Some(token) if token.state == State::Live => body_of(plugin, cx, token, Kind::Refresh),
        _ => Ok(None),
    }
}

/// Whether the store of this node knows that the grant of a signed token was revoked, refreshed, or has lost its client or service. It has
/// no row for a token that another node has issued, or that has no refresh token.
async fn has_ended(plugin: &Oauth2, cx: &Scene<'_, '_>, id: &str) -> Result<bool, Failed> {
    let Ok(id) = Uuid::try_parse(id) else {
        return Ok(false);
    };
    let store = plugin.store(cx.node)?;
    let Some(row) = store.find_known(id, now(cx.node)).get().await? else {
        return Ok(false);
    };
    if row.state != State::Live {
        return Ok(true);
    }
    Ok(plugin.judge_stored(cx.node, cx.request, row)?.is_err())
}

fn body_of(
    plugin: &Oauth2,
    cx: &Scene<'_, '_>,
    token: Token,
    kind: Kind,
) -> Result<Option<Body>, Failed> {
    let exp = match kind {
        Kind::Access => token.access_ends().into_iter().chain(token.ends).min(),
        Kind::Refresh => token.ends,
    };
    let (iat, service) = (token.created_at, token.service);
    let (scope, userid) = (token.scope.clone(), token.authenticated_userid.clone());
    // An access token that has expired can still be refreshed.
    let judged = match kind {
        Kind::Access => token,
        Kind::Refresh => Token {
            expires_in: 0,
            ..token
        },
    };
    let Ok(known) = plugin.judge_stored(cx.node, cx.request, judged)? else {
        return Ok(None);
    };
    let client_id = known.credential.client_id.to_string();
    Ok(Some(Body {
        active: true,
        scope,
        sub: Some(userid.clone().unwrap_or_else(|| client_id.clone())),
        username: userid,
        client_id: Some(client_id),
        token_type: (kind == Kind::Access).then_some("bearer"),
        exp,
        iat: Some(iat),
        aud: service.map(|service| service.id.to_string()),
        iss: plugin
            .config
            .issuer
            .as_ref()
            .map(|issuer| issuer.to_string()),
        jti: None,
    }))
}
