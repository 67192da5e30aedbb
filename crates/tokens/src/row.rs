//! Rows as they are stored.

use crate::secret::{Keys, MAC, Made, Storage};
use crate::store::{NewCode, Owner, State, StoreError, Texts, Token};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// A row. The short names of MessagePack arrays are positions: a new field is added at the end, with a default.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) id: Uuid,
    pub(crate) state: State,
    pub(crate) access: [u8; MAC],
    pub(crate) refresh: Option<[u8; MAC]>,
    pub(crate) credential: Owner,
    pub(crate) service: Option<Owner>,
    pub(crate) created_at: i64,
    pub(crate) expires_in: i64,
    pub(crate) ends: Option<i64>,
    /// The row that has taken the place of this one: the row itself, if it was moved to the table of loose rows.
    pub(crate) successor: Option<Uuid>,
    pub(crate) scope: Option<String>,
    pub(crate) authenticated_userid: Option<String>,
    pub(crate) sealed: Option<Sealed>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sealed {
    key: u32,
    /// The access token, and after a blank the refresh token if there is one. Neither has a blank.
    texts: Vec<u8>,
}

impl Row {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        rmp_serde::to_vec(self).map_err(|error| StoreError::Storage(error.to_string()))
    }

    pub(crate) fn decode(stored: &[u8]) -> Result<Self, StoreError> {
        rmp_serde::from_slice(stored).map_err(|_| StoreError::Damaged)
    }

    /// Whether the row is there at this time.
    pub(crate) fn is_there(&self, now: i64) -> bool {
        self.ends.is_none_or(|ends| now < ends)
    }

    pub(crate) fn is_live(&self, now: i64) -> bool {
        self.state == State::Live && self.is_there(now)
    }

    /// Whether the row is among the loose rows now, with the same id.
    pub(crate) fn is_moved(&self) -> bool {
        self.successor == Some(self.id)
    }

    pub(crate) fn has_access(&self, mac: &[u8; MAC]) -> bool {
        bool::from(self.access.ct_eq(mac))
    }

    pub(crate) fn has_refresh(&self, mac: &[u8; MAC]) -> bool {
        self.refresh.is_some_and(|own| bool::from(own.ct_eq(mac)))
    }

    /// Keeps the texts, if they are to be kept.
    pub(crate) fn keep(
        &mut self,
        access: &str,
        refresh: Option<&str>,
        keys: &Keys,
        storage: Storage,
    ) -> Result<(), StoreError> {
        if storage == Storage::Hashed {
            return Ok(());
        }
        let texts = match refresh {
            Some(refresh) => format!("{access} {refresh}"),
            None => access.to_owned(),
        };
        self.sealed = Some(Sealed {
            key: keys.seal_id,
            texts: keys.seal(self.id, texts.as_bytes())?,
        });
        Ok(())
    }

    fn texts(&self, keys: &Keys) -> Result<Option<Texts>, StoreError> {
        let Some(sealed) = self
            .sealed
            .as_ref()
            .filter(|sealed| sealed.key == keys.seal_id)
        else {
            return Ok(None);
        };
        let texts = keys.open(self.id, &sealed.texts)?;
        let texts = String::from_utf8(texts).map_err(|_| StoreError::Damaged)?;
        let (access, refresh) = match texts.split_once(' ') {
            Some((access, refresh)) => (access, Some(refresh)),
            None => (texts.as_str(), None),
        };
        Ok(Some(Texts {
            access_token: Made(access.to_owned()),
            refresh_token: refresh.map(|refresh| Made(refresh.to_owned())),
        }))
    }

    pub(crate) fn token(self, keys: Option<&Keys>) -> Result<Token, StoreError> {
        let texts = keys.map(|keys| self.texts(keys)).transpose()?.flatten();
        Ok(Token {
            id: self.id,
            credential: self.credential,
            service: self.service,
            expires_in: self.expires_in,
            created_at: self.created_at,
            ends: self.ends,
            scope: self.scope,
            authenticated_userid: self.authenticated_userid,
            state: self.state,
            has_refresh_token: self.refresh.is_some(),
            texts,
        })
    }
}

/// A code as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CodeRow {
    pub(crate) id: Uuid,
    pub(crate) mac: [u8; MAC],
    pub(crate) ends: i64,
    /// The row of the token that it was exchanged for.
    pub(crate) token: Option<Uuid>,
    pub(crate) code: NewCode,
}

impl CodeRow {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        rmp_serde::to_vec(self).map_err(|error| StoreError::Storage(error.to_string()))
    }

    pub(crate) fn decode(stored: &[u8]) -> Result<Self, StoreError> {
        rmp_serde::from_slice(stored).map_err(|_| StoreError::Damaged)
    }

    pub(crate) fn has(&self, mac: &[u8; MAC]) -> bool {
        bool::from(self.mac.ct_eq(mac))
    }
}
