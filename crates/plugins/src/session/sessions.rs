//! Opening, renewing, saving and ending sessions.
//! Source: lua-resty-session 4.0.5, lib/resty/session.lua.

use super::config::{Config, Property};
use super::format::{FORGET, HEADER_TEXT, Header, Invalid, Purpose, STORED, Secret, Times};
use super::jar::{self, SetCookie};
use super::payload::{Login, Payload};
use plugin::Request;
use services::{NewSession, Replaced, SessionStore};
use std::time::{Duration, UNIX_EPOCH};

/// Maximum lifetime of a cookie and of a stored session: 400 days.
const MAX_TTL: f64 = 34_560_000.0;

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
    secret: Secret,
    pub(super) audience: String,
    session: Kind,
    remember: Kind,
    remembers: bool,
    idling_timeout: f64,
    stale_ttl: f64,
    /// Attributes of the cookies, each after `; `.
    attributes: String,
}

/// A cookie and its limits.
struct Kind {
    name: String,
    rolling_timeout: f64,
    absolute_timeout: f64,
}

/// A session of a request, or the place for a new one.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// `None` if the session is not saved yet.
    header: Option<Header>,
    /// The header of the cookie that the browser keeps.
    remembered: Option<Header>,
    payload: Payload,
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
            secret: Secret::new(secret),
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

    fn kind(&self, purpose: Purpose) -> &Kind {
        match purpose {
            Purpose::Session => &self.session,
            Purpose::Remember => &self.remember,
        }
    }

    pub(crate) fn open(&self, scene: Scene<'_, '_>) -> Opened {
        let found = self.read(scene, Purpose::Session);
        let found = found.or_else(|reason| match self.remembers {
            true => self.begin_again(scene),
            false => Err(reason),
        });
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

    /// Begins a session with the data of the cookie that the browser keeps. Both get new ids.
    fn begin_again(&self, scene: Scene<'_, '_>) -> Result<(Session, Vec<SetCookie>), Invalid> {
        let (mut session, mut cookies) = self.read(scene, Purpose::Remember)?;
        if session.payload.login(&self.audience).is_some() {
            cookies = self.save(scene, &mut session, Purpose::Remember)?;
            cookies.extend(self.save(scene, &mut session, Purpose::Session)?);
        }
        Ok((session, cookies))
    }

    fn read(
        &self,
        scene: Scene<'_, '_>,
        purpose: Purpose,
    ) -> Result<(Session, Vec<SetCookie>), Invalid> {
        let (header, cookie) = self.read_header(scene, purpose)?;
        let name = &self.kind(purpose).name;
        let sealed = match scene.store {
            Some(store) => stored(store, &header, scene.now)?,
            None => jar::join(scene.request, name, cookie, header.size as usize)?,
        };
        let plaintext = self.secret.open_payload(&header, &sealed, purpose)?;
        let mut session = Session {
            payload: Payload::decode(&plaintext, header.flags)?,
            ..Session::default()
        };
        match purpose {
            Purpose::Session => session.header = Some(header),
            Purpose::Remember => session.remembered = Some(header),
        }
        Ok((session, Vec::new()))
    }

    /// Returns the header of a cookie, if it is authentic and has not expired, and the cookie.
    fn read_header<'s>(
        &self,
        scene: Scene<'s, '_>,
        purpose: Purpose,
    ) -> Result<(Header, &'s [u8]), Invalid> {
        let kind = self.kind(purpose);
        let cookie = scene.request.cookie(&kind.name).ok_or(Invalid::Missing)?;
        let text = cookie.get(..HEADER_TEXT).ok_or(Invalid::Header)?;
        let header = self.secret.open_header(text)?;
        if header.has(STORED) != scene.store.is_some() {
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

    /// Saves a session under a new id, and returns the cookies to set.
    fn save(
        &self,
        scene: Scene<'_, '_>,
        session: &mut Session,
        purpose: Purpose,
    ) -> Result<Vec<SetCookie>, Invalid> {
        let kind = self.kind(purpose);
        let old = match purpose {
            Purpose::Session => session.header.as_ref(),
            Purpose::Remember => session.remembered.as_ref(),
        };
        let created = old.map_or(scene.now, |old| old.created);
        let rolling = scene.now.saturating_sub(created);
        let times = Times {
            created,
            rolling: u32::try_from(rolling).map_err(|_| Invalid::Expired)?,
        };
        let (plaintext, mut flags) = session.payload.encode()?;
        flags |= old.map_or(0, |old| old.flags & FORGET);
        if scene.store.is_some() {
            flags |= STORED;
        }
        let (header, payload) = self.secret.seal(flags, times, plaintext, purpose)?;
        let text = self.secret.header_text(&header)?;
        let attributes = match purpose {
            Purpose::Session => self.attributes.clone(),
            Purpose::Remember => self.kept_attributes(created),
        };
        let cookies = match scene.store {
            Some(store) => {
                self.store(store, &header, &payload, old, purpose, scene.now)?;
                jar::split(&kind.name, &text, "", &attributes)?
            }
            None => {
                let mut cookies = jar::split(&kind.name, &text, &payload, &attributes)?;
                let before = old.map(|old| jar::pieces(&kind.name, old.size as usize));
                let before = before.transpose()?.unwrap_or_default();
                let unused = cookies.len() + 1..=before;
                cookies.extend(jar::expire(&kind.name, unused, &self.attributes));
                cookies
            }
        };
        match purpose {
            Purpose::Session => session.header = Some(header),
            Purpose::Remember => session.remembered = Some(header),
        }
        Ok(cookies)
    }

    fn store(
        &self,
        store: &dyn SessionStore,
        header: &Header,
        payload: &str,
        old: Option<&Header>,
        purpose: Purpose,
        now: u64,
    ) -> Result<(), Invalid> {
        let after = |seconds: f64| now.saturating_add(seconds.max(0.0) as u64);
        let stale_until = match purpose {
            Purpose::Session => after(self.stale_ttl),
            Purpose::Remember => now,
        };
        let old = old.map(Header::id_text);
        let new = NewSession {
            id: &header.id_text(),
            data: &serde_json::json!([payload]).to_string(),
            expires: after(lifetime(self.kind(purpose).rolling_timeout)),
            replaces: old.as_deref().map(|id| Replaced { id, stale_until }),
        };
        store.create(new, now).map_err(Invalid::from)
    }

    /// The attributes of the cookie that the browser keeps. Kong counts `Expires` from the creation, but browsers obey
    /// `Max-Age` (RFC 6265, section 5.3).
    fn kept_attributes(&self, created: u64) -> String {
        let age = lifetime(self.remember.rolling_timeout).max(0.0) as u64;
        // An HTTP date has a year of four digits.
        let until = created.saturating_add(age).min(253_402_300_799);
        let expires = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(until));
        format!("{}; Expires={expires}; Max-Age={age}", self.attributes)
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
        let rolled = elapsed(scene.now, header.renewed());
        let rolling = self.session.rolling_timeout;
        if rolling > 0.0 && rolled > (rolling * 0.75).floor() {
            return self.save(scene, session, Purpose::Session);
        }
        let idle = elapsed(scene.now, header.last_noted());
        if self.idling_timeout > 0.0 && idle > TOUCH_AFTER {
            return self.touch(scene, session);
        }
        Ok(Vec::new())
    }

    fn touch(
        &self,
        scene: Scene<'_, '_>,
        session: &mut Session,
    ) -> Result<Vec<SetCookie>, Invalid> {
        let header = session.header.as_mut().ok_or(Invalid::Missing)?;
        *header = header.touched(scene.now.saturating_sub(header.renewed()));
        let text = self.secret.header_text(header)?;
        let name = &self.session.name;
        let cookie = scene.request.cookie(name).unwrap_or_default();
        // The payload was decoded, so that its characters are those of base64url.
        let payload = match scene.store {
            Some(_) => &[],
            None => cookie.get(HEADER_TEXT..).unwrap_or_default(),
        };
        let payload = str::from_utf8(payload).map_err(|_| Invalid::Payload)?;
        let value = format!("{text}{payload}");
        Ok(vec![SetCookie::new(name.clone(), &value, &self.attributes)])
    }

    /// Begins a session, or replaces the data of the present one. It gets a new id.
    pub(crate) fn log_in(
        &self,
        scene: Scene<'_, '_>,
        session: &mut Session,
        login: &Login,
    ) -> Result<Vec<SetCookie>, Invalid> {
        session.payload.set(&self.audience, login);
        let mut cookies = self.save(scene, session, Purpose::Session)?;
        cookies.extend(self.save_remembered(scene, session)?);
        Ok(cookies)
    }

    fn save_remembered(
        &self,
        scene: Scene<'_, '_>,
        session: &mut Session,
    ) -> Result<Vec<SetCookie>, Invalid> {
        if !self.is_remembered(session) {
            return Ok(Vec::new());
        }
        self.find_remembered(scene, session);
        self.save(scene, session, Purpose::Remember)
    }

    fn find_remembered(&self, scene: Scene<'_, '_>, session: &mut Session) {
        if session.remembered.is_none() {
            let found = self.read_header(scene, Purpose::Remember);
            session.remembered = found.ok().map(|(header, _)| header);
        }
    }

    fn is_remembered(&self, session: &Session) -> bool {
        let forgets = session.header.as_ref().is_some_and(|it| it.has(FORGET));
        self.remembers && !forgets
    }

    /// Ends the session of this audience. Returns the cookies to set, which delete the session if no other audience has
    /// one.
    pub(crate) fn log_out(
        &self,
        scene: Scene<'_, '_>,
        session: &mut Session,
    ) -> Result<Vec<SetCookie>, Invalid> {
        session.payload.remove(&self.audience);
        if !session.payload.is_empty() {
            let mut cookies = self.save(scene, session, Purpose::Session)?;
            cookies.extend(self.save_remembered(scene, session)?);
            return Ok(cookies);
        }
        let is_remembered = self.is_remembered(session);
        let mut cookies = Vec::new();
        self.delete(scene, session.header.take(), Purpose::Session, &mut cookies)?;
        if is_remembered {
            self.find_remembered(scene, session);
            let header = session.remembered.take();
            self.delete(scene, header, Purpose::Remember, &mut cookies)?;
        }
        Ok(cookies)
    }

    fn delete(
        &self,
        scene: Scene<'_, '_>,
        header: Option<Header>,
        purpose: Purpose,
        cookies: &mut Vec<SetCookie>,
    ) -> Result<(), Invalid> {
        let Some(header) = header else {
            return Ok(());
        };
        let name = &self.kind(purpose).name;
        let count = match scene.store {
            Some(_) => 1,
            None => jar::pieces(name, header.size as usize)?,
        };
        cookies.extend(jar::expire(name, 1..=count, &self.attributes));
        match scene.store {
            Some(store) => store.delete(&header.id_text()).map_err(Invalid::from),
            None => Ok(()),
        }
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

/// Returns the payload of a stored session. The row is a JSON list of it and, optionally, of what is not encrypted.
fn stored(store: &dyn SessionStore, header: &Header, now: u64) -> Result<Vec<u8>, Invalid> {
    let row = store
        .find(&header.id_text(), now)?
        .ok_or(Invalid::Missing)?;
    let parts: Vec<String> = serde_json::from_str(&row).map_err(|_| Invalid::Payload)?;
    let payload = parts.into_iter().next().ok_or(Invalid::Payload)?;
    Ok(payload.into_bytes())
}

/// Returns the seconds from a time to another, which are negative if the clock was set back.
fn elapsed(now: u64, since: u64) -> f64 {
    now as f64 - since as f64
}

fn lifetime(timeout: f64) -> f64 {
    match timeout == 0.0 || timeout > MAX_TTL {
        true => MAX_TTL,
        false => timeout,
    }
}
