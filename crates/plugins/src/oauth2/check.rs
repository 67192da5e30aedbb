//! Admits requests with an access token. Source of the behaviour: kong/plugins/oauth2/access.lua.

use super::Oauth2;
use super::answer::challenge;
use super::config::Config;
use super::credential::Oauth2Credential;
use super::endpoint::now;
use super::own::signed::Claims;
use super::search::Search;
use super::source::OAUTH2_CREDENTIALS;
use model::EntityKind;
use plugin::auth::{self, Attempt};
use plugin::{
    Consumer, Credential, HeaderValue, Node, PluginError, Request, RequestCx, Response, Step,
};
use serde::Serialize;
use std::sync::Arc;
use tokens::{Owner, Reply, StoreError, Token};

const SCOPE: &str = "X-Authenticated-Scope";
const USERID: &str = "X-Authenticated-UserId";

/// Whom a token stands for.
pub(super) struct Known {
    pub(super) credential: Arc<Oauth2Credential>,
    consumer: Arc<Consumer>,
    scope: Option<String>,
    userid: Option<String>,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    Unknown,
    Expired,
    /// It is for another service.
    OtherService,
    /// It is for several services, and the plugin accepts only its own.
    Global,
    /// Its client, the consumer or the service was deleted.
    Deleted,
}

impl Unfit {
    fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::OtherService => "other_service",
            Self::Global => "global",
            Self::Deleted => "deleted",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Global => GLOBAL,
            _ => INVALID,
        }
    }
}

const MISSING: &str = "The access token is missing";
const INVALID: &str = "The access token is invalid or has expired";
const GLOBAL: &str =
    "The access token is global, but the current plugin is configured without 'global_credentials'";

/// The values of WWW-Authenticate.
pub(super) struct Challenges {
    missing: HeaderValue,
    invalid: HeaderValue,
}

impl Challenges {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            missing: challenge(config, None).into(),
            invalid: challenge(config, Some(("invalid_token", INVALID))).into(),
        }
    }
}

impl Oauth2 {
    pub(super) fn authenticate<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
    ) -> Result<Step<'a>, PluginError> {
        let anonymous = self.config.anonymous.as_deref();
        if auth::is_settled(&cx, anonymous) {
            forget_user(&mut cx);
            return Ok(Step::Continue);
        }
        let node: &'a Arc<Node> = cx.node;
        let (reply, place) = match self.search(cx.request) {
            Search::NeedsBody => return Ok(Step::ReadBody),
            Search::Missing => {
                self.count(node, |counts| counts.refused("missing"));
                let response = self.unauthorized("invalid_request", MISSING);
                return Ok(self.conclude(&mut cx, Attempt::Refused(response))?.into());
            }
            Search::Found { token, place } => (self.look_up(node, &token)?, place),
        };
        if self.config.hide_credentials {
            self.hide(cx.request, place);
        }
        match reply {
            Looked::Now(found) => {
                let attempt = self.judge(&mut cx, found)?;
                Ok(self.conclude(&mut cx, attempt)?.into())
            }
            Looked::Later(future) => Ok(Step::wait_for_client(async move {
                let found = Found::of(future.await)?;
                let attempt = self.judge(&mut cx, found)?;
                self.conclude(&mut cx, attempt)
            })),
        }
    }

    fn conclude(
        &self,
        cx: &mut RequestCx<'_, '_>,
        attempt: Attempt,
    ) -> Result<plugin::Flow, PluginError> {
        if !matches!(attempt, Attempt::Succeeded) {
            forget_user(cx);
        }
        auth::conclude(cx, self.config.anonymous.as_deref(), attempt)
    }

    fn look_up<'n>(&self, node: &'n Node, token: &[u8]) -> Result<Looked<'n>, PluginError> {
        let Ok(token) = std::str::from_utf8(token) else {
            return Ok(Looked::Now(Found::Nothing));
        };
        // An imported token may have dots, too. It has no right signature, and is looked for in the store.
        if let Some(claims) = self.keys.as_ref().and_then(|keys| keys.verify(token)) {
            return Ok(Looked::Now(Found::Signed(claims)));
        }
        match self.store(node)?.find_by_access_token(token, now(node)) {
            Reply::Ready(found) => Ok(Looked::Now(Found::of(found)?)),
            Reply::Wait(future) => Ok(Looked::Later(future)),
        }
    }

    fn judge(&self, cx: &mut RequestCx<'_, '_>, found: Found) -> Result<Attempt, PluginError> {
        let judged = match found {
            Found::Busy => return Ok(Attempt::Undecided(Response::status_error(503))),
            Found::Nothing => Err(Unfit::Unknown),
            Found::Stored(token) => self.judge_stored(cx.node, cx.request, token)?,
            Found::Signed(claims) => self.judge_signed(cx.node, cx.request, claims)?,
        };
        let known = match judged {
            Ok(known) => known,
            Err(unfit) => {
                self.count(cx.node, |counts| counts.refused(unfit.name()));
                let response = self.unauthorized("invalid_token", unfit.description());
                return Ok(match unfit {
                    // This refusal ends the request also if `anonymous` is set, as in Kong.
                    Unfit::Global => Attempt::Undecided(response),
                    _ => Attempt::Refused(response),
                });
            }
        };
        self.count(cx.node, |counts| counts.found());
        let id = known.credential.id.0;
        let identifier = &*known.credential.client_id;
        auth::authenticated(cx, known.consumer, Credential { id }, identifier);
        let headers = &mut cx.request.upstream.headers;
        for (name, value) in [(SCOPE, known.scope), (USERID, known.userid)] {
            match value {
                Some(value) => headers.set(name, value),
                None => headers.remove(name),
            }
        }
        Ok(Attempt::Succeeded)
    }

    /// Checks a token of the store for the service of the request.
    pub(super) fn judge_stored(
        &self,
        node: &Node,
        request: &Request<'_>,
        token: Token,
    ) -> Result<Result<Known, Unfit>, PluginError> {
        let service = request.service.map(|service| service.id);
        match token.service {
            None if !self.config.global_credentials => return Ok(Err(Unfit::Global)),
            Some(owner) if service != Some(owner.id) => return Ok(Err(Unfit::OtherService)),
            _ => {}
        }
        if token.access_ends().is_some_and(|ends| now(node) >= ends) {
            return Ok(Err(Unfit::Expired));
        }
        if !is_of_service(node, &token)? || !is_current(node, OAUTH2_CREDENTIALS, token.credential)?
        {
            return Ok(Err(Unfit::Deleted));
        }
        let owned = node.entities.owned_by_id(token.credential.id)?;
        let Some((credential, consumer)) = owned else {
            return Ok(Err(Unfit::Deleted));
        };
        Ok(Ok(Known {
            credential,
            consumer,
            scope: token.scope,
            userid: token.authenticated_userid,
        }))
    }

    /// Checks a signed token, whose signature was right, for the service of the request.
    pub(super) fn judge_signed(
        &self,
        node: &Node,
        request: &Request<'_>,
        claims: Claims,
    ) -> Result<Result<Known, Unfit>, PluginError> {
        let issuer = self.config.issuer.as_deref();
        if issuer != Some(&*claims.iss) {
            return Ok(Err(Unfit::Unknown));
        }
        if now(node) >= claims.exp {
            return Ok(Err(Unfit::Expired));
        }
        let service = request.service.map(|service| service.id.to_string());
        if issuer == Some(&*claims.aud) {
            if !self.config.global_credentials {
                return Ok(Err(Unfit::Global));
            }
        } else if service.as_deref() != Some(&*claims.aud) {
            return Ok(Err(Unfit::OtherService));
        }
        let owned = node
            .entities
            .owned_by_unique("client_id", &claims.client_id)?;
        let Some((credential, consumer)) = owned else {
            return Ok(Err(Unfit::Deleted));
        };
        Ok(Ok(Known {
            credential,
            consumer,
            userid: (claims.sub != claims.client_id).then_some(claims.sub),
            scope: claims.scope,
        }))
    }

    fn unauthorized(&self, error: &'static str, description: &'static str) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: &'static str,
            error_description: &'static str,
        }
        let challenge = match error {
            "invalid_token" => &self.challenges.invalid,
            _ => &self.challenges.missing,
        };
        let body = Body {
            error,
            error_description: description,
        };
        Response::json(401, &body).with_header("WWW-Authenticate", challenge.clone())
    }
}

/// What is behind the text of a token.
enum Found {
    Nothing,
    Stored(Token),
    Signed(Claims),
    /// Too many look-ups wait for the disk.
    Busy,
}

impl Found {
    fn of(found: Result<Option<Token>, StoreError>) -> Result<Self, PluginError> {
        match found {
            Ok(found) => Ok(found.map_or(Self::Nothing, Self::Stored)),
            Err(StoreError::Busy) => Ok(Self::Busy),
            Err(error) => Err(PluginError::caused_by("the store of tokens failed", error)),
        }
    }
}

enum Looked<'n> {
    Now(Found),
    Later(std::pin::Pin<Box<dyn Future<Output = Result<Option<Token>, StoreError>> + Send + 'n>>),
}

/// Whether the service of a token, if it has one, is the one that it was issued for.
pub(super) fn is_of_service(node: &Node, token: &Token) -> Result<bool, PluginError> {
    match token.service {
        Some(owner) => is_current(node, EntityKind::Services, owner),
        None => Ok(true),
    }
}

/// Whether the entity exists and is not a new one with the same id.
fn is_current(node: &Node, kind: EntityKind, owner: Owner) -> Result<bool, PluginError> {
    let created = node.entities.created_revision(kind, owner.id)?;
    Ok(created == Some(owner.created))
}

/// The client must not choose what the upstream learns about the user.
fn forget_user(cx: &mut RequestCx<'_, '_>) {
    let headers = &mut cx.request.upstream.headers;
    headers.remove(SCOPE);
    headers.remove(USERID);
}
