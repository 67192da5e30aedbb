//! Issues tokens. Source of the behaviour: kong/plugins/oauth2/access.lua generate_token().

use super::Oauth2;
use super::client::Client;
use super::own::signed::Claims;
use model::{EntityKind, Value};
use plugin::{Node, PluginError, Request};
use serde::Serialize;
use tokens::{Issued, NewToken, Owner, StoreError};
use uuid::Uuid;

/// What a new token says.
pub(super) struct Grant<'g> {
    pub(super) client: &'g Client,
    pub(super) service: Option<Owner>,
    pub(super) userid: Option<String>,
    pub(super) scope: Option<String>,
    /// Whether the grant has refresh tokens.
    pub(super) refreshes: bool,
}

/// The body of an answer with a token (RFC 6749 section 5.1).
#[derive(Debug, Serialize)]
pub(super) struct TokenBody {
    pub(super) access_token: String,
    pub(super) token_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_in: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    /// What the token is for, which a client must learn if it has asked for something else. Kong does not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<Value>,
}

/// Returns the service that new tokens are for: `None` for tokens that are valid for several. Without a service there
/// are only such.
pub(super) fn service_of(
    node: &Node,
    request: &Request<'_>,
    is_global: bool,
) -> Result<Option<Owner>, PluginError> {
    if is_global {
        return Ok(None);
    }
    let id = request.service.map(|service| service.id);
    let id = id.ok_or_else(|| PluginError::new("the route has no service to issue tokens for"))?;
    let created = node.entities.created_revision(EntityKind::Services, id)?;
    let created = created.ok_or_else(|| PluginError::new("the service was deleted"))?;
    Ok(Some(Owner { id, created }))
}

impl Grant<'_> {
    /// What the store is asked to issue.
    pub(super) fn token(&self, plugin: &Oauth2) -> NewToken {
        let expires_in = plugin.config.expires_in();
        NewToken {
            credential: self.client.owner,
            service: self.service,
            expires_in,
            with_refresh_token: self.refreshes && expires_in > 0,
            ttl: plugin.config.ttl(),
            scope: self.scope.clone(),
            authenticated_userid: self.userid.clone(),
        }
    }

    /// Issues a token. A signed one without a refresh token needs no row.
    pub(super) async fn issue(
        &self,
        plugin: &Oauth2,
        node: &Node,
        now: i64,
    ) -> Result<TokenBody, Failed> {
        let token = self.token(plugin);
        if plugin.keys.is_some() && !token.with_refresh_token {
            return Ok(self.body(plugin, None, now).await?);
        }
        let store = plugin.store(node)?;
        let issued = store.issue(token, now).get().await?;
        Ok(self.body(plugin, Some(issued), now).await?)
    }

    /// Returns the body for a token that the store has issued.
    pub(super) async fn body(
        &self,
        plugin: &Oauth2,
        issued: Option<Issued>,
        now: i64,
    ) -> Result<TokenBody, PluginError> {
        let expires_in = access_life(plugin);
        let (id, opaque, refresh_token) = match issued {
            Some(issued) => (
                issued.id,
                Some(issued.access_token.0),
                issued.refresh_token.map(|token| token.0),
            ),
            None => (Uuid::new_v4(), None, None),
        };
        let access_token = match (&plugin.keys, opaque) {
            (Some(keys), _) => keys.sign(&self.claims(plugin, id, now)).await?,
            (None, Some(opaque)) => opaque,
            (None, None) => return Err(PluginError::new("the store has issued no token")),
        };
        Ok(TokenBody {
            access_token,
            token_type: "bearer",
            expires_in: (expires_in > 0).then_some(expires_in),
            refresh_token,
            scope: self.scope.clone().filter(|_| plugin.config.is_strict()),
            state: None,
        })
    }

    fn claims(&self, plugin: &Oauth2, id: Uuid, now: i64) -> Claims {
        let issuer = plugin.config.issuer.as_deref().unwrap_or_default();
        let client_id = &self.client.credential.client_id;
        let audience = match self.service {
            Some(service) => service.id.to_string(),
            None => issuer.to_owned(),
        };
        Claims {
            iss: issuer.to_owned(),
            exp: now.saturating_add(access_life(plugin)),
            aud: audience,
            sub: self.userid.clone().unwrap_or_else(|| client_id.to_string()),
            client_id: client_id.to_string(),
            iat: now,
            jti: id.to_string(),
            scope: self.scope.clone(),
        }
    }
}

/// Seconds that an access token lives. A signed one ends with its row at the latest: later, it could not be seen that it
/// was revoked. An opaque one ends with its row without being told so, as in Kong.
fn access_life(plugin: &Oauth2) -> i64 {
    let expires_in = plugin.config.expires_in();
    match (&plugin.keys, plugin.config.ttl()) {
        (Some(_), Some(ttl)) => expires_in.min(ttl),
        _ => expires_in,
    }
}

/// Why no token was issued.
pub(super) enum Failed {
    /// There is too much to do. The client may try again.
    Busy,
    /// The store has no room until tokens have ended.
    Full,
    Error(PluginError),
}

impl From<PluginError> for Failed {
    fn from(error: PluginError) -> Self {
        Self::Error(error)
    }
}

impl From<plugin::LookupError> for Failed {
    fn from(error: plugin::LookupError) -> Self {
        Self::Error(error.into())
    }
}

impl From<super::secrets::Overload> for Failed {
    fn from(_: super::secrets::Overload) -> Self {
        Self::Busy
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy => Self::Busy,
            StoreError::Full => Self::Full,
            error => Self::Error(PluginError::caused_by("the store of tokens failed", error)),
        }
    }
}
