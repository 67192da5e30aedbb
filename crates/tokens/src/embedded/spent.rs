//! Refresh tokens that were used. They are known until their grant ends, also when their own rows are gone, so that a
//! replay is known as one.

use super::reading::{At, View};
use super::tables::storage;
use super::writer::Write;
use crate::place::Place;
use crate::row::Row;
use crate::secret::MAC;
use crate::store::{State, StoreError};
use std::ops::Bound;
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// The tables of used refresh tokens.
#[derive(Clone, Copy)]
pub(super) struct Spent {
    /// Place of the row, or hash of the refresh token if the row was loose. The value is that hash, and the first row of
    /// the grant.
    pub(super) tokens: super::tables::Table,
    /// The time at which an entry is looked at again, and its key.
    pub(super) ends: super::tables::Table,
    /// First row of a grant to its last one.
    pub(super) last: super::tables::Table,
}

impl View<'_> {
    /// Returns the last row of the grant in which a refresh token was used, if the grant goes on.
    pub(super) fn last_of_spent(&self, token: &str, now: i64) -> Result<Option<Row>, StoreError> {
        let mac = self.shared.keys.mac(token.as_bytes());
        let place = Place::read(token.as_bytes()).map(Place::key);
        for key in place.iter().map(|key| &key[..]).chain([&mac[..]]) {
            let stored = self.shared.tables.spent.tokens.get(self.txn, key);
            let Some(stored) = stored.map_err(storage)? else {
                continue;
            };
            let (own, family) = parse(stored)?;
            if bool::from(own.ct_eq(&mac)) {
                return self.last_of(family, now);
            }
        }
        Ok(None)
    }

    pub(super) fn last_of(&self, family: Uuid, now: i64) -> Result<Option<Row>, StoreError> {
        let last = self
            .shared
            .tables
            .spent
            .last
            .get(self.txn, family.as_bytes());
        let Some(last) = last.map_err(storage)? else {
            return Ok(None);
        };
        let last = last.try_into().map_err(|_| StoreError::Damaged)?;
        let found = self.by_id(Uuid::from_bytes(last))?;
        Ok(found.map(|(_, row)| row).filter(|row| row.is_there(now)))
    }

    /// Returns a row that stands for the one of a used refresh token, which is gone.
    pub(super) fn spent(&self, token: &str, now: i64) -> Result<Option<Row>, StoreError> {
        let last = self.last_of_spent(token, now)?;
        Ok(last.map(|row| Row {
            state: State::Superseded,
            ..row
        }))
    }
}

impl Write<'_> {
    /// Notes that the refresh token of a row was used, and that the row `next` follows.
    pub(super) fn note_spent(
        &mut self,
        at: At,
        row: &Row,
        next: Uuid,
        ends: Option<i64>,
    ) -> Result<(), StoreError> {
        let Some(refresh) = &row.refresh else {
            return Ok(());
        };
        let family = row.family.unwrap_or(row.id);
        let key = match at {
            At::Place(place) => place.key().to_vec(),
            At::Loose(_) => refresh.to_vec(),
        };
        let spent = &self.shared.tables.spent;
        let value = [&refresh[..], family.as_bytes()].concat();
        self.put(spent.tokens, &key, &value)?;
        self.put(spent.last, family.as_bytes(), next.as_bytes())?;
        self.put(spent.ends, &end_key(ends, &key), &[])
    }

    /// Forgets used refresh tokens whose grant has ended. Returns how many entries it has looked at.
    pub(super) fn forget_spent(&mut self, most: usize, now: i64) -> Result<usize, StoreError> {
        let spent = &self.shared.tables.spent;
        let last = now.to_be_bytes();
        let range = (Bound::Unbounded, Bound::Excluded(&last[..]));
        let mut ended = Vec::new();
        for entry in spent
            .ends
            .range(&self.txn, &range)
            .map_err(storage)?
            .take(most)
        {
            ended.push(entry.map_err(storage)?.0.to_vec());
        }
        for entry in &ended {
            let key = entry.get(8..).ok_or(StoreError::Damaged)?;
            self.delete(spent.ends, entry)?;
            let stored = spent.tokens.get(&self.txn, key).map_err(storage)?;
            let Some((_, family)) = stored.map(parse).transpose()? else {
                continue;
            };
            match self.view().last_of(family, now)? {
                // The grant has been refreshed since.
                Some(row) => self.put(spent.ends, &end_key(row.ends, key), &[])?,
                None => {
                    self.delete(spent.tokens, key)?;
                    self.delete(spent.last, family.as_bytes())?;
                }
            }
        }
        Ok(ended.len())
    }
}

fn parse(stored: &[u8]) -> Result<([u8; MAC], Uuid), StoreError> {
    let (mac, family) = stored.split_first_chunk().ok_or(StoreError::Damaged)?;
    let family = family.try_into().map_err(|_| StoreError::Damaged)?;
    Ok((*mac, Uuid::from_bytes(family)))
}

fn end_key(ends: Option<i64>, key: &[u8]) -> Vec<u8> {
    // What never ends is never looked at again.
    let ends = ends.unwrap_or(i64::MAX).max(0);
    [&ends.to_be_bytes()[..], key].concat()
}
