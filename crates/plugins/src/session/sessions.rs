//! Opening, renewing, saving and ending sessions.
//! Source: lua-resty-session 4.0.5, lib/resty/session.lua.

use super::config::{Config, Property};
use super::format::{HEADER_TEXT, Header, Invalid, Purpose, STORED, Secret};
use super::jar::{self, SetCookie};
use super::keys::Keys;
use super::payload::{Login, Payload};
use super::saving::stored;
use plugin::Request;
use std::sync::Arc;
use tokens::sessions::SessionStore;

/// Idle time after which a request is noted in the cookie (`touch_threshold`, which Kong does not change).
const TOUCH_AFTER: f64 = 60.0;

/// What a session is read from.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'s, 'r> {
    pub(crate) request: &'s Request<'r>,
    /// Unix time in seconds.
    pub(crate) now: u64,
    /// The storage of the data. `None` if the cookie holds it.
    pub(crate) store: Option<&'s dyn SessionStore>,
}

/// The sessions of a configuration.
pub(crate) struct Sessions {
    pub(super) secret: Arc<Secret>,
    pub(super) audience: String,
    pub(super) session: Kind,
    pub(super) remember: Kind,
    pub(super) remembers: bool,
    idling_timeout: f64,
    pub(super) stale_ttl: f64,
    /// Attributes of the cookies, each after `; `.
    pub(super) attributes: String,
}

/// A cookie and its limits.
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) rolling_timeout: f64,
    absolute_timeout: f64,
}

/// A session of a request, or the place for a new one.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// `None` if the session is not saved yet.
    pub(super) header: Option<Header>,
    /// The header of the cookie that the browser keeps.
    pub(super) remembered: Option<Header>,
    pub(super) payload: Payload,
    /// The storage has a newer session in the place of this one.
    is_replaced: bool,
}

/// The result of opening a session.
pub(crate) enum Opened {
    /// The request has a session, which may have begun again. Then there are cookies to set.
    Present(Session, Login, Vec<SetCookie>),
    /// The request has no session. A new one keeps those of other audiences.
    Absent(Session),
}

impl Sessions {
    pub(crate) fn new(config: &Config, secret: &str) -> Self {
        let text = |text: &Option<_>, default: &str| {
            let text: &Option<compact_str::CompactString> = text;
            text.as_deref().unwrap_or(default).to_owned()
        };
        let mut attributes = String::new();
        let domain = config.cookie_domain.as_deref();
        if let Some(domain) = domain.filter(|domain| !matches!(*domain, "" | "localhost")) {
            attributes.push_str("; Domain=");
            attributes.push_str(domain);
        }
        attributes.push_str("; Path=");
        attributes.push_str(config.cookie_path.as_deref().unwrap_or("/"));
        let same_site = config.cookie_same_site.as_deref().unwrap_or("Strict");
        attributes.push_str("; SameSite=");
        attributes.push_str(same_site);
        // Browsers refuse `None` without `Secure`, so lua-resty-session adds it.
        if config.cookie_secure.unwrap_or(true) || same_site == "None" {
            attributes.push_str("; Secure");
        }
        if config.cookie_http_only.unwrap_or(true) {
            attributes.push_str("; HttpOnly");
        }
        Self {
            secret: Arc::new(Secret::new(secret)),
            audience: text(&config.audience, "default"),
            session: Kind {
                name: text(&config.cookie_name, "session"),
                rolling_timeout: config.rolling_timeout.unwrap_or(3600.0),
                absolute_timeout: config.absolute_timeout.unwrap_or(86_400.0),
            },
            remember: Kind {
                name: text(&config.remember_cookie_name, "remember"),
                rolling_timeout: config.remember_rolling_timeout.unwrap_or(604_800.0),
                absolute_timeout: config.remember_absolute_timeout.unwrap_or(2_592_000.0),
            },
            remembers: config.remember.unwrap_or(false),
            idling_timeout: config.idling_timeout.unwrap_or(900.0),
            stale_ttl: config.stale_ttl.unwrap_or(10.0),
            attributes,
        }
    }

    pub(super) fn kind(&self, purpose: Purpose) -> &Kind {
        match purpose {
            Purpose::Session => &self.session,
            Purpose::Remember => &self.remember,
        }
    }

    pub(crate) async fn open(&self, scene: Scene<'_, '_>, keys: &Keys) -> Opened {
        let found = match self.read(scene) {
            Ok(session) => Ok((session, Vec::new())),
            Err(_) if self.remembers => self.begin_again(scene, keys).await,
            Err(reason) => Err(reason),
        };
        let (session, cookies) = match found {
            Ok(found) => found,
            Err(reason) => {
                tracing::debug!(%reason, "no session");
                return Opened::Absent(Session::default());
            }
        };
        match session.payload.login(&self.audience) {
            Some(login) => Opened::Present(session, login, cookies),
            None => Opened::Absent(session),
        }
    }

    fn read(&self, scene: Scene<'_, '_>) -> Result<Session, Invalid> {
        let (header, cookie) = self.read_header(scene, Purpose::Session)?;
        let (sealed, is_replaced) = self.sealed(scene, &header, cookie, Purpose::Session)?;
        let plaintext = (self.secret).open_payload(&header, &sealed, Purpose::Session)?;
        Ok(Session {
            payload: Payload::decode(&plaintext, header.flags)?,
            header: Some(header),
            is_replaced,
            ..Session::default()
        })
    }

    /// Begins a session with the data of the cookie that the browser keeps. Both get new ids.
    async fn begin_again(
        &self,
        scene: Scene<'_, '_>,
        keys: &Keys,
    ) -> Result<(Session, Vec<SetCookie>), Invalid> {
        let (header, cookie) = self.read_header(scene, Purpose::Remember)?;
        let (sealed, _) = self.sealed(scene, &header, cookie, Purpose::Remember)?;
        let derived = keys.derive(header.id).await?;
        let plaintext = derived.open(&header, &sealed)?;
        let mut session = Session {
            payload: Payload::decode(&plaintext, header.flags)?,
            remembered: Some(header),
            ..Session::default()
        };
        let mut cookies = Vec::new();
        if session.payload.login(&self.audience).is_some() {
            let fresh = keys.fresh().await?;
            cookies = self.save(scene, &mut session, Purpose::Remember, fresh)?;
            cookies.extend(self.save_session(scene, &mut session)?);
        }
        Ok((session, cookies))
    }

    /// Returns the encrypted payload, and whether the storage has a newer session in its place.
    fn sealed(
        &self,
        scene: Scene<'_, '_>,
        header: &Header,
        cookie: &[u8],
        purpose: Purpose,
    ) -> Result<(Vec<u8>, bool), Invalid> {
        if let Some(store) = scene.store {
            return stored(store, header, scene.now);
        }
        let name = &self.kind(purpose).name;
        let sealed = jar::join(scene.request, name, cookie, header.size as usize)?;
        Ok((sealed, false))
    }

    /// Returns the header of a cookie, if it is authentic and has not expired, and the cookie.
    pub(super) fn read_header<'s>(
        &self,
        scene: Scene<'s, '_>,
        purpose: Purpose,
    ) -> Result<(Header, &'s [u8]), Invalid> {
        let kind = self.kind(purpose);
        let cookie = scene.request.cookie(&kind.name).ok_or(Invalid::Missing)?;
        let text = cookie.get(..HEADER_TEXT).ok_or(Invalid::Header)?;
        let header = self.secret.open_header(text)?;
        // Only sessions note when they were used.
        let is_noted = purpose == Purpose::Remember && header.idling != 0;
        if header.has(STORED) != scene.store.is_some() || is_noted {
            return Err(Invalid::Header);
        }
        let is_over = |limit: f64, since: u64| limit != 0.0 && elapsed(scene.now, since) > limit;
        let absolute = elapsed(scene.now, header.created);
        let has_ended = absolute > f64::from(u32::MAX)
            || is_over(kind.absolute_timeout, header.created)
            || is_over(kind.rolling_timeout, header.renewed());
        let is_idle =
            purpose == Purpose::Session && is_over(self.idling_timeout, header.last_noted());
        match has_ended || is_idle {
            true => Err(Invalid::Expired),
            false => Ok((header, cookie)),
        }
    }

    /// Renews a session that was not renewed for three quarters of `rolling_timeout`, or notes the time of the request.
    /// Returns the cookies to set.
    pub(crate) fn refresh(
        &self,
        scene: Scene<'_, '_>,
        session: &mut Session,
    ) -> Result<Vec<SetCookie>, Invalid> {
        let Some(header) = &session.header else {
            return Ok(Vec::new());
        };
        // Renewing it would bring back what was logged out in the newer session.
        if session.is_replaced {
            return Ok(Vec::new());
        }
        let rolled = elapsed(scene.now, header.renewed());
        let rolling = self.session.rolling_timeout;
        if rolling > 0.0 && rolled > (rolling * 0.75).floor() {
            return self.save_session(scene, session);
        }
        let idle = elapsed(scene.now, header.last_noted());
        if self.idling_timeout > 0.0 && idle > TOUCH_AFTER {
            return self.touch(scene, session);
        }
        Ok(Vec::new())
    }

    /// Begins a session, or replaces the data of the present one. It gets a new id.
    pub(crate) fn log_in(
        &self,
        scene: Scene<'_, '_>,
        session: &mut Session,
        login: &Login,
        keys: &Keys,
    ) -> Result<Vec<SetCookie>, Invalid> {
        // Other requests may have ended sessions of other audiences since it was opened.
        if let (Some(store), Some(header)) = (scene.store, &session.header)
            && !matches!(stored(store, header, scene.now), Ok((_, false)))
        {
            *session = Session::default();
        }
        session.payload.set(&self.audience, login);
        let mut cookies = self.save_session(scene, session)?;
        if self.is_remembered(session) {
            self.find_remembered(scene, session);
            match keys.take() {
                Some(fresh) => {
                    cookies.extend(self.save(scene, session, Purpose::Remember, fresh)?);
                }
                None => {
                    tracing::debug!("a client is not remembered: too many log in at once");
                    let header = session.remembered.take();
                    // The deletion is queued. A filter cannot wait for its end.
                    drop(self.delete(scene, header, Purpose::Remember, &mut cookies)?);
                }
            }
        }
        Ok(cookies)
    }

    /// Ends the session of this audience. Returns the cookies to set, which delete the session if no other audience has
    /// one.
    pub(crate) async fn log_out(
        &self,
        scene: Scene<'_, '_>,
        session: &mut Session,
        keys: &Keys,
    ) -> Result<Vec<SetCookie>, Invalid> {
        session.payload.remove(&self.audience);
        let is_remembered = self.is_remembered(session);
        if is_remembered {
            self.find_remembered(scene, session);
        }
        if !session.payload.is_empty() {
            let mut cookies = self.save_session(scene, session)?;
            if is_remembered {
                let fresh = keys.fresh().await?;
                cookies.extend(self.save(scene, session, Purpose::Remember, fresh)?);
            }
            return Ok(cookies);
        }
        let mut cookies = Vec::new();
        let header = session.header.take();
        let ended = self.delete(scene, header, Purpose::Session, &mut cookies)?;
        let forgotten = match is_remembered {
            true => {
                let header = session.remembered.take();
                self.delete(scene, header, Purpose::Remember, &mut cookies)?
            }
            false => None,
        };
        for reply in [ended, forgotten].into_iter().flatten() {
            reply.await?;
        }
        Ok(cookies)
    }

    /// Returns the value of a property. `None` if the session does not have it.
    pub(crate) fn property(
        &self,
        session: &Session,
        login: &Login,
        property: Property,
        now: u64,
    ) -> Option<String> {
        let header = session.header.as_ref()?;
        let left = |limit: f64, since: u64| (limit > 0.0).then(|| limit - elapsed(now, since));
        let idling = left(self.idling_timeout, header.last_noted());
        let rolling = left(self.session.rolling_timeout, header.renewed());
        let absolute = left(self.session.absolute_timeout, header.created);
        let seconds = match property {
            Property::Id => return Some(header.id_text()),
            Property::Audience => return Some(self.audience.clone()),
            Property::Subject => return login.subject.clone(),
            Property::IdlingTimeout => idling,
            Property::RollingTimeout => rolling,
            Property::AbsoluteTimeout => absolute,
            Property::Timeout => [idling, rolling, absolute]
                .into_iter()
                .flatten()
                .reduce(f64::min),
        };
        seconds.map(|seconds| seconds.to_string())
    }
}

/// Returns the seconds from a time to another, which are negative if the clock was set back.
pub(super) fn elapsed(now: u64, since: u64) -> f64 {
    now as f64 - since as f64
}
