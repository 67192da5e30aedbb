//! session: a client that was authenticated once gets a cookie, and needs no credential as long as its session lasts.
//! Source of the behaviour: kong/plugins/session/access.lua, header_filter.lua, session.lua.

mod checks;
mod clients;
mod config;
pub(crate) mod endpoints;
mod format;
mod jar;
mod keys;
mod payload;
pub(crate) mod reading;
mod rows;
mod saving;
mod sessions;
pub(crate) mod source;

use clients::{authenticate, exists, valid_consumer};
use config::{Config, Property, Storage};
use format::Invalid;
use jar::SetCookie;
use keys::Keys;
use lua::{Groups, Target};
use model::Value;
use payload::Login;
use plugin::{
    BuildCx, BuildError, Field, Filtered, Flow, HeaderValue, Node, PerWorker, Phases, Plugin,
    PluginDef, PluginError, RequestBody, RequestCx, Response, ResponseCx, Scopes, Shortcoming,
    Step,
};
use sessions::{Opened, Scene, Session, Sessions};
use std::sync::{Arc, Once, OnceLock};
use std::task::{Context, Poll, Waker};
use tokens::sessions::SessionStore;

pub(super) const NAME: &str = "session";

const SET_COOKIE: &str = "Set-Cookie";

pub(crate) fn def() -> PluginDef {
    let phases = Phases::ACCESS.with(Phases::HEADER_FILTER);
    PluginDef::bundled::<SessionPlugin>(NAME, 1900, phases, Scopes::NO_CONSUMER)
        .with_shortcoming(shortcoming)
}

fn shortcoming(config: &Value) -> Option<Shortcoming> {
    let secret = config.as_object()?.str("secret")?;
    is_reference(secret).then_some(Shortcoming {
        setting: "a reference to a vault in `secret`",
        instead: None,
    })
}

/// Whether a secret is a reference that was not resolved. Its text is not secret, so it must not become a key.
fn is_reference(secret: &str) -> bool {
    secret.starts_with("{vault://")
}

struct SessionPlugin {
    config: Config,
    sessions: Sessions,
    keys: OnceLock<Keys>,
    /// Reads the groups that Lua code has set.
    lua_groups: PerWorker<Groups>,
}

/// The session of a request.
#[derive(Default)]
struct Own {
    /// What `access` has opened before it has read the body.
    opened: Option<Opened>,
    /// The consumer and the credential of the session that authenticated the request.
    login: Option<Login>,
    session: Session,
}

impl Plugin for SessionPlugin {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let secret = config.secret.as_deref();
        let secret = secret.unwrap_or_else(|| model::schema::process_secret());
        Ok(Self {
            sessions: Sessions::new(&config, secret),
            config,
            keys: OnceLock::new(),
            lua_groups: cx.per_worker(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        let own = model::schema::process_secret();
        if self
            .config
            .secret
            .as_deref()
            .is_none_or(|secret| secret == own)
        {
            warn_of_random_secret();
        }
        let keys = self.keys(node);
        if self.config.remember == Some(true) {
            keys.start();
        }
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        let mut access = Box::pin(self.run(cx, own));
        // Only remembered clients and logouts wait.
        match access
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(flow) => Ok(flow?.into()),
            Poll::Pending => Ok(Step::wait(access)),
        }
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
    ) -> Result<Filtered, PluginError> {
        let (Some(credential), Some(consumer)) =
            (cx.state.credential.clone(), cx.state.consumer.clone())
        else {
            return Ok(Filtered::Continue);
        };
        let mut login = Login {
            consumer: Some(consumer.id.to_string()),
            credential: Some(credential.id.to_string()),
            ..Login::default()
        };
        if let Some(of_session) = &own.login
            && (&of_session.consumer, &of_session.credential)
                == (&login.consumer, &login.credential)
        {
            return Ok(Filtered::Continue);
        }
        let names = [&consumer.username, &consumer.custom_id];
        let subject = names.into_iter().flatten().next();
        login.subject = subject.map(ToString::to_string).or(login.consumer.clone());
        login.groups = self.groups(cx)?;
        let now = cx.node.clock.since_epoch().as_secs();
        // The credential may have been deleted while the request was processed.
        if !exists(cx.node, consumer.id.0, credential.id, now)? {
            return Ok(Filtered::Continue);
        }
        let scene = Scene {
            request: cx.request,
            now,
            store: self.store(cx.node)?,
        };
        let mut cookies = Vec::new();
        let keys = self.keys(cx.node);
        let saved = self.sessions.log_in(scene, &mut own.session, &login, keys);
        note(&mut cookies, saved);
        set_cookies(cx, &cookies);
        for (name, value) in self.headers(&self.config.response_headers, &own.session, &login, now)
        {
            cx.answer.headers.set(name, value);
        }
        // A request that goes on without its client passes here twice. A second login would replace the session, and
        // nobody would get its cookie.
        own.login = Some(login);
        Ok(Filtered::Continue)
    }
}

/// Whether a request asks for the end of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logout {
    Asked,
    No,
    /// The body decides, and it was not read yet.
    NeedsBody,
}

impl SessionPlugin {
    /// Returns the storage of the data. `None` if the cookies hold it.
    fn store<'n>(&self, node: &'n Node) -> Result<Option<&'n dyn SessionStore>, PluginError> {
        if self.config.storage != Some(Storage::Kong) {
            return Ok(None);
        }
        let store = node.sessions.as_deref();
        let none = || PluginError::new("the node has no store of sessions");
        store.ok_or_else(none).map(Some)
    }

    async fn run(&self, mut cx: RequestCx<'_, '_>, own: &mut Own) -> Result<Flow, PluginError> {
        if self.config.secret.as_deref().is_some_and(is_reference) {
            return Err(PluginError::new(
                "references to vaults in `secret` are not resolved",
            ));
        }
        let now = cx.node.clock.since_epoch().as_secs();
        let store = self.store(cx.node)?;
        let keys = self.keys(cx.node);
        let opened = match own.opened.take() {
            Some(opened) => opened,
            None => {
                // The client must not choose what the upstream learns about the session.
                for property in self.config.request_headers.iter().flatten() {
                    cx.request.upstream.headers.remove(property.header());
                }
                let request = &*cx.request;
                let scene = Scene {
                    request,
                    now,
                    store,
                };
                self.sessions.open(scene, keys).await
            }
        };
        let (mut session, login, mut cookies) = match opened {
            Opened::Absent(session) => {
                own.session = session;
                return Ok(Flow::Continue);
            }
            Opened::Present(session, login, cookies) => (session, login, cookies),
        };
        let logout = self.logout(&cx);
        if logout == Logout::NeedsBody {
            // The body may take long. So the session is opened again then, unless it has just begun again.
            if !cookies.is_empty() {
                own.opened = Some(Opened::Present(session, login, cookies));
            }
            return Ok(Flow::ReadBody);
        }
        let consumer = match logout {
            Logout::Asked => None,
            _ => valid_consumer(&cx, &login)?,
        };
        let scene = Scene {
            request: cx.request,
            now,
            store,
        };
        let changed = match &consumer {
            None => self.sessions.log_out(scene, &mut session, keys).await,
            Some(_) => self.sessions.refresh(scene, &mut session),
        };
        let has_failed = changed.is_err();
        note(&mut cookies, changed);
        for cookie in cookies {
            let line = HeaderValue::from_text(&cookie.line);
            cx.state.headers.add(SET_COOKIE, line);
        }
        let Some(consumer) = consumer else {
            own.session = session;
            return Ok(match logout {
                // The session goes on, so the client must not believe that it has ended.
                Logout::Asked if has_failed => Flow::Respond(Response::unexpected_error()),
                Logout::Asked => Flow::Respond(Response::new(200, "")),
                _ => Flow::Continue,
            });
        };
        for (name, value) in self.headers(&self.config.request_headers, &session, &login, now) {
            cx.request.upstream.headers.set(name, value);
        }
        for (name, value) in self.headers(&self.config.response_headers, &session, &login, now) {
            cx.state.headers.set(name, value);
        }
        authenticate(&mut cx, consumer, &login);
        own.session = session;
        own.login = Some(login);
        Ok(Flow::Continue)
    }

    fn keys(&self, node: &Node) -> &Keys {
        let make = || Keys::new(self.sessions.secret.clone(), node);
        self.keys.get_or_init(make)
    }

    /// Returns the groups that a plugin has found: those that Lua code has set, or else those of a plugin of the program.
    fn groups(&self, cx: &mut ResponseCx<'_, '_>) -> Result<Option<Vec<String>>, PluginError> {
        let target = Target::response(lua::Phase::HeaderFilter, cx).of(NAME);
        let from_lua = self.lua_groups.get(Groups::default).read(&target);
        if let Some(groups) = from_lua.map_err(PluginError::new)? {
            let groups = groups
                .iter()
                .map(|group| String::from_utf8_lossy(&group.text).into());
            return Ok(Some(groups.collect()));
        }
        let found = cx.state.groups.iter().map(ToString::to_string);
        Ok((!cx.state.groups.is_empty()).then(|| found.collect()))
    }

    fn logout(&self, cx: &RequestCx<'_, '_>) -> Logout {
        let method = cx.request.method();
        let methods = self.config.logout_methods.iter().flatten();
        if !methods.into_iter().any(|one| one == method) {
            return Logout::No;
        }
        if let Some(name) = &self.config.logout_query_arg
            && cx.request.query_field(name) != Field::Absent
        {
            return Logout::Asked;
        }
        let reads_body = self.config.read_body_for_logout == Some(true) && method != "GET";
        match &self.config.logout_post_arg {
            Some(_) if reads_body && matches!(cx.request.body, RequestBody::Unread) => {
                Logout::NeedsBody
            }
            Some(name) if reads_body => {
                let body = cx.request.parse_body();
                match body.is_some_and(|body| body.field(name) != Field::Absent) {
                    true => Logout::Asked,
                    false => Logout::No,
                }
            }
            _ => Logout::No,
        }
    }

    /// Returns the configured headers that the session has values for.
    fn headers(
        &self,
        properties: &Option<Vec<Property>>,
        session: &Session,
        login: &Login,
        now: u64,
    ) -> Vec<(&'static str, HeaderValue)> {
        let properties = properties.iter().flatten();
        let all = properties.filter_map(|&property| {
            let value = self.sessions.property(session, login, property, now)?;
            Some((property.header(), HeaderValue::from_text(&value)))
        });
        all.collect()
    }
}

/// Adds the cookies of a step. A cookie replaces an earlier one with the same name. If the step failed, the request
/// continues without, as in Kong.
fn note(cookies: &mut Vec<SetCookie>, step: Result<Vec<SetCookie>, Invalid>) {
    match step {
        Ok(new) => {
            for cookie in new {
                cookies.retain(|old| old.name != cookie.name);
                cookies.push(cookie);
            }
        }
        Err(error) => tracing::warn!(%error, "a session cannot be saved"),
    }
}

/// Sets cookies of a response. They replace those with the same names that the upstream or `access` has set.
fn set_cookies(cx: &mut ResponseCx<'_, '_>, cookies: &[SetCookie]) {
    let is_replaced = |line: &[u8]| cookies.iter().any(|cookie| cookie.replaces(line));
    if cx.header_lines(SET_COOKIE).any(is_replaced) {
        let kept = cx
            .header_lines(SET_COOKIE)
            .filter(|line| !is_replaced(line));
        let kept: Vec<HeaderValue> = kept.map(HeaderValue::from_untrusted).collect();
        cx.answer.headers.remove(SET_COOKIE);
        for line in kept {
            cx.answer.headers.add(SET_COOKIE, line);
        }
    }
    for cookie in cookies {
        let line = HeaderValue::from_text(&cookie.line);
        cx.answer.headers.add(SET_COOKIE, line);
    }
}

/// Warns once per process.
fn warn_of_random_secret() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            "a plugin session has no `secret`: this process made one. Other nodes do not accept its sessions, and all end \
             with the process, unless the configuration is stored with this secret"
        );
    });
}

#[cfg(test)]
mod tests;
