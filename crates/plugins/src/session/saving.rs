//! Saving and deleting sessions, in cookies and in the storage.
//! Source: lua-resty-session 4.0.5, lib/resty/session.lua save(), touch(), destroy().

use super::format::{FORGET, Fresh, HEADER_TEXT, Header, Invalid, Purpose, STORED, Times};
use super::jar::{self, SetCookie};
use super::sessions::{Scene, Session, Sessions};
use std::time::{Duration, UNIX_EPOCH};
use tokens::sessions::{NewSession, Replaced, SessionReply, SessionStore};
use uuid::Uuid;

/// Maximum lifetime of a cookie and of a stored session: 400 days.
const MAX_TTL: f64 = 34_560_000.0;

impl Sessions {
    pub(super) fn save_session(
        &self,
        scene: Scene<'_, '_>,
        session: &mut Session,
    ) -> Result<Vec<SetCookie>, Invalid> {
        let fresh = self.secret.fresh(Purpose::Session)?;
        self.save(scene, session, Purpose::Session, fresh)
    }

    /// Saves a session under a new id, and returns the cookies to set.
    pub(super) fn save(
        &self,
        scene: Scene<'_, '_>,
        session: &mut Session,
        purpose: Purpose,
        fresh: Fresh,
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
        let (header, payload) = fresh.seal(flags, times, plaintext)?;
        let text = self.secret.header_text(&header)?;
        let attributes = match purpose {
            Purpose::Session => self.attributes.clone(),
            Purpose::Remember => self.kept_attributes(created),
        };
        let cookies = match scene.store {
            Some(store) => {
                let owner = session.payload.owner(&self.audience);
                let owner = owner.and_then(|id| Uuid::try_parse(id).ok());
                let row = (owner.unwrap_or_default(), &*payload);
                self.store(store, &header, row, old, purpose, scene.now)?;
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
        (owner, payload): (Uuid, &str),
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
            session_id: &header.id_text(),
            owner,
            data: &serde_json::json!([payload]).to_string(),
            ends: after(lifetime(self.kind(purpose).rolling_timeout)),
            replaces: old.as_deref().map(|session_id| Replaced {
                session_id,
                stale_until,
            }),
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

    /// Notes the time of the request in the cookie.
    pub(super) fn touch(
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

    pub(super) fn find_remembered(&self, scene: Scene<'_, '_>, session: &mut Session) {
        if session.remembered.is_none() {
            let found = self.read_header(scene, Purpose::Remember);
            session.remembered = found.ok().map(|(header, _)| header);
        }
    }

    pub(super) fn is_remembered(&self, session: &Session) -> bool {
        let forgets = session.header.as_ref().is_some_and(|it| it.has(FORGET));
        self.remembers && !forgets
    }

    /// Ends a saved session, if there is one, and adds the cookies that delete it. The reply of the storage, if it has one,
    /// comes when the session is gone for good.
    pub(super) fn delete(
        &self,
        scene: Scene<'_, '_>,
        header: Option<Header>,
        purpose: Purpose,
        cookies: &mut Vec<SetCookie>,
    ) -> Result<Option<SessionReply<()>>, Invalid> {
        let Some(header) = header else {
            return Ok(None);
        };
        let name = &self.kind(purpose).name;
        let count = match scene.store {
            Some(_) => 1,
            None => jar::pieces(name, header.size as usize)?,
        };
        cookies.extend(jar::expire(name, 1..=count, &self.attributes));
        Ok(scene.store.map(|store| store.delete(&header.id_text())))
    }
}

/// Returns the payload of a stored session, and whether the storage has a newer one in its place. The row is a JSON list
/// of the payload and, optionally, of what is not encrypted.
pub(super) fn stored(
    store: &dyn SessionStore,
    header: &Header,
    now: u64,
) -> Result<(Vec<u8>, bool), Invalid> {
    let row = store
        .find(&header.id_text(), now)?
        .ok_or(Invalid::Missing)?;
    let parts: Vec<String> = serde_json::from_str(&row.data).map_err(|_| Invalid::Payload)?;
    let payload = parts.into_iter().next().ok_or(Invalid::Payload)?;
    Ok((payload.into_bytes(), row.is_replaced))
}

fn lifetime(timeout: f64) -> f64 {
    match timeout == 0.0 || timeout > MAX_TTL {
        true => MAX_TTL,
        false => timeout,
    }
}
