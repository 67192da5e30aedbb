//! Rows as they are stored.

use crate::fields::{Fields, Writer};
use crate::secret::{Keys, MAC, Made, Storage, shown_digest};
use crate::store::{Known, NewCode, Owner, State, StoreError, Texts, Token};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// The form of stored rows. A row of another form is not read.
const FORM: u8 = 1;

/// A row. It is stored in a form of its own, because every request with a token reads one: decoding a form that describes
/// itself takes longer than finding the row.
#[derive(Debug, Clone)]
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
    /// The first row of the grant, if this is another one.
    pub(crate) family: Option<Uuid>,
    pub(crate) scope: Option<String>,
    pub(crate) authenticated_userid: Option<String>,
    pub(crate) sealed: Option<Sealed>,
}

#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    key: u32,
    /// The length of what is shown of the access token, in four bytes, then that text, and then that of the refresh token
    /// if there is one.
    texts: Vec<u8>,
}

impl Row {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new(FORM);
        out.byte(match self.state {
            State::Live => 0,
            State::Superseded => 1,
            State::Revoked => 2,
        });
        out.bytes(self.id.as_bytes());
        out.bytes(&self.access);
        out.optional(self.refresh.as_ref(), |out, mac| out.bytes(mac));
        out.owner(&self.credential);
        out.optional(self.service.as_ref(), Writer::owner);
        out.number(self.created_at);
        out.number(self.expires_in);
        out.optional(self.ends.as_ref(), |out, ends| out.number(*ends));
        out.optional(self.successor.as_ref(), |out, id| out.bytes(id.as_bytes()));
        out.optional(self.family.as_ref(), |out, id| out.bytes(id.as_bytes()));
        out.optional(self.scope.as_ref(), |out, text| out.text(text.as_bytes()));
        out.optional(self.authenticated_userid.as_ref(), |out, text| {
            out.text(text.as_bytes());
        });
        out.optional(self.sealed.as_ref(), |out, sealed| {
            out.number(i64::from(sealed.key));
            out.text(&sealed.texts);
        });
        out.end()
    }

    pub(crate) fn decode(stored: &[u8]) -> Result<Self, StoreError> {
        Self::read(stored, true).ok_or(StoreError::Damaged)
    }

    /// Decodes a row without its sealed texts, which requests do not need.
    pub(crate) fn decode_unsealed(stored: &[u8]) -> Result<Self, StoreError> {
        Self::read(stored, false).ok_or(StoreError::Damaged)
    }

    fn read(stored: &[u8], with_texts: bool) -> Option<Self> {
        let mut fields = Fields::of(stored, FORM)?;
        let state = match fields.byte()? {
            0 => State::Live,
            1 => State::Superseded,
            2 => State::Revoked,
            _ => return None,
        };
        Some(Self {
            state,
            id: Uuid::from_bytes(fields.array()?),
            access: fields.array()?,
            refresh: fields.optional(Fields::array)?,
            credential: fields.owner()?,
            service: fields.optional(Fields::owner)?,
            created_at: fields.number()?,
            expires_in: fields.number()?,
            ends: fields.optional(Fields::number)?,
            successor: fields.optional(|fields| Some(Uuid::from_bytes(fields.array()?)))?,
            family: fields.optional(|fields| Some(Uuid::from_bytes(fields.array()?)))?,
            scope: fields.optional(Fields::string)?,
            authenticated_userid: fields.optional(Fields::string)?,
            sealed: if with_texts {
                fields.optional(|fields| {
                    Some(Sealed {
                        key: u32::try_from(fields.number()?).ok()?,
                        texts: fields.text()?.to_vec(),
                    })
                })?
            } else {
                None
            },
        })
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

    /// Keeps what is to be shown of the tokens. It is sealed in either case, so that the file of the store alone tells
    /// nothing.
    pub(crate) fn keep(
        &mut self,
        access: &Known,
        refresh: Option<&Known>,
        keys: &Keys,
        storage: Storage,
    ) -> Result<(), StoreError> {
        let shown = |known: &Known| match (known, storage) {
            (Known::Text(text), Storage::Sealed) => text.clone(),
            (Known::Text(text), Storage::Hashed) => shown_digest(&Keys::digest(text.as_bytes())),
            (Known::Sha256(digest), _) => shown_digest(digest),
        };
        let access = shown(access);
        let mut texts = (access.len() as u32).to_le_bytes().to_vec();
        texts.extend_from_slice(access.as_bytes());
        if let Some(refresh) = refresh {
            texts.extend_from_slice(shown(refresh).as_bytes());
        }
        self.sealed = Some(Sealed {
            key: keys.seal_id(),
            texts: keys.seal(self.id, &texts)?,
        });
        Ok(())
    }

    fn texts(&self, keys: &Keys) -> Result<Option<Texts>, StoreError> {
        let Some(sealed) = &self.sealed else {
            return Ok(None);
        };
        let Some(texts) = keys.open(sealed.key, self.id, &sealed.texts)? else {
            return Ok(None);
        };
        self.split(&texts).map(Some).ok_or(StoreError::Damaged)
    }

    fn split(&self, texts: &[u8]) -> Option<Texts> {
        let (length, texts) = texts.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (access, refresh) = str::from_utf8(texts).ok()?.split_at_checked(length)?;
        Some(Texts {
            access_token: Made(access.to_owned()),
            refresh_token: self.refresh.map(|_| Made(refresh.to_owned())),
        })
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

/// A code as it is stored. The short names of MessagePack arrays are positions: a new field is added at the end, with a
/// default.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let owner = |id| Owner {
            id: Uuid::from_u128(id),
            created: 3,
        };
        Row {
            id: Uuid::from_u128(1),
            state: State::Superseded,
            access: [2; MAC],
            refresh: Some([3; MAC]),
            credential: owner(4),
            service: Some(owner(5)),
            created_at: -6,
            expires_in: 7,
            ends: Some(i64::MAX),
            successor: Some(Uuid::from_u128(8)),
            family: Some(Uuid::from_u128(9)),
            scope: Some("é".to_owned()),
            authenticated_userid: Some(String::new()),
            sealed: Some(Sealed {
                key: 9,
                texts: vec![0, 255],
            }),
        }
    }

    #[test]
    fn a_row_decodes_as_encoded() {
        let bare = Row {
            refresh: None,
            service: None,
            ends: None,
            successor: None,
            family: None,
            scope: None,
            authenticated_userid: None,
            sealed: None,
            ..row()
        };
        for row in [row(), bare] {
            let decoded = Row::decode(&row.encode()).unwrap();
            assert_eq!(format!("{decoded:?}"), format!("{row:?}"));
        }
        let unsealed = Row::decode_unsealed(&row().encode()).unwrap();
        assert!(unsealed.sealed.is_none());
        assert_eq!(unsealed.authenticated_userid.as_deref(), Some(""));
    }

    #[test]
    fn a_part_of_a_row_is_refused() {
        let whole = row().encode();
        for length in 0..whole.len() {
            assert!(Row::decode(&whole[..length]).is_err(), "{length}");
        }
        let other_form = [&[FORM + 1], &whole[1..]].concat();
        assert!(Row::decode(&other_form).is_err());
    }
}
