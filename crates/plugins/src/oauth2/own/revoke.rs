//! Token revocation (RFC 7009): a client ends a token that was issued to it. Access token and refresh token of a row end
//! together. A signed access token ends by itself only; its refresh token ends.

use crate::oauth2::Oauth2;
use crate::oauth2::answer::{Refusal, uncached};
use crate::oauth2::endpoint::{Endpoint, Scene, now};
use crate::oauth2::issue::Failed;
use plugin::Response;
use serde_json::json;
use tokens::{State, Token, TokenStore};
use uuid::Uuid;

pub(in crate::oauth2) async fn answer(
    plugin: &Oauth2,
    cx: &Scene<'_, '_>,
) -> Result<Response, Failed> {
    let (client, token) = match super::question(plugin, cx, Endpoint::Revoke).await? {
        Ok(question) => question,
        Err(refused) => return Ok(refused),
    };
    let store = plugin.store(cx.node)?;
    let now = now(cx.node);
    let found = match token {
        Some(text) => find(plugin, store, &text, now).await?,
        None => None,
    };
    if let Some(token) = found {
        if token.credential != client.owner {
            return Ok(other_client(plugin, cx));
        }
        end(store, &token, now).await?;
    }
    // RFC 7009 section 2.2: a token that is not known is as good as revoked.
    Ok(uncached(200, &json!({})))
}

async fn find(
    plugin: &Oauth2,
    store: &dyn TokenStore,
    text: &str,
    now: i64,
) -> Result<Option<Token>, Failed> {
    if let Some(claims) = plugin.keys.as_ref().and_then(|keys| keys.verify(text)) {
        let id = Uuid::try_parse(&claims.jti);
        return match id {
            Ok(id) => Ok(store.find_by_id(id, now).get().await?),
            Err(_) => Ok(None),
        };
    }
    match store.find_by_access_token(text, now).get().await? {
        Some(token) => Ok(Some(token)),
        None => Ok(store.find_by_refresh_token(text, now).get().await?),
    }
}

/// Ends a token, or the one that has followed it: a refresh may happen at the same time.
async fn end(store: &dyn TokenStore, token: &Token, now: i64) -> Result<(), Failed> {
    if token.state != State::Revoked {
        store.revoke_successor(token.id, now).get().await?;
    }
    Ok(())
}

fn other_client(plugin: &Oauth2, cx: &Scene<'_, '_>) -> Response {
    let description = "The token was not issued to this client";
    let refusal = Refusal::new("invalid_request", description);
    let answer = refusal.answer(400, None);
    plugin.refuse(cx.node, Endpoint::Revoke, &refusal, answer)
}
