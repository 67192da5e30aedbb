//! The endpoints: which one a request asks, and what all of them check.

use super::answer::{Refusal, invalid_method};
use super::config::Config;
use super::issue::Failed;
use super::own;
use super::{Oauth2, authorize, token};
use model::uri::{Slashes, normalize};
use plugin::{
    Configured, Field, Flow, Node, PluginError, Request, RequestBody, RequestCx, Response, Scheme,
    Step,
};
use uuid::Uuid;

/// What the endpoints use of a request and its node. Unlike [`RequestCx`], it can be shared with what waits.
#[derive(Clone, Copy)]
pub(super) struct Scene<'s, 'r> {
    pub(super) request: &'s Request<'r>,
    pub(super) node: &'s Node,
    pub(super) configured: Configured<'s>,
}

impl Scene<'_, '_> {
    /// The id of the configured plugin.
    pub(super) fn instance(&self) -> Option<Uuid> {
        self.configured.name(self.request).map(|name| name.id.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    Token,
    Authorize,
    Introspect,
    Revoke,
    Keys,
    Metadata,
}

impl Endpoint {
    /// Returns the endpoint with this path, if the configuration has it. As in Kong, anything may come before its name.
    pub(super) fn at(path: &[u8], plugin: &Oauth2) -> Option<Self> {
        let path = normalize(path, Slashes::Merge);
        let path = path.strip_suffix(b"/").unwrap_or(&path);
        let config = &plugin.config;
        let all: [(&[u8], bool, Self); 5] = [
            (b"/oauth2/token", true, Self::Token),
            (b"/oauth2/authorize", true, Self::Authorize),
            (
                b"/oauth2/introspect",
                config.introspection == Some(true),
                Self::Introspect,
            ),
            (
                b"/oauth2/revoke",
                config.revocation == Some(true),
                Self::Revoke,
            ),
            (b"/oauth2/jwks", plugin.keys.is_some(), Self::Keys),
        ];
        let found = all
            .iter()
            .find(|(name, is_there, _)| *is_there && path.ends_with(name));
        match found {
            Some((_, _, endpoint)) => Some(*endpoint),
            None if config.metadata == Some(true) && own::metadata::is_at(path, config) => {
                Some(Self::Metadata)
            }
            None => None,
        }
    }

    /// The name in metrics and in answers to wrong methods.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Authorize => "authorization",
            Self::Introspect => "introspection",
            Self::Revoke => "revocation",
            Self::Keys => "keys",
            Self::Metadata => "metadata",
        }
    }

    fn method(self) -> &'static str {
        match self {
            Self::Keys | Self::Metadata => "GET",
            Self::Token | Self::Authorize | Self::Introspect | Self::Revoke => "POST",
        }
    }
}

/// Answers a request to an endpoint.
pub(super) fn serve<'a>(plugin: &'a Oauth2, cx: RequestCx<'a, '_>, endpoint: Endpoint) -> Step<'a> {
    let request: &Request<'_> = cx.request;
    if request.method() != endpoint.method() {
        let (method, name) = (request.method(), endpoint.name());
        return Step::Respond(invalid_method(method, name, &plugin.config));
    }
    match endpoint {
        Endpoint::Keys | Endpoint::Metadata => {
            let text = match endpoint {
                Endpoint::Keys => plugin.keys.as_ref().map(|keys| keys.published()),
                _ => Some(plugin.metadata.clone()),
            };
            return Step::Respond(own::metadata::document(text.unwrap_or_default()));
        }
        _ if matches!(request.body, RequestBody::Unread) => return Step::ReadBody,
        _ => {}
    }
    let scene = Scene {
        request,
        node: cx.node,
        configured: cx.configured,
    };
    Step::wait(async move {
        let answered = match endpoint {
            Endpoint::Token => token::answer(plugin, &scene).await,
            Endpoint::Authorize => authorize::answer(plugin, &scene).await,
            Endpoint::Introspect => own::introspect::answer(plugin, &scene).await,
            _ => own::revoke::answer(plugin, &scene).await,
        };
        let description = match answered {
            Ok(response) => return Ok(Flow::Respond(response)),
            Err(Failed::Error(error)) => return Err(error),
            Err(Failed::Busy) => "Too many requests wait",
            Err(Failed::Full) => "There is no room for more tokens",
        };
        plugin.count(scene.node, |counts| {
            counts.refused_request(endpoint.name(), UNAVAILABLE)
        });
        let refusal = Refusal::new(UNAVAILABLE, description);
        Ok(Flow::Respond(refusal.answer(503, None)))
    })
}

const UNAVAILABLE: &str = "temporarily_unavailable";

/// Whether the client's connection is encrypted, up to a trusted peer.
/// Source: kong/tools/http.lua check_https().
pub(super) fn check_https(
    request: &Request<'_>,
    node: &Node,
    config: &Config,
) -> Result<(), Refusal> {
    if request.scheme == Scheme::Https {
        return Ok(());
    }
    let refuse = |description: &'static str| Err(Refusal::new("access_denied", description));
    if config.accept_http_if_already_terminated && node.trusts(request.peer.ip()) {
        return match request.header_field("x-forwarded-proto") {
            Field::Text(scheme) if scheme.contains(&b',') => {
                refuse("Only one X-Forwarded-Proto header allowed")
            }
            Field::Text(scheme) if scheme.eq_ignore_ascii_case(b"https") => Ok(()),
            Field::Several => refuse("Only one X-Forwarded-Proto header allowed"),
            _ => refuse("You must use HTTPS"),
        };
    }
    refuse("You must use HTTPS")
}

/// The time in seconds since 1970.
pub(super) fn now(node: &Node) -> i64 {
    i64::try_from(node.clock.since_epoch().as_secs()).unwrap_or(i64::MAX)
}

impl Oauth2 {
    /// Counts a refusal of an endpoint and returns its answer.
    pub(super) fn refuse(
        &self,
        node: &Node,
        endpoint: Endpoint,
        refusal: &Refusal,
        answer: Response,
    ) -> Response {
        self.count(node, |counts| {
            counts.refused_request(endpoint.name(), refusal.error);
        });
        answer
    }

    pub(super) fn store<'n>(
        &self,
        node: &'n Node,
    ) -> Result<&'n dyn tokens::TokenStore, PluginError> {
        let store = node.tokens.as_deref();
        store.ok_or_else(|| PluginError::new("the node has no store of tokens"))
    }
}
