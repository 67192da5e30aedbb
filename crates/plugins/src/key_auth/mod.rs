//! key-auth: admits only consumers, identified by a key in a header, the query or the body. Source of the behaviour:
//! kong/plugins/key-auth/handler.lua.

mod config;
pub(crate) mod credential;
pub(crate) mod source;

use config::Config;
use credential::KeyauthCredential;
use plugin::auth::{self, Attempt};
use plugin::{
    BuildCx, BuildError, Credential, Field, HeaderValue, Node, Owned, ParsedBody, Phases, Plugin,
    PluginDef, PluginError, Request, RequestBody, RequestCx, Response, Scopes, Step, redact,
};
use std::borrow::Cow;
use std::cell::LazyCell;
use std::sync::{Arc, OnceLock};

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<KeyAuth>("key-auth", 1250, Phases::ACCESS, Scopes::NO_CONSUMER)
}

struct KeyAuth {
    config: Config,
    /// Value of the WWW-Authenticate header.
    challenge: HeaderValue,
    /// The names of keys in the configuration, from the start on.
    hidden: OnceLock<redact::Hidden>,
}

impl Plugin for KeyAuth {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let challenge = match &config.realm {
            Some(realm) => format!("Key realm=\"{realm}\"").into(),
            None => HeaderValue::from_static("Key"),
        };
        Ok(Self {
            config,
            challenge,
            hidden: OnceLock::new(),
        })
    }

    fn start(&self, _: &Arc<Node>) {
        self.hidden
            .get_or_init(|| redact::learn(self.config.key_names.iter().map(|name| &**name)));
    }

    fn access<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        if !self.config.run_on_preflight && cx.request.method() == "OPTIONS" {
            return Ok(Step::Continue);
        }
        let anonymous = self.config.anonymous.as_deref();
        auth::attempt(&mut cx, anonymous, |cx| self.authenticate(cx))
    }

    fn needs(&self) -> Option<String> {
        let config = &self.config;
        let parts = [
            (config.key_in_header, "header"),
            (config.key_in_query, "query argument"),
            (config.key_in_body, "body field"),
        ];
        let parts = parts.iter().filter(|(is_searched, _)| *is_searched);
        let parts: Vec<&str> = parts.map(|(_, part)| *part).collect();
        let names = config.key_names.iter().map(|name| format!("`{name}`"));
        let names: Vec<String> = names.collect();
        let preflight = if config.run_on_preflight {
            ""
        } else {
            "; OPTIONS requests need none"
        };
        Some(format!(
            "a key in {} {}, {}{preflight}",
            parts.join(" or "),
            names.join(" or "),
            auth::otherwise(config.anonymous.as_deref())
        ))
    }
}

/// The result of the search for a key.
enum Search<'s, 'r> {
    Nothing,
    Several,
    /// The body must be read first.
    NeedsBody,
    Found {
        key: Cow<'r, [u8]>,
        place: KeySource<'s>,
    },
}

/// The part of the request that has the key, and the configured name under which it was found.
enum KeySource<'s> {
    Header(&'s str),
    Query(&'s str),
    Body(&'s str, ParsedBody),
}

impl KeyAuth {
    /// Finds and checks the key. The key is borrowed from the request, so that one from a header needs no allocation.
    /// For this reason it is hidden only after its lookup.
    fn authenticate(&self, cx: &mut RequestCx<'_, '_>) -> Result<Attempt, PluginError> {
        let (key, place) = match self.search(cx.request) {
            Search::NeedsBody => return Ok(Attempt::NeedsBody),
            Search::Nothing => return Ok(self.refuse("No API key found in request")),
            Search::Several => return Ok(self.refuse("Duplicate API key found")),
            Search::Found { key, place } => (key, place),
        };
        let is_empty = key.is_empty();
        let found = look_up(cx.node, &key)?;
        if self.config.hide_credentials {
            place.hide(cx.request);
        }
        let Some((credential, consumer)) = found else {
            return Ok(self.refuse(if is_empty {
                "No API key found in request"
            } else {
                "Unauthorized"
            }));
        };
        let id = credential.id.0;
        auth::authenticated(cx, consumer, Credential { id }, id);
        Ok(Attempt::Succeeded)
    }

    /// Searches for the key. The first text found under any name ends the search, even an empty one.
    fn search<'s, 'r>(&'s self, request: &'r Request<'_>) -> Search<'s, 'r> {
        let config = &self.config;
        let body = LazyCell::new(|| request.parse_body());
        for name in &config.key_names {
            let mut field = Field::Absent;
            let mut place = KeySource::Header(name);
            if config.key_in_header {
                field = request.header_field(name);
            }
            if config.key_in_query && field == Field::Absent {
                field = request.query_field(name);
                place = KeySource::Query(name);
            }
            if config.key_in_body
                && field == Field::Absent
                && matches!(request.body, RequestBody::Unread)
            {
                return Search::NeedsBody;
            }
            if config.key_in_body
                && field == Field::Absent
                && let Some(body) = &*body
            {
                field = owned(body.field(name));
                place = KeySource::Body(name, body.clone());
            }
            match field {
                Field::Absent | Field::Other => {}
                Field::Several => return Search::Several,
                Field::Text(key) => return Search::Found { key, place },
            }
        }
        Search::Nothing
    }

    fn refuse(&self, message: &'static str) -> Attempt {
        let response = Response::error(401, message);
        Attempt::Refused(response.with_header("WWW-Authenticate", self.challenge.clone()))
    }
}

impl KeySource<'_> {
    fn hide(self, request: &mut Request<'_>) {
        match self {
            Self::Header(name) => request.remove_header_field(name),
            Self::Query(name) => request.remove_query_arg(name),
            Self::Body(name, mut body) => {
                body.remove(name);
                request.set_upstream_body(body.encode());
            }
        }
    }
}

fn owned<'r>(field: Field<'_>) -> Field<'r> {
    match field {
        Field::Text(text) => Field::Text(Cow::Owned(text.into_owned())),
        Field::Absent => Field::Absent,
        Field::Other => Field::Other,
        Field::Several => Field::Several,
    }
}

/// Returns the credential with the key and its consumer, unless the credential has expired.
fn look_up(node: &Node, key: &[u8]) -> Result<Option<Owned<KeyauthCredential>>, PluginError> {
    // Keys are texts, so that no credential matches invalid UTF-8.
    let Some(key) = std::str::from_utf8(key).ok().filter(|key| !key.is_empty()) else {
        return Ok(None);
    };
    let found: Option<Owned<KeyauthCredential>> = node.entities.owned_by_unique("key", key)?;
    Ok(found.filter(|(credential, _)| match credential.ttl {
        None => true,
        Some(end) => i64::try_from(node.clock.since_epoch().as_secs()).is_ok_and(|now| now < end),
    }))
}

#[cfg(test)]
mod tests;
